/* Layer queues: memory regions, queue pairs, tags, completions, and the events of all of them. */
#ifndef QUEUES_H
#define QUEUES_H

#include "wire.h"

enum {
	MAX_WR = 32768,
	MAX_CQE = 1 << 22,
	TM_MIN_BUFFERS = 33,	  /* mlx5 needs that many posted before it matches */
	TM_RNDV_HDR = 64,	  /* the longest rendezvous request: TMH, RVH and 32 bytes of the user */
	PSN_MASK = 0xffffff,
};

/* ---- objects ---- */

struct hca_pd {
	struct ibv_pd pub;
	atomic_int refs;
};

struct hca_mr {
	struct ibv_mr pub;
	uint64_t iova, base; /* base: where the memory is; pub.addr, but for a dma-buf */
	unsigned access;
	uint32_t slot;
	struct pages *pages; /* NULL: goes by virtual addresses */
	void *mapping;	     /* of a dma-buf */
	size_t mapped;
};

/*
 * Slots of memory regions and queue pairs are never freed and keep a generation, so that another process can see
 * after it has read some memory whether the memory was still the one that it meant.
 */
struct mr_slot {
	_Atomic uint32_t gen;
	uint8_t salt;
	struct hca_mr *mr; /* NULL: free */
	uint32_t next_free;
};

struct qp_slot {
	_Atomic uint32_t gen;
	uint8_t salt;
	struct hca_qp *qp;
	uint32_t next_free;
};

/* The queue whose place is free again when the completion is polled. */
enum cqe_frees { FREES_NOTHING, FREES_SQ, FREES_RQ, FREES_TM_ENTRY };

struct cqe {
	uint64_t wr_id;
	uint64_t tm_tag;
	uint32_t tm_priv;
	uint32_t vendor_err;
	uint32_t byte_len;
	uint32_t imm;
	uint32_t qp_num, src_qp;
	uint16_t slid;
	uint16_t wc_flags;
	uint8_t status, opcode;
	uint8_t frees;
	uint8_t free_ops; /* an op of a TM-SRQ completed: all up to op_index are free */
	uint32_t index;	  /* of the send request, or the entry */
	uint32_t op_index;
	struct hca_qp *qp; /* that the completion is of; cleared from the queue when it is destroyed */
	struct hca_rq *rq;
	struct tm_srq *tm;
};

enum { ARM_NONE, ARM_SOLICITED, ARM_ANY };

struct hca_cq {
	struct ibv_cq_ex pub; /* must be first */
	struct hca_ctx *ctx;
	struct list link; /* ctx->cqs */
	pthread_mutex_t mu;
	struct cqe *ring;
	uint32_t head, count; /* guarded by mu */
	uint8_t arm;
	bool failed;	      /* overrun; nothing is added any more */
	bool polling;	      /* between start_poll and end_poll */
	bool with_tm_info;
	struct cqe cur;	      /* what the extended readers read */
	atomic_int refs;
	struct work fail_work;
	uint32_t events_taken; /* completion events handed out; guarded by the channel's queue */
	uint32_t async_taken;
};

struct hca_channel {
	struct ibv_comp_channel pub; /* must be first */
	struct event_queue q;
};

/* A receive request as it was posted; its SGEs lie behind the ring. */
struct recv_slot {
	uint64_t wr_id;
	uint32_t num_sge;
};

/* The receive queue of a QP or an SRQ. Places are freed by polling, as the provider of a real device does. */
struct hca_rq {
	pthread_mutex_t mu;
	uint32_t max_wr, max_sge;
	_Atomic uint32_t posted;
	uint32_t taken; /* by the HCA */
	_Atomic uint32_t freed;
	struct recv_slot *ring;
	struct ibv_sge *sges;
};

struct hca_srq {
	struct ibv_srq pub; /* must be first */
	struct hca_ctx *ctx;
	struct hca_rq rq;
	uint32_t limit;
	atomic_int refs;
	uint32_t async_taken;
	enum ibv_srq_type type;
	struct hca_cq *cq;  /* of a TM-SRQ, else NULL */
	struct tm_srq *tm;  /* of a TM-SRQ, else NULL */
	uint32_t num;
};

