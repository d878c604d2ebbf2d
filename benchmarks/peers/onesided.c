/* The operations on windows of benchmarks/onesided, for another MPI. */
#include "common.h"

enum { WORD = 8 };
typedef enum { PUT, GET, ACC, GET_ACC, FETCH_OP, CAS, NO_CALL } call;
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
    {"fence_latency", "MPI_Win_fence Latency", NO_CALL, FROM_ALL},
};
enum { OPERATIONS = sizeof operations / sizeof *operations };

typedef struct {
    const char *name, *text;
} word;

typedef enum { LOCK, LOCK_EXCLUSIVE, FLUSH, FLUSH_LOCAL, LOCK_ALL, LOCK_ALL_FLUSH, PSCW, FENCE, SYNCS } sync_calls;

static const word syncs[SYNCS] = {
    {"lock", "MPI_Win_lock/unlock"}, {"lock_exclusive", "MPI_Win_lock/unlock (exclusive)"}, {"flush", "MPI_Win_flush"},
    {"flush_local", "MPI_Win_flush_local"}, {"lock_all", "MPI_Win_lock_all/unlock_all"},
    {"lock_all_flush", "MPI_Win_flush (lock_all)"}, {"pscw", "MPI_Win_post/start/complete/wait"},
    {"fence", "MPI_Win_fence"},
};

typedef enum { ALLOCATE, CREATE, SHARED, DYNAMIC, KINDS } window_kind;

static const word kinds[KINDS] = {
    {"allocate", "MPI_Win_allocate"}, {"create", "MPI_Win_create"}, {"shared", "MPI_Win_allocate_shared"},
    {"dynamic", "MPI_Win_create_dynamic"},
};

typedef struct {
    const operation *o;
    window_kind kind;
    sync_calls sync;
    int rank, target, acts, turns, depth, size;
    MPI_Win win;
    MPI_Aint base; /* of the target's part: displacements of a dynamic window are addresses */
    MPI_Group peers;
    char *local, *before, *part;
    int64_t word, next;
} side;

static void operate(side *s)
{
    int n = s->size, target = s->target, words = n / WORD;
    for (int i = 0; i < s->depth; i++) {
        size_t from = (size_t)i * n;
        MPI_Aint at = s->base + (MPI_Aint)from;
        char *local = s->local + from;
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
            MPI_Get_accumulate(local, words, MPI_INT64_T, s->before + from, words, MPI_INT64_T, target, at, words,
                               MPI_INT64_T, MPI_SUM, s->win);
            break;
        case FETCH_OP:
            MPI_Fetch_and_op(local, &s->word, MPI_INT64_T, target, at, MPI_SUM, s->win);
            break;
        case CAS: {
            int64_t *after = (int64_t *)local;
            *after = s->next + 1;
            MPI_Compare_and_swap(after, &s->next, &s->word, MPI_INT64_T, target, at, s->win);
            break;
        }
        case NO_CALL:
            break;
        }
    }
}

