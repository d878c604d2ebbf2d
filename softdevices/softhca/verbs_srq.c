/* Shared receive queues. */
#include "verbs.h"

#include <stdlib.h>

static struct hca_srq *srq_new(struct ibv_pd *pd, void *srq_context, struct ibv_srq_attr *attr,
			       enum ibv_srq_type type)
{
	struct hca_srq *srq;

	if (to_ctx(pd->context)->fatal)
		return errno = EIO, NULL;
	if (to_ctx(pd->context)->bare)
		return errno = EOPNOTSUPP, NULL;
	if (!attr->max_wr || attr->max_wr > MAX_WR || !attr->max_sge || attr->max_sge > MAX_SGE)
		return errno = EINVAL, NULL;
	srq = calloc(1, sizeof(*srq));
	if (!srq || rq_init(&srq->rq, attr->max_wr, attr->max_sge)) {
		if (srq)
			rq_free(&srq->rq);
		free(srq);
		return errno = ENOMEM, NULL;
	}
	srq->ctx = to_ctx(pd->context);
	srq->type = type;
	srq->pub.context = pd->context;
	srq->pub.srq_context = srq_context;
	srq->pub.pd = pd;
	pthread_mutex_init(&srq->pub.mutex, NULL);
	pthread_cond_init(&srq->pub.cond, NULL);
	srq->num = srq->pub.handle = 1 + (uint32_t)atomic_load(&srq->ctx->counters[C_srqs]);
	atomic_fetch_add(&((struct hca_pd *)pd)->refs, 1);
	count(srq->ctx, C_srqs, 1);
	return srq;
}

static void srq_free(struct hca_srq *srq)
{
	atomic_fetch_sub(&((struct hca_pd *)srq->pub.pd)->refs, 1);
	count(srq->ctx, C_srqs, (uint64_t)-1);
	rq_free(&srq->rq);
	free(srq);
}

EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct hca_srq *srq = srq_new(pd, attr->srq_context, &attr->attr, IBV_SRQT_BASIC);

	return srq ? &srq->pub : NULL;
}

static struct ibv_srq *create_tm(struct ibv_srq_init_attr_ex *a)
{
	const uint32_t need = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
	struct hca_ctx *ctx;
	struct hca_srq *srq;

	if ((a->comp_mask & need) != need)
		return errno = EINVAL, NULL;
	ctx = to_ctx(a->pd->context);
	if (!ctx->knobs.tm)
		return errno = EOPNOTSUPP, NULL;
	if (ctx->knobs.mode == MODE_ROCE) {
		/* libmlx5 takes the SRQ's own queue pair to RTR by a LID; the kernel wants a GRH over Ethernet. */
		debug(ctx, "TM-SRQ: its queue pair has no GRH");
		return errno = EINVAL, NULL;
	}
	if (!((struct hca_cq *)a->cq)->with_tm_info || a->attr.max_sge != 1 || !a->tm_cap.max_num_tags ||
	    a->tm_cap.max_num_tags > ctx->knobs.max_tags || !a->tm_cap.max_ops ||
	    a->tm_cap.max_ops > ctx->knobs.max_ops) {
		debug(ctx, "TM-SRQ: wants an extended CQ with TM_INFO, one SGE, up to %u tags and %u operations",
		      ctx->knobs.max_tags, ctx->knobs.max_ops);
		return errno = EINVAL, NULL;
	}
	srq = srq_new(a->pd, a->srq_context, &a->attr, IBV_SRQT_TM);
	if (!srq)
		return NULL;
	srq->cq = (struct hca_cq *)a->cq;
	srq->tm = tm_create(srq, &a->tm_cap);
	if (!srq->tm) {
		srq_free(srq);
		return errno = ENOMEM, NULL;
	}
	atomic_fetch_add(&srq->cq->refs, 1);
	return &srq->pub;
}

struct ibv_srq *hca_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *a)
{
	enum ibv_srq_type type = a->comp_mask & IBV_SRQ_INIT_ATTR_TYPE ? a->srq_type : IBV_SRQT_BASIC;
	struct hca_srq *srq;

	(void)context;
	if (type == IBV_SRQT_TM)
		return create_tm(a);
	if (type != IBV_SRQT_BASIC)
		return errno = EOPNOTSUPP, NULL;
	if (!(a->comp_mask & IBV_SRQ_INIT_ATTR_PD))
		return errno = EINVAL, NULL;
	srq = srq_new(a->pd, a->srq_context, &a->attr, type);
	return srq ? &srq->pub : NULL;
}

int hca_get_srq_num(struct ibv_srq *srq, uint32_t *num)
{
	if (!to_srq(srq)->tm)
		return EOPNOTSUPP;
	*num = to_srq(srq)->num;
	return 0;
}

EXPORT int ibv_modify_srq(struct ibv_srq *pub, struct ibv_srq_attr *attr, int mask)
{
	struct hca_srq *srq = to_srq(pub);

	if (mask & ~IBV_SRQ_LIMIT)
		return mask & IBV_SRQ_MAX_WR ? EOPNOTSUPP : EINVAL;
	if (!(mask & IBV_SRQ_LIMIT))
		return 0;
	if (attr->srq_limit > srq->rq.max_wr)
		return EINVAL;
	engine_lock();
	srq->limit = attr->srq_limit;
	if (srq->limit && rq_left(&srq->rq) < srq->limit) {
		srq->limit = 0;
		async_event(srq->ctx, IBV_EVENT_SRQ_LIMIT_REACHED, srq);
	}
	engine_unlock();
	return 0;
}

EXPORT int ibv_query_srq(struct ibv_srq *pub, struct ibv_srq_attr *attr)
{
	struct hca_srq *srq = to_srq(pub);

	engine_lock();
	*attr = (struct ibv_srq_attr){ srq->rq.max_wr, srq->rq.max_sge, srq->limit };
	engine_unlock();
	return 0;
}

EXPORT int ibv_destroy_srq(struct ibv_srq *pub)
{
	struct hca_srq *srq = to_srq(pub);

	if (atomic_load(&srq->refs))
		return EBUSY;
	events_forget(&srq->ctx->async, srq);
	async_wait_acked(srq->ctx, &srq->async_taken, &pub->events_completed);
	if (srq->tm) {
		tm_destroy(srq->tm);
		atomic_fetch_sub(&srq->cq->refs, 1);
	}
	srq_free(srq);
	return 0;
}

int hca_post_srq_recv(struct ibv_srq *pub, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct hca_srq *srq = to_srq(pub);

	count(srq->ctx, C_posts, 1);
	return rq_post(srq->ctx, &srq->rq, wr, bad);
}
