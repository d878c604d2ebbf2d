/* Queue pairs as the engine sees them: their numbers, and the error state. */
#include "queues.h"

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
	list_del(&qp->conn_wait.link);
}

/* The rendezvous of the device that are not over end without completions. */
void qp_forget_jobs(struct hca_qp *qp)
{
	if (qp->matcher)
		qp->matcher->forget(qp);
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
	qp->sq_next = qp->sq_una; /* nothing is sent any more */
	qp->rd_out = 0;
	qp->lost = qp->failing = false;
	qp->flush(qp);
	if (qp->pub.srq && !qp->last_wqe_told) {
		qp->last_wqe_told = true;
		async_event(qp->ctx, IBV_EVENT_QP_LAST_WQE_REACHED, qp);
	}
}

/* Gives it a number and makes it known to the engine. The engine lock is held. */
int qp_attach(struct hca_qp *qp)
{
	qp->slot = slot_take();
	if (!qp->slot)
		return ENOMEM;
	qp->pub.qp_num = qp->pub.handle = (uint32_t)qp_slot(qp->slot)->salt << 18 | qp->slot;
	qp_slot(qp->slot)->qp = qp;
	list_add_tail(&qp->ctx->qps, &qp->link);
	return 0;
}

/* Takes it out of the engine. The engine lock is held. */
void qp_detach(struct hca_qp *qp)
{
	if (!qp_slot(qp->slot)->qp)
		return;
	qp_bump(qp);
	qp_timer_stop(qp);
	qp_forget_jobs(qp);
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
