/* The ping-pongs of benchmarks/multi_lat, all pairs at once, for another MPI. */
#include "common.h"

int main(int argc, char **argv)
{
    options o = latency_options();
    MPI_Init(&argc, &argv);
    int rank = my_rank();
    parse(argc, argv, &o);
    int pairs = count_pairs(&o), serves = rank < pairs;
    pair p = new_pair(&o, serves, serves ? rank + pairs : rank - pairs);
    if (rank == 0) {
        title("MPI Multi Latency Test");
        printf("# [ pairs: %d ]\n", pairs);
        columns("Size", "Avg Latency(us)", NULL);
    }
    for (long size = o.min; size >= 0; size = next_size(&o, size, 2)) {
        p.size = size;
        figure f = measure(&o, size, 1, rank < 2 * pairs ? ping_pong : nothing, &p);
        double mine = serves ? f.ns : 0, sum = 0;
        MPI_Reduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
        if (rank == 0)
            print_value(size, sum / pairs / 1e3 / 2);
    }
    free_pair(&o, &p);
    MPI_Finalize();
    return 0;
}
