/* The collective calls of benchmarks/collective, for another MPI. */
#include "common.h"

enum { ROOT = 0, ELEMENT = 8, MOST_OPERATIONS = 24, NEIGHBORS = 2, MOST_OVERLAPS = 10000 };

/* One rank's buffers, at the lengths of one call. */
typedef struct {
    int rank, ranks, n, *counts, *at; /* n: bytes of a block, or elements of a vector */
    MPI_Aint *far; /* the same as at */
    MPI_Datatype *types;
    char *send, *recv;
} buffers;

typedef struct {
    const char *name, *title;
    int reduces;
    void (*call)(const buffers *);
    void (*start)(const buffers *, MPI_Request *); /* the nonblocking call */
} operation;

#define WORLD MPI_COMM_WORLD
static MPI_Comm ring; /* of all ranks, for the neighbourhood calls */

/* Both forms of a call: name, and i##name, which starts it. */
#define CALL(name, blocking, nonblocking, ...) \
    static void name(const buffers *b) { (void)b, blocking(__VA_ARGS__); } \
    static void i##name(const buffers *b, MPI_Request *r) { (void)b, nonblocking(__VA_ARGS__, r); }

CALL(allgather, MPI_Allgather, MPI_Iallgather, b->send, b->n, MPI_CHAR, b->recv, b->n, MPI_CHAR, WORLD)
CALL(allgatherv, MPI_Allgatherv, MPI_Iallgatherv, b->send, b->n, MPI_CHAR, b->recv, b->counts, b->at, MPI_CHAR, WORLD)
CALL(allreduce, MPI_Allreduce, MPI_Iallreduce, b->send, b->recv, b->n, MPI_DOUBLE, MPI_SUM, WORLD)
CALL(alltoall, MPI_Alltoall, MPI_Ialltoall, b->send, b->n, MPI_CHAR, b->recv, b->n, MPI_CHAR, WORLD)
CALL(alltoallv, MPI_Alltoallv, MPI_Ialltoallv,
     b->send, b->counts, b->at, MPI_CHAR, b->recv, b->counts, b->at, MPI_CHAR, WORLD)
CALL(alltoallw, MPI_Alltoallw, MPI_Ialltoallw,
     b->send, b->counts, b->at, b->types, b->recv, b->counts, b->at, b->types, WORLD)
CALL(barrier, MPI_Barrier, MPI_Ibarrier, WORLD)
CALL(bcast, MPI_Bcast, MPI_Ibcast, b->recv, b->n, MPI_CHAR, ROOT, WORLD)
CALL(exscan, MPI_Exscan, MPI_Iexscan, b->send, b->recv, b->n, MPI_DOUBLE, MPI_SUM, WORLD)
CALL(gather, MPI_Gather, MPI_Igather, b->send, b->n, MPI_CHAR, b->recv, b->n, MPI_CHAR, ROOT, WORLD)
CALL(gatherv, MPI_Gatherv, MPI_Igatherv, b->send, b->n, MPI_CHAR, b->recv, b->counts, b->at, MPI_CHAR, ROOT, WORLD)
CALL(neighbor_allgather, MPI_Neighbor_allgather, MPI_Ineighbor_allgather,
     b->send, b->n, MPI_CHAR, b->recv, b->n, MPI_CHAR, ring)
CALL(neighbor_allgatherv, MPI_Neighbor_allgatherv, MPI_Ineighbor_allgatherv,
     b->send, b->n, MPI_CHAR, b->recv, b->counts, b->at, MPI_CHAR, ring)
CALL(neighbor_alltoall, MPI_Neighbor_alltoall, MPI_Ineighbor_alltoall,
     b->send, b->n, MPI_CHAR, b->recv, b->n, MPI_CHAR, ring)
CALL(neighbor_alltoallv, MPI_Neighbor_alltoallv, MPI_Ineighbor_alltoallv,
     b->send, b->counts, b->at, MPI_CHAR, b->recv, b->counts, b->at, MPI_CHAR, ring)
CALL(neighbor_alltoallw, MPI_Neighbor_alltoallw, MPI_Ineighbor_alltoallw,
     b->send, b->counts, b->far, b->types, b->recv, b->counts, b->far, b->types, ring)
CALL(reduce, MPI_Reduce, MPI_Ireduce, b->send, b->recv, b->n, MPI_DOUBLE, MPI_SUM, ROOT, WORLD)
CALL(reduce_scatter, MPI_Reduce_scatter, MPI_Ireduce_scatter, b->send, b->recv, b->counts, MPI_DOUBLE, MPI_SUM, WORLD)
CALL(reduce_scatter_block, MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block,
     b->send, b->recv, b->n, MPI_DOUBLE, MPI_SUM, WORLD)
