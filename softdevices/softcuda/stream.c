/* Streams, events and host functions. */
#include "exec.h"

#include <stdlib.h>

/* The stream of a handle; stream 0 is that of the current context, others need none. */
CUresult stream_find(CUstream handle, struct stream **out)
{
	struct ctx *c;
	CUresult r;

	if ((uintptr_t)handle <= STREAM_PER_THREAD) {
		if ((r = current(&c)))
			return r;
		*out = c->streams;
		return CUDA_SUCCESS;
	}
	for (c = lib.contexts; c; c = c->next)
		for (struct stream *s = c->active ? c->streams : NULL; s; s = s->next)
			if (s == handle && !s->closing) {
				*out = s;
				return c->error;
			}
	return CUDA_ERROR_INVALID_HANDLE;
}

static CUresult create(struct stream **out, unsigned flags)
{
	struct stream *s;
	struct ctx *c;
	CUresult r = current(&c);

	if (r)
		return r;
	if (!out || flags & ~(unsigned)STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	if (!(s = calloc(1, sizeof(*s))))
		return CUDA_ERROR_OUT_OF_MEMORY;
	s->ctx = c;
	s->flags = flags;
	s->next = c->streams->next;
	c->streams->next = s;
	count(C_streams, 1);
	*out = s;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamCreate(CUstream *out, unsigned flags)
{
	BEGIN(cuStreamCreate);
	return end(create(out, flags));
}

EXPORT CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority)
{
	(void)priority;
	BEGIN(cuStreamCreateWithPriority);
	return end(create(out, flags));
}

/* What is on the stream is done all the same. */
EXPORT CUresult cuStreamDestroy_v2(CUstream handle)
{
	struct stream *s;
	CUresult r;

	BEGIN(cuStreamDestroy);
	if ((uintptr_t)handle <= STREAM_PER_THREAD)
		return end(CUDA_ERROR_INVALID_HANDLE);
	if ((r = stream_find(handle, &s)) == CUDA_ERROR_INVALID_HANDLE)
		return end(r);
	count(C_streams, -1);
	s->closing = true;
	if (!s->head)
		stream_drop(s);
	return end(r);
}

EXPORT CUresult cuStreamQuery(CUstream handle)
{
	struct stream *s;
	CUresult r;

	BEGIN(cuStreamQuery);
	r = stream_find(handle, &s);
	return end(r ? r : s->head ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
}

EXPORT CUresult cuStreamSynchronize(CUstream handle)
{
	struct stream *s;
	struct ctx *c;
	CUresult r;

	BEGIN(cuStreamSynchronize);
	if ((r = stream_find(handle, &s)))
		return end(r);
	c = s->ctx;
	stream_idle(s);
	return end(c->error);
}

EXPORT CUresult cuStreamGetCtx(CUstream handle, CUcontext *out)
{
	struct stream *s;
	CUresult r;

	BEGIN(cuStreamGetCtx);
	r = stream_find(handle, &s);
	if (!r && !out)
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r)
		*out = s->ctx;
	return end(r);
}

EXPORT CUresult cuStreamGetFlags(CUstream handle, unsigned *out)
{
	struct stream *s;
	CUresult r;

	BEGIN(cuStreamGetFlags);
	r = stream_find(handle, &s);
	if (!r && !out)
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r)
		*out = s->flags;
	return end(r);
}

static struct op *op_new(enum op_kind kind)
{
	struct op *o = calloc(1, sizeof(*o));

	if (o)
		o->kind = kind;
	return o;
}

EXPORT CUresult cuLaunchHostFunc(CUstream handle, CUhostFn fn, void *arg)
{
	struct stream *s;
	struct op *o;
	CUresult r;

	BEGIN(cuLaunchHostFunc);
	if ((r = stream_find(handle, &s)))
		return end(r);
	if (!fn)
		return end(CUDA_ERROR_INVALID_VALUE);
	if (!(o = op_new(OP_HOST)))
		return end(CUDA_ERROR_OUT_OF_MEMORY);
	o->fn = fn;
	o->arg = arg;
	submit(s, o);
	return end(CUDA_SUCCESS);
}

