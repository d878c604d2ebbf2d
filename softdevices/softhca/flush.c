/*
 * The error state: what is posted ends, and what comes is thrown away. As a device does, a queue pair gives its
 * requests back later and a few at a time, its send and its receive queue in no order, and other completions come in
 * between.
 */
#include "requests.h"

enum { STEP = 4 }; /* requests that are given back at once at most */

/* Gives one request back. False: there is none. */
static bool flush_one(struct hca_qp *qp)
{
	bool receives_first = qp->own_rq && next_random(&qp->ctx->rng) % 2;

	return (receives_first && responder_flush_one(qp)) || requester_flush_one(qp) ||
	       (qp->matcher && qp->matcher->flush_one(qp)) || responder_flush_one(qp);
}

static void soon(struct hca_qp *qp)
{
	timer_arm(&qp->flush_timer, now_ns() + next_random(&qp->ctx->rng) % (qp->ctx->knobs.flush_delay + 1));
}

/* A step. "resume" rings the doorbell of a device that is paused. */
void qp_flush_fire(struct timer *t)
{
	struct hca_qp *qp = container_of(t, struct hca_qp, flush_timer);
	uint64_t n = 1 + next_random(&qp->ctx->rng) % STEP;

	if (qp->ctx->paused)
		return;
	while (n && flush_one(qp))
		n--;
	if (!n)
		soon(qp);
}

/* Sees to it that what a queue pair in the error state has comes back. */
void qp_flush(struct hca_qp *qp)
{
	if (!qp->ctx->knobs.flush_delay)
		while (flush_one(qp))
			;
	else if (list_empty(&qp->flush_timer.link)) {
		soon(qp);
		ring_doorbell(&qp->work); /* a thread that sleeps does not know of the timer */
	}
}
