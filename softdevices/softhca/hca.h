/*
 * The internals of the software HCA.
 *
 * One engine per process: a thread, an epoll set, one socket to each peer process. Each ibv_context of the process is
 * a port of that engine with a LID of its own; ports of one process reach each other without a socket.
 *
 * Locks, in the order in which they are taken:
 *   engine (engine_lock)  everything but the rings below: tables, states, connections, timers. A ticket lock, held by
 *                         the HCA thread while it works and by control verbs. Data verbs never take it.
 *   qp->post_mu, rq->mu   serialise the producers of a work queue; the HCA thread consumes without them.
 *   cq->mu, event queue   leaves.
 *   engine.doorbell_mu        the ready list and the sleeping flag; a leaf.
 */
#ifndef HCA_H
#define HCA_H

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
	MAX_WR = 32768,
	MAX_CQE = 1 << 22,
	MTU_BYTES = 4096,
	TM_MIN_BUFFERS = 33,	  /* mlx5 needs that many posted before it matches */
	TM_RNDV_HDR = 64,	  /* the longest rendezvous request: TMH, RVH and 32 bytes of the user */
	INLINE_WIRE = 1024,	  /* up to here the payload travels in the packet even where memory could be read */
	LIDS_PER_SLOT = 64,
	SLOTS = 767,		  /* unicast LIDs end at 0xbfff */
	LIDS = SLOTS * LIDS_PER_SLOT + 1,
	PSN_MASK = 0xffffff,
};

#include "base.h"

/* ---- objects ---- */

struct event_queue {
	pthread_mutex_t mu;
	struct list events;
	int fd; /* eventfd, a semaphore: never fewer tokens than events */
};

struct hca_ctx {
	struct knobs knobs;
	struct list link; /* engine.ports */
	uint16_t lid;
	bool paused, fatal, port_down;
	struct list held; /* packets that arrived while paused */
	struct list qps, cqs;
	uint64_t rng;
	uint64_t seen[FAIL_KINDS];
	struct event_queue async;
	pthread_mutex_t ack_mu; /* acknowledged events, and the destroyers that wait for them */
	pthread_cond_t ack_cond;
	_Atomic uint64_t counters[COUNTER_COUNT];
	struct verbs_context v; /* ends with the ibv_context; must be last */
};

struct hca_pd {
	struct ibv_pd pub;
	atomic_int refs;
};

struct hca_mr {
	struct ibv_mr pub;
	uint64_t iova;
	unsigned access;
	uint32_t slot;
	struct pages *pages; /* NULL: goes by virtual addresses */
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

/* A receive queue: that of a QP, or of an SRQ. Places are freed by polling, as the provider of a real device does. */
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
	WQE_DEVICE = 16, /* made by the device for an offloaded rendezvous: completes to tm.c */
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
	struct list conn_link;	    /* waits for a connection */
	struct list tm_waiting;	    /* rendezvous of the device that wait for a place in the send queue */
	struct list tm_active;	    /* and those that are in it */

	/* responder */
	struct hca_rq *rq;	    /* its own or the SRQ's */
	struct hca_rq *own_rq;
	uint32_t epsn;
	bool nak_sent;
	struct atomic_result *atomics;
};

/* ---- packets ---- */

enum pkt_op {
	PKT_HELLO = 1, PKT_WELCOME, PKT_READY,
	PKT_SEND, PKT_WRITE, PKT_READ, PKT_ATOMIC_ADD, PKT_ATOMIC_SWAP,
	PKT_ACK, PKT_READ_OK, PKT_ATOMIC_OK, PKT_NAK, PKT_RNR, PKT_SEQ, PKT_GONE,
};

enum {
	PKT_IMM = 1,
	PKT_SOLICITED = 2,
	PKT_PAYLOAD = 4,      /* the data follows */
	PKT_WANT_PAYLOAD = 8, /* of a READ: the requester cannot read the responder's memory */
	PKT_FIN = 16,
	PKT_RETRY = 32,
};

/* The head of a packet; then niov struct iovec of the sender's memory, then payload bytes. */
struct pkt_head {
	uint32_t size; /* of all that follows the head */
	uint8_t op, flags;
	uint8_t status; /* NAK: enum ibv_wc_status; RNR: the timer's code */
	uint8_t rd_out;
	uint16_t slid, dlid;
	uint32_t sqpn, dqpn;
	uint32_t psn;
	uint32_t imm;
	uint32_t rkey;
	uint32_t niov;
	uint16_t pkey, zero; /* requests only: an answer is for a requester that was admitted */
	uint64_t raddr;
	uint64_t len;	     /* of the message */
	uint64_t a, b;	     /* operands and result of an atomic; READ_OK: where the memory lies */
	uint64_t gen_addr;   /* of the generation that says whether the memory is still the meant one */
	uint32_t gen;
	uint32_t payload;
};

