/* The windows of benchmarks/bw_persistent, for another MPI: requests made once, started for every window. */
#include "common.h"

static void make(flight *f, int sends, int partner, int size)
{
    for (int j = 0; j < f->count; j++) {
        char *buf = f->buf + j * f->step;
        if (sends)
            MPI_Send_init(buf, size, MPI_CHAR, partner, DATA, MPI_COMM_WORLD, &f->requests[j]);
        else
            MPI_Recv_init(buf, size, MPI_CHAR, partner, DATA, MPI_COMM_WORLD, &f->requests[j]);
    }
}

static void windows_again(flight *f, int sends, int partner, long n)
{
    for (long i = 0; i < n; i++) {
        MPI_Startall(f->count, f->requests);
        wait_all(f);
        if (sends)
            recv_answer(partner);
        else
            send_answer(partner);
    }
}

int main(int argc, char **argv)
{
    options o = bandwidth_options();
    MPI_Init(&argc, &argv);
    int rank = my_rank();
    parse(argc, argv, &o);
    need_ranks(2);
    flight f = new_flight(&o, o.window);
    if (rank == 0)
        header("MPI Bandwidth Persistent Test", "Size", "Bandwidth (MB/s)");
    for (long size = o.min; size >= 0; size = next_size(&o, size, 2)) {
        long n = iterations(&o, size);
        make(&f, rank == 0, 1 - rank, size);
        MPI_Barrier(MPI_COMM_WORLD);
        windows_again(&f, rank == 0, 1 - rank, warmup(&o, size));
        int64_t start = now_ns();
        windows_again(&f, rank == 0, 1 - rank, n);
        int64_t took = now_ns() - start;
        if (rank == 0) {
            printf("%-10ld%20.2f\n", size, (double)size * o.window * n * 1e3 / took);
            fflush(stdout);
        }
        for (int j = 0; j < f.count; j++)
            MPI_Request_free(&f.requests[j]);
    }
    free_flight(&o, &f);
    MPI_Finalize();
    return 0;
}
