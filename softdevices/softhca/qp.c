/* Queue pairs: making, ending, and the error state. modify.c has the state machine. */
#include "hca.h"

#include <stdlib.h>

enum { CHUNK = 1024, CHUNKS = 256 }; /* an index has 18 bits of a QPN, the salt 6 */

static struct qp_slot *chunks[CHUNKS]; /* engine lock; never freed: peers read the generations */
static uint32_t used_slots = 1;
static uint32_t free_head, free_tail;

struct qp_slot *qp_slot(uint32_t i)
{
	return &chunks[i / CHUNK][i % CHUNK];
}

static uint32_t slot_take(void)
{
	uint32_t i = free_head;

	if (i && free_head != free_tail) {
		free_head = qp_slot(i)->next_free;
		return i;
	}
	i = used_slots;
	if (i == CHUNK * CHUNKS)
		return 0;
	if (!chunks[i / CHUNK])
		chunks[i / CHUNK] = calloc(CHUNK, sizeof(struct qp_slot));
	if (!chunks[i / CHUNK])
		return 0;
	/* A process that gets the LID of one that is gone shall not get its QPNs. */
	qp_slot(i)->salt = (uint8_t)next_random(&engine.rng) & 0x3f;
	used_slots++;
	return i;
}

static void slot_drop(uint32_t i)
{
	struct qp_slot *s = qp_slot(i);

	s->qp = NULL;
	s->salt = (s->salt + 1) & 0x3f;
	s->next_free = 0;
	if (free_head)
		qp_slot(free_tail)->next_free = i;
	else
		free_head = i;
	free_tail = i;
}

struct hca_qp *qp_find(struct hca_ctx *ctx, uint32_t qpn)
{
	uint32_t i = qpn & 0x3ffff;
	struct hca_qp *qp;

	if (!i || i >= used_slots)
		return NULL;
	qp = qp_slot(i)->qp;
	return qp && qp->pub.qp_num == qpn && qp->ctx == ctx ? qp : NULL;
}

/* From here on what a peer reads of the memory of our requests does not count. */
void qp_bump(struct hca_qp *qp)
{
	atomic_fetch_add(&qp_slot(qp->slot)->gen, 1);
}

void qp_set_state(struct hca_qp *qp, enum ibv_qp_state s)
{
	qp->state = s;
	qp->pub.state = s;
	pthread_mutex_lock(&qp->post_mu);
	atomic_store(&qp->post_state, (int)s);
	pthread_mutex_unlock(&qp->post_mu);
}

void qp_timer_stop(struct hca_qp *qp)
{
	timer_stop(&qp->retry_timer);
	timer_stop(&qp->wait_timer);
	timer_stop(&qp->flush_timer);
	list_del(&qp->conn_link);
}

/* Everything that is posted ends with an error, soon, and what comes is thrown away. The engine lock is held. */
void qp_error(struct hca_qp *qp)
{
	if (qp->state == IBV_QPS_ERR || qp->state == IBV_QPS_RESET)
		return;
	qp_bump(qp);
	qp_timer_stop(qp);
	qp_set_state(qp, IBV_QPS_ERR);
	count(qp->ctx, C_qp_errors, 1);
	requester_stop(qp);
	qp_flush(qp);
	if (qp->pub.srq && !qp->last_wqe_told) {
		qp->last_wqe_told = true;
		async_event(qp->ctx, IBV_EVENT_QP_LAST_WQE_REACHED, qp);
	}
}

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

/* What the counter qp_memory says: all that was taken for this queue pair. */
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
	list_init(&qp->conn_link);
	list_init(&qp->tm_waiting);
	list_init(&qp->tm_active);
	list_init(&qp->retry_timer.link);
	list_init(&qp->wait_timer.link);
	list_init(&qp->flush_timer.link);
	qp->flush_timer.fire = qp_flush_fire;
	qp->retry_timer.fire = requester_retry_fire;
	qp->wait_timer.fire = requester_wait_fire;
	qp->work.run = requester_run;
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

	if (!(a->comp_mask & IBV_QP_INIT_ATTR_PD) || a->comp_mask & ~(uint32_t)IBV_QP_INIT_ATTR_PD)
		return errno = EOPNOTSUPP, NULL;
	errno = check_init(ctx, a);
	if (errno || !(qp = qp_new(ctx, a)))
		return NULL;
	engine_lock();
	qp->slot = slot_take();
	if (!qp->slot) {
		engine_unlock();
		qp_free(qp);
		return errno = ENOMEM, NULL;
	}
	qp->pub.qp_num = qp->pub.handle = (uint32_t)qp_slot(qp->slot)->salt << 18 | qp->slot;
	qp_slot(qp->slot)->qp = qp;
	list_add_tail(&ctx->qps, &qp->link);
	engine_unlock();
	qp_refs(qp, 1);
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

/* Takes it out of the engine. The engine lock is held. */
static void qp_detach(struct hca_qp *qp)
{
	if (!qp_slot(qp->slot)->qp)
		return;
	qp_bump(qp);
	qp_timer_stop(qp);
	tm_forget(qp);
	slot_drop(qp->slot);
	list_del(&qp->link);
	work_cancel(&qp->work);
}

void qp_detach_all(struct hca_ctx *ctx)
{
	struct list *l, *tmp;

	list_for_each(l, tmp, &ctx->qps)
		qp_detach(container_of(l, struct hca_qp, link));
}

EXPORT int ibv_destroy_qp(struct ibv_qp *pub)
{
	struct hca_qp *qp = (struct hca_qp *)pub;

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
