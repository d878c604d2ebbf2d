/* The operations on windows of benchmarks/onesided, for another MPI. */
#include "common.h"

enum { WORD = 8 };
typedef enum { PUT, GET, ACC, GET_ACC, FETCH_OP, CAS } call;
typedef enum { LATENCY, ONE_WAY, BOTH_WAYS, FROM_ALL } shape;

typedef struct {
    const char *name, *title;
    call call;
    shape shape;
} operation;

static const operation operations[] = {
    {"put_latency", "MPI_Put Latency", PUT, LATENCY},
    {"get_latency", "MPI_Get latency", GET, LATENCY},
    {"put_bw", "MPI_Put Bandwidth", PUT, ONE_WAY},
    {"get_bw", "MPI_Get Bandwidth", GET, ONE_WAY},
    {"put_bibw", "MPI_Put Bi-directional Bandwidth", PUT, BOTH_WAYS},
    {"acc_latency", "MPI_Accumulate latency", ACC, LATENCY},
    {"get_acc_latency", "MPI_Get_accumulate latency", GET_ACC, LATENCY},
    {"fop_latency", "MPI_Fetch_and_op latency", FETCH_OP, LATENCY},
    {"cas_latency", "MPI_Compare_and_swap latency", CAS, LATENCY},
    {"fop_rate", "MPI_Fetch_and_op Rate", FETCH_OP, FROM_ALL},
};
enum { OPERATIONS = sizeof operations / sizeof *operations };

typedef enum { LOCK, FLUSH, FLUSH_LOCAL, LOCK_ALL, PSCW, FENCE } sync_calls;

static const struct { const char *name, *text; } syncs[] = {
    {"lock", "MPI_Win_lock/unlock"}, {"flush", "MPI_Win_flush"}, {"flush_local", "MPI_Win_flush_local"},
    {"lock_all", "MPI_Win_lock_all/unlock_all"}, {"pscw", "MPI_Win_post/start/complete/wait"},
    {"fence", "MPI_Win_fence"},
};
enum { SYNCS = sizeof syncs / sizeof *syncs };

typedef struct {
    const operation *o;
    sync_calls sync;
    int rank, target, acts, turns, depth, size;
    MPI_Win win;
    MPI_Group peers;
    char *local, *before, *part;
    int64_t word, next;
} side;

static void operate(side *s)
{
    int n = s->size, target = s->target, words = n / WORD;
    for (int i = 0; i < s->depth; i++) {
        MPI_Aint at = (MPI_Aint)i * n;
        char *local = s->local + at;
        switch (s->o->call) {
        case PUT:
            MPI_Put(local, n, MPI_CHAR, target, at, n, MPI_CHAR, s->win);
            break;
        case GET:
            MPI_Get(local, n, MPI_CHAR, target, at, n, MPI_CHAR, s->win);
            break;
        case ACC:
            MPI_Accumulate(local, words, MPI_INT64_T, target, at, words, MPI_INT64_T, MPI_SUM, s->win);
            break;
        case GET_ACC:
            MPI_Get_accumulate(local, words, MPI_INT64_T, s->before + at, words, MPI_INT64_T, target, at, words,
                               MPI_INT64_T, MPI_SUM, s->win);
            break;
        case FETCH_OP:
            MPI_Fetch_and_op(local, &s->word, MPI_INT64_T, target, 0, MPI_SUM, s->win);
            break;
        case CAS: {
            int64_t *after = (int64_t *)local;
            *after = s->next + 1;
            MPI_Compare_and_swap(after, &s->next, &s->word, MPI_INT64_T, target, 0, s->win);
            break;
        }
        }
    }
}

static void passive(side *s, long n)
{
    for (long i = 0; i < n; i++) {
        if (s->sync == LOCK)
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, s->target, 0, s->win);
        else if (s->sync == LOCK_ALL)
            MPI_Win_lock_all(0, s->win);
        operate(s);
        switch (s->sync) {
        case LOCK: MPI_Win_unlock(s->target, s->win); break;
        case LOCK_ALL: MPI_Win_unlock_all(s->win); break;
        case FLUSH: MPI_Win_flush(s->target, s->win); break;
        default: MPI_Win_flush_local(s->target, s->win);
        }
        s->next++; /* after the call that ends the operation, which reads it */
    }
}

static void access_epoch(side *s)
{
    MPI_Win_start(s->peers, 0, s->win);
    operate(s);
    MPI_Win_complete(s->win);
    s->next++;
}

static void expose(side *s)
{
    MPI_Win_post(s->peers, 0, s->win);
    MPI_Win_wait(s->win);
}

static void pscw(side *s, long n)
{
    for (long i = 0; i < n; i++) {
        if (s->o->shape == BOTH_WAYS) {
            MPI_Win_post(s->peers, 0, s->win);
            access_epoch(s);
            MPI_Win_wait(s->win);
        } else if (s->rank == 0) {
            access_epoch(s);
            if (s->turns)
                expose(s);
        } else {
            expose(s);
            if (s->turns)
                access_epoch(s);
        }
    }
}

static void fence(side *s, long n)
{
    for (long i = 0; i < n; i++) {
        MPI_Win_fence(0, s->win);
        if (s->rank == 0 || s->o->shape == BOTH_WAYS)
            operate(s);
        MPI_Win_fence(0, s->win);
        if (s->turns) {
            if (s->rank != 0)
                operate(s);
            MPI_Win_fence(0, s->win);
        }
        s->next++;
    }
}

