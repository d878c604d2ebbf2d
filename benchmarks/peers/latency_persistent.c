/* The ping-pong of benchmarks/latency_persistent, for another MPI: requests made once, started for every message. */
#include "common.h"

static void ping_pong_persistent(int serves, MPI_Request *send, MPI_Request *recv, long n)
{
    for (long i = 0; i < n; i++) {
        MPI_Request *first = serves ? send : recv, *second = serves ? recv : send;
        MPI_Start(first);
        MPI_Wait(first, MPI_STATUS_IGNORE);
        MPI_Start(second);
        MPI_Wait(second, MPI_STATUS_IGNORE);
    }
}

int main(int argc, char **argv)
{
    options o = latency_options();
    MPI_Init(&argc, &argv);
    int rank = my_rank();
    parse(argc, argv, &o);
    need_ranks(2);
    char *send_buf = buffer(&o, o.max), *recv_buf = buffer(&o, o.max);
    if (rank == 0)
        header("MPI Latency Persistent Test", "Size", "Avg Latency(us)");
    for (long size = o.min; size >= 0; size = next_size(&o, size, 2)) {
        long n = iterations(&o, size);
        MPI_Request send, recv;
        MPI_Send_init(send_buf, size, MPI_CHAR, 1 - rank, PING, MPI_COMM_WORLD, &send);
        MPI_Recv_init(recv_buf, size, MPI_CHAR, 1 - rank, PING, MPI_COMM_WORLD, &recv);
        MPI_Barrier(MPI_COMM_WORLD);
        ping_pong_persistent(rank == 0, &send, &recv, warmup(&o, size));
        int64_t start = now_ns();
        ping_pong_persistent(rank == 0, &send, &recv, n);
        int64_t took = now_ns() - start;
        if (rank == 0) {
            printf("%-10ld%20.2f\n", size, took / 1e3 / n / 2);
            fflush(stdout);
        }
        MPI_Request_free(&send);
        MPI_Request_free(&recv);
    }
    release(&o, send_buf);
    release(&o, recv_buf);
    MPI_Finalize();
    return 0;
}
