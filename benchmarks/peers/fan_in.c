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
    int rank = join_job(argc, argv, &o), senders = all_ranks() - 1;
    need_two("fan_in");
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
    if (rank == 0)
        each_size(&o, gather, &s, &s.size, print_rates, (double)senders * o.window);
    else
        each_size(&o, windows, &w, &w.size, print_rates, 0);
    free_flight(&o, rank == 0 ? &s.f : &w.f);
    return leave_job();
}
