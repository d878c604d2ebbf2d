/* The state machine of a queue pair: which transitions there are, and what each must and may be given. */
#include "verbs.h"

#include <stdlib.h>

static const struct transition {
	enum ibv_qp_state from, to;
	int must, may;
} transitions[] = {
	{ IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0 },
	{ IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS },
	{ IBV_QPS_INIT, IBV_QPS_RTR,
	  IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
		  IBV_QP_MIN_RNR_TIMER,
	  IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX },
	{ IBV_QPS_RTR, IBV_QPS_RTS,
	  IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
	  IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER },
	{ IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER },
	{ IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY },
	{ IBV_QPS_SQD, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER },
	{ IBV_QPS_SQD, IBV_QPS_SQD, 0,
	  IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC |
		  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER },
};

static int find_transition(struct hca_qp *qp, enum ibv_qp_state to, int mask)
{
	mask &= ~IBV_QP_STATE;
	if (to == IBV_QPS_RESET || (to == IBV_QPS_ERR && qp->state != IBV_QPS_RESET))
		return mask & ~IBV_QP_CUR_STATE ? EINVAL : 0;
	for (unsigned i = 0; i < sizeof(transitions) / sizeof(*transitions); i++) {
		const struct transition *t = &transitions[i];

		if (t->from != qp->state || t->to != to)
			continue;
		if ((mask & t->must) == t->must && !(mask & ~(t->must | t->may)))
			return 0;
		debug(qp->ctx, "modify_qp %d to %d: attributes %#x missing, %#x too many", qp->state, to,
		      t->must & ~mask, mask & ~(t->must | t->may));
		return EINVAL;
	}
	debug(qp->ctx, "modify_qp: no way from state %d to %d", qp->state, to);
	return EINVAL;
}

/* Why the address cannot be used; NULL: it can. */
static const char *bad_address(const struct hca_qp *qp, const struct ibv_ah_attr *av)
{
	enum mode mode = qp->ctx->knobs.mode;
	union ibv_gid own;

	if (av->port_num != qp->port_num)
		return "address: it is for another port than the queue pair's";
	if (av->sl > 15)
		return "address: there are 16 service levels";
	if (!av->is_global && (mode == MODE_ROCE || mode == MODE_VF))
		return "address: this port requires a GRH";
	if (av->is_global && !port_gid(qp->ctx, qp->port_num, av->grh.sgid_index, &own))
		return "address: the port's table has no GID with that index";
	if (mode == MODE_ROCE)
		return gid_lid(&av->grh.dgid) ? NULL : "address: no port has that GID";
	return av->dlid && av->dlid < 0xc000 ? NULL : "address: wants a unicast dlid (this is InfiniBand)";
}

static int check_values(struct hca_qp *qp, const struct ibv_qp_attr *a, int mask)
{
	const uint32_t access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				IBV_ACCESS_REMOTE_ATOMIC;
	const char *why = NULL;

	if (mask & IBV_QP_CUR_STATE && a->cur_qp_state != qp->state)
		why = "cur_qp_state is not the state";
	else if (mask & IBV_QP_PORT && (!a->port_num || a->port_num > port_count(qp->ctx)))
		why = "there is no such port";
	else if (mask & IBV_QP_PKEY_INDEX &&
		 (a->pkey_index >= qp->ctx->knobs.npkeys || !qp->ctx->knobs.pkeys[a->pkey_index]))
		why = "the table of partition keys has no such entry";
	else if (mask & IBV_QP_ACCESS_FLAGS && a->qp_access_flags & ~access)
		why = "unknown access flags";
	else if (mask & IBV_QP_AV && (why = bad_address(qp, &a->ah_attr)))
		;
	else if (mask & IBV_QP_PATH_MTU && (a->path_mtu < IBV_MTU_256 || a->path_mtu > IBV_MTU_4096))
		why = "path MTU";
	else if (mask & IBV_QP_DEST_QPN && a->dest_qp_num & ~PSN_MASK)
		why = "a QPN has 24 bits";
	else if (mask & IBV_QP_MAX_DEST_RD_ATOMIC && a->max_dest_rd_atomic > qp->ctx->knobs.max_rd)
		why = "max_dest_rd_atomic is more than the device has";
	else if (mask & IBV_QP_MAX_QP_RD_ATOMIC && a->max_rd_atomic > qp->ctx->knobs.max_rd)
		why = "max_rd_atomic is more than the device has";
	else if (mask & IBV_QP_MIN_RNR_TIMER && a->min_rnr_timer > 31)
		why = "min_rnr_timer has 5 bits";
	else if (mask & IBV_QP_TIMEOUT && a->timeout > 31)
		why = "timeout has 5 bits";
	else if (mask & IBV_QP_RETRY_CNT && a->retry_cnt > 7)
		why = "retry_cnt has 3 bits";
	else if (mask & IBV_QP_RNR_RETRY && a->rnr_retry > 7)
		why = "rnr_retry has 3 bits";
	if (!why)
		return 0;
	debug(qp->ctx, "modify_qp: %s", why);
	return EINVAL;
}

