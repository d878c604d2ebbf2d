/* What a blocked rank costs in benchmarks/idle, for another MPI. */
#include "common.h"
#include <sys/resource.h>

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* CPU seconds of a second that the rank is blocked in Recv. */
static double blocked(void)
{
    char word;
    double used = cpu_seconds();
    int64_t start = now_ns();
    MPI_Recv(&word, 1, MPI_CHAR, 0, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return (cpu_seconds() - used) * 1e9 / (now_ns() - start);
}

int main(int argc, char **argv)
{
    options o = {.small_iters = 2};
    int rank = join_job(argc, argv, &o), ranks = all_ranks();
    need_two("idle");
    double cost = 0, worst = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        char word = 0;
        sleep(o.small_iters);
        for (int r = 1; r < ranks; r++)
            MPI_Send(&word, 1, MPI_CHAR, r, DATA, MPI_COMM_WORLD);
    } else {
        cost = blocked();
    }
    double rss = peak_kib(), most = 0;
    MPI_Reduce(&cost, &worst, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(&rss, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        title("MPI Idle Test");
        columns("Ranks", "CPU(s/s)", "Max RSS(KiB)", NULL);
        printf("%-10d%20.4f%20.0f\n", ranks, worst, most);
        fflush(stdout);
    }
    return leave_job();
}
