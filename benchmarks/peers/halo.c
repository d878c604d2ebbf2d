/* The uneven steps of benchmarks/halo, for another MPI. */
#include "common.h"
#include <sys/resource.h>

enum { HALO = 4096, MEET_EVERY = 10, LEAST = 10, MOST = 3000, FORWARD = 1, BACKWARD = 2 };

static const int spreads[] = {0, 10, 50}; /* how much the computation varies, in percent */
enum { SPREADS = sizeof spreads / sizeof *spreads };

/* One rank's part. Index 0 is the rank before it, 1 the rank after it. */
typedef struct {
    int rank, ranks, neighbours[2];
    char *in[2], *out[2];
    int64_t *computations; /* ns, of each step; NULL: none, in the warm-up */
} halo;

static int64_t processor_ns(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (int64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000000 +
           (int64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000;
}

static void exchange(const halo *h)
{
    static const int in_tags[2] = {FORWARD, BACKWARD}, out_tags[2] = {BACKWARD, FORWARD};
    MPI_Request r[4];
    for (int i = 0; i < 2; i++)
        MPI_Irecv(h->in[i], HALO, MPI_CHAR, h->neighbours[i], in_tags[i], MPI_COMM_WORLD, &r[i]);
    for (int i = 0; i < 2; i++)
        MPI_Isend(h->out[i], HALO, MPI_CHAR, h->neighbours[i], out_tags[i], MPI_COMM_WORLD, &r[2 + i]);
    MPI_Waitall(4, r, MPI_STATUSES_IGNORE);
}

static void play(void *side, long n)
{
    const halo *h = side;
    for (long i = 0; i < n; i++) {
        compute_for(h->computations == NULL ? 0 : h->computations[i]);
        exchange(h);
        if (i % MEET_EVERY == MEET_EVERY - 1)
            MPI_Barrier(MPI_COMM_WORLD);
    }
}

/* The computations of a rank: the same in each run, and in benchmarks/halo. */
static void draw(int rank, int64_t compute, int spread, int64_t *all, long steps)
{
    uint64_t x = ((uint64_t)rank + 1) * UINT64_C(0x9E3779B97F4A7C15);
    for (long i = 0; i < steps; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        all[i] = compute + compute * spread / 100 * ((int64_t)(x % 2001) - 1000) / 1000;
    }
}

/* The sum over the steps of the longest computation of all ranks. */
static int64_t slowest(int ranks, int64_t compute, int spread, long steps)
{
    int64_t *longest = room_for(steps, sizeof *longest), *all = room_for(steps, sizeof *all), sum = 0;
    memset(longest, 0, steps * sizeof *longest);
    for (int rank = 0; rank < ranks; rank++) {
        draw(rank, compute, spread, all, steps);
        for (long i = 0; i < steps; i++)
            longest[i] = all[i] > longest[i] ? all[i] : longest[i];
    }
    for (long i = 0; i < steps; i++)
        sum += longest[i];
    free(longest);
    free(all);
    return sum;
}

/* One cell: prints microseconds of a step beyond the computation and processor seconds of a rank in a second. */
static void cell(options *o, halo *h, int64_t compute, int spread, long steps)
{
    int64_t *mine = room_for(steps, sizeof *mine);
    draw(h->rank, compute, spread, mine, steps);
    h->computations = NULL;
    MPI_Barrier(MPI_COMM_WORLD);
    warm_up(o, play, h);
    h->computations = mine;
    MPI_Barrier(MPI_COMM_WORLD);
    int64_t used = processor_ns(), start = now_ns();
    play(h, steps);
    int64_t took = now_ns() - start, all = 0;
    used = processor_ns() - used;
    MPI_Reduce(&used, &all, 1, MPI_INT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (h->rank == 0)
        printf("%20.2f%20.2f", (took - slowest(h->ranks, compute, spread, steps)) / 1e3 / steps,
               (double)all / took / h->ranks);
    free(mine);
}

int main(int argc, char **argv)
{
    options o = latency_options();
    o.min = 20, o.max = 20000, o.each_ns = 300000000;
    int rank = join_job(argc, argv, &o), ranks = all_ranks();
    if (ranks < 2 || o.min < 1)
        fail("halo", "needs two ranks and computations of at least 1 us");
    halo h = {.rank = rank, .ranks = ranks, .neighbours = {(rank + ranks - 1) % ranks, (rank + 1) % ranks}};
    for (int i = 0; i < 2; i++)
        h.in[i] = touched(HALO), h.out[i] = touched(HALO);
    if (rank == 0) {
        title("MPI Halo Exchange Test");
        printf("# [ ranks: %d ] [ halo: %d bytes ]\n", ranks, HALO);
        columns("Compute", "0% Beyond(us)", "0% CPU(s/s)", "10% Beyond(us)", "10% CPU(s/s)", "50% Beyond(us)",
                "50% CPU(s/s)", NULL);
    }
    for (long us = o.min; us >= 0; us = next_size(&o, us, 10)) {
        long steps = fit(&o, us * 1000, LEAST, MOST);
        steps = (steps + MEET_EVERY - 1) / MEET_EVERY * MEET_EVERY;
        if (rank == 0)
            printf("%-10ld", us);
        for (int i = 0; i < SPREADS; i++)
            cell(&o, &h, us * 1000, spreads[i], steps);
        if (rank == 0)
            printf("\n");
        fflush(stdout);
    }
    for (int i = 0; i < 2; i++)
        free(h.in[i]), free(h.out[i]);
    return leave_job();
}
