/* The windows of benchmarks/fan_in, from all ranks to rank 0, for another MPI. */
#include "common.h"

static void gather(flight *f, int senders, int size, long n)
{
    for (long i = 0; i < n; i++) {
        recv_some(f, 0, f->count, MPI_ANY_SOURCE, size, DATA);
        wait_all(f);
        for (int r = 1; r <= senders; r++)
            send_answer(r);
    }
}

int main(int argc, char **argv)
{
    options o = bandwidth_options();
    MPI_Init(&argc, &argv);
    int rank = my_rank(), senders = all_ranks() - 1;
    parse(argc, argv, &o);
    if (senders < 1)
        fail("fan_in", "needs at least two ranks");
    flight f = new_flight(&o, rank == 0 ? o.window * senders : o.window);
    if (rank == 0) {
        title("MPI Bandwidth Congestion In Test");
        printf("# [ senders: %d ] [ window size: %ld ]\n", senders, o.window);
        columns("Size", "MB/s", "Messages/s", NULL);
    }
    for (long size = o.min; size >= 0; size = next_size(&o, size, 2)) {
        long n = iterations(&o, size), warm = warmup(&o, size);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank != 0) {
            windows(&f, 1, 0, size, warm + n);
            continue;
        }
        gather(&f, senders, size, warm);
        int64_t start = now_ns();
        gather(&f, senders, size, n);
        print_rates(size, (double)senders * o.window * n, now_ns() - start);
    }
    free_flight(&o, &f);
    MPI_Finalize();
    return 0;
}
