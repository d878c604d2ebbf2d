/*
 * The engine of a context: one thread that takes operations from the heads of its streams, and one that runs host
 * functions. An operation reads its source when it runs, not when it is put on the stream.
 */
#include "exec.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static void changed(void)
{
	pthread_cond_broadcast(&lib.changed);
}

static void wait_changed(void)
{
	pthread_cond_wait(&lib.changed, &lib.mu);
}

void submit(struct stream *s, struct op *o)
{
	o->stream = s;
	o->seq = ++lib.seq;
	o->next = NULL;
	if (s->tail)
		s->tail->next = o;
	else
		s->head = o;
	s->tail = o;
	count(C_operations, 1);
	changed();
}

/* Waits until it has ended, and frees it. */
CUresult submit_wait(struct stream *s, struct op *o)
{
	CUresult r;

	o->waited = true;
	submit(s, o);
	while (!o->done)
		wait_changed();
	r = o->result;
	free(o);
	return r;
}

void mark_unref(struct mark *m)
{
	if (m && !--m->refs)
		free(m);
}

/* The head of its stream has ended. */
void complete(struct op *o, CUresult r)
{
	struct stream *s = o->stream;

	s->head = o->next;
	if (!s->head)
		s->tail = NULL;
	s->busy = false;
	if (o->kind == OP_RECORD)
		o->mark->done = true;
	mark_unref(o->mark);
	store_unref(o->dst.store);
	store_unref(o->src.store);
	free(o->staged);
	count(C_operations, -1);
	o->result = r;
	o->done = true;
	if (!o->waited)
		free(o);
	if (s->closing && !s->head)
		stream_drop(s);
	changed();
}

/* Takes a stream from its context's list. */
void stream_drop(struct stream *s)
{
	struct stream **at = &s->ctx->streams;

	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	free(s);
}

/* Waits for what is on the stream now. The stream may be gone afterwards. */
void stream_idle(struct stream *s)
{
	struct ctx *c = s->ctx;
	uint64_t last = lib.seq;

	for (;;) {
		struct stream *t = c->streams;

		while (t && t != s)
			t = t->next;
		if (!t || !t->head || t->head->seq > last)
			return;
		wait_changed();
	}
}

void ctx_idle(struct ctx *c)
{
	uint64_t last = lib.seq;

	for (;;) {
		struct stream *t = c->streams;

		while (t && (!t->head || t->head->seq > last))
			t = t->next;
		if (!t)
			return;
		wait_changed();
	}
}

/* Stream 0 and the streams that are not NON_BLOCKING wait for each other. */
static bool ordered(const struct stream *s)
{
	const struct stream *zero = s->ctx->streams;

	if (s->flags & STREAM_NON_BLOCKING)
		return true;
	if (s != zero)
		return !zero->head || zero->head->seq > s->head->seq;
	for (const struct stream *t = zero->next; t; t = t->next)
		if (!(t->flags & STREAM_NON_BLOCKING) && t->head && t->head->seq < s->head->seq)
			return false;
	return true;
}

/* Whether the head of s may run now; if only time is missing, *soonest is told. */
static bool ready(struct stream *s, uint64_t now, uint64_t *soonest)
{
	struct op *o = s->head;

	if (!o || s->busy || !ordered(s))
		return false;
	if (s->ctx->error)
		return true;
	if (o->kind == OP_WAIT && !o->mark->done)
		return false;
	if (o->kind == OP_HOST && s->ctx->host_op)
		return false;
	if (!o->not_before && lib.knobs.delay)
		o->not_before = now + (lib.knobs.seeded ? next_random(&s->ctx->rng) % (lib.knobs.delay + 1) : lib.knobs.delay);
	if (o->not_before <= now)
		return true;
	if (o->not_before < *soonest)
		*soonest = o->not_before;
	return false;
}

/* The operation that was put first; with a seed, any. */
static struct op *choose(struct ctx *c, uint64_t now, uint64_t *soonest)
{
	struct op *best = NULL;
	unsigned n = 0;

	for (struct stream *s = c->streams; s; s = s->next) {
		if (!ready(s, now, soonest))
			continue;
		n++;
		if (!best || (lib.knobs.seeded ? next_random(&c->rng) % n == 0 : s->head->seq < best->seq))
			best = s->head;
	}
	return best;
}

