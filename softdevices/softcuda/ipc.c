/* cuIpc: allocations of cuMemAlloc that other processes map. */
#include "calls.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What is in the 64 bytes. */
struct handle {
	uint32_t magic, pid;
	uint64_t started, ino;
	uint32_t fd, device; /* of the exporter; the device's physical number */
	uint64_t whole, offset, size, id_and_sum;
};

_Static_assert(sizeof(struct handle) == 64, "a handle has 64 bytes");

enum { MAGIC = 0x63647573, ID_BITS = 32 };

static uint64_t sum(const struct handle *h)
{
	struct handle copy = *h;
	uint64_t state = 0, words[8];

	copy.id_and_sum &= ~0ull >> ID_BITS;
	memcpy(words, &copy, sizeof(words));
	for (int i = 0; i < 8; i++) {
		state ^= words[i];
		state = next_random(&state);
	}
	return state << ID_BITS;
}

static CUresult get(CUipcMemHandle *out, uint64_t addr)
{
	struct range *m = range_at(addr);
	struct handle h;
	struct ctx *c;
	CUresult r = current(&c);

	if (r)
		return r;
	if (!out || !m || m->kind != ALLOCATED)
		return CUDA_ERROR_INVALID_VALUE;
	h = (struct handle){
		.magic = MAGIC, .pid = (uint32_t)getpid(), .started = process_started(getpid()), .ino = m->store->ino,
		.fd = (uint32_t)m->store->fd, .device = (uint32_t)lib.devices[m->device].physical,
		.whole = m->store->size, .offset = m->offset, .size = m->size, .id_and_sum = m->id & ~0ull >> ID_BITS,
	};
	h.id_and_sum |= sum(&h);
	memcpy(out, &h, sizeof(h));
	m->exported = true;
	count(C_exports, 1);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr p)
{
	BEGIN(cuIpcGetMemHandle);
	return end(get(out, p));
}

static struct range *opened(struct ctx *c, const struct handle *h)
{
	uint64_t at = 0;
	struct range *m;

	for (; (m = range_next(at)); at = m->start + 1)
		if (m->kind == IPC && m->ctx == c && m->store->ino == h->ino && m->offset == h->offset &&
		    m->peer_id == (h->id_and_sum & ~0ull >> ID_BITS))
			return m;
	return NULL;
}

static bool sane(const struct handle *h)
{
	return h->magic == MAGIC && (h->id_and_sum & ~(~0ull >> ID_BITS)) == sum(h) && h->size && h->whole &&
	       h->whole < 1ull << 42 && h->offset < h->whole && h->size <= h->whole - h->offset;
}

static CUresult open_(uint64_t *out, const struct handle *h, unsigned flags)
{
	int device, fd;
	struct range *m;
	struct ctx *c;
	CUresult r;

	if ((r = current(&c)))
		return r;
	pause_ns(lib.knobs.slow_open);
	if ((r = current(&c)))
		return r;
	if (!out || flags != IPC_LAZY_ENABLE_PEER_ACCESS)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sane(h))
		return CUDA_ERROR_INVALID_HANDLE;
	if ((int)h->pid == getpid() && h->started == process_started(getpid()))
		return CUDA_ERROR_INVALID_CONTEXT; /* as an H100 answers */
	if ((m = opened(c, h))) {
		m->opens++;
		count(C_ipc_opens, 1);
		*out = m->start;
		return CUDA_SUCCESS;
	}
	device = device_of_physical((int)h->device);
	if (device < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	if (device != c->device && !lib.knobs.peers)
		return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	if (process_started((int)h->pid) != h->started || (fd = fd_of_process((int)h->pid, (int)h->fd, h->ino)) < 0)
		return CUDA_ERROR_INVALID_HANDLE;
	if ((r = import(c, device, fd, h->whole, h->offset, h->size, &m)))
		return r;
	m->peer_id = h->id_and_sum & ~0ull >> ID_BITS;
	if (device != c->device)
		c->peers |= 1u << device;
	count(C_ipc_opens, 1);
	count(C_opens, 1);
	*out = m->start;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle handle, unsigned flags)
{
	struct handle h;
	uint64_t p = 0;
	CUresult r;

	BEGIN(cuIpcOpenMemHandle);
	memcpy(&h, &handle, sizeof(h));
	r = open_(&p, &h, flags);
	if (!r && !out)
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r)
		*out = p;
	return end(r);
}

EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr p)
{
	struct range *m;
	struct ctx *c;
	CUresult r;

	BEGIN(cuIpcCloseMemHandle);
	if ((r = current(&c)))
		return end(r);
	m = range_at(p);
	if (!m || m->kind != IPC || m->start != p)
		return end(CUDA_ERROR_INVALID_VALUE);
	count(C_ipc_opens, -1);
	if (!--m->opens)
		release(m);
	return end(CUDA_SUCCESS);
}
