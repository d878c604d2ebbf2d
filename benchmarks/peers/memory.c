/* The limit for windows of one host: loads, stores and atomic instructions on memory that processes share, without any
 * MPI and without checks. It has the operations of onesided.c with the calls below. It starts its processes itself, each
 * on a core of its own if there are enough.
 *
 *     ./memory RANKS OPERATION [-s lock_all_flush|lock_exclusive|fence] [-m MIN:MAX] [-i N] [-x N] [-W N] [--time S]
 *
 * lock_all_flush: a fence of the processor after the operations. lock_exclusive: a lock by tickets around them. fence:
 * all processes wait for each other after them. */
#define _GNU_SOURCE
#include "options.h"
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { LINE = 64, MOST_RANKS = 1024, WORD = 8 };

static inline void abort_all(void) {}

/* A word with a cache line of its own. */
typedef struct {
    _Alignas(LINE) atomic_long word;
} line;

/* What all processes map. */
typedef struct {
    line said, heard;          /* of agree */
    line arrived;              /* of meet */
    line next, serving;        /* of the lock */
    long number;               /* of agree */
    double ns[MOST_RANKS];     /* what each process has measured */
    _Alignas(4096) char part[]; /* of process 1, or of process 0 where all have operations */
} shared;

static shared *memory;
static int rank, ranks, crowded;

static inline void relax(void)
{
    if (crowded)
        sched_yield();
}

static void await(line *l, long least)
{
    while (atomic_load_explicit(&l->word, memory_order_acquire) < least)
        relax();
}

static inline long agree(long n)
{
    static long times;
    times++;
    if (rank == 0) {
        memory->number = n;
        atomic_store_explicit(&memory->said.word, times, memory_order_release);
        await(&memory->heard, times * (ranks - 1));
        return n;
    }
    await(&memory->said, times);
    n = memory->number;
    atomic_fetch_add(&memory->heard.word, 1);
    return n;
}

/* Waits until all processes have come. */
static void meet(void)
{
    static long times;
    times++;
    atomic_fetch_add(&memory->arrived.word, 1);
    await(&memory->arrived, times * ranks);
}

typedef enum { PUT, GET, ACC, GET_ACC, FETCH_OP, CAS, NO_CALL } call;

static const struct {
    const char *name;
    call call;
    int windows, all; /* 64 operations between two calls; all processes take part */
} operations[] = {
    {"put_latency", PUT, 0, 0}, {"get_latency", GET, 0, 0}, {"put_bw", PUT, 1, 0}, {"get_bw", GET, 1, 0},
    {"acc_latency", ACC, 0, 0}, {"get_acc_latency", GET_ACC, 0, 0}, {"fop_latency", FETCH_OP, 0, 0},
    {"cas_latency", CAS, 0, 0}, {"fop_rate", FETCH_OP, 0, 1}, {"fence_latency", NO_CALL, 0, 1},
};

typedef enum { FLUSH, LOCK, FENCE } sync_calls;

typedef struct {
    call call;
    sync_calls sync;
    int all, depth, size;
    char *local, *before;
    long word;
} side;

static void operate(side *s)
{
    for (int i = 0; i < s->depth; i++) {
        size_t at = (size_t)i * s->size;
        char *local = s->local + at, *part = memory->part + at;
        atomic_long *word = (atomic_long *)part;
        switch (s->call) {
        case PUT:
            if (s->size == WORD)
                atomic_store_explicit(word, *(long *)local, memory_order_relaxed);
            else
                memcpy(part, local, s->size);
            break;
        case GET:
            if (s->size == WORD)
                *(volatile long *)local = atomic_load_explicit(word, memory_order_relaxed);
            else
                memcpy(local, part, s->size);
            break;
        case ACC:
        case GET_ACC:
            for (int j = 0; j < s->size / WORD; j++) {
                long before = atomic_fetch_add(&word[j], ((long *)local)[j]);
                if (s->call == GET_ACC)
                    ((volatile long *)(s->before + at))[j] = before;
            }
            break;
        case FETCH_OP:
            s->word = atomic_fetch_add(word, *(long *)local);
            break;
        case CAS: {
            long expected = s->word;
            if (atomic_compare_exchange_strong(word, &expected, s->word + 1))
                s->word++;
            break;
        }
        case NO_CALL:
            break;
        }
    }
}

