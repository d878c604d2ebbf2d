/* Tag matching: the list of a TM-SRQ, and rendezvous that the device carries out. */
#ifndef TM_H
#define TM_H

#include "hca.h"

enum entry_state { ENTRY_FREE, ENTRY_POSTED /* its ADD is on the way */, ENTRY_LISTED, ENTRY_DONE };

/*
 * A tagged buffer. From the ADD on it belongs to the device; it is free again when it is out of the list and all
 * completions that name it have been polled.
 */
struct tm_entry {
	struct list link; /* in tm_srq.entries while LISTED; engine lock */
	uint64_t tag, mask;
	uint64_t recv_wr_id;
	struct ibv_sge sge;
	uint32_t index;
	uint16_t gen;	  /* a handle is gen and index: a stale one finds no entry */
	bool active;
	uint8_t state;	  /* guarded by tm_srq.mu */
	uint16_t pending; /* completions not polled yet; guarded by tm_srq.mu */
	uint32_t next_free;
};

struct tm_op {
	uint64_t wr_id;
	uint64_t at; /* not before; SOFTHCA_LIST_DELAY */
	uint32_t handle;
	uint16_t count;
	uint8_t opcode, flags;
};

/*
 * hw counts the messages that were handed to software as unexpected, sw those that software has reported as handled.
 * While they differ, entries that are appended are stored and take nothing: a later message must not overtake, by way
 * of such an entry, an earlier one that software will match with it.
 */
struct tm_srq {
	struct hca_srq *srq;
	struct list link; /* all of them, for "resume" */
	uint16_t hw, sw;
	struct list entries; /* in the order of their ADDs */
	uint32_t inactive;
	pthread_mutex_t mu; /* a leaf: taken by posters, by pollers under cq->mu, by the engine */
	uint32_t max_tags, max_ops;
	uint32_t free_head, free_tail;
	struct tm_entry *table; /* index from 1 */
	struct tm_op *ops;
	uint32_t ops_posted, ops_freed; /* mu */
	uint32_t ops_taken;
	uint64_t last_at;
	struct work work;
	struct timer timer;
};

/* A rendezvous of the device: READ of the sender's buffer, FIN to the sender. */
struct tm_job {
	struct list link; /* qp->tm_waiting, or qp->tm_active while in the send queue */
	struct tm_srq *tm;
	struct tm_entry *entry;
	uint64_t va;
	uint32_t rkey, len;
	uint8_t fin[32];
};

struct tm_entry *tm_find(struct tm_srq *tm, uint64_t tag);
void tm_consume(struct tm_srq *tm, struct tm_entry *e, unsigned completions);
void tm_drop(struct tm_srq *tm, struct tm_entry *e);
void tm_push(struct tm_srq *tm, struct cqe *c);

#endif
