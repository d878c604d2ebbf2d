/* Contexts, and each thread's stack of them. */
#include "exec.h"

#include <stdlib.h>

enum { DEPTH = 64 };

/* A primary context comes back under the same handle: generation tells it from what it was. */
static _Thread_local struct entry {
	struct ctx *ctx;
	uint64_t generation;
} stack[DEPTH];

static _Thread_local int depth;

struct ctx *ctx_find(CUcontext c)
{
	struct ctx *at = lib.contexts;

	while (at && at != c)
		at = at->next;
	return at && at->active ? at : NULL;
}

/* The context of the calling thread, if calls may use it. */
CUresult current(struct ctx **out)
{
	struct entry *e = depth ? &stack[depth - 1] : NULL;

	if (!e || !e->ctx)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!e->ctx->active || e->ctx->generation != e->generation)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*out = e->ctx;
	return e->ctx->error;
}

static struct entry entry_of(struct ctx *c)
{
	return (struct entry){ c, c ? c->generation : 0 };
}

/* A context begins: its threads, and stream 0. */
CUresult ctx_start(struct ctx *c)
{
	struct stream *zero = calloc(1, sizeof(*zero));

	if (!zero)
		return CUDA_ERROR_OUT_OF_MEMORY;
	zero->ctx = c;
	c->streams = zero;
	c->error = CUDA_SUCCESS;
	c->rng = next_random(&lib.rng);
	c->generation++;
	if (!engine_start(c)) {
		free(zero);
		c->streams = NULL;
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	c->active = true;
	count(C_contexts, 1);
	return CUDA_SUCCESS;
}

/* What was made in it and not given back goes with it. */
static void ctx_stop(struct ctx *c)
{
	struct event *e;

	c->active = false;
	engine_stop(c);
	release_of(c);
	while (c->streams->next) {
		count(C_streams, -1);
		count(C_lost, 1);
		stream_drop(c->streams->next);
	}
	stream_drop(c->streams);
	while ((e = c->events)) {
		c->events = e->next;
		mark_unref(e->mark);
		free(e);
		count(C_events, -1);
		count(C_lost, 1);
	}
	count(C_contexts, -1);
}

static struct ctx *ctx_new(int device)
{
	struct ctx *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->device = device;
	c->next = lib.contexts;
	lib.contexts = c; /* for ever, so that an old handle is known for what it is */
	return c;
}

static struct ctx *primary(int device)
{
	struct ctx *c = lib.contexts;

	while (c && !(c->primary && c->device == device))
		c = c->next;
	return c;
}

static CUresult retain(struct ctx **out, CUdevice d)
{
	struct ctx *c;
	CUresult r;

	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_ok(d))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!(c = primary(d)) && !(c = ctx_new(d)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	c->primary = true;
	if (!c->retained && (r = ctx_start(c)))
		return r;
	c->retained++;
	*out = c;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice d)
{
	BEGIN(cuDevicePrimaryCtxRetain);
	return end(retain(out, d));
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice d)
{
	struct ctx *c;

	BEGIN(cuDevicePrimaryCtxRelease);
	if (!device_ok(d))
		return end(CUDA_ERROR_INVALID_DEVICE);
	c = primary(d);
	if (!c || !c->retained)
		return end(CUDA_ERROR_INVALID_CONTEXT);
	if (!--c->retained)
		ctx_stop(c);
	return end(CUDA_SUCCESS);
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice d, unsigned *flags, int *active)
{
	struct ctx *c;

	BEGIN(cuDevicePrimaryCtxGetState);
	if (!device_ok(d))
		return end(CUDA_ERROR_INVALID_DEVICE);
	if (!flags || !active)
		return end(CUDA_ERROR_INVALID_VALUE);
	c = primary(d);
	*flags = c ? c->flags : 0;
	*active = c && c->active;
	return end(CUDA_SUCCESS);
}

EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice d, unsigned flags)
{
	struct ctx *c;

	BEGIN(cuDevicePrimaryCtxSetFlags);
	if (!device_ok(d))
		return end(CUDA_ERROR_INVALID_DEVICE);
	if (!(c = primary(d)) && !(c = ctx_new(d)))
		return end(CUDA_ERROR_OUT_OF_MEMORY);
	c->primary = true;
	c->flags = flags;
	return end(CUDA_SUCCESS);
}

