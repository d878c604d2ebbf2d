/*
 * Layer base: lists, timers, knobs, counters, the port and the engine of the process.
 *
 * One engine per process: a thread, an epoll set, one socket to each peer process. Each ibv_context of the process is
 * a port of that engine with a LID of its own; ports of one process reach each other without a socket.
 *
 * Each layer has one header, which includes the header of the layer below. A file includes the header of its own
 * layer, so a call to a higher layer does not compile; README.md has the order of the files.
 *
 * Locks, in the order in which they are taken:
 *   engine (engine_lock)  everything but the rings below: tables, states, connections, timers. A ticket lock, held by
 *                         the HCA thread while it works and by control verbs. Data verbs never take it.
 *   qp->post_mu, rq->mu   serialise the producers of a work queue; the HCA thread consumes without them.
 *   cq->mu, event queue   leaves.
 *   engine.doorbell_mu    the ready list and the sleeping flag; a leaf.
 */
#ifndef BASE_H
#define BASE_H

#define _GNU_SOURCE
#include <infiniband/tm_types.h>
#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/uio.h>

#include "softhca.h"

/* The header's macros would rename what is defined here. */
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define EXPORT __attribute__((visibility("default")))
#define container_of(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

enum {
	MAX_SGE = 30,
	LIDS_PER_SLOT = 64,
	SLOTS = 767,		  /* unicast LIDs end at 0xbfff */
	LIDS = SLOTS * LIDS_PER_SLOT + 1,
};

/* ---- lists and timers ---- */

struct list {
	struct list *prev, *next;
};

