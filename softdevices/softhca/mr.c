/* Protection domains and memory regions. */
#include "queues.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CHUNK = 1024, CHUNKS = 1 << 12 };

static struct mr_slot *chunks[CHUNKS]; /* engine lock; never freed: peers read the generations */
static uint32_t used_slots = 1;	       /* key 0 is never given out */
static uint32_t free_head, free_tail;  /* first in, first out: a slot is used again as late as can be */

struct mr_slot *mr_slot(uint32_t i)
{
	return &chunks[i / CHUNK][i % CHUNK];
}

static uint32_t slot_take(void)
{
	uint32_t i = free_head;

	if (i && free_head != free_tail) {
		free_head = mr_slot(i)->next_free;
		return i;
	}
	i = used_slots;
	if (i == CHUNK * CHUNKS)
		return 0;
	if (!chunks[i / CHUNK])
		chunks[i / CHUNK] = calloc(CHUNK, sizeof(struct mr_slot));
	if (!chunks[i / CHUNK])
		return 0;
	used_slots++;
	return i;
}

static void slot_drop(uint32_t i)
{
	struct mr_slot *s = mr_slot(i);

	s->mr = NULL;
	s->salt++;
	atomic_fetch_add(&s->gen, 1);
	s->next_free = 0;
	if (free_head)
		mr_slot(free_tail)->next_free = i;
	else
		free_head = i;
	free_tail = i;
}

/*
 * Finds the memory that a key and an address mean. The engine lock is held.
 */
int mr_resolve(struct hca_ctx *ctx, struct ibv_pd *pd, uint32_t key, uint64_t addr, uint64_t len, unsigned access,
	       struct hca_mr **out, uint64_t *va)
{
	uint32_t i = key >> 8;
	struct hca_mr *mr;

	if (!i || i >= used_slots || !mr_slot(i)->mr || mr_slot(i)->salt != (key & 0xff)) {
		debug(ctx, "key %#x is not registered", key);
		return -1;
	}
	mr = mr_slot(i)->mr;
	if (mr->pub.context != &ctx->v.context || mr->pub.pd != pd) {
		debug(ctx, "key %#x belongs to another %s", key,
		      mr->pub.context != &ctx->v.context ? "device" : "protection domain");
		return -1;
	}
	if ((mr->access & access) != access) {
		debug(ctx, "key %#x allows %#x and not %#x", key, mr->access, access);
		return -1;
	}
	if (addr < mr->iova || len > mr->pub.length || addr - mr->iova > mr->pub.length - len) {
		debug(ctx, "key %#x: %#llx+%llu lies outside of %#llx+%zu", key, (unsigned long long)addr,
		      (unsigned long long)len, (unsigned long long)mr->iova, mr->pub.length);
		return -1;
	}
	*out = mr;
	*va = addr - mr->iova + mr->base;
	if (mr->pages)
		*va = pages_at(ctx, mr->pages, *va, len);
	return 0;
}

/*
 * Where the SGEs of a request of qp lie, of the PD given; -1 if one of them may not be used so. Empty ones are not
 * checked.
 */
int mr_gather(struct hca_qp *qp, struct ibv_pd *pd, const struct ibv_sge *sge, unsigned n, unsigned access,
	      struct iovec *iov)
{
	for (unsigned i = 0; i < n; i++) {
		struct hca_mr *mr;
		uint64_t va = 0;

		if (sge[i].length &&
		    mr_resolve(qp->ctx, pd, sge[i].lkey, sge[i].addr, sge[i].length, access, &mr, &va))
			return -1;
		iov[i] = (struct iovec){ (void *)(uintptr_t)va, sge[i].length };
	}
	return 0;
}

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct hca_pd *pd = calloc(1, sizeof(*pd));

	if (!pd)
		return NULL;
	pd->pub.context = context;
	count(to_ctx(context), C_pds, 1);
	return &pd->pub;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *pub)
{
	struct hca_pd *pd = (struct hca_pd *)pub;

	if (atomic_load(&pd->refs))
		return EBUSY;
	count(to_ctx(pub->context), C_pds, (uint64_t)-1);
	free(pd);
	return 0;
}

/*
 * Brings the pages in, as pinning them would, and finds out whether they are there and may be written to. A kernel
 * before 5.14 cannot; there only holes are found.
 */
static int touch_pages(void *addr, size_t length, bool write)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)addr & ~(page - 1);
	size_t len = ((uintptr_t)addr + length + page - 1 - from) & ~(page - 1);

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
	if (!madvise((void *)from, len, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ))
		return 0;
	if (errno != EINVAL)
		return errno == ENOMEM ? EFAULT : errno;
	/* EINVAL means that the access is not allowed, or that the kernel does not know the call: our stack tells. */
	if (!madvise((void *)((uintptr_t)&page & ~(page - 1)), page, MADV_POPULATE_READ))
		return EFAULT;
	return msync((void *)from, len, MS_ASYNC) ? EFAULT : 0;
}