struct pkt {
	struct list link;
	struct conn *from; /* NULL: of this process; answers go back there */
	int pid;
	struct pkt_head h;
	uint8_t body[]; /* h.size bytes */
};

/* ---- the engine ---- */

enum conn_state { CONN_GREETING, CONN_READY };

struct conn {
	struct list link; /* engine.conns */
	int fd;
	int slot;	  /* that it leads to; -1: the peer connected */
	int pid;
	enum conn_state state;
	bool peer_reads;  /* the peer can read our memory: SEND and WRITE need no payload */
	bool we_read;	  /* we can read the peer's: READs come without payload */
	bool want_out;
	struct list out;  /* packets that did not fit into the socket */
	size_t out_off;
	struct list waiters; /* QPs that wait for the greeting */
	struct pkt_head in_head;
	size_t in_got;
	struct pkt *in;
	uint64_t magic;
};

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
	struct list ports, conns, timers, local;
	struct hca_ctx *by_lid[LIDS];
	struct conn *by_slot[SLOTS];
	struct slot_hold {
		int lock_fd, listen_fd;
	} held[SLOTS];
	uint64_t nports;
};

extern struct engine engine;

void engine_lock(void);
void engine_unlock(void);
int engine_attach(struct hca_ctx *ctx); /* starts the engine, gives the port a LID; errno or 0 */
void engine_detach(struct hca_ctx *ctx);
void ring_doorbell(struct work *w);
void work_cancel(struct work *w);
void timer_arm(struct timer *t, uint64_t at);
void timer_stop(struct timer *t);
uint64_t now_ns(void);
uint64_t next_random(uint64_t *state);
bool chance(struct hca_ctx *ctx, unsigned per_thousand);
void deliver(struct pkt *p); /* to a port of this process; owns p */

/* slots.c */
int slots_take_lid(uint16_t *lid);
void slots_drop_lid(uint16_t lid);
void slots_close(void);
int slots_connect(int slot);
int dir_open(const char *dir);

/* wire.c */
bool wire_self_test(void);
struct conn *wire_to(uint16_t lid); /* NULL: no process has the LID */
void wire_send(struct conn *c, struct pkt *p); /* owns p */
void wire_event(struct conn *c, uint32_t events);
void wire_accept(int listen_fd);
void wire_close_all(void);
struct pkt *pkt_new(size_t size);
void engine_arrive(struct pkt *p); /* a packet from a socket; owns p */

/* copy.c: every byte of a message goes through here */
int copy_pull(int pid, const struct iovec *dst, unsigned ndst, const struct iovec *src, unsigned nsrc, uint64_t len,
	      uint64_t gen_addr, uint32_t gen);
bool copy_is_ours(const struct iovec *iov, unsigned n);
int copy_local(const struct iovec *dst, unsigned ndst, const struct iovec *src, unsigned nsrc, uint64_t len);

/* ---- parts ---- */

static inline struct hca_ctx *to_ctx(struct ibv_context *c)
{
	return container_of(c, struct hca_ctx, v.context);
}

static inline void count(struct hca_ctx *ctx, enum counter c, uint64_t n)
{
	atomic_fetch_add_explicit(&ctx->counters[c], n, memory_order_relaxed);
}

