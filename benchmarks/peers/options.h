/* What all peers share, MPI or not: the options and the output of their twins in Go (benchmarks/harness). */
#ifndef PEERS_OPTIONS_H
#define PEERS_OPTIONS_H

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LARGE_MESSAGE 8192
#define WARM_NS INT64_C(700000000)
#define BATCH_NS INT64_C(1000000) /* of rounds, between two looks at the clock */
#define MOST_ROUNDS (1L << 30)
#define GROWTH 4 /* from one batch to the next */

typedef struct {
    long min, max;                   /* -m */
    long small_iters, large_iters;   /* -i sets both */
    long small_warmup, large_warmup; /* -x sets both */
    long window;                     /* -W */
    int multiple;                    /* -b multiple: each message of a window has a buffer of its own */
    int alloc;                       /* --alloc: buffers from MPI_Alloc_mem */
    long senders, receivers;         /* -t */
    long pairs;                      /* -p; 0: half of the ranks */
    int64_t warm_ns;                 /* --warm-time: left before the first figure; 0 where -x alone is given */
    int64_t each_ns;                 /* --time: each figure is measured for so long; 0: for so many iterations */
    int run_ahead;                   /* --run-ahead: windows are not answered */
    int wait_some;                   /* --waitsome: MPI_Waitsome over all requests instead of the oldest */
    const char *window_kind;         /* -w: the kind of a window; NULL: the default */
    const char *sync;                /* -s: the calls of an epoch, or several separated by commas; NULL: the default */
    const char *operand;             /* the word that is no option; NULL: there is none */
} options;

