/*
 * Memory of a GPU, which an RDMA device reads and writes by a dma-buf. It needs a GPU's driver too, which CUDA_LIB
 * names, else libcuda.so.1: a real one, or the software GPU.
 */
#define _GNU_SOURCE
#include "test.h"

#include <dlfcn.h>
#include <unistd.h>

#define MIB (1024u * 1024u)

typedef unsigned long long gpu_ptr;

static struct {
	int (*init)(unsigned);
	int (*retain)(void **, int);
	int (*set_current)(void *);
	int (*synchronize)(void);
	int (*alloc)(gpu_ptr *, size_t);
	int (*release)(gpu_ptr);
	int (*to_device)(gpu_ptr, const void *, size_t);
	int (*to_host)(void *, gpu_ptr, size_t);
	int (*handle)(void *, gpu_ptr, size_t, int, unsigned long long);
	int (*flush)(int, int);
} gpu;

static void *gpu_symbol(const char *name)
{
	const char *path = getenv("CUDA_LIB");
	void *lib = dlopen(path ? path : "libcuda.so.1", RTLD_NOW);
	void *p = lib ? dlsym(lib, name) : NULL;

	if (!p)
		skip("%s", dlerror());
	return p;
}

#define GPU(call) do { int r_ = (call); CHECK(r_ == 0, "%s: %d", #call, r_); } while (0)

static void gpu_start(void)
{
	void *ctx;

	*(void **)&gpu.init = gpu_symbol("cuInit");
	*(void **)&gpu.retain = gpu_symbol("cuDevicePrimaryCtxRetain");
	*(void **)&gpu.set_current = gpu_symbol("cuCtxSetCurrent");
	*(void **)&gpu.synchronize = gpu_symbol("cuCtxSynchronize");
	*(void **)&gpu.alloc = gpu_symbol("cuMemAlloc_v2");
	*(void **)&gpu.release = gpu_symbol("cuMemFree_v2");
	*(void **)&gpu.to_device = gpu_symbol("cuMemcpyHtoD_v2");
	*(void **)&gpu.to_host = gpu_symbol("cuMemcpyDtoH_v2");
	*(void **)&gpu.handle = gpu_symbol("cuMemGetHandleForAddressRange");
	*(void **)&gpu.flush = gpu_symbol("cuFlushGPUDirectRDMAWrites");
	GPU(gpu.init(0));
	GPU(gpu.retain(&ctx, 0));
	GPU(gpu.set_current(ctx));
}

/* n bytes of the GPU at its page from, as fill has them, and a descriptor for them. */
static int gpu_memory(gpu_ptr *p, size_t n, unsigned seed)
{
	uint8_t *all = malloc(n);
	int fd;

	GPU(gpu.alloc(p, 4 * MIB));
	fill(all, n, seed);
	GPU(gpu.to_device(*p, all, n));
	GPU(gpu.synchronize());
	free(all);
	GPU(gpu.handle(&fd, *p, 4 * MIB, 1, 0));
	return fd;
}

/* The device reads 100,000 of the MIB bytes at d, which fill has written with 5, and writes others there. */
static void read_then_write(struct pair *p, struct buf *s, struct ibv_mr *mr, gpu_ptr d, uint8_t *seen)
{
	struct ibv_sge sg = part(s, 0, 100000);

	post(p->a.qp, .id = 1, .opcode = IBV_WR_RDMA_READ, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED,
	     .raddr = d + 8192 + 3, .rkey = mr->rkey);
	done(p->a.cq, 1, IBV_WC_RDMA_READ);
	check_fill(s->p, 100000, 5, 8195, "read from the GPU");
	fill(s->p, s->n, 6);
	post(p->a.qp, .id = 2, .opcode = IBV_WR_RDMA_WRITE, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED,
	     .raddr = d + 8192 + 3, .rkey = mr->rkey);
	done(p->a.cq, 2, IBV_WC_RDMA_WRITE);
	GPU(gpu.flush(0, 100));
	GPU(gpu.to_host(seen, d, MIB));
	check_fill(seen, 8195, 5, 0, "before it");
	check_fill(seen + 8195, 100000, 6, 0, "written into the GPU");
	check_fill(seen + 108195, MIB - 108195, 5, 108195, "after it");
}

