/* Completion queues and completion channels, as programs see them. */
#include "verbs.h"

#include <stdlib.h>

int hca_poll_cq(struct ibv_cq *pub, int n, struct ibv_wc *wc)
{
	struct hca_cq *cq = (struct hca_cq *)pub;
	struct cqe e;
	int i;

	count(cq->ctx, C_polls, 1);
	if (atomic_load(&cq->ctx->polls_fail))
		return -1;
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
	cq->fail_work.run = cq_fail_run;
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
