/* The windows of benchmarks/fan_in, from all ranks to rank 0, for another MPI. */
#include "common.h"

typedef struct {
    flight f;
    int senders, size;
} sink;

static void gather(void *side, long n)
{
    sink *s = side;
    for (long i = 0; i < n; i++) {
        recv_some(&s->f, 0, s->f.count, MPI_ANY_SOURCE, s->size, DATA);
        wait_all(&s->f);
        for (int r = 1; r <= s->senders; r++)
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
    sink s = {.senders = senders};
    window w = {0};
    if (rank == 0) {
        s.f = new_flight(&o, o.window * senders);
        title("MPI Bandwidth Congestion In Test");
        printf("# [ senders: %d ] [ window size: %ld ]\n", senders, o.window);
        columns("Size", "MB/s", "Messages/s", NULL);
    } else {
        w = new_window(&o, 1, 0);
    }
    for (long size = o.min; size >= 0; size = next_size(&o, size, 2)) {
        s.size = w.size = size;
        figure f = rank == 0 ? measure(&o, size, 0, gather, &s) : measure(&o, size, 0, windows, &w);
        if (rank == 0)
            print_rates(size, (double)senders * o.window, f.ns);
    }
    free_flight(&o, rank == 0 ? &s.f : &w.f);
    MPI_Finalize();
    return 0;
}
