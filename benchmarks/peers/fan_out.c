/* The windows of benchmarks/fan_out, from rank 0 to all ranks, for another MPI. */
#include "common.h"

typedef struct {
    flight f;
    int receivers, window, size;
} source;

static void spread(void *side, long n)
{
    source *s = side;
    for (long i = 0; i < n; i++) {
        for (int r = 1; r <= s->receivers; r++)
            send_some(&s->f, (r - 1) * s->window, s->window, r, s->size, DATA);
        wait_all(&s->f);
        for (int r = 1; r <= s->receivers; r++)
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
    source s = {.receivers = receivers, .window = o.window};
    window w = {0};
    if (rank == 0) {
        s.f = new_flight(&o, o.window * receivers);
        title("MPI Bandwidth Congestion Out Test");
        printf("# [ receivers: %d ] [ window size: %ld ]\n", receivers, o.window);
        columns("Size", "MB/s", "Messages/s", NULL);
    } else {
        w = new_window(&o, 0, 0);
    }
    for (long size = o.min; size >= 0; size = next_size(&o, size, 2)) {
        s.size = w.size = size;
        figure f = rank == 0 ? measure(&o, size, 0, spread, &s) : measure(&o, size, 0, windows, &w);
        if (rank == 0)
            print_rates(size, (double)receivers * o.window, f.ns);
    }
    free_flight(&o, rank == 0 ? &s.f : &w.f);
    MPI_Finalize();
    return 0;
}
