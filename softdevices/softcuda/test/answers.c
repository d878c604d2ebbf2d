/*
 * The questions that were put to an H100, again: answers DIRECTORY prints the answers as the lines of h100.txt have
 * them, without the times. A test compares them. DIRECTORY is on a disk, if there is one.
 */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *directory;

enum { M = 1 << 20 };

/* ---- init, attr ---- */

static const char *state(const char *form)
{
	static char text[80];
	unsigned flags = 99;
	int active = 99, r = cuDevicePrimaryCtxGetState(0, &flags, &active);

	snprintf(text, sizeof(text), form, flags, active);
	return r ? res(r) : text;
}

static void init(void)
{
	void *ctx, *current = &ctx;

	load();
	printf("init-cold: primary state before: ok %s\n", state("flags %u active %d"));
	printf("init-cold: PrimaryCtxRetain -> %s,\n", res(cuDevicePrimaryCtxRetain(&ctx, 0)));
	printf("init-cold: primary state after retain: %s\n", state("flags %u active %d"));
	printf("init-cold: current context after retain: %s, ", res(cuCtxGetCurrent(&current)));
	printf("%s\n", current ? "set" : "none");
	printf("init-cold: PrimaryCtxRelease -> %s\n", res(cuDevicePrimaryCtxRelease(0)));
	printf("init-cold: primary state after release: %s\n", state("flags %u active %d"));
	printf("init-cold: second retain -> %s\n", res(cuDevicePrimaryCtxRetain(&ctx, 0)));
	printf("init-cold: retain when active -> %s\n", res(cuDevicePrimaryCtxRetain(&ctx, 0)));
}

static void attr(void)
{
	static const struct {
		int number;
		const char *name;
	} all[] = {
		{ 124, "DMA_BUF_SUPPORTED" }, { 116, "GPU_DIRECT_RDMA_SUPPORTED" },
		{ 117, "GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS" }, { 118, "GPU_DIRECT_RDMA_WRITES_ORDERING" },
		{ 102, "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED" }, { 103, "HANDLE_TYPE_POSIX_FD" },
		{ 110, "GPU_DIRECT_RDMA_WITH_CUDA_VMM" }, { 41, "UNIFIED_ADDRESSING" }, { 88, "PAGEABLE_MEMORY_ACCESS" },
		{ 100, "PAGEABLE_USES_HOST_PAGE_TABLES" }, { 128, "HANDLE_TYPE_FABRIC" }, { 83, "MANAGED_MEMORY" },
		{ 89, "CONCURRENT_MANAGED" }, { 91, "CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM" },
		{ 99, "HOST_REGISTER_SUPPORTED" }, { 113, "READ_ONLY_HOST_REGISTER" }, { 40, "ASYNC_ENGINE_COUNT" },
		{ 20, "COMPUTE_MODE" }, { 75, "CC_MAJOR" }, { 76, "CC_MINOR" }, { 115, "MEMORY_POOLS" },
		{ 119, "MEMPOOL_HANDLE_TYPES" }, { 125, "IPC_EVENT_SUPPORTED" }, { 130, "NUMA_CONFIG" },
		{ 134, "HOST_NUMA_ID" }, { 92, "STREAM_MEM_OPS_v1 / CAN_USE_STREAM_MEM_OPS" }, { 33, "PCI_BUS_ID" },
		{ 34, "PCI_DEVICE_ID" }, { 50, "PCI_DOMAIN_ID" },
	};
	struct prop q = { .type = 1, .handle_types = 1, .location_type = 1 };
	size_t least = 0, best = 0;
	int v, first;

	start();
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		MUST(cuDeviceGetAttribute(&v, all[i].number, 0));
		printf("attr: attribute %d %s = %d\n", all[i].number, all[i].name, v);
	}
	MUST(cuMemGetAllocationGranularity(&least, &q, 0));
	MUST(cuMemGetAllocationGranularity(&best, &q, 1));
	printf("attr: VMM granularity: minimum %zu, recommended %zu\n", least, best);
	first = cuFlushGPUDirectRDMAWrites(0, 100);
	printf("attr: cuFlushGPUDirectRDMAWrites(current ctx, to owner) -> %s, ", res(first));
	printf("then %s\n", res(cuFlushGPUDirectRDMAWrites(0, 100)));
}

/* ---- ptr ---- */

