//go:build linux

#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// The driver's interface, which is stable by the versions in its symbols. No header of CUDA is needed, and none can be
// distributed.
typedef int result;
typedef uint64_t pointer;
typedef struct context *context;
typedef struct stream *stream;
typedef struct event *event;
typedef unsigned long long generic; // CUmemGenericAllocationHandle

struct location {
	int type, id;
};

struct allocation_properties {
	int type, handle_types;
	struct location location;
	void *metadata;
	struct {
		unsigned char compression, gpu_direct;
		unsigned short usage;
		unsigned char reserved[4];
	} flags;
};

struct access {
	struct location location;
	int flags;
};

struct ipc_handle {
	unsigned char bytes[CA_IPC];
};

enum {
	SUCCESS = 0,
	INVALID_VALUE = 1,
	NOT_READY = 600,
	NOT_PERMITTED = 800,
	NOT_SUPPORTED = 801,
	INVALID_DEVICE = 101,
	INVALID_HANDLE = 400,
	NOT_FOUND = 500,

	MEMORY_TYPE = 2,
	SYNC_MEMOPS = 6,
	BUFFER_ID = 7,
	IS_MANAGED = 8,
	DEVICE_ORDINAL = 9,
	LEGACY_IPC = 10,
	RANGE_START = 11,
	RANGE_SIZE = 12,

	HAS_VMM = 102,
	HAS_POSIX_FD = 103,
	VMM_GPU_DIRECT = 110,
	FLUSH_OPTIONS = 117,
	WRITES_ORDERING = 118,
	HAS_DMABUF = 124,

	BY_POSIX_FD = 1, // a handle type, an address range's handle type
	PINNED = 1,      // an allocation type
	ON_DEVICE = 1,   // a location type
	READ_WRITE = 3,
	LAZY_PEER = 1,   // of cuIpcOpenMemHandle
	PORTABLE = 1,    // of cuMemHostRegister
	NON_BLOCKING = 1,
	NO_TIMING = 2,
	TO_OWNER = 100,
	PER_THREAD = 2, // a stream
};

// F: what each driver since CUDA 11 has. O: what may be missing.
#define FUNCTIONS(F, O) \
	F(cuInit, (unsigned int)) \
	F(cuGetErrorName, (result, const char **)) \
	F(cuDeviceGetCount, (int *)) \
	F(cuDeviceGetName, (char *, int, int)) \
	F(cuDeviceGetPCIBusId, (char *, int, int)) \
	F(cuDeviceTotalMem_v2, (size_t *, int)) \
	F(cuDeviceGetAttribute, (int *, int, int)) \
	F(cuDeviceCanAccessPeer, (int *, int, int)) \
	F(cuDevicePrimaryCtxRetain, (context *, int)) \
	F(cuDevicePrimaryCtxRelease_v2, (int)) \
	F(cuDevicePrimaryCtxGetState, (int, unsigned int *, int *)) \
	F(cuCtxPushCurrent_v2, (context)) \
	F(cuCtxPopCurrent_v2, (context *)) \
	F(cuCtxEnablePeerAccess, (context, unsigned int)) \
	F(cuPointerGetAttributes, (unsigned int, int *, void **, pointer)) \
	F(cuPointerSetAttribute, (const void *, int, pointer)) \
	F(cuMemAlloc_v2, (pointer *, size_t)) \
	F(cuMemFree_v2, (pointer)) \
	F(cuMemHostRegister_v2, (void *, size_t, unsigned int)) \
	F(cuMemHostUnregister, (void *)) \
	F(cuMemcpyAsync, (pointer, pointer, size_t, stream)) \
	F(cuStreamCreate, (stream *, unsigned int)) \
	F(cuStreamSynchronize, (stream)) \
	F(cuEventCreate, (event *, unsigned int)) \
	F(cuEventRecord, (event, stream)) \
	F(cuEventQuery, (event)) \
	F(cuEventDestroy_v2, (event)) \
	F(cuLaunchHostFunc, (stream, void (*)(void *), void *)) \
	F(cuIpcGetMemHandle, (struct ipc_handle *, pointer)) \
	F(cuIpcOpenMemHandle_v2, (pointer *, struct ipc_handle, unsigned int)) \
	F(cuIpcCloseMemHandle, (pointer)) \
	O(cuMemGetAllocationGranularity, (size_t *, const struct allocation_properties *, int)) \
	O(cuMemCreate, (generic *, size_t, const struct allocation_properties *, unsigned long long)) \
	O(cuMemRelease, (generic)) \
	O(cuMemAddressReserve, (pointer *, size_t, size_t, pointer, unsigned long long)) \
	O(cuMemAddressFree, (pointer, size_t)) \
	O(cuMemMap, (pointer, size_t, size_t, generic, unsigned long long)) \
	O(cuMemUnmap, (pointer, size_t)) \
	O(cuMemSetAccess, (pointer, size_t, const struct access *, size_t)) \
	O(cuMemExportToShareableHandle, (void *, generic, int, unsigned long long)) \
	O(cuMemImportFromShareableHandle, (generic *, void *, int)) \
	O(cuMemGetHandleForAddressRange, (void *, pointer, size_t, int, unsigned long long)) \
	O(cuFlushGPUDirectRDMAWrites, (int, int))