static void passive(side *s, long n)
{
    for (long i = 0; i < n; i++) {
        if (s->sync == LOCK || s->sync == LOCK_EXCLUSIVE)
            MPI_Win_lock(s->sync == LOCK ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, s->target, 0, s->win);
        else if (s->sync == LOCK_ALL)
            MPI_Win_lock_all(0, s->win);
        operate(s);
        switch (s->sync) {
        case LOCK:
        case LOCK_EXCLUSIVE: MPI_Win_unlock(s->target, s->win); break;
        case LOCK_ALL: MPI_Win_unlock_all(s->win); break;
        case FLUSH:
        case LOCK_ALL_FLUSH: MPI_Win_flush(s->target, s->win); break;
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
        if (s->o->call == NO_CALL)
            continue;
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
    if (s->o->shape == FROM_ALL && s->sync != FENCE)
        MPI_Barrier(MPI_COMM_WORLD);
}

static const operation *choose(const char *name)
{
    for (int i = 0; i < OPERATIONS; i++)
        if (strcmp(name, operations[i].name) == 0)
            return &operations[i];
    fail("not an operation", name);
    return NULL;
}

/* The place of a name among words, or -1. */
static int find(const word *words, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(name, words[i].name) == 0)
            return i;
    return -1;
}

/* Reads -s. Returns how many values it has. */
static int choose_syncs(const operation *o, const char *list, sync_calls *chosen)
{
    if (list == NULL)
        list = o->call == NO_CALL ? "fence" : o->shape == BOTH_WAYS ? "pscw" : "flush";
    char *text = strdup(list), *rest = text;
    int n = 0;
    for (const char *name; (name = strsep(&rest, ",")) != NULL; n++) {
        int i = find(syncs, SYNCS, name);
        if (i < 0 || n == SYNCS || (o->shape == BOTH_WAYS && i < PSCW) || (o->call == NO_CALL && i != FENCE) ||
            (o->shape == FROM_ALL && o->call != NO_CALL && i >= PSCW))
            fail("the operation has no such -s", name);
        chosen[n] = (sync_calls)i;
    }
    free(text);
    return n;
}

static void *zeroed(const options *o, size_t n)
{
    char *p = buffer(o, n);
    memset(p, 0, n);
    return p;
}

/* Makes a window of n bytes of each rank, and opens the epoch that lasts until close_window. */
static void open_window(const options *o, side *s, sync_calls sync, size_t n)
{
    s->sync = sync;
    s->turns = s->o->shape == LATENCY && sync >= PSCW;
    s->acts = s->rank == 0 || s->turns || s->o->shape == BOTH_WAYS || s->o->shape == FROM_ALL;
    s->base = 0;
    switch (s->kind) {
    case CREATE:
        s->part = zeroed(o, n);
        MPI_Win_create(s->part, n, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &s->win);
        break;
    case SHARED: {
        MPI_Info info;
        MPI_Info_create(&info);
        MPI_Info_set(info, "alloc_shared_noncontig", "true");
        MPI_Win_allocate_shared(n, 1, info, MPI_COMM_WORLD, &s->part, &s->win);
        MPI_Info_free(&info);
        break;
    }
    case DYNAMIC: {
        MPI_Aint own, *all = room_for(all_ranks(), sizeof *all);
        s->part = zeroed(o, n);
        MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &s->win);
        MPI_Win_attach(s->win, s->part, n);
        MPI_Get_address(s->part, &own);
        MPI_Allgather(&own, 1, MPI_AINT, all, 1, MPI_AINT, MPI_COMM_WORLD);
        s->base = all[s->target];
        free(all);
        break;
    }
    default:
        MPI_Win_allocate(n, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &s->part, &s->win);
    }
    memset(s->part, 0, n);
    MPI_Barrier(MPI_COMM_WORLD); /* all parts are zero */
    s->next = 0;
    if (s->acts && (sync == FLUSH || sync == FLUSH_LOCAL))
        MPI_Win_lock(MPI_LOCK_SHARED, s->target, 0, s->win);
    if (s->acts && sync == LOCK_ALL_FLUSH)
        MPI_Win_lock_all(0, s->win);
}

static void close_window(const options *o, side *s)
{
    if (s->acts && (s->sync == FLUSH || s->sync == FLUSH_LOCAL))
        MPI_Win_unlock(s->target, s->win);
    if (s->acts && s->sync == LOCK_ALL_FLUSH)
        MPI_Win_unlock_all(s->win);
    if (s->kind == DYNAMIC) {
        MPI_Barrier(MPI_COMM_WORLD); /* no rank has operations here any more */
        MPI_Win_detach(s->win, s->part);
    }
    MPI_Win_free(&s->win);
    if (s->kind == CREATE || s->kind == DYNAMIC)
        release(o, s->part);
}

