/* The message rate of benchmarks/mbw_mr, for another MPI. */
#include "common.h"

/* One rank's time for n windows; 0 of a rank that does not send. */
static double timed(flight *f, int rank, int pairs, long size, long warm, long n)
{
    int sends = rank < pairs, partner = sends ? rank + pairs : rank - pairs, takes_part = rank < 2 * pairs;
    MPI_Barrier(MPI_COMM_WORLD);
    if (takes_part)
        windows(f, sends, partner, size, warm);
    MPI_Barrier(MPI_COMM_WORLD);
    int64_t start = now_ns();
    if (takes_part)
        windows(f, sends, partner, size, n);
    return sends ? (double)(now_ns() - start) : 0;
}

int main(int argc, char **argv)
{
    options o = bandwidth_options();
    MPI_Init(&argc, &argv);
    int rank = my_rank();
    parse(argc, argv, &o);
    int pairs = count_pairs(&o);
    flight f = new_flight(&o, o.window);
    if (rank == 0) {
        title("MPI Multiple Bandwidth / Message Rate Test");
        printf("# [ pairs: %d ] [ window size: %ld ]\n", pairs, o.window);
        columns("Size", "MB/s", "Messages/s", NULL);
    }
    for (long size = o.min; size >= 0; size = next_size(&o, size, 2)) {
        long n = iterations(&o, size);
        double mine = timed(&f, rank, pairs, size, warmup(&o, size), n), sum = 0;
        MPI_Reduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
        if (rank == 0)
            print_rates(size, (double)pairs * o.window * n, sum / pairs);
    }
    free_flight(&o, &f);
    MPI_Finalize();
    return 0;
}
