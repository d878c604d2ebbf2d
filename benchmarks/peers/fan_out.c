/* The windows of benchmarks/fan_out, from rank 0 to all ranks, for another MPI. */
#include "common.h"

static void spread(flight *f, int receivers, int window, int size, long n)
{
    for (long i = 0; i < n; i++) {
        for (int r = 1; r <= receivers; r++)
            send_some(f, (r - 1) * window, window, r, size, DATA);
        wait_all(f);
        for (int r = 1; r <= receivers; r++)
            recv_answer(r);
    }
}

int main(int argc, char **argv)
{
    options o = bandwidth_options();
    MPI_Init(&argc, &argv);
    int rank = my_rank(), receivers = all_ranks() - 1;
    parse(argc, argv, &o);
    if (receivers < 1)
        fail("fan_out", "needs at least two ranks");
    flight f = new_flight(&o, rank == 0 ? o.window * receivers : o.window);
    if (rank == 0) {
        title("MPI Bandwidth Congestion Out Test");
        printf("# [ receivers: %d ] [ window size: %ld ]\n", receivers, o.window);
        columns("Size", "MB/s", "Messages/s", NULL);
    }
    for (long size = o.min; size >= 0; size = next_size(&o, size, 2)) {
        long n = iterations(&o, size), warm = warmup(&o, size);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank != 0) {
            windows(&f, 0, 0, size, warm + n);
            continue;
        }
        spread(&f, receivers, o.window, size, warm);
        int64_t start = now_ns();
        spread(&f, receivers, o.window, size, n);
        print_rates(size, (double)receivers * o.window * n, now_ns() - start);
    }
    free_flight(&o, &f);
    MPI_Finalize();
    return 0;
}