enum {
	WQE_SIGNALED = 1,
	WQE_SOLICITED = 2,
	WQE_FENCE = 4,
	WQE_INLINE = 8,
	WQE_DEVICE = 16, /* made by the device for an offloaded rendezvous: completes to the matcher */
	WQE_SENT = 32,     /* at least once: what follows is a retry */
	WQE_ANSWERED = 64, /* the data of a READ, the result of an atomic is there */
};

/* A send request; SGEs or inline data lie in its part of qp->area. */
struct wqe {
	uint64_t wr_id;
	uint64_t raddr;
	uint32_t rkey;
	uint32_t imm;
	uint32_t len;
	uint8_t opcode, flags, num_sge, pad;
};

struct atomic_result {
	uint32_t psn;
	uint64_t old;
	bool valid;
};

/* Matching for a queue pair of a TM-SRQ. The layers below matching reach it through qp->matcher. */
struct matcher {
	void (*receive)(struct hca_qp *qp, struct pkt *p);
	void (*device_done)(struct hca_qp *qp, struct wqe *w, enum ibv_wc_status status);
	void (*pump)(struct hca_qp *qp);
	bool (*flush_one)(struct hca_qp *qp);
	void (*forget)(struct hca_qp *qp);
};

/* verbs_qp.c sets what is called from below: work.run, the timers' fire, flush and matcher. */
struct hca_qp {
	struct ibv_qp pub; /* must be first */
	struct hca_ctx *ctx;
	struct list link; /* ctx->qps */
	uint32_t slot;
	enum ibv_qp_state state; /* engine; mirrored in the atomic below for the data verbs */
	atomic_int post_state;
	struct ibv_qp_cap cap;
	bool sig_all, sqd_notify, draining;
	bool last_wqe_told;
	uint32_t async_taken;

	/* attributes */
	uint16_t dlid;
	uint8_t sl, max_rd, max_dest_rd, min_rnr_timer, timeout, retry_cnt, rnr_retry, path_mtu, port_num;
	uint16_t pkey_index;
	uint32_t access, sq_psn0, rq_psn0;
	uint32_t dest_qpn;
	struct ibv_ah_attr av;

	/* requester */
	pthread_mutex_t post_mu;
	uint32_t sq_depth, area_stride;
	struct wqe *sq;
	uint8_t *area;
	_Atomic uint32_t sq_posted; /* written by post_send */
	_Atomic uint32_t sq_freed;  /* written by polling */
	uint32_t sq_next, sq_una;   /* next to be sent, oldest not acknowledged */
	uint32_t rd_out;	    /* READs and atomics in [una, next) */
	uint32_t sq_drain_at;
	uint8_t retries, rnr_retries;
	bool implied;		    /* an answer out of its turn has made us go back; not again before progress */
	bool lost;		    /* something in [una, next) did not reach its destination */
	bool failing;		    /* the request sq_fail ends with fail_status once all before it are done */
	uint32_t sq_fail;
	uint8_t fail_status;
	uint64_t not_before;	    /* RNR or a seeded delay */
	struct timer retry_timer, wait_timer, flush_timer;
	struct work work;
	void (*flush)(struct hca_qp *qp); /* in the error state: gives back what is posted */
	const struct matcher *matcher;	  /* NULL: not of a TM-SRQ */
	struct conn_waiter conn_wait;
	struct list tm_waiting;	    /* rendezvous of the device that wait for a place in the send queue */
	struct list tm_active;	    /* and those that are in it */

	/* responder */
	struct hca_rq *rq;	    /* its own or the SRQ's */
	struct hca_rq *own_rq;
	uint32_t epsn;
	bool nak_sent;
	struct atomic_result *atomics;
};

/* ---- tags ---- */

enum { TAGS_INDEX = 0x1ffff }; /* the bits of a handle that are an index */

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
	uint16_t phase;	  /* what its ADD has said of the messages that software has handled */
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

/* ---- parts ---- */

