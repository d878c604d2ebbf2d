/* A program that knows only MPI. Its first argument says what it does. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

static void ring(void)
{
    int x = 0, left = (rank + size - 1) % size, right = (rank + 1) % size;
    if (rank > 0)
        MPI_Recv(&x, 1, MPI_INT, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    x++;
    if (size > 1)
        MPI_Send(&x, 1, MPI_INT, right, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        if (size > 1)
            MPI_Recv(&x, 1, MPI_INT, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        printf("ring %d\n", x);
    }
}

/* A sum of all ranks of short and of long vectors, which libraries send in different ways. */
static void allreduce(void)
{
    for (int n = 1; n <= 1 << 18; n <<= 9) {
        double *x = malloc(n * sizeof *x);
        for (int i = 0; i < n; i++)
            x[i] = rank + i;
        MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < n; i++)
            if (x[i] != size * (size - 1) / 2 + (double)size * i) {
                printf("rank %d: element %d of %d is %g\n", rank, i, n, x[i]);
                MPI_Abort(MPI_COMM_WORLD, 8);
            }
        free(x);
    }
}

/* How many hosts MPI sees. */
static void hosts(void)
{
    MPI_Comm host;
    int local, first, count;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &local);
    first = local == 0;
    MPI_Reduce(&first, &count, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("hosts %d\n", count);
    MPI_Comm_free(&host);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    printf("hello from %d of %d\n", rank, size);
    fflush(stdout);
    if (!strcmp(what, "ring"))
        ring();
    if (!strcmp(what, "hosts")) {
        ring();
        allreduce();
        hosts();
    }
    MPI_Barrier(MPI_COMM_WORLD); /* or the ranks that are still in MPI_Init abort, too */
    if (!strcmp(what, "abort") && rank == 1)
        MPI_Abort(MPI_COMM_WORLD, 7);
    if (!strcmp(what, "exit") && rank == 1)
        _Exit(5);
    if (!strcmp(what, "appnum")) {
        int *appnum, flag;
        MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &appnum, &flag);
        if (!flag || *appnum != (rank > 0))
            MPI_Abort(MPI_COMM_WORLD, 9);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