static CUresult push(struct ctx *c)
{
	if (depth == DEPTH)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stack[depth++] = entry_of(c);
	return CUDA_SUCCESS;
}

static CUresult create(struct ctx **out, unsigned flags, CUdevice d)
{
	struct ctx *c;
	CUresult r;

	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_ok(d))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!(c = ctx_new(d)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	c->flags = flags;
	if ((r = ctx_start(c)) || (r = push(c)))
		return r;
	*out = c;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxCreate_v2(CUcontext *out, unsigned flags, CUdevice d)
{
	BEGIN(cuCtxCreate);
	return end(create(out, flags, d));
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext handle)
{
	struct ctx *c;

	BEGIN(cuCtxDestroy);
	c = ctx_find(handle);
	if (!c || c->primary)
		return end(CUDA_ERROR_INVALID_CONTEXT);
	if (depth && stack[depth - 1].ctx == c)
		depth--;
	ctx_stop(c);
	return end(CUDA_SUCCESS);
}

EXPORT CUresult cuCtxPushCurrent_v2(CUcontext handle)
{
	struct ctx *c;

	BEGIN(cuCtxPushCurrent);
	c = ctx_find(handle);
	return end(c ? push(c) : CUDA_ERROR_INVALID_CONTEXT);
}

EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *out)
{
	BEGIN(cuCtxPopCurrent);
	if (!depth)
		return end(CUDA_ERROR_INVALID_CONTEXT);
	depth--;
	if (out)
		*out = stack[depth].ctx;
	return end(CUDA_SUCCESS);
}

/* Takes the place of the top of the stack; NULL takes the top away. */
EXPORT CUresult cuCtxSetCurrent(CUcontext handle)
{
	struct ctx *c = NULL;

	BEGIN(cuCtxSetCurrent);
	if (handle && !(c = ctx_find(handle)))
		return end(CUDA_ERROR_INVALID_CONTEXT);
	if (depth)
		depth--;
	return end(c ? push(c) : CUDA_SUCCESS);
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *out)
{
	BEGIN(cuCtxGetCurrent);
	if (!out)
		return end(CUDA_ERROR_INVALID_VALUE);
	*out = depth ? stack[depth - 1].ctx : NULL;
	return end(CUDA_SUCCESS);
}

EXPORT CUresult cuCtxGetDevice(CUdevice *out)
{
	struct ctx *c;
	CUresult r;

	BEGIN(cuCtxGetDevice);
	r = current(&c);
	if (!r && !out)
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r)
		*out = c->device;
	return end(r);
}

EXPORT CUresult cuCtxSetFlags(unsigned flags)
{
	struct ctx *c;
	CUresult r;

	BEGIN(cuCtxSetFlags);
	r = current(&c);
	if (!r)
		c->flags = flags;
	return end(r);
}

EXPORT CUresult cuCtxGetFlags(unsigned *flags)
{
	struct ctx *c;
	CUresult r;

	BEGIN(cuCtxGetFlags);
	r = current(&c);
	if (!r && !flags)
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r)
		*flags = c->flags;
	return end(r);
}

EXPORT CUresult cuCtxSynchronize(void)
{
	struct ctx *c;
	CUresult r;

	BEGIN(cuCtxSynchronize);
	if ((r = current(&c)))
		return end(r);
	ctx_idle(c);
	return end(c->error);
}

static CUresult peer(CUcontext handle, unsigned flags, bool on)
{
	struct ctx *c, *other = ctx_find(handle);
	CUresult r = current(&c);

	if (r)
		return r;
	if (!other || other->device == c->device)
		return other ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_CONTEXT;
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (!lib.knobs.peers)
		return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	if (!(c->peers >> other->device & 1) != on)
		return on ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
	c->peers ^= 1u << other->device;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxEnablePeerAccess(CUcontext other, unsigned flags)
{
	BEGIN(cuCtxEnablePeerAccess);
	return end(peer(other, flags, true));
}

EXPORT CUresult cuCtxDisablePeerAccess(CUcontext other)
{
	BEGIN(cuCtxDisablePeerAccess);
	return end(peer(other, 0, false));
}
