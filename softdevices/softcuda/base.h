/*
 * Layer base: the lock, the knobs, random numbers, counters, errors; and the objects that all layers know.
 *
 * One lock guards everything (lib.mu); one condition says that something has changed (lib.changed). It is not held
 * while bytes are copied or a host function runs. A call takes it in begin() and gives it back in end().
 *
 * README.md has the order of the files: a file calls only those that stand before it.
 */
#ifndef BASE_H
#define BASE_H

#define _GNU_SOURCE

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "abi.h"
#include "softcuda.h"

#define EXPORT __attribute__((visibility("default")))

enum {
	MAX_DEVICES = 16,
	MAX_FAILS = 16,
	PAGE = 4096,
	GRANULARITY = 2 << 20, /* of virtual addresses and of cuMemCreate */
};

/* ---- knobs ---- */

struct fail {
	char call[48];
	uint64_t nth, seen;
	int code; /* 0: the usual one */
};

struct device {
	int physical; /* its number without CUDA_VISIBLE_DEVICES */
	unsigned domain, bus, slot;
	uint64_t used; /* bytes */
};

struct knobs {
	bool seeded, vmm, dmabuf, peers, signals, leaks, debug;
	uint64_t seed, delay, slow_open; /* ns */
	uint64_t memory;		 /* bytes of a device */
	unsigned devices, ordering;
	unsigned pci[MAX_DEVICES]; /* domain << 16 | bus << 8 | slot */
	char left[256];		   /* a path, without the process's number */
	struct fail fail[MAX_FAILS];
	unsigned fails;
};

/* ---- counters ---- */

/* First what there is now, then what there has been. */
#define COUNTERS(X)                                                                                                 \
	X(allocations) X(bytes) X(pool_allocations) X(managed_allocations) X(host_allocations) X(host_registrations) \
	X(ipc_opens) X(vmm_handles) X(vmm_reservations) X(vmm_mappings) X(contexts) X(streams) X(events) X(operations) \
	X(copies) X(copied_bytes) X(exports) X(opens) X(dmabufs) X(flushes) X(host_functions) X(lost)

enum counter {
#define X(n) C_##n,
	COUNTERS(X)
#undef X
	COUNTER_COUNT,
	COUNTERS_NOW = C_copies, /* so many say what there is now */
};

/* ---- memory ---- */

/* The bytes of device memory: a memfd and the mapping by which engines reach it. */
struct store {
	int refs, fd, device;
	char *alias;
	uint64_t size, ino;
	/* Where writes of adapters land until they are flushed, and what was there at the last flush. NULL: no shadow. */
	char *shadow, *flushed;
	int shadow_fd;
	struct store *next; /* of those with a shadow */
};

enum kind { ALLOCATED, POOL, IPC, VMM, MANAGED, HOST_ALLOCATED, HOST_REGISTERED };

/* A range of addresses that the driver knows. */
struct range {
	uint64_t start, size;
	enum kind kind;
	uint64_t id; /* BUFFER_ID */
	struct ctx *ctx;
	int device;
	struct store *store; /* NULL: host memory */
	uint64_t offset;     /* of start, in the store */
	bool sync_memops, exported; /* exported: another process may have its handle */
	bool rdma, imported;	    /* of VMM: made for adapters; of another process */
	unsigned opens;	  /* of IPC */
	uint64_t peer_id; /* of IPC: BUFFER_ID in the process that made it */
	int handle_types;
	unsigned readable, writable; /* of VMM: a bit per device that has access */
	struct vmm *vmm;
	struct block *block; /* of ALLOCATED: shared with other small ones; alloc.c */
};

/* ---- execution ---- */

/* The end of one cuEventRecord. */
struct mark {
	int refs;
	bool done;
};

enum op_kind { OP_COPY, OP_SET, OP_RECORD, OP_WAIT, OP_HOST, OP_FREE };

/* One end of a copy: device memory, or host memory. */
struct side {
	struct store *store;
	uint64_t offset; /* in the store, or the address in host memory */
	uint64_t address, id; /* of the range that it was; id 0: the host's, unknown to us */
};

struct op {
	struct op *next;
	struct stream *stream;
	enum op_kind kind;
	uint64_t seq, not_before; /* not_before 0: not at the head yet */
	struct side dst, src;
	uint64_t n;
	uint32_t pattern;
	unsigned width; /* of the pattern, bytes */
	char *staged;	/* the source, copied at the call */
	struct mark *mark;
	CUhostFn fn;
	void *arg;
	bool waited, done; /* a caller waits, who frees it; it has ended */
	CUresult result;
};

struct stream {
	struct stream *next; /* of the context */
	struct ctx *ctx;
	unsigned flags;
	struct op *head, *tail;
	bool busy, closing;
};

struct event {
	struct event *next;
	struct ctx *ctx;
	unsigned flags;
	struct mark *mark; /* of the last record; NULL: never recorded */
};

struct ctx {
	struct ctx *next;
	int device;
	bool primary, active, stopping;
	unsigned retained, flags;
	uint64_t generation; /* of a primary context: it comes back under the same handle */
	CUresult error;	     /* sticky */
	unsigned peers;	     /* a bit per device */
	struct stream *streams; /* the first is stream 0 */
	struct event *events;
	struct op *host_op; /* for the thread that runs host functions */
	pthread_t engine, host;
	int scratch; /* a memfd for copies from host to host */
	uint64_t rng;
};

/* ---- the library ---- */

struct lib {
	pthread_mutex_t mu;
	pthread_cond_t changed;
	bool initialized;
	struct knobs knobs;
	struct fail ordered; /* by softcuda_fail */
	struct device devices[MAX_DEVICES];
	unsigned ndevices;
	struct ctx *contexts;
	uint64_t seq, rng, next_id;
	uint64_t counters[COUNTER_COUNT];
};

extern struct lib lib;
extern atomic_bool forked;
extern _Thread_local bool in_host_function;

/* base.c */
CUresult begin(const char *call);
CUresult end(CUresult r);
void count(enum counter c, int64_t n);
uint64_t now_ns(void);
uint64_t next_random(uint64_t *state);
void pause_ns(uint64_t ns);
void report(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void debug(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
CUresult fail_now(const char *call, CUresult usual);

#define BEGIN(call)                                                                                                 \
	do {                                                                                                        \
		CUresult begin_ = begin(#call);                                                                     \
		if (begin_)                                                                                         \
			return begin_;                                                                              \
	} while (0)

/* knobs.c */
int knobs_read(struct knobs *k);

#endif
