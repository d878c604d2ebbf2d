/* The operations on the list of a TM-SRQ: posted here, executed later by the HCA thread, as hardware does. */
#include "matching.h"

static struct list all = { &all, &all }; /* engine lock */

/* A completion of the list: of an operation, or of a rendezvous that the device has carried out. */
void tm_push(struct tm_srq *tm, struct cqe *c)
{
	c->tm = tm;
	cq_push(tm->srq->cq, c, false);
}

static void set_count(struct tm_srq *tm, const struct tm_op *op)
{
	struct list *l, *tmp;

	if (!(op->flags & IBV_OPS_TM_SYNC))
		return;
	tm->sw = op->count;
	if (tm->sw != tm->hw || !tm->inactive)
		return;
	list_for_each(l, tmp, &tm->entries)
		container_of(l, struct tm_entry, link)->active = true;
	tm->inactive = 0;
}

/* An operation is done. Its completion frees it and all before it. */
static void op_done(struct tm_srq *tm, const struct tm_op *op, enum ibv_wc_opcode opcode, enum ibv_wc_status status,
		    struct tm_entry *e, unsigned wc_flags)
{
	struct cqe c = { .wr_id = op->wr_id, .status = status, .opcode = (uint8_t)opcode, .free_ops = 1,
			 .op_index = tm->ops_taken, .wc_flags = (uint16_t)wc_flags };

	if (!(op->flags & IBV_OPS_SIGNALED))
		return;
	if (e) {
		c.frees = FREES_TM_ENTRY;
		c.index = e->index;
	}
	tm_push(tm, &c);
}

static void execute_add(struct tm_srq *tm, const struct tm_op *op)
{
	struct tm_entry *e = &tm->table[op->handle & TAGS_INDEX];

	e->active = tm->sw == tm->hw && !tm->inactive;
	tm->inactive += !e->active;
	list_add_tail(&tm->entries, &e->link);
	pthread_mutex_lock(&tm->mu);
	e->state = ENTRY_LISTED;
	pthread_mutex_unlock(&tm->mu);
	count(tm->srq->ctx, C_tm_added, 1);
	count(tm->srq->ctx, C_tm_inert, !e->active);
	op_done(tm, op, IBV_WC_TM_ADD, IBV_WC_SUCCESS, e, e->active ? 0 : IBV_WC_TM_SYNC_REQ);
}

/*
 * mlx5 compares, for each operation on an entry, the number of messages that the device has handed to software with the
 * number in the entry's ADD, whether the operation succeeds or not.
 */
static bool phase_differs(struct tm_srq *tm, uint32_t handle)
{
	uint32_t i = handle & TAGS_INDEX;

	return i && i <= tm->max_tags && tm->table[i].phase != tm->hw;
}

static void execute_del(struct tm_srq *tm, const struct tm_op *op)
{
	struct tm_entry *e = tags_listed(tm, op->handle);
	unsigned sync = tm->srq->ctx->knobs.mode == MODE_MLX5 && phase_differs(tm, op->handle) ? IBV_WC_TM_SYNC_REQ : 0;

	if (!e) {
		op_done(tm, op, IBV_WC_TM_DEL, IBV_WC_TM_ERR, NULL, sync);
		return;
	}
	tags_consume(tm, e, op->flags & IBV_OPS_SIGNALED ? 1 : 0);
	count(tm->srq->ctx, C_tm_deleted, 1);
	op_done(tm, op, IBV_WC_TM_DEL, IBV_WC_SUCCESS, e, sync);
}

static void execute(struct tm_srq *tm, const struct tm_op *op)
{
	set_count(tm, op);
	switch ((enum ibv_ops_wr_opcode)op->opcode) {
	case IBV_WR_TAG_ADD:
		execute_add(tm, op);
		break;
	case IBV_WR_TAG_DEL:
		execute_del(tm, op);
		break;
	case IBV_WR_TAG_SYNC:
		count(tm->srq->ctx, C_tm_syncs, 1);
		op_done(tm, op, IBV_WC_TM_SYNC, IBV_WC_SUCCESS, NULL, 0);
		break;
	}
}

static bool next_op(struct tm_srq *tm, struct tm_op *op)
{
	bool some;

	pthread_mutex_lock(&tm->mu);
	some = tm->ops_taken != tm->ops_posted;
	if (some)
		*op = tm->ops[tm->ops_taken % tm->max_ops];
	pthread_mutex_unlock(&tm->mu);
	return some;
}

static void run(struct work *w)
{
	struct tm_srq *tm = container_of(w, struct tm_srq, work);
	struct tm_op op;

	for (int budget = 64; !tm->srq->ctx->paused && !tm->srq->ctx->fatal && next_op(tm, &op); budget--) {
		if (op.at > now_ns()) {
			timer_arm(&tm->timer, op.at);
			return;
		}
		if (!budget) {
			ring_doorbell(w);
			return;
		}
		execute(tm, &op);
		tm->ops_taken++;
	}
}