/* Whether the memory is still the one that it was when the operation was put on the stream. */
static bool stale(const struct side *s)
{
	struct range *r = s->id ? range_at(s->address) : NULL;

	if (!s->id || (r && r->id == s->id))
		return false;
	report("a copy runs on memory at %#llx that was freed or unregistered meanwhile", (unsigned long long)s->address);
	return true;
}

/* Host memory that is not pinned. */
static bool unknown(const struct side *s)
{
	return !s->id && !s->store;
}

/* A failure ends the context, as on the device. */
static void run(struct op *o)
{
	struct ctx *c = o->stream->ctx;
	bool moves = o->kind == OP_COPY || o->kind == OP_SET;
	CUresult r = c->error;

	if (r || (moves && (r = fail_now("copy", CUDA_ERROR_ILLEGAL_ADDRESS)))) {
		c->error = r;
		complete(o, r);
		return;
	}
	if (o->kind == OP_FREE) {
		struct range *m = range_at(o->dst.address);

		if (m && m->id == o->dst.id)
			release(m);
	}
	if (moves && (stale(&o->dst) || stale(&o->src)))
		r = CUDA_ERROR_ILLEGAL_ADDRESS;
	o->stream->busy = true;
	if (moves && !r) {
		pthread_mutex_unlock(&lib.mu);
		r = op_run(o);
		pthread_mutex_lock(&lib.mu);
		count(C_copies, 1);
		count(C_copied_bytes, (int64_t)o->n);
		if (!r && (stale(&o->dst) || stale(&o->src)))
			r = CUDA_ERROR_ILLEGAL_ADDRESS;
		else if (r && o->waited && (unknown(&o->src) || unknown(&o->dst)))
			r = CUDA_ERROR_INVALID_VALUE; /* the caller's own memory, and the caller hears of it */
	}
	if (r == CUDA_ERROR_ILLEGAL_ADDRESS)
		c->error = r;
	complete(o, r);
}

static void *engine(void *arg)
{
	struct ctx *c = arg;

	pthread_mutex_lock(&lib.mu);
	while (!c->stopping) {
		uint64_t soonest = UINT64_MAX;
		struct op *o = choose(c, now_ns(), &soonest);
		struct timespec t;

		if (o && o->kind == OP_HOST && !c->error) {
			o->stream->busy = true;
			c->host_op = o;
			changed();
		} else if (o) {
			run(o);
		} else if (soonest != UINT64_MAX) {
			t = (struct timespec){ (time_t)(soonest / 1000000000u), (long)(soonest % 1000000000u) };
			pthread_cond_timedwait(&lib.changed, &lib.mu, &t);
		} else {
			wait_changed();
		}
	}
	pthread_mutex_unlock(&lib.mu);
	return NULL;
}

/* Host functions run one at a time, and may not call the driver. Copies of other streams go on meanwhile. */
static void *host_functions(void *arg)
{
	struct ctx *c = arg;

	pthread_mutex_lock(&lib.mu);
	while (!c->stopping) {
		struct op *o = c->host_op;

		if (!o) {
			wait_changed();
			continue;
		}
		pthread_mutex_unlock(&lib.mu);
		in_host_function = true;
		o->fn(o->arg);
		in_host_function = false;
		pthread_mutex_lock(&lib.mu);
		c->host_op = NULL;
		count(C_host_functions, 1);
		complete(o, CUDA_SUCCESS);
	}
	pthread_mutex_unlock(&lib.mu);
	return NULL;
}

bool engine_start(struct ctx *c)
{
	c->stopping = false;
	c->scratch = fd_high(memfd_create("softcuda:scratch", MFD_CLOEXEC));
	if (c->scratch < 0)
		return false;
	if (!thread_start(&c->engine, "softcuda-engine", engine, c)) {
		close(c->scratch);
		return false;
	}
	if (thread_start(&c->host, "cuda-EvtHandlr", host_functions, c))
		return true;
	c->stopping = true;
	changed();
	pthread_mutex_unlock(&lib.mu);
	pthread_join(c->engine, NULL);
	pthread_mutex_lock(&lib.mu);
	close(c->scratch);
	return false;
}

/* What is on streams is done first. */
void engine_stop(struct ctx *c)
{
	ctx_idle(c);
	c->stopping = true;
	changed();
	pthread_mutex_unlock(&lib.mu);
	pthread_join(c->engine, NULL);
	pthread_join(c->host, NULL);
	pthread_mutex_lock(&lib.mu);
	close(c->scratch);
}
