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
    int rank = join_job(argc, argv, &o), receivers = all_ranks() - 1;
    need_two("fan_out");
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
    if (rank == 0)
        each_size(&o, spread, &s, &s.size, print_rates, (double)receivers * o.window);
    else
        each_size(&o, windows, &w, &w.size, print_rates, 0);
    free_flight(&o, rank == 0 ? &s.f : &w.f);
    return leave_job();
}