#define DECLARE(name, args) static result(*p_##name) args;
FUNCTIONS(DECLARE, DECLARE)
#undef DECLARE

// A device, which has a context and a stream from its first need on, for ever.
struct device {
	atomic_bool ready;
	context ctx;
	stream stream; // the library's
	bool vmm, gpu_direct;
	int flush; // what cuFlushGPUDirectRDMAWrites can do; -1: it need not be called
	size_t granularity;
	pthread_mutex_t lock; // guards the free events
	event free[256];
	int events;
};

static void *library;
static int devices;
static struct device all[CA_MAX_DEVICES];
static pthread_mutex_t retaining = PTHREAD_MUTEX_INITIALIZER;
static atomic_int last = -1; // the device that has got its context last

static int fail(struct ca_fail *f, const char *call, result code)
{
	f->call = call;
	f->code = code;
	return -1;
}

// TRY ends its function with -1 if a call of the driver fails.
#define TRY(name, ...) \
	do { \
		result r_ = p_##name(__VA_ARGS__); \
		if (r_ != SUCCESS) \
			return fail(f, #name, r_); \
	} while (0)

int ca_load(const char *path, char *err)
{
	void *lib = dlopen(path[0] ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		snprintf(err, CA_ERR, "%s", dlerror());
		return -1;
	}
#define REQUIRE(name, args) \
	if (!(p_##name = (result(*) args)dlsym(lib, #name))) { \
		snprintf(err, CA_ERR, "%s has no " #name ": it is no libcuda of CUDA 11 or newer", path[0] ? path : "libcuda.so.1"); \
		return -1; \
	}
#define FIND(name, args) p_##name = (result(*) args)dlsym(lib, #name);
	FUNCTIONS(REQUIRE, FIND)
	library = lib; // never closed: the driver leaves threads behind
	return 0;
}

// What a part of the driver does to signals. Its threads inherit a mask that blocks them all, and handlers that it sets
// without SA_ONSTACK would crash a Go program: those of Go are set again.
struct quiet {
	sigset_t mask;
	struct sigaction handlers[NSIG];
};

static void quiet_begin(struct quiet *q)
{
	sigset_t every;
	sigfillset(&every);
	pthread_sigmask(SIG_SETMASK, &every, &q->mask);
	for (int s = 1; s < NSIG; s++)
		if (sigaction(s, NULL, &q->handlers[s]))
			q->handlers[s].sa_handler = SIG_ERR;
}

static void quiet_end(const struct quiet *q)
{
	for (int s = 1; s < NSIG; s++) {
		struct sigaction now;
		const struct sigaction *was = &q->handlers[s];
		if (was->sa_handler == SIG_ERR || sigaction(s, NULL, &now) || now.sa_handler == was->sa_handler)
			continue;
		// The Go runtime has one handler for all signals, and may have set it in another thread meanwhile.
		if (now.sa_handler != q->handlers[SIGSEGV].sa_handler)
			sigaction(s, was, NULL);
	}
	pthread_sigmask(SIG_SETMASK, &q->mask, NULL);
}

int ca_init(struct ca_fail *f)
{
	struct quiet q;
	quiet_begin(&q);
	result r = p_cuInit(0);
	quiet_end(&q);
	if (r != SUCCESS)
		return fail(f, "cuInit", r);
	TRY(cuDeviceGetCount, &devices);
	if (devices > CA_MAX_DEVICES)
		devices = CA_MAX_DEVICES;
	for (int i = 0; i < devices; i++)
		pthread_mutex_init(&all[i].lock, NULL);
	return devices;
}

const char *ca_error_name(int code)
{
	const char *name = NULL;
	if (!p_cuGetErrorName || p_cuGetErrorName(code, &name) != SUCCESS || !name)
		return "";
	return name;
}

// attribute returns 0 for what the driver does not know.
static int attribute(int device, int what)
{
	int v = 0;
	return p_cuDeviceGetAttribute(&v, what, device) == SUCCESS ? v : 0;
}

static bool reaches(int device, int other)
{
	int yes = 0;
	return device != other && p_cuDeviceCanAccessPeer(&yes, device, other) == SUCCESS && yes;
}

int ca_device(int device, struct ca_device *d, struct ca_fail *f)
{
	size_t bytes;
	memset(d, 0, sizeof *d);
	TRY(cuDeviceGetName, d->name, sizeof d->name - 1, device);
	TRY(cuDeviceGetPCIBusId, d->pci, sizeof d->pci - 1, device);
	TRY(cuDeviceTotalMem_v2, &bytes, device);
	d->memory = bytes;
	d->dmabuf = attribute(device, HAS_DMABUF) && p_cuMemGetHandleForAddressRange;
	for (int i = 0; i < devices; i++)
		if (reaches(device, i))
			d->peers |= 1ull << i;
	return 0;
}

static struct allocation_properties properties(int device)
{
	struct allocation_properties p = {
		.type = PINNED, .handle_types = BY_POSIX_FD, .location = {ON_DEVICE, device}};
	p.flags.gpu_direct = all[device].gpu_direct;
	return p;
}

// made fills in a device whose context is current.
static int made(int device, struct device *d, struct ca_fail *f)
{
	TRY(cuStreamCreate, &d->stream, NON_BLOCKING);
	d->gpu_direct = attribute(device, VMM_GPU_DIRECT);
	d->flush = attribute(device, WRITES_ORDERING) >= TO_OWNER ? -1 : attribute(device, FLUSH_OPTIONS);
	d->vmm = p_cuMemCreate && p_cuMemRelease && p_cuMemAddressReserve && p_cuMemAddressFree && p_cuMemMap &&
		 p_cuMemUnmap && p_cuMemSetAccess && p_cuMemExportToShareableHandle && p_cuMemImportFromShareableHandle &&
		 p_cuMemGetAllocationGranularity && attribute(device, HAS_VMM) && attribute(device, HAS_POSIX_FD);
	struct allocation_properties p = properties(device);
	if (d->vmm && (p_cuMemGetAllocationGranularity(&d->granularity, &p, 0) != SUCCESS || !d->granularity))
		d->vmm = false;
	// Copies between two devices that both have a context here go directly where they can.
	for (int i = 0; i < devices; i++)
		if (atomic_load(&all[i].ready) && reaches(device, i)) {
			context ignored;
			p_cuCtxEnablePeerAccess(all[i].ctx, 0);
			if (p_cuCtxPushCurrent_v2(all[i].ctx) == SUCCESS) {
				if (reaches(i, device))
					p_cuCtxEnablePeerAccess(d->ctx, 0);
				p_cuCtxPopCurrent_v2(&ignored);
			}
		}
	return 0;
}

static int retain(int device, struct device *d, struct ca_fail *f)
{
	TRY(cuDevicePrimaryCtxRetain, &d->ctx, device);
	int err = 0;
	result r = p_cuCtxPushCurrent_v2(d->ctx);
	if (r != SUCCESS)
		err = fail(f, "cuCtxPushCurrent_v2", r);
	else {
		context ignored;
		err = made(device, d, f);
		p_cuCtxPopCurrent_v2(&ignored);
	}
	if (err)
		p_cuDevicePrimaryCtxRelease_v2(device);
	return err;
}

// enter makes the context of device current; leave must follow.
static int enter(int device, struct ca_fail *f)
{
	if (device < 0 || device >= devices)
		return fail(f, "cuDeviceGet", INVALID_DEVICE);
	struct device *d = &all[device];
	if (!atomic_load_explicit(&d->ready, memory_order_acquire)) {
		int err = 0;
		pthread_mutex_lock(&retaining);
		if (!atomic_load(&d->ready)) {
			struct quiet q;
			quiet_begin(&q);
			err = retain(device, d, f);
			quiet_end(&q);
			if (!err) {
				atomic_store(&d->ready, true);
				atomic_store(&last, device);
			}
		}
		pthread_mutex_unlock(&retaining);
		if (err)
			return err;
	}
	TRY(cuCtxPushCurrent_v2, d->ctx);
	return 0;
}

static int leave(int result)
{
	context ignored;
	p_cuCtxPopCurrent_v2(&ignored);
	return result;
}

// IN does one call in the context of device, and returns.
#define IN(device, name, ...) \
	do { \
		if (enter(device, f)) \
			return -1; \
		result r_ = p_##name(__VA_ARGS__); \
		return leave(r_ == SUCCESS ? 0 : fail(f, #name, r_)); \
	} while (0)

// any is a device whose context serves for what has no device: one that has a context here, or else in the user's part
// of the program. A context on a device that nobody uses would take half a gigabyte of it.
static int any(void)
{
	int d = atomic_load(&last);
	for (int i = 0; d < 0 && i < devices; i++) {
		unsigned int flags;
		int active = 0;
		if (p_cuDevicePrimaryCtxGetState(i, &flags, &active) == SUCCESS && active)
			d = i;
	}
	return d < 0 ? 0 : d;
}

int ca_query(uint64_t addr, struct ca_memory *m, struct ca_fail *f)
{
	unsigned int type = 0, managed = 0, ipc = 0;
	int ordinal = -1;
	size_t size = 0;
	unsigned long long id = 0;
	pointer base = 0;
	int what[] = {MEMORY_TYPE, IS_MANAGED, DEVICE_ORDINAL, RANGE_START, RANGE_SIZE, BUFFER_ID, LEGACY_IPC};
	void *into[] = {&type, &managed, &ordinal, &base, &size, &id, &ipc};
	// Not the call for one attribute: it is ten times slower where the driver does not know the address.
	TRY(cuPointerGetAttributes, sizeof what / sizeof *what, what, into, addr);
	// The driver writes a flag into one byte.
	*m = (struct ca_memory){.base = base, .size = size, .id = id, .type = (int)type, .managed = (managed & 0xff) != 0,
		.device = ordinal, .ipc = (ipc & 0xff) != 0};
	return 0;
}

int ca_sync_memops(int device, uint64_t addr, struct ca_fail *f)
{
	unsigned int yes = 1;
	IN(device, cuPointerSetAttribute, &yes, SYNC_MEMOPS, addr);
}

// map gives memory an address that device, and those that reach it, may use.
static int map(int device, generic handle, struct ca_block *b, struct ca_fail *f)
{
	struct access who[CA_MAX_DEVICES];
	int n = 0;
	who[n++] = (struct access){{ON_DEVICE, device}, READ_WRITE};
	for (int i = 0; i < devices; i++)
		if (reaches(i, device))
			who[n++] = (struct access){{ON_DEVICE, i}, READ_WRITE};
	TRY(cuMemAddressReserve, &b->addr, b->size, 0, 0, 0);
	const char *call = "cuMemMap";
	result r = p_cuMemMap(b->addr, b->size, 0, handle, 0);
	if (r == SUCCESS) {
		call = "cuMemSetAccess";
		if ((r = p_cuMemSetAccess(b->addr, b->size, who, n)) == SUCCESS)
			return 0;
		p_cuMemUnmap(b->addr, b->size);
	}
	p_cuMemAddressFree(b->addr, b->size);
	return fail(f, call, r);
}

static int unmap(const struct ca_block *b, struct ca_fail *f)
{
	TRY(cuMemUnmap, b->addr, b->size);
	TRY(cuMemAddressFree, b->addr, b->size);
	return 0;
}

static int alloc_vmm(int device, uint64_t n, struct ca_block *b, struct ca_fail *f)
{
	size_t g = all[device].granularity;
	struct allocation_properties p = properties(device);
	generic handle = 0;
	b->size = (n + g - 1) / g * g;
	TRY(cuMemCreate, &handle, b->size, &p, 0);
	if (map(device, handle, b, f)) {
		p_cuMemRelease(handle);
		return -1;
	}
	b->handle = handle;
	return 0;
}

static int alloc_plain(uint64_t n, struct ca_block *b, struct ca_fail *f)
{
	b->handle = 0;
	b->size = n;
	TRY(cuMemAlloc_v2, &b->addr, n);
	return 0;
}

int ca_alloc(int device, uint64_t n, struct ca_block *b, struct ca_fail *f)
{
	if (enter(device, f))
		return -1;
	int err = -1;
	f->code = NOT_SUPPORTED;
	if (all[device].vmm)
		err = alloc_vmm(device, n, b, f);
	// Where a sandbox or the driver's build forbids handles there is the older way.
	if (err && (f->code == NOT_SUPPORTED || f->code == NOT_PERMITTED))
		err = alloc_plain(n, b, f);
	return leave(err);
}

static int free_block(const struct ca_block *b, struct ca_fail *f)
{
	if (!b->handle) {
		TRY(cuMemFree_v2, b->addr);
		return 0;
	}
	int err = unmap(b, f);
	TRY(cuMemRelease, b->handle);
	return err;
}

int ca_free(int device, const struct ca_block *b, struct ca_fail *f)
{
	if (enter(device, f))
		return -1;
	return leave(free_block(b, f));
}

int ca_export(uint64_t handle, struct ca_fail *f)
{
	int fd = -1;
	TRY(cuMemExportToShareableHandle, &fd, handle, BY_POSIX_FD, 0);
	return fd;
}

static int import(int device, int fd, uint64_t size, struct ca_block *b, struct ca_fail *f)
{
	if (!all[device].vmm || size % all[device].granularity)
		return fail(f, "cuMemImportFromShareableHandle", all[device].vmm ? INVALID_VALUE : NOT_SUPPORTED);
	generic handle = 0;
	*b = (struct ca_block){.size = size};
	TRY(cuMemImportFromShareableHandle, &handle, (void *)(uintptr_t)fd, BY_POSIX_FD);
	int err = map(device, handle, b, f);
	p_cuMemRelease(handle); // the mapping keeps the memory
	return err;
}

int ca_import(int device, int fd, uint64_t size, struct ca_block *b, struct ca_fail *f)
{
	if (enter(device, f))
		return -1;
	return leave(import(device, fd, size, b, f));
}

int ca_unmap(int device, const struct ca_block *b, struct ca_fail *f)
{
	if (enter(device, f))
		return -1;
	return leave(unmap(b, f));
}

int ca_ipc_get(int device, uint64_t addr, unsigned char *handle, struct ca_fail *f)
{
	IN(device, cuIpcGetMemHandle, (struct ipc_handle *)handle, addr);
}

int ca_ipc_open(int device, const unsigned char *handle, uint64_t *addr, struct ca_fail *f)
{
	struct ipc_handle h;
	memcpy(&h, handle, sizeof h);
	IN(device, cuIpcOpenMemHandle_v2, addr, h, LAZY_PEER);
}

int ca_ipc_close(int device, uint64_t addr, struct ca_fail *f)
{
	IN(device, cuIpcCloseMemHandle, addr);
}

int ca_pin(void *p, uint64_t n, struct ca_fail *f)
{
	int device = any();
	if (enter(device, f))
		return -1;
	result r = p_cuMemHostRegister_v2(p, n, PORTABLE);
	return leave(r == SUCCESS ? device : fail(f, "cuMemHostRegister_v2", r));
}

int ca_unpin(int device, void *p, struct ca_fail *f)
{
	IN(device, cuMemHostUnregister, p);
}

static event take(struct device *d, struct ca_fail *f)
{
	event e = NULL;
	pthread_mutex_lock(&d->lock);
	if (d->events)
		e = d->free[--d->events];
	pthread_mutex_unlock(&d->lock);
	if (!e) {
		result r = p_cuEventCreate(&e, NO_TIMING);
		if (r != SUCCESS) {
			fail(f, "cuEventCreate", r);
			return NULL;
		}
	}
	return e;
}

static void give(struct device *d, event e)
{
	pthread_mutex_lock(&d->lock);
	bool kept = d->events < (int)(sizeof d->free / sizeof *d->free);
	if (kept)
		d->free[d->events++] = e;
	pthread_mutex_unlock(&d->lock);
	if (!kept)
		p_cuEventDestroy_v2(e);
}

static event copy(struct device *d, uint64_t dst, uint64_t src, uint64_t n, struct ca_fail *f)
{
	event e = take(d, f);
	if (!e)
		return NULL;
	result r = p_cuMemcpyAsync(dst, src, n, d->stream);
	if (r != SUCCESS)
		fail(f, "cuMemcpyAsync", r);
	else if ((r = p_cuEventRecord(e, d->stream)) == SUCCESS)
		return e;
	else {
		// The caller may not believe that nothing was started while the copy runs.
		fail(f, "cuEventRecord", r);
		p_cuStreamSynchronize(d->stream);
	}
	give(d, e);
	return NULL;
}

uint64_t ca_copy(int device, uint64_t dst, uint64_t src, uint64_t n, struct ca_fail *f)
{
	if (enter(device, f))
		return 0;
	event e = copy(&all[device], dst, src, n, f);
	leave(0);
	return (uint64_t)(uintptr_t)e;
}

uint64_t ca_mark(int device, uint64_t user, struct ca_fail *f)
{
	if (user == PER_THREAD) { // of which thread?
		fail(f, "cuEventRecord", INVALID_HANDLE);
		return 0;
	}
	if (enter(device, f))
		return 0;
	event e = take(&all[device], f);
	result r = e ? p_cuEventRecord(e, (stream)(uintptr_t)user) : SUCCESS;
	if (r != SUCCESS) {
		fail(f, "cuEventRecord", r);
		give(&all[device], e);
		e = NULL;
	}
	leave(0);
	return (uint64_t)(uintptr_t)e;
}

void ca_drop(int device, uint64_t number)
{
	struct ca_fail ignored;
	int outside = enter(device, &ignored);
	give(&all[device], (event)(uintptr_t)number); // the next record makes it another
	if (!outside)
		leave(0);
}

// ended gives the event back. After an error its caller takes the copy for ended, and the memory may be freed. Where it
// is the call that has failed, the copy still runs.
static int ended(struct device *d, event e, int err)
{
	if (err)
		p_cuStreamSynchronize(d->stream);
	give(d, e);
	return err ? err : 1;
}

int ca_done(int device, uint64_t number, struct ca_fail *f)
{
	struct device *d = &all[device]; // which has a context, since it has an event
	event e = (event)(uintptr_t)number;
	if (enter(device, f))
		return ended(d, e, -1);
	result r = p_cuEventQuery(e);
	if (r == NOT_READY)
		return leave(0);
	return leave(ended(d, e, r == SUCCESS ? 0 : fail(f, "cuEventQuery", r)));
}

// ring runs in a thread of the driver.
static void ring(void *fd)
{
	uint64_t one = 1;
	ssize_t ignored = write((int)(intptr_t)fd, &one, sizeof one);
	(void)ignored; // a counter that is full wakes its reader too
}

int ca_notify(int device, int fd, struct ca_fail *f)
{
	if (enter(device, f))
		return -1;
	// The driver may start a thread for the first of them.
	sigset_t every, mask;
	sigfillset(&every);
	pthread_sigmask(SIG_SETMASK, &every, &mask);
	result r = p_cuLaunchHostFunc(all[device].stream, ring, (void *)(intptr_t)fd);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	return leave(r == SUCCESS ? 0 : fail(f, "cuLaunchHostFunc", r));
}

int ca_dmabuf(int device, uint64_t addr, uint64_t n, struct ca_fail *f)
{
	if (!p_cuMemGetHandleForAddressRange)
		return fail(f, "cuMemGetHandleForAddressRange", NOT_SUPPORTED);
	if (enter(device, f))
		return -1;
	int fd = -1;
	result r = p_cuMemGetHandleForAddressRange(&fd, addr, n, BY_POSIX_FD, 0);
	return leave(r == SUCCESS ? fd : fail(f, "cuMemGetHandleForAddressRange", r));
}

int ca_flush(int device, struct ca_fail *f)
{
	if (enter(device, f))
		return -1;
	if (all[device].flush < 0)
		return leave(0);
	if (!p_cuFlushGPUDirectRDMAWrites || !(all[device].flush & 1))
		return leave(fail(f, "cuFlushGPUDirectRDMAWrites", NOT_SUPPORTED));
	result r = p_cuFlushGPUDirectRDMAWrites(0, TO_OWNER);
	return leave(r == SUCCESS ? 0 : fail(f, "cuFlushGPUDirectRDMAWrites", r));
}

int ca_user_call(int device, const char *name, const uint64_t *a, struct ca_fail *f)
{
	result (*call)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t) =
		(result(*)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t))dlsym(library, name);
	if (!call)
		return fail(f, "dlsym", NOT_FOUND);
	if (device < 0)
		return call(a[0], a[1], a[2], a[3], a[4], a[5]);
	if (enter(device, f))
		return -1;
	result r = call(a[0], a[1], a[2], a[3], a[4], a[5]);
	return leave(r == SUCCESS ? 0 : fail(f, "a user's call", r));
}

static void reads(void *fd)
{
	uint64_t n;
	ssize_t ignored = read((int)(intptr_t)fd, &n, sizeof n);
	(void)ignored;
}

uint64_t ca_reader(void) { return (uint64_t)(uintptr_t)reads; }
