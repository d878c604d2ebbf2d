/* Messages that arrive at a TM-SRQ, and rendezvous that the device carries out by itself. */
#include "matching.h"

#include <arpa/inet.h>
#include <endian.h>
#include <stdlib.h>

enum { TMH = sizeof(struct ibv_tmh), RNDV = TMH + sizeof(struct ibv_rvh), RING = 32 };

/* The first bytes of a message. 0, or as copy_pull. */
static int peek(struct pkt *p, uint8_t *head, size_t n)
{
	struct iovec src[MAX_SGE], dst = { head, n };
	unsigned nsrc;
	bool pull;

	if (payload_of(p, src, &nsrc, &pull))
		return EPROTO;
	if (!pull) {
		memcpy(head, p->body, n);
		return 0;
	}
	return copy_pull(p->pid, &dst, 1, src, nsrc, n, p->h.gen_addr, p->h.gen);
}

/* The bytes behind the TMH to where the entry says. */
static enum ibv_wc_status move_payload(struct hca_qp *qp, struct pkt *p, const struct iovec *dst, uint64_t len)
{
	uint8_t tmh[TMH];
	struct iovec iov[2] = { { tmh, TMH }, { dst->iov_base, len } };

	return responder_move(qp, p, iov, 2);
}

static unsigned mtu(const struct hca_qp *qp)
{
	return 128u << qp->path_mtu;
}

/* A completion of a tagged buffer. */
static void entry_done(struct hca_qp *qp, struct pkt *p, struct tm_srq *tm, struct tm_entry *e, struct cqe c)
{
	c.wr_id = e->recv_wr_id;
	c.opcode = IBV_WC_TM_RECV;
	c.frees = FREES_TM_ENTRY;
	c.index = e->index;
	c.tm = tm;
	responder_complete(qp, p, &c);
}

/* The buffer of an entry. Its PD is the SRQ's. */
static int entry_memory(struct tm_srq *tm, struct hca_qp *qp, struct tm_entry *e, struct iovec *iov)
{
	return mr_gather(qp, tm->srq->pub.pd, &e->sge, 1, IBV_ACCESS_LOCAL_WRITE, iov);
}

static bool mlx5(const struct hca_qp *qp)
{
	return qp->ctx->knobs.mode == MODE_MLX5;
}

/*
 * The provider mlx5 looks an error of the responder up among the SRQ's buffers, and frees the place of the one that it
 * finds, also if the message was for a tagged buffer: the device still has that buffer. The entry is never named again.
 */
static void error_of_another(struct hca_qp *qp, struct pkt *p, enum ibv_wc_status status)
{
	struct cqe c = { .status = (uint8_t)status, .opcode = IBV_WC_RECV, .frees = FREES_RQ, .rq = qp->rq };
	struct ibv_sge *sges;
	uint32_t n;

	if (rq_peek(qp->rq, &c.wr_id, &sges, &n))
		responder_complete(qp, p, &c);
}

/* The entry is used up, the message is refused, and the QP is in error. */
static void entry_fails(struct hca_qp *qp, struct pkt *p, struct tm_srq *tm, struct tm_entry *e,
			enum ibv_wc_status ours, enum ibv_wc_status theirs)
{
	p->h.flags &= (uint8_t)~PKT_IMM;
	responder_refuse(qp, p, theirs);
	tags_consume(tm, e, 1);
	if (mlx5(qp))
		error_of_another(qp, p, ours);
	else
		entry_done(qp, p, tm, e, (struct cqe){ .status = ours });
	qp_error(qp);
}

