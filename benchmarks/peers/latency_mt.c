/* The ping-pongs of benchmarks/latency_mt, many threads of two ranks at once, for another MPI.
 *
 * With as many senders as receivers each pair of threads has a tag of its own. Otherwise all share one, and a receiver
 * answers its share of the round trips of all senders. */
#include "common.h"
#include <pthread.h>

static options opts;
static int rank, paired;
static pthread_barrier_t barrier;

typedef struct {
    pthread_t thread;
    long index;
    char *send, *recv;
    double *us; /* for each size, of a sender: the mean time of a message */
} worker;

static long threads(void) { return rank == 0 ? opts.senders : opts.receivers; }

/* What of `each` round trips for each sender is this thread's part. */
static long share(const worker *w, long each)
{
    if (rank == 0)
        return each;
    long all = each * opts.senders;
    return all / opts.receivers + (w->index < all % opts.receivers);
}

/* No thread of either rank goes on before all are here. */
static void meet(const worker *w)
{
    pthread_barrier_wait(&barrier);
    if (w->index == 0)
        MPI_Barrier(MPI_COMM_WORLD);
    pthread_barrier_wait(&barrier);
}

static void *work(void *arg)
{
    worker *w = arg;
    int tag = paired ? PING + (int)w->index : PING, i = 0;
    for (long size = opts.min; size >= 0; size = next_size(&opts, size, 2), i++) {
        long n = share(w, iterations(&opts, size));
        meet(w);
        ping_pong(rank == 0, 1 - rank, w->send, w->recv, size, tag, share(w, warmup(&opts, size)));
        meet(w);
        int64_t start = now_ns();
        ping_pong(rank == 0, 1 - rank, w->send, w->recv, size, tag, n);
        w->us[i] = (now_ns() - start) / 1e3 / n / 2;
    }
    return NULL;
}

static void print(const worker *workers)
{
    int i = 0;
    printf("# Number of Sender threads: %ld \n# Number of Receiver threads: %ld\n", opts.senders, opts.receivers);
    header("MPI Multi-threaded Latency Test", "Size", "Avg Latency(us)");
    for (long size = opts.min; size >= 0; size = next_size(&opts, size, 2), i++) {
        double sum = 0;
        for (long t = 0; t < opts.senders; t++)
            sum += workers[t].us[i];
        printf("%-10ld%20.2f\n", size, sum / opts.senders);
    }
    fflush(stdout);
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
    paired = opts.senders == opts.receivers;
    pthread_barrier_init(&barrier, NULL, threads());
    worker *workers = room_for(threads(), sizeof *workers);
    for (long t = 0; t < threads(); t++) {
        worker *w = &workers[t];
        *w = (worker){.index = t, .send = buffer(&opts, opts.max), .recv = buffer(&opts, opts.max)};
        w->us = room_for(64, sizeof *w->us); /* sizes double: there are at most 64 */
        if (pthread_create(&w->thread, NULL, work, w) != 0)
            fail("latency_mt", "cannot start so many threads");
    }
    for (long t = 0; t < threads(); t++)
        pthread_join(workers[t].thread, NULL);
    if (rank == 0)
        print(workers);
    for (long t = 0; t < threads(); t++) {
        release(&opts, workers[t].send);
        release(&opts, workers[t].recv);
        free(workers[t].us);
    }
    free(workers);
    MPI_Finalize();
    return 0;
}