static void describe(const char *section, const char *name, ptr p)
{
	int which[] = { 2, 8, 9, 7, 1, 3, 4, 11, 12, 10, 13, 14, 15 };
	unsigned type = 77;
	int ordinal = 77;
	uint64_t id = 77, ctx = 77, device = 77, host = 77, from = 77, size = 77, handles = 77;
	/* Booleans: of one byte or of four. */
	unsigned managed = 0, ipc = 0, mapped = 0, rdma = 0;
	void *to[] = { &type, &managed, &ordinal, &id, &ctx, &device, &host, &from, &size, &ipc, &mapped, &handles, &rdma };
	size_t n = 0;
	ptr base = 0;
	int r = cuPointerGetAttributes(13, which, to, p);

	printf("%s: %-12s addr %#llx plural -> %s: type %u managed %u ordinal %d id %llu ctx %s", section, name, p, res(r),
	       type, managed, ordinal, (unsigned long long)id, ctx ? "set" : "0");
	printf(" devptr %#llx hostptr %#llx start %#llx size %llu", (ptr)device, (ptr)host, (ptr)from, (ptr)size);
	printf(" ipc %u mapped %u handles %#llx rdma %u\n", ipc, mapped, (ptr)handles, rdma);
	type = 99;
	r = cuPointerGetAttribute(&type, 2, p);
	printf("%s: %-12s singular(MEMORY_TYPE) -> %s type %u; GetAddressRange -> %s\n", section, name, res(r), type,
	       res(cuMemGetAddressRange(&base, &n, p)));
}

static char bss[100];

static void pointers(void)
{
	ptr d, pool, v, h;
	ipc_handle ih;
	char stack[100];
	void *m = malloc(100), *ha, *hr = NULL;
	unsigned on = 1;

	start();
	MUST(cuMemHostAlloc(&ha, M, 1));
	if (posix_memalign(&hr, 4096, M))
		exit(1);
	MUST(cuMemHostRegister(hr, M, 1));
	MUST(cuMemAlloc(&d, M));
	MUST(cuMemAllocAsync(&pool, M, NULL));
	if (!vmm_make(&v, &h, 2 * M, true))
		exit(1);
	describe("ptr", "null", 0);
	describe("ptr", "stack", (uintptr_t)stack);
	describe("ptr", "bss", (uintptr_t)bss);
	describe("ptr", "malloc", (uintptr_t)m);
	describe("ptr", "hostalloc", (uintptr_t)ha);
	describe("ptr", "hostregister", (uintptr_t)hr);
	describe("ptr", "memalloc", d);
	describe("ptr", "memalloc+777", d + 777);
	describe("ptr", "allocasync", pool);
	describe("ptr", "vmm", v);
	printf("ptr: cuIpcGetMemHandle: memalloc %s; ", res(cuIpcGetMemHandle(&ih, d)));
	printf("memalloc+777 %s; ", res(cuIpcGetMemHandle(&ih, d + 777)));
	printf("allocasync %s; ", res(cuIpcGetMemHandle(&ih, pool)));
	printf("vmm %s; ", res(cuIpcGetMemHandle(&ih, v)));
	printf("hostalloc %s; ", res(cuIpcGetMemHandle(&ih, (uintptr_t)ha)));
	printf("malloc %s\n", res(cuIpcGetMemHandle(&ih, (uintptr_t)m)));
	printf("ptr: set SYNC_MEMOPS: memalloc %s; ", res(cuPointerSetAttribute(&on, 6, d)));
	printf("vmm %s; ", res(cuPointerSetAttribute(&on, 6, v)));
	printf("allocasync %s; ", res(cuPointerSetAttribute(&on, 6, pool)));
	printf("hostalloc %s\n", res(cuPointerSetAttribute(&on, 6, (uintptr_t)ha)));
}

static void managed(void)
{
	ipc_handle ih;
	ptr p;

	start();
	MUST(cuMemAllocManaged(&p, 2 * M, 1));
	describe("managed", "managed", p);
	printf("managed: cuIpcGetMemHandle(managed) %s\n", res(cuIpcGetMemHandle(&ih, p)));
}

/* ---- noctx ---- */

static struct {
	ptr d, vm, h;
	void *st, *ev;
	ipc_handle ih;
} nc;

static void nop(void *arg)
{
	(void)arg;
}

