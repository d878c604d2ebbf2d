/* What the peers share: the options and the output of the programs beside them in Go (benchmarks/harness).
 * They measure other MPI libraries the same way as ours is measured; build them with mpicc. */
#ifndef PEERS_COMMON_H
#define PEERS_COMMON_H

#include <errno.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LARGE_MESSAGE 8192

typedef struct {
    long min, max;                  /* -m */
    long small_iters, large_iters;  /* -i sets both */
    long small_warmup, large_warmup; /* -x sets both */
    long window;                    /* -W */
} options;

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

static inline void parse(int argc, char **argv, options *o)
{
    int c;
    while ((c = getopt(argc, argv, "m:i:x:W:")) != -1) {
        switch (c) {
        case 'm': parse_range(optarg, o); break;
        case 'i': o->small_iters = o->large_iters = number(optarg, 1); break;
        case 'x': o->small_warmup = o->large_warmup = number(optarg, 0); break;
        case 'W': o->window = number(optarg, 1); break;
        default: fail(argv[0], "options are -m [MIN:]MAX -i N -x N -W N");
        }
    }
    if (optind < argc)
        fail("not an option", argv[optind]);
}

static inline void need_ranks(int want)
{
    int size;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != want)
        fail("peers", "this program needs exactly two ranks");
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

static inline void header(const char *title, const char *key, const char *value)
{
    printf("# OSU %s v7.4 (peer)\n# Datatype: MPI_CHAR.\n# %-8s%18s\n", title, key, value);
    fflush(stdout);
}

/* The next size of -m, or -1; a zero is followed by one. */
static inline long next_size(const options *o, long size, long base)
{
    long next = size == 0 ? 1 : size * base;
    return next > o->max ? -1 : next;
}

#endif
