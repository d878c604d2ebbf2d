/* Making and destroying queue pairs. modify.c has the state machine. */
#include "verbs.h"

#include <stdlib.h>

static int check_cap(struct hca_ctx *ctx, const struct ibv_qp_init_attr_ex *a)
{
	const struct ibv_qp_cap *c = &a->cap;

	if (c->max_send_wr > MAX_WR || c->max_send_sge > MAX_SGE || c->max_inline_data > ctx->knobs.max_inline)
		return EINVAL;
	if (!a->srq && (c->max_recv_wr > MAX_WR || c->max_recv_sge > MAX_SGE))
		return EINVAL;
	return 0;
}

static int check_init(struct hca_ctx *ctx, const struct ibv_qp_init_attr_ex *a)
{
	const char *why = NULL;

	if (ctx->fatal)
		return EIO;
	if (ctx->bare)
		return EOPNOTSUPP;
	if (a->qp_type != IBV_QPT_RC)
		why = "only RC is here";
	else if (!a->send_cq || !a->recv_cq)
		why = "needs both completion queues";
	else if (a->send_cq->context != &ctx->v.context || a->recv_cq->context != &ctx->v.context ||
		 a->pd->context != &ctx->v.context || (a->srq && a->srq->context != &ctx->v.context))
		why = "its parts belong to different devices";
	else if (check_cap(ctx, a))
		why = "asks for more than the device has";
	if (!why)
		return 0;
	debug(ctx, "create_qp: %s", why);
	return a->qp_type == IBV_QPT_RC ? EINVAL : EOPNOTSUPP;
}

static int rings_make(struct hca_qp *qp)
{
	const struct ibv_qp_cap *c = &qp->cap;

	qp->sq_depth = c->max_send_wr;
	qp->area_stride = MAX(MAX(c->max_send_sge * (uint32_t)sizeof(struct ibv_sge), (c->max_inline_data + 7) & ~7u),
			      (uint32_t)sizeof(struct ibv_sge) + 16); /* an atomic: one SGE, two operands */
	if (qp->sq_depth) {
		qp->sq = calloc(qp->sq_depth, sizeof(*qp->sq));
		qp->area = calloc(qp->sq_depth, qp->area_stride);
		if (!qp->sq || !qp->area)
			return ENOMEM;
	}
	if (qp->pub.srq) {
		qp->rq = &to_srq(qp->pub.srq)->rq;
		return 0;
	}
	qp->own_rq = qp->rq = calloc(1, sizeof(*qp->rq));
	return qp->rq ? rq_init(qp->rq, c->max_recv_wr, c->max_recv_sge) : ENOMEM;
}

/* The bytes of this queue pair in the counter qp_memory. */
static size_t qp_bytes(const struct hca_qp *qp)
{
	return sizeof(*qp) + qp->sq_depth * (sizeof(*qp->sq) + qp->area_stride) +
	       (qp->own_rq ? sizeof(*qp->own_rq) + rq_bytes(qp->own_rq) : 0);
}

static void qp_free(struct hca_qp *qp)
{
	if (qp->own_rq) {
		rq_free(qp->own_rq);
		free(qp->own_rq);
	}
	pthread_mutex_destroy(&qp->post_mu);
	free(qp->atomics);
	free(qp->sq);
	free(qp->area);
	free(qp);
}

static struct hca_qp *qp_new(struct hca_ctx *ctx, const struct ibv_qp_init_attr_ex *a)
{
	struct hca_qp *qp = calloc(1, sizeof(*qp));