static void *no_context(void *arg)
{
	struct prop q = { .type = 1, .handle_types = 1, .location_type = 1 };
	struct access ac = { .location_type = 1, .flags = 3 };
	int a[2] = { 2, 9 }, act, dev = 0, fd;
	unsigned fl, type;
	int ordinal;
	void *d[2] = { &type, &ordinal }, *x = &x, *hm = NULL;
	ptr p = 0, h;
	size_t n, m;
	uint64_t v = 0;
	ipc_handle ih;
	typedef void *P;

	(void)arg;
	if (posix_memalign(&hm, 4096, M))
		exit(1);
	MUST(cuCtxGetCurrent(&x));
	printf("noctx: thread without a context: current = %s\n", x ? "set" : "none");
#define ASK(call) printf("noctx:   %-60s -> %s\n", #call, res(call))
	ASK(cuPointerGetAttributes(2, a, d, nc.d));
	ASK(cuPointerGetAttribute(&v, 2, nc.d));
	ASK(cuMemGetAddressRange(&p, &n, nc.d + 100));
	ASK(cuMemGetInfo(&n, &m));
	ASK(cuDevicePrimaryCtxGetState(dev, &fl, &act));
	ASK(cuMemAlloc(&p, M));
	ASK(cuMemcpyHtoD(nc.d, &v, 4));
	ASK(cuMemcpyDtoH(&v, nc.d, 4));
	ASK(cuMemcpyDtoD(nc.d + 512, nc.d, 4));
	ASK(cuMemcpyDtoHAsync(&v, nc.d, 4, nc.st));
	ASK(cuMemcpyAsync(nc.d + 512, nc.d, 64, nc.st));
	ASK(cuMemsetD8(nc.d, 0, 64));
	ASK(cuStreamCreate(&x, 1));
	(void)cuStreamSynchronize(nc.st);
	ASK(cuStreamQuery(nc.st));
	ASK(cuStreamSynchronize(nc.st));
	ASK(cuEventCreate(&x, 2));
	ASK(cuEventRecord(nc.ev, nc.st));
	(void)cuStreamSynchronize(nc.st);
	ASK(cuEventQuery(nc.ev));
	ASK(cuEventSynchronize(nc.ev));
	ASK(cuStreamWaitEvent(nc.st, nc.ev, 0));
	ASK(cuLaunchHostFunc(nc.st, nop, 0));
	ASK(cuCtxSynchronize());
	ASK(cuMemHostAlloc(&x, M, 1));
	ASK(cuMemHostRegister(hm, M, 1));
	ASK(cuMemHostUnregister(hm));
	ASK(cuIpcGetMemHandle(&ih, nc.d));
	ASK(cuIpcOpenMemHandle(&p, nc.ih, 1));
	ASK(cuMemCreate(&h, 2 * M, &q, 0));
	ASK(cuMemAddressReserve(&p, 2 * M, 0, 0, 0));
	ASK(cuMemMap(p, 2 * M, 0, h, 0));
	ASK(cuMemSetAccess(p, 2 * M, &ac, 1));
	ASK(cuMemExportToShareableHandle(&fd, nc.h, 1, 0));
	ASK(cuMemRetainAllocationHandle(&h, (P)(uintptr_t)nc.vm));
	ASK(cuMemGetHandleForAddressRange(&fd, nc.d, 2 * M, 1, 0));
	ASK(cuFlushGPUDirectRDMAWrites(0, 100));
	ASK(cuMemFree(nc.d));
	return NULL;
}

static void noctx(void)
{
	pthread_t t;
	ptr p;

	start();
	MUST(cuMemAlloc(&nc.d, 2 * M));
	MUST(cuStreamCreate(&nc.st, 1));
	MUST(cuEventCreate(&nc.ev, 2));
	MUST(cuIpcGetMemHandle(&nc.ih, nc.d));
	if (!vmm_make(&nc.vm, &nc.h, 2 * M, true))
		exit(1);
	printf("noctx: cuIpcOpenMemHandle in the exporting process itself -> %s\n", res(cuIpcOpenMemHandle(&p, nc.ih, 1)));
	pthread_create(&t, NULL, no_context, NULL);
	pthread_join(t, NULL);
}

/* ---- reuse ---- */

static uint64_t id_of(ptr p)
{
	uint64_t id = 0;

	MUST(cuPointerGetAttribute(&id, 7, p));
	return id;
}

static void reuse_size(size_t size)
{
	ipc_handle a, b;
	ptr p, q, base = 0;
	unsigned type;
	uint64_t was;
	size_t n = 0;

	printf("reuse: %zu B: alloc %s, ", size, res(cuMemAlloc(&p, size)));
	MUST(cuIpcGetMemHandle(&a, p));
	printf("ipc handle, ");
	was = id_of(p);
	printf("free %s; ", res(cuMemFree(p)));
	printf("after free: GetAttribute %s, ", res(cuPointerGetAttribute(&type, 2, p)));
	printf("GetAddressRange %s; ", res(cuMemGetAddressRange(&base, &n, p)));
	MUST(cuMemAlloc(&q, size));
	MUST(cuIpcGetMemHandle(&b, q));
	printf("next alloc at %s address, BUFFER_ID %llu then %llu, ipc handle %s\n", p == q ? "the same" : "another",
	       (ptr)was, (ptr)id_of(q), memcmp(&a, &b, sizeof(a)) ? "differs" : "the same");
	printf("reuse: %zu B: GetAddressRange of an interior pointer %s: ", size,
	       res(cuMemGetAddressRange(&base, &n, q + size / 2)));
	printf(base == q && n == size ? "base right size %zu; " : "base other size %zu; ", n);
	printf("one past the end: %s\n", res(cuMemGetAddressRange(&base, &n, q + size)));
	MUST(cuMemFree(q));
}

