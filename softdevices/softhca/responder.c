/*
 * The receiving half of a QP executes requests once, in the order of their numbers, and answers them. It asks again for
 * a request that is ahead of its turn (SEQ), and answers a request again that it has executed.
 *
 * The answer is on its way before the program sees the completion: a program that ends at once must not take the
 * answer with it.
 */
#include "requests.h"

#include <stdlib.h>

/* Whether SOFTHCA_DROP_ACK takes an answer. Then GONE goes out in its place: the requester waits, and asks again. */
static bool answer_lost(struct hca_ctx *ctx, enum pkt_op op)
{
	if (!ctx || op == PKT_GONE || op == PKT_NAK || !chance(ctx, ctx->knobs.drop_ack))
		return false;
	count(ctx, C_dropped, 1);
	return true;
}

/* Answers a request. */
void respond(struct hca_ctx *ctx, struct pkt *to, enum pkt_op op, uint8_t status)
{
	struct pkt *p = pkt_new(0);

	if (!p)
		return;
	if (answer_lost(ctx, op))
		op = PKT_GONE;
	p->h = (struct pkt_head){ .op = (uint8_t)op, .status = status, .slid = to->h.dlid, .dlid = to->h.slid,
				  .sqpn = to->h.dqpn, .dqpn = to->h.sqpn, .psn = to->h.psn, .len = to->h.len,
				  .a = to->h.a, .gen_addr = to->h.gen_addr, .gen = to->h.gen,
				  .subnet = ctx ? ctx->knobs.subnet : 0 };
	if (ctx)
		count(ctx, op == PKT_NAK ? C_naks : C_acks, 1);
	p->pid = engine.pid;
	if (to->from)
		wire_send(to->from, p);
	else
		deliver(p);
}

static void say_no(struct hca_qp *qp, struct pkt *p, enum ibv_wc_status status)
{
	debug(qp->ctx, "QP %u: refuses a request: %s", qp->pub.qp_num, ibv_wc_status_str(status));
	respond(qp->ctx, p, PKT_NAK, (uint8_t)status);
}

static void nak(struct hca_qp *qp, struct pkt *p, enum ibv_wc_status status)
{
	say_no(qp, p, status);
	qp_error(qp);
}

/* A breach of access rights is an error of both QPs. This side has no completion to report it, so it is an event. */
static void nak_access(struct hca_qp *qp, struct pkt *p, enum ibv_wc_status status)
{
	say_no(qp, p, status);
	if (qp->state != IBV_QPS_ERR)
		async_event(qp->ctx,
			    status == IBV_WC_REM_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR, qp);
	qp_error(qp);
}

static void rnr_nak(struct hca_qp *qp, struct pkt *p)
{
	qp->nak_sent = true;
	respond(qp->ctx, p, PKT_RNR, qp->min_rnr_timer);
}

static void done(struct hca_qp *qp, struct pkt *p)
{
	qp->epsn = (qp->epsn + 1) & PSN_MASK;
	respond(qp->ctx, p, PKT_ACK, 0);
}

/* The oldest receive of a QP in the error state ends, if the queue is its own. False: there is none. */
bool responder_flush_one(struct hca_qp *qp)
{
	struct ibv_sge *sges;
	uint64_t wr_id;
	uint32_t n;

	if (!qp->own_rq || !rq_peek(qp->own_rq, &wr_id, &sges, &n))
		return false;
	rq_take(qp);
	cq_push((struct hca_cq *)qp->pub.recv_cq,
		&(struct cqe){ .wr_id = wr_id, .status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV,
			       .qp_num = qp->pub.qp_num, .frees = FREES_RQ, .rq = qp->own_rq, .qp = qp },
		false);
	return true;
}

/* A completion for a receive request of qp, which has been taken. Goes to the SRQ's queue where it has one. */
void responder_complete(struct hca_qp *qp, struct pkt *p, struct cqe *e)
{
	struct hca_srq *srq = to_srq(qp->pub.srq);
	struct hca_cq *cq = srq && srq->cq ? srq->cq : (struct hca_cq *)qp->pub.recv_cq;

	e->qp_num = qp->pub.qp_num;
	e->src_qp = qp->dest_qpn;
	e->slid = p->h.slid;
	e->qp = qp;
	if (p->h.flags & PKT_IMM) {
		e->imm = p->h.imm;
		e->wc_flags |= IBV_WC_WITH_IMM;
	}
	if (e->status == IBV_WC_SUCCESS)
		count(qp->ctx, C_recvs, 1), count(qp->ctx, C_recv_bytes, e->byte_len);
	cq_push(cq, e, p->h.flags & PKT_SOLICITED);
}

