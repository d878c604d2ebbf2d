/* Posting of send requests: they are checked as far as a provider can, copied, and the HCA thread is woken. */
#include "queues.h"

static int check_flags(struct hca_qp *qp, const struct ibv_send_wr *wr)
{
	const unsigned known = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;

	if (wr->send_flags & ~known)
		return EINVAL;
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->cap.max_send_sge)
		return EINVAL;
	switch (wr->opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return 0;
	case IBV_WR_RDMA_READ:
		return wr->send_flags & IBV_SEND_INLINE ? EINVAL : 0;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return wr->send_flags & IBV_SEND_INLINE || wr->num_sge != 1 || wr->sg_list[0].length != 8 ? EINVAL : 0;
	default:
		return EOPNOTSUPP;
	}
}

static uint8_t wqe_flags(const struct hca_qp *qp, unsigned f)
{
	return (f & IBV_SEND_SIGNALED || qp->sig_all ? WQE_SIGNALED : 0) |
	       (f & IBV_SEND_SOLICITED ? WQE_SOLICITED : 0) | (f & IBV_SEND_FENCE ? WQE_FENCE : 0) |
	       (f & IBV_SEND_INLINE ? WQE_INLINE : 0);
}

/* The data of an inline request is the program's again when post_send returns. */
static int take_inline(struct hca_qp *qp, const struct ibv_send_wr *wr, uint8_t *area, uint64_t len)
{
	if (len > qp->cap.max_inline_data) {
		debug(qp->ctx, "%llu bytes inline, %u are allowed", (unsigned long long)len, qp->cap.max_inline_data);
		return EINVAL;
	}
	for (int i = 0; i < wr->num_sge; i++) {
		memcpy(area, (void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
		area += wr->sg_list[i].length;
	}
	count(qp->ctx, C_inline_posts, 1);
	if (len > TM_RNDV_HDR) /* less is a header and no payload */
		count(qp->ctx, C_payload_copies_by_cpu, 1);
	return 0;
}

static int fill(struct hca_qp *qp, const struct ibv_send_wr *wr, uint32_t index)
{
	struct wqe *w = qp_wqe(qp, index);
	uint8_t *area = qp_area(qp, index);
	uint64_t len = 0;
	int err = check_flags(qp, wr);

	if (err)
		return err;
	for (int i = 0; i < wr->num_sge; i++)
		len += wr->sg_list[i].length;
	*w = (struct wqe){
		.wr_id = wr->wr_id, .opcode = (uint8_t)wr->opcode, .imm = wr->imm_data, .num_sge = (uint8_t)wr->num_sge,
		.flags = wqe_flags(qp, wr->send_flags), .len = (uint32_t)MIN(len, UINT32_MAX),
	};
	if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		w->raddr = wr->wr.atomic.remote_addr;
		w->rkey = wr->wr.atomic.rkey;
		memcpy(area + sizeof(struct ibv_sge), &wr->wr.atomic.compare_add, 8);
		memcpy(area + sizeof(struct ibv_sge) + 8, &wr->wr.atomic.swap, 8);
	} else {
		w->raddr = wr->wr.rdma.remote_addr;
		w->rkey = wr->wr.rdma.rkey;
	}
	if (wr->send_flags & IBV_SEND_INLINE)
		return take_inline(qp, wr, area, len);
	if (wr->num_sge)
		memcpy(area, wr->sg_list, (size_t)wr->num_sge * sizeof(struct ibv_sge));
	return 0;
}

/* One request. A place is free again only when a completion at or behind it has been polled. post_mu is held. */
static int post_one(struct hca_qp *qp, const struct ibv_send_wr *wr)
{
	uint32_t posted = atomic_load_explicit(&qp->sq_posted, memory_order_relaxed);
	int err;

	if (posted - atomic_load_explicit(&qp->sq_freed, memory_order_acquire) >= qp->cap.max_send_wr) {
		debug(qp->ctx, "QP %u: send queue full", qp->pub.qp_num);
		return ENOMEM;
	}
	err = fill(qp, wr, posted);
	if (err)
		return err;
	atomic_store_explicit(&qp->sq_posted, posted + 1, memory_order_release);
	count(qp->ctx, C_posted_sends, 1);
	return 0;
}

int hca_post_send(struct ibv_qp *pub, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct hca_qp *qp = (struct hca_qp *)pub;
	int state, err = 0;

	count(qp->ctx, C_posts, 1);
	pthread_mutex_lock(&qp->post_mu);
	state = atomic_load(&qp->post_state);
	if (state != IBV_QPS_RTS && state != IBV_QPS_SQD && state != IBV_QPS_ERR) {
		debug(qp->ctx, "QP %u: send posted in state %d", pub->qp_num, state);
		err = EINVAL;
	}
	for (; wr && !err; wr = wr->next) {
		err = post_one(qp, wr);
		if (err)
			break;
	}
	pthread_mutex_unlock(&qp->post_mu);
	if (err)
		*bad = wr;
	ring_doorbell(&qp->work);
	return err;
}
