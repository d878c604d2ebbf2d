/* Completion queues: what fills them, what empties them, and their end by an overrun. */
#include "queues.h"

static bool channel_takes(struct hca_cq *cq, bool solicited)
{
	if (!cq->pub.channel || cq->arm == ARM_NONE || (cq->arm == ARM_SOLICITED && !solicited))
		return false;
	cq->arm = ARM_NONE;
	return true;
}

/* Adds a completion. The last place is filled, one more is the end of the queue. */
void cq_push(struct hca_cq *cq, const struct cqe *e, bool solicited)
{
	bool wake = false, overrun = false;

	pthread_mutex_lock(&cq->mu);
	if (!cq->failed && cq->count == (uint32_t)cq->pub.cqe) {
		cq->failed = overrun = true;
	} else if (!cq->failed) {
		cq->ring[(cq->head + cq->count++) % (uint32_t)cq->pub.cqe] = *e;
		wake = channel_takes(cq, solicited || e->status != IBV_WC_SUCCESS);
	}
	pthread_mutex_unlock(&cq->mu);
	if (overrun) {
		debug(cq->ctx, "completion queue of %d overrun", cq->pub.cqe);
		async_event(cq->ctx, IBV_EVENT_CQ_ERR, cq);
		ring_doorbell(&cq->fail_work); /* its QPs fail too, but not inside the work under way */
		return;
	}
	count(cq->ctx, C_cqes, 1);
	if (wake) {
		count(cq->ctx, C_cq_events, 1);
		events_put(&((struct hca_channel *)cq->pub.channel)->q, cq, 0);
	}
}

void cq_fail(struct hca_cq *cq)
{
	pthread_mutex_lock(&cq->mu);
	if (cq->failed) {
		pthread_mutex_unlock(&cq->mu);
		return;
	}
	cq->failed = true;
	pthread_mutex_unlock(&cq->mu);
	async_event(cq->ctx, IBV_EVENT_CQ_ERR, cq);
	ring_doorbell(&cq->fail_work);
}

/* The work of a failed queue: its QPs fail too. */
void cq_fail_run(struct work *w)
{
	struct hca_cq *cq = container_of(w, struct hca_cq, fail_work);
	struct list *l, *tmp;

	list_for_each(l, tmp, &cq->ctx->qps) {
		struct hca_qp *qp = container_of(l, struct hca_qp, link);
		struct hca_srq *srq = to_srq(qp->pub.srq);

		if (qp->pub.send_cq == (struct ibv_cq *)cq || qp->pub.recv_cq == (struct ibv_cq *)cq ||
		    (srq && srq->cq == cq))
			qp_error(qp);
	}
}

static void give_back(struct cqe *e)
{
	switch ((enum cqe_frees)e->frees) {
	case FREES_SQ:
		atomic_store_explicit(&e->qp->sq_freed, e->index + 1, memory_order_release);
		break;
	case FREES_RQ:
		atomic_fetch_add_explicit(&e->rq->freed, 1, memory_order_release);
		break;
	case FREES_TM_ENTRY:
		tags_polled(e->tm, e->index);
		break;
	case FREES_NOTHING:
		break;
	}
	if (e->free_ops)
		tags_op_polled(e->tm, e->op_index);
}

/*
 * With an error only wr_id, status, qp_num and vendor_err are to be read. The rest is rubbish that looks real. Two
 * statuses are none of an error: opcode and flags hold.
 */
static void spoil(struct cqe *e)
{
	if (e->status == IBV_WC_SUCCESS || e->status == IBV_WC_TM_RNDV_INCOMPLETE || e->status == IBV_WC_TM_ERR)
		return;
	e->opcode = e->opcode == IBV_WC_RECV ? IBV_WC_RDMA_READ : IBV_WC_RECV;
	e->wc_flags = IBV_WC_WITH_IMM | IBV_WC_GRH | IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID | IBV_WC_TM_SYNC_REQ;
	e->byte_len = 0x7ee1bad0;
	e->imm = e->src_qp = e->tm_priv = 0xbadbad;
	e->tm_tag = 0xbadbadbadbad;
	e->slid = 0xbad;
}

/* Takes the oldest completion out, and with it the places in the work queues that it stands for. */
bool cq_take(struct hca_cq *cq, struct cqe *e)
{
	if (!cq->count)
		return false;
	*e = cq->ring[cq->head];
	cq->head = (cq->head + 1) % (uint32_t)cq->pub.cqe;
	cq->count--;
	give_back(e);
	spoil(e);
	return true;
}

/*
 * Removes the completions of a QP, or of a list of tags, whose memory goes away. Those of an SRQ's buffers return the
 * buffers.
 */
void cq_forget(struct hca_cq *cq, struct hca_qp *qp, struct tm_srq *tm)
{
	uint32_t kept = 0, cap;

	if (!cq)
		return;
	pthread_mutex_lock(&cq->mu);
	cap = (uint32_t)cq->pub.cqe;
	for (uint32_t i = 0; i < cq->count; i++) {
		struct cqe *e = &cq->ring[(cq->head + i) % cap];

		if (qp ? e->qp == qp : e->tm == tm)
			give_back(e);
		else
			cq->ring[(cq->head + kept++) % cap] = *e;
	}
	cq->count = kept;
	pthread_mutex_unlock(&cq->mu);
}
