/* The sum of benchmarks/kernel, against a copy of as many bytes, for another MPI: MPI_Reduce_local and memcpy. */
#include "common.h"

enum { ELEMENT = 8 };

typedef struct {
    double *a, *b;
    long size;
    int64_t sums, copies;
} vectors;

static void play(void *side, long n)
{
    vectors *v = side;
    for (long i = 0; i < n; i++) {
        int64_t start = now_ns();
        MPI_Reduce_local(v->a, v->b, (int)(v->size / ELEMENT), MPI_DOUBLE, MPI_SUM);
        int64_t middle = now_ns();
        memcpy(v->b, v->a, v->size);
        __asm__ volatile("" : : "r"(v->b) : "memory"); /* the copy is not left out */
        v->sums += middle - start;
        v->copies += now_ns() - middle;
    }
}

int main(int argc, char **argv)
{
    options o = latency_options();
    o.min = o.max = 1 << 20;
    join_job(argc, argv, &o);
    vectors v = {.a = room_for(o.max, 1), .b = room_for(o.max, 1)};
    for (long i = 0; i < o.max / ELEMENT; i++)
        v.a[i] = i, v.b[i] = 1;
    if (my_rank() == 0) {
        printf("# OSU MPI Reduction Kernel Test v7.4 (peer)\n# Datatype: MPI_DOUBLE.\n");
        columns("Size", "Sum/Copy", "Sum(us)", "Copy(us)", NULL);
    }
    for (v.size = o.min; v.size >= 0; v.size = next_size(&o, v.size, 2)) {
        if (v.size == 0 || v.size % ELEMENT != 0)
            fail("-m", "the sizes of vectors are multiples of 8, above 0");
        long n = settle(&o, v.size, play, &v);
        v.sums = v.copies = 0;
        play(&v, n);
        if (my_rank() == 0)
            printf("%-10ld%20.2f%20.2f%20.2f\n", v.size, v.sums > 0 ? (double)v.copies / v.sums : 0, v.sums / 1e3 / n,
                   v.copies / 1e3 / n);
        fflush(stdout);
    }
    free(v.a);
    free(v.b);
    return leave_job();
}
