/* The token of benchmarks/ring, for another MPI. */
#include "common.h"

#define TOKEN 1
#define TIME_MAX INT64_C(10000000000) /* ns, for one size */

enum { GOES_ON, LAST }; /* the token's first byte */

static int left, right;

static void receive(char *token, int size)
{
    MPI_Recv(token, size, MPI_CHAR, left, TOKEN, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void forward(char *token, int size)
{
    MPI_Send(token, size, MPI_CHAR, right, TOKEN, MPI_COMM_WORLD);
}

static void pass(char *token, int size, int tokens)
{
    for (int gone = 0; gone < tokens;) {
        receive(token, size);
        forward(token, size);
        if (token[0] == LAST)
            gone++;
    }
}

static void lap(char *token, int size, int tokens)
{
    for (int i = 0; i < tokens; i++) {
        receive(token, size);
        forward(token, size);
    }
}

static long lead(char *token, int size, const options *o, int64_t *took)
{
    long laps = 0;
    token[0] = GOES_ON;
    for (int i = 0; i < o->window; i++)
        forward(token, size);
    int64_t begin = now_ns();
    for (long i = 0; i < warmup(o, size) && now_ns() - begin < TIME_MAX / 2; i++)
        lap(token, size, o->window);
    int64_t start = now_ns();
    while (laps < iterations(o, size) && (laps == 0 || now_ns() - start < TIME_MAX)) {
        lap(token, size, o->window);
        laps++;
    }
    *took = now_ns() - start;
    for (int i = 0; i < o->window; i++) {
        receive(token, size);
        token[0] = LAST;
        forward(token, size);
    }
    for (int i = 0; i < o->window; i++)
        receive(token, size);
    return laps;
}

int main(int argc, char **argv)
{
    options o = latency_options();
    o.min = o.max = 8, o.window = 1;
    MPI_Init(&argc, &argv);
    int rank = my_rank(), ranks = all_ranks();
    parse(argc, argv, &o);
    if (ranks < 2 || o.window >= ranks || o.min < 1)
        fail("ring", "needs two ranks, fewer tokens than ranks, tokens of at least a byte");
    left = (rank + ranks - 1) % ranks;
    right = (rank + 1) % ranks;
    char *token = touched(o.max);
    if (rank == 0)
        printf("# OSU MPI Ring Latency Test v7.4 (peer)\n# Datatype: MPI_CHAR.\n# [ ranks: %d ] [ tokens: %ld ]\n"
               "# %-8s%18s%22s%20s%12s\n", ranks, o.window, "Size", "Hop Latency(us)", "Lap(us)", "Hops/s", "Laps");
    for (long size = o.min; size >= 0; size = next_size(&o, size, 2)) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank != 0) {
            pass(token, size, o.window);
            continue;
        }
        int64_t took;
        long laps = lead(token, size, &o, &took);
        double hops = (double)laps * ranks;
        printf("%-10ld%20.2f%20.2f%20.0f%12ld\n", size, took / 1e3 / hops, took / 1e3 / laps,
               hops * o.window * 1e9 / took, laps);
        fflush(stdout);
    }
    free(token);
    MPI_Finalize();
    return 0;
}