static inline options latency_options(void)
{
    return (options){.min = 1, .max = 4 << 20, .small_iters = 10000, .large_iters = 1000,
                     .small_warmup = 100, .large_warmup = 10, .window = 64, .senders = 1, .receivers = 2,
                     .warm_ns = WARM_NS};
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

/* Ends the whole program. The file that includes this one defines it. */
static inline void abort_all(void);

static inline void fail(const char *what, const char *arg)
{
    fprintf(stderr, "%s: %s\n", what, arg);
    abort_all();
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

static inline int64_t seconds(const char *arg)
{
    char *end;
    double s = strtod(arg, &end);
    if (end == arg || *end != '\0' || !(s >= 0 && s <= 3600))
        fail("not a number of seconds", arg);
    return (int64_t)(s * 1e9);
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
    static const struct option long_options[] = {
        {"alloc", no_argument, NULL, 'a'}, {"run-ahead", no_argument, NULL, 'r'}, {"waitsome", no_argument, NULL, 'S'},
        {"time", required_argument, NULL, 'T'}, {"warm-time", required_argument, NULL, 'X'}, {0},
    };
    int c, iterations = 0, timed = 0, warmup = 0, warm_time = 0;
    while ((c = getopt_long(argc, argv, "m:i:x:W:b:t:p:w:s:", long_options, NULL)) != -1) {
        switch (c) {
        case 'm': parse_range(optarg, o); break;
        case 'i': o->small_iters = o->large_iters = number(optarg, 1); iterations = 1; break;
        case 'x': o->small_warmup = o->large_warmup = number(optarg, 0); warmup = 1; break;
        case 'W': o->window = number(optarg, 1); break;
        case 'b': o->multiple = parse_buffers(optarg); break;
        case 't': parse_threads(optarg, o); break;
        case 'p': o->pairs = number(optarg, 1); break;
        case 'a': o->alloc = 1; break;
        case 'r': o->run_ahead = 1; break;
        case 'S': o->wait_some = 1; break;
        case 'w': o->window_kind = optarg; break;
        case 's': o->sync = optarg; break;
        case 'T': o->each_ns = seconds(optarg); timed = 1; break;
        case 'X': o->warm_ns = seconds(optarg); warm_time = 1; break;
        default: fail(argv[0], "options are -m [MIN:]MAX -i N -x N -W N -b single|multiple -t S:R -p N -w KIND -s CALLS "
                      "--alloc --time SECONDS --warm-time SECONDS --run-ahead --waitsome");
        }
    }
    if (optind < argc && o->operand != NULL)
        o->operand = argv[optind++];
    if (optind < argc)
        fail("not an option", argv[optind]);
    if (iterations && !timed)
        o->each_ns = 0;
    if (warmup && !warm_time)
        o->warm_ns = 0;
}

/* Plays n rounds of what is measured. */
typedef void (*rounds)(void *side, long n);

/* Rank 0's number, on all ranks. The file that includes this one defines it. */
static inline long agree(long n);

/* What has been played before a figure, as benchmarks/internal/bench has it. */
typedef struct {
    long rounds;
    int64_t took, each; /* ns; the figure shall take `each` */
} tally;

/* Adds a batch of n rounds, when the warm-up lasts for so much more: how many rounds the next batch has, or below 0 how
 * many the figure has, by the mean pace of all batches. */
static inline long next_batch(tally *t, long n, int64_t took, int64_t left)
{
    t->rounds += n;
    t->took += took > 0 ? took : 1;
    if (left <= 0 && t->took >= t->each / 2) {
        double fits = (double)t->rounds * t->each / t->took;
        return fits < 1 ? -1 : fits < MOST_ROUNDS ? -(long)fits : -MOST_ROUNDS;
    }
    return took < BATCH_NS / 2 && n < MOST_ROUNDS / GROWTH ? GROWTH * n : n;
}

/* Plays until the time of the warm-up has passed and the pace is known; how many rounds take as long as a figure
 * shall. */
static inline long batches(options *o, rounds play, void *side)
{
    tally t = {.each = o->each_ns > BATCH_NS ? o->each_ns : BATCH_NS};
    int64_t begin = now_ns();
    long next = 1;
    do {
        int64_t start = now_ns();
        play(side, next);
        int64_t now = now_ns();
        next = agree(next_batch(&t, next, now - start, o->warm_ns - (now - begin)));
    } while (next > 0);
    o->warm_ns = 0;
    return -next;
}

/* Plays until the warm-up is over; how many rounds to measure: -i, or as many as take --time. */
static inline long settle(options *o, long size, rounds play, void *side)
{
    if (o->warm_ns == 0 && o->each_ns == 0) {
        play(side, warmup(o, size));
        return iterations(o, size);
    }
    long n = batches(o, play, side);
    return o->each_ns > 0 ? n : iterations(o, size);
}

/* The same for a figure that has a number of rounds of its own. */
static inline void warm_up(options *o, rounds play, void *side)
{
    if (o->warm_ns > 0)
        batches(o, play, side);
}

/* How many repetitions of `each` fit into the time of a figure, within bounds; with -i that number. */
static inline long fit(const options *o, int64_t each, long least, long most)
{
    if (o->each_ns == 0)
        return o->small_iters;
    int64_t n = o->each_ns / each;
    return n < least ? least : n > most ? most : (long)n;
}

/* Computes for so long. */
static inline void compute_for(int64_t ns)
{
    for (int64_t start = now_ns(); now_ns() - start < ns;)
        ;
}

static volatile uint64_t computed; /* keeps the compiler from leaving the computation out */

/* The computation: arithmetic on private memory, no call of anything. */
static inline void compute(long steps)
{
    static uint64_t field[512];
    uint64_t x = computed;
    for (long i = 0; i < steps; i++) {
        x = x * 6364136223846793005u + field[i % 512];
        field[i % 512] = x >> 33;
    }
    computed = x;
}

static inline double compute_us(long steps, long n)
{
    int64_t start = now_ns();
    for (long i = 0; i < n; i++)
        compute(steps);
    return (now_ns() - start) / 1e3 / n;
}

/* The steps that take so long, by doubling until the clock sees them well and then in proportion. */
static inline long steps_for(double us)
{
    long steps = 1024;
    while (compute_us(steps, 1) < us / 2)
        steps *= 2;
    double took = compute_us(steps, 5);
    return (long)(steps * us / took) + 1;
}

/* Memory whose pages have been touched before a clock runs. */
static inline char *touched(size_t n)
{
    char *p = NULL;
    if (posix_memalign((void **)&p, 4096, n > 0 ? n : 1) != 0)
        fail("peers", "no memory");
    memset(p, 1, n > 0 ? n : 1);
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

/* Bytes and messages of a second, in the columns of osu_mbw_mr. */
static inline void print_rates(long size, double messages, double ns)
{
    printf("%-10ld%20.2f%20.2f\n", size, messages * size * 1e3 / ns, messages * 1e9 / ns);
    fflush(stdout);
}

static inline void print_value(long key, double value)
{
    printf("%-10ld%20.2f\n", key, value);
    fflush(stdout);
}

#endif