	if (!qp)
		return NULL;
	qp->ctx = ctx;
	qp->cap = a->cap;
	if (a->srq)
		qp->cap.max_recv_wr = qp->cap.max_recv_sge = 0;
	qp->sig_all = a->sq_sig_all;
	qp->pub = (struct ibv_qp){
		.context = &ctx->v.context, .qp_context = a->qp_context, .pd = a->pd, .send_cq = a->send_cq,
		.recv_cq = a->recv_cq, .srq = a->srq, .qp_type = IBV_QPT_RC, .state = IBV_QPS_RESET,
	};
	pthread_mutex_init(&qp->post_mu, NULL);
	pthread_mutex_init(&qp->pub.mutex, NULL);
	pthread_cond_init(&qp->pub.cond, NULL);
	list_init(&qp->link);
	list_init(&qp->conn_wait.link);
	qp->conn_wait.work = &qp->work;
	list_init(&qp->tm_waiting);
	list_init(&qp->tm_active);
	list_init(&qp->retry_timer.link);
	list_init(&qp->wait_timer.link);
	list_init(&qp->flush_timer.link);
	qp->flush_timer.fire = qp_flush_fire;
	qp->retry_timer.fire = requester_retry_fire;
	qp->wait_timer.fire = requester_wait_fire;
	qp->work.run = requester_run;
	qp->flush = qp_flush;
	if (a->srq && to_srq(a->srq)->tm)
		qp->matcher = &tm_matcher;
	if (rings_make(qp)) {
		qp_free(qp);
		return errno = ENOMEM, NULL;
	}
	return qp;
}

static void qp_refs(struct hca_qp *qp, int n)
{
	atomic_fetch_add(&((struct hca_cq *)qp->pub.send_cq)->refs, n);
	atomic_fetch_add(&((struct hca_cq *)qp->pub.recv_cq)->refs, n);
	atomic_fetch_add(&((struct hca_pd *)qp->pub.pd)->refs, n);
	if (qp->pub.srq)
		atomic_fetch_add(&to_srq(qp->pub.srq)->refs, n);
	count(qp->ctx, C_qps, (uint64_t)(int64_t)n);
	count(qp->ctx, C_qp_memory, (uint64_t)((int64_t)qp_bytes(qp) * n));
}

struct ibv_qp *hca_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *a)
{
	struct hca_ctx *ctx = to_ctx(context);
	struct hca_qp *qp;
	int err;

	hold_await(ctx, HOLD_CREATIONS, 1);
	if (!(a->comp_mask & IBV_QP_INIT_ATTR_PD) || a->comp_mask & ~(uint32_t)IBV_QP_INIT_ATTR_PD)
		return errno = EOPNOTSUPP, NULL;
	errno = check_init(ctx, a);
	if (!errno && atomic_load(&ctx->counters[C_qps]) >= ctx->knobs.max_qp)
		errno = ENOMEM; /* what mlx5 makes of the firmware's LIM_ERR */
	if (errno || !(qp = qp_new(ctx, a)))
		return NULL;
	engine_lock();
	err = qp_attach(qp);
	engine_unlock();
	if (err) {
		qp_free(qp);
		return errno = err, NULL;
	}
	qp_refs(qp, 1);
	count(ctx, C_qps_made, 1);
	a->cap = qp->cap;
	return &qp->pub;
}

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex ex = {
		.qp_context = attr->qp_context, .send_cq = attr->send_cq, .recv_cq = attr->recv_cq, .srq = attr->srq,
		.cap = attr->cap, .qp_type = attr->qp_type, .sq_sig_all = attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd,
	};
	struct ibv_qp *qp;

	qp = hca_create_qp_ex(pd->context, &ex);
	if (qp)
		attr->cap = ex.cap;
	return qp;
}

EXPORT int ibv_destroy_qp(struct ibv_qp *pub)
{
	struct hca_qp *qp = (struct hca_qp *)pub;

	hold_await(qp->ctx, HOLD_DESTRUCTIONS, 1);
	engine_lock();
	qp_detach(qp);
	cq_forget((struct hca_cq *)pub->send_cq, qp, NULL);
	cq_forget((struct hca_cq *)pub->recv_cq, qp, NULL);
	if (pub->srq)
		cq_forget(to_srq(pub->srq)->cq, qp, NULL);
	engine_unlock();
	events_forget(&qp->ctx->async, qp);
	async_wait_acked(qp->ctx, &qp->async_taken, &pub->events_completed);
	qp_refs(qp, -1);
	qp_free(qp);
	return 0;
}

EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	(void)qp;
	return NULL; /* the wr_ interface is not offered: create_qp_ex refuses to make such a QP */
}