static void take_values(struct hca_qp *qp, const struct ibv_qp_attr *a, int mask)
{
	if (mask & IBV_QP_PORT)
		qp->port_num = a->port_num;
	if (mask & IBV_QP_PKEY_INDEX)
		qp->pkey_index = a->pkey_index;
	if (mask & IBV_QP_ACCESS_FLAGS)
		qp->access = a->qp_access_flags;
	if (mask & IBV_QP_AV) {
		qp->av = a->ah_attr;
		qp->dlid = qp->ctx->knobs.mode == MODE_ROCE ? gid_lid(&a->ah_attr.grh.dgid) : a->ah_attr.dlid;
		qp->sl = a->ah_attr.sl;
	}
	if (mask & IBV_QP_PATH_MTU)
		qp->path_mtu = (uint8_t)a->path_mtu;
	if (mask & IBV_QP_DEST_QPN)
		qp->dest_qpn = a->dest_qp_num;
	if (mask & IBV_QP_RQ_PSN)
		qp->epsn = qp->rq_psn0 = a->rq_psn & PSN_MASK;
	if (mask & IBV_QP_SQ_PSN)
		qp->sq_psn0 = a->sq_psn & PSN_MASK;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		qp->max_dest_rd = a->max_dest_rd_atomic;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		qp->max_rd = a->max_rd_atomic;
	if (mask & IBV_QP_MIN_RNR_TIMER)
		qp->min_rnr_timer = a->min_rnr_timer;
	if (mask & IBV_QP_TIMEOUT)
		qp->timeout = a->timeout;
	if (mask & IBV_QP_RETRY_CNT)
		qp->retry_cnt = a->retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		qp->rnr_retry = a->rnr_retry;
	if (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY)
		qp->sqd_notify = a->en_sqd_async_notify;
}

/* Back to the beginning: what was posted is dropped without a completion, and so are completions not yet polled. */
static void reset(struct hca_qp *qp)
{
	qp_bump(qp);
	qp_timer_stop(qp);
	qp_forget_jobs(qp);
	qp_set_state(qp, IBV_QPS_RESET);
	cq_forget((struct hca_cq *)qp->pub.send_cq, qp, NULL);
	cq_forget((struct hca_cq *)qp->pub.recv_cq, qp, NULL);
	if (qp->pub.srq)
		cq_forget(to_srq(qp->pub.srq)->cq, qp, NULL);
	atomic_store(&qp->sq_posted, 0);
	atomic_store(&qp->sq_freed, 0);
	qp->sq_next = qp->sq_una = qp->rd_out = 0;
	qp->retries = qp->rnr_retries = 0;
	qp->implied = qp->lost = qp->failing = qp->nak_sent = qp->last_wqe_told = qp->draining = false;
	qp->not_before = 0;
	free(qp->atomics);
	qp->atomics = NULL;
	if (qp->own_rq) {
		atomic_store(&qp->own_rq->posted, 0);
		atomic_store(&qp->own_rq->freed, 0);
		qp->own_rq->taken = 0;
	}
}

static void enter(struct hca_qp *qp, enum ibv_qp_state to)
{
	switch (to) {
	case IBV_QPS_RESET:
		reset(qp);
		break;
	case IBV_QPS_ERR:
		qp_error(qp);
		break;
	case IBV_QPS_SQD:
		if (qp->state == IBV_QPS_RTS) {
			qp->sq_drain_at = qp->sq_next;
			qp->draining = true;
		}
		qp_set_state(qp, to);
		ring_doorbell(&qp->work);
		break;
	default:
		qp_set_state(qp, to);
		ring_doorbell(&qp->work);
	}
}

EXPORT int ibv_modify_qp(struct ibv_qp *pub, struct ibv_qp_attr *a, int mask)
{
	struct hca_qp *qp = (struct hca_qp *)pub;
	enum ibv_qp_state to;
	int err;

	count(qp->ctx, C_modifies, 1);
	engine_lock();
	to = mask & IBV_QP_STATE ? a->qp_state : qp->state;
	if (qp->ctx->fatal)
		err = EIO;
	else if (to > IBV_QPS_ERR || to == IBV_QPS_SQE)
		err = EINVAL;
	else if (!(err = find_transition(qp, to, mask)))
		err = check_values(qp, a, mask);
	if (!err && to == IBV_QPS_RTR && qp->access & IBV_ACCESS_REMOTE_ATOMIC && qp->ctx->knobs.mode == MODE_VF)
		err = EOPNOTSUPP; /* as mlx5_ib, for a function without atomics */
	if (!err) {
		take_values(qp, a, mask);
		if (to != qp->state)
			enter(qp, to);
	}
	engine_unlock();
	return err;
}

EXPORT int ibv_query_qp(struct ibv_qp *pub, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init)
{
	struct hca_qp *qp = (struct hca_qp *)pub;

	(void)mask; /* everything costs the same */
	engine_lock();
	*a = (struct ibv_qp_attr){
		.qp_state = qp->state, .cur_qp_state = qp->state, .path_mtu = qp->path_mtu, .rq_psn = qp->epsn,
		.sq_psn = (qp->sq_psn0 + qp->sq_next) & PSN_MASK, .dest_qp_num = qp->dest_qpn,
		.qp_access_flags = qp->access, .cap = qp->cap, .ah_attr = qp->av, .max_rd_atomic = qp->max_rd,
		.max_dest_rd_atomic = qp->max_dest_rd, .min_rnr_timer = qp->min_rnr_timer,
		.port_num = qp->port_num, .timeout = qp->timeout, .retry_cnt = qp->retry_cnt,
		.rnr_retry = qp->rnr_retry, .sq_draining = qp->draining, .en_sqd_async_notify = qp->sqd_notify,
	};
	engine_unlock();
	*init = (struct ibv_qp_init_attr){
		.qp_context = pub->qp_context, .send_cq = pub->send_cq, .recv_cq = pub->recv_cq, .srq = pub->srq,
		.cap = qp->cap, .qp_type = pub->qp_type, .sq_sig_all = qp->sig_all,
	};
	return 0;
}