/* What rank 0 prints of a round that takes so many nanoseconds. */
static double value(const side *s, double ns)
{
    double sum = 0;
    switch (s->o->shape) {
    case LATENCY:
        return ns / 1e3 / (s->turns ? 2 : 1);
    case FROM_ALL:
        MPI_Reduce(&ns, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
        return s->o->call == NO_CALL ? sum / all_ranks() / 1e3 : all_ranks() * 1e9 / (sum / all_ranks());
    default:
        return (double)s->depth * s->size * (s->o->shape == BOTH_WAYS ? 2 : 1) * 1e3 / ns;
    }
}

static int is_time(const operation *o) { return o->shape == LATENCY || o->call == NO_CALL; }

static void print_head(const side *s, const sync_calls *chosen, int n)
{
    const operation *o = s->o;
    const char *head = is_time(o) ? "Latency (us)" : o->shape == FROM_ALL ? "Operations/s" : "Bandwidth (MB/s)";
    printf("# %s%s Test v7.4 (peer)\n# Window creation: %s\n# Synchronization: ", o->shape == FROM_ALL ? "" : "OSU ",
           o->title, kinds[s->kind].text);
    for (int i = 0; i < n; i++)
        printf("%s%s", i > 0 ? ", " : "", syncs[chosen[i]].text);
    printf("\n");
    if (n > 1)
        printf("# Columns: %s\n", head);
    if (o->call != NO_CALL)
        printf("# Datatype: %s.\n", o->call == PUT || o->call == GET ? "MPI_CHAR" : "MPI_INT64_T");
    printf("# %-8s", o->shape == FROM_ALL ? "Ranks" : "Size");
    for (int i = 0; i < n; i++)
        printf("%20s", n > 1 ? syncs[chosen[i]].name : head);
    printf("\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    options o = latency_options();
    o.operand = "";
    side s = {.rank = join_job(argc, argv, &o)};
    s.o = choose(o.operand);
    sync_calls chosen[SYNCS];
    int columns = choose_syncs(s.o, o.sync, chosen);
    int kind = find(kinds, KINDS, o.window_kind == NULL ? "allocate" : o.window_kind);
    if (kind < 0)
        fail("-w: wanted allocate, create, shared or dynamic, got", o.window_kind);
    s.kind = (window_kind)kind;
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
    if (s.o->call >= FETCH_OP)
        o.min = o.max = WORD;
    if (words && o.min < WORD)
        o.min = WORD;
    if (words && (o.min % WORD != 0 || o.max < o.min))
        fail("-m: the sizes are multiples of 8", o.operand);
    s.depth = windows ? (int)o.window : 1;
    s.target = s.o->shape == FROM_ALL ? 0 : 1 - s.rank;
    size_t most = (size_t)o.max * s.depth;
    s.local = zeroed(&o, most);
    s.before = zeroed(&o, s.o->call == GET_ACC ? most : 0);
    MPI_Group all;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, &s.target, &s.peers);
    if (s.rank == 0)
        print_head(&s, chosen, columns);
    for (long size = o.min; size >= 0; size = next_size(&o, size, 2)) {
        s.size = size;
        if (s.rank == 0)
            printf("%-10ld", s.o->shape == FROM_ALL ? (long)all_ranks() : size);
        for (int i = 0; i < columns; i++) {
            if (columns > 1 || size == o.min)
                open_window(&o, &s, chosen[i], most);
            figure f = measure(&o, size, s.o->shape == FROM_ALL, play, &s);
            double v = value(&s, f.ns);
            if (s.rank == 0)
                printf("%20.*f", is_time(s.o) ? 4 : 2, v);
            if (columns > 1)
                close_window(&o, &s);
        }
        if (s.rank == 0) {
            printf("\n");
            fflush(stdout);
        }
    }
    if (columns == 1)
        close_window(&o, &s);
    MPI_Group_free(&s.peers);
    MPI_Group_free(&all);
    release(&o, s.before);
    release(&o, s.local);
    return leave_job();
}
