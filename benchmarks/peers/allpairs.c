/* The random traffic of benchmarks/allpairs, for another MPI. Method and columns are described there. */
#include "common.h"

static int rank, ranks;

/* Where the messages go: xorshift64, from a seed of the rank's own. */
static uint64_t seed_of(int r) { return ((uint64_t)r + 1) * UINT64_C(0x9E3779B97F4A7C15); }

static int next_target(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    int to = (int)(*x % (uint64_t)(ranks - 1));
    return to >= rank ? to + 1 : to; /* never itself */
}

/* How many messages this rank will get when each sends n. */
static long expected(long n)
{
    long *counts = calloc(ranks, sizeof *counts), mine = 0;
    if (counts == NULL)
        fail("allpairs", "no memory");
    uint64_t x = seed_of(rank);
    for (long i = 0; i < n; i++)
        counts[next_target(&x)]++;
    MPI_Reduce_scatter_block(counts, &mine, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    free(counts);
    return mine;
}

/* A window of requests in flight: the first half are receives, the second half sends. */
typedef struct {
    int window, *ready;
    char *in, *out;
    MPI_Request *requests;
    long left[2]; /* to start: receives, sends */
    uint64_t x;
} traffic;

/* Starts what comes next in slot i, if anything does. */
static void refill(traffic *t, int i, int size)
{
    int sends = i >= t->window;
    t->requests[i] = MPI_REQUEST_NULL;
    if (t->left[sends] == 0)
        return;
    t->left[sends]--;
    if (sends)
        MPI_Isend(t->out, size, MPI_CHAR, next_target(&t->x), DATA, MPI_COMM_WORLD, &t->requests[i]);
    else
        MPI_Irecv(t->in + (size_t)i * size, size, MPI_CHAR, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD,
                  &t->requests[i]);
}

/* The time from when all ranks are ready until all have got everything. */
static int64_t run(traffic *t, int size, long n)
{
    int all = 2 * t->window, done;
    t->left[0] = expected(n);
    t->left[1] = n;
    t->x = seed_of(rank);
    MPI_Barrier(MPI_COMM_WORLD);
    int64_t start = now_ns();
    for (int i = 0; i < all; i++)
        refill(t, i, size);
    for (;;) {
        MPI_Waitsome(all, t->requests, &done, t->ready, MPI_STATUSES_IGNORE);
        if (done == MPI_UNDEFINED)
            break;
        for (int i = 0; i < done; i++)
            refill(t, t->ready[i], size);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return now_ns() - start;
}

int main(int argc, char **argv)
{
    options o = latency_options();
    o.min = o.max = 8, o.small_iters = 10000, o.large_iters = 1000;
    MPI_Init(&argc, &argv);
    rank = my_rank();
    ranks = all_ranks();
    parse(argc, argv, &o);
    if (ranks < 2)
        fail("allpairs", "needs at least two ranks");
    traffic t = {.window = o.window, .ready = room_for(2 * o.window, sizeof *t.ready),
                 .in = buffer(&o, o.max * o.window), .out = buffer(&o, o.max),
                 .requests = room_for(2 * o.window, sizeof *t.requests)};
    if (rank == 0) {
        title("MPI All-Pairs Random Traffic Test");
        printf("# [ ranks: %d ] [ window size: %ld ]\n", ranks, o.window);
        columns("Size", "Messages/s", "MB/s", NULL);
    }
    for (long size = o.min; size >= 0; size = next_size(&o, size, 2)) {
        long n = iterations(&o, size);
        run(&t, size, warmup(&o, size));
        double messages = (double)ranks * n, took = run(&t, size, n);
        if (rank == 0) {
            printf("%-10ld%20.2f%20.2f\n", size, messages * 1e9 / took, messages * size * 1e3 / took);
            fflush(stdout);
        }
    }
    release(&o, t.in);
    release(&o, t.out);
    free(t.ready);
    free(t.requests);
    MPI_Finalize();
    return 0;
}
