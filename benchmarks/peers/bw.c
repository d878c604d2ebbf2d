/* The windows of benchmarks/bw, for another MPI. */
#include "common.h"

int main(int argc, char **argv)
{
    options o = bandwidth_options();
    int rank = join_job(argc, argv, &o);
    need_ranks(2);
    window w = new_window(&o, rank == 0, 1 - rank);
    if (rank == 0)
        header("MPI Bandwidth Test", "Size", "Bandwidth (MB/s)");
    each_size(&o, windows, &w, &w.size, print_bandwidth, o.window);
    free_flight(&o, &w.f);
    return leave_job();
}
