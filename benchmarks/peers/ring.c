/* The token of benchmarks/ring, for another MPI. */
#include "common.h"

#define TOKEN 1

typedef struct {
    int first, left, right, size;
    long tokens;
    char *buf;
} ring;

static void receive(const ring *r)
{
    MPI_Recv(r->buf, r->size, MPI_CHAR, r->left, TOKEN, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void forward(const ring *r) { MPI_Send(r->buf, r->size, MPI_CHAR, r->right, TOKEN, MPI_COMM_WORLD); }

static void hop(const ring *r, long n)
{
    for (long i = 0; i < n; i++) {
        receive(r);
        forward(r);
    }
}

/* Laps of every token. The first rank puts the tokens on the ring and takes them off. */
static void laps(void *side, long n)
{
    const ring *r = side;
    if (!r->first || n == 0) {
        hop(r, n * r->tokens);
        return;
    }
    for (long i = 0; i < r->tokens; i++)
        forward(r);
    hop(r, (n - 1) * r->tokens);
    for (long i = 0; i < r->tokens; i++)
        receive(r);
}

int main(int argc, char **argv)
{
    options o = latency_options();
    o.min = o.max = 8, o.window = 1;
    int rank = join_job(argc, argv, &o), ranks = all_ranks();
    if (ranks < 2 || o.window >= ranks || o.min < 1)
        fail("ring", "needs two ranks, fewer tokens than ranks, tokens of at least a byte");
    ring r = {.first = rank == 0, .left = (rank + ranks - 1) % ranks, .right = (rank + 1) % ranks,
              .tokens = o.window, .buf = touched(o.max)};
    if (rank == 0)
        printf("# OSU MPI Ring Latency Test v7.4 (peer)\n# Datatype: MPI_CHAR.\n# [ ranks: %d ] [ tokens: %ld ]\n"
               "# %-8s%18s%22s%20s%12s\n", ranks, o.window, "Size", "Hop Latency(us)", "Lap(us)", "Hops/s", "Laps");
    for (long size = o.min; size >= 0; size = next_size(&o, size, 2)) {
        r.size = size;
        figure f = measure(&o, size, 0, laps, &r);
        if (rank != 0)
            continue;
        printf("%-10ld%20.2f%20.2f%20.0f%12ld\n", size, f.ns / 1e3 / ranks, f.ns / 1e3,
               (double)ranks * o.window * 1e9 / f.ns, f.n);
        fflush(stdout);
    }
    free(r.buf);
    return leave_job();
}
