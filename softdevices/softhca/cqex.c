/* The extended way of polling: start, next, end, and a reader for each field. */
#include "verbs.h"

static struct hca_cq *of(struct ibv_cq_ex *pub)
{
	return (struct hca_cq *)pub;
}

enum { POLL_ERR = -2 }; /* mlx5's CQ_POLL_ERR, which its start_poll and next_poll return as it is */

/* A completion that SOFTHCA_FAIL names is lost, as one of a queue pair that mlx5 does not know. */
static int next(struct ibv_cq_ex *pub)
{
	struct hca_cq *cq = of(pub);
	bool got, lost;

	pthread_mutex_lock(&cq->mu);
	got = cq_take(cq, &cq->cur);
	lost = got && fail_now(cq->ctx, FAIL_POLL);
	pthread_mutex_unlock(&cq->mu);
	if (lost)
		return POLL_ERR;
	if (!got)
		return ENOENT;
	pub->wr_id = cq->cur.wr_id;
	pub->status = cq->cur.status;
	return 0;
}

/*
 * pub.mutex is held from a start that succeeds to end, also if next fails: the current completion is one per queue, and
 * mlx5 keeps its lock so.
 */
static int start(struct ibv_cq_ex *pub, struct ibv_poll_cq_attr *attr)
{
	int err;

	if (attr->comp_mask)
		return EINVAL;
	count(of(pub)->ctx, C_polls, 1);
	if (atomic_load(&of(pub)->ctx->polls_fail))
		return POLL_ERR;
	pthread_mutex_lock(&pub->mutex);
	err = next(pub);
	if (err)
		pthread_mutex_unlock(&pub->mutex);
	return err;
}

static void end(struct ibv_cq_ex *pub)
{
	pthread_mutex_unlock(&pub->mutex);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *pub)
{
	return of(pub)->cur.opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *pub)
{
	return of(pub)->cur.vendor_err;
}

static uint32_t read_byte_len(struct ibv_cq_ex *pub)
{
	return of(pub)->cur.byte_len;
}

static __be32 read_imm_data(struct ibv_cq_ex *pub)
{
	return of(pub)->cur.imm;
}

static uint32_t read_qp_num(struct ibv_cq_ex *pub)
{
	return of(pub)->cur.qp_num;
}

static uint32_t read_src_qp(struct ibv_cq_ex *pub)
{
	return of(pub)->cur.src_qp;
}

static unsigned read_wc_flags(struct ibv_cq_ex *pub)
{
	return of(pub)->cur.wc_flags;
}

static uint32_t read_slid(struct ibv_cq_ex *pub)
{
	return of(pub)->cur.slid;
}

static uint8_t read_sl(struct ibv_cq_ex *pub)
{
	(void)pub;
	return 0;
}

/* Zero but for the completion that says MATCH: elsewhere the device has not kept the header. */
static void read_tm_info(struct ibv_cq_ex *pub, struct ibv_wc_tm_info *info)
{
	info->tag = of(pub)->cur.tm_tag;
	info->priv = of(pub)->cur.tm_priv;
}

void cqex_init(struct hca_cq *cq)
{
	cq->pub.start_poll = start;
	cq->pub.next_poll = next;
	cq->pub.end_poll = end;
	cq->pub.read_opcode = read_opcode;
	cq->pub.read_vendor_err = read_vendor_err;
	cq->pub.read_byte_len = read_byte_len;
	cq->pub.read_imm_data = read_imm_data;
	cq->pub.read_qp_num = read_qp_num;
	cq->pub.read_src_qp = read_src_qp;
	cq->pub.read_wc_flags = read_wc_flags;
	cq->pub.read_slid = read_slid;
	cq->pub.read_sl = read_sl;
	cq->pub.read_dlid_path_bits = read_sl;
	if (cq->with_tm_info)
		cq->pub.read_tm_info = read_tm_info;
}