CALL(scan, MPI_Scan, MPI_Iscan, b->send, b->recv, b->n, MPI_DOUBLE, MPI_SUM, WORLD)
CALL(scatter, MPI_Scatter, MPI_Iscatter, b->send, b->n, MPI_CHAR, b->recv, b->n, MPI_CHAR, ROOT, WORLD)
CALL(scatterv, MPI_Scatterv, MPI_Iscatterv, b->send, b->counts, b->at, MPI_CHAR, b->recv, b->n, MPI_CHAR, ROOT, WORLD)

static const operation operations[] = {
    {"allgather", "Allgather", 0, allgather, iallgather},
    {"allgatherv", "Allgatherv", 0, allgatherv, iallgatherv},
    {"allreduce", "Allreduce", 1, allreduce, iallreduce},
    {"alltoall", "All-to-All Personalized Exchange", 0, alltoall, ialltoall},
    {"alltoallv", "All-to-Allv Personalized Exchange", 0, alltoallv, ialltoallv},
    {"alltoallw", "All-to-Allw Personalized Exchange", 0, alltoallw, ialltoallw},
    {"barrier", "Barrier", 0, barrier, ibarrier},
    {"bcast", "Broadcast", 0, bcast, ibcast},
    {"exscan", "Exscan", 1, exscan, iexscan},
    {"gather", "Gather", 0, gather, igather},
    {"gatherv", "Gatherv", 0, gatherv, igatherv},
    {"neighbor_allgather", "Neighborhood Allgather", 0, neighbor_allgather, ineighbor_allgather},
    {"neighbor_allgatherv", "Neighborhood Allgatherv", 0, neighbor_allgatherv, ineighbor_allgatherv},
    {"neighbor_alltoall", "Neighborhood Alltoall", 0, neighbor_alltoall, ineighbor_alltoall},
    {"neighbor_alltoallv", "Neighborhood Alltoallv", 0, neighbor_alltoallv, ineighbor_alltoallv},
    {"neighbor_alltoallw", "Neighborhood Alltoallw", 0, neighbor_alltoallw, ineighbor_alltoallw},
    {"reduce", "Reduce", 1, reduce, ireduce},
    {"reduce_scatter", "Reduce_scatter", 1, reduce_scatter, ireduce_scatter},
    {"reduce_scatter_block", "Reduce_scatter_block", 1, reduce_scatter_block, ireduce_scatter_block},
    {"scan", "Scan", 1, scan, iscan},
    {"scatter", "Scatter", 0, scatter, iscatter},
    {"scatterv", "Scatterv", 0, scatterv, iscatterv},
};
enum { OPERATIONS = sizeof operations / sizeof *operations };

/* The operations that the word that is no option names. */
static int choose(const char *words, const operation **chosen)
{
    int n = 0;
    for (const char *end; ; words = end + 1, n++) {
        int i = 0;
        end = words + strcspn(words, ",");
        while (i < OPERATIONS && (strlen(operations[i].name) != (size_t)(end - words) ||
                                  strncmp(operations[i].name, words, end - words) != 0))
            i++;
        if (i == OPERATIONS || n == MOST_OPERATIONS)
            fail("not an operation, or too many", words);
        chosen[n] = &operations[i];
        if (*end == '\0')
            return n + 1;
    }
}

static void resize(buffers *b, const operation *o, long bytes)
{
    long n = o->reduces ? bytes / ELEMENT : bytes;
    b->n = (int)n;
    for (int i = 0; i < b->ranks || i < NEIGHBORS; i++) {
        b->counts[i] = (int)(o->reduces ? (i + 1) * n / b->ranks - i * n / b->ranks : n);
        b->far[i] = b->at[i] = (int)(i * n);
        b->types[i] = MPI_CHAR;
    }
}

/* Calls of one operation, and the time in them. */
typedef struct {
    const operation *o;
    const buffers *b;
    int64_t took;
    long steps; /* of the computation between a nonblocking call and its end */
} calls;

static void play(void *side, long n)
{
    calls *c = side;
    int meets = c->o->call != barrier;
    for (long i = 0; i < n; i++) {
        int64_t start = now_ns();
        c->o->call(c->b);
        c->took += now_ns() - start;
        if (meets)
            MPI_Barrier(WORLD);
    }
}

static void play_started(void *side, long n)
{
    calls *c = side;
    for (long i = 0; i < n; i++) {
        MPI_Request r;
        int64_t start = now_ns();
        c->o->start(c->b, &r);
        compute(c->steps);
        MPI_Wait(&r, MPI_STATUS_IGNORE);
        c->took += now_ns() - start;
        MPI_Barrier(WORLD);
    }
}

/* The mean of all ranks, in us; on all of them. */
static double mean_us(const calls *c, double ns)
{
    double all = 0;
    MPI_Allreduce(&ns, &all, 1, MPI_DOUBLE, MPI_SUM, WORLD);
    return all / c->b->ranks / 1e3;
}

