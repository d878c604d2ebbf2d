/* The windows of benchmarks/bibw, in both directions at once, for another MPI. */
#include "common.h"

typedef struct {
    flight out, in;
    int partner, size;
} both;

static void both_ways(void *side, long n)
{
    both *b = side;
    for (long i = 0; i < n; i++) {
        recv_some(&b->in, 0, b->in.count, b->partner, b->size, DATA);
        send_some(&b->out, 0, b->out.count, b->partner, b->size, DATA);
        wait_all(&b->out);
        wait_all(&b->in);
    }
}

int main(int argc, char **argv)
{
    options o = bandwidth_options();
    int rank = join_job(argc, argv, &o);
    need_ranks(2);
    both b = {.out = new_flight(&o, o.window), .in = new_flight(&o, o.window), .partner = 1 - rank};
    if (rank == 0)
        header("MPI Bi-Directional Bandwidth Test", "Size", "Bandwidth (MB/s)");
    each_size(&o, both_ways, &b, &b.size, print_bandwidth, 2 * o.window);
    free_flight(&o, &b.out);
    free_flight(&o, &b.in);
    return leave_job();
}