/* Where the data of a request lies: in the packet or in the sender's memory. Refuses what does not add up. */
int payload_of(struct pkt *p, struct iovec *iov, unsigned *n, bool *by_pull)
{
	uint64_t sum = 0;

	*by_pull = !(p->h.flags & PKT_PAYLOAD);
	if (!*by_pull) {
		iov[0] = (struct iovec){ p->body, p->h.payload };
		*n = 1;
		return p->h.payload == p->h.len && p->h.payload == p->h.size ? 0 : EPROTO;
	}
	if (p->h.niov > MAX_SGE || p->h.size != p->h.niov * sizeof(*iov))
		return EPROTO;
	memcpy(iov, p->body, p->h.size);
	*n = p->h.niov;
	for (unsigned i = 0; i < *n; i++)
		sum += iov[i].iov_len;
	return sum == p->h.len ? 0 : EPROTO;
}

/* Moves the data of a SEND or WRITE. SUCCESS, an error of ours, or REM_ABORT if the sender does not exist any more. */
static enum ibv_wc_status move_in(struct hca_qp *qp, struct pkt *p, const struct iovec *dst, unsigned ndst)
{
	struct iovec src[MAX_SGE];
	unsigned nsrc;
	bool pull;
	int err;

	if (!p->h.len)
		return IBV_WC_SUCCESS;
	if (payload_of(p, src, &nsrc, &pull))
		return IBV_WC_BAD_RESP_ERR;
	if (pull) {
		err = copy_pull(p->pid, dst, ndst, src, nsrc, p->h.len, p->h.gen_addr, p->h.gen);
		count(qp->ctx, C_pulls, 1);
	} else {
		err = copy_local(dst, ndst, src, nsrc, p->h.len);
	}
	if (!err)
		return IBV_WC_SUCCESS;
	if (err == EFAULT)
		return copy_is_ours(dst, ndst) ? IBV_WC_LOC_PROT_ERR : IBV_WC_LOC_ACCESS_ERR;
	count(qp->ctx, C_stale_epochs, 1);
	return IBV_WC_REM_ABORT_ERR;
}

/* The receive request that was meant for a message ends with an error; so does the QP. */
static void fail_receive(struct hca_qp *qp, struct pkt *p, uint64_t wr_id, enum ibv_wc_status ours,
			 enum ibv_wc_status theirs)
{
	say_no(qp, p, theirs);
	rq_take(qp);
	responder_complete(qp, p, &(struct cqe){ .wr_id = wr_id, .status = ours, .opcode = IBV_WC_RECV,
						 .frees = FREES_RQ, .rq = qp->rq });
	qp_error(qp);
}

static uint64_t sge_sum(const struct ibv_sge *sges, uint32_t n)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < n; i++)
		sum += sges[i].length;
	return sum;
}

/*
 * A message into the oldest buffer of the receive queue. The completion comes with the given opcode. Used for plain
 * queues and for what the tag matching hands to software.
 */