static void play(void *arg, long n)
{
    side *s = arg;
    if (s->sync == PSCW)
        pscw(s, n);
    else if (s->sync == FENCE)
        fence(s, n);
    else if (s->acts)
        passive(s, n);
}

static const operation *choose(const char *word)
{
    for (int i = 0; i < OPERATIONS; i++)
        if (strcmp(word, operations[i].name) == 0)
            return &operations[i];
    fail("not an operation", word);
    return NULL;
}

static sync_calls choose_sync(const operation *o, const char *word)
{
    if (word == NULL)
        return o->shape == BOTH_WAYS ? PSCW : FLUSH;
    for (int i = 0; i < SYNCS; i++)
        if (strcmp(word, syncs[i].name) == 0 && (o->shape != BOTH_WAYS || i >= PSCW) &&
            (o->shape != FROM_ALL || i < PSCW))
            return (sync_calls)i;
    fail("the operation has no such -s", word);
    return FLUSH;
}

static void *zeroed(const options *o, size_t n)
{
    char *p = buffer(o, n);
    memset(p, 0, n);
    return p;
}

int main(int argc, char **argv)
{
    options o = latency_options();
    o.operand = "";
    side s = {.rank = join_job(argc, argv, &o)};
    s.o = choose(o.operand);
    s.sync = choose_sync(s.o, o.sync);
    if (s.o->shape == FROM_ALL)
        need_two("onesided");
    else
        need_ranks(2);
    int words = s.o->call != PUT && s.o->call != GET, windows = s.o->shape == ONE_WAY || s.o->shape == BOTH_WAYS;
    options plain = latency_options(), few = bandwidth_options();
    if (windows && o.small_iters == plain.small_iters && o.large_iters == plain.large_iters)
        o.small_iters = few.small_iters, o.large_iters = few.large_iters;
    if (windows && o.small_warmup == plain.small_warmup && o.large_warmup == plain.large_warmup)
        o.small_warmup = few.small_warmup, o.large_warmup = few.large_warmup;
    if (s.o->call == FETCH_OP || s.o->call == CAS)
        o.min = o.max = WORD;
    if (words && o.min < WORD)
        o.min = WORD;
    if (words && (o.min % WORD != 0 || o.max < o.min))
        fail("-m: the sizes are multiples of 8", o.operand);
    s.depth = windows ? (int)o.window : 1;
    s.target = s.o->shape == FROM_ALL ? 0 : 1 - s.rank;
    s.turns = s.o->shape == LATENCY && s.sync >= PSCW;
    s.acts = s.rank == 0 || s.turns || s.o->shape == BOTH_WAYS || s.o->shape == FROM_ALL;
    size_t most = (size_t)o.max * s.depth;
    s.local = zeroed(&o, most);
    s.before = s.o->call == GET_ACC ? zeroed(&o, most) : NULL;
    if (o.win_create) {
        s.part = zeroed(&o, most);
        MPI_Win_create(s.part, most, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &s.win);
    } else {
        MPI_Win_allocate(most, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &s.part, &s.win);
        memset(s.part, 0, most);
    }
    MPI_Group all;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, &s.target, &s.peers);
    MPI_Barrier(MPI_COMM_WORLD); /* all parts are zero */
    int held = s.acts && (s.sync == FLUSH || s.sync == FLUSH_LOCAL);
    if (held)
        MPI_Win_lock(MPI_LOCK_SHARED, s.target, 0, s.win);
    const char *value = s.o->shape == FROM_ALL ? "Operations/s" : windows ? "Bandwidth (MB/s)" : "Latency (us)";
    if (s.rank == 0) {
        printf("# OSU %s Test v7.4 (peer)\n# Window creation: %s\n# Synchronization: %s\n# Datatype: %s.\n", s.o->title,
               o.win_create ? "MPI_Win_create" : "MPI_Win_allocate", syncs[s.sync].text,
               words ? "MPI_INT64_T" : "MPI_CHAR");
        printf("# %-8s%20s\n", s.o->shape == FROM_ALL ? "Ranks" : "Size", value);
        fflush(stdout);
    }
    for (long size = o.min; size >= 0; size = next_size(&o, size, 2)) {
        s.size = size;
        figure f = measure(&o, size, s.o->shape == FROM_ALL, play, &s);
        double ns = f.ns, sum = 0;
        if (s.o->shape == FROM_ALL) {
            MPI_Reduce(&ns, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
            if (s.rank == 0)
                print_value(all_ranks(), all_ranks() * 1e9 / (sum / all_ranks()));
        } else if (s.rank == 0 && windows) {
            print_bandwidth(size, (double)s.depth * (s.o->shape == BOTH_WAYS ? 2 : 1), ns);
        } else if (s.rank == 0) {
            print_latency(size, s.turns ? 2 : 1, ns);
        }
    }
    if (held)
        MPI_Win_unlock(s.target, s.win);
    MPI_Win_free(&s.win);
    MPI_Group_free(&s.peers);
    MPI_Group_free(&all);
    if (o.win_create)
        release(&o, s.part);
    if (s.before != NULL)
        release(&o, s.before);
    release(&o, s.local);
    return leave_job();
}