/* The device writes into memory of the GPU at the address that the GPU has for it, and reads from there. */
static void write_and_read(void)
{
	struct pair p;
	struct buf s;
	struct ibv_sge sg;
	struct ibv_mr *mr;
	uint8_t *seen = malloc(MIB);
	gpu_ptr d;
	int fd;

	gpu_start();
	pair_open(&p, &usual);
	s = buf_new(p.a.d, MIB, IBV_ACCESS_LOCAL_WRITE);
	fd = gpu_memory(&d, MIB, 5);
	mr = ibv_reg_dmabuf_mr(p.b.d->pd, 8192, MIB, d + 8192, fd, ALL_ACCESS);
	CHECK(mr, "ibv_reg_dmabuf_mr: %m");
	close(fd);
	read_then_write(&p, &s, mr, d, seen);
	sg = part(&s, 0, 100000);
	/* Beyond the region. */
	post(p.a.qp, .id = 3, .opcode = IBV_WR_RDMA_READ, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED, .raddr = d,
	     .rkey = mr->rkey);
	expect(p.a.cq, 3, IBV_WC_REM_ACCESS_ERR);
	MUST(ibv_dereg_mr(mr));
	buf_free(&s);
	pair_close(&p);
}

/* Between memory of the GPU at both ends, where the local key is that of a dma-buf too. */
static void device_to_device(void)
{
	struct pair p;
	struct ibv_mr *from, *to;
	struct ibv_sge sg;
	uint8_t *seen = malloc(MIB);
	gpu_ptr a, b;
	int fa, fb;

	gpu_start();
	pair_open(&p, &usual);
	fa = gpu_memory(&a, MIB, 7);
	fb = gpu_memory(&b, MIB, 8);
	from = ibv_reg_dmabuf_mr(p.a.d->pd, 0, 4 * MIB, a, fa, ALL_ACCESS);
	to = ibv_reg_dmabuf_mr(p.b.d->pd, 0, 4 * MIB, b, fb, ALL_ACCESS);
	CHECK(from && to, "ibv_reg_dmabuf_mr: %m");
	sg = (struct ibv_sge){ a + 1, 65537, from->lkey };
	post(p.a.qp, .id = 1, .opcode = IBV_WR_RDMA_WRITE, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED, .raddr = b + 2,
	     .rkey = to->rkey);
	done(p.a.cq, 1, IBV_WC_RDMA_WRITE);
	GPU(gpu.flush(0, 100));
	GPU(gpu.to_host(seen, b, MIB));
	check_fill(seen, 2, 8, 0, "before it");
	check_fill(seen + 2, 65537, 7, 1, "written");
	check_fill(seen + 65539, 100, 8, 65539, "after it");
	MUST(ibv_dereg_mr(from));
	MUST(ibv_dereg_mr(to));
	pair_close(&p);
}

/* The region keeps the memory, also when the GPU's driver has it back. */
static void freed_while_registered(void)
{
	struct pair p;
	struct buf s;
	struct ibv_sge sg;
	struct ibv_mr *mr;
	gpu_ptr d, again;
	int fd;

	gpu_start();
	pair_open(&p, &usual);
	s = buf_new(p.a.d, MIB, IBV_ACCESS_LOCAL_WRITE);
	fd = gpu_memory(&d, MIB, 5);
	mr = ibv_reg_dmabuf_mr(p.b.d->pd, 0, MIB, d, fd, ALL_ACCESS);
	CHECK(mr, "ibv_reg_dmabuf_mr: %m");
	close(fd);
	GPU(gpu.release(d));
	GPU(gpu.alloc(&again, 4 * MIB));
	sg = part(&s, 0, 1000);
	post(p.a.qp, .id = 1, .opcode = IBV_WR_RDMA_READ, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED, .raddr = d,
	     .rkey = mr->rkey);
	done(p.a.cq, 1, IBV_WC_RDMA_READ);
	check_fill(s.p, 1000, 5, 0, "read");
	MUST(ibv_dereg_mr(mr));
	buf_free(&s);
	pair_close(&p);
}