static void reuse(void)
{
	ipc_handle a, b;
	ptr p, q;

	start();
	reuse_size(4096);
	reuse_size(524288);
	reuse_size(2 * M);
	reuse_size(64 * M);
	MUST(cuMemAlloc(&p, 256 << 10));
	MUST(cuMemAlloc(&q, 256 << 10));
	MUST(cuIpcGetMemHandle(&a, p));
	MUST(cuIpcGetMemHandle(&b, q));
	printf("reuse: two 256 KiB allocations: %llu B apart; ipc handles %s\n", q > p ? q - p : p - q,
	       memcmp(&a, &b, sizeof(a)) ? "differ" : "are the same");
}

/* ---- ipc ---- */

static void put(ptr at, uint64_t v)
{
	MUST(cuMemcpyHtoD(at, &v, sizeof(v)));
	MUST(cuCtxSynchronize());
}

static const char *look(ptr at)
{
	static char texts[4][60];
	static int next;
	char *text = texts[next++ % 4];
	uint64_t v = 0;
	int r = cuMemcpyDtoH(&v, at, sizeof(v));

	snprintf(text, sizeof(texts[0]), r ? "%s" : "%s %#llx", res(r), (ptr)v);
	return text;
}

static void sync_peer(void)
{
	char byte = 0;

	tell(&byte, 1);
	if (!hear(&byte, 1))
		exit(1);
}

struct offer {
	ipc_handle h;
	ptr p;
};

static void ipc_a(unsigned mib, uint64_t word)
{
	size_t size = (size_t)mib * M;
	struct offer o;
	ipc_handle again;

	MUST(cuMemAlloc(&o.p, size));
	put(o.p, word);
	put(o.p + size - 8, word);
	printf("ipc/A: %u MiB: get handle %s, ", mib, res(cuIpcGetMemHandle(&o.h, o.p)));
	printf("again (%s bytes)\n", cuIpcGetMemHandle(&again, o.p) || memcmp(&again, &o.h, 64) ? "other" : "same");
	tell(&o, sizeof(o));
	sync_peer(); /* it has written */
	printf("ipc/A: %u MiB: peer's write seen here: %s\n", mib, look(o.p));
	sync_peer(); /* it has closed */
	printf("ipc/A: %u MiB: free after the peer's close %s\n", mib, res(cuMemFree(o.p)));
}

static void ipc_b(unsigned mib)
{
	size_t size = (size_t)mib * M, n = 0;
	ptr p = 0, q = 0, base = 0;
	struct offer o;

	if (!hear(&o, sizeof(o)))
		exit(1);
	printf("ipc/B: %u MiB: open %s; ", mib, res(cuIpcOpenMemHandle(&p, o.h, 1)));
	printf("second open of the same handle %s, ", res(cuIpcOpenMemHandle(&q, o.h, 1)));
	printf("%s pointer\n", p == q ? "same" : "other");
	printf("ipc/B: %u MiB: data first %s last %s; exporter's address %#llx, here %#llx\n", mib, look(p),
	       look(p + size - 8), o.p, p);
	printf("ipc/B: %u MiB: GetAddressRange on the mapping %s ", mib, res(cuMemGetAddressRange(&base, &n, p + 5)));
	printf("base %s size %zu\n", base == p ? "right" : "WRONG", n);
	if (mib == 2)
		describe("ipc/B", "ipc-mapped", p);
	put(p, 0xfeedbeef);
	sync_peer();
	printf("ipc/B: %u MiB: close %s; ", mib, res(cuIpcCloseMemHandle(p)));
	printf("read after the first close: %.2s; ", look(p));
	printf("second close %s; ", res(cuIpcCloseMemHandle(p)));
	printf("third close %s\n", res(cuIpcCloseMemHandle(p)));
	printf("ipc/B: %u MiB: reopen %s\n", mib, res(cuIpcOpenMemHandle(&p, o.h, 1)));
	printf("ipc/B: %u MiB: close %s\n", mib, res(cuIpcCloseMemHandle(p)));
	sync_peer();
}

static void ipc_two_a(void)
{
	struct offer a, b;
	int r[2];

	MUST(cuMemAlloc(&a.p, 256 << 10));
	MUST(cuMemAlloc(&b.p, 256 << 10));
	put(a.p, 0xaaaaaaaaaaaaaaaa);
	put(b.p, 0xbbbbbbbbbbbbbbbb);
	r[0] = cuIpcGetMemHandle(&a.h, a.p);
	r[1] = cuIpcGetMemHandle(&b.h, b.p + 4096);
	tell(r, sizeof(r));
	tell(&a, sizeof(a));
	tell(&b, sizeof(b));
	sync_peer();
}

