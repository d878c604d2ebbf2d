/* The clock readings of benchmarks/init, for another MPI. */
#include "common.h"

typedef struct {
    int64_t init, barrier, peak_kib;
} report;

int main(int argc, char **argv)
{
    int rank, ranks;
    int64_t start = now_ns();
    MPI_Init(&argc, &argv);
    int64_t joined = now_ns();
    MPI_Barrier(MPI_COMM_WORLD);
    int64_t met = now_ns();
    report mine = {joined - start, met - joined, peak_kib()}, low = mine, high = mine, sum = mine;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Reduce(&mine, &low, 3, MPI_INT64_T, MPI_MIN, 0, MPI_COMM_WORLD);
    MPI_Reduce(&mine, &high, 3, MPI_INT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(&mine, &sum, 3, MPI_INT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("# OSU MPI Init Test v7.4 (peer)\nnprocs: %d, min: %ld ms, max: %ld ms, avg: %ld ms\n", ranks,
               (long)(low.init / 1000000), (long)(high.init / 1000000), (long)(sum.init / ranks / 1000000));
        printf("# Init(us)    min %ld, max %ld, avg %ld\n", (long)(low.init / 1000), (long)(high.init / 1000),
               (long)(sum.init / ranks / 1000));
        printf("# Barrier(us) min %ld, max %ld, avg %ld\n", (long)(low.barrier / 1000), (long)(high.barrier / 1000),
               (long)(sum.barrier / ranks / 1000));
        printf("# Max RSS(KiB) of a rank %ld\n", (long)high.peak_kib);
    }
    MPI_Finalize();
    return 0;
}
