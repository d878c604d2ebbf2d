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

/* Requests in the order of their start: entry i has slot i modulo the window. */
typedef struct {
    MPI_Request *requests;
    long started, finished, total;
} fifo;

enum { RECEIVES, SENDS };

typedef struct {
    int window, size, some;
    char *in, *out;
    MPI_Request *all; /* those of receives and then those of sends */
    int *done;        /* as many slots */
    fifo fifos[2];
    uint64_t x;
} traffic;

static int has_room(const traffic *t, const fifo *f)
{
    return f->started < f->total && f->started - f->finished < t->window;
}

/* Starts the next receive or send, in a slot of the window. */
static void begin(traffic *t, int which, long slot)
{
    MPI_Request *r = &t->fifos[which].requests[slot];
    if (which == RECEIVES)
        MPI_Irecv(t->in + slot * t->size, t->size, MPI_CHAR, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, r);
    else
        MPI_Isend(t->out, t->size, MPI_CHAR, next_target(&t->x), DATA, MPI_COMM_WORLD, r);
    t->fifos[which].started++;
}

/* Starts all that there is room for, receives first. */
static void refill(traffic *t)
{
    for (int which = RECEIVES; which <= SENDS; which++)
        while (has_room(t, &t->fifos[which]))
            begin(t, which, t->fifos[which].started % t->window);
}

/* The oldest that is under way, or a null request. */
static MPI_Request *oldest(const traffic *t, int which)
{
    static MPI_Request none = MPI_REQUEST_NULL;
    const fifo *f = &t->fifos[which];
    return f->finished == f->started ? &none : &f->requests[f->finished % t->window];
}

/* Completes the oldest receive or the oldest send, the first of the two that can be; 0 when there is neither. */
static int finish_one(traffic *t)
{
    MPI_Request both[2];
    int which, done;
    for (which = RECEIVES; which <= SENDS; which++) {
        MPI_Request *r = oldest(t, which);
        both[which] = *r;
        if (*r == MPI_REQUEST_NULL)
            continue;
        MPI_Test(r, &done, MPI_STATUS_IGNORE);
        if (done) {
            t->fifos[which].finished++;
            return 1;
        }
    }
    MPI_Waitany(2, both, &which, MPI_STATUS_IGNORE);
    if (which == MPI_UNDEFINED)
        return 0;
    t->fifos[which].finished++;
    return 1;
}

/* Completes what can be of all requests and starts a new one in the place of each; 0 when there are none left. */
static int finish_some(traffic *t)
{
    int n;
    MPI_Waitsome(2 * t->window, t->all, &n, t->done, MPI_STATUSES_IGNORE);
    if (n == MPI_UNDEFINED)
        return 0;
    for (int i = 0; i < n; i++) {
        int which = t->done[i] < t->window ? RECEIVES : SENDS;
        fifo *f = &t->fifos[which];
        f->finished++;
        if (f->started < f->total)
            begin(t, which, t->done[i] % t->window);
    }
    return 1;
}

/* The time from when all ranks are ready until all have got everything. */
static int64_t run(traffic *t, long n)
{
    for (int which = RECEIVES; which <= SENDS; which++)
        t->fifos[which].started = t->fifos[which].finished = 0;
    t->fifos[RECEIVES].total = expected(n);
    t->fifos[SENDS].total = n;
    t->x = seed_of(rank);
    MPI_Barrier(MPI_COMM_WORLD);
    int64_t start = now_ns();
    if (t->some) {
        refill(t);
        while (finish_some(t))
            ;
    } else {
        do
            refill(t);
        while (finish_one(t));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return now_ns() - start;
}

static void play(void *side, long n) { run(side, n); }

int main(int argc, char **argv)
{
    options o = latency_options();
    o.min = o.max = 8, o.small_iters = 10000, o.large_iters = 1000;
    rank = join_job(argc, argv, &o);
    ranks = all_ranks();
    need_two("allpairs");
    traffic t = {.window = o.window, .some = o.wait_some, .in = buffer(&o, o.max * o.window), .out = buffer(&o, o.max)};
    t.all = room_for(2 * o.window, sizeof *t.all);
    t.done = room_for(2 * o.window, sizeof *t.done);
    for (long i = 0; i < 2 * o.window; i++)
        t.all[i] = MPI_REQUEST_NULL;
    t.fifos[RECEIVES].requests = t.all;
    t.fifos[SENDS].requests = t.all + o.window;
    if (rank == 0) {
        title("MPI All-Pairs Random Traffic Test");
        printf("# [ ranks: %d ] [ window size: %ld ]\n", ranks, o.window);
        columns("Size", "Messages/s", "MB/s", NULL);
    }
    for (long size = o.min; size >= 0; size = next_size(&o, size, 2)) {
        t.size = size;
        long n = settle(&o, size, play, &t);
        double messages = (double)ranks * n, took = run(&t, n);
        if (rank == 0) {
            printf("%-10ld%20.2f%20.2f\n", size, messages * 1e9 / took, messages * size * 1e3 / took);
            fflush(stdout);
        }
    }
    release(&o, t.in);
    release(&o, t.out);
    free(t.all);
    free(t.done);
    return leave_job();
}
