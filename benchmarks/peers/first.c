/* The first messages of benchmarks/first, for another MPI. */
#include "common.h"

#define SECOND INT64_C(1000000000)
#define JOINED (SECOND / 5) /* all ranks have joined the job within this time of each other */

typedef struct {
    int64_t began, finished; /* ns of the clock of the day, which all ranks have */
} span;

static int64_t day_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * SECOND + t.tv_nsec;
}

/* All ranks begin at the next whole second that is far enough. */
static void sleep_until_instant(void)
{
    int64_t left = ((day_ns() + JOINED) / SECOND + 1) * SECOND - day_ns();
    struct timespec t = {.tv_sec = left / SECOND, .tv_nsec = left % SECOND};
    while (nanosleep(&t, &t) != 0)
        ;
}

static void round_trip(int rank, uint64_t *in, uint64_t *out)
{
    if (rank == 0)
        MPI_Send(out, 8, MPI_CHAR, 1, DATA, MPI_COMM_WORLD);
    MPI_Recv(in, 8, MPI_CHAR, 1 - rank, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank != 0)
        MPI_Send(out, 8, MPI_CHAR, 0, DATA, MPI_COMM_WORLD);
}

static void with_all(int rank, int ranks, uint64_t *in, uint64_t *out, MPI_Request *requests)
{
    int n = 0;
    for (int d = 1; d < ranks; d++) {
        int from = (rank + ranks - d) % ranks;
        MPI_Irecv(&in[from], 8, MPI_CHAR, from, DATA, MPI_COMM_WORLD, &requests[n++]);
    }
    for (int d = 1; d < ranks; d++)
        MPI_Isend(out, 8, MPI_CHAR, (rank + d) % ranks, DATA, MPI_COMM_WORLD, &requests[n++]);
    MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
}

static span timed(int rank, int ranks, uint64_t *in, MPI_Request *requests)
{
    uint64_t out = 0;
    span s = {.began = day_ns()};
    if (ranks == 2)
        round_trip(rank, in, &out);
    else
        with_all(rank, ranks, in, &out, requests);
    s.finished = day_ns();
    return s;
}

/* From when all had begun to when all had finished, on rank 0. */
static double collect_us(span mine)
{
    span last = mine;
    MPI_Reduce(&mine, &last, 2, MPI_INT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
    return (last.finished - last.began) / 1e3;
}

int main(int argc, char **argv)
{
    options o = latency_options();
    int rank = join_job(argc, argv, &o), ranks = all_ranks();
    need_two("first");
    uint64_t *in = room_for(ranks, sizeof *in);
    MPI_Request *requests = room_for(2 * ranks, sizeof *requests);
    sleep_until_instant();
    span first = timed(rank, ranks, in, requests);
    MPI_Barrier(MPI_COMM_WORLD);
    span second = timed(rank, ranks, in, requests);
    double us1 = collect_us(first), us2 = collect_us(second);
    if (rank == 0) {
        title("MPI First Message Test");
        columns("Ranks", "First(us)", "Second(us)", NULL);
        printf("%-10d%20.2f%20.2f\n", ranks, us1, us2);
    }
    free(in);
    free(requests);
    return leave_job();
}