/* The mean time of a call; *rounds: of how many. */
static double measure_calls(options *o, calls *c, long size, rounds play, long *rounds)
{
    MPI_Barrier(WORLD);
    long n = *rounds = settle(o, size, play, c);
    MPI_Barrier(WORLD);
    c->took = 0;
    play(c, n);
    return mean_us(c, (double)c->took / n);
}

/* The line of a nonblocking call. */
static void print_overlap(options *o, calls *c, long size)
{
    long n;
    c->steps = 0;
    double pure = measure_calls(o, c, size, play_started, &n);
    n = n < MOST_OVERLAPS ? n : MOST_OVERLAPS;
    c->steps = steps_for(pure);
    MPI_Barrier(WORLD);
    double alone = mean_us(c, compute_us(c->steps, n) * 1e3);
    MPI_Barrier(WORLD);
    c->took = 0;
    play_started(c, n);
    double overall = mean_us(c, (double)c->took / n), hidden = 1 - (overall - alone) / pure;
    hidden = hidden < 0 ? 0 : hidden > 1 ? 1 : hidden;
    if (c->b->rank == 0)
        printf("%20.2f%20.2f%20.2f%20.2f", overall, alone, pure, 100 * hidden);
}

static void print_header(const operation **chosen, int n, int starts)
{
    if (starts) {
        printf("# OSU MPI Non-blocking %s Latency Test v7.4 (peer)\n"
               "# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait\n", chosen[0]->title);
        columns("Size", "Overall(us)", "Compute(us)", "Pure Comm.(us)", "Overlap(%)", NULL);
    } else if (n > 1) {
        printf("# OSU MPI Collective Latency Test v7.4 (peer)\n# %-8s", "Size");
        for (int i = 0; i < n; i++)
            printf("%*s(us)", i == 0 ? 14 : i == 1 ? 18 : 16, chosen[i]->name);
        printf("\n");
    } else {
        const char *key = chosen[0]->call == barrier ? "# Avg Latency(us)" : "# Size       Avg Latency(us)";
        printf("# OSU MPI %s Latency Test v7.4 (peer)\n", chosen[0]->title);
        if (chosen[0]->call != barrier)
            printf("# Datatype: %s.\n", chosen[0]->reduces ? "MPI_DOUBLE" : "MPI_CHAR");
        printf("%s\n", key);
    }
    fflush(stdout);
}

int main(int argc, char **argv)
{
    options o = latency_options();
    o.operand = "", o.max = 1 << 20;
    o.small_iters = 1000, o.large_iters = 100;
    buffers b = {.rank = join_job(argc, argv, &o)};
    b.ranks = all_ranks();
    const operation *chosen[MOST_OPERATIONS];
    /* OSU's names of nonblocking calls begin with an i, and of others none does. */
    int starts = o.operand[0] == 'i', n = choose(o.operand + starts, chosen), reduces = 0;
    int alone = n == 1 && chosen[0]->call == barrier && !starts;
    if (starts && n > 1)
        fail("a nonblocking operation is measured by itself", o.operand);
    for (int i = 0; i < n; i++)
        reduces |= chosen[i]->reduces;
    int periodic = 1, most = b.ranks > NEIGHBORS ? b.ranks : NEIGHBORS;
    MPI_Cart_create(WORLD, 1, &b.ranks, &periodic, 0, &ring);
    b.send = buffer(&o, (size_t)o.max * most), b.recv = buffer(&o, (size_t)o.max * most);
    b.counts = room_for(most, sizeof *b.counts), b.at = room_for(most, sizeof *b.at);
    b.far = room_for(most, sizeof *b.far), b.types = room_for(most, sizeof *b.types);
    memset(b.send, 0, (size_t)o.max * most); /* as numbers: 0 */
    if (b.rank == 0)
        print_header(chosen, n, starts);
    for (long size = alone ? o.max : o.min; size >= 0; size = next_size(&o, size, 2)) {
        if (reduces && size % ELEMENT != 0)
            continue;
        if (b.rank == 0 && !alone)
            printf("%-10ld", size);
        for (int i = 0; i < n; i++) {
            resize(&b, chosen[i], size);
            calls c = {.o = chosen[i], .b = &b};
            long rounds;
            if (starts) {
                print_overlap(&o, &c, size);
                continue;
            }
            double us = measure_calls(&o, &c, size, play, &rounds);
            if (b.rank == 0)
                printf("%*.2f", alone ? 17 : 20, us);
        }
        if (b.rank == 0)
            printf("\n");
        fflush(stdout);
    }
    release(&o, b.send);
    release(&o, b.recv);
    free(b.counts);
    free(b.at);
    free(b.far);
    free(b.types);
    MPI_Comm_free(&ring);
    return leave_job();
}