static void ipc_two_b(void)
{
	struct offer a, b;
	ptr p = 0, q = 0;
	int r[2];

	if (!hear(r, sizeof(r)) || !hear(&a, sizeof(a)) || !hear(&b, sizeof(b)))
		exit(1);
	printf("ipc/B: two 256 KiB allocations of one block (second handle taken at +4096): get %s %s; ", res(r[0]),
	       res(r[1]));
	printf("open %s ", res(cuIpcOpenMemHandle(&p, a.h, 1)));
	printf("and %s; ", res(cuIpcOpenMemHandle(&q, b.h, 1)));
	printf("data %s and %s; distance there %lld here %lld\n", look(p), look(q), (long long)(b.p - a.p),
	       (long long)(q - p));
	sync_peer();
}

static void ipc(void)
{
	static const unsigned mib[] = { 2, 64, 1024 };
	bool exporter;

	two();
	exporter = *side == 'A';
	start();
	for (int i = 0; i < 3; i++) {
		if (exporter)
			ipc_a(mib[i], 0x1111111111111111u + (uint64_t)i * 0x0101010101010101u);
		else
			ipc_b(mib[i]);
	}
	if (exporter)
		ipc_two_a();
	else
		ipc_two_b();
}

/* A is the one that opens, B the exporter. */
static void death_b(void)
{
	struct offer o, again;

	MUST(cuMemAlloc(&o.p, 2 * M));
	put(o.p, 0x2121212121212121);
	MUST(cuIpcGetMemHandle(&o.h, o.p));
	tell(&o, sizeof(o));
	sync_peer();
	printf("ipcdeath/B: free while open by the peer: %s; ", res(cuMemFree(o.p)));
	MUST(cuMemAlloc(&again.p, 2 * M));
	put(again.p, 0x2222222222222222);
	MUST(cuIpcGetMemHandle(&again.h, again.p));
	printf("new allocation at %s address; handle %s\n", again.p == o.p ? "the same" : "another",
	       memcmp(&o.h, &again.h, 64) ? "differs" : "the same");
	tell(&again, sizeof(again));
	sync_peer();
	fflush(stdout);
	_exit(0);
}

static void death_a(void)
{
	struct offer o, again;
	ptr p = 0, q = 0, r = 0;
	char byte;
	uint64_t v;

	if (!hear(&o, sizeof(o)))
		exit(1);
	printf("ipcdeath/A: open %s, ", res(cuIpcOpenMemHandle(&p, o.h, 1)));
	printf("read %s\n", look(p));
	sync_peer();
	if (!hear(&again, sizeof(again)))
		exit(1);
	printf("ipcdeath/A: exporter has freed and allocated again: read by the old mapping %s\n", look(p));
	printf("ipcdeath/A: open the new allocation's handle while the old is open: %s, ",
	       res(cuIpcOpenMemHandle(&q, again.h, 1)));
	printf("%s pointer, read %s\n", p == q ? "same" : "other", look(q));
	printf("ipcdeath/A: close old %s; ", res(cuIpcCloseMemHandle(p)));
	printf("close new %s; ", res(cuIpcCloseMemHandle(q)));
	printf("open the freed handle again: %s\n", res(cuIpcOpenMemHandle(&r, o.h, 1)));
	printf("ipcdeath/A: open the new handle again: %s, ", res(cuIpcOpenMemHandle(&q, again.h, 1)));
	printf("read %s\n", look(q));
	sync_peer();
	printf("ipcdeath/A: exporter has exited (recv %d): ", (int)hear(&byte, 1));
	join(); /* it is gone, and no zombie */
	printf("read %s\n", look(q));
	printf("ipcdeath/A: close after the exporter's exit %s; ", res(cuIpcCloseMemHandle(q)));
	printf("open again %s; ", res(cuIpcOpenMemHandle(&q, again.h, 1)));
	MUST(cuMemAlloc(&p, M));
	printf("own work still works: %s\n", res(cuMemcpyDtoH(&v, p, sizeof(v))));
}

static void ipcdeath(void)
{
	two();
	start();
	if (*side == 'B')
		death_b();
	else
		death_a();
}

/* ---- vmm ---- */

static const char *fd_name(int fd)
{
	static char name[200];
	char path[40];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = fd < 0 ? 0 : readlink(path, name, sizeof(name) - 1);
	name[n < 0 ? 0 : n] = 0;
	name[strcspn(name, " ")] = 0;
	return name;
}