static inline void list_init(struct list *l)
{
	l->prev = l->next = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

static inline void list_add_tail(struct list *head, struct list *n)
{
	n->prev = head->prev;
	n->next = head;
	head->prev->next = n;
	head->prev = n;
}

static inline void list_del(struct list *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
	list_init(n);
}

#define list_for_each(pos, tmp, head) \
	for (pos = (head)->next, tmp = pos->next; pos != (head); pos = tmp, tmp = pos->next)

struct timer {
	struct list link; /* in engine.timers while armed */
	uint64_t at;	  /* CLOCK_MONOTONIC, ns */
	void (*fire)(struct timer *t);
};

/* Work for the HCA thread: a QP with new requests, a queue of list operations, a failed CQ. */
struct work {
	struct list link; /* in the list of ready work while queued; guarded by engine.doorbell_mu */
	bool queued;
	void (*run)(struct work *w);
};

/* ---- knobs ---- */

enum fail_kind { FAIL_SEND, FAIL_WRITE, FAIL_READ, FAIL_ATOMIC, FAIL_FIN, FAIL_REG, FAIL_POLL, FAIL_KINDS };

enum { PKEYS_MOST = 128, GIDS_ROCE = 4, SL_ANY = 16, HOLES_MOST = 8 };

/* What does not get through from the ports of a subnet: packets with more bytes than that; -1: none do. */
struct hole {
	uint16_t subnet;
	int64_t bytes;
};

/* What the device is: SOFTHCA_MODE. */
enum mode {
	MODE_IB,
	MODE_ROCE,	/* an Ethernet port: a GRH is required, and a TM-SRQ is refused */
	MODE_VF,	/* a function of an InfiniBand device: a GRH is required, no atomics, a long table of P_Keys */
	MODE_TWO_PORTS, /* both are active, each has a LID */
	MODE_EFA,	/* devices that cannot serve a program for RC stand before softhca0 */
	MODE_MLX5,	/* completions of tag matching as rdma-core's provider mlx5 reports them */
};

struct knobs {
	enum mode mode;
	char dir[256];
	bool seeded;
	uint64_t seed;
	uint64_t list_delay, flush_delay; /* ns */
	unsigned rnr, drop, drop_ack; /* per thousand */
	uint64_t fail[FAIL_KINDS]; /* the number of the one that fails; 0: none */
	bool tm;
	uint32_t max_tags, max_ops, max_inline, max_rd, max_qp;
	uint64_t max_msg;
	uint16_t pkeys[PKEYS_MOST]; /* the port's partitions */
	unsigned npkeys;
	uint64_t memlock; /* bytes that may be registered, UINT64_MAX: any number */
	double retry_scale;
	bool wire;  /* ports of one process talk over a socket as well */
	bool readv; /* may use process_vm_readv */
	bool dmabuf; /* registers memory of another device */
	char peermem[256]; /* the library of the GPU whose addresses are registered; empty: none are */
	bool debug;
	uint32_t ifindex; /* of the network device that all GIDs are of; 0: none */
	bool gid_ex; /* _ibv_query_gid_ex works: rdma-core 32 */
	uint32_t sl; /* of the path; SL_ANY: the fabric looks at none */
	uint16_t subnet; /* the last 16 bits of the subnet prefix */
	struct hole holes[HOLES_MOST];
	unsigned nholes;
	bool pages; /* regions keep their physical pages: pages.c */
};

/* ---- counters ---- */

#define COUNTERS(X)                                                                                                  \
	X(sends) X(send_bytes) X(recvs) X(recv_bytes) X(writes) X(write_bytes) X(reads) X(read_bytes) X(atomics)     \
	X(fins) X(acks) X(naks) X(rnr) X(retries) X(dropped) X(duplicates) X(cqes) X(cq_events) X(async_events)      \
	X(tm_matched) X(tm_unexpected) X(tm_added) X(tm_deleted) X(tm_syncs) X(tm_rndv) X(tm_rndv_incomplete)        \
	X(tm_no_tag) X(tm_inert) X(payload_copies_by_cpu) X(inline_posts) X(posts) X(posted_sends) X(posted_recvs)   \
	X(posted_ops) X(polls) X(qps) X(mrs) X(mr_bytes) X(cqs) X(srqs) X(pds) X(registrations) X(qp_errors)         \
	X(stale_epochs) X(qp_memory) X(inline_wire) X(pulls) X(stale_pages) X(qps_made) X(modifies)                  \
	X(held_registrations) X(held_deregistrations) X(held_creations) X(held_destructions) X(relaxed_registrations)

enum counter {
#define X(n) C_##n,
	COUNTERS(X)
#undef X
	COUNTER_COUNT
};

/* ---- ports ---- */

/* Calls that are slow on a device: of memory; and ibv_create_qp and ibv_destroy_qp, which count as one byte. */
enum hold { HOLD_REGISTRATIONS, HOLD_DEREGISTRATIONS, HOLD_CREATIONS, HOLD_DESTRUCTIONS, HOLDS };

struct event_queue {
	pthread_mutex_t mu;
	struct list events;
	int fd; /* eventfd, a semaphore: never fewer tokens than events */
};

struct hca_ctx {
	struct knobs knobs;
	struct list link; /* engine.ports */
	uint16_t lid, lid2; /* of port 1, and of port 2 if there is one */
	bool paused, fatal, port_down;
	bool bare; /* it has neither SRQ nor RC */
	_Atomic bool polls_fail; /* each poll of each CQ does */
	bool lose; /* the next request */
	struct list held; /* packets that arrived while paused */
	_Atomic uint64_t hold_from[HOLDS]; /* calls of so many bytes wait; 0: none does */
	struct list qps, cqs;
	uint64_t rng;
	uint64_t seen[FAIL_KINDS];
	struct event_queue async;
	pthread_mutex_t ack_mu; /* acknowledged events, and the destroyers that wait for them */
	pthread_cond_t ack_cond;
	_Atomic uint64_t counters[COUNTER_COUNT];
	struct verbs_context v; /* ends with the ibv_context; must be last */
};

/* ---- the engine ---- */

struct engine {
	/* The ticket lock. */
	pthread_mutex_t mu;
	pthread_cond_t cond;
	uint64_t ticket, serving;

	pthread_mutex_t doorbell_mu;
	struct list ready;
	bool sleeping;

	bool running;
	bool stop;
	bool may_readv;
	bool reads_self; /* process_vm_readv works at least on ourselves */
	int pid;
	int epfd, doorbell_fd, dirfd;
	pthread_t thread;
	char dir[256];
	uint64_t rng;
	bool seeded;
	struct list ports, timers;
	struct list local; /* packets between ports of this process */
	struct hca_ctx *by_lid[LIDS];
};

extern struct engine engine;

/* engine.c */
uint64_t now_ns(void);
void engine_lock(void);
void engine_unlock(void);
void engine_wake(void);
void ring_doorbell(struct work *w);
void work_cancel(struct work *w);
struct work *work_next(void);
bool work_none(void);
void timer_arm(struct timer *t, uint64_t at);
void timer_stop(struct timer *t);
unsigned timers_run(void);
uint64_t timers_until(void);

#define GUID 0x0200534648410000ull /* 5346 4841: "SFHA", locally administered */

/* port.c */
unsigned port_count(const struct hca_ctx *ctx);
uint16_t port_lid(const struct hca_ctx *ctx, unsigned port);
bool port_gid(const struct hca_ctx *ctx, unsigned port, unsigned index, union ibv_gid *gid);
uint16_t gid_lid(const union ibv_gid *gid);
void debug(struct hca_ctx *ctx, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool fail_now(struct hca_ctx *ctx, enum fail_kind kind);
void hold(struct hca_ctx *ctx, enum hold what, uint64_t from);
void hold_release(struct hca_ctx *ctx, enum hold what);
void hold_await(struct hca_ctx *ctx, enum hold what, uint64_t bytes);
uint64_t next_random(uint64_t *state);
bool chance(struct hca_ctx *ctx, unsigned per_thousand);

static inline struct hca_ctx *to_ctx(struct ibv_context *c)
{
	return container_of(c, struct hca_ctx, v.context);
}

static inline void count(struct hca_ctx *ctx, enum counter c, uint64_t n)
{
	atomic_fetch_add_explicit(&ctx->counters[c], n, memory_order_relaxed);
}

#endif
