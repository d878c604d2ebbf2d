/* The queues of benchmarks/match, for another MPI. Method and columns are described there. */
#include "common.h"

enum { WANTED = 1, REQUEST = 2, SENT = 3, RESULT = 4, WAIT = 1000 };
enum { BYTES = 8, KINDS = 4 };
#define CELL_TIME INT64_C(1000000000) /* ns, for the batches of one cell, unless --time says otherwise */

typedef struct {
    const char *name;
    int any_source, any_tag;
} kind;

static const kind kinds[KINDS] = {{"Exact", 0, 0}, {"AnySrc", 1, 0}, {"AnyTag", 0, 1}, {"AnyBoth", 1, 1}};

static int rank, batch_size;
static long length;
static options opts;

/* A queue whose oldest entry completes next, with room for what waits and one batch; entry i uses slot i modulo the
 * room. Where something can be in the way, its first `length` entries are what waits, the batch has its own slots. */
static MPI_Request *fifo, *batch;
static char *fifo_buf, *batch_buf;
static long room, started, finished;

static char *slot(char *buf, long i) { return buf + i * BYTES; }
static int source(const kind *k, int sender) { return k->any_source ? MPI_ANY_SOURCE : sender; }
static int tag(const kind *k, int t) { return k->any_tag ? MPI_ANY_TAG : t; }
static int matches_all(const kind *k) { return k->any_source && k->any_tag; }

/* The rank that sends what is in the way: rank 1 to itself where a message of rank 0 would match. */
static int filler(const kind *k) { return k->any_tag && !k->any_source ? 1 : 0; }

static void post(const kind *k, int sender, int t)
{
    long i = started++ % room;
    MPI_Irecv(slot(fifo_buf, i), BYTES, MPI_CHAR, source(k, sender), tag(k, t), MPI_COMM_WORLD, &fifo[i]);
}

static void start_send(int t)
{
    long i = started++ % room;
    MPI_Isend(slot(fifo_buf, i), BYTES, MPI_CHAR, 1, t, MPI_COMM_WORLD, &fifo[i]);
}

static void finish(long n)
{
    for (long j = 0; j < n; j++)
        MPI_Wait(&fifo[finished++ % room], MPI_STATUS_IGNORE);
}

static void request(char more) { MPI_Send(&more, 1, MPI_CHAR, 0, REQUEST, MPI_COMM_WORLD); }

