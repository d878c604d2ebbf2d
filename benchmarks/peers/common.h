/* What the peers that are MPI programs share, apart from options.h: their buffers, and the two loops that most of them
 * are made of. They measure other MPI libraries the same way as ours is measured; build them with mpicc. */
#ifndef PEERS_COMMON_H
#define PEERS_COMMON_H

#include <mpi.h>

#include "options.h"

enum { PING = 1, DATA = 100, ANSWER = 101 }; /* tags */

static inline void abort_all(void) { MPI_Abort(MPI_COMM_WORLD, 2); }

static inline long agree(long n)
{
    MPI_Bcast(&n, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    return n;
}

static inline int my_rank(void)
{
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

static inline int all_ranks(void)
{
    int ranks;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    return ranks;
}

/* Joins the job, reads the options and returns the rank. */
static inline int join_job(int argc, char **argv, options *o)
{
    MPI_Init(&argc, &argv);
    parse(argc, argv, o);
    return my_rank();
}

/* What main returns. */
static inline int leave_job(void)
{
    MPI_Finalize();
    return 0;
}

static inline void need_ranks(int want)
{
    if (all_ranks() != want)
        fail("peers", "this program needs exactly two ranks");
}

static inline void need_two(const char *program)
{
    if (all_ranks() < 2)
        fail(program, "needs at least two ranks");
}

/* The pairs of -p: rank i < pairs works with rank i + pairs; the ranks after these, if any, only take part in
 * collectives. */
static inline int count_pairs(const options *o)
{
    int ranks = all_ranks(), pairs = o->pairs > 0 ? (int)o->pairs : ranks / 2;
    if (pairs < 1 || 2 * pairs > ranks || (o->pairs == 0 && ranks % 2 != 0))
        fail("peers", "this program needs two ranks for each pair");
    return pairs;
}

/* A buffer for messages: the same, or what MPI calls its own with --alloc. */
static inline char *buffer(const options *o, size_t n)
{
    char *p = NULL;
    if (!o->alloc)
        return touched(n);
    if (MPI_Alloc_mem(n > 0 ? n : 1, MPI_INFO_NULL, &p) != MPI_SUCCESS || p == NULL)
        fail("peers", "MPI_Alloc_mem has no memory");
    memset(p, 1, n > 0 ? n : 1);
    return p;
}

static inline void release(const options *o, char *p)
{
    if (o->alloc)
        MPI_Free_mem(p);
    else
        free(p);
}

static inline void *room_for(size_t n, size_t each)
{
    void *p = malloc(n * each);
    if (p == NULL)
        fail("peers", "no memory");
    return p;
}

/* What was measured for one size, on this rank. */
typedef struct {
    long n;    /* rounds */
    double ns; /* of one of them, the mean */
} figure;

/* The warm-up and the measurement of one size. With `together` all ranks meet between the two. */
static inline figure measure(options *o, long size, int together, rounds play, void *side)
{
    MPI_Barrier(MPI_COMM_WORLD);
    long n = settle(o, size, play, side);
    if (together)
        MPI_Barrier(MPI_COMM_WORLD);
    int64_t start = now_ns();
    play(side, n);
    return (figure){n, (double)(now_ns() - start) / n};
}

/* What a rank that has no partner plays. */
static inline void nothing(void *side, long n)
{
    (void)side;
    (void)n;
}

/* Prints one size: rounds of so many messages took ns each. */
typedef void (*printer)(long size, double messages, double ns);

static inline void print_latency(long size, double messages, double ns) { print_value(size, ns / 1e3 / messages); }

static inline void print_bandwidth(long size, double messages, double ns)
{
    print_value(size, messages * size * 1e3 / ns);
}

/* Measures each size of -m, which *side_size tells the side, and prints it on rank 0. */
static inline void each_size(options *o, rounds play, void *side, int *side_size, printer print, double messages)
{
    for (long size = o->min; size >= 0; size = next_size(o, size, 2)) {
        *side_size = size;
        figure f = measure(o, size, 0, play, side);
        if (my_rank() == 0)
            print(size, messages, f.ns);
    }
}

/* The same for many pairs at once: the mean of their first ranks' times. */
static inline void each_size_of_pairs(options *o, int pairs, rounds play, void *side, int *side_size, printer print,
                                      double messages)
{
    int rank = my_rank();
    for (long size = o->min; size >= 0; size = next_size(o, size, 2)) {
        *side_size = size;
        figure f = measure(o, size, 1, rank < 2 * pairs ? play : nothing, side);
        double mine = rank < pairs ? f.ns : 0, sum = 0;
        MPI_Reduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
        if (rank == 0)
            print(size, messages, sum / pairs);
    }
}

/* The ping-pong with the partner; one side serves, the other one answers. */
typedef struct {
    int serves, partner, size, tag;
    char *send, *recv;
} pair;

static inline pair new_pair(const options *o, int serves, int partner)
{
    return (pair){.serves = serves, .partner = partner, .tag = PING, .send = buffer(o, o->max),
                  .recv = buffer(o, o->max)};
}

static inline void free_pair(const options *o, pair *p)
{
    release(o, p->send);
    release(o, p->recv);
}

static inline void ping_pong(void *side, long n)
{
    const pair *p = side;
    for (long i = 0; i < n; i++) {
        if (p->serves)
            MPI_Send(p->send, p->size, MPI_CHAR, p->partner, p->tag, MPI_COMM_WORLD);
        MPI_Recv(p->recv, p->size, MPI_CHAR, p->partner, p->tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (!p->serves)
            MPI_Send(p->send, p->size, MPI_CHAR, p->partner, p->tag, MPI_COMM_WORLD);
    }
}

/* Messages in flight: `count` requests and as many buffers, or one buffer for all of them. */
typedef struct {
    char *buf;
    size_t step; /* from one buffer to the next */
    int count;
    MPI_Request *requests;
} flight;

static inline flight new_flight(const options *o, int count)
{
    flight f = {.step = o->multiple ? (size_t)o->max : 0, .count = count};
    f.buf = buffer(o, o->multiple ? (size_t)o->max * count : (size_t)o->max);
    f.requests = room_for(count, sizeof *f.requests);
    return f;
}

static inline void free_flight(const options *o, flight *f)
{
    release(o, f->buf);
    free(f->requests);
}

/* Starts the messages [from, from + n) of a flight. */
static inline void send_some(flight *f, int from, int n, int to, int size, int tag)
{
    for (int j = from; j < from + n; j++)
        MPI_Isend(f->buf + j * f->step, size, MPI_CHAR, to, tag, MPI_COMM_WORLD, &f->requests[j]);
}

static inline void recv_some(flight *f, int from, int n, int source, int size, int tag)
{
    for (int j = from; j < from + n; j++)
        MPI_Irecv(f->buf + j * f->step, size, MPI_CHAR, source, tag, MPI_COMM_WORLD, &f->requests[j]);
}

static inline void wait_all(flight *f) { MPI_Waitall(f->count, f->requests, MPI_STATUSES_IGNORE); }

static inline void send_answer(int to)
{
    char answer[4] = {0};
    MPI_Send(answer, 4, MPI_CHAR, to, ANSWER, MPI_COMM_WORLD);
}

static inline void recv_answer(int from)
{
    char answer[4];
    MPI_Recv(answer, 4, MPI_CHAR, from, ANSWER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Windows from one rank to its partner, each of them answered; with `ahead` only the last one. */
typedef struct {
    flight f;
    int sends, partner, size, ahead;
} window;

static inline window new_window(const options *o, int sends, int partner)
{
    return (window){.f = new_flight(o, o->window), .sends = sends, .partner = partner, .ahead = o->run_ahead};
}

static inline void answer_window(const window *w)
{
    if (w->sends)
        recv_answer(w->partner);
    else
        send_answer(w->partner);
}

static inline void windows(void *side, long n)
{
    window *w = side;
    for (long i = 0; i < n; i++) {
        if (w->sends)
            send_some(&w->f, 0, w->f.count, w->partner, w->size, DATA);
        else
            recv_some(&w->f, 0, w->f.count, w->partner, w->size, DATA);
        wait_all(&w->f);
        if (!w->ahead || i == n - 1)
            answer_window(w);
    }
}

/* VmHWM: rusage would also count the launcher's size at the moment of fork. */
static inline int64_t peak_kib(void)
{
    char line[256];
    long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    if (f == NULL)
        return 0;
    while (fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "VmHWM: %ld kB", &kib) == 1)
            break;
    fclose(f);
    return kib;
}

#endif