static void vmm_a(unsigned mib, uint64_t word)
{
	size_t size = (size_t)mib * M;
	ptr p, h;
	int fd = -1, r, pid = getpid();
	bool made = vmm_make(&p, &h, size, true);

	r = cuMemExportToShareableHandle(&fd, h, 1, 0);
	printf("vmm/A: %u MiB: create+map %s: create reserve map setaccess; export %s, fd -> %s\n", mib,
	       made ? "ok" : "FAILED", res(r), fd_name(fd));
	put(p, word);
	put(p + size - 8, word);
	tell_fd(fd);
	tell(&pid, sizeof(pid));
	tell(&fd, sizeof(fd));
	sync_peer();
	printf("vmm/A: %u MiB: peer's write seen here: %s\n", mib, look(p));
	printf("vmm/A: %u MiB: unmap %s, ", mib, res(cuMemUnmap(p, size)));
	printf("address free %s, ", res(cuMemAddressFree(p, size)));
	printf("release %s, while the peer still has it\n", res(cuMemRelease(h)));
	close(fd);
	sync_peer();
	sync_peer();
}

static ptr map_it(ptr h, size_t size)
{
	struct access a = { .location_type = 1, .flags = 3 };
	ptr p;

	MUST(cuMemAddressReserve(&p, size, 0, 0, 0));
	MUST(cuMemMap(p, size, 0, h, 0));
	MUST(cuMemSetAccess(p, size, &a, 1));
	return p;
}

static void vmm_b(unsigned mib)
{
	size_t size = (size_t)mib * M;
	int fd = hear_fd(), pid, there, pidfd, got;
	ptr p, q, h = 0, g = 0;

	if (!hear(&pid, sizeof(pid)) || !hear(&there, sizeof(there)))
		exit(1);
	printf("vmm/B: %u MiB: SCM_RIGHTS: import %s; ", mib,
	       res(cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd, 1)));
	p = map_it(h, size);
	printf("map ok: reserve map setaccess; data %s .. %s\n", look(p), look(p + size - 8));
	if (mib == 2)
		describe("vmm/B", "vmm-import", p);
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	got = (int)syscall(SYS_pidfd_getfd, pidfd, there, 0);
	printf("vmm/B: %u MiB: pidfd_open %s, pidfd_getfd %s,\n", mib, pidfd < 0 ? strerror(errno) : "ok",
	       got < 0 ? strerror(errno) : "ok");
	if (got < 0)
		got = fd;
	printf("vmm/B: %u MiB: pidfd: import (second of the same memory) %s, ", mib,
	       res(cuMemImportFromShareableHandle(&g, (void *)(intptr_t)got, 1)));
	printf("handle %s; ", g == h ? "same" : "other");
	q = map_it(g, size);
	printf("map ok:; data %s\n", look(q));
	put(q, 0xfeedbeef);
	sync_peer();
	MUST(cuMemUnmap(q, size));
	MUST(cuMemAddressFree(q, size));
	MUST(cuMemRelease(g));
	sync_peer();
	printf("vmm/B: %u MiB: read after the exporter's release: %s\n", mib, look(p + size - 8));
	printf("vmm/B: %u MiB: importer unmap %s, ", mib, res(cuMemUnmap(p, size)));
	printf("address free %s, ", res(cuMemAddressFree(p, size)));
	printf("release %s\n", res(cuMemRelease(h)));
	sync_peer();
}

static void vmm(void)
{
	struct prop q = { .type = 1, .handle_types = 8, .location_type = 1 };
	static const unsigned mib[] = { 2, 64, 1024 };
	bool exporter;
	ptr h;

	two();
	exporter = *side == 'A';
	start();
	for (int i = 0; i < 3; i++) {
		if (exporter)
			vmm_a(mib[i], 0x3131313131313131u + (uint64_t)i * 0x0101010101010101u);
		else
			vmm_b(mib[i]);
	}
	if (exporter)
		printf("vmm/A: create with a FABRIC handle: %s\n", res(cuMemCreate(&h, 2 * M, &q, 0)));
}

/* ---- dmabuf ---- */

static void dmabuf_of(const char *name, ptr p, size_t size, unsigned flags)
{
	int fd = -1, r = cuMemGetHandleForAddressRange(&fd, p, size, 1, flags);
	long end = r ? -1 : lseek(fd, 0, SEEK_END);
	void *m;

	printf("dmabuf: %-24s -> %s, lseek end %ld, fd -> %s, mmap ", name, res(r), end, r ? "" : fd_name(fd));
	if (r) {
		printf("-\n");
		return;
	}
	m = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	printf("%s\n", m == MAP_FAILED ? strerror(errno) : "ok");
	close(fd);
}

