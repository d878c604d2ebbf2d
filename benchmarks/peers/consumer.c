/* The slow receiver of benchmarks/consumer, for another MPI. */
#include "common.h"

#define COMPUTATION 7000 /* ns, for each message */

typedef struct {
    int rank, size;
    char *buf;
} consumer;

static void play(void *side, long n)
{
    const consumer *c = side;
    for (long i = 0; i < n; i++) {
        if (c->rank == 0) {
            MPI_Send(c->buf, c->size, MPI_CHAR, 1, DATA, MPI_COMM_WORLD);
            continue;
        }
        MPI_Recv(c->buf, c->size, MPI_CHAR, 0, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        compute_for(COMPUTATION);
    }
    if (c->rank == 0)
        recv_answer(1);
    else
        send_answer(0);
}

int main(int argc, char **argv)
{
    options o = latency_options();
    o.min = o.max = 8, o.large_iters = o.small_iters, o.large_warmup = o.small_warmup;
    consumer c = {.rank = join_job(argc, argv, &o)};
    need_ranks(2);
    c.buf = buffer(&o, o.max);
    if (c.rank == 0) {
        title("MPI Slow Consumer Test");
        printf("# [ computation: %dus a message ]\n", COMPUTATION / 1000);
        columns("Size", "Computes(%)", "Messages/s", NULL);
    }
    for (long size = o.min; size >= 0; size = next_size(&o, size, 2)) {
        c.size = size;
        figure f = measure(&o, size, 0, play, &c);
        if (c.rank == 0)
            printf("%-10ld%20.2f%20.2f\n", size, 100.0 * COMPUTATION / f.ns, 1e9 / f.ns);
        fflush(stdout);
    }
    release(&o, c.buf);
    return leave_job();
}
