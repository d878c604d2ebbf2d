/*
 * The sending half of a QP. Requests leave in order, one packet each with a number (PSN) each; the peer answers each,
 * in order. [una, next) of the send queue are under way.
 *
 * Sockets lose nothing, so time plays no part while the peer's engine is alive, however slow. A request is lost only
 * if there is no peer (GONE, or no connection), or if SOFTHCA_DROP takes it; then the QP's timer runs, and
 * everything from the oldest on is sent again.
 */
#include "requests.h"

#include <stdlib.h>

static bool is_rd(const struct wqe *w)
{
	return w->opcode == IBV_WR_RDMA_READ || w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static bool may_send(const struct hca_qp *qp)
{
	return qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD;
}

/* How far the queue may be sent: not beyond a request that is known to fail. */
static uint32_t sendable(struct hca_qp *qp)
{
	if (qp->failing)
		return qp->sq_fail;
	return qp->state == IBV_QPS_SQD ? qp->sq_drain_at : atomic_load_explicit(&qp->sq_posted, memory_order_acquire);
}

static enum ibv_wc_opcode wc_opcode(const struct wqe *w)
{
	switch ((enum ibv_wr_opcode)w->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return IBV_WC_COMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_WC_FETCH_ADD;
	default:
		return IBV_WC_SEND;
	}
}

/* The request at una is over. One that succeeds unsignalled has no completion and keeps its place. */
static void complete(struct hca_qp *qp, enum ibv_wc_status status)
{
	uint32_t i = qp->sq_una++;
	struct wqe *w = qp_wqe(qp, i);

	if (w->flags & WQE_DEVICE) {
		atomic_store(&qp->sq_freed, i + 1);
		qp->matcher->device_done(qp, w, status);
		return;
	}
	if (status == IBV_WC_SUCCESS && !(w->flags & WQE_SIGNALED))
		return;
	if (status != IBV_WC_SUCCESS && status != IBV_WC_WR_FLUSH_ERR)
		debug(qp->ctx, "QP %u: request %llu ends with %s", qp->pub.qp_num, (unsigned long long)w->wr_id,
		      ibv_wc_status_str(status));
	cq_push((struct hca_cq *)qp->pub.send_cq,
		&(struct cqe){ .wr_id = w->wr_id, .status = status, .opcode = wc_opcode(w), .byte_len = w->len,
			       .qp_num = qp->pub.qp_num, .frees = FREES_SQ, .index = i, .qp = qp },
		false);
}

/* The oldest request of a QP in the error state ends. False: there is none. */
bool requester_flush_one(struct hca_qp *qp)
{
	if (qp->sq_una == atomic_load_explicit(&qp->sq_posted, memory_order_acquire))
		return false;
	complete(qp, IBV_WC_WR_FLUSH_ERR);
	qp->sq_next = qp->sq_una;
	return true;
}

/* The request at index ends with an error, after all that precede it; and the rest is flushed. */
static void requester_fail(struct hca_qp *qp, uint32_t index, enum ibv_wc_status status)
{
	qp->failing = true;
	qp->sq_fail = index;
	qp->fail_status = status;
	if (qp->sq_una != index)
		return;
	qp_bump(qp); /* before the program learns that its memory is its own again */
	complete(qp, status);
	qp->failing = false;
	qp_error(qp);
}

static uint64_t ack_timeout(const struct hca_qp *qp)
{
	return (uint64_t)(4096.0 * (double)(1ull << qp->timeout) * qp->ctx->knobs.retry_scale);
}

/* Something under way did not get there. A timeout of 0 is for ever. */
static void requester_lost(struct hca_qp *qp)
{
	if (!may_send(qp) || qp->sq_una == qp->sq_next)
		return;
	qp->lost = true;
	if (qp->timeout && list_empty(&qp->retry_timer.link))
		timer_arm(&qp->retry_timer, now_ns() + ack_timeout(qp));
}

static void go_back(struct hca_qp *qp, uint32_t index)
{
	qp->sq_next = index;
	qp->rd_out = 0;
	for (uint32_t i = qp->sq_una; i != index; i++)
		qp->rd_out += is_rd(qp_wqe(qp, i));
	qp->lost = false;
	timer_stop(&qp->retry_timer);
	ring_doorbell(&qp->work);
}

static void retry(struct hca_qp *qp, uint32_t index)
{
	if (qp->retries++ >= qp->retry_cnt) {
		requester_fail(qp, qp->sq_una, IBV_WC_RETRY_EXC_ERR);
		return;
	}
	count(qp->ctx, C_retries, 1);
	go_back(qp, index);
}

void requester_retry_fire(struct timer *t)
{
	struct hca_qp *qp = container_of(t, struct hca_qp, retry_timer);

	if (may_send(qp) && qp->lost && qp->sq_una != qp->sq_next)
		retry(qp, qp->sq_una);
}

void requester_wait_fire(struct timer *t)
{
	ring_doorbell(&container_of(t, struct hca_qp, wait_timer)->work);
}

static struct pkt *build(struct hca_qp *qp, uint32_t index, const struct wqe *w, unsigned niov, bool payload)
{
	size_t tail = payload ? w->len : niov * sizeof(struct iovec);
	struct pkt *p = pkt_new(tail);

	if (!p)
		return NULL;
	p->h = (struct pkt_head){
		.size = (uint32_t)tail, .slid = port_lid(qp->ctx, qp->port_num), .dlid = qp->dlid, .sqpn = qp->pub.qp_num,
		.dqpn = qp->dest_qpn, .psn = (qp->sq_psn0 + index) & PSN_MASK, .imm = w->imm, .rkey = w->rkey,
		.raddr = w->raddr, .len = w->len, .niov = payload ? 0 : niov, .payload = payload ? w->len : 0,
		.gen_addr = (uintptr_t)&qp_slot(qp->slot)->gen, .gen = atomic_load(&qp_slot(qp->slot)->gen),
		.flags = (w->flags & WQE_SOLICITED ? PKT_SOLICITED : 0) | (payload ? PKT_PAYLOAD : 0) |
			 (qp->av.is_global ? PKT_GRH : 0) | (qp->av.grh.sgid_index & 1 ? PKT_V2 : 0),
		.subnet = qp->ctx->knobs.subnet,
		.rd_out = (uint8_t)MIN(qp->rd_out + 1, 255u), .pkey = qp->ctx->knobs.pkeys[qp->pkey_index],
	};
	return p;
}

static enum pkt_op pkt_op(struct wqe *w, struct pkt *p, const uint8_t *area)
{
	switch ((enum ibv_wr_opcode)w->opcode) {
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		p->h.flags |= PKT_IMM;
		return PKT_WRITE;
	case IBV_WR_RDMA_WRITE:
		return PKT_WRITE;
	case IBV_WR_RDMA_READ:
		return PKT_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		memcpy(&p->h.a, area + sizeof(struct ibv_sge), 8);
		memcpy(&p->h.b, area + sizeof(struct ibv_sge) + 8, 8);
		return w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? PKT_ATOMIC_SWAP : PKT_ATOMIC_ADD;
	case IBV_WR_SEND_WITH_IMM:
		p->h.flags |= PKT_IMM;
		return PKT_SEND;
	default:
		return PKT_SEND;
	}
}

static enum fail_kind fail_kind(const struct wqe *w)
{
	switch (wc_opcode(w)) {
	case IBV_WC_RDMA_WRITE:
		return FAIL_WRITE;
	case IBV_WC_RDMA_READ:
		return FAIL_READ;
	case IBV_WC_SEND:
		return w->flags & WQE_DEVICE ? FAIL_FIN : FAIL_SEND;
	default:
		return FAIL_ATOMIC;
	}
}

/* The PD of a request's keys: the QP's PD. The device's own requests read into buffers of the SRQ and have its PD. */
static struct ibv_pd *send_pd(const struct hca_qp *qp, const struct wqe *w)
{
	return w->flags & WQE_DEVICE ? qp->pub.srq->pd : qp->pub.pd;
}

/* The memory that a request names, its length, or SOFTHCA_FAIL may end it before it leaves. */
static enum ibv_wc_status check_local(struct hca_qp *qp, struct wqe *w, const void *area, struct iovec *iov)
{
	if (!(w->flags & WQE_INLINE) &&
	    mr_gather(qp, send_pd(qp, w), area, w->num_sge, is_rd(w) ? IBV_ACCESS_LOCAL_WRITE : 0, iov))
		return IBV_WC_LOC_PROT_ERR;
	if (w->len > qp->ctx->knobs.max_msg)
		return IBV_WC_LOC_LEN_ERR;
	if (is_rd(w) && !qp->max_rd)
		return IBV_WC_LOC_QP_OP_ERR;
	if (!(w->flags & WQE_SENT) && fail_now(qp->ctx, fail_kind(w)))
		return IBV_WC_REM_OP_ERR;
	w->flags |= WQE_SENT;
	return IBV_WC_SUCCESS;
}

/* Makes a packet of it and sends it to the peer. False if there is no peer. */
static bool dispatch(struct hca_qp *qp, struct wqe *w, uint32_t index, const uint8_t *area, const struct iovec *iov,
		     struct conn *c)
{
	bool data = w->opcode <= IBV_WR_SEND_WITH_IMM, local = !c;
	bool payload = data && w->len && (w->flags & WQE_INLINE || (!local && !c->peer_reads));
	struct pkt *p = build(qp, index, w, data && !payload ? w->num_sge : 0, payload);
	struct iovec to;

	if (!p)
		return false;
	if (payload && w->flags & WQE_INLINE)
		memcpy(p->body, area, w->len);
	else if (payload) {
		to = (struct iovec){ p->body, w->len };
		if (copy_local(&to, 1, iov, w->num_sge, w->len)) {
			free(p);
			return false;
		}
	} else
		memcpy(p->body, iov, p->h.niov * sizeof(*iov));
	p->h.op = (uint8_t)pkt_op(w, p, area);
	if (!local && !c->we_read)
		p->h.flags |= PKT_WANT_PAYLOAD;
	if (payload && !local)
		count(qp->ctx, C_inline_wire, 1);
	if (local) {
		p->from = NULL;
		p->pid = engine.pid;
		deliver(p);
	} else {
		wire_send(c, p);
	}
	return true;
}

/* Sends the request at next. False if the queue has to stop there. */
static bool send_next(struct hca_qp *qp)
{
	struct wqe *w = qp_wqe(qp, qp->sq_next);
	struct hca_ctx *ctx = qp->ctx;
	uint8_t *area = qp_area(qp, qp->sq_next);
	struct iovec iov[MAX_SGE];
	enum ibv_wc_status status;
	struct conn *c = NULL;
	bool here = qp->dlid < LIDS && engine.by_lid[qp->dlid] && !ctx->knobs.wire;

	if (!here && !ctx->port_down) {
		c = wire_to(qp->dlid);
		if (c && c->state == CONN_GREETING) {
			list_del(&qp->conn_wait.link);
			list_add_tail(&c->waiters, &qp->conn_wait.link);
			return false;
		}
	}
	status = check_local(qp, w, area, iov);
	if (status != IBV_WC_SUCCESS) {
		requester_fail(qp, qp->sq_next, status);
		return false;
	}
	qp->sq_next++;
	if (ctx->lose || chance(ctx, ctx->knobs.drop)) {
		ctx->lose = false;
		count(ctx, C_dropped, 1);
		qp->rd_out += is_rd(w);
		requester_lost(qp);
		return true;
	}
	if (ctx->port_down || (ctx->knobs.sl != SL_ANY && qp->sl != ctx->knobs.sl) || (!here && !c) || !dispatch(qp, w, qp->sq_next - 1, area, iov, c))
		requester_lost(qp);
	qp->rd_out += is_rd(w);
	return true;
}

static bool delayed(struct hca_qp *qp)
{
	struct hca_ctx *ctx = qp->ctx;
	uint64_t now = now_ns();

	if (qp->not_before <= now && ctx->knobs.seeded && next_random(&ctx->rng) % 8 == 0)
		qp->not_before = now + next_random(&ctx->rng) % 200000;
	if (qp->not_before <= now)
		return false;
	timer_stop(&qp->wait_timer);
	timer_arm(&qp->wait_timer, qp->not_before);
	return true;
}

/* Sends what may be sent, a bounded number at a time: other queue pairs have a turn too. */
static void advance(struct hca_qp *qp)
{
	for (int budget = 32; may_send(qp) && qp->sq_next != sendable(qp); budget--) {
		struct wqe *w = qp_wqe(qp, qp->sq_next);

		if (delayed(qp))
			return;
		if (w->flags & WQE_FENCE && qp->rd_out)
			return;
		if (is_rd(w) && qp->max_rd && qp->rd_out >= qp->max_rd)
			return;
		if (budget == 0) {
			ring_doorbell(&qp->work);
			return;
		}
		if (!send_next(qp))
			return;
	}
}

static void check_drained(struct hca_qp *qp)
{
	if (qp->state != IBV_QPS_SQD || !qp->draining || qp->sq_una != qp->sq_drain_at)
		return;
	qp->draining = false;
	if (qp->sqd_notify)
		async_event(qp->ctx, IBV_EVENT_SQ_DRAINED, qp);
}

static void proceed(struct hca_qp *qp)
{
	if (qp->matcher)
		qp->matcher->pump(qp);
	advance(qp);
	check_drained(qp);
}

void requester_run(struct work *work)
{
	struct hca_qp *qp = container_of(work, struct hca_qp, work);

	if (qp->ctx->paused)
		return; /* "resume" rings the doorbell of all */
	if (qp->state == IBV_QPS_ERR) {
		qp->flush(qp);
		return;
	}
	proceed(qp);
}

static void account(struct hca_qp *qp, const struct wqe *w)
{
	enum counter ops, bytes;

	switch (wc_opcode(w)) {
	case IBV_WC_RDMA_WRITE:
		ops = C_writes, bytes = C_write_bytes;
		break;
	case IBV_WC_RDMA_READ:
		ops = C_reads, bytes = C_read_bytes;
		break;
	case IBV_WC_SEND:
		ops = C_sends, bytes = C_send_bytes;
		break;
	default:
		count(qp->ctx, C_atomics, 1);
		return;
	}
	if (w->flags & WQE_DEVICE && ops == C_sends) {
		count(qp->ctx, C_fins, 1);
		return;
	}
	count(qp->ctx, ops, 1);
	count(qp->ctx, bytes, w->len);
}

/*
 * There is an answer to a later request and none to the READ at una: that one was lost. All that are under way get
 * such answers; the first is enough.
 */
static void answer_missing(struct hca_qp *qp)
{
	if (qp->implied) {
		requester_lost(qp);
		return;
	}
	qp->implied = true;
	retry(qp, qp->sq_una);
}

/* Requests up to and without end are done. False if a READ among them has had no answer. */
static bool done_until(struct hca_qp *qp, uint32_t end)
{
	while (qp->sq_una != end) {
		struct wqe *w = qp_wqe(qp, qp->sq_una);

		if (is_rd(w) && !(w->flags & WQE_ANSWERED)) {
			answer_missing(qp);
			return false;
		}
		if (is_rd(w))
			qp->rd_out--;
		account(qp, w);
		complete(qp, IBV_WC_SUCCESS);
		qp->retries = qp->rnr_retries = 0;
		qp->implied = false;
		if (!may_send(qp))
			return false;
	}
	return true;
}

/* The data of a READ or the result of an atomic goes to where the request says, if it still may. */
static enum ibv_wc_status take_answer(struct hca_qp *qp, struct wqe *w, const void *area, struct pkt *p)
{
	struct iovec iov[MAX_SGE], src;
	int err;

	if (mr_gather(qp, send_pd(qp, w), area, w->num_sge, IBV_ACCESS_LOCAL_WRITE, iov))
		return IBV_WC_LOC_PROT_ERR;
	if (p->h.op == PKT_ATOMIC_OK) {
		src = (struct iovec){ &p->h.a, 8 };
		err = copy_local(iov, 1, &src, 1, 8);
	} else if (p->h.flags & PKT_PAYLOAD) {
		src = (struct iovec){ p->body, p->h.payload };
		err = p->h.payload == w->len ? copy_local(iov, w->num_sge, &src, 1, w->len) : EPROTO;
	} else {
		src = (struct iovec){ (void *)(uintptr_t)p->h.a, w->len };
		err = copy_pull(p->pid, iov, w->num_sge, &src, 1, w->len, p->h.gen_addr, p->h.gen);
		count(qp->ctx, C_pulls, 1);
	}
	switch (err) {
	case 0:
		return IBV_WC_SUCCESS;
	case ESTALE: /* deregistered while we read */
		return IBV_WC_REM_ACCESS_ERR;
	case ESRCH: /* the process is gone: as if there had been no answer */
		return IBV_WC_RESP_TIMEOUT_ERR;
	default:
		return copy_is_ours(iov, w->num_sge) ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_OP_ERR;
	}
}

static void answered(struct hca_qp *qp, uint32_t index, struct pkt *p)
{
	struct wqe *w = qp_wqe(qp, index);
	enum ibv_wc_status status;

	if (!done_until(qp, index) || !is_rd(w))
		return;
	status = take_answer(qp, w, qp_area(qp, index), p);
	if (status == IBV_WC_RESP_TIMEOUT_ERR) {
		requester_lost(qp);
		return;
	}
	if (status != IBV_WC_SUCCESS) {
		requester_fail(qp, index, status);
		return;
	}
	w->flags |= WQE_ANSWERED;
	done_until(qp, index + 1);
}

/* Delay of the receiver not ready timer, by its code; in units of 10 us. */
static uint64_t rnr_delay(uint8_t code)
{
	static const uint16_t units[32] = { 0,	 1,   2,   3,	4,   6,	  8,	12,   16,   24,	  32,	48,   64,   96,	  128,	192,
					    256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576,
					    32768, 49152 };

	return (code & 31 ? units[code & 31] : 65536) * 10000ull;
}

static void not_ready(struct hca_qp *qp, uint32_t index, uint8_t code)
{
	if (!done_until(qp, index))
		return;
	count(qp->ctx, C_rnr, 1);
	qp->retries = 0; /* the peer is there */
	if (qp->rnr_retry != 7 && qp->rnr_retries++ >= qp->rnr_retry) {
		requester_fail(qp, index, IBV_WC_RNR_RETRY_EXC_ERR);
		return;
	}
	qp->not_before = now_ns() + rnr_delay(code);
	go_back(qp, index);
}

/* An answer to one of our requests. */
void requester_response(struct hca_qp *qp, struct pkt *p)
{
	uint32_t ahead, index;

	if (!may_send(qp) || p->h.slid != qp->dlid || p->h.sqpn != qp->dest_qpn)
		return;
	ahead = (p->h.psn - (qp->sq_psn0 + qp->sq_una)) & PSN_MASK;
	if (ahead >= qp->sq_next - qp->sq_una)
		return; /* of something long done, or that will be sent again */
	index = qp->sq_una + ahead;
	switch ((enum pkt_op)p->h.op) {
	case PKT_ACK:
		done_until(qp, index + 1);
		break;
	case PKT_READ_OK:
	case PKT_ATOMIC_OK:
		answered(qp, index, p);
		break;
	case PKT_NAK:
		if (done_until(qp, index)) {
			qp->sq_next = index + 1;
			requester_fail(qp, index, p->h.status);
		}
		break;
	case PKT_RNR:
		not_ready(qp, index, p->h.status);
		break;
	case PKT_SEQ:
		if (done_until(qp, index))
			retry(qp, index);
		break;
	case PKT_GONE:
		requester_lost(qp);
		break;
	default:
		break;
	}
	if (!may_send(qp))
		return;
	if (qp->sq_una == qp->sq_next) {
		qp->lost = false;
		timer_stop(&qp->retry_timer);
	}
	if (qp->failing && qp->sq_una == qp->sq_fail) {
		requester_fail(qp, qp->sq_fail, qp->fail_status);
		return;
	}
	proceed(qp);
}

/* A connection broke: what went over it and has no answer did not get there. */
void requester_conn_gone(struct conn *c)
{
	struct list *l, *ltmp, *m, *mtmp;

	list_for_each(l, ltmp, &engine.ports) {
		struct hca_ctx *ctx = container_of(l, struct hca_ctx, link);

		list_for_each(m, mtmp, &ctx->qps) {
			struct hca_qp *qp = container_of(m, struct hca_qp, link);

			if (qp->dlid && (qp->dlid - 1) / LIDS_PER_SLOT == c->slot)
				requester_lost(qp);
		}
	}
}
