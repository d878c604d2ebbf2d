/* The ping-pong of benchmarks/latency, for another MPI. */
#include "common.h"

int main(int argc, char **argv)
{
    options o = latency_options();
    MPI_Init(&argc, &argv);
    int rank = my_rank();
    parse(argc, argv, &o);
    need_ranks(2);
    char *send = buffer(&o, o.max), *recv = buffer(&o, o.max);
    if (rank == 0)
        header("MPI Latency Test", "Size", "Avg Latency(us)");
    for (long size = o.min; size >= 0; size = next_size(&o, size, 2)) {
        long n = iterations(&o, size);
        MPI_Barrier(MPI_COMM_WORLD);
        ping_pong(rank == 0, 1 - rank, send, recv, size, PING, warmup(&o, size));
        int64_t start = now_ns();
        ping_pong(rank == 0, 1 - rank, send, recv, size, PING, n);
        int64_t took = now_ns() - start;
        if (rank == 0) {
            printf("%-10ld%20.2f\n", size, took / 1e3 / n / 2);
            fflush(stdout);
        }
    }
    release(&o, send);
    release(&o, recv);
    MPI_Finalize();
    return 0;
}
