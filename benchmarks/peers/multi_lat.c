/* The ping-pongs of benchmarks/multi_lat, all pairs at once, for another MPI. */
#include "common.h"

int main(int argc, char **argv)
{
    options o = latency_options();
    int rank = join_job(argc, argv, &o);
    int pairs = count_pairs(&o), serves = rank < pairs;
    pair p = new_pair(&o, serves, serves ? rank + pairs : rank - pairs);
    if (rank == 0) {
        title("MPI Multi Latency Test");
        printf("# [ pairs: %d ]\n", pairs);
        columns("Size", "Avg Latency(us)", NULL);
    }
    each_size_of_pairs(&o, pairs, ping_pong, &p, &p.size, print_latency, 2);
    free_pair(&o, &p);
    return leave_job();
}