static void dmabuf(void)
{
	ptr d, small, v, plain, h;
	void *host;
	int fd;

	start();
	MUST(cuMemAlloc(&d, 4 * M));
	dmabuf_of("alloc 4 MiB whole", d, 4 * M, 0);
	dmabuf_of("alloc +64 KiB, 64 KiB", d + 65536, 65536, 0);
	dmabuf_of("alloc +4096, 4096", d + 4096, 4096, 0);
	dmabuf_of("alloc +256, 4096", d + 256, 4096, 0);
	dmabuf_of("alloc +0, 100", d, 100, 0);
	dmabuf_of("alloc 4 MiB, PCIE flag", d, 4 * M, 1);
	dmabuf_of("alloc too long", d, 6 * M, 0);
	MUST(cuMemAlloc(&small, 65536));
	dmabuf_of("small alloc 64 KiB", small, 65536, 0);
	if (!vmm_make(&v, &h, 4 * M, true) || !vmm_make(&plain, &h, 4 * M, false))
		exit(1);
	dmabuf_of("vmm gdr 4 MiB", v, 4 * M, 0);
	dmabuf_of("vmm gdr +2 MiB, 2 MiB", v + 2 * M, 2 * M, 0);
	dmabuf_of("vmm gdr +4096, 4096", v + 4096, 4096, 0);
	dmabuf_of("vmm plain 4 MiB", plain, 4 * M, 0);
	MUST(cuMemHostAlloc(&host, 2 * M, 1));
	dmabuf_of("hostalloc 2 MiB", (uintptr_t)host, 2 * M, 0);
	MUST(cuMemGetHandleForAddressRange(&fd, d, 4 * M, 1, 0));
	printf("dmabuf: cuMemFree with its dma-buf open: %s; ", res(cuMemFree(d)));
	printf("lseek then %ld; ", (long)lseek(fd, 0, SEEK_END));
	printf("handle for freed memory: %s\n", res(cuMemGetHandleForAddressRange(&fd, d, 4 * M, 1, 0)));
}

/* ---- touch ---- */

static void touch_at(const char *name, ptr p)
{
	struct iovec local = { .iov_len = 64 }, remote = { (void *)(uintptr_t)p, 64 };
	char buf[64] = "", line[300];
	unsigned char there;
	int fd[2], status;
	pid_t pid;
	FILE *f;

	if (pipe(fd))
		exit(1);
	local.iov_base = buf;
#define ANSWER(call) do { long n_ = (call); \
	printf("%s", n_ < 0 ? "-1 " : "ok"); printf("%s\n", n_ < 0 ? strerror(errno) : ""); } while (0)
	printf("touch: %s: process_vm_readv -> ", name);
	ANSWER(process_vm_readv(getpid(), &local, 1, &remote, 1, 0));
	printf("touch: %s: write(2) from it -> ", name);
	ANSWER(write(fd[1], (void *)(uintptr_t)p, 64));
	if (write(fd[1], buf, 64) != 64)
		exit(1);
	printf("touch: %s: read(2) into it -> ", name);
	ANSWER(read(fd[0], (void *)(uintptr_t)p, 64));
	printf("touch: %s: mincore -> ", name);
	ANSWER(mincore((void *)(uintptr_t)(p & ~4095ull), 4096, &there));
	fflush(stdout);
	pid = fork();
	if (!pid)
		_exit(*(volatile char *)(uintptr_t)p & 1);
	waitpid(pid, &status, 0);
	printf("touch: %s: CPU load in a forked child: ", name);
	printf(WIFSIGNALED(status) ? "signal %d\n" : "status %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : status);
	f = fopen("/proc/self/maps", "r");
	while (f && fgets(line, sizeof(line), f)) {
		unsigned long long from, to;

		if (sscanf(line, "%llx-%llx", &from, &to) == 2 && from <= p && p < to)
			printf("touch: %s: /proc/self/maps: %s", name, line);
	}
	close(fd[0]);
	close(fd[1]);
}

static void touch(void)
{
	ptr d, v, h;

	signal(SIGPIPE, SIG_IGN);
	start();
	MUST(cuMemAlloc(&d, 2 * M));
	if (!vmm_make(&v, &h, 2 * M, true))
		exit(1);
	touch_at("alloc", d);
	touch_at("vmm", v);
}

/* ---- hostreg ---- */

static void hostreg_of(const char *name, void *p, size_t size, bool touched, unsigned flags)
{
	ptr d = 0;

	if (p == MAP_FAILED)
		exit(1);
	if (touched)
		memset(p, 1, size);
	printf("hostreg: %-36s register %s; ", name, res(cuMemHostRegister(p, size, flags)));
	printf("again %s; ", res(cuMemHostRegister(p, size, flags)));
	printf("device pointer %s ", res(cuMemHostGetDevicePointer(&d, p, 0)));
	printf("%s; ", d == (uintptr_t)p ? "= host pointer" : "differs");
	printf("unregister %s\n", res(cuMemHostUnregister(p)));
	munmap(p, size);
}

static void *anon(size_t size, int flags)
{
	return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | flags, -1, 0);
}