void debug(struct hca_ctx *ctx, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool fail_now(struct hca_ctx *ctx, enum fail_kind kind);

/* event.c */
int events_open(struct event_queue *q);
void events_close(struct event_queue *q);
void events_put(struct event_queue *q, void *element, int type);
int events_get(struct event_queue *q, void **element, int *type, void (*taken)(void *element, int type));
void events_forget(struct event_queue *q, void *element);
void async_event(struct hca_ctx *ctx, enum ibv_event_type type, void *element);
void async_wait_acked(struct hca_ctx *ctx, uint32_t *taken, uint32_t *acked);

/* mr.c */
int mr_resolve(struct hca_ctx *ctx, struct ibv_pd *pd, uint32_t key, uint64_t addr, uint64_t len, unsigned access,
	       struct hca_mr **mr, uint64_t *va); /* enum ibv_wc_status */
int mr_gather(struct hca_qp *qp, struct ibv_pd *pd, const struct ibv_sge *sge, unsigned n, unsigned access,
	      struct iovec *iov);
struct mr_slot *mr_slot(uint32_t index);
void mr_detach_all(struct hca_ctx *ctx);

/* pages.c */
int pages_possible(void); /* 0, or -1 after a message on stderr */
int pages_pin(struct pages **out, void *addr, size_t length); /* errno or 0 */
void pages_unpin(struct pages *p);
uint64_t pages_at(struct hca_ctx *ctx, struct pages *p, uint64_t va, uint64_t len);

/* cq.c */
void cq_push(struct hca_cq *cq, const struct cqe *e, bool solicited);
void cq_forget(struct hca_cq *cq, struct hca_qp *qp, struct tm_srq *tm);
void cq_fail(struct hca_cq *cq);
bool cq_take(struct hca_cq *cq, struct cqe *e); /* cq->mu held */
void cqex_init(struct hca_cq *cq);
struct ibv_cq_ex *hca_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
int hca_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int hca_req_notify_cq(struct ibv_cq *cq, int solicited_only);

/* rq.c */
int rq_init(struct hca_rq *rq, uint32_t max_wr, uint32_t max_sge);
void rq_free(struct hca_rq *rq);
int rq_post(struct hca_ctx *ctx, struct hca_rq *rq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
bool rq_peek(struct hca_rq *rq, uint64_t *wr_id, struct ibv_sge **sges, uint32_t *n);
uint32_t rq_left(struct hca_rq *rq);
void rq_take(struct hca_qp *qp);
size_t rq_bytes(const struct hca_rq *rq);
int hca_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* srq.c */
int hca_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
struct ibv_srq *hca_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr);
int hca_get_srq_num(struct ibv_srq *srq, uint32_t *num);
static inline struct hca_srq *to_srq(struct ibv_srq *s)
{
	return (struct hca_srq *)s;
}

/* qp.c */
struct ibv_qp *hca_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
void qp_error(struct hca_qp *qp);
void qp_set_state(struct hca_qp *qp, enum ibv_qp_state s);
void qp_bump(struct hca_qp *qp);
struct hca_qp *qp_find(struct hca_ctx *ctx, uint32_t qpn);
struct qp_slot *qp_slot(uint32_t index);
void qp_detach_all(struct hca_ctx *ctx);
void qp_timer_stop(struct hca_qp *qp);

/* flush.c */
void qp_flush(struct hca_qp *qp);
void qp_flush_fire(struct timer *t);

/* post.c */
int hca_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);

static inline struct wqe *qp_wqe(struct hca_qp *qp, uint32_t i)
{
	return &qp->sq[i % qp->sq_depth];
}

static inline void *qp_area(struct hca_qp *qp, uint32_t i)
{
	return qp->area + (size_t)(i % qp->sq_depth) * qp->area_stride;
}

/* requester.c */
void requester_run(struct work *w);
void requester_stop(struct hca_qp *qp);
bool requester_flush_one(struct hca_qp *qp);
void requester_response(struct hca_qp *qp, struct pkt *p);
void requester_fail(struct hca_qp *qp, uint32_t index, enum ibv_wc_status status);
void requester_lost(struct hca_qp *qp);
void requester_conn_gone(struct conn *c);
void requester_retry_fire(struct timer *t);
void requester_wait_fire(struct timer *t);

/* responder.c */
void responder_request(struct hca_qp *qp, struct pkt *p);
bool responder_flush_one(struct hca_qp *qp);
void respond(struct hca_ctx *ctx, struct pkt *to, enum pkt_op op, uint8_t status);
void responder_complete(struct hca_qp *qp, struct pkt *p, struct cqe *e);
bool responder_receive(struct hca_qp *qp, struct pkt *p, enum ibv_wc_opcode opcode, unsigned wc_flags);
void responder_done(struct hca_qp *qp, struct pkt *p);
void responder_not_ready(struct hca_qp *qp, struct pkt *p);
void responder_refuse(struct hca_qp *qp, struct pkt *p, enum ibv_wc_status status);
enum ibv_wc_status responder_move(struct hca_qp *qp, struct pkt *p, const struct iovec *dst, unsigned ndst);
int payload_of(struct pkt *p, struct iovec *iov, unsigned *n, bool *by_pull);

/* tm.c, tmrecv.c */
struct tm_srq *tm_create(struct hca_srq *srq, struct ibv_tm_cap *cap);
void tm_destroy(struct tm_srq *tm);
void tm_receive(struct hca_qp *qp, struct pkt *p);
void tm_device_done(struct hca_qp *qp, struct wqe *w, enum ibv_wc_status status);
void tm_pump(struct hca_qp *qp);
bool tm_flush_one(struct hca_qp *qp);
void tm_forget(struct hca_qp *qp);
void tm_detach_all(struct hca_ctx *ctx);
void tm_resume(struct hca_ctx *ctx);
void tm_free_ops(struct tm_srq *tm, uint32_t op_index);
void tm_free_entry(struct tm_srq *tm, uint32_t index);
int hca_post_srq_ops(struct ibv_srq *srq, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad);

/* device.c */
int hca_query_device_ex(struct ibv_context *c, const struct ibv_query_device_ex_input *in,
			struct ibv_device_attr_ex *attr, size_t size);
int hca_query_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *attr, size_t size);

#endif
