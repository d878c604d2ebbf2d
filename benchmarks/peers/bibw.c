/* The windows of benchmarks/bibw, in both directions at once, for another MPI. */
#include "common.h"

static void both_ways(flight *out, flight *in, int partner, int size, long n)
{
    for (long i = 0; i < n; i++) {
        recv_some(in, 0, in->count, partner, size, DATA);
        send_some(out, 0, out->count, partner, size, DATA);
        wait_all(out);
        wait_all(in);
    }
}

int main(int argc, char **argv)
{
    options o = bandwidth_options();
    MPI_Init(&argc, &argv);
    int rank = my_rank();
    parse(argc, argv, &o);
    need_ranks(2);
    flight out = new_flight(&o, o.window), in = new_flight(&o, o.window);
    if (rank == 0)
        header("MPI Bi-Directional Bandwidth Test", "Size", "Bandwidth (MB/s)");
    for (long size = o.min; size >= 0; size = next_size(&o, size, 2)) {
        long n = iterations(&o, size);
        MPI_Barrier(MPI_COMM_WORLD);
        both_ways(&out, &in, 1 - rank, size, warmup(&o, size));
        int64_t start = now_ns();
        both_ways(&out, &in, 1 - rank, size, n);
        int64_t took = now_ns() - start;
        if (rank == 0) {
            printf("%-10ld%20.2f\n", size, 2.0 * size * o.window * n * 1e3 / took);
            fflush(stdout);
        }
    }
    free_flight(&o, &out);
    free_flight(&o, &in);
    MPI_Finalize();
    return 0;
}
