/* The message rate of benchmarks/mbw_mr, for another MPI. */
#include "common.h"

int main(int argc, char **argv)
{
    options o = bandwidth_options();
    int rank = join_job(argc, argv, &o);
    int pairs = count_pairs(&o), sends = rank < pairs;
    window w = new_window(&o, sends, sends ? rank + pairs : rank - pairs);
    if (rank == 0) {
        title("MPI Multiple Bandwidth / Message Rate Test");
        printf("# [ pairs: %d ] [ window size: %ld ]\n", pairs, o.window);
        columns("Size", "MB/s", "Messages/s", NULL);
    }
    each_size_of_pairs(&o, pairs, windows, &w, &w.size, print_rates, (double)pairs * o.window);
    free_flight(&o, &w.f);
    return leave_job();
}