#define REFUSED_MR(want, ...) do { struct ibv_mr *mr_ = ibv_reg_dmabuf_mr(dev->pd, __VA_ARGS__); \
	CHECK(!mr_ && errno == (want), "%s: %p (%m), not %s", #__VA_ARGS__, (void *)mr_, #want); } while (0)

static void refused(void)
{
	struct dev *dev = dev_open();
	int fd, pipes[2];
	gpu_ptr d, again;

	REFUSED_MR(EBADF, 0, 4096, 0, -1, IBV_ACCESS_LOCAL_WRITE);
	MUST(pipe(pipes));
	REFUSED_MR(EINVAL, 0, 4096, 0, pipes[0], IBV_ACCESS_LOCAL_WRITE);
	gpu_start();
	fd = gpu_memory(&d, MIB, 5);
	REFUSED_MR(EINVAL, 0, 4 * MIB + 1, d, fd, IBV_ACCESS_LOCAL_WRITE);
	REFUSED_MR(EINVAL, 4096, 4 * MIB, d, fd, IBV_ACCESS_LOCAL_WRITE);
	REFUSED_MR(EINVAL, UINT64_MAX - 4095, 8192, d, fd, IBV_ACCESS_LOCAL_WRITE);
	REFUSED_MR(EINVAL, 100, 4096, d, fd, IBV_ACCESS_LOCAL_WRITE);
	REFUSED_MR(EINVAL, 0, 0, d, fd, IBV_ACCESS_LOCAL_WRITE);
	REFUSED_MR(EINVAL, 0, 4096, d, fd, IBV_ACCESS_REMOTE_WRITE);
	if (soft()) { /* a real one keeps the memory */
		GPU(gpu.release(d));
		GPU(gpu.alloc(&again, 4 * MIB)); /* whose file may have the number of the old one's */
		REFUSED_MR(EINVAL, 0, 4096, d, fd, IBV_ACCESS_LOCAL_WRITE);
	}
	dev_close(dev);
}

static void cpu_address_is_refused(void)
{
	struct dev *dev = dev_open();
	gpu_ptr d;

	gpu_start();
	gpu_memory(&d, MIB, 5);
	CHECK(!ibv_reg_mr(dev->pd, (void *)(uintptr_t)d, 4096, IBV_ACCESS_LOCAL_WRITE) && errno == EFAULT,
	      "ibv_reg_mr of the GPU's address: %m");
	dev_close(dev);
}

/* With the module for peer memory it is not: the device writes by the GPU's address and reads there. */
static void peer_memory(void)
{
	struct pair p;
	struct buf s;
	struct ibv_mr *mr;
	uint8_t *seen = malloc(MIB);
	gpu_ptr d, other;

	setenv("SOFTHCA_PEERMEM", getenv("CUDA_LIB"), 1);
	setenv("SOFTHCA_DMABUF", "0", 1);
	setenv("SOFTCUDA_DMABUF", "0", 1);
	gpu_start();
	pair_open(&p, &usual);
	s = buf_new(p.a.d, MIB, IBV_ACCESS_LOCAL_WRITE);
	GPU(gpu.alloc(&d, 4 * MIB));
	fill(seen, MIB, 5);
	GPU(gpu.to_device(d, seen, MIB));
	GPU(gpu.synchronize());
	mr = ibv_reg_mr(p.b.d->pd, (void *)(uintptr_t)(d + 8192 + 1), MIB, ALL_ACCESS);
	CHECK(mr, "ibv_reg_mr: %m");
	CHECK((uintptr_t)mr->addr == d + 8193 && mr->length == MIB, "%p, %zu", mr->addr, mr->length);
	read_then_write(&p, &s, mr, d, seen);
	MUST(ibv_dereg_mr(mr));
	GPU(gpu.alloc(&other, 4 * MIB));
	GPU(gpu.release(other));
	CHECK(!ibv_reg_mr(p.b.d->pd, (void *)(uintptr_t)other, 4096, ALL_ACCESS) && errno == EFAULT, "freed memory: %m");
	CHECK(!ibv_reg_mr(p.b.d->pd, (void *)(uintptr_t)d, 64 * MIB, ALL_ACCESS) && errno == EFAULT, "past the end: %m");
	buf_free(&s);
	pair_close(&p);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(write_and_read, PAIRS), TEST(device_to_device, PAIRS), TEST(freed_while_registered, PAIRS),
		TEST(refused, 0), TEST(cpu_address_is_refused, SOFT),
		TEST(peer_memory, SOFT | PAIRS),
	};

	return run_tests(argc, argv, tests, COUNT(tests));
}