static void *of_fd(int fd, size_t size, int prot)
{
	void *p;

	if (fd < 0 || ftruncate(fd, (off_t)size))
		exit(1);
	p = mmap(NULL, size, prot, MAP_SHARED, fd, 0);
	close(fd);
	return p;
}

static int temporary(const char *folder)
{
	char path[400];
	int fd;

	snprintf(path, sizeof(path), "%s/softcuda-XXXXXX", folder);
	fd = mkostemp(path, O_CLOEXEC);
	unlink(path);
	return fd;
}

static void hostreg_more(void)
{
	char *p = anon(64 * M, MAP_PRIVATE), *a, *b;
	int fd = memfd_create("x", 0);
	ptr d;

	MUST(cuMemAlloc(&d, 64 * M));
	printf("hostreg: first 16 MiB %s; ", res(cuMemHostRegister(p, 16 * M, 1)));
	printf("overlapping 8..24 MiB %s; ", res(cuMemHostRegister(p + 8 * M, 16 * M, 1)));
	printf("next 16..32 MiB %s; ", res(cuMemHostRegister(p + 16 * M, 16 * M, 1)));
	a = of_fd(dup(fd), M, PROT_READ | PROT_WRITE);
	b = of_fd(fd, M, PROT_READ | PROT_WRITE);
	MUST(cuMemHostRegister(a, M, 1));
	printf("same pages by a second mapping %s; ", res(cuMemHostRegister(b, M, 1)));
	printf("unaligned start+100, 5000 B %s\n", res(cuMemHostRegister(p + 48 * M + 100, 5000, 1)));
	printf("hostreg: copy across two adjacent registrations %s; ", res(cuMemcpyHtoD(d, p + 15 * M, 2 * M)));
	printf("copy half registered, half not %s; ", res(cuMemcpyHtoD(d, p + 31 * M, 2 * M)));
	printf("unregister by an interior pointer %s\n", res(cuMemHostUnregister(p + 4096)));
	munmap(p, 16 * M);
	printf("hostreg: munmap of registered memory, then a copy still works elsewhere: %s; ",
	       res(cuMemcpyHtoD(d, p + 17 * M, M)));
	printf("unregister of it: %s\n", res(cuMemHostUnregister(p)));
	printf("hostreg: cuMemHostAlloc 64 MiB %s, ", res(cuMemHostAlloc((void **)&a, 64 * M, 1)));
	printf("free %s\n", res(cuMemFreeHost(a)));
}

static void hostreg(void)
{
	const int rw = PROT_READ | PROT_WRITE;
	const size_t big = 64 * M;

	start();
	hostreg_of("anon private 64 MiB untouched", anon(big, MAP_PRIVATE), big, false, 1);
	hostreg_of("anon private 64 MiB touched", anon(big, MAP_PRIVATE), big, true, 1);
	hostreg_of("anon SHARED 64 MiB touched", anon(big, MAP_SHARED), big, true, 1);
	hostreg_of("memfd 64 MiB untouched", of_fd(memfd_create("x", 0), big, rw), big, false, 1);
	hostreg_of("memfd 64 MiB touched", of_fd(memfd_create("x", 0), big, rw), big, true, 1);
	hostreg_of("memfd read-only map", of_fd(memfd_create("x", 0), big, PROT_READ), big, false, 1);
	hostreg_of("memfd read-only map, READ_ONLY flag", of_fd(memfd_create("x", 0), big, PROT_READ), big, false, 1 | 8);
	hostreg_of("/dev/shm file 64 MiB", of_fd(temporary("/dev/shm"), big, rw), big, false, 1);
	hostreg_of("/tmp disk file 64 MiB", of_fd(temporary(directory), big, rw), big, false, 1);
	hostreg_of("anon private 4 KiB", anon(4096, MAP_PRIVATE), 4096, true, 1);
	hostreg_of("anon private 1 MiB", anon(M, MAP_PRIVATE), M, true, 1);
	hostreg_more();
}

int main(int argc, char **argv)
{
	static void (*const sections[])(void) = {
		init, attr, pointers, noctx, reuse, ipc, vmm, dmabuf, touch, hostreg, ipcdeath, managed,
	};

	directory = argc > 1 ? argv[1] : "/tmp";
	for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++) {
		int status;
		pid_t pid;

		fflush(stdout);
		pid = fork();
		if (!pid) {
			alarm(60);
			setvbuf(stdout, NULL, _IOFBF, 1 << 16); /* in one piece, also of two processes */
			sections[i]();
			fflush(stdout);
			if (*side == 'A')
				join();
			exit(0);
		}
		if (waitpid(pid, &status, 0) != pid || status)
			printf("section %zu ended with status %#x\n", i, status);
	}
	return 0;
}
