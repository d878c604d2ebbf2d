/* Receive queues, of a QP or shared. */
#include "queues.h"

#include <stdlib.h>

int rq_init(struct hca_rq *rq, uint32_t max_wr, uint32_t max_sge)
{
	pthread_mutex_init(&rq->mu, NULL);
	rq->max_wr = max_wr;
	rq->max_sge = max_sge;
	if (!max_wr)
		return 0;
	rq->ring = calloc(max_wr, sizeof(*rq->ring));
	rq->sges = calloc((size_t)max_wr * MAX(max_sge, 1), sizeof(*rq->sges));
	return rq->ring && rq->sges ? 0 : ENOMEM;
}

void rq_free(struct hca_rq *rq)
{
	pthread_mutex_destroy(&rq->mu);
	free(rq->ring);
	free(rq->sges);
}

size_t rq_bytes(const struct hca_rq *rq)
{
	return rq->max_wr * (sizeof(*rq->ring) + MAX(rq->max_sge, 1) * sizeof(*rq->sges));
}

/* Copies the requests in; stops at the first that cannot be taken. */
int rq_post(struct hca_ctx *ctx, struct hca_rq *rq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int err = 0;

	pthread_mutex_lock(&rq->mu);
	for (; wr; wr = wr->next) {
		uint32_t posted = atomic_load_explicit(&rq->posted, memory_order_relaxed);
		struct recv_slot *s;

		if (wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->max_sge) {
			err = EINVAL;
			break;
		}
		if (posted - atomic_load_explicit(&rq->freed, memory_order_acquire) >= rq->max_wr) {
			err = ENOMEM;
			break;
		}
		s = &rq->ring[posted % rq->max_wr];
		s->wr_id = wr->wr_id;
		s->num_sge = (uint32_t)wr->num_sge;
		if (s->num_sge)
			memcpy(&rq->sges[(size_t)(posted % rq->max_wr) * MAX(rq->max_sge, 1)], wr->sg_list,
			       s->num_sge * sizeof(*rq->sges));
		atomic_store_explicit(&rq->posted, posted + 1, memory_order_release);
		count(ctx, C_posted_recvs, 1);
	}
	pthread_mutex_unlock(&rq->mu);
	if (err)
		*bad = wr;
	return err;
}

/* The oldest request, which stays. What it says stays valid until rq_take. */
bool rq_peek(struct hca_rq *rq, uint64_t *wr_id, struct ibv_sge **sges, uint32_t *n)
{
	struct recv_slot *s;

	if (!rq_left(rq))
		return false;
	s = &rq->ring[rq->taken % rq->max_wr];
	*wr_id = s->wr_id;
	*sges = &rq->sges[(size_t)(rq->taken % rq->max_wr) * MAX(rq->max_sge, 1)];
	*n = s->num_sge;
	return true;
}

uint32_t rq_left(struct hca_rq *rq)
{
	return atomic_load_explicit(&rq->posted, memory_order_acquire) - rq->taken;
}

/* Takes the oldest request of the queue of qp; says so when an SRQ runs low. */
void rq_take(struct hca_qp *qp)
{
	struct hca_srq *srq = to_srq(qp->pub.srq);

	qp->rq->taken++;
	if (srq && srq->limit && rq_left(qp->rq) < srq->limit) {
		srq->limit = 0; /* once; the program arms it again */
		async_event(qp->ctx, IBV_EVENT_SRQ_LIMIT_REACHED, srq);
	}
}

int hca_post_recv(struct ibv_qp *pub, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct hca_qp *qp = (struct hca_qp *)pub;
	int err, state = atomic_load(&qp->post_state);

	count(qp->ctx, C_posts, 1);
	if (!qp->own_rq || state == IBV_QPS_RESET) {
		debug(qp->ctx, "receive posted to QP %u, %s", pub->qp_num,
		      qp->own_rq ? "which is in RESET" : "which has a shared queue");
		*bad = wr;
		return EINVAL;
	}
	err = rq_post(qp->ctx, qp->own_rq, wr, bad);
	if (atomic_load(&qp->post_state) == IBV_QPS_ERR)
		ring_doorbell(&qp->work); /* to be flushed */
	return err;
}
