/*
 * Allocations of all kinds but VMM. Those below a MiB lie in blocks of 2 MiB, as the driver packs them: they share a
 * store, begin at a multiple of 512 bytes, and another process that opens one has the whole block mapped.
 */
#include "memory.h"

#include <stdlib.h>

enum { SMALL = 1 << 20, ALIGN = 512 };

struct block {
	struct block *next;
	struct store *store;
	uint64_t base, size;
	int device;
	struct ctx *ctx; /* that maps it, of memory of another process: ipc.c; else NULL */
	unsigned used; /* ranges in it */
};

static struct block *blocks;

bool charge(int device, uint64_t size)
{
	struct device *d = &lib.devices[device];

	if (size > lib.knobs.memory - d->used)
		return false;
	d->used += size;
	return true;
}

void refund(int device, uint64_t size)
{
	lib.devices[device].used -= size;
}

static struct block *block_new(int device)
{
	struct block *b = calloc(1, sizeof(*b));

	if (!b || !charge(device, GRANULARITY)) {
		free(b);
		return NULL;
	}
	b->device = device;
	b->size = GRANULARITY;
	b->base = space_take(GRANULARITY, 0);
	b->store = b->base ? store_new(device, GRANULARITY) : NULL;
	if (!b->store) {
		if (b->base)
			space_give(b->base, GRANULARITY);
		refund(device, GRANULARITY);
		free(b);
		return NULL;
	}
	b->next = blocks;
	blocks = b;
	return b;
}

static void block_unref(struct block *b)
{
	struct block **at = &blocks;

	if (--b->used)
		return;
	while (*at != b)
		at = &(*at)->next;
	*at = b->next;
	store_unref(b->store);
	if (b->base)
		space_give(b->base, b->size);
	if (!b->ctx)
		refund(b->device, b->size);
	free(b);
}

/* The lowest place of size bytes in a block, or 0. */
static uint64_t place_in(struct block *b, uint64_t size)
{
	uint64_t at = b->base;
	struct range *r;

	while ((r = range_next(at)) && r->start < b->base + GRANULARITY && r->start - at < size)
		at = round_up(r->start + r->size, ALIGN);
	return at + size <= b->base + GRANULARITY ? at : 0;
}

static CUresult allocate_small(struct ctx *c, uint64_t size, struct range **out)
{
	struct block *b;
	uint64_t at = 0;

	for (b = blocks; b; b = b->next)
		if (!b->ctx && b->device == c->device && (at = place_in(b, size)))
			break;
	if (!b && (b = block_new(c->device)))
		at = b->base;
	if (!b)
		return CUDA_ERROR_OUT_OF_MEMORY;
	b->used++;
	*out = range_new(ALLOCATED, at, size, c, c->device);
	if (!*out) {
		block_unref(b);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	(*out)->block = b;
	(*out)->store = store_ref(b->store);
	(*out)->offset = at - b->base;
	return CUDA_SUCCESS;
}

/*
 * A range of memory of another process, at offset of what fd is, which is taken. Ranges of one store lie as far from
 * each other as they do there.
 */
CUresult import(struct ctx *c, int device, int fd, uint64_t whole, uint64_t offset, uint64_t size, struct range **out)
{
	struct store *s = store_of_fd(fd, whole);
	struct range *r = NULL;
	struct block *b;

	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	s->device = device;
	for (b = blocks; b; b = b->next)
		if (b->ctx == c && b->store->ino == s->ino)
			break;
	if (b) {
		store_unref(s);
		b->used++;
	} else if ((b = calloc(1, sizeof(*b)))) {
		*b = (struct block){ .next = blocks, .store = s, .size = whole, .device = device, .ctx = c, .used = 1 };
		b->base = space_take(whole, 0);
		blocks = b;
	}
	if (b && b->base)
		r = range_new(IPC, b->base + offset, size, c, device);
	if (!r) {
		if (b)
			block_unref(b);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	r->block = b;
	r->store = store_ref(b->store);
	r->offset = offset;
	r->opens = 1;
	*out = r;
	return CUDA_SUCCESS;
}

static enum counter counter_of(enum kind kind)
{
	switch (kind) {
	case POOL:
		return C_pool_allocations;
	case MANAGED:
		return C_managed_allocations;
	case HOST_ALLOCATED:
		return C_host_allocations;
	case HOST_REGISTERED:
		return C_host_registrations;
	case IPC:
		return C_ipc_opens;
	case VMM:
		return C_vmm_mappings;
	default:
		return C_allocations;
	}
}

static CUresult allocate_large(struct ctx *c, enum kind kind, uint64_t size, struct range **out)
{
	uint64_t whole = round_up(size, GRANULARITY), at;
	bool host = kind == HOST_ALLOCATED;
	struct store *s = NULL;
	struct range *r = NULL;

	if (!host && !charge(c->device, whole))
		return CUDA_ERROR_OUT_OF_MEMORY;
	at = space_take(whole, 0);
	if (at && !host)
		s = store_new(c->device, whole);
	if (at && (host || s))
		r = range_new(kind, at, size, c, c->device);
	if (r)
		r->store = s;
	if (r && (host || kind == MANAGED) && !space_open(at, whole, s ? s->fd : -1)) {
		range_free(r);
		s = NULL;
		r = NULL;
	}
	if (r) {
		*out = r;
		return CUDA_SUCCESS;
	}
	store_unref(s);
	if (at)
		space_give(at, whole);
	if (!host)
		refund(c->device, whole);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult allocate(struct ctx *c, enum kind kind, uint64_t size, struct range **out)
{
	CUresult r;

	if (!size)
		return CUDA_ERROR_INVALID_VALUE;
	if (size > 1ull << 42)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (kind == MANAGED) /* as on the H100: the range is whole pages of the device */
		size = round_up(size, GRANULARITY);
	r = kind == ALLOCATED && size < SMALL ? allocate_small(c, size, out) : allocate_large(c, kind, size, out);
	if (r)
		return r;
	count(counter_of(kind), 1);
	if (kind != HOST_ALLOCATED)
		count(C_bytes, (int64_t)size);
	return CUDA_SUCCESS;
}

/* Ends a range of any kind but VMM: its addresses are free at once. */
void release(struct range *r)
{
	uint64_t start = r->start, size = r->size;
	struct block *b = r->block;
	enum kind kind = r->kind;
	int device = r->device;

	count(counter_of(kind), kind == IPC ? -(int64_t)r->opens : -1);
	if (kind == ALLOCATED || kind == POOL || kind == MANAGED)
		count(C_bytes, -(int64_t)size);
	range_free(r);
	if (b) {
		block_unref(b);
		return;
	}
	if (kind == HOST_REGISTERED)
		return;
	if (kind == HOST_ALLOCATED || kind == MANAGED)
		space_close(start, size);
	if (kind != HOST_ALLOCATED)
		refund(device, round_up(size, GRANULARITY));
	space_give(start, size);
}

/* A context has ended, and with it what was allocated in it. */
void release_of(struct ctx *c)
{
	uint64_t at = 0;
	struct range *r;

	while ((r = range_next(at))) {
		at = r->start + 1;
		if (r->ctx != c || r->kind == VMM)
			continue;
		count(C_lost, 1);
		debug("%#llx+%llu was left when its context ended", (unsigned long long)r->start,
		      (unsigned long long)r->size);
		release(r);
	}
}
