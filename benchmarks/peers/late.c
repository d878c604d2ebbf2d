/* The late rank of benchmarks/late, for another MPI. */
#include "common.h"

enum { BYTES = 8, BEFORE = 100, AFTER = 10, LEAST = 20, MOST = 2000 };

static const long lateness[] = {30, 100, 1000, 10000}; /* us */

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The sample that so many of 100 do not exceed, in microseconds. */
static double percentile(const int64_t *sorted, long n, int p) { return sorted[(n * p + 99) / 100 - 1] / 1e3; }

/* Rank 0, which is late n times. */
static void lead(pair *p, long us, long n)
{
    int64_t *took = room_for(n, sizeof *took);
    double sum = 0;
    for (long i = 0; i < n; i++) {
        ping_pong(p, BEFORE);
        compute_for(us * 1000);
        int64_t start = now_ns();
        ping_pong(p, AFTER);
        took[i] = now_ns() - start;
        sum += took[i];
    }
    qsort(took, n, sizeof *took, by_value);
    printf("%-10ld%20.2f%20.2f%20.2f%20.2f\n", us, sum / n / 1e3, percentile(took, n, 50), percentile(took, n, 90),
           percentile(took, n, 99));
    fflush(stdout);
    free(took);
}

int main(int argc, char **argv)
{
    options o = latency_options();
    o.min = 30, o.max = 10000, o.each_ns = 500000000;
    int rank = join_job(argc, argv, &o);
    need_ranks(2);
    options sized = o;
    sized.max = BYTES;
    pair p = new_pair(&sized, rank == 0, 1 - rank);
    p.size = BYTES;
    if (rank == 0) {
        title("MPI Late Rank Test");
        printf("# [ round trips: %d ]\n", AFTER);
        columns("Late(us)", "Mean(us)", "Median(us)", "P90(us)", "P99(us)", NULL);
    }
    for (size_t i = 0; i < sizeof lateness / sizeof *lateness; i++) {
        if (lateness[i] < o.min || lateness[i] > o.max)
            continue;
        MPI_Barrier(MPI_COMM_WORLD);
        warm_up(&o, ping_pong, &p);
        long n = fit(&o, lateness[i] * 1000, LEAST, MOST);
        if (rank == 0)
            lead(&p, lateness[i], n);
        else
            ping_pong(&p, n * (BEFORE + AFTER));
    }
    free_pair(&sized, &p);
    return leave_job();
}
