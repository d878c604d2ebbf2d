/* The ping-pong of benchmarks/latency, for another MPI. */
#include "common.h"

int main(int argc, char **argv)
{
    options o = latency_options();
    MPI_Init(&argc, &argv);
    int rank = my_rank();
    parse(argc, argv, &o);
    need_ranks(2);
    pair p = new_pair(&o, rank == 0, 1 - rank);
    if (rank == 0)
        header("MPI Latency Test", "Size", "Avg Latency(us)");
    for (long size = o.min; size >= 0; size = next_size(&o, size, 2)) {
        p.size = size;
        figure f = measure(&o, size, 0, ping_pong, &p);
        if (rank == 0)
            print_value(size, f.ns / 1e3 / 2);
    }
    free_pair(&o, &p);
    MPI_Finalize();
    return 0;
}
