/* The windows of benchmarks/bw_persistent, for another MPI: requests made once, started for every window. */
#include "common.h"

static void make(const window *w)
{
    for (int j = 0; j < w->f.count; j++) {
        char *buf = w->f.buf + j * w->f.step;
        if (w->sends)
            MPI_Send_init(buf, w->size, MPI_CHAR, w->partner, DATA, MPI_COMM_WORLD, &w->f.requests[j]);
        else
            MPI_Recv_init(buf, w->size, MPI_CHAR, w->partner, DATA, MPI_COMM_WORLD, &w->f.requests[j]);
    }
}

static void windows_again(void *side, long n)
{
    window *w = side;
    for (long i = 0; i < n; i++) {
        MPI_Startall(w->f.count, w->f.requests);
        wait_all(&w->f);
        answer_window(w);
    }
}

int main(int argc, char **argv)
{
    options o = bandwidth_options();
    int rank = join_job(argc, argv, &o);
    need_ranks(2);
    window w = new_window(&o, rank == 0, 1 - rank);
    if (rank == 0)
        header("MPI Bandwidth Persistent Test", "Size", "Bandwidth (MB/s)");
    for (long size = o.min; size >= 0; size = next_size(&o, size, 2)) {
        w.size = size;
        make(&w);
        figure f = measure(&o, size, 0, windows_again, &w);
        if (rank == 0)
            print_value(size, (double)size * o.window * 1e3 / f.ns);
        for (int j = 0; j < w.f.count; j++)
            MPI_Request_free(&w.f.requests[j]);
    }
    free_flight(&o, &w.f);
    return leave_job();
}
