/* What benchmarks/overlap shows, for another MPI. Method and columns are described there. */
#include "common.h"

enum { READY = 1, PAUSE = 50000 /* ns, from the handshake to the start */ };

static void wait_until(int64_t when)
{
    while (now_ns() < when)
        ;
}

/* Rank 1 of n iterations: it sends rank 0 a byte and goes into a blocking call. */
static void serve(char *buf, long size, int receives, long n)
{
    char word = 0;
    for (long i = 0; i < n; i++) {
        MPI_Send(&word, 1, MPI_CHAR, 0, READY, MPI_COMM_WORLD);
        if (receives)
            MPI_Recv(buf, size, MPI_CHAR, 0, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(buf, size, MPI_CHAR, 0, DATA, MPI_COMM_WORLD);
    }
}

/* Rank 0 of n iterations: the mean time from the start of the transfer to the end of its Wait. */
static double transfer_us(char *buf, long size, int sends, long steps, long n)
{
    int64_t took = 0;
    for (long i = 0; i < n; i++) {
        char word;
        MPI_Request request;
        MPI_Recv(&word, 1, MPI_CHAR, 1, READY, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        wait_until(now_ns() + PAUSE);
        int64_t start = now_ns();
        if (sends)
            MPI_Isend(buf, size, MPI_CHAR, 1, DATA, MPI_COMM_WORLD, &request);
        else
            MPI_Irecv(buf, size, MPI_CHAR, 1, DATA, MPI_COMM_WORLD, &request);
        if (steps > 0)
            compute(steps);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        took += now_ns() - start;
    }
    return n > 0 ? took / 1e3 / n : 0;
}

/* One size in one direction. */
typedef struct {
    char *buf;
    long size;
    int rank, sends;
} transfer;

static void play(void *side, long n)
{
    const transfer *t = side;
    if (t->rank == 0)
        transfer_us(t->buf, t->size, t->sends, 0, n);
    else
        serve(t->buf, t->size, t->sends, n);
}

static void print_overlap(char *buf, long size, int sends, long n)
{
    double pure = transfer_us(buf, size, sends, 0, n);
    long steps = steps_for(2 * pure > 200 ? 2 * pure : 200);
    double alone = compute_us(steps, n);
    double total = transfer_us(buf, size, sends, steps, n);
    double hidden = 1 - (total - alone) / pure;
    hidden = hidden < 0 ? 0 : hidden > 1 ? 1 : hidden;
    printf("%20.2f%20.2f%20.2f%20.2f", pure, alone, total, 100 * hidden);
}

int main(int argc, char **argv)
{
    options o = latency_options();
    o.min = o.max, o.small_iters = o.large_iters = 100;
    o.small_warmup = o.large_warmup = 10;
    int rank = join_job(argc, argv, &o);
    need_ranks(2);
    char *buf = buffer(&o, o.max);
    if (rank == 0) {
        title("MPI Overlap Test");
        columns("Size", "Isend Pure(us)", "Isend Compute(us)", "Isend Total(us)", "Isend Overlap(%)",
                "Irecv Pure(us)", "Irecv Compute(us)", "Irecv Total(us)", "Irecv Overlap(%)", NULL);
    }
    for (long size = o.min; size >= 0; size = next_size(&o, size, 2)) {
        if (rank == 0)
            printf("%-10ld", size);
        for (int sends = 1; sends >= 0; sends--) {
            MPI_Barrier(MPI_COMM_WORLD);
            long n = settle(&o, size, play, &(transfer){buf, size, rank, sends});
            if (rank == 0)
                print_overlap(buf, size, sends, n);
            else
                serve(buf, size, sends, 2 * n);
        }
        if (rank == 0) {
            printf("\n");
            fflush(stdout);
        }
    }
    release(&o, buf);
    return leave_job();
}
