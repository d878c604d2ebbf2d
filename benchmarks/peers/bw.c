/* The windows of benchmarks/bw, for another MPI. */
#include "common.h"

static void windows(int rank, char *buf, int size, MPI_Request *requests, int window, long n)
{
    char answer[4] = {0};
    for (long i = 0; i < n; i++) {
        for (int j = 0; j < window; j++) {
            if (rank == 0)
                MPI_Isend(buf, size, MPI_CHAR, 1, 100, MPI_COMM_WORLD, &requests[j]);
            else
                MPI_Irecv(buf, size, MPI_CHAR, 0, 100, MPI_COMM_WORLD, &requests[j]);
        }
        MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
        if (rank == 0)
            MPI_Recv(answer, 4, MPI_CHAR, 1, 101, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(answer, 4, MPI_CHAR, 0, 101, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    options o = {1, 4 << 20, 100, 20, 10, 2, 64};
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    parse(argc, argv, &o);
    need_ranks(2);
    char *buf = touched(o.max);
    MPI_Request *requests = malloc(o.window * sizeof *requests);
    if (requests == NULL)
        fail("bw", "no memory");
    if (rank == 0)
        header("MPI Bandwidth Test", "Size", "Bandwidth (MB/s)");
    for (long size = o.min; size >= 0; size = next_size(&o, size, 2)) {
        long n = iterations(&o, size);
        MPI_Barrier(MPI_COMM_WORLD);
        windows(rank, buf, size, requests, o.window, warmup(&o, size));
        int64_t start = now_ns();
        windows(rank, buf, size, requests, o.window, n);
        int64_t took = now_ns() - start;
        if (rank == 0) {
            printf("%-10ld%20.2f\n", size, (double)size * o.window * n * 1e3 / took);
            fflush(stdout);
        }
    }
    free(requests);
    free(buf);
    MPI_Finalize();
    return 0;
}
