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