static int requested(void)
{
    char more;
    MPI_Recv(&more, 1, MPI_CHAR, 1, REQUEST, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return more;
}

static void send_last(void)
{
    char word = 1;
    MPI_Send(&word, 1, MPI_CHAR, 1, SENT, MPI_COMM_WORLD);
}

static int64_t await_batch(const kind *k)
{
    for (int i = 0; i < batch_size; i++) {
        if (matches_all(k))
            post(k, 0, WANTED);
        else
            MPI_Irecv(slot(batch_buf, i), BYTES, MPI_CHAR, source(k, 0), tag(k, WANTED), MPI_COMM_WORLD, &batch[i]);
    }
    int64_t start = now_ns();
    request(1);
    if (matches_all(k))
        finish(batch_size);
    else
        MPI_Waitall(batch_size, batch, MPI_STATUSES_IGNORE);
    return now_ns() - start;
}

static int64_t receive_batch(const kind *k)
{
    char word;
    request(1);
    MPI_Recv(&word, 1, MPI_CHAR, 0, SENT, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    int64_t start = now_ns();
    for (int i = 0; i < batch_size; i++)
        MPI_Recv(slot(batch_buf, i), BYTES, MPI_CHAR, source(k, 0), tag(k, WANTED), MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return now_ns() - start;
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Batches on rank 1 until there are enough; their median in microseconds for one message. */
static double median_of(int64_t (*run)(const kind *), const kind *k)
{
    int64_t *samples = malloc(opts.small_iters * sizeof *samples);
    if (samples == NULL)
        fail("match", "no memory");
    int64_t begin = now_ns(), most = opts.each_ns > 0 ? opts.each_ns : CELL_TIME;
    for (long i = 0; (i < opts.small_warmup && now_ns() - begin < most / 4) || now_ns() - begin < opts.warm_ns; i++)
        run(k);
    opts.warm_ns = 0;
    long n = 0;
    begin = now_ns();
    while (n < opts.small_iters) {
        samples[n++] = run(k);
        if (now_ns() - begin > most)
            break;
    }
    request(0);
    qsort(samples, n, sizeof *samples, by_value);
    long nearest = (n * 50 + 99) / 100;
    double median = (double)samples[nearest - 1];
    free(samples);
    return median / 1e3 / batch_size;
}

static void send_batch(int ends)
{
    for (int i = 0; i < batch_size; i++)
        MPI_Isend(slot(batch_buf, i), BYTES, MPI_CHAR, 1, WANTED, MPI_COMM_WORLD, &batch[i]);
    if (ends)
        send_last();
    MPI_Waitall(batch_size, batch, MPI_STATUSES_IGNORE);
}

static void send_waiting(const kind *k)
{
    if (filler(k) != rank)
        return;
    for (long i = 0; i < length; i++)
        MPI_Send(fifo_buf, BYTES, MPI_CHAR, 1, WAIT + i, MPI_COMM_WORLD);
}

static double posted(const kind *k)
{
    started = finished = 0;
    if (rank == 0) {
        while (requested())
            send_batch(0);
        send_waiting(k);
        return 0;
    }
    for (long i = 0; i < length; i++)
        post(k, filler(k), WAIT + i);
    double us = median_of(await_batch, k);
    send_waiting(k);
    finish(length);
    return us;
}

static double unexpected(const kind *k)
{
    started = finished = 0;
    if (filler(k) == rank)
        for (long i = 0; i < length; i++)
            start_send(matches_all(k) ? WANTED : WAIT + i);
    if (rank == 0) {
        while (requested()) {
            if (!matches_all(k)) {
                send_batch(1);
                continue;
            }
            finish(started - finished - length);
            for (int i = 0; i < batch_size; i++)
                start_send(WANTED);
            send_last();
        }
        finish(started - finished);
        return 0;
    }
    double us = median_of(receive_batch, k);
    for (long i = 0; i < length; i++)
        MPI_Recv(batch_buf, BYTES, MPI_CHAR, source(k, filler(k)), tag(k, WAIT + i), MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    finish(started - finished);
    return us;
}

static void measure_line(void)
{
    double us[2 * KINDS];
    room = length + batch_size;
    fifo = malloc(room * sizeof *fifo);
    fifo_buf = touched(room * BYTES);
    if (fifo == NULL)
        fail("match", "no memory");
    for (int i = 0; i < KINDS; i++)
        us[i] = posted(&kinds[i]);
    for (int i = 0; i < KINDS; i++)
        us[KINDS + i] = unexpected(&kinds[i]);
    free(fifo);
    free(fifo_buf);
    if (rank == 1) {
        MPI_Send(us, 2 * KINDS, MPI_DOUBLE, 0, RESULT, MPI_COMM_WORLD);
        return;
    }
    MPI_Recv(us, 2 * KINDS, MPI_DOUBLE, 1, RESULT, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    printf("%-10ld", length);
    for (int i = 0; i < 2 * KINDS; i++)
        printf("%20.3f", us[i]);
    printf("\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    opts = latency_options();
    opts.max = 1000000, opts.small_iters = opts.large_iters = 200;
    opts.small_warmup = opts.large_warmup = 10;
    rank = join_job(argc, argv, &opts);
    need_ranks(2);
    if (opts.min < 1 || opts.max > 100000000)
        fail("match", "the queue has 1 to 100000000 entries");
    batch_size = opts.window;
    batch = malloc(batch_size * sizeof *batch);
    batch_buf = touched((size_t)batch_size * BYTES);
    if (batch == NULL)
        fail("match", "no memory");
    if (rank == 0) {
        printf("# OSU MPI Match Test v7.4 (peer)\n# Datatype: MPI_CHAR.\n# %-8s", "Queue");
        for (int i = 0; i < 2 * KINDS; i++) {
            char head[32];
            snprintf(head, sizeof head, "%s %s(us)", i < KINDS ? "Posted" : "Unexp.", kinds[i % KINDS].name);
            printf("%*s", i == 0 ? 18 : i == 1 ? 22 : 20, head);
        }
        printf("\n");
        fflush(stdout);
    }
    for (length = opts.min; length >= 0; length = next_size(&opts, length, 10))
        measure_line();
    free(batch);
    free(batch_buf);
    return leave_job();
}
