/* The windows of benchmarks/bw, for another MPI. */
#include "common.h"

int main(int argc, char **argv)
{
    options o = bandwidth_options();
    MPI_Init(&argc, &argv);
    int rank = my_rank();
    parse(argc, argv, &o);
    need_ranks(2);
    flight f = new_flight(&o, o.window);
    if (rank == 0)
        header("MPI Bandwidth Test", "Size", "Bandwidth (MB/s)");
    for (long size = o.min; size >= 0; size = next_size(&o, size, 2)) {
        long n = iterations(&o, size);
        MPI_Barrier(MPI_COMM_WORLD);
        windows(&f, rank == 0, 1 - rank, size, warmup(&o, size));
        int64_t start = now_ns();
        windows(&f, rank == 0, 1 - rank, size, n);
        int64_t took = now_ns() - start;
        if (rank == 0) {
            printf("%-10ld%20.2f\n", size, (double)size * o.window * n * 1e3 / took);
            fflush(stdout);
        }
    }
    free_flight(&o, &f);
    MPI_Finalize();
    return 0;
}
