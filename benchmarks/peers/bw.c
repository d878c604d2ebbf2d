/* The windows of benchmarks/bw, for another MPI. */
#include "common.h"

int main(int argc, char **argv)
{
    options o = bandwidth_options();
    MPI_Init(&argc, &argv);
    int rank = my_rank();
    parse(argc, argv, &o);
    need_ranks(2);
    window w = new_window(&o, rank == 0, 1 - rank);
    if (rank == 0)
        header("MPI Bandwidth Test", "Size", "Bandwidth (MB/s)");
    for (long size = o.min; size >= 0; size = next_size(&o, size, 2)) {
        w.size = size;
        figure f = measure(&o, size, 0, windows, &w);
        if (rank == 0)
            print_value(size, (double)size * o.window * 1e3 / f.ns);
    }
    free_flight(&o, &w.f);
    MPI_Finalize();
    return 0;
}
