/* The ping-pong of benchmarks/latency_persistent, for another MPI: requests made once, started for every message. */
#include "common.h"

static void ping_pong_persistent(void *side, long n)
{
    MPI_Request *two = side;
    for (long i = 0; i < n; i++) {
        for (int j = 0; j < 2; j++) {
            MPI_Start(&two[j]);
            MPI_Wait(&two[j], MPI_STATUS_IGNORE);
        }
    }
}

int main(int argc, char **argv)
{
    options o = latency_options();
    int rank = join_job(argc, argv, &o);
    need_ranks(2);
    pair p = new_pair(&o, rank == 0, 1 - rank);
    if (rank == 0)
        header("MPI Latency Persistent Test", "Size", "Avg Latency(us)");
    for (long size = o.min; size >= 0; size = next_size(&o, size, 2)) {
        MPI_Request two[2]; /* of a round trip, in their order */
        MPI_Send_init(p.send, size, MPI_CHAR, p.partner, p.tag, MPI_COMM_WORLD, &two[!p.serves]);
        MPI_Recv_init(p.recv, size, MPI_CHAR, p.partner, p.tag, MPI_COMM_WORLD, &two[p.serves]);
        figure f = measure(&o, size, 0, ping_pong_persistent, two);
        if (rank == 0)
            print_value(size, f.ns / 1e3 / 2);
        MPI_Request_free(&two[0]);
        MPI_Request_free(&two[1]);
    }
    free_pair(&o, &p);
    return leave_job();
}