static void play(void *arg, long n)
{
    side *s = arg;
    if (rank != 0 && !s->all && s->sync != FENCE)
        return;
    for (long i = 0; i < n; i++) {
        if (s->sync == LOCK)
            await(&memory->serving, atomic_fetch_add(&memory->next.word, 1));
        if (rank == 0 || s->all)
            operate(s);
        if (s->sync == LOCK)
            atomic_fetch_add_explicit(&memory->serving.word, 1, memory_order_release);
        else if (s->sync == FENCE)
            meet();
        else
            atomic_thread_fence(memory_order_seq_cst);
    }
    if (s->all && s->sync != FENCE)
        meet();
}

/* The processor of this process: one of those that it may use. */
static void pin(void)
{
    cpu_set_t may, one;
    if (sched_getaffinity(0, sizeof may, &may) != 0 || (crowded = CPU_COUNT(&may) < ranks))
        return;
    for (int cpu = 0, at = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &may) && at++ == rank) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof one, &one);
        }
}

static void start_all(size_t most)
{
    memory = mmap(NULL, sizeof *memory + most, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        fail("mmap", strerror(errno));
    pid_t first = getpid();
    for (int i = 1; i < ranks; i++) {
        pid_t child = fork();
        if (child < 0)
            fail("fork", strerror(errno));
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != first)
                _exit(1);
            rank = i;
            break;
        }
    }
    pin();
    if (rank == ranks - 1)
        memset(memory->part, 0, most); /* the target touches it first */
}

static double mean_ns(options *o, side *s, long size)
{
    meet();
    long n = settle(o, size, play, s);
    meet();
    int64_t start = now_ns();
    play(s, n);
    memory->ns[rank] = (double)(now_ns() - start) / n;
    meet();
    double sum = 0;
    int of = s->all ? ranks : 1;
    for (int i = 0; i < of; i++)
        sum += memory->ns[i];
    return sum / of;
}

static sync_calls choose_sync(call c, const char *name)
{
    if (name == NULL)
        return c == NO_CALL ? FENCE : FLUSH;
    if (strcmp(name, "lock_all_flush") == 0 && c != NO_CALL)
        return FLUSH;
    if (strcmp(name, "lock_exclusive") == 0 && c != NO_CALL)
        return LOCK;
    if (strcmp(name, "fence") != 0)
        fail("wanted lock_all_flush, lock_exclusive or fence, got", name);
    return FENCE;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        fail(argv[0], "wanted RANKS OPERATION [options]");
    ranks = number(argv[1], 2);
    if (ranks > MOST_RANKS)
        fail("not a number in range", argv[1]);
    options o = latency_options();
    o.operand = "";
    argv[1] = argv[0];
    parse(argc - 1, argv + 1, &o);
    int at = 0, known = sizeof operations / sizeof *operations;
    while (at < known && strcmp(operations[at].name, o.operand) != 0)
        at++;
    if (at == known)
        fail("not an operation", o.operand);
    side s = {.call = operations[at].call, .all = operations[at].all};
    s.sync = choose_sync(s.call, o.sync);
    s.depth = operations[at].windows ? (int)o.window : 1;
    int words = s.call != PUT && s.call != GET;
    if (words && o.min < WORD)
        o.min = WORD;
    if (s.call >= FETCH_OP)
        o.min = o.max = WORD;
    if (words && o.min % WORD != 0)
        fail("-m: the sizes are multiples of 8", o.operand);
    size_t most = (size_t)o.max * s.depth;
    s.local = touched(most + WORD);
    s.before = touched(most + WORD);
    start_all(most + WORD);
    if (rank == 0) {
        title("Memory Test");
        columns(s.all ? "Ranks" : "Size", s.all && s.call != NO_CALL ? "Operations/s" :
                s.depth > 1 ? "Bandwidth (MB/s)" : "Latency (us)", NULL);
    }
    for (long size = o.min; size >= 0; size = next_size(&o, size, 2)) {
        s.size = size;
        double ns = mean_ns(&o, &s, size);
        if (rank != 0)
            continue;
        if (s.all && s.call != NO_CALL)
            print_value(ranks, ranks * 1e9 / ns);
        else if (s.depth > 1)
            print_value(size, (double)s.depth * size * 1e3 / ns);
        else
            printf("%-10ld%20.4f\n", s.all ? (long)ranks : size, ns / 1e3);
        fflush(stdout);
    }
    if (rank != 0)
        _exit(0);
    for (int i = 1, status; i < ranks; i++)
        if (wait(&status) < 0 || status != 0)
            fail("a process", "has failed");
    return 0;
}
