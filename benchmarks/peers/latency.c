/* The ping-pong of benchmarks/latency, for another MPI. */
#include "common.h"

static void rally(int rank, char *send, char *recv, int size, long n)
{
    if (rank == 0) {
        for (long i = 0; i < n; i++) {
            MPI_Send(send, size, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
            MPI_Recv(recv, size, MPI_CHAR, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        return;
    }
    for (long i = 0; i < n; i++) {
        MPI_Recv(recv, size, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(send, size, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    options o = {1, 4 << 20, 10000, 1000, 100, 10, 64};
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    parse(argc, argv, &o);
    need_ranks(2);
    char *send = touched(o.max), *recv = touched(o.max);
    if (rank == 0)
        header("MPI Latency Test", "Size", "Avg Latency(us)");
    for (long size = o.min; size >= 0; size = next_size(&o, size, 2)) {
        long n = iterations(&o, size);
        MPI_Barrier(MPI_COMM_WORLD);
        rally(rank, send, recv, size, warmup(&o, size));
        int64_t start = now_ns();
        rally(rank, send, recv, size, n);
        int64_t took = now_ns() - start;
        if (rank == 0) {
            printf("%-10ld%20.2f\n", size, took / 1e3 / n / 2);
            fflush(stdout);
        }
    }
    free(send);
    free(recv);
    MPI_Finalize();
    return 0;
}