static struct event *event_find(CUevent handle)
{
	for (struct ctx *c = lib.contexts; c; c = c->next)
		for (struct event *e = c->active ? c->events : NULL; e; e = e->next)
			if (e == handle)
				return e;
	return NULL;
}

/* Flags: 1 BLOCKING_SYNC, 2 DISABLE_TIMING, 4 INTERPROCESS, which is not here. */
static CUresult event_create(struct event **out, unsigned flags)
{
	struct event *e;
	struct ctx *c;
	CUresult r = current(&c);

	if (r)
		return r;
	if (!out || flags & ~7u)
		return CUDA_ERROR_INVALID_VALUE;
	if (flags & 4)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!(e = calloc(1, sizeof(*e))))
		return CUDA_ERROR_OUT_OF_MEMORY;
	e->ctx = c;
	e->flags = flags;
	e->next = c->events;
	c->events = e;
	count(C_events, 1);
	*out = e;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuEventCreate(CUevent *out, unsigned flags)
{
	BEGIN(cuEventCreate);
	return end(event_create(out, flags));
}

EXPORT CUresult cuEventDestroy_v2(CUevent handle)
{
	struct event *e, **at;

	BEGIN(cuEventDestroy);
	if (!(e = event_find(handle)))
		return end(CUDA_ERROR_INVALID_HANDLE);
	for (at = &e->ctx->events; *at != e; at = &(*at)->next)
		;
	*at = e->next;
	mark_unref(e->mark);
	free(e);
	count(C_events, -1);
	return end(CUDA_SUCCESS);
}

static CUresult record(CUevent event, CUstream handle)
{
	struct event *e = event_find(event);
	struct stream *s;
	struct mark *m;
	struct op *o;
	CUresult r;

	if (!e)
		return CUDA_ERROR_INVALID_HANDLE;
	if ((r = stream_find(handle, &s)))
		return r;
	if (s->ctx != e->ctx)
		return CUDA_ERROR_INVALID_HANDLE;
	o = op_new(OP_RECORD);
	m = calloc(1, sizeof(*m));
	if (!o || !m) {
		free(o);
		free(m);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	m->refs = 2;
	mark_unref(e->mark);
	e->mark = o->mark = m;
	submit(s, o);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream stream)
{
	BEGIN(cuEventRecord);
	return end(record(event, stream));
}

/* An event that was never recorded is complete. */
EXPORT CUresult cuEventQuery(CUevent event)
{
	struct event *e;

	BEGIN(cuEventQuery);
	if (!(e = event_find(event)))
		return end(CUDA_ERROR_INVALID_HANDLE);
	if (e->ctx->error)
		return end(e->ctx->error);
	return end(e->mark && !e->mark->done ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
}

EXPORT CUresult cuEventSynchronize(CUevent event)
{
	struct event *e;
	struct mark *m;
	struct ctx *c;

	BEGIN(cuEventSynchronize);
	if (!(e = event_find(event)))
		return end(CUDA_ERROR_INVALID_HANDLE);
	c = e->ctx;
	if ((m = e->mark)) {
		m->refs++;
		while (!m->done)
			pthread_cond_wait(&lib.changed, &lib.mu);
		mark_unref(m);
	}
	return end(c->error);
}

static CUresult wait_event(CUstream handle, CUevent event, unsigned flags)
{
	struct event *e = event_find(event);
	struct stream *s;
	struct op *o;
	CUresult r;

	if (!e)
		return CUDA_ERROR_INVALID_HANDLE;
	if ((r = stream_find(handle, &s)))
		return r;
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (!e->mark || e->mark->done)
		return CUDA_SUCCESS;
	if (!(o = op_new(OP_WAIT)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	o->mark = e->mark;
	o->mark->refs++;
	submit(s, o);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
	BEGIN(cuStreamWaitEvent);
	return end(wait_event(stream, event, flags));
}