static void fire(struct timer *t)
{
	ring_doorbell(&container_of(t, struct tm_srq, timer)->work);
}

/* When an operation is carried out: after the delay; with a seed, after some part of it. In order in any case. */
static uint64_t due(struct tm_srq *tm)
{
	struct hca_ctx *ctx = tm->srq->ctx;
	uint64_t delay = ctx->knobs.list_delay, at;

	if (!delay)
		return 0;
	if (ctx->knobs.seeded) {
		uint64_t r = ctx->knobs.seed ^ (uint64_t)tm->ops_posted << 20;

		delay = next_random(&r) % (delay + 1);
	}
	at = now_ns() + delay;
	tm->last_at = MAX(at, tm->last_at);
	return tm->last_at;
}

static int take_entry(struct tm_srq *tm, struct ibv_ops_wr *wr, struct tm_op *op)
{
	struct tm_entry *e;

	if (wr->tm.add.num_sge < 0 || wr->tm.add.num_sge > 1)
		return EINVAL;
	e = tags_take(tm);
	if (!e) {
		debug(tm->srq->ctx, "the list of %u tags is full", tm->max_tags);
		return ENOMEM;
	}
	e->pending = wr->flags & IBV_OPS_SIGNALED ? 1 : 0;
	e->tag = wr->tm.add.tag;
	e->mask = wr->tm.add.mask;
	e->phase = op->count;
	e->recv_wr_id = wr->tm.add.recv_wr_id;
	e->sge = wr->tm.add.num_sge ? wr->tm.add.sg_list[0] : (struct ibv_sge){ 0, 0, 0 };
	wr->tm.handle = op->handle = tags_handle(e);
	return 0;
}

/* mu is held. */
static int post_op(struct tm_srq *tm, struct ibv_ops_wr *wr)
{
	struct tm_op op = { .wr_id = wr->wr_id, .handle = wr->tm.handle, .count = (uint16_t)wr->tm.unexpected_cnt,
			    .opcode = (uint8_t)wr->opcode, .flags = (uint8_t)wr->flags };
	int err = 0;

	if (wr->opcode > IBV_WR_TAG_SYNC || wr->flags & ~(IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC))
		return EINVAL;
	if (tm->ops_posted - tm->ops_freed >= tm->max_ops) {
		debug(tm->srq->ctx, "the queue of %u list operations is full: a signalled one, polled, empties it",
		      tm->max_ops);
		return ENOMEM;
	}
	if (wr->opcode == IBV_WR_TAG_ADD)
		err = take_entry(tm, wr, &op);
	if (err)
		return err;
	op.at = due(tm);
	tm->ops[tm->ops_posted++ % tm->max_ops] = op;
	count(tm->srq->ctx, C_posted_ops, 1);
	return 0;
}

int hca_post_srq_ops(struct ibv_srq *pub, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad)
{
	struct tm_srq *tm = to_srq(pub)->tm;
	int err = 0;

	if (!tm) {
		*bad = wr;
		return EINVAL;
	}
	count(to_srq(pub)->ctx, C_posts, 1);
	pthread_mutex_lock(&tm->mu);
	for (; wr && !err; wr = wr->next) {
		err = post_op(tm, wr);
		if (err)
			break;
	}
	pthread_mutex_unlock(&tm->mu);
	if (err)
		*bad = wr;
	ring_doorbell(&tm->work);
	return err;
}

struct tm_srq *tm_create(struct hca_srq *srq, struct ibv_tm_cap *cap)
{
	struct tm_srq *tm = tags_new(cap);

	if (!tm)
		return NULL;
	tm->srq = srq;
	list_init(&tm->timer.link);
	tm->timer.fire = fire;
	tm->work.run = run;
	engine_lock();
	list_add_tail(&all, &tm->link);
	engine_unlock();
	return tm;
}

/* No QP uses it any more; what is in the list is dropped. */
void tm_destroy(struct tm_srq *tm)
{
	engine_lock();
	list_del(&tm->link);
	timer_stop(&tm->timer);
	work_cancel(&tm->work);
	cq_forget(tm->srq->cq, NULL, tm);
	engine_unlock();
	tags_free(tm);
}

void tm_resume(struct hca_ctx *ctx)
{
	struct list *l, *tmp;

	list_for_each(l, tmp, &all) {
		struct tm_srq *tm = container_of(l, struct tm_srq, link);

		if (tm->srq->ctx == ctx)
			ring_doorbell(&tm->work);
	}
}

/* The device is closed with its queue in place. */
void tm_detach_all(struct hca_ctx *ctx)
{
	struct list *l, *tmp;

	list_for_each(l, tmp, &all) {
		struct tm_srq *tm = container_of(l, struct tm_srq, link);

		if (tm->srq->ctx != ctx)
			continue;
		list_del(&tm->link);
		timer_stop(&tm->timer);
		work_cancel(&tm->work);
	}
}