static struct ibv_mr *register_memory(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	const unsigned known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			       IBV_ACCESS_REMOTE_ATOMIC;
	struct hca_ctx *ctx = to_ctx(pd->context);
	bool relaxed = access & IBV_ACCESS_RELAXED_ORDERING;
	struct hca_mr *mr;

	hold_await(ctx, HOLD_REGISTRATIONS, length);
	access &= ~(unsigned)IBV_ACCESS_OPTIONAL_RANGE; /* may be ignored, by definition */
	if (ctx->fatal)
		return errno = EIO, NULL;
	if (access & IBV_ACCESS_ON_DEMAND)
		return errno = EOPNOTSUPP, NULL;
	if (!length || (uintptr_t)addr + length < (uintptr_t)addr || iova + length < iova || access & ~known)
		return errno = EINVAL, NULL;
	if (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) && !(access & IBV_ACCESS_LOCAL_WRITE))
		return errno = EINVAL, NULL;
	errno = touch_pages(addr, length, access & IBV_ACCESS_LOCAL_WRITE);
	if (errno || !(mr = calloc(1, sizeof(*mr))))
		return NULL;
	if (ctx->knobs.pages && (errno = pages_pin(&mr->pages, addr, length)))
		return free(mr), NULL;
	engine_lock();
	if (fail_now(ctx, FAIL_REG) || length > ctx->knobs.memlock ||
	    atomic_load(&ctx->counters[C_mr_bytes]) > ctx->knobs.memlock - length || !(mr->slot = slot_take())) {
		engine_unlock();
		pages_unpin(mr->pages);
		free(mr);
		return errno = ENOMEM, NULL;
	}
	mr->iova = iova;
	mr->base = (uintptr_t)addr;
	mr->access = access;
	mr->pub = (struct ibv_mr){ .context = pd->context, .pd = pd, .addr = addr, .length = length, .handle = mr->slot };
	mr->pub.lkey = mr->pub.rkey = mr->slot << 8 | mr_slot(mr->slot)->salt;
	mr_slot(mr->slot)->mr = mr;
	atomic_fetch_add(&((struct hca_pd *)pd)->refs, 1);
	count(ctx, C_mrs, 1);
	count(ctx, C_registrations, 1);
	count(ctx, C_relaxed_registrations, relaxed);
	count(ctx, C_mr_bytes, length);
	engine_unlock();
	return &mr->pub;
}

/* Memory of another device that fd has, which iova names. As the kernel, it wants both to lie alike in their page. */
static struct ibv_mr *register_mapped(struct ibv_pd *pd, int fd, uint64_t offset, size_t length, uint64_t iova,
				      unsigned access)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	struct ibv_mr *pub;
	struct hca_mr *mr;
	void *mapping;
	size_t mapped;
	int err = dmabuf_map(fd, offset, length, &mapping, &mapped);

	if (err)
		return errno = err, NULL;
	if (offset % page != iova % page)
		errno = EINVAL, pub = NULL;
	else
		pub = register_memory(pd, (char *)mapping + offset % page, length, iova, access);
	if (!pub) {
		err = errno;
		munmap(mapping, mapped);
		return errno = err, NULL;
	}
	mr = (struct hca_mr *)pub;
	mr->mapping = mapping;
	mr->mapped = mapped;
	return pub;
}

/* Addresses that the CPU may not touch may be a GPU's: then the kernel asks the modules for peer memory. */
static struct ibv_mr *register_address(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	struct ibv_mr *pub = register_memory(pd, addr, length, iova, access);
	const char *gpu = to_ctx(pd->context)->knobs.peermem;
	int fd, err;

	if (pub || errno != EFAULT || !*gpu)
		return pub;
	fd = peer_pages(gpu, (uintptr_t)addr, length);
	if (fd < 0)
		return errno = EFAULT, NULL;
	pub = register_mapped(pd, fd, (uintptr_t)addr % (uintptr_t)sysconf(_SC_PAGESIZE), length, iova, access);
	err = errno;
	close(fd);
	if (pub)
		pub->addr = addr;
	return errno = err, pub;
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return register_address(pd, addr, length, (uintptr_t)addr, (unsigned)access);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	return register_address(pd, addr, length, iova, (unsigned)access);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	return register_address(pd, addr, length, iova, access);
}

EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd,
					int access)
{
	struct ibv_mr *pub;

	if (!to_ctx(pd->context)->knobs.dmabuf)
		return errno = EOPNOTSUPP, NULL;
	pub = register_mapped(pd, fd, offset, length, iova, (unsigned)access);
	if (pub)
		pub->addr = (void *)(uintptr_t)offset; /* as libibverbs has it */
	return pub;
}

EXPORT int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	(void)mr, (void)flags, (void)pd, (void)addr, (void)length, (void)access;
	errno = EOPNOTSUPP;
	return IBV_REREG_MR_ERR_INPUT;
}

/* After it the memory is not read or written: the engine does that under its lock, and peers check the generation. */
EXPORT int ibv_dereg_mr(struct ibv_mr *pub)
{
	struct hca_mr *mr = (struct hca_mr *)pub;
	struct hca_ctx *ctx = to_ctx(pub->context);

	hold_await(ctx, HOLD_DEREGISTRATIONS, pub->length);
	engine_lock();
	slot_drop(mr->slot);
	engine_unlock();
	atomic_fetch_sub(&((struct hca_pd *)pub->pd)->refs, 1);
	count(ctx, C_mrs, (uint64_t)-1);
	count(ctx, C_mr_bytes, -(uint64_t)pub->length);
	pages_unpin(mr->pages);
	if (mr->mapping)
		munmap(mr->mapping, mr->mapped);
	free(mr);
	return 0;
}

/* The device is closed with memory registered: that memory is not ours any more. */
void mr_detach_all(struct hca_ctx *ctx)
{
	for (uint32_t i = 1; i < used_slots; i++)
		if (mr_slot(i)->mr && mr_slot(i)->mr->pub.context == &ctx->v.context)
			slot_drop(i);
}
