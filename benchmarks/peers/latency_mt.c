/* The ping-pongs of benchmarks/latency_mt, many threads of two ranks at once, for another MPI.
 *
 * With as many senders as receivers each pair of threads has a tag of its own. Otherwise all share one, and a receiver
 * answers its share of the round trips of all senders. */
#include "common.h"
#include <pthread.h>

static options opts;
static int rank;
static pthread_barrier_t begin, end; /* of all threads and the main one */
static long rounds_now;              /* for each sender; below 0: the threads end */

typedef struct {
    pthread_t thread;
    long index;
    pair pair;
    double ns; /* of a sender: the mean time of a round trip of the latest rounds */
} worker;

static worker *workers;

static long threads(void) { return rank == 0 ? opts.senders : opts.receivers; }

/* What of `each` round trips for each sender is this thread's part. */
static long share(const worker *w, long each)
{
    if (rank == 0)
        return each;
    long all = each * opts.senders;
    return all / opts.receivers + (w->index < all % opts.receivers);
}

static void *work(void *arg)
{
    worker *w = arg;
    for (;;) {
        pthread_barrier_wait(&begin);
        if (rounds_now < 0)
            return NULL;
        long n = share(w, rounds_now);
        int64_t start = now_ns();
        ping_pong(&w->pair, n);
        w->ns = n > 0 ? (double)(now_ns() - start) / n : 0;
        pthread_barrier_wait(&end);
    }
}

/* All threads of both ranks begin together. */
static void play(void *side, long n)
{
    (void)side;
    rounds_now = n;
    MPI_Barrier(MPI_COMM_WORLD);
    pthread_barrier_wait(&begin);
    pthread_barrier_wait(&end);
}

static void start_threads(void)
{
    pthread_barrier_init(&begin, NULL, threads() + 1);
    pthread_barrier_init(&end, NULL, threads() + 1);
    workers = room_for(threads(), sizeof *workers);
    for (long t = 0; t < threads(); t++) {
        worker *w = &workers[t];
        *w = (worker){.index = t, .pair = new_pair(&opts, rank == 0, 1 - rank)};
        if (opts.senders == opts.receivers)
            w->pair.tag += (int)t;
        if (pthread_create(&w->thread, NULL, work, w) != 0)
            fail("latency_mt", "cannot start so many threads");
    }
}

static void end_threads(void)
{
    rounds_now = -1;
    pthread_barrier_wait(&begin);
    for (long t = 0; t < threads(); t++) {
        pthread_join(workers[t].thread, NULL);
        free_pair(&opts, &workers[t].pair);
    }
    free(workers);
}

int main(int argc, char **argv)
{
    int provided = MPI_THREAD_SINGLE;
    opts = latency_options();
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    rank = my_rank();
    parse(argc, argv, &opts);
    need_ranks(2);
    if (provided < MPI_THREAD_MULTIPLE)
        fail("latency_mt", "this library does not provide MPI_THREAD_MULTIPLE");
    start_threads();
    if (rank == 0) {
        printf("# Number of Sender threads: %ld \n# Number of Receiver threads: %ld\n", opts.senders, opts.receivers);
        header("MPI Multi-threaded Latency Test", "Size", "Avg Latency(us)");
    }
    for (long size = opts.min; size >= 0; size = next_size(&opts, size, 2)) {
        for (long t = 0; t < threads(); t++)
            workers[t].pair.size = size;
        play(NULL, settle(&opts, size, play, NULL));
        double sum = 0;
        for (long t = 0; t < threads(); t++)
            sum += workers[t].ns;
        if (rank == 0)
            print_value(size, sum / opts.senders / 1e3 / 2);
    }
    end_threads();
    return leave_job();
}
