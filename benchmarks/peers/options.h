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

#endif