bool responder_receive(struct hca_qp *qp, struct pkt *p, enum ibv_wc_opcode opcode, unsigned wc_flags)
{
	struct iovec iov[MAX_SGE];
	enum ibv_wc_status status;
	struct ibv_sge *sges;
	uint64_t wr_id;
	uint32_t n;

	if (chance(qp->ctx, qp->ctx->knobs.rnr) || !rq_peek(qp->rq, &wr_id, &sges, &n)) {
		rnr_nak(qp, p);
		return false;
	}
	if (sge_sum(sges, n) < p->h.len) {
		fail_receive(qp, p, wr_id, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR);
		return false;
	}
	if (mr_gather(qp, qp->pub.srq ? qp->pub.srq->pd : qp->pub.pd, sges, n, IBV_ACCESS_LOCAL_WRITE, iov)) {
		fail_receive(qp, p, wr_id, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
		return false;
	}
	status = move_in(qp, p, iov, n);
	if (status == IBV_WC_REM_ABORT_ERR)
		return false; /* the sender has given up: there is no requester to answer, and the buffer stays */
	if (status == IBV_WC_LOC_ACCESS_ERR) {
		nak(qp, p, IBV_WC_LOC_PROT_ERR); /* the memory that it named is not there */
		return false;
	}
	if (status != IBV_WC_SUCCESS) {
		fail_receive(qp, p, wr_id, status, IBV_WC_REM_OP_ERR);
		return false;
	}
	done(qp, p);
	rq_take(qp);
	responder_complete(qp, p, &(struct cqe){ .wr_id = wr_id, .opcode = (uint8_t)opcode, .frees = FREES_RQ,
						 .rq = qp->rq, .byte_len = (uint32_t)p->h.len,
						 .wc_flags = (uint16_t)wc_flags });
	return true;
}

void responder_done(struct hca_qp *qp, struct pkt *p)
{
	done(qp, p);
}

void responder_not_ready(struct hca_qp *qp, struct pkt *p)
{
	rnr_nak(qp, p);
}

/* Only sends the answer; qp_error is for the caller, after the completions that precede it. */
void responder_refuse(struct hca_qp *qp, struct pkt *p, enum ibv_wc_status status)
{
	say_no(qp, p, status);
}

enum ibv_wc_status responder_move(struct hca_qp *qp, struct pkt *p, const struct iovec *dst, unsigned ndst)
{
	return move_in(qp, p, dst, ndst);
}

static void request_send(struct hca_qp *qp, struct pkt *p)
{
	if (qp->matcher)
		qp->matcher->receive(qp, p);
	else
		responder_receive(qp, p, IBV_WC_RECV, 0);
}

/* The memory that a request names, if it may be used so. */
static enum ibv_wc_status remote_memory(struct hca_qp *qp, struct pkt *p, unsigned access, struct hca_mr **mr,
					uint64_t *va)
{
	if (!(qp->access & access)) {
		debug(qp->ctx, "QP %u: its access flags forbid it", qp->pub.qp_num);
		return IBV_WC_REM_INV_REQ_ERR;
	}
	if (p->h.len && mr_resolve(qp->ctx, qp->pub.pd, p->h.rkey, p->h.raddr, p->h.len, access, mr, va))
		return IBV_WC_REM_ACCESS_ERR;
	return IBV_WC_SUCCESS;
}

static void request_write(struct hca_qp *qp, struct pkt *p)
{
	struct hca_mr *mr = NULL;
	enum ibv_wc_status status;
	struct ibv_sge *sges;
	struct iovec dst;
	uint64_t va = 0, wr_id = 0;
	uint32_t n;

	status = remote_memory(qp, p, IBV_ACCESS_REMOTE_WRITE, &mr, &va);
	if (status != IBV_WC_SUCCESS) {
		nak_access(qp, p, status);
		return;
	}
	if (p->h.flags & PKT_IMM &&
	    (chance(qp->ctx, qp->ctx->knobs.rnr) || !rq_peek(qp->rq, &wr_id, &sges, &n))) {
		rnr_nak(qp, p);
		return;
	}
	dst = (struct iovec){ (void *)(uintptr_t)va, p->h.len };
	status = move_in(qp, p, &dst, 1);
	if (status == IBV_WC_REM_ABORT_ERR)
		return;
	if (status != IBV_WC_SUCCESS) {
		nak_access(qp, p, status == IBV_WC_LOC_ACCESS_ERR ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_OP_ERR);
		return;
	}
	done(qp, p);
	if (p->h.flags & PKT_IMM) {
		rq_take(qp);
		responder_complete(qp, p, &(struct cqe){ .wr_id = wr_id, .opcode = IBV_WC_RECV_RDMA_WITH_IMM,
							 .byte_len = (uint32_t)p->h.len, .frees = FREES_RQ,
							 .rq = qp->rq });
	}
}

static void respond_data(struct hca_qp *qp, struct pkt *to, uint64_t va)
{
	struct iovec dst, src = { (void *)(uintptr_t)va, to->h.len };
	struct pkt *p = pkt_new(to->h.len);

	if (!p)
		return;
	p->h = (struct pkt_head){ .op = PKT_READ_OK, .flags = PKT_PAYLOAD, .size = (uint32_t)to->h.len,
				  .payload = (uint32_t)to->h.len, .slid = to->h.dlid, .dlid = to->h.slid,
				  .sqpn = to->h.dqpn, .dqpn = to->h.sqpn, .psn = to->h.psn, .len = to->h.len,
				  .subnet = qp->ctx->knobs.subnet };
	dst = (struct iovec){ p->body, to->h.len };
	if (copy_local(&dst, 1, &src, 1, to->h.len)) {
		free(p);
		nak_access(qp, to, IBV_WC_REM_OP_ERR);
		return;
	}
	count(qp->ctx, C_acks, 1);
	count(qp->ctx, C_inline_wire, 1);
	wire_send(to->from, p);
}

/* The requester fetches the data itself, and sees by the generation whether the region was there to the end. */
static void request_read(struct hca_qp *qp, struct pkt *p, bool again)
{
	struct hca_mr *mr = NULL;
	uint64_t va = 0;
	enum ibv_wc_status status = remote_memory(qp, p, IBV_ACCESS_REMOTE_READ, &mr, &va);

	if (p->h.rd_out > qp->max_dest_rd) {
		debug(qp->ctx, "QP %u: %u READs and atomics at once, max_dest_rd_atomic is %u", qp->pub.qp_num,
		      p->h.rd_out, qp->max_dest_rd);
		status = IBV_WC_REM_INV_REQ_ERR;
	}
	if (status != IBV_WC_SUCCESS) {
		nak_access(qp, p, status);
		return;
	}
	if (!again)
		qp->epsn = (qp->epsn + 1) & PSN_MASK;
	if (p->h.flags & PKT_WANT_PAYLOAD && p->from) {
		if (answer_lost(qp->ctx, PKT_READ_OK))
			respond(NULL, p, PKT_GONE, 0);
		else
			respond_data(qp, p, va);
		return;
	}
	p->h.a = va;
	p->h.gen_addr = mr ? (uintptr_t)&mr_slot(mr->slot)->gen : 0;
	p->h.gen = mr ? atomic_load(&mr_slot(mr->slot)->gen) : 0;
	respond(qp->ctx, p, PKT_READ_OK, 0);
}

/*
 * An adapter with IBV_ATOMIC_HCA reads over the bus, and writes later: what a CPU has added meanwhile is lost. Its own
 * atomics do not mix, nor do ours, since a device has one thread.
 */
static uint64_t do_atomic(uint64_t va, const struct pkt *p)
{
	_Atomic uint64_t *at = (_Atomic uint64_t *)(uintptr_t)va;
	uint64_t old = atomic_load(at);

	for (volatile int i = 0; i < 200; i++)
		;
	if (p->h.op == PKT_ATOMIC_ADD)
		atomic_store(at, old + p->h.a);
	else if (old == p->h.a)
		atomic_store(at, p->h.b);
	return old;
}

/* The last results are kept: an atomic that is sent again must not happen again. */
static struct atomic_result *result_slot(struct hca_qp *qp, uint32_t psn)
{
	if (!qp->atomics)
		qp->atomics = calloc(qp->ctx->knobs.max_rd, sizeof(*qp->atomics));
	return qp->atomics ? &qp->atomics[psn % qp->ctx->knobs.max_rd] : NULL;
}

static void request_atomic(struct hca_qp *qp, struct pkt *p)
{
	struct atomic_result *r = result_slot(qp, p->h.psn);
	struct hca_mr *mr = NULL;
	uint64_t va = 0;
	enum ibv_wc_status status;

	p->h.len = 8;
	status = remote_memory(qp, p, IBV_ACCESS_REMOTE_ATOMIC, &mr, &va);
	if (p->h.raddr & 7 || va & 7 || p->h.rd_out > qp->max_dest_rd)
		status = IBV_WC_REM_INV_REQ_ERR;
	if (status != IBV_WC_SUCCESS || !r) {
		nak_access(qp, p, status);
		return;
	}
	*r = (struct atomic_result){ p->h.psn, do_atomic(va, p), true };
	qp->epsn = (qp->epsn + 1) & PSN_MASK;
	p->h.a = r->old;
	respond(qp->ctx, p, PKT_ATOMIC_OK, 0);
}

static void request_again(struct hca_qp *qp, struct pkt *p)
{
	struct atomic_result *r;

	count(qp->ctx, C_duplicates, 1);
	switch ((enum pkt_op)p->h.op) {
	case PKT_READ:
		request_read(qp, p, true);
		break;
	case PKT_ATOMIC_ADD:
	case PKT_ATOMIC_SWAP:
		r = result_slot(qp, p->h.psn);
		if (!r || !r->valid || r->psn != p->h.psn)
			break;
		p->h.a = r->old;
		respond(qp->ctx, p, PKT_ATOMIC_OK, 0);
		break;
	default:
		respond(qp->ctx, p, PKT_ACK, 0);
	}
}

/* A request has come. Borrows p. */
void responder_request(struct hca_qp *qp, struct pkt *p)
{
	uint32_t ahead = (p->h.psn - qp->epsn) & PSN_MASK;

	if (qp->state < IBV_QPS_RTR || qp->state > IBV_QPS_SQD || p->h.slid != qp->dlid ||
	    p->h.sqpn != qp->dest_qpn) {
		respond(qp->ctx, p, PKT_GONE, 0);
		return;
	}
	if (ahead > PSN_MASK / 2) {
		request_again(qp, p);
		return;
	}
	if (ahead) {
		if (!qp->nak_sent) {
			p->h.psn = qp->epsn;
			respond(qp->ctx, p, PKT_SEQ, 0);
		}
		qp->nak_sent = true;
		return;
	}
	qp->nak_sent = false;
	switch ((enum pkt_op)p->h.op) {
	case PKT_SEND:
		request_send(qp, p);
		break;
	case PKT_WRITE:
		request_write(qp, p);
		break;
	case PKT_READ:
		request_read(qp, p, false);
		break;
	default:
		request_atomic(qp, p);
	}
}