/* event.c */
int events_open(struct event_queue *q);
void events_close(struct event_queue *q);
void events_put(struct event_queue *q, void *element, int type);
int events_get(struct event_queue *q, void **element, int *type, void (*taken)(void *element, int type));
void events_forget(struct event_queue *q, void *element);
void async_event(struct hca_ctx *ctx, enum ibv_event_type type, void *element);
void async_port_event(struct hca_ctx *ctx, enum ibv_event_type type);
void async_wait_acked(struct hca_ctx *ctx, uint32_t *taken, uint32_t *acked);

/* mr.c */
int mr_resolve(struct hca_ctx *ctx, struct ibv_pd *pd, uint32_t key, uint64_t addr, uint64_t len, unsigned access,
	       struct hca_mr **mr, uint64_t *va); /* enum ibv_wc_status */
int mr_gather(struct hca_qp *qp, struct ibv_pd *pd, const struct ibv_sge *sge, unsigned n, unsigned access,
	      struct iovec *iov);
struct mr_slot *mr_slot(uint32_t index);
void mr_detach_all(struct hca_ctx *ctx);

/* dmabuf.c */
int dmabuf_map(int fd, uint64_t offset, size_t length, void **mapping, size_t *mapped); /* errno or 0 */
int peer_pages(const char *library, uint64_t addr, size_t length);

/* pages.c */
int pages_possible(void); /* 0, or -1 after a message on stderr */
int pages_pin(struct pages **out, void *addr, size_t length); /* errno or 0 */
void pages_unpin(struct pages *p);
uint64_t pages_at(struct hca_ctx *ctx, struct pages *p, uint64_t va, uint64_t len);

/* qp.c */
int qp_attach(struct hca_qp *qp); /* 0, or ENOMEM: there are too many */
void qp_detach(struct hca_qp *qp);
void qp_detach_all(struct hca_ctx *ctx);
void qp_error(struct hca_qp *qp);
void qp_set_state(struct hca_qp *qp, enum ibv_qp_state s);
void qp_bump(struct hca_qp *qp);
void qp_forget_jobs(struct hca_qp *qp);
struct hca_qp *qp_find(struct hca_ctx *ctx, uint32_t qpn);
struct qp_slot *qp_slot(uint32_t index);
void qp_timer_stop(struct hca_qp *qp);

/* tags.c */
struct tm_srq *tags_new(const struct ibv_tm_cap *cap); /* NULL: no memory */
void tags_free(struct tm_srq *tm);
uint32_t tags_handle(const struct tm_entry *e);
struct tm_entry *tags_take(struct tm_srq *tm);
struct tm_entry *tags_listed(struct tm_srq *tm, uint32_t handle);
struct tm_entry *tags_find(struct tm_srq *tm, uint64_t tag);
void tags_consume(struct tm_srq *tm, struct tm_entry *e, unsigned completions);
void tags_polled(struct tm_srq *tm, uint32_t index);
void tags_op_polled(struct tm_srq *tm, uint32_t op_index);

/* cq.c */
void cq_push(struct hca_cq *cq, const struct cqe *e, bool solicited);
void cq_forget(struct hca_cq *cq, struct hca_qp *qp, struct tm_srq *tm);
void cq_fail(struct hca_cq *cq);
void cq_fail_run(struct work *w);
bool cq_take(struct hca_cq *cq, struct cqe *e); /* cq->mu held */

/* rq.c */
int rq_init(struct hca_rq *rq, uint32_t max_wr, uint32_t max_sge);
void rq_free(struct hca_rq *rq);
int rq_post(struct hca_ctx *ctx, struct hca_rq *rq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
bool rq_peek(struct hca_rq *rq, uint64_t *wr_id, struct ibv_sge **sges, uint32_t *n);
uint32_t rq_left(struct hca_rq *rq);
void rq_take(struct hca_qp *qp);
size_t rq_bytes(const struct hca_rq *rq);
int hca_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* post.c */
int hca_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);

static inline struct hca_srq *to_srq(struct ibv_srq *s)
{
	return (struct hca_srq *)s;
}

static inline struct wqe *qp_wqe(struct hca_qp *qp, uint32_t i)
{
	return &qp->sq[i % qp->sq_depth];
}

static inline void *qp_area(struct hca_qp *qp, uint32_t i)
{
	return qp->area + (size_t)(i % qp->sq_depth) * qp->area_stride;
}

#endif
