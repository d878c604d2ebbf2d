/* Completion queues and completion channels. */
#include "hca.h"

#include <stdlib.h>

static void fail_run(struct work *w);

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

static void fail_run(struct work *w)
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
		tm_free_entry(e->tm, e->index);
		break;
	case FREES_NOTHING:
		break;
	}
	if (e->free_ops)
		tm_free_ops(e->tm, e->op_index);
}

/* With an error only wr_id, status, qp_num and vendor_err are to be read. The rest is rubbish that looks real. */
static void spoil(struct cqe *e)
{
	if (e->status == IBV_WC_SUCCESS || e->status == IBV_WC_TM_RNDV_INCOMPLETE)
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

int hca_poll_cq(struct ibv_cq *pub, int n, struct ibv_wc *wc)
{
	struct hca_cq *cq = (struct hca_cq *)pub;
	struct cqe e;
	int i;

	count(cq->ctx, C_polls, 1);
	pthread_mutex_lock(&cq->mu);
	for (i = 0; i < n && cq_take(cq, &e); i++)
		wc[i] = (struct ibv_wc){
			.wr_id = e.wr_id, .status = e.status, .opcode = e.opcode, .vendor_err = e.vendor_err,
			.byte_len = e.byte_len, .imm_data = e.imm, .qp_num = e.qp_num, .src_qp = e.src_qp,
			.wc_flags = e.wc_flags, .slid = e.slid,
		};
	pthread_mutex_unlock(&cq->mu);
	return i;
}

/* Only what comes later wakes: the program polls once more after it has asked. */
int hca_req_notify_cq(struct ibv_cq *pub, int solicited_only)
{
	struct hca_cq *cq = (struct hca_cq *)pub;

	pthread_mutex_lock(&cq->mu);
	if (!solicited_only)
		cq->arm = ARM_ANY;
	else if (cq->arm == ARM_NONE)
		cq->arm = ARM_SOLICITED;
	pthread_mutex_unlock(&cq->mu);
	return 0;
}

static struct hca_cq *cq_new(struct hca_ctx *ctx, struct ibv_cq_init_attr_ex *attr)
{
	struct hca_cq *cq;

	if (ctx->fatal)
		return errno = EIO, NULL;
	if (!attr->cqe || attr->cqe > MAX_CQE || attr->comp_vector >= (uint32_t)ctx->v.context.num_comp_vectors)
		return errno = EINVAL, NULL;
	cq = calloc(1, sizeof(*cq));
	if (!cq || !(cq->ring = calloc(attr->cqe, sizeof(*cq->ring)))) {
		free(cq);
		return NULL;
	}
	cq->ctx = ctx;
	cq->pub.context = &ctx->v.context;
	cq->pub.channel = attr->channel;
	cq->pub.cq_context = attr->cq_context;
	cq->pub.cqe = (int)attr->cqe;
	cq->fail_work.run = fail_run;
	cq->with_tm_info = attr->wc_flags & IBV_WC_EX_WITH_TM_INFO;
	pthread_mutex_init(&cq->mu, NULL);
	pthread_mutex_init(&cq->pub.mutex, NULL);
	pthread_cond_init(&cq->pub.cond, NULL);
	cqex_init(cq);
	engine_lock();
	list_add_tail(&ctx->cqs, &cq->link);
	if (attr->channel)
		attr->channel->refcnt++;
	engine_unlock();
	count(ctx, C_cqs, 1);
	return cq;
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
				    struct ibv_comp_channel *channel, int comp_vector)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = (uint32_t)MAX(cqe, 0), .cq_context = cq_context, .channel = channel,
		.comp_vector = (uint32_t)comp_vector, .wc_flags = IBV_WC_STANDARD_FLAGS,
	};

	return (struct ibv_cq *)cq_new(to_ctx(context), &attr);
}

struct ibv_cq_ex *hca_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	struct hca_cq *cq;

	if (attr->wc_flags & ~(uint64_t)(IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_TM_INFO) ||
	    attr->comp_mask & ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD) ||
	    (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS && attr->flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED))
		return errno = EOPNOTSUPP, NULL;
	cq = cq_new(to_ctx(context), attr);
	return cq ? &cq->pub : NULL;
}

EXPORT int ibv_resize_cq(struct ibv_cq *pub, int cqe)
{
	struct hca_cq *cq = (struct hca_cq *)pub;
	struct cqe *ring, *old;
	int err = 0;

	if (cqe < 1 || cqe > MAX_CQE)
		return EINVAL;
	ring = calloc((size_t)cqe, sizeof(*ring));
	if (!ring)
		return ENOMEM;
	pthread_mutex_lock(&cq->mu);
	old = ring;
	if (cq->count > (uint32_t)cqe) {
		err = EINVAL;
	} else {
		for (uint32_t i = 0; i < cq->count; i++)
			ring[i] = cq->ring[(cq->head + i) % (uint32_t)cq->pub.cqe];
		old = cq->ring;
		cq->ring = ring;
		cq->head = 0;
		cq->pub.cqe = cqe;
	}
	pthread_mutex_unlock(&cq->mu);
	free(old);
	return err;
}

EXPORT int ibv_destroy_cq(struct ibv_cq *pub)
{
	struct hca_cq *cq = (struct hca_cq *)pub;
	struct hca_channel *ch = (struct hca_channel *)pub->channel;

	engine_lock();
	if (atomic_load(&cq->refs)) {
		engine_unlock();
		return EBUSY;
	}
	list_del(&cq->link);
	engine_unlock();
	work_cancel(&cq->fail_work);
	if (ch) {
		events_forget(&ch->q, cq);
		async_wait_acked(cq->ctx, &cq->events_taken, &cq->pub.comp_events_completed);
		engine_lock();
		ch->pub.refcnt--;
		engine_unlock();
	}
	events_forget(&cq->ctx->async, cq);
	async_wait_acked(cq->ctx, &cq->async_taken, &cq->pub.async_events_completed);
	count(cq->ctx, C_cqs, (uint64_t)-1);
	pthread_mutex_destroy(&cq->mu);
	free(cq->ring);
	free(cq);
	return 0;
}

EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct hca_channel *ch = calloc(1, sizeof(*ch));

	if (!ch)
		return NULL;
	errno = events_open(&ch->q);
	if (errno) {
		free(ch);
		return NULL;
	}
	ch->pub.context = context;
	ch->pub.fd = ch->q.fd;
	return &ch->pub;
}

EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *pub)
{
	struct hca_channel *ch = (struct hca_channel *)pub;

	engine_lock();
	if (pub->refcnt) {
		engine_unlock();
		return EBUSY;
	}
	engine_unlock();
	events_close(&ch->q);
	free(ch);
	return 0;
}

static void note_taken(void *element, int type)
{
	(void)type;
	((struct hca_cq *)element)->events_taken++;
}

EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	void *element;
	int type;

	if (events_get(&((struct hca_channel *)channel)->q, &element, &type, note_taken))
		return -1;
	*cq = element;
	*cq_context = (*cq)->cq_context;
	return 0;
}

EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n)
{
	struct hca_ctx *ctx = to_ctx(cq->context);

	pthread_mutex_lock(&ctx->ack_mu);
	cq->comp_events_completed += n;
	pthread_cond_broadcast(&ctx->ack_cond);
	pthread_mutex_unlock(&ctx->ack_mu);
}
