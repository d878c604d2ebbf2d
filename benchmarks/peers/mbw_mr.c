/* The message rate of benchmarks/mbw_mr, for another MPI. */
#include "common.h"

int main(int argc, char **argv)
{
    options o = bandwidth_options();
    MPI_Init(&argc, &argv);
    int rank = my_rank();
    parse(argc, argv, &o);
    int pairs = count_pairs(&o), sends = rank < pairs;
    window w = new_window(&o, sends, sends ? rank + pairs : rank - pairs);
    if (rank == 0) {
        title("MPI Multiple Bandwidth / Message Rate Test");
        printf("# [ pairs: %d ] [ window size: %ld ]\n", pairs, o.window);
        columns("Size", "MB/s", "Messages/s", NULL);
    }
    for (long size = o.min; size >= 0; size = next_size(&o, size, 2)) {
        w.size = size;
        figure f = measure(&o, size, 1, rank < 2 * pairs ? windows : nothing, &w);
        double mine = sends ? f.ns : 0, sum = 0;
        MPI_Reduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
        if (rank == 0)
            print_rates(size, (double)pairs * o.window, sum / pairs);
    }
    free_flight(&o, &w.f);
    MPI_Finalize();
    return 0;
}
