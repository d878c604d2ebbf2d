/*
 * What the software GPU does beyond the answers that an H100 gave: streams, delays, injected failures, the mistakes of
 * a program that it finds. Each case is a process of its own and prints "ok NAME" or "FAIL NAME: why".
 */
#include "test.h"
#include "../softcuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <dirent.h>

enum { M = 1 << 20, INVALID_VALUE = 1, NOT_READY = 600, ILLEGAL_ADDRESS = 700 };

static const char *running;

static void fail(int line, const char *what)
{
	printf("FAIL %s: line %d: %s\n", running, line, what);
	fflush(stdout);
	_exit(1);
}

#define CHECK(cond) do { if (!(cond)) fail(__LINE__, #cond); } while (0)
#define ANSWERS(call, want) do { int r_ = (call); if (r_ != (want)) { \
	char t_[300]; snprintf(t_, sizeof(t_), "%s -> %s, want %d", #call, res(r_), want); fail(__LINE__, t_); } } while (0)
#define OK(call) ANSWERS(call, 0)

static ptr alloc(size_t n)
{
	ptr p;

	OK(cuMemAlloc(&p, n));
	return p;
}

static void *pinned(size_t n)
{
	void *p;

	OK(cuMemHostAlloc(&p, n, 1));
	return p;
}

static void *stream(unsigned flags)
{
	void *s;

	OK(cuStreamCreate(&s, flags));
	return s;
}

static uint64_t read_word(ptr p)
{
	uint64_t v = 0;

	OK(cuMemcpyDtoH(&v, p, sizeof(v)));
	return v;
}

static void write_word(ptr p, uint64_t v)
{
	OK(cuMemcpyHtoD(p, &v, sizeof(v)));
	OK(cuCtxSynchronize());
}

/* Holds a stream until its semaphore is posted. */
static void hold(void *arg)
{
	while (sem_wait(arg))
		;
}

static void source_is_read_when_the_copy_runs(void)
{
	uint64_t *h;
	void *s;
	sem_t go;
	ptr d;

	start();
	d = alloc(M);
	h = pinned(M);
	s = stream(1);
	sem_init(&go, 0, 0);
	*h = 1;
	OK(cuLaunchHostFunc(s, hold, &go));
	OK(cuMemcpyAsync(d, (uintptr_t)h, 8, s));
	*h = 2;
	ANSWERS(cuStreamQuery(s), NOT_READY);
	sem_post(&go);
	OK(cuStreamSynchronize(s));
	CHECK(read_word(d) == 2);
}

static void pageable_source_is_read_at_the_call(void)
{
	uint64_t h = 1;
	void *s;
	sem_t go;
	ptr d;

	start();
	d = alloc(M);
	s = stream(1);
	sem_init(&go, 0, 0);
	OK(cuLaunchHostFunc(s, hold, &go));
	OK(cuMemcpyAsync(d, (uintptr_t)&h, 8, s));
	h = 2;
	sem_post(&go);
	OK(cuStreamSynchronize(s));
	CHECK(read_word(d) == 1);
}

static void copy_to_pageable_is_done_at_the_return(void)
{
	static uint64_t h[M / 8];
	ptr d;

	setenv("SOFTCUDA_DELAY", "20000", 1);
	start();
	d = alloc(M);
	OK(cuMemsetD8(d, 7, M));
	OK(cuMemcpyDtoHAsync(h, d, M, NULL));
	CHECK(h[0] == 0x0707070707070707 && h[M / 8 - 1] == h[0]);
}

static void copy_within_the_device_returns_early(void)
{
	unsigned on = 1;
	ptr a, b;

	setenv("SOFTCUDA_DELAY", "50000", 1);
	start();
	a = alloc(M);
	b = alloc(M);
	OK(cuMemcpyDtoD(a, b, M));
	ANSWERS(cuStreamQuery(NULL), NOT_READY);
	OK(cuPointerSetAttribute(&on, 6, a));
	OK(cuMemcpyDtoD(a, b, M));
	OK(cuStreamQuery(NULL));
}

static void event_holds_another_stream(void)
{
	void *a, *b, *c, *e;
	sem_t go;
	ptr d;

	start();
	d = alloc(M);
	write_word(d, 1);
	write_word(d + 8, 2);
	write_word(d + 16, 0);
	a = stream(1);
	b = stream(1);
	c = stream(1);
	OK(cuEventCreate(&e, 2));
	OK(cuEventQuery(e));
	sem_init(&go, 0, 0);
	OK(cuLaunchHostFunc(a, hold, &go));
	OK(cuEventRecord(e, a));
	OK(cuStreamWaitEvent(b, e, 0));
	OK(cuMemcpyAsync(d + 16, d, 8, b));
	OK(cuMemcpyAsync(d + 24, d + 8, 8, c)); /* goes on */
	OK(cuStreamSynchronize(c));
	ANSWERS(cuStreamQuery(b), NOT_READY);
	ANSWERS(cuEventQuery(e), NOT_READY);
	sem_post(&go);
	OK(cuStreamSynchronize(b));
	OK(cuEventQuery(e));
	CHECK(read_word(d + 16) == 1 && read_word(d + 24) == 2);
	OK(cuEventDestroy(e));
	ANSWERS(cuEventQuery(e), 400);
	OK(cuStreamDestroy(b));
	ANSWERS(cuStreamQuery(b), 400);
}

static void stream_0_waits_for_blocking_streams(void)
{
	void *a, *other, *e;
	sem_t go;
	ptr d;

	start();
	d = alloc(M);
	a = stream(0);
	other = stream(1);
	OK(cuEventCreate(&e, 2));
	sem_init(&go, 0, 0);
	OK(cuLaunchHostFunc(a, hold, &go));
	OK(cuMemcpyAsync(d, d + 8, 8, NULL));
	OK(cuEventRecord(e, NULL));
	OK(cuMemcpyAsync(d + 16, d + 8, 8, other));
	OK(cuStreamSynchronize(other));
	ANSWERS(cuEventQuery(e), NOT_READY);
	sem_post(&go);
	OK(cuEventSynchronize(e));
}

static int answer_inside;

static void call_the_driver(void *arg)
{
	ptr p;

	(void)arg;
	answer_inside = cuMemAlloc(&p, M);
}

static void host_function_may_not_call(void)
{
	start();
	OK(cuLaunchHostFunc(NULL, call_the_driver, NULL));
	OK(cuCtxSynchronize());
	CHECK(answer_inside == 800);
}

static void copy_on_freed_memory_is_found(void)
{
	ptr a, b, p;

	setenv("SOFTCUDA_DELAY", "50000", 1);
	start();
	a = alloc(2 * M);
	b = alloc(2 * M);
	OK(cuMemcpyAsync(a, b, M, NULL));
	OK(cuMemFree(a));
	CHECK(alloc(2 * M) == a); /* which the copy may not touch */
	ANSWERS(cuCtxSynchronize(), ILLEGAL_ADDRESS);
	ANSWERS(cuMemAlloc(&p, M), ILLEGAL_ADDRESS);
}

static void copy_on_unregistered_memory_is_found(void)
{
	void *h = mmap(NULL, M, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ptr a;

	setenv("SOFTCUDA_DELAY", "50000", 1);
	start();
	a = alloc(M);
	OK(cuMemHostRegister(h, M, 1));
	OK(cuMemcpyAsync(a, (uintptr_t)h, M, NULL));
	OK(cuMemHostUnregister(h));
	ANSWERS(cuCtxSynchronize(), ILLEGAL_ADDRESS);
}

static void copy_to_unmapped_memory_is_an_error(void)
{
	char *h = mmap(NULL, M, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ptr a;

	start();
	a = alloc(M);
	mprotect(h, M, PROT_NONE); /* a hole might be filled meanwhile */
	ANSWERS(cuMemcpyDtoH(h, a, M), INVALID_VALUE);
	ANSWERS(cuMemcpyHtoD(a, h, M), INVALID_VALUE);
	ANSWERS(cuMemcpyHtoD(a, NULL, M), INVALID_VALUE);
	ANSWERS(cuMemcpyHtoD(a + 1, "", M), INVALID_VALUE);
	OK(cuCtxSynchronize());
}

static void forked_child_is_refused(void)
{
	int status;
	pid_t pid;

	start();
	pid = fork();
	if (!pid) {
		ptr p;

		_exit(cuMemAlloc(&p, M) == 3 && cuInit(0) == 3 ? 0 : 1);
	}
	CHECK(waitpid(pid, &status, 0) == pid && !status);
}

static void nth_call_fails(void)
{
	ptr p, q;

	setenv("SOFTCUDA_FAIL", "cuMemAlloc:2,cuCtxGetCurrent:1:304,copy:2:719", 1);
	start();
	OK(cuMemAlloc(&p, M));
	ANSWERS(cuMemAlloc(&q, M), 2);
	OK(cuMemAlloc(&q, M));
	ANSWERS(cuCtxGetCurrent((void **)&p), 304);
	OK(cuMemcpyDtoD(q, q + 64, 64));
	OK(cuCtxSynchronize());
	OK(cuMemcpyDtoD(q, q + 64, 64));
	ANSWERS(cuCtxSynchronize(), 719);
}

/* cuInit's answer, with its report thrown away. */
static int init_quietly(void)
{
	const char *path = getenv("CUDA_LIB");
	int (*init)(unsigned), (*count)(int *), n, r;

	*(void **)&init = dlsym(dlopen(path ? path : "libcuda.so.1", RTLD_NOW), "cuInit");
	*(void **)&count = dlsym(dlopen(path ? path : "libcuda.so.1", RTLD_NOW), "cuDeviceGetCount");
	CHECK(init && count(&n) == 3);
	CHECK(freopen("/dev/null", "w", stderr));
	r = init(0);
	CHECK(!r || count(&n) == 3);
	return r;
}

static void unknown_knob_is_refused(void)
{
	setenv("SOFTCUDA_SEEDS", "1", 1);
	CHECK(init_quietly() == INVALID_VALUE);
}

static void wrong_knob_is_refused(void)
{
	setenv("SOFTCUDA_ORDERING", "50", 1);
	CHECK(init_quietly() == INVALID_VALUE);
}

static void no_device(void)
{
	setenv("SOFTCUDA_DEVICES", "0", 1);
	CHECK(init_quietly() == 100);
}

static const char *left(void)
{
	static char text[600];
	size_t (*f)(char *, size_t);

	*(void **)&f = dlsym(library(), "softcuda_left");
	CHECK(f);
	f(text, sizeof(text));
	return text;
}

static void leaks_are_counted(void)
{
	void *h, *s, *e;
	ptr p, v, handle, pool;

	start();
	p = alloc(1000);
	h = pinned(M);
	s = stream(1);
	OK(cuEventCreate(&e, 2));
	OK(cuMemAllocAsync(&pool, M, s));
	CHECK(vmm_make(&v, &handle, 2 * M, true));
	CHECK(!strcmp(left(), "allocations 1\nbytes 1049576\npool_allocations 1\nhost_allocations 1\nvmm_handles 1\n"
			      "vmm_reservations 1\nvmm_mappings 1\ncontexts 1\nstreams 1\nevents 1\n"));
	OK(cuMemFree(p));
	OK(cuMemFreeHost(h));
	OK(cuMemFreeAsync(pool, s));
	OK(cuStreamSynchronize(s));
	OK(cuEventDestroy(e));
	OK(cuStreamDestroy(s));
	OK(cuMemUnmap(v, 2 * M));
	OK(cuMemAddressFree(v, 2 * M));
	OK(cuMemRelease(handle));
	CHECK(!strcmp(left(), "contexts 1\n"));
	OK(cuDevicePrimaryCtxRelease(0));
	CHECK(!*left());
}

static void released_context_is_known(void)
{
	void *s;
	ptr p, q;

	start();
	p = alloc(M);
	s = stream(1);
	OK(cuDevicePrimaryCtxRelease(0));
	ANSWERS(cuMemAlloc(&q, M), 709);
	ANSWERS(cuStreamQuery(s), 400);
	ANSWERS(cuPointerGetAttribute(&q, 7, p), INVALID_VALUE);
}

static void memory_without_access(void)
{
	struct prop q = { .type = 1, .handle_types = 1, .location_type = 1 };
	struct access a = { .location_type = 1, .flags = 1 };
	ptr h, p;

	start();
	ANSWERS(cuMemCreate(&h, M, &q, 0), INVALID_VALUE);
	OK(cuMemCreate(&h, 4 * M, &q, 0));
	OK(cuMemAddressReserve(&p, 8 * M, 0, 0, 0));
	ANSWERS(cuMemMap(p + 6 * M, 4 * M, 0, h, 0), INVALID_VALUE);
	OK(cuMemMap(p, 4 * M, 0, h, 0));
	ANSWERS(cuMemMap(p, 4 * M, 0, h, 0), INVALID_VALUE);
	ANSWERS(cuMemcpyHtoD(p, &a, 4), INVALID_VALUE);
	OK(cuMemSetAccess(p, 4 * M, &a, 1));
	ANSWERS(cuMemcpyHtoD(p, &a, 4), INVALID_VALUE); /* may read only */
	OK(cuMemcpyDtoH(&a, p, 4));
	a = (struct access){ .location_type = 1, .flags = 3 };
	OK(cuMemSetAccess(p, 4 * M, &a, 1));
	OK(cuMemcpyHtoD(p, &a, 4));
	ANSWERS(cuMemAddressFree(p, 8 * M), INVALID_VALUE);
	ANSWERS(cuMemUnmap(p, 2 * M), INVALID_VALUE);
	OK(cuMemRelease(h));
	OK(cuMemcpyHtoD(p, &a, 4)); /* the mapping holds it */
	OK(cuCtxSynchronize()); /* a staged copy may run later, and unmapping does not wait for it */
	OK(cuMemUnmap(p, 4 * M));
	ANSWERS(cuMemRelease(h), INVALID_VALUE);
	ANSWERS(cuMemcpyHtoD(p, &a, 4), INVALID_VALUE);
	OK(cuMemAddressFree(p, 8 * M));
}

static void memory_ends(void)
{
	ptr a, b;

	setenv("SOFTCUDA_MEMORY", "4194304", 1);
	start();
	a = alloc(2 * M);
	alloc(2 * M);
	ANSWERS(cuMemAlloc(&b, 1), 2);
	OK(cuMemFree(a));
	OK(cuMemAlloc(&b, 1));
}

static void device_numbers_follow_the_variable(void)
{
	void *first, *second;
	int v;
	ptr a, b;

	setenv("SOFTCUDA_DEVICES", "3", 1);
	setenv("SOFTCUDA_PCI", "0000:01:00.0,0000:41:00.0,0001:81:00.0", 1);
	setenv("CUDA_VISIBLE_DEVICES", "2,0", 1);
	load();
	OK(cuDeviceGetAttribute(&v, 33, 0));
	CHECK(v == 0x81);
	OK(cuDeviceGetAttribute(&v, 50, 0));
	CHECK(v == 1);
	OK(cuDeviceGetAttribute(&v, 33, 1));
	CHECK(v == 1);
	ANSWERS(cuDeviceGetAttribute(&v, 33, 2), 101);
	OK(cuDevicePrimaryCtxRetain(&first, 0));
	OK(cuDevicePrimaryCtxRetain(&second, 1));
	OK(cuCtxPushCurrent(first));
	a = alloc(M);
	OK(cuCtxPushCurrent(second));
	b = alloc(M);
	write_word(b, 5);
	OK(cuMemcpyDtoD(a, b, 8));
	OK(cuCtxSynchronize());
	CHECK(read_word(a) == 5);
	OK(cuPointerGetAttribute(&v, 9, a));
	CHECK(v == 0);
	OK(cuPointerGetAttribute(&v, 9, b));
	CHECK(v == 1);
	OK(cuCtxPopCurrent(NULL));
	OK(cuCtxPopCurrent(NULL));
	ANSWERS(cuCtxPopCurrent(NULL), 201);
}

static void forged_handles_are_refused(void)
{
	ipc_handle h, bad;
	ptr p = 0;

	two();
	start();
	if (*side == 'A') {
		p = alloc(M);
		OK(cuIpcGetMemHandle(&h, p));
		tell(&h, sizeof(h));
		hear(&h, 1);
		join();
		return;
	}
	CHECK(hear(&h, sizeof(h)));
	for (size_t i = 0; i < sizeof(h); i++) {
		bad = h;
		bad.bytes[i] ^= 0x10;
		ANSWERS(cuIpcOpenMemHandle(&p, bad, 1), 400);
	}
	memset(&bad, 0, sizeof(bad));
	ANSWERS(cuIpcOpenMemHandle(&p, bad, 1), 400);
	ANSWERS(cuIpcOpenMemHandle(&p, h, 0), INVALID_VALUE);
	OK(cuIpcOpenMemHandle(&p, h, 1));
	ANSWERS(cuMemFree(p), INVALID_VALUE);
	OK(cuIpcCloseMemHandle(p));
}

static void small_allocations_are_packed(void)
{
	ptr a, b;
	int fd;

	start();
	a = alloc(1000);
	b = alloc(1000);
	CHECK(b - a == 1024);
	ANSWERS(cuMemGetHandleForAddressRange(&fd, b, 4096, 1, 0), INVALID_VALUE);
}

/* What a software adapter does with the descriptor: README.md. */
static uint64_t *adapter_maps(int fd)
{
	char path[60], name[200] = "";
	unsigned long long ino, offset;
	int pid, there;
	void *p;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	CHECK(readlink(path, name, sizeof(name) - 1) > 0);
	CHECK(sscanf(name, "/memfd:dmabuf:softcuda:%d:%d:%llu:%llu", &pid, &there, &ino, &offset) == 4);
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, there);
	there = open(path, O_RDWR | O_CLOEXEC);
	p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, there, (off_t)offset);
	CHECK(p != MAP_FAILED);
	close(there);
	return p;
}

static void writes_of_adapters_are_seen_after_a_flush(void)
{
	uint64_t *nic;
	ptr d;
	int fd;

	setenv("SOFTCUDA_ORDERING", "0", 1);
	start();
	d = alloc(2 * M);
	write_word(d + 4096, 1);
	write_word(d + 4104, 2);
	OK(cuMemGetHandleForAddressRange(&fd, d + 4096, 4096, 1, 0));
	nic = adapter_maps(fd);
	CHECK(nic[0] == 1 && nic[1] == 2);
	nic[0] = 10;
	write_word(d + 4104, 20);
	CHECK(read_word(d + 4096) == 1);
	CHECK(nic[1] == 20); /* an adapter reads what kernels wrote */
	OK(cuFlushGPUDirectRDMAWrites(0, 100));
	CHECK(read_word(d + 4096) == 10 && read_word(d + 4104) == 20);
}

/* A flush brings what adapters have written, and nothing else: also where a copy ran when an adapter was told. */
static void copies_beside_a_registration_stay(void)
{
	enum { N = 2 * M };
	unsigned char *from, *to;

	setenv("SOFTCUDA_ORDERING", "0", 1);
	start();
	from = pinned(N);
	to = pinned(N);
	for (int i = 0; i < 200; i++) {
		ptr d = alloc(N);
		int fd;

		memset(from, i, N);
		OK(cuMemcpyAsync(d, (uintptr_t)from, N, NULL));
		if (i % 3)
			sched_yield();
		OK(cuMemGetHandleForAddressRange(&fd, d, N, 1, 0));
		OK(cuFlushGPUDirectRDMAWrites(0, 100));
		OK(cuMemcpyDtoH(to, d, N));
		CHECK(!memcmp(from, to, N));
		OK(cuFlushGPUDirectRDMAWrites(0, 100));
		OK(cuMemcpyDtoH(to, d, N));
		CHECK(!memcmp(from, to, N));
		close(fd);
		OK(cuMemFree(d));
	}
}

static void writes_of_adapters_are_seen_at_once_on_hopper(void)
{
	uint64_t *nic;
	ptr d;
	int fd;

	start();
	d = alloc(2 * M);
	write_word(d + 4096, 1);
	OK(cuMemGetHandleForAddressRange(&fd, d + 4096, 4096, 1, 0));
	nic = adapter_maps(fd);
	nic[0] = 10;
	CHECK(read_word(d + 4096) == 10);
}

/* The signals that each thread of this process but the first blocks. */
static uint64_t blocked(void)
{
	char path[80], line[200];
	uint64_t all = ~0ull, one;
	struct dirent *e;
	DIR *d = opendir("/proc/self/task");

	while ((e = readdir(d))) {
		FILE *f;

		if (atoi(e->d_name) == getpid() || e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%.20s/status", e->d_name);
		f = fopen(path, "r");
		while (f && fgets(line, sizeof(line), f))
			if (sscanf(line, "SigBlk: %lx", &one) == 1)
				all &= one;
		if (f)
			fclose(f);
	}
	closedir(d);
	return all;
}

static void nothing(void *arg)
{
	(void)arg;
}

static void threads_block_signals(void)
{
	start();
	OK(cuLaunchHostFunc(NULL, nothing, NULL)); /* both threads run: for a moment a new one blocks all */
	OK(cuCtxSynchronize());
	CHECK(blocked() >> (SIGINT - 1) & 1 && blocked() >> (SIGURG - 1) & 1);
}

static void threads_take_signals_if_asked(void)
{
	setenv("SOFTCUDA_SIGNALS", "1", 1);
	start();
	OK(cuLaunchHostFunc(NULL, nothing, NULL));
	OK(cuCtxSynchronize());
	CHECK(!blocked());
}

/* Random copies and fills of one stream give what they would give in order. */
static void seeded_stream_keeps_its_order(void)
{
	static unsigned char model[M], got[M];
	unsigned state = 1;
	void *s;
	ptr d;

	setenv("SOFTCUDA_SEED", "3", 1);
	setenv("SOFTCUDA_DELAY", "50", 1);
	start();
	s = stream(1);
	d = alloc(M);
	OK(cuMemsetD8(d, 0, M));
	OK(cuCtxSynchronize());
	for (int i = 0; i < 300; i++) {
		size_t n, to, from;

		state = state * 1103515245 + 12345;
		n = state % (M / 2);
		state = state * 1103515245 + 12345;
		to = state % (M / 2 - n + 1);
		from = M / 2 + state / 7 % (M / 2 - n + 1);
		if (i % 3) {
			size_t t = i % 2 ? to : from, f = i % 2 ? from : to;

			OK(cuMemcpyAsync(d + t, d + f, n, s));
			memmove(model + t, model + f, n);
		} else {
			unsigned char fill[256];

			memset(fill, i, sizeof(fill));
			OK(cuMemcpyAsync(d + from, (uintptr_t)fill, n < 256 ? n : 256, s));
			memcpy(model + from, fill, n < 256 ? n : 256);
		}
	}
	OK(cuStreamSynchronize(s));
	OK(cuMemcpyDtoH(got, d, M));
	CHECK(!memcmp(got, model, M));
}

/* Without a seed, the stream that was given work first goes first; with one, not always. */
static void seed_changes_the_order_of_streams(void)
{
	int early = 0;
	void *held, *a, *b, *e;
	sem_t go;
	ptr d;

	setenv("SOFTCUDA_SEED", "1", 1);
	setenv("SOFTCUDA_DELAY", "0", 1);
	start();
	held = stream(1);
	a = stream(1);
	b = stream(1);
	OK(cuEventCreate(&e, 2));
	sem_init(&go, 0, 0);
	d = alloc(4096);
	write_word(d + 8, 7);
	write_word(d + 64, 8);
	for (int i = 0; i < 40; i++) {
		OK(cuLaunchHostFunc(held, hold, &go));
		OK(cuEventRecord(e, held));
		OK(cuStreamWaitEvent(a, e, 0));
		OK(cuStreamWaitEvent(b, e, 0));
		OK(cuMemcpyAsync(d, d + 64, 8, a));
		OK(cuMemcpyAsync(d, d + 8, 8, b));
		sem_post(&go);
		OK(cuCtxSynchronize());
		early += read_word(d) != 7;
	}
	CHECK(early > 0 && early < 40);
}

static void managed_memory_is_for_the_cpu_too(void)
{
	uint64_t *h;
	ptr p, d;

	start();
	OK(cuMemAllocManaged(&p, 100, 1));
	d = alloc(M);
	h = (uint64_t *)(uintptr_t)p;
	*h = 17;
	OK(cuMemcpyDtoD(d, p, 8));
	OK(cuCtxSynchronize());
	CHECK(read_word(d) == 17);
	write_word(p, 18);
	CHECK(*h == 18);
}

#define CASE(fn) { #fn, fn }

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {
		CASE(source_is_read_when_the_copy_runs), CASE(pageable_source_is_read_at_the_call),
		CASE(copy_to_pageable_is_done_at_the_return), CASE(copy_within_the_device_returns_early),
		CASE(event_holds_another_stream), CASE(stream_0_waits_for_blocking_streams),
		CASE(host_function_may_not_call), CASE(copy_on_freed_memory_is_found),
		CASE(copy_on_unregistered_memory_is_found), CASE(copy_to_unmapped_memory_is_an_error),
		CASE(forked_child_is_refused), CASE(nth_call_fails), CASE(unknown_knob_is_refused),
		CASE(wrong_knob_is_refused), CASE(no_device), CASE(leaks_are_counted), CASE(released_context_is_known),
		CASE(memory_without_access), CASE(memory_ends), CASE(device_numbers_follow_the_variable),
		CASE(forged_handles_are_refused), CASE(small_allocations_are_packed),
		CASE(writes_of_adapters_are_seen_after_a_flush), CASE(copies_beside_a_registration_stay),
		CASE(writes_of_adapters_are_seen_at_once_on_hopper),
		CASE(threads_block_signals), CASE(threads_take_signals_if_asked), CASE(seeded_stream_keeps_its_order),
		CASE(seed_changes_the_order_of_streams), CASE(managed_memory_is_for_the_cpu_too),
	};
	int bad = 0;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int status;
		pid_t pid;

		if (argc > 1 && strcmp(argv[1], cases[i].name))
			continue;
		running = cases[i].name;
		fflush(stdout);
		pid = fork();
		if (!pid) {
			alarm(60);
			cases[i].run();
			exit(0);
		}
		waitpid(pid, &status, 0);
		if (!status)
			printf("ok %s\n", running);
		else if (!WIFEXITED(status))
			printf("FAIL %s: signal %d\n", running, WTERMSIG(status));
		else if (WEXITSTATUS(status) != 1)
			printf("FAIL %s: status %d\n", running, WEXITSTATUS(status));
		bad += status != 0;
	}
	return bad != 0;
}
