/* What the peers share: the options and the output of the programs beside them in Go (benchmarks/harness), their
 * buffers, and the two loops that most of them are made of. They measure other MPI libraries the same way as ours is
 * measured; build them with mpicc. */
#ifndef PEERS_COMMON_H
#define PEERS_COMMON_H

#include <errno.h>
#include <getopt.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LARGE_MESSAGE 8192

enum { PING = 1, DATA = 100, ANSWER = 101 }; /* tags */

typedef struct {
    long min, max;                   /* -m */
    long small_iters, large_iters;   /* -i sets both */
    long small_warmup, large_warmup; /* -x sets both */
    long window;                     /* -W */
    int multiple;                    /* -b multiple: each message of a window has a buffer of its own */
    int alloc;                       /* --alloc: buffers from MPI_Alloc_mem */
    long senders, receivers;         /* -t */
    long pairs;                      /* -p; 0: half of the ranks */
} options;

static inline options latency_options(void)
{
    return (options){.min = 1, .max = 4 << 20, .small_iters = 10000, .large_iters = 1000,
                     .small_warmup = 100, .large_warmup = 10, .window = 64, .senders = 1, .receivers = 2};
}

static inline options bandwidth_options(void)
{
    options o = latency_options();
    o.small_iters = 100, o.large_iters = 20;
    o.small_warmup = 10, o.large_warmup = 2;
    return o;
}

/* The same clock as Go's. */
static inline int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline long iterations(const options *o, long size)
{
    return size > LARGE_MESSAGE ? o->large_iters : o->small_iters;
}

static inline long warmup(const options *o, long size)
{
    return size > LARGE_MESSAGE ? o->large_warmup : o->small_warmup;
}

static inline void fail(const char *what, const char *arg)
{
    fprintf(stderr, "%s: %s\n", what, arg);
    MPI_Abort(MPI_COMM_WORLD, 2);
    exit(2);
}

static inline long number(const char *arg, long low)
{
    char *end;
    errno = 0;
    long n = strtol(arg, &end, 10);
    if (errno != 0 || end == arg || *end != '\0' || n < low)
        fail("not a number in range", arg);
    return n;
}

static inline void parse_range(char *arg, options *o)
{
    char *colon = strchr(arg, ':');
    if (colon == NULL) {
        o->max = number(arg, 0);
    } else {
        *colon = '\0';
        if (*arg != '\0')
            o->min = number(arg, 0);
        if (colon[1] != '\0')
            o->max = number(colon + 1, 0);
    }
    if (o->min > o->max)
        fail("the minimum is above the maximum", arg);
}

/* SENDERS[:RECEIVERS]; without a colon as many of both. */
static inline void parse_threads(char *arg, options *o)
{
    char *colon = strchr(arg, ':');
    if (colon != NULL)
        *colon = '\0';
    o->senders = number(arg, 1);
    o->receivers = colon == NULL ? o->senders : number(colon + 1, 1);
}

static inline int parse_buffers(const char *arg)
{
    if (strcmp(arg, "single") != 0 && strcmp(arg, "multiple") != 0)
        fail("-b: wanted single or multiple, got", arg);
    return strcmp(arg, "multiple") == 0;
}

static inline void parse(int argc, char **argv, options *o)
{
    static const struct option long_options[] = {{"alloc", no_argument, NULL, 'a'}, {0}};
    int c;
    while ((c = getopt_long(argc, argv, "m:i:x:W:b:t:p:", long_options, NULL)) != -1) {
        switch (c) {
        case 'm': parse_range(optarg, o); break;
        case 'i': o->small_iters = o->large_iters = number(optarg, 1); break;
        case 'x': o->small_warmup = o->large_warmup = number(optarg, 0); break;
        case 'W': o->window = number(optarg, 1); break;
        case 'b': o->multiple = parse_buffers(optarg); break;
        case 't': parse_threads(optarg, o); break;
        case 'p': o->pairs = number(optarg, 1); break;
        case 'a': o->alloc = 1; break;
        default: fail(argv[0], "options are -m [MIN:]MAX -i N -x N -W N -b single|multiple -t S:R -p N --alloc");
        }
    }
    if (optind < argc)
        fail("not an option", argv[optind]);
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

static inline void need_ranks(int want)
{
    if (all_ranks() != want)
        fail("peers", "this program needs exactly two ranks");
}

/* The pairs of -p: rank i < pairs works with rank i + pairs; the ranks behind these, if any, only take part in
 * collectives. */
static inline int count_pairs(const options *o)
{
    int ranks = all_ranks(), pairs = o->pairs > 0 ? (int)o->pairs : ranks / 2;
    if (pairs < 1 || 2 * pairs > ranks || (o->pairs == 0 && ranks % 2 != 0))
        fail("peers", "this program needs two ranks for each pair");
    return pairs;
}

/* Memory whose pages are there before a clock runs. */
static inline char *touched(size_t n)
{
    char *p = NULL;
    if (posix_memalign((void **)&p, 4096, n > 0 ? n : 1) != 0)
        fail("peers", "no memory");
    memset(p, 1, n > 0 ? n : 1);
    return p;
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

/* The header: a title, notes if there are any, and then the columns, the last argument being NULL. */
static inline void title(const char *text)
{
    printf("# OSU %s v7.4 (peer)\n# Datatype: MPI_CHAR.\n", text);
}

static inline void columns(const char *key, ...)
{
    va_list heads;
    const char *head;
    int i = 0;
    printf("# %-8s", key);
    va_start(heads, key);
    while ((head = va_arg(heads, const char *)) != NULL) {
        printf("%*s", i == 0 ? 18 : i == 1 ? 22 : 20, head);
        i++;
    }
    va_end(heads);
    printf("\n");
    fflush(stdout);
}

static inline void header(const char *text, const char *key, const char *value)
{
    title(text);
    columns(key, value, NULL);
}

/* The next size of -m, or -1; a zero is followed by one. */
static inline long next_size(const options *o, long size, long base)
{
    long next = size == 0 ? 1 : size * base;
    return next > o->max ? -1 : next;
}

/* The ping-pong: n round trips with the partner; one side serves, the other one answers. */
static inline void rally(int serves, int partner, char *send, char *recv, int size, int tag, long n)
{
    for (long i = 0; i < n; i++) {
        if (serves)
            MPI_Send(send, size, MPI_CHAR, partner, tag, MPI_COMM_WORLD);
        MPI_Recv(recv, size, MPI_CHAR, partner, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (!serves)
            MPI_Send(send, size, MPI_CHAR, partner, tag, MPI_COMM_WORLD);
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

/* n windows from one rank to its partner, each of them answered. */
static inline void windows(flight *f, int sends, int partner, int size, long n)
{
    for (long i = 0; i < n; i++) {
        if (sends)
            send_some(f, 0, f->count, partner, size, DATA);
        else
            recv_some(f, 0, f->count, partner, size, DATA);
        wait_all(f);
        if (sends)
            recv_answer(partner);
        else
            send_answer(partner);
    }
}

/* Bytes and messages of a second, in the columns of osu_mbw_mr. */
static inline void print_rates(long size, double messages, double ns)
{
    printf("%-10ld%20.2f%20.2f\n", size, messages * size * 1e3 / ns, messages * 1e9 / ns);
    fflush(stdout);
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