static void eager_match(struct hca_qp *qp, struct pkt *p, struct tm_srq *tm, struct tm_entry *e, struct ibv_tmh *h)
{
	struct cqe c = { .wc_flags = IBV_WC_TM_MATCH, .tm_tag = be64toh(h->tag), .tm_priv = ntohl(h->app_ctx) };
	uint64_t len = p->h.len - TMH;
	bool two = p->h.len > mtu(qp);
	uint8_t imm = p->h.flags & PKT_IMM;
	enum ibv_wc_status status;
	struct iovec iov;

	if (len > e->sge.length) {
		entry_fails(qp, p, tm, e, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR);
		return;
	}
	if (entry_memory(tm, qp, e, &iov)) {
		entry_fails(qp, p, tm, e, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
		return;
	}
	status = move_payload(qp, p, &iov, len);
	if (status == IBV_WC_REM_ABORT_ERR)
		return; /* the sender has given up */
	if (status != IBV_WC_SUCCESS) {
		entry_fails(qp, p, tm, e, IBV_WC_LOC_PROT_ERR,
			    status == IBV_WC_LOC_ACCESS_ERR ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_OP_ERR);
		return;
	}
	responder_done(qp, p);
	count(qp->ctx, C_tm_matched, 1);
	tags_consume(tm, e, two ? 2 : 1);
	if (two) { /* longer than a packet of the wire: MATCH comes with the first, the rest with the last */
		p->h.flags &= (uint8_t)~PKT_IMM;
		entry_done(qp, p, tm, e, c);
		c = (struct cqe){ 0 };
		p->h.flags |= imm;
	}
	c.wc_flags |= IBV_WC_TM_DATA_VALID;
	c.byte_len = (uint32_t)len;
	entry_done(qp, p, tm, e, c);
}

static void drop_job(struct tm_job *j)
{
	list_del(&j->link);
	timer_stop(&j->timer);
	tags_polled(j->tm, j->entry->index); /* the completion that was promised to it does not come */
	free(j);
}

/* The heads of an offer for software, which MATCH has announced, are in the buffer. */
static void offer_landed(struct timer *t)
{
	struct tm_job *j = container_of(t, struct tm_job, timer);
	struct iovec iov, src = { j->fin, RNDV };

	if (entry_memory(j->tm, j->qp, j->entry, &iov) || copy_local(&iov, 1, &src, 1, RNDV)) {
		qp_error(j->qp);
		drop_job(j);
		return;
	}
	list_del(&j->link);
	tm_push(j->tm, &(struct cqe){ .wr_id = j->entry->recv_wr_id, .opcode = IBV_WC_TM_RECV,
				      .wc_flags = IBV_WC_TM_DATA_VALID, .byte_len = RNDV, .frees = FREES_TM_ENTRY,
				      .index = j->entry->index, .qp = j->qp, .qp_num = j->qp->pub.qp_num,
				      .src_qp = j->qp->dest_qpn });
	free(j);
}

enum { OFFER_TAKES = 2000000 }; /* ns between the two completions of an offer */

/* As mlx5, for an offer in more than one packet: MATCH first (CONSUMED_SW_RNDV), the heads later (EXPECTED). */
static void offer_in_two(struct hca_qp *qp, struct pkt *p, struct tm_srq *tm, struct tm_entry *e, const uint8_t *head)
{
	struct tm_job *j = calloc(1, sizeof(*j));
	struct ibv_tmh h;

	if (!j) {
		entry_fails(qp, p, tm, e, IBV_WC_LOC_QP_OP_ERR, IBV_WC_REM_OP_ERR);
		return;
	}
	memcpy(&h, head, TMH);
	*j = (struct tm_job){ .qp = qp, .tm = tm, .entry = e };
	memcpy(j->fin, head, RNDV);
	list_init(&j->timer.link);
	j->timer.fire = offer_landed;
	responder_done(qp, p);
	count(qp->ctx, C_tm_rndv_incomplete, 1);
	tags_consume(tm, e, 2);
	list_add_tail(&qp->tm_active, &j->link);
	timer_arm(&j->timer, now_ns() + OFFER_TAKES);
	entry_done(qp, p, tm, e,
		   (struct cqe){ .status = IBV_WC_TM_RNDV_INCOMPLETE, .wc_flags = IBV_WC_TM_MATCH,
				 .tm_tag = be64toh(h.tag), .tm_priv = ntohl(h.app_ctx) });
}

/* The offered message does not fit: the heads go to the buffer, and software goes on from there. */
static void rndv_incomplete(struct hca_qp *qp, struct pkt *p, struct tm_srq *tm, struct tm_entry *e, uint8_t *head)
{
	struct ibv_tmh h;
	struct iovec iov, src = { head, RNDV };

	memcpy(&h, head, TMH);
	if (e->sge.length < RNDV) {
		entry_fails(qp, p, tm, e, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR);
		return;
	}
	if (mlx5(qp)) {
		offer_in_two(qp, p, tm, e, head);
		return;
	}
	if (entry_memory(tm, qp, e, &iov) || copy_local(&iov, 1, &src, 1, RNDV)) {
		entry_fails(qp, p, tm, e, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
		return;
	}
	responder_done(qp, p);
	count(qp->ctx, C_tm_rndv_incomplete, 1);
	tags_consume(tm, e, 1);
	entry_done(qp, p, tm, e,
		   (struct cqe){ .status = IBV_WC_TM_RNDV_INCOMPLETE, .wc_flags = IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID,
				 .byte_len = RNDV, .tm_tag = be64toh(h.tag), .tm_priv = ntohl(h.app_ctx) });
}

static void rndv_match(struct hca_qp *qp, struct pkt *p, struct tm_srq *tm, struct tm_entry *e, uint8_t *head)
{
	struct ibv_tmh h;
	struct ibv_rvh r;
	struct tm_job *j;

	memcpy(&h, head, TMH);
	memcpy(&r, head + TMH, sizeof(r));
	if (ntohl(r.len) > e->sge.length) {
		rndv_incomplete(qp, p, tm, e, head);
		return;
	}
	j = qp->cap.max_send_wr ? NULL : calloc(1, sizeof(*j));
	if (!j) {
		/* The device sends READ and FIN from a queue of its own, which a QP only has if the program has none. */
		debug(qp->ctx, "QP %u: a rendezvous for the device came to a QP with a send queue", qp->pub.qp_num);
		entry_fails(qp, p, tm, e, IBV_WC_LOC_QP_OP_ERR, IBV_WC_REM_OP_ERR);
		return;
	}
	*j = (struct tm_job){ .qp = qp, .tm = tm, .entry = e, .va = be64toh(r.va), .rkey = ntohl(r.rkey),
			      .len = ntohl(r.len) };
	list_init(&j->timer.link);
	memcpy(j->fin, head, RNDV);
	j->fin[0] = IBV_TMH_FIN;
	responder_done(qp, p);
	count(qp->ctx, C_tm_matched, 1);
	count(qp->ctx, C_tm_rndv, 1);
	tags_consume(tm, e, 2);
	entry_done(qp, p, tm, e, (struct cqe){ .wc_flags = IBV_WC_TM_MATCH, .tm_tag = be64toh(h.tag),
					       .tm_priv = ntohl(h.app_ctx) });
	list_add_tail(&qp->tm_waiting, &j->link);
	ring_doorbell(&qp->work);
}

/* For software, and counted: until software reports that it has handled it, what it appends takes nothing. */
static void unexpected(struct hca_qp *qp, struct pkt *p, struct tm_srq *tm)
{
	bool sync = (uint16_t)(tm->hw + 1 - tm->sw) > 0x3fff;

	if (!responder_receive(qp, p, IBV_WC_TM_RECV, sync ? IBV_WC_TM_SYNC_REQ : 0))
		return;
	tm->hw++;
	count(qp->ctx, C_tm_unexpected, 1);
}

/* 0 if the length of a message fits what its first byte says. */
static int check_length(const struct pkt *p, uint8_t opcode)
{
	switch (opcode) {
	case IBV_TMH_NO_TAG:
	case IBV_TMH_FIN:
		return 0;
	case IBV_TMH_EAGER:
		return p->h.len < TMH;
	case IBV_TMH_RNDV:
		return p->h.len < RNDV || p->h.len > TM_RNDV_HDR;
	default:
		return -1;
	}
}

/* A message has come to a QP of a TM-SRQ. */
static void receive(struct hca_qp *qp, struct pkt *p)
{
	struct tm_srq *tm = to_srq(qp->pub.srq)->tm;
	uint8_t head[RNDV] = { 0 };
	struct tm_entry *e;
	struct ibv_tmh h;
	int err;

	if (atomic_load(&qp->rq->posted) < TM_MIN_BUFFERS) {
		debug(qp->ctx, "TM-SRQ: %u buffers posted so far, the device wants %d before it takes anything",
		      atomic_load(&qp->rq->posted), TM_MIN_BUFFERS);
		responder_not_ready(qp, p);
		return;
	}
	err = p->h.len ? peek(p, head, MIN(p->h.len, (uint64_t)RNDV)) : EPROTO;
	if (err == ESTALE || err == ESRCH)
		return; /* the sender has given up */
	if (err || check_length(p, head[0])) {
		debug(qp->ctx, "TM-SRQ: a message of %llu bytes that begins with %u is none", (unsigned long long)p->h.len,
		      head[0]);
		responder_refuse(qp, p, err == EFAULT ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_INV_REQ_ERR);
		qp_error(qp);
		return;
	}
	if (head[0] == IBV_TMH_NO_TAG || head[0] == IBV_TMH_FIN) {
		if (responder_receive(qp, p, IBV_WC_TM_NO_TAG, 0))
			count(qp->ctx, C_tm_no_tag, 1);
		return;
	}
	memcpy(&h, head, TMH);
	e = tags_find(tm, be64toh(h.tag));
	if (!e)
		unexpected(qp, p, tm);
	else if (head[0] == IBV_TMH_EAGER)
		eager_match(qp, p, tm, e, &h);
	else
		rndv_match(qp, p, tm, e, head);
}

/* The send queue of the device, made when it is first needed. */
static bool ring_ready(struct hca_qp *qp)
{
	if (qp->sq)
		return true;
	qp->area_stride = MAX((uint32_t)RNDV, (uint32_t)sizeof(struct ibv_sge) + 16);
	qp->sq = calloc(RING, sizeof(*qp->sq));
	qp->area = calloc(RING, qp->area_stride);
	if (!qp->sq || !qp->area)
		return false;
	qp->sq_depth = RING;
	return true;
}

static void queue_job(struct hca_qp *qp, struct tm_job *j)
{
	uint32_t i = atomic_load(&qp->sq_posted);

	*qp_wqe(qp, i) = (struct wqe){ .wr_id = (uintptr_t)j, .opcode = IBV_WR_RDMA_READ, .flags = WQE_DEVICE,
				       .num_sge = 1, .raddr = j->va, .rkey = j->rkey, .len = j->len };
	memcpy(qp_area(qp, i), &(struct ibv_sge){ j->entry->sge.addr, j->len, j->entry->sge.lkey },
	       sizeof(struct ibv_sge));
	/* Fenced: with the FIN the sender may take its memory back. */
	*qp_wqe(qp, i + 1) = (struct wqe){ .opcode = IBV_WR_SEND, .flags = WQE_DEVICE | WQE_INLINE | WQE_FENCE,
					   .len = RNDV };
	memcpy(qp_area(qp, i + 1), j->fin, RNDV);
	atomic_store(&qp->sq_posted, i + 2);
	list_del(&j->link);
	list_add_tail(&qp->tm_active, &j->link);
}

/* Moves rendezvous that wait into the send queue. */
static void pump(struct hca_qp *qp)
{
	while (!list_empty(&qp->tm_waiting) && qp->state == IBV_QPS_RTS && ring_ready(qp) &&
	       atomic_load(&qp->sq_posted) - atomic_load(&qp->sq_freed) <= RING - 2)
		queue_job(qp, container_of(qp->tm_waiting.next, struct tm_job, link));
}

/*
 * mlx5 reports a rendezvous that the device has given up like one that the device leaves to software
 * (MSG_COMPLETION_CANCELED): the status of an offer, MATCH and DATA_VALID, and no header. The buffer has what it had, or
 * the user's data. An error of the device's READ is one of a send queue that the program does not have: the number is
 * rubbish.
 */
static void job_given_up(struct hca_qp *qp, struct tm_job *j, enum ibv_wc_status status)
{
	tm_push(j->tm, &(struct cqe){ .wr_id = j->entry->recv_wr_id, .status = IBV_WC_TM_RNDV_INCOMPLETE,
				      .opcode = IBV_WC_TM_RECV, .wc_flags = IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID,
				      .frees = FREES_TM_ENTRY, .index = j->entry->index, .qp = qp,
				      .qp_num = qp->pub.qp_num, .src_qp = qp->dest_qpn });
	if (status != IBV_WC_WR_FLUSH_ERR)
		cq_push((struct hca_cq *)qp->pub.send_cq,
			&(struct cqe){ .wr_id = 0, .status = (uint8_t)status, .opcode = IBV_WC_RDMA_READ, .qp = qp,
				       .qp_num = qp->pub.qp_num },
			false);
}

static void job_done(struct hca_qp *qp, struct tm_job *j, enum ibv_wc_status status)
{
	list_del(&j->link);
	if (status != IBV_WC_SUCCESS && mlx5(qp)) {
		job_given_up(qp, j, status);
		free(j);
		return;
	}
	tm_push(j->tm, &(struct cqe){ .wr_id = j->entry->recv_wr_id, .status = status, .opcode = IBV_WC_TM_RECV,
				      .wc_flags = status == IBV_WC_SUCCESS ? IBV_WC_TM_DATA_VALID : 0,
				      .byte_len = status == IBV_WC_SUCCESS ? j->len : 0, .frees = FREES_TM_ENTRY,
				      .index = j->entry->index, .qp = qp, .qp_num = qp->pub.qp_num,
				      .src_qp = qp->dest_qpn });
	free(j);
}

/* A request of the device is over. A FIN that fails shows in the state of the QP only. */
static void device_done(struct hca_qp *qp, struct wqe *w, enum ibv_wc_status status)
{
	if (w->opcode == IBV_WR_RDMA_READ)
		job_done(qp, (struct tm_job *)(uintptr_t)w->wr_id, status);
}

static void drop_all(struct list *jobs)
{
	while (!list_empty(jobs))
		drop_job(container_of(jobs->next, struct tm_job, link));
}

/* The QP is in error: what waits ends as what was sent does, and after it. False: nothing waits. */
static bool flush_one(struct hca_qp *qp)
{
	if (list_empty(&qp->tm_waiting))
		return false;
	job_done(qp, container_of(qp->tm_waiting.next, struct tm_job, link), IBV_WC_WR_FLUSH_ERR);
	return true;
}

/* The QP is destroyed; its work ends without completions. */
static void forget(struct hca_qp *qp)
{
	drop_all(&qp->tm_active);
	drop_all(&qp->tm_waiting);
}

const struct matcher tm_matcher = {
	.receive = receive, .device_done = device_done, .pump = pump, .flush_one = flush_one, .forget = forget,
};
