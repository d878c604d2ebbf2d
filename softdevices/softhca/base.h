/* Lists, timers, knobs and the names of the counters. */
#ifndef BASE_H
#define BASE_H

#include <stdbool.h>
#include <stdint.h>

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
	struct list link; /* in engine.ready while queued; guarded by engine.doorbell_mu */
	bool queued;
	void (*run)(struct work *w);
};

/* ---- knobs ---- */

enum fail_kind { FAIL_SEND, FAIL_WRITE, FAIL_READ, FAIL_ATOMIC, FAIL_FIN, FAIL_REG, FAIL_KINDS };

enum { PKEYS_MOST = 16 };

struct knobs {
	char dir[256];
	bool seeded;
	uint64_t seed;
	uint64_t list_delay, flush_delay; /* ns */
	unsigned rnr, drop, drop_ack; /* per thousand */
	uint64_t fail[FAIL_KINDS]; /* the number of the one that fails; 0: none */
	bool tm;
	uint32_t max_tags, max_ops, max_inline, max_rd;
	uint64_t max_msg;
	uint16_t pkeys[PKEYS_MOST]; /* the port's partitions */
	unsigned npkeys;
	uint64_t memlock; /* bytes that may be registered, UINT64_MAX: any number */
	double retry_scale;
	bool wire;  /* ports of one process talk over a socket as well */
	bool readv; /* may use process_vm_readv */
	bool debug;
	bool pages; /* regions keep their physical pages: pages.c */
};

int knobs_read(struct knobs *k); /* 0, or -1 after a message on stderr */

/* ---- counters ---- */

#define COUNTERS(X)                                                                                                  \
	X(sends) X(send_bytes) X(recvs) X(recv_bytes) X(writes) X(write_bytes) X(reads) X(read_bytes) X(atomics)     \
	X(fins) X(acks) X(naks) X(rnr) X(retries) X(dropped) X(duplicates) X(cqes) X(cq_events) X(async_events)      \
	X(tm_matched) X(tm_unexpected) X(tm_added) X(tm_deleted) X(tm_syncs) X(tm_rndv) X(tm_rndv_incomplete)        \
	X(tm_no_tag) X(tm_inert) X(payload_copies_by_cpu) X(inline_posts) X(posts) X(posted_sends) X(posted_recvs)   \
	X(posted_ops) X(polls) X(qps) X(mrs) X(mr_bytes) X(cqs) X(srqs) X(pds) X(registrations) X(qp_errors)         \
	X(stale_epochs) X(qp_memory) X(inline_wire) X(pulls) X(stale_pages)

enum counter {
#define X(n) C_##n,
	COUNTERS(X)
#undef X
	COUNTER_COUNT
};

#endif
