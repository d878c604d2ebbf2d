/* The ping-pong of benchmarks/latency, for another MPI. */
#include "common.h"

int main(int argc, char **argv)
{
    options o = latency_options();
    int rank = join_job(argc, argv, &o);
    need_ranks(2);
    pair p = new_pair(&o, rank == 0, 1 - rank);
    if (rank == 0)
        header("MPI Latency Test", "Size", "Avg Latency(us)");
    each_size(&o, ping_pong, &p, &p.size, print_latency, 2);
    free_pair(&o, &p);
    return leave_job();
}
