/* The ping-pongs of benchmarks/multi_lat, all pairs at once, for another MPI. */
#include "common.h"

/* One rank's time for a message of n round trips; 0 of a rank that does not serve. */
static double timed(int rank, int pairs, char *send, char *recv, long size, long warm, long n)
{
    int serves = rank < pairs, partner = serves ? rank + pairs : rank - pairs, takes_part = rank < 2 * pairs;
    MPI_Barrier(MPI_COMM_WORLD);
    if (takes_part)
        ping_pong(serves, partner, send, recv, size, PING, warm);
    MPI_Barrier(MPI_COMM_WORLD);
    int64_t start = now_ns();
    if (takes_part)
        ping_pong(serves, partner, send, recv, size, PING, n);
    return serves ? (now_ns() - start) / 1e3 / n / 2 : 0;
}

int main(int argc, char **argv)
{
    options o = latency_options();
    MPI_Init(&argc, &argv);
    int rank = my_rank();
    parse(argc, argv, &o);
    int pairs = count_pairs(&o);
    char *send = buffer(&o, o.max), *recv = buffer(&o, o.max);
    if (rank == 0) {
        title("MPI Multi Latency Test");
        printf("# [ pairs: %d ]\n", pairs);
        columns("Size", "Avg Latency(us)", NULL);
    }
    for (long size = o.min; size >= 0; size = next_size(&o, size, 2)) {
        double mine = timed(rank, pairs, send, recv, size, warmup(&o, size), iterations(&o, size)), sum = 0;
        MPI_Reduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
        if (rank == 0) {
            printf("%-10ld%20.2f\n", size, sum / pairs);
            fflush(stdout);
        }
    }
    release(&o, send);
    release(&o, recv);
    MPI_Finalize();
    return 0;
}
