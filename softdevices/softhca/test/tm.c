/*
 * Tag matching by the device (IBV_SRQT_TM): the four cases of an expected or
 * unexpected, eager or rendezvous message with each completion exact, and then
 * what a user of the list of tags must be able to rely on. The documents are
 * ibv_post_srq_ops(3), ibv_create_srq_ex(3) and rdma-core's tag_matching.md.
 */
#define _GNU_SOURCE
#include "test.h"

#include <arpa/inet.h>
#include <endian.h>
#include <infiniband/tm_types.h>
#include <pthread.h>

enum {
	BUFS = 64,		/* posted for what is unexpected; never fewer than 33 */
	BUF_SIZE = 16384,
	MEM = 1 << 20,
	TMH = sizeof(struct ibv_tmh),
	RNDV = sizeof(struct ibv_tmh) + sizeof(struct ibv_rvh),
	UNEXPECTED = 0,		/* the flags of such a message: none */
	MATCH = IBV_WC_TM_MATCH,
	VALID = IBV_WC_TM_DATA_VALID,
	SYNCED = IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC,
};

/* One peer: a shared queue with tags, and two queue pairs at it. */
struct side {
	struct dev *d;
	struct ibv_cq_ex *cq;	/* of the shared queue */
	struct ibv_cq *sends;	/* of what data sends */
	struct ibv_srq *srq;
	struct ibv_qp *data;	/* sends our messages; takes the FINs */
	struct ibv_qp *tm;	/* takes the peer's messages; its send queue is the device's */
	struct buf bufs, mem;	/* buffers of the shared queue, and for everything else */
	unsigned tags, ops;
	uint16_t unexpected;	/* what software has dealt with */
};

static void create_tm(struct side *s, struct dev *d, unsigned tags, unsigned ops)
{
	struct ibv_cq_init_attr_ex ca = { .cqe = 8192, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_TM_INFO };
	struct ibv_srq_init_attr_ex sa = {
		.attr = { .max_wr = BUFS, .max_sge = 1 }, .srq_type = IBV_SRQT_TM, .pd = d->pd,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
		.tm_cap = { .max_num_tags = tags, .max_ops = ops },
	};

	if (!(d->ex.tm_caps.flags & IBV_TM_CAP_RC))
		skip("no tag matching");
	memset(s, 0, sizeof(*s));
	s->d = d;
	s->tags = tags;
	s->ops = ops;
	s->cq = ibv_create_cq_ex(d->ctx, &ca);
	CHECK(s->cq, "ibv_create_cq_ex: %m");
	s->sends = ibv_create_cq(d->ctx, 256, NULL, NULL, 0);
	CHECK(s->sends, "ibv_create_cq: %m");
	sa.cq = ibv_cq_ex_to_cq(s->cq);
	s->srq = ibv_create_srq_ex(d->ctx, &sa);
	CHECK(s->srq, "ibv_create_srq_ex: %m");
	s->bufs = buf_new(d, BUFS * BUF_SIZE, IBV_ACCESS_LOCAL_WRITE);
	s->mem = buf_new(d, MEM, ALL_ACCESS);
}

static struct ibv_qp *tm_qp(struct side *s, struct ibv_cq *sends, unsigned depth)
{
	struct ibv_qp_init_attr a = {
		.send_cq = sends, .recv_cq = ibv_cq_ex_to_cq(s->cq), .srq = s->srq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = depth, .max_send_sge = depth ? 2 : 0 },
	};
	struct ibv_qp *qp = ibv_create_qp(s->d->pd, &a);

	CHECK(qp, "ibv_create_qp at a shared queue with tags: %m");
	return qp;
}

static void give_buf(struct side *s, uint64_t id)
{
	struct ibv_sge sg = part(&s->bufs, id % BUFS * BUF_SIZE, BUF_SIZE);

	MUST(try_srq(s->srq, id, &sg, 1));
}

/* The wr_id of buffers is above all others that the cases use. */
static const uint64_t BUF0 = 1000000;

static void open_side(struct side *s, struct dev *d, unsigned tags, unsigned ops)
{
	create_tm(s, d, tags, ops);
	s->data = tm_qp(s, s->sends, 64);
	s->tm = tm_qp(s, ibv_cq_ex_to_cq(s->cq), 0);
	for (unsigned i = 0; i < BUFS; i++)
		give_buf(s, BUF0 + i);
}

/* a.data <-> b.tm and b.data <-> a.tm. */
static void wire(struct side *a, struct side *b)
{
	struct addr ad = address(a->d, a->data, 11), at = address(a->d, a->tm, 22);
	struct addr bd = address(b->d, b->data, 33), bt = address(b->d, b->tm, 44);

	connect_qp(b->tm, b->d, &usual, 44, &ad);
	connect_qp(a->data, a->d, &usual, 11, &bt);
	connect_qp(a->tm, a->d, &usual, 22, &bd);
	connect_qp(b->data, b->d, &usual, 33, &at);
}

static void open_sides(struct side *a, struct side *b)
{
	struct dev *d = dev_open();

	open_side(a, d, 64, 32);
	open_side(b, two_contexts() ? dev_open() : d, 64, 32);
	wire(a, b);
}

static void close_side(struct side *s)
{
	MUST(ibv_destroy_qp(s->data));
	MUST(ibv_destroy_qp(s->tm));
	MUST(ibv_destroy_srq(s->srq));
	MUST(ibv_destroy_cq(ibv_cq_ex_to_cq(s->cq)));
	MUST(ibv_destroy_cq(s->sends));
	buf_free(&s->bufs);
	buf_free(&s->mem);
}

static void close_sides(struct side *a, struct side *b)
{
	struct dev *d = a->d, *e = b->d;

	close_side(a);
	close_side(b);
	dev_close(d);
	if (e != d)
		dev_close(e);
}

/* Completions of the queue with tags. */

struct twc {
	uint64_t id, tag;
	uint32_t ctx, len, qp_num;
	enum ibv_wc_status status;
	enum ibv_wc_opcode opcode;
	unsigned flags;
};

static bool poll_tm(struct side *s, struct twc *w)
{
	struct ibv_poll_cq_attr pa = { 0 };
	struct ibv_wc_tm_info info = { 0 };
	int rc = ibv_start_poll(s->cq, &pa);

	CHECK(rc == 0 || rc == ENOENT, "ibv_start_poll: %d", rc);
	if (rc)
		return false;
	memset(w, 0, sizeof(*w));
	w->id = s->cq->wr_id;
	w->status = s->cq->status;
	w->opcode = ibv_wc_read_opcode(s->cq);
	w->flags = ibv_wc_read_wc_flags(s->cq);
	w->len = ibv_wc_read_byte_len(s->cq);
	w->qp_num = ibv_wc_read_qp_num(s->cq);
	ibv_wc_read_tm_info(s->cq, &info);
	w->tag = info.tag;
	w->ctx = info.priv;
	ibv_end_poll(s->cq);
	return true;
}

static struct twc next_tm(struct side *s, int line)
{
	struct twc w;
	double t = 0;

	while (!poll_tm(s, &w))
		if (!until(&t))
			fail_at(__FILE__, line, "no completion within %g s", patience());
	return w;
}

static struct twc see_at(struct side *s, uint64_t id, enum ibv_wc_status st, enum ibv_wc_opcode op, unsigned flags,
			 int line)
{
	struct twc w = next_tm(s, line);

	if (w.id != id || w.status != st || w.opcode != op || w.flags != flags)
		fail_at(__FILE__, line, "completion of %llu: %s, opcode %d, flags 0x%x; expected %llu: %s, %d, 0x%x",
			(unsigned long long)w.id, ibv_wc_status_str(w.status), w.opcode, w.flags, (unsigned long long)id,
			ibv_wc_status_str(st), op, flags);
	return w;
}

/* The next completion, with its wr_id, status, opcode and flags. */
#define see(s, id, st, op, flags) see_at(s, id, st, op, flags, __LINE__)

static void tm_quiet_at(struct side *s, double seconds, int line)
{
	double end = now() + seconds;
	struct twc w;

	do {
		if (poll_tm(s, &w))
			fail_at(__FILE__, line, "a completion too many: %llu: %s, opcode %d, flags 0x%x",
				(unsigned long long)w.id, ibv_wc_status_str(w.status), w.opcode, w.flags);
		nap(500e-6);
	} while (now() < end);
}

#define tm_quiet(s) tm_quiet_at(s, 0.01, __LINE__)

/* Operations on the list. */

static struct ibv_ops_wr add_op(struct side *s, uint64_t id, uint64_t recv_id, struct ibv_sge *sg, int n, uint64_t tag,
				uint64_t mask, int flags)
{
	struct ibv_ops_wr w = { .wr_id = id, .opcode = IBV_WR_TAG_ADD, .flags = flags };

	w.tm.unexpected_cnt = s->unexpected;
	w.tm.add.recv_wr_id = recv_id;
	w.tm.add.sg_list = sg;
	w.tm.add.num_sge = n;
	w.tm.add.tag = tag;
	w.tm.add.mask = mask;
	return w;
}

static int try_ops(struct side *s, struct ibv_ops_wr *w)
{
	struct ibv_ops_wr *bad = NULL;
	int rc = ibv_post_srq_ops(s->srq, w, &bad);

	CHECK(rc == 0 || bad == w, "ibv_post_srq_ops fails with %d and does not say which is bad", rc);
	return rc;
}

/* Adds a tag for len bytes at off of the side's memory; waits until the device has it, active or not. */
static uint32_t add_at(struct side *s, uint64_t recv_id, size_t off, size_t len, uint64_t tag, uint64_t mask,
		       unsigned flags, int line)
{
	struct ibv_sge sg = part(&s->mem, off, len);
	struct ibv_ops_wr w = add_op(s, recv_id + 500, recv_id, &sg, len ? 1 : 0, tag, mask, SYNCED);

	MUST(try_ops(s, &w));
	memset(&sg, 0xff, sizeof(sg));	/* the list is copied */
	see_at(s, recv_id + 500, IBV_WC_SUCCESS, IBV_WC_TM_ADD, flags, line);
	return w.tm.handle;
}

#define add(s, id, off, len, tag, mask) add_at(s, id, off, len, tag, mask, 0, __LINE__)
#define add_inert(s, id, off, len, tag, mask) add_at(s, id, off, len, tag, mask, IBV_WC_TM_SYNC_REQ, __LINE__)

static void del_at(struct side *s, uint32_t handle, enum ibv_wc_status want, int line)
{
	struct ibv_ops_wr w = { .wr_id = 4444, .opcode = IBV_WR_TAG_DEL, .flags = SYNCED };
	struct twc c;

	w.tm.handle = handle;
	w.tm.unexpected_cnt = s->unexpected;
	MUST(try_ops(s, &w));
	c = next_tm(s, line);
	if (c.id != 4444 || c.status != want || (want == IBV_WC_SUCCESS && c.opcode != IBV_WC_TM_DEL))
		fail_at(__FILE__, line, "DEL completes as %llu: %s, opcode %d; expected %s", (unsigned long long)c.id,
			ibv_wc_status_str(c.status), c.opcode, ibv_wc_status_str(want));
}

#define del(s, handle, want) del_at(s, handle, want, __LINE__)

static struct ibv_ops_wr sync_op(struct side *s, int flags)
{
	struct ibv_ops_wr w = { .wr_id = 27, .opcode = IBV_WR_TAG_SYNC, .flags = flags };

	w.tm.unexpected_cnt = s->unexpected;
	return w;
}

static void sync_at(struct side *s, int line)
{
	struct ibv_ops_wr w = sync_op(s, SYNCED);

	MUST(try_ops(s, &w));
	see_at(s, 27, IBV_WC_SUCCESS, IBV_WC_TM_SYNC, 0, line);
}

#define synchronise(s) sync_at(s, __LINE__)

/* Messages. Their head lies at 0 of the sender's memory, and the rest from 4096 on. */

static struct ibv_tmh tmh(uint8_t opcode, uint32_t ctx, uint64_t tag)
{
	return (struct ibv_tmh){ .opcode = opcode, .app_ctx = htonl(ctx), .tag = htobe64(tag) };
}

static void put(struct side *s, struct ibv_qp *qp, size_t head, size_t len)
{
	struct ibv_sge sg[2] = { part(&s->mem, 0, head), part(&s->mem, 4096, len) };

	post(qp, .id = 1, .opcode = IBV_WR_SEND, .sg = sg, .n = len ? 2 : 1, .flags = IBV_SEND_SIGNALED);
}

/* Sends len bytes of this seed, and does not wait. */
static void eager_on(struct side *s, struct ibv_qp *qp, uint8_t opcode, uint32_t ctx, uint64_t tag, size_t len,
		     unsigned seed)
{
	struct ibv_tmh h = tmh(opcode, ctx, tag);

	memcpy(s->mem.p, &h, TMH);
	fill(s->mem.p + 4096, len, seed);
	put(s, qp, TMH, len);
}

static void eager(struct side *s, uint64_t tag, size_t len, unsigned seed)
{
	eager_on(s, s->data, IBV_TMH_EAGER, seed, tag, len, seed);
	done(s->sends, 1, IBV_WC_SEND);
}

/* Offers len bytes at off of the sender's memory, with extra bytes of a header of ours. */
static void rendezvous_on(struct side *s, struct ibv_qp *qp, uint32_t ctx, uint64_t tag, size_t off, size_t len,
			  size_t extra)
{
	struct ibv_tmh h = tmh(IBV_TMH_RNDV, ctx, tag);
	struct ibv_rvh r = { .va = htobe64((uintptr_t)s->mem.p + off), .rkey = htonl(s->mem.mr->rkey),
			     .len = htonl((uint32_t)len) };

	memcpy(s->mem.p, &h, TMH);
	memcpy(s->mem.p + TMH, &r, sizeof(r));
	fill(s->mem.p + RNDV, extra, 55);
	put(s, qp, RNDV + extra, 0);
}

static void rendezvous(struct side *s, uint32_t ctx, uint64_t tag, size_t off, size_t len, size_t extra)
{
	rendezvous_on(s, s->data, ctx, tag, off, len, extra);
	done(s->sends, 1, IBV_WC_SEND);
}

/* The message is in the buffer of the shared queue that is next in turn; the buffer is given back. */
static void check_head(const uint8_t *p, uint8_t opcode, uint32_t ctx, uint64_t tag)
{
	struct ibv_tmh h;

	memcpy(&h, p, TMH);
	CHECK(h.opcode == opcode && ntohl(h.app_ctx) == ctx && be64toh(h.tag) == tag, "head: opcode %u, ctx %u, tag 0x%llx",
	      h.opcode, ntohl(h.app_ctx), (unsigned long long)be64toh(h.tag));
}

static uint8_t *buf_of(struct side *s, uint64_t id)
{
	CHECK(id >= BUF0, "wr_id %llu is that of no buffer", (unsigned long long)id);
	return s->bufs.p + id % BUFS * BUF_SIZE;
}

static void see_unexpected_at(struct side *s, uint64_t *id, uint64_t tag, size_t len, unsigned seed, unsigned may,
			      int line)
{
	struct twc w = next_tm(s, line);
	uint8_t *p;

	if (w.status != IBV_WC_SUCCESS || w.opcode != IBV_WC_TM_RECV || w.id != *id || (w.flags & ~may) || w.len != TMH + len)
		fail_at(__FILE__, line, "an unexpected message of %zu bytes in buffer %llu completes as %llu: %s, opcode %d, "
			"flags 0x%x, length %u", len, (unsigned long long)*id, (unsigned long long)w.id,
			ibv_wc_status_str(w.status), w.opcode, w.flags, w.len);
	if (w.tag || w.ctx)
		fail_at(__FILE__, line, "tag 0x%llx of an unexpected message", (unsigned long long)w.tag);
	p = buf_of(s, w.id);
	check_head(p, IBV_TMH_EAGER, seed, tag);
	check_fill(p + TMH, len, seed, 0, "unexpected");
	give_buf(s, w.id);
	*id = BUF0 + (*id + 1 - BUF0) % BUFS;
}

#define see_unexpected(s, id, tag, len, seed) see_unexpected_at(s, id, tag, len, seed, IBV_WC_TM_SYNC_REQ, __LINE__)

static void see_match_at(struct side *s, uint64_t recv_id, uint64_t tag, size_t off, size_t len, unsigned seed,
			 int line)
{
	struct twc w = see_at(s, recv_id, IBV_WC_SUCCESS, IBV_WC_TM_RECV, MATCH | VALID, line);

	if (w.tag != tag || w.ctx != seed || w.len != len)
		fail_at(__FILE__, line, "a match with tag 0x%llx, ctx %u, length %u; expected 0x%llx, %u, %zu",
			(unsigned long long)w.tag, w.ctx, w.len, (unsigned long long)tag, seed, len);
	check_fill(s->mem.p + off, len, seed, 0, "matched");
}

#define see_match(s, recv_id, tag, off, len, seed) see_match_at(s, recv_id, tag, off, len, seed, __LINE__)

/* The FIN is a copy of the request with another opcode, in a buffer of the shared queue, at the data queue pair. */
static void see_fin_at(struct side *s, uint64_t *id, uint32_t ctx, uint64_t tag, size_t off, size_t len, int line)
{
	struct twc w = see_at(s, *id, IBV_WC_SUCCESS, IBV_WC_TM_NO_TAG, 0, line);
	uint8_t *p = buf_of(s, w.id);
	struct ibv_rvh r;

	if (w.qp_num != s->data->qp_num || w.len != RNDV)
		fail_at(__FILE__, line, "FIN of %u bytes at queue pair %u", w.len, w.qp_num);
	check_head(p, IBV_TMH_FIN, ctx, tag);
	memcpy(&r, p + TMH, sizeof(r));
	CHECK(be64toh(r.va) == (uintptr_t)s->mem.p + off && ntohl(r.rkey) == s->mem.mr->rkey && ntohl(r.len) == len,
	      "the FIN is not a copy of the request");
	give_buf(s, w.id);
	*id = BUF0 + (*id + 1 - BUF0) % BUFS;
}

#define see_fin(s, id, ctx, tag, off, len) see_fin_at(s, id, ctx, tag, off, len, __LINE__)

/*
 * The four cases as rdma-core tests them: one pair, whose client has a plain
 * receive queue; tags 1 to 9 with a mask of 16 bits, used from the last on.
 */

static void client_and_server(struct side *c, struct side *s)
{
	struct dev *d = dev_open();
	struct ibv_qp_init_attr a = { .qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 4, .max_recv_wr = 64,
		.max_send_sge = 2, .max_recv_sge = 1 } };
	struct addr x, y;

	memset(c, 0, sizeof(*c));
	c->d = d;
	c->sends = ibv_create_cq(d->ctx, 256, NULL, NULL, 0);
	CHECK(c->sends, "ibv_create_cq: %m");
	a.send_cq = a.recv_cq = c->sends;
	c->data = ibv_create_qp(d->pd, &a);
	CHECK(c->data, "ibv_create_qp: %m");
	c->mem = buf_new(d, MEM, ALL_ACCESS);
	create_tm(s, two_contexts() ? dev_open() : d, 64, 10);
	s->tm = tm_qp(s, ibv_cq_ex_to_cq(s->cq), 0);
	for (unsigned i = 0; i < 33; i++)
		give_buf(s, BUF0 + i);
	x = address(d, c->data, 1);
	y = address(s->d, s->tm, 2);
	connect_qp(s->tm, s->d, &usual, 2, &x);
	connect_qp(c->data, d, &usual, 1, &y);
	for (uint64_t tag = 1; tag < 10; tag++) {
		struct ibv_sge sg = part(&s->mem, tag * 65536, 65536);
		struct ibv_ops_wr w = add_op(s, tag, tag, &sg, 1, tag, 0xffff, IBV_OPS_SIGNALED);

		MUST(try_ops(s, &w));
		see(s, tag, IBV_WC_SUCCESS, IBV_WC_TM_ADD, 0);
	}
}

static void expected_eager(void)
{
	struct side c, s;

	client_and_server(&c, &s);
	for (uint64_t tag = 9; tag > 0; tag--) {
		eager(&c, tag, 1000, (unsigned)tag);
		see_match(&s, tag, tag, tag * 65536, 1000, (unsigned)tag);
	}
	tm_quiet(&s);
}

static void unexpected_eager(void)
{
	struct side c, s;
	uint64_t id = BUF0;

	client_and_server(&c, &s);
	for (unsigned i = 1; i < 10; i++) {
		eager(&c, 0x1234, 1000, i);
		see_unexpected_at(&s, &id, 0x1234, 1000, i, 0, __LINE__);
		id = BUF0 + i % 33;	/* only 33 in this case, and each is given back at once */
		s.unexpected++;
		synchronise(&s);
	}
	/* The tags are as they were. */
	eager(&c, 5, 100, 77);
	see_match(&s, 5, 5, 5 * 65536, 100, 77);
	tm_quiet(&s);
}

static void expected_rendezvous(void)
{
	struct side c, s;

	client_and_server(&c, &s);
	fill(c.mem.p + 65536, 65536, 3);
	for (unsigned tag = 9; tag > 0; tag--) {
		struct ibv_sge fin = part(&c.mem, 8192, 64);
		struct twc w;
		struct ibv_wc v;

		MUST(try_recv(c.data, tag, &fin, 1));
		rendezvous_on(&c, c.data, 100 + tag, tag, 65536, 65536, 0);
		done(c.sends, 1, IBV_WC_SEND);
		w = see(&s, tag, IBV_WC_SUCCESS, IBV_WC_TM_RECV, MATCH);
		CHECK(w.tag == tag && w.ctx == 100 + tag, "tag 0x%llx, ctx %u", (unsigned long long)w.tag, w.ctx);
		w = see(&s, tag, IBV_WC_SUCCESS, IBV_WC_TM_RECV, VALID);
		CHECK(w.tag == 0 && w.len == 65536, "tag 0x%llx, length %u", (unsigned long long)w.tag, w.len);
		check_fill(s.mem.p + tag * 65536, 65536, 3, 0, "read by the device");
		/* At a plain receive queue the FIN is a message as any other. */
		v = done(c.sends, tag, IBV_WC_RECV);
		CHECK(v.byte_len == RNDV, "FIN of %u bytes", v.byte_len);
		check_head(c.mem.p + 8192, IBV_TMH_FIN, 100 + tag, tag);
	}
	tm_quiet(&s);
}

static void unexpected_rendezvous(void)
{
	struct side a, b;
	uint64_t at_b = BUF0, at_a = BUF0;

	open_sides(&a, &b);
	fill(a.mem.p + 65536, 100000, 3);
	for (unsigned i = 1; i < 6; i++) {
		struct twc w;
		struct ibv_rvh r;
		struct ibv_sge sg = part(&b.mem, 8192, 100000);
		struct ibv_tmh fin = tmh(IBV_TMH_FIN, 70 + i, 9);

		add(&b, i, 300000, 65536, 1000 + i, ~0ull);
		rendezvous(&a, 70 + i, 9, 65536, 100000, 20);
		w = see(&b, at_b, IBV_WC_SUCCESS, IBV_WC_TM_RECV, UNEXPECTED);
		CHECK(w.len == RNDV + 20 && w.qp_num == b.tm->qp_num, "length %u, queue pair %u", w.len, w.qp_num);
		check_head(buf_of(&b, w.id), IBV_TMH_RNDV, 70 + i, 9);
		check_fill(buf_of(&b, w.id) + RNDV, 20, 55, 0, "our own header");
		memcpy(&r, buf_of(&b, w.id) + TMH, sizeof(r));
		give_buf(&b, at_b++);
		/* Software reads and sends FIN, both on the data queue pair, whose peer is a's other one. */
		memset(b.mem.p + 8192, 0, 100000);
		post(b.data, .id = 5, .opcode = IBV_WR_RDMA_READ, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED,
		     .raddr = be64toh(r.va), .rkey = ntohl(r.rkey));
		done(b.sends, 5, IBV_WC_RDMA_READ);
		check_fill(b.mem.p + 8192, 100000, 3, 0, "read by software");
		memcpy(b.mem.p, &fin, TMH);
		put(&b, b.data, TMH, 0);
		done(b.sends, 1, IBV_WC_SEND);
		w = see(&a, at_a, IBV_WC_SUCCESS, IBV_WC_TM_NO_TAG, 0);
		CHECK(w.qp_num == a.tm->qp_num, "queue pair %u", w.qp_num);
		check_head(buf_of(&a, w.id), IBV_TMH_FIN, 70 + i, 9);
		give_buf(&a, at_a++);
		b.unexpected++;
		synchronise(&b);
	}
	close_sides(&a, &b);
}

static void no_tag(void)
{
	struct side c, s;

	client_and_server(&c, &s);
	for (unsigned i = 1; i < 40; i++) {
		struct twc w;
		uint64_t id = BUF0 + (i - 1) % 33;

		eager_on(&c, c.data, IBV_TMH_NO_TAG, i, i % 9 + 1, 200, i);
		done(c.sends, 1, IBV_WC_SEND);
		w = see(&s, id, IBV_WC_SUCCESS, IBV_WC_TM_NO_TAG, 0);
		CHECK(w.len == TMH + 200, "length %u", w.len);
		check_head(buf_of(&s, w.id), IBV_TMH_NO_TAG, i, i % 9 + 1);
		check_fill(buf_of(&s, w.id) + TMH, 200, i, 0, "message");
		give_buf(&s, id);
	}
	/* None of them is counted as unexpected: what is added now is active, and what was added still is. */
	add(&s, 20, 0, 100, 20, ~0ull);
	eager(&c, 20, 100, 1);
	see_match(&s, 20, 20, 0, 100, 1);
	eager(&c, 3, 100, 2);
	see_match(&s, 3, 3, 3 * 65536, 100, 2);
}

/* Crossed wiring: both ways at once, each FIN at the sender's data queue pair. */
static void both_ways(void)
{
	enum { N = 20, LEN = 30000 };
	struct side a, b;
	uint64_t at[2] = { BUF0, BUF0 };
	struct side *s[2] = { &a, &b };

	open_sides(&a, &b);
	fill(a.mem.p + 500000, LEN, 1);
	fill(b.mem.p + 500000, LEN, 2);
	for (unsigned i = 0; i < N; i++) {
		for (int k = 0; k < 2; k++)
			add(s[k], i, 65536, LEN, i, ~0ull);
		for (int k = 0; k < 2; k++)
			rendezvous_on(s[k], s[k]->data, 900 + i, i, 500000, LEN, 0);
		for (int k = 0; k < 2; k++) {
			bool match = false, valid = false, fin = false;

			done(s[k]->sends, 1, IBV_WC_SEND);
			/* The FIN of the one transfer and the completions of the other come as they like. */
			while (!match || !valid || !fin) {
				struct twc w = next_tm(s[k], __LINE__);

				CHECK(w.status == IBV_WC_SUCCESS, "%d: %s", (int)w.id, ibv_wc_status_str(w.status));
				if (w.opcode == IBV_WC_TM_NO_TAG) {
					CHECK(!fin && w.id == at[k] && w.qp_num == s[k]->data->qp_num, "FIN %d", (int)w.id);
					check_head(buf_of(s[k], w.id), IBV_TMH_FIN, 900 + i, i);
					give_buf(s[k], at[k]);
					at[k] = BUF0 + (at[k] + 1 - BUF0) % BUFS;
					fin = true;
					continue;
				}
				CHECK(w.id == i && w.opcode == IBV_WC_TM_RECV && w.flags == (unsigned)(match ? VALID : MATCH),
				      "%d: opcode %d, flags 0x%x", (int)w.id, w.opcode, w.flags);
				valid = match;
				match = true;
			}
			check_fill(s[k]->mem.p + 65536, LEN, k ? 1 : 2, 0, "read by the device");
			memset(s[k]->mem.p + 65536, 0, LEN);
		}
	}
	close_sides(&a, &b);
}

/* Lengths. */

static void eager_lengths(void)
{
	static const unsigned len[] = { 0, 1, 100, 4079, 4080, 4081, 4096, 8192, 16000 };
	struct side a, b;
	uint64_t id = BUF0;

	open_sides(&a, &b);
	for (unsigned i = 0; i < COUNT(len); i++) {
		memset(b.mem.p + 65536, 0xee, 20000);
		add(&b, i, 65536, 16000, 7, ~0ull);
		eager(&a, 7, len[i], i);
		if (TMH + len[i] <= 4096) {	/* one packet, one completion */
			see_match(&b, i, 7, 65536, len[i], i);
		} else {
			struct twc w = see(&b, i, IBV_WC_SUCCESS, IBV_WC_TM_RECV, MATCH);

			CHECK(w.tag == 7 && w.ctx == i, "tag 0x%llx, ctx %u", (unsigned long long)w.tag, w.ctx);
			w = see(&b, i, IBV_WC_SUCCESS, IBV_WC_TM_RECV, VALID);
			CHECK(w.len == len[i], "length %u, not %u", w.len, len[i]);
			CHECK(w.tag == 0, "tag 0x%llx", (unsigned long long)w.tag);
			check_fill(b.mem.p + 65536, len[i], i, 0, "matched");
		}
		check_bytes(b.mem.p + 65536 + len[i], 64, 0xee, "after it");
		/* And unexpected: always one completion. */
		eager(&a, 8, len[i], i);
		see_unexpected(&b, &id, 8, len[i], i);
		b.unexpected++;
	}
	close_sides(&a, &b);
}

static void rendezvous_lengths(void)
{
	static const unsigned len[] = { 0, 1, 31, 32, 33, 4096, 65537, 300000 };
	struct side a, b;
	uint64_t fins = BUF0;

	open_sides(&a, &b);
	fill(a.mem.p + 500000, 300000, 9);
	for (unsigned i = 0; i < COUNT(len); i++) {
		struct twc w;

		memset(b.mem.p + 65536, 0xee, 300064);
		add(&b, i, 65536, 300000, 7, ~0ull);
		rendezvous(&a, 40 + i, 7, 500000, len[i], i % 2 * 32);
		see(&b, i, IBV_WC_SUCCESS, IBV_WC_TM_RECV, MATCH);
		w = see(&b, i, IBV_WC_SUCCESS, IBV_WC_TM_RECV, VALID);
		CHECK(w.len == len[i], "length %u, not %u", w.len, len[i]);
		check_fill(b.mem.p + 65536, len[i], 9, 0, "read by the device");
		check_bytes(b.mem.p + 65536 + len[i], 64, 0xee, "after it");
		see_fin(&a, &fins, 40 + i, 7, 500000, len[i]);
	}
	tm_quiet(&a);
	tm_quiet(&b);
	close_sides(&a, &b);
}

/* With the FIN the sender may use its memory again: by then all of it has been read. */
static void fin_comes_last(void)
{
	enum { LEN = 4 << 20 };
	struct side a, b;
	struct buf from, to;
	uint64_t fins = BUF0;

	open_sides(&a, &b);
	from = buf_new(a.d, LEN, ALL_ACCESS);
	to = buf_new(b.d, LEN, ALL_ACCESS);
	for (unsigned i = 0; i < 10; i++) {
		struct ibv_sge sg = part(&to, 0, LEN);
		struct ibv_ops_wr o = add_op(&b, 2, 1, &sg, 1, 7, ~0ull, SYNCED);
		struct ibv_tmh h = tmh(IBV_TMH_RNDV, i, 7);
		struct ibv_rvh r = { htobe64((uintptr_t)from.p), htonl(from.mr->rkey), htonl(LEN) };
		struct twc w;

		MUST(try_ops(&b, &o));
		see(&b, 2, IBV_WC_SUCCESS, IBV_WC_TM_ADD, 0);
		memset(from.p, (int)i + 1, LEN);
		memcpy(a.mem.p, &h, TMH);
		memcpy(a.mem.p + TMH, &r, sizeof(r));
		put(&a, a.data, RNDV, 0);
		done(a.sends, 1, IBV_WC_SEND);
		w = see(&a, fins, IBV_WC_SUCCESS, IBV_WC_TM_NO_TAG, 0);
		memset(from.p, 0xdd, LEN);
		check_head(buf_of(&a, w.id), IBV_TMH_FIN, i, 7);
		give_buf(&a, fins);
		fins++;
		see(&b, 1, IBV_WC_SUCCESS, IBV_WC_TM_RECV, MATCH);
		see(&b, 1, IBV_WC_SUCCESS, IBV_WC_TM_RECV, VALID);
		check_bytes(to.p, LEN, (uint8_t)(i + 1), "read by the device");
	}
	buf_free(&from);
	buf_free(&to);
	close_sides(&a, &b);
}

/* A buffer without bytes takes a message without bytes. */
static void zero_length_tag(void)
{
	struct side a, b;

	open_sides(&a, &b);
	add(&b, 1, 0, 0, 7, ~0ull);
	eager(&a, 7, 0, 3);
	see_match(&b, 1, 7, 0, 0, 3);
	close_sides(&a, &b);
}

/* The offer does not fit: software has to go on, with the head of the message in the buffer. */
static void rendezvous_too_long(void)
{
	struct side a, b;

	open_sides(&a, &b);
	for (unsigned i = 0; i < 4; i++) {
		struct twc w;
		struct ibv_rvh r;
		uint32_t h;
		unsigned room = 32 + i * 20;

		memset(b.mem.p + 65536, 0xee, 4096);
		h = add(&b, i, 65536, room, 7, ~0ull);
		rendezvous(&a, 60 + i, 7, 500000, room + 1, 8);
		w = next_tm(&b, __LINE__);
		CHECK(w.id == i && w.status == IBV_WC_TM_RNDV_INCOMPLETE && w.opcode == IBV_WC_TM_RECV && w.flags & MATCH,
		      "%d: %s, opcode %d, flags 0x%x", (int)w.id, ibv_wc_status_str(w.status), w.opcode, w.flags);
		check_head(b.mem.p + 65536, IBV_TMH_RNDV, 60 + i, 7);
		memcpy(&r, b.mem.p + 65536 + TMH, sizeof(r));
		CHECK(be64toh(r.va) == (uintptr_t)a.mem.p + 500000 && ntohl(r.rkey) == a.mem.mr->rkey && ntohl(r.len) == room + 1,
		      "the second head");
		check_bytes(b.mem.p + 65536 + RNDV, 64, 0xee, "after the heads");
		/* The tag is used up, nothing is counted as unexpected, and both queue pairs live. */
		del(&b, h, IBV_WC_TM_ERR);
		tm_quiet(&b);
		tm_quiet(&a);
		CHECK(qp_state(b.tm) == IBV_QPS_RTS && qp_state(a.data) == IBV_QPS_RTS, "a queue pair is in error");
	}
	close_sides(&a, &b);
}

static void eager_too_long(void)
{
	for (unsigned room = 0; room < 200; room += 100) {
		struct side a, b;
		struct twc w;

		open_sides(&a, &b);
		memset(b.mem.p + 65536, 0xee, 4096);
		add(&b, 1, 65536, room, 7, ~0ull);
		eager_on(&a, a.data, IBV_TMH_EAGER, 1, 7, room + 1, 1);
		expect(a.sends, 1, IBV_WC_REM_INV_REQ_ERR);
		w = next_tm(&b, __LINE__);
		CHECK(w.id == 1 && w.status == IBV_WC_LOC_LEN_ERR, "%d: %s", (int)w.id, ibv_wc_status_str(w.status));
		check_bytes(b.mem.p + 65536 + room, 100, 0xee, "after the buffer");
		await_state(b.tm, IBV_QPS_ERR);
		await_state(a.data, IBV_QPS_ERR);
		CHECK(qp_state(b.data) == IBV_QPS_RTS, "the other pair is in error as well");
		close_sides(&a, &b);
	}
}

/* A buffer of another PD or with a wrong key is found out when something matches. */
static void bad_tagged_buffer(void)
{
	for (int how = 0; how < 3; how++) {
		struct side a, b;
		struct ibv_pd *pd;
		struct ibv_mr *other;
		struct ibv_sge sg;
		struct ibv_ops_wr w;
		struct twc c;

		open_sides(&a, &b);
		pd = ibv_alloc_pd(b.d->ctx);
		other = ibv_reg_mr(pd, b.mem.p, 4096, ALL_ACCESS);
		CHECK(other, "ibv_reg_mr: %m");
		sg = part(&b.mem, 0, 4096);
		sg.lkey = how == 0 ? other->lkey : how == 1 ? sg.lkey ^ 1 : sg.lkey;
		if (how == 2)
			sg.addr = (uintptr_t)b.mem.p + MEM - 4095;
		w = add_op(&b, 2, 1, &sg, 1, 7, ~0ull, SYNCED);
		MUST(try_ops(&b, &w));
		see(&b, 2, IBV_WC_SUCCESS, IBV_WC_TM_ADD, 0);
		memset(b.mem.p, 0xee, 4096);
		eager_on(&a, a.data, IBV_TMH_EAGER, 1, 7, 4000, 1);
		expect(a.sends, 1, IBV_WC_REM_OP_ERR);
		c = next_tm(&b, __LINE__);
		CHECK(c.id == 1 && c.status == IBV_WC_LOC_PROT_ERR, "%d: %s", (int)c.id, ibv_wc_status_str(c.status));
		check_bytes(b.mem.p, 4096, 0xee, "the buffer");
		await_state(b.tm, IBV_QPS_ERR);
		MUST(ibv_dereg_mr(other));
		MUST(ibv_dealloc_pd(pd));
		close_sides(&a, &b);
	}
}

/* The sender's offer is of memory that it does not own. */
static void bad_offer(void)
{
	struct side a, b;
	struct ibv_tmh h = tmh(IBV_TMH_RNDV, 1, 7);
	struct ibv_rvh r;
	struct ibv_wc v;
	struct twc w;

	open_sides(&a, &b);
	add(&b, 1, 65536, 65536, 7, ~0ull);
	r = (struct ibv_rvh){ htobe64((uintptr_t)a.mem.p), htonl(a.mem.mr->rkey ^ 0x3300), htonl(1000) };
	memcpy(a.mem.p, &h, TMH);
	memcpy(a.mem.p + TMH, &r, sizeof(r));
	put(&a, a.data, RNDV, 0);
	v = next_wc(a.sends);	/* acknowledged, unless the READ came before the acknowledgement */
	CHECK(v.wr_id == 1 && (v.status == IBV_WC_SUCCESS || v.status == IBV_WC_WR_FLUSH_ERR), "%s",
	      ibv_wc_status_str(v.status));
	see(&b, 1, IBV_WC_SUCCESS, IBV_WC_TM_RECV, MATCH);
	w = next_tm(&b, __LINE__);
	CHECK(w.id == 1 && w.status == IBV_WC_REM_ACCESS_ERR, "%d: %s", (int)w.id, ibv_wc_status_str(w.status));
	await_state(b.tm, IBV_QPS_ERR);
	await_state(a.data, IBV_QPS_ERR);
	tm_quiet(&a);	/* no FIN */
	close_sides(&a, &b);
}

/* Matching. */

static void first_that_fits(void)
{
	struct side a, b;
	uint64_t id = BUF0;

	open_sides(&a, &b);
	add(&b, 1, 65536, 100, 5, ~0ull);
	add(&b, 2, 65536, 100, 0, 0);		/* anything */
	add(&b, 3, 65536, 100, 5, ~0ull);
	add(&b, 4, 65536, 100, 0x500, 0xff00);
	add(&b, 5, 65536, 100, 6, 0xff);
	eager(&a, 5, 10, 1);
	see_match(&b, 1, 5, 65536, 10, 1);
	eager(&a, 5, 10, 2);
	see_match(&b, 2, 5, 65536, 10, 2);
	eager(&a, 0x506, 10, 3);
	see_match(&b, 4, 0x506, 65536, 10, 3);
	eager(&a, 0xf06, 10, 4);
	see_match(&b, 5, 0xf06, 65536, 10, 4);
	eager(&a, 6, 10, 5);
	see_unexpected(&b, &id, 6, 10, 5);
	eager(&a, 5, 10, 6);	/* what was active stays so */
	see_match(&b, 3, 5, 65536, 10, 6);
	tm_quiet(&b);
	close_sides(&a, &b);
}

static void masks(void)
{
	static const struct { uint64_t tag, mask, message; bool fits; } m[] = {
		{ 0, 0, 0xffffffffffffffff, true },
		{ 0x8000000000000001, ~0ull, 0x8000000000000001, true },
		{ 0x8000000000000001, ~0ull, 0x0100000000000080, false },	/* the bytes turned round */
		{ 0x0102030405060708, ~0ull, 0x0102030405060708, true },
		{ 0x0102030405060708, ~0ull, 0x0807060504030201, false },
		{ 0x12, 0xff, 0xaaaaaaaaaaaaaa12, true },
		{ 0x12, 0xff, 0x13, false },
		{ 0xab00000000000000, 0xff00000000000000, 0xab12345678abcdef, true },
		{ 0xab00000000000000, 0xff00000000000000, 0xac12345678abcdef, false },
		{ 0x1f, 0x0f, 0x1f, false },	/* a bit outside of the mask is in no masked tag */
		{ 0, 1ull << 63, 1ull << 63, false },
		{ 0, 1ull << 63, ~(1ull << 63), true },
	};
	struct side a, b;
	uint64_t id = BUF0;

	open_sides(&a, &b);
	for (unsigned i = 0; i < COUNT(m); i++) {
		uint32_t h = add(&b, i, 65536, 100, m[i].tag, m[i].mask);

		eager(&a, m[i].message, 10, i);
		if (m[i].fits) {
			see_match(&b, i, m[i].message, 65536, 10, i);
			continue;
		}
		see_unexpected(&b, &id, m[i].message, 10, i);
		b.unexpected++;
		del(&b, h, IBV_WC_SUCCESS);
	}
	close_sides(&a, &b);
}

/* One list for all peers of the shared queue. */
static void several_peers(void)
{
	struct side a, b, c, x;
	struct dev *d = dev_open();

	open_side(&a, d, 64, 32);
	open_side(&b, two_contexts() ? dev_open() : d, 64, 32);
	open_side(&c, two_contexts() ? dev_open() : d, 64, 32);
	wire(&a, &b);
	x = b;	/* a second pair of queue pairs at b's shared queue */
	x.data = tm_qp(&b, b.sends, 4);
	x.tm = tm_qp(&b, ibv_cq_ex_to_cq(b.cq), 0);
	wire(&c, &x);
	for (unsigned i = 0; i < 40; i++)
		add(&b, i, 65536 + 128 * i, 128, 3, 7);
	for (unsigned i = 0; i < 40; i++) {
		struct twc w;

		eager(i % 3 ? &a : &c, 8 * i + 3, 10 + i, i);
		w = see(&b, i, IBV_WC_SUCCESS, IBV_WC_TM_RECV, MATCH | VALID);
		CHECK(w.tag == 8 * i + 3 && w.ctx == i && w.qp_num == (i % 3 ? b.tm : x.tm)->qp_num, "match %u", i);
		check_fill(b.mem.p + 65536 + 128 * i, 10 + i, i, 0, "matched");
	}
	MUST(ibv_destroy_qp(x.data));
	MUST(ibv_destroy_qp(x.tm));
	close_side(&c);
	close_sides(&a, &b);
}

/* DEL. */

static void deletion(void)
{
	struct side a, b;
	uint64_t id = BUF0;
	uint32_t h[3];

	open_sides(&a, &b);
	for (unsigned i = 0; i < 3; i++)
		h[i] = add(&b, i, 65536, 100, 7, ~0ull);
	CHECK(h[0] != h[1] && h[1] != h[2] && h[0] != h[2], "two tags have one handle");
	del(&b, h[1], IBV_WC_SUCCESS);
	eager(&a, 7, 10, 1);
	see_match(&b, 0, 7, 65536, 10, 1);
	eager(&a, 7, 10, 2);
	see_match(&b, 2, 7, 65536, 10, 2);
	del(&b, h[2], IBV_WC_TM_ERR);	/* it was quicker */
	eager(&a, 7, 10, 3);
	see_unexpected(&b, &id, 7, 10, 3);
	b.unexpected++;
	/* The list works as before. */
	h[0] = add(&b, 9, 65536, 100, 7, ~0ull);
	eager(&a, 7, 10, 4);
	see_match(&b, 9, 7, 65536, 10, 4);
	tm_quiet(&b);
	close_sides(&a, &b);
}

/* A rendezvous that has matched is out of the list, though its data are still to come. */
static void deletion_in_rendezvous(void)
{
	struct side a, b;
	uint64_t fins = BUF0;

	open_sides(&a, &b);
	fill(a.mem.p + 500000, 400000, 9);
	for (unsigned i = 0; i < 10; i++) {
		uint32_t h = add(&b, 1, 65536, 400000, 7, ~0ull);
		struct ibv_ops_wr w = { .wr_id = 4444, .opcode = IBV_WR_TAG_DEL, .flags = SYNCED };
		bool deleted = false, valid = false;

		rendezvous(&a, i, 7, 500000, 400000, 0);
		see(&b, 1, IBV_WC_SUCCESS, IBV_WC_TM_RECV, MATCH);
		w.tm.handle = h;
		MUST(try_ops(&b, &w));
		while (!deleted || !valid) {
			struct twc c = next_tm(&b, __LINE__);

			if (c.id == 4444) {
				CHECK(c.status == IBV_WC_TM_ERR && !deleted, "DEL: %s", ibv_wc_status_str(c.status));
				deleted = true;
				continue;
			}
			CHECK(c.id == 1 && c.status == IBV_WC_SUCCESS && c.flags == VALID && !valid, "%d: %s, flags 0x%x",
			      (int)c.id, ibv_wc_status_str(c.status), c.flags);
			valid = true;
		}
		check_fill(b.mem.p + 65536, 400000, 9, 0, "read by the device");
		see_fin(&a, &fins, i, 7, 500000, 400000);
	}
	close_sides(&a, &b);
}

/* Synchronisation. */

/*
 * A tag that is posted while software has not handled an unexpected message
 * takes nothing, whatever arrives: a later message must not overtake that one.
 */
static void inert_until_synchronised(void)
{
	struct side a, b;
	uint64_t id = BUF0;
	uint32_t h;

	open_sides(&a, &b);
	add(&b, 1, 65536, 100, 1, ~0ull);
	eager(&a, 7, 10, 1);	/* m1, unexpected; not polled */
	nap(0.01);
	{
		struct ibv_sge sg = part(&b.mem, 65536, 100);
		struct ibv_ops_wr w = add_op(&b, 50, 2, &sg, 1, 7, ~0ull, SYNCED);

		MUST(try_ops(&b, &w));
		h = w.tm.handle;
	}
	see_unexpected(&b, &id, 7, 10, 1);
	see(&b, 50, IBV_WC_SUCCESS, IBV_WC_TM_ADD, IBV_WC_TM_SYNC_REQ);
	eager(&a, 7, 10, 2);	/* m2 would fit, and is unexpected */
	see_unexpected(&b, &id, 7, 10, 2);
	eager(&a, 1, 10, 3);	/* the tag from before still takes its message */
	see_match(&b, 1, 1, 65536, 10, 3);
	/* Reporting only one of two changes nothing. */
	b.unexpected = 1;
	add_inert(&b, 3, 65536, 100, 8, ~0ull);
	eager(&a, 8, 10, 4);
	see_unexpected(&b, &id, 8, 10, 4);
	/* Software takes m1 for the tag, and the tag out of the list: it cannot have been used. */
	b.unexpected = 3;
	del(&b, h, IBV_WC_SUCCESS);
	synchronise(&b);
	eager(&a, 8, 10, 5);	/* now the other is active */
	see_match(&b, 3, 8, 65536, 10, 5);
	add(&b, 4, 65536, 100, 7, ~0ull);
	eager(&a, 7, 10, 6);
	see_match(&b, 4, 7, 65536, 10, 6);
	tm_quiet(&b);
	close_sides(&a, &b);
}

/* Without IBV_OPS_TM_SYNC the number means nothing, also in a SYNC. */
static void number_without_flag(void)
{
	struct side a, b;
	uint64_t id = BUF0;
	struct ibv_ops_wr w;
	struct twc c;

	open_sides(&a, &b);
	eager(&a, 7, 10, 1);
	see_unexpected(&b, &id, 7, 10, 1);
	add_inert(&b, 1, 65536, 100, 7, ~0ull);
	b.unexpected = 1;
	w = sync_op(&b, IBV_OPS_SIGNALED);
	MUST(try_ops(&b, &w));
	c = next_tm(&b, __LINE__);
	CHECK(c.id == 27 && c.opcode == IBV_WC_TM_SYNC && c.status == IBV_WC_SUCCESS, "%d: opcode %d", (int)c.id, c.opcode);
	eager(&a, 7, 10, 2);
	see_unexpected(&b, &id, 7, 10, 2);
	b.unexpected = 2;
	synchronise(&b);
	eager(&a, 7, 10, 3);
	see_match(&b, 1, 7, 65536, 10, 3);
	close_sides(&a, &b);
}

/* Whatever the right number in an ADD does to the inert tags before it, it does not let the new one overtake them. */
static void no_overtaking_of_inert(void)
{
	struct side a, b;
	uint64_t id = BUF0;
	struct ibv_sge sg;
	struct ibv_ops_wr w;
	struct twc c;

	open_sides(&a, &b);
	eager(&a, 9, 10, 1);
	see_unexpected(&b, &id, 9, 10, 1);
	add_inert(&b, 1, 65536, 100, 7, ~0ull);
	b.unexpected = 1;
	sg = part(&b.mem, 131072, 100);
	w = add_op(&b, 50, 2, &sg, 1, 7, ~0ull, SYNCED);
	MUST(try_ops(&b, &w));
	c = next_tm(&b, __LINE__);
	CHECK(c.id == 50 && c.opcode == IBV_WC_TM_ADD && c.status == IBV_WC_SUCCESS, "%d: opcode %d", (int)c.id, c.opcode);
	eager(&a, 7, 10, 2);
	c = next_tm(&b, __LINE__);
	CHECK(c.opcode == IBV_WC_TM_RECV && c.status == IBV_WC_SUCCESS, "%d: opcode %d, %s", (int)c.id, c.opcode,
	      ibv_wc_status_str(c.status));
	CHECK(c.id != 2, "the second tag took the message before the first");
	if (c.flags & MATCH) {
		CHECK(c.id == 1, "match of %d", (int)c.id);
		eager(&a, 7, 10, 3);
		see_match(&b, 2, 7, 131072, 10, 3);
	} else {
		b.unexpected = 2;
		synchronise(&b);
		eager(&a, 7, 10, 3);
		see_match(&b, 1, 7, 65536, 10, 3);
		eager(&a, 7, 10, 4);
		see_match(&b, 2, 7, 131072, 10, 4);
	}
	close_sides(&a, &b);
}

/* FINs in the shared queue are no unexpected messages. */
static void fin_is_not_counted(void)
{
	struct side a, b;
	uint64_t fins = BUF0;

	open_sides(&a, &b);
	for (unsigned i = 0; i < 5; i++) {
		add(&b, 1, 65536, 4096, 7, ~0ull);
		rendezvous(&a, i, 7, 500000, 4096, 0);
		see(&b, 1, IBV_WC_SUCCESS, IBV_WC_TM_RECV, MATCH);
		see(&b, 1, IBV_WC_SUCCESS, IBV_WC_TM_RECV, VALID);
		see_fin(&a, &fins, i, 7, 500000, 4096);
		add(&a, i, 65536, 100, i, ~0ull);	/* active, with a count of 0 */
		eager(&b, i, 100, i);
		see_match(&a, i, i, 65536, 100, i);
	}
	close_sides(&a, &b);
}

/* The numbers have 16 bits and go round; tags are active or not also near the places where signed halves turn. */
static void counter_wraps(void)
{
	struct side a, b;
	uint64_t id = BUF0;
	unsigned total = 0;

	open_sides(&a, &b);
	while (total < 66600) {
		unsigned batch = total % 16384 > 16360 || total % 16384 < 24 ? 1 : 16;

		/* Many bare heads at once: their contents were looked at elsewhere. */
		for (unsigned i = 0; i < batch; i++) {
			struct ibv_sge sg = part(&a.mem, 0, TMH);
			struct ibv_tmh h = tmh(IBV_TMH_EAGER, 1, 9);

			memcpy(a.mem.p, &h, TMH);
			post(a.data, .id = 1, .opcode = IBV_WR_SEND, .sg = &sg, .n = 1,
			     .flags = i + 1 == batch ? IBV_SEND_SIGNALED : 0);
		}
		done(a.sends, 1, IBV_WC_SEND);
		for (unsigned i = 0; i < batch; i++) {
			struct twc w = next_tm(&b, __LINE__);

			CHECK(w.id == id && w.opcode == IBV_WC_TM_RECV && w.status == IBV_WC_SUCCESS &&
			      !(w.flags & (MATCH | VALID)), "message %u: %d, opcode %d, flags 0x%x", total + i, (int)w.id, w.opcode,
				      w.flags);
			give_buf(&b, w.id);
			id = BUF0 + (id + 1 - BUF0) % BUFS;
		}
		total += batch;
		if (batch == 1) {	/* not synchronised, and then so */
			uint32_t h = add_inert(&b, 1, 65536, 100, 7, ~0ull);

			b.unexpected = (uint16_t)total;
			del(&b, h, IBV_WC_SUCCESS);
			add(&b, 2, 65536, 100, 7, ~0ull);
			eager(&a, 7, 10, 3);
			see_match(&b, 2, 7, 65536, 10, 3);
		}
		b.unexpected = (uint16_t)total;
		if (total % 4096 < 16)
			synchronise(&b);
	}
	close_sides(&a, &b);
}

/*
 * The race that all this is for: equal receives and equal messages, posted and
 * sent at the same time. Software keeps a shadow of the list; what comes as
 * unexpected belongs to the oldest receive, which the device must not have used.
 */
enum { RACE = 3000, WINDOW = 24 };

static void *race_sender(void *arg)
{
	struct side *a = arg;

	for (unsigned i = 0; i < RACE; i++) {
		eager(a, 7, 8, i);
		if (rnd(8) == 0)
			nap(1e-6 * rnd(100));
	}
	return NULL;
}

/* False if the list is full: tags that are deleted keep their places until the device has come to it. */
static bool race_add(struct side *b, unsigned i, uint32_t *handle)
{
	struct ibv_sge sg = part(&b->mem, 4096 + 64 * (i % WINDOW), 8);
	struct ibv_ops_wr o = add_op(b, RACE, i, &sg, 1, 7, ~0ull, i % 8 ? IBV_OPS_TM_SYNC : SYNCED);

	int rc = try_ops(b, &o);

	CHECK(rc == 0 || rc == ENOMEM, "ADD: %d", rc);
	*handle = o.tm.handle;
	return rc == 0;
}

static void race(void)
{
	struct side a, b;
	uint32_t handle[RACE];
	unsigned posted = 0, over = 0, early = 0, head = 0, matched = 0;	/* early: messages without a receive */
	uint32_t waiting[RACE];
	pthread_t t;
	double stuck = 0;
	struct dev *d = dev_open();

	open_side(&a, d, 64, 32);
	open_side(&b, two_contexts() ? dev_open() : d, WINDOW * 2, 256);
	wire(&a, &b);
	MUST(pthread_create(&t, NULL, race_sender, &a));
	while (over < RACE) {
		struct twc w;

		/* Now and then software is elsewhere, and messages pile up. */
		if (rnd(40) == 0)
			nap(1e-6 * rnd(600));
		/*
		 * New receives: from what is there already, else to the device. By turns software is quicker than the
		 * messages and slower.
		 */
		for (unsigned n = over / 50 % 2 ? rnd(4) : rnd(5) == 0; n > 0 && posted < RACE && posted - over < WINDOW; n--) {
			if (early > head) {
				CHECK(waiting[head] == posted, "receive %u gets message %u", posted, waiting[head]);
				head++;
				posted++;
				over++;
			} else {
				if (!race_add(&b, posted, &handle[posted]))
					break;
				posted++;
			}
		}
		/* A slow receiver leaves the messages in the queue, and so their buffers: the sender has to wait. */
		if (early - head > 20)
			continue;
		if (!poll_tm(&b, &w)) {
			CHECK(until(&stuck), "stuck: %u receives posted, %u over", posted, over);
			continue;
		}
		stuck = 0;
		if (w.opcode == IBV_WC_TM_ADD || w.opcode == IBV_WC_TM_DEL) {
			/* Only inert tags are deleted here, so each deletion succeeds. */
			CHECK(w.status == IBV_WC_SUCCESS, "opcode %d: %s", w.opcode, ibv_wc_status_str(w.status));
			continue;
		}
		CHECK(w.opcode == IBV_WC_TM_RECV && w.status == IBV_WC_SUCCESS, "opcode %d: %s", w.opcode,
		      ibv_wc_status_str(w.status));
		if (w.flags & MATCH) {
			CHECK(w.id == over && w.ctx == over, "receive %d gets message %u after %u", (int)w.id, w.ctx, over);
			check_fill(b.mem.p + 4096 + 64 * (over % WINDOW), 8, over, 0, "matched");
			over++;
			matched++;
			continue;
		}
		{
			struct ibv_tmh h;

			memcpy(&h, buf_of(&b, w.id), TMH);
			give_buf(&b, w.id);
			if (posted > over) {	/* the oldest receive takes it, and leaves the list */
				struct ibv_ops_wr o = { .wr_id = RACE + 1, .opcode = IBV_WR_TAG_DEL, .flags = SYNCED };

				CHECK(ntohl(h.app_ctx) == over, "receive %u gets message %u", over, ntohl(h.app_ctx));
				o.tm.handle = handle[over++];
				o.tm.unexpected_cnt = ++b.unexpected;
				MUST(try_ops(&b, &o));
			} else {
				waiting[early++] = ntohl(h.app_ctx);
				b.unexpected++;
			}
		}
	}
	MUST(pthread_join(t, NULL));
	fprintf(stderr, "race: %u of %u messages matched by the device\n", matched, RACE);
	close_sides(&a, &b);
}

/* Limits. */

static void list_is_full(void)
{
	struct side a, b;
	struct ibv_sge sg;
	struct ibv_ops_wr w;
	uint32_t h = 0;

	open_sides(&a, &b);
	for (unsigned i = 0; i < b.tags; i++)
		h = add(&b, i, 65536, 100, i, ~0ull);
	sg = part(&b.mem, 65536, 100);
	w = add_op(&b, 1, 1, &sg, 1, 7, ~0ull, SYNCED);
	REFUSED(ENOMEM, try_ops(&b, &w));
	/* A place is free when the completion of what used it is polled, and not before. */
	eager(&a, 0, 10, 1);
	nap(0.01);
	REFUSED(ENOMEM, try_ops(&b, &w));
	see_match(&b, 0, 0, 65536, 10, 1);
	add(&b, 100, 65536, 100, 100, ~0ull);
	REFUSED(ENOMEM, try_ops(&b, &w));
	del(&b, h, IBV_WC_SUCCESS);
	add(&b, 101, 65536, 100, 101, ~0ull);
	REFUSED(ENOMEM, try_ops(&b, &w));
	eager(&a, 101, 10, 2);
	see_match(&b, 101, 101, 65536, 10, 2);
	close_sides(&a, &b);
}

/* Places for operations come back only when a signalled one, at or after them, is polled. */
static void operations_are_full(void)
{
	struct side a, b;
	struct ibv_ops_wr w;
	uint32_t h[64];

	open_sides(&a, &b);
	for (unsigned i = 0; i < b.ops; i++)
		h[i] = add(&b, i, 65536, 100, i, ~0ull);
	for (unsigned round = 0; round < 2; round++) {
		/* All but one in silence, the last with a completion: they are free again after it. */
		for (unsigned i = 0; i < b.ops; i++) {
			w = sync_op(&b, IBV_OPS_TM_SYNC | (i + 1 == b.ops ? IBV_OPS_SIGNALED : 0));
			MUST(try_ops(&b, &w));
		}
		nap(0.02);
		w = sync_op(&b, SYNCED);
		REFUSED(ENOMEM, try_ops(&b, &w));
		see(&b, 27, IBV_WC_SUCCESS, IBV_WC_TM_SYNC, 0);
	}
	for (unsigned i = 0; i < b.ops; i++) {
		w = (struct ibv_ops_wr){ .wr_id = 1, .opcode = IBV_WR_TAG_DEL, .flags = IBV_OPS_TM_SYNC };
		w.tm.handle = h[i];
		MUST(try_ops(&b, &w));
	}
	nap(0.02);
	w = sync_op(&b, SYNCED);
	REFUSED(ENOMEM, try_ops(&b, &w));
	tm_quiet(&b);
	w = sync_op(&b, SYNCED);
	REFUSED(ENOMEM, try_ops(&b, &w));
	close_sides(&a, &b);
}

/* A chain of operations: the first that has no room is named, those before it are done. */
static void chain_of_operations(void)
{
	struct side a, b;
	struct ibv_ops_wr w[40], *bad = NULL;
	struct ibv_sge sg[40];

	open_sides(&a, &b);
	for (unsigned i = 0; i < 40; i++) {
		sg[i] = part(&b.mem, 65536 + 128 * i, 128);
		w[i] = add_op(&b, 100 + i, i, &sg[i], 1, i, ~0ull, SYNCED);
		w[i].next = i < 39 ? &w[i + 1] : NULL;
	}
	REFUSED(ENOMEM, ibv_post_srq_ops(b.srq, w, &bad));
	CHECK(bad == &w[b.ops], "the bad operation is number %ld, not %u", (long)(bad - w), b.ops);
	for (unsigned i = 0; i < b.ops; i++)
		see(&b, 100 + i, IBV_WC_SUCCESS, IBV_WC_TM_ADD, 0);
	for (unsigned i = 0; i < b.ops; i++) {
		eager(&a, i, 50, i);
		see_match(&b, i, i, 65536 + 128 * i, 50, i);
	}
	close_sides(&a, &b);
}

static void unsignalled_add(void)
{
	struct side a, b;
	struct ibv_sge sg;

	open_sides(&a, &b);
	for (unsigned i = 0; i < 20; i++) {
		struct ibv_ops_wr w;

		sg = part(&b.mem, 65536, 100);
		w = add_op(&b, 99, i, &sg, 1, 7, ~0ull, IBV_OPS_TM_SYNC);
		MUST(try_ops(&b, &w));
		synchronise(&b);	/* operations are executed in order, so the tag is there now */
		eager(&a, 7, 10, i);
		see_match(&b, i, 7, 65536, 10, i);
	}
	tm_quiet(&b);
	close_sides(&a, &b);
}

/* The device wants 33 buffers before it matches anything. */
static void few_buffers(void)
{
	struct side a, b;
	struct dev *d = dev_open();
	struct twc w;
	uint64_t first;
	double t = 0;
	unsigned n = 0;

	open_side(&a, d, 64, 32);
	create_tm(&b, two_contexts() ? dev_open() : d, 64, 32);
	b.data = tm_qp(&b, b.sends, 64);
	b.tm = tm_qp(&b, ibv_cq_ex_to_cq(b.cq), 0);
	for (unsigned i = 0; i < 32; i++)
		give_buf(&b, BUF0 + i);
	wire(&a, &b);
	add(&b, 1, 65536, 100, 7, ~0ull);
	eager_on(&a, a.data, IBV_TMH_EAGER, 1, 7, 10, 1);
	nap(0.05);
	while (poll_tm(&b, &w)) {
		CHECK(!(w.flags & (MATCH | VALID)) && w.opcode == IBV_WC_TM_RECV, "a match with 32 buffers");
		n++;
	}
	/* With the thirty-third it matches what waits, or what comes next. */
	first = BUF0 + 32;
	give_buf(&b, first);
	give_buf(&b, first + 1);
	if (n) {
		done(a.sends, 1, IBV_WC_SEND);
		b.unexpected = (uint16_t)n;
		synchronise(&b);
		eager_on(&a, a.data, IBV_TMH_EAGER, 1, 7, 10, 1);
	}
	while (!poll_tm(&b, &w))
		CHECK(until(&t), "nothing comes with 33 buffers");
	CHECK(w.id == 1 && w.flags == (MATCH | VALID), "%d: flags 0x%x", (int)w.id, w.flags);
	done(a.sends, 1, IBV_WC_SEND);
	close_side(&b);
	if (b.d != d)
		dev_close(b.d);
	close_side(&a);
	dev_close(d);
}

static void refused(void)
{
	struct dev *d = dev_open();
	struct side s;
	struct ibv_tm_caps *caps = &d->ex.tm_caps;
	struct ibv_cq_init_attr_ex ca = { .cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_srq_init_attr_ex sa = {
		.attr = { .max_wr = BUFS, .max_sge = 1 }, .srq_type = IBV_SRQT_TM, .pd = d->pd,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
		.tm_cap = { .max_num_tags = 4, .max_ops = 4 },
	};
	struct ibv_sge sg[2];
	struct ibv_ops_wr w;
	struct ibv_srq *srq;
	struct ibv_cq_ex *plain;

	create_tm(&s, d, 8, 8);
	CHECK(caps->max_num_tags > 0 && caps->max_ops > 0 && caps->max_sge == 1 && caps->max_rndv_hdr_size == 64,
	      "capabilities: %u tags, %u operations, %u pieces, %u bytes", caps->max_num_tags, caps->max_ops, caps->max_sge,
	      caps->max_rndv_hdr_size);
	plain = ibv_create_cq_ex(d->ctx, &ca);
	CHECK(plain, "ibv_create_cq_ex: %m");
	sa.cq = ibv_cq_ex_to_cq(plain);
	errno = 0;
	CHECK(!ibv_create_srq_ex(d->ctx, &sa) && errno == EINVAL,
	      "a completion queue without IBV_WC_EX_WITH_TM_INFO: errno %d", errno);
	sa.cq = ibv_cq_ex_to_cq(s.cq);
	sa.tm_cap.max_num_tags = caps->max_num_tags + 1;
	CHECK(!ibv_create_srq_ex(d->ctx, &sa), "more tags than the device has");
	sa.tm_cap.max_num_tags = 4;
	sa.tm_cap.max_ops = caps->max_ops + 1;
	CHECK(!ibv_create_srq_ex(d->ctx, &sa), "more operations than the device has");
	sa.tm_cap.max_ops = 4;
	sa.comp_mask &= ~IBV_SRQ_INIT_ATTR_CQ;
	CHECK(!ibv_create_srq_ex(d->ctx, &sa), "no completion queue");
	sa.comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
	srq = ibv_create_srq_ex(d->ctx, &sa);
	CHECK(srq, "ibv_create_srq_ex: %m");
	REFUSED(EBUSY, ibv_destroy_cq(ibv_cq_ex_to_cq(s.cq)));
	MUST(ibv_destroy_srq(srq));

	sg[0] = part(&s.mem, 0, 64);
	sg[1] = part(&s.mem, 64, 64);
	w = add_op(&s, 1, 1, sg, 2, 1, ~0ull, SYNCED);
	REFUSED(EINVAL, try_ops(&s, &w));	/* one piece is what a tag can have */
	w = sync_op(&s, SYNCED);
	w.opcode = (enum ibv_ops_wr_opcode)77;
	CHECK(try_ops(&s, &w) != 0, "operation 77");
	/* A plain shared queue has no list. */
	{
		struct ibv_srq_init_attr pa = { .attr = { .max_wr = 4, .max_sge = 1 } };
		struct ibv_ops_wr *bad;

		srq = ibv_create_srq(d->pd, &pa);
		CHECK(srq, "ibv_create_srq: %m");
		w = sync_op(&s, SYNCED);
		CHECK(ibv_post_srq_ops(srq, &w, &bad) != 0, "an operation on a plain shared queue");
		MUST(ibv_destroy_srq(srq));
	}
	MUST(ibv_destroy_cq(ibv_cq_ex_to_cq(plain)));
	MUST(ibv_destroy_srq(s.srq));
	MUST(ibv_destroy_cq(ibv_cq_ex_to_cq(s.cq)));
	MUST(ibv_destroy_cq(s.sends));
	buf_free(&s.bufs);
	buf_free(&s.mem);
	dev_close(d);
}

/* Tags are still in the list, and a rendezvous is under way, when all is torn down. */
static void torn_down(void)
{
	for (unsigned i = 0; i < 10; i++) {
		struct side a, b;

		open_sides(&a, &b);
		add(&b, 1, 65536, 400000, 7, ~0ull);
		add(&b, 2, 65536, 100, 8, ~0ull);
		rendezvous_on(&a, a.data, 1, 7, 500000, 400000, 0);
		if (i & 1)
			nap(1e-4 * rnd(20));
		if (i & 2)
			close_sides(&b, &a);
		else
			close_sides(&a, &b);
	}
}

/* What was offered is withdrawn before it is read: the receive gets all or fails, does not hang, and no FIN comes. */
static void offer_taken_back(void)
{
	for (unsigned round = 0; round < 20; round++) {
		struct side a, b;
		struct buf offered;
		struct ibv_tmh h = tmh(IBV_TMH_RNDV, 1, 7);
		struct ibv_rvh r;
		struct twc w;

		open_sides(&a, &b);
		offered = buf_new(a.d, 400000, ALL_ACCESS);
		fill(offered.p, 400000, 3);
		add(&b, 1, 65536, 400000, 7, ~0ull);
		r = (struct ibv_rvh){ htobe64((uintptr_t)offered.p), htonl(offered.mr->rkey), htonl(400000) };
		memcpy(a.mem.p, &h, TMH);
		memcpy(a.mem.p + TMH, &r, sizeof(r));
		put(&a, a.data, RNDV, 0);
		nap(1e-6 * rnd(300));
		MUST(ibv_dereg_mr(offered.mr));
		offered.mr = NULL;
		memset(offered.p, 0xdd, 400000);
		see(&b, 1, IBV_WC_SUCCESS, IBV_WC_TM_RECV, MATCH);
		w = next_tm(&b, __LINE__);
		CHECK(w.id == 1, "completion of %d", (int)w.id);
		if (w.status == IBV_WC_SUCCESS) {
			CHECK(w.flags == VALID, "flags 0x%x", w.flags);
			check_fill(b.mem.p + 65536, 400000, 3, 0, "read by the device");
			done(a.sends, 1, IBV_WC_SEND);
		} else {
			CHECK(w.status == IBV_WC_REM_ACCESS_ERR, "%s", ibv_wc_status_str(w.status));
			await_state(b.tm, IBV_QPS_ERR);
			tm_quiet(&a);
		}
		buf_free(&offered);
		close_sides(&a, &b);
	}
}

/* The statuses of rdma-core's provider mlx5 (cq.c): SOFTHCA_MODE=mlx5. */

static void as_mlx5(struct side *a, struct side *b)
{
	CHECK(setenv("SOFTHCA_MODE", "mlx5", 1) == 0, "setenv: %m");
	open_sides(a, b);
}

/* An offer that does not fit completes twice, and its heads are there with the second. */
static void offer_in_two_steps(void)
{
	struct side a, b;
	struct twc w;

	as_mlx5(&a, &b);
	memset(b.mem.p + 65536, 0xee, 4096);
	add(&b, 1, 65536, 64, 7, ~0ull);
	rendezvous(&a, 60, 7, 500000, 65, 0);
	w = see(&b, 1, IBV_WC_TM_RNDV_INCOMPLETE, IBV_WC_TM_RECV, MATCH);
	CHECK(w.tag == 7 && w.ctx == 60, "tag 0x%llx, ctx %u", (unsigned long long)w.tag, w.ctx);
	see(&b, 1, IBV_WC_SUCCESS, IBV_WC_TM_RECV, VALID);
	check_head(b.mem.p + 65536, IBV_TMH_RNDV, 60, 7);
	check_bytes(b.mem.p + 65536 + RNDV, 64, 0xee, "after the heads");
	tm_quiet(&b);
	CHECK(qp_state(b.tm) == IBV_QPS_RTS && qp_state(a.data) == IBV_QPS_RTS, "a queue pair is in error");
	add(&b, 2, 65536, 64, 7, ~0ull);
	rendezvous(&a, 61, 7, 500000, 65, 0);
	see(&b, 2, IBV_WC_TM_RNDV_INCOMPLETE, IBV_WC_TM_RECV, MATCH);
	close_sides(&a, &b);	/* before the second completion */
}

/* A rendezvous that the device gives up looks like an offer that is left to software; no header comes with it. */
static void given_up_like_an_offer(void)
{
	struct side a, b;
	struct ibv_tmh h = tmh(IBV_TMH_RNDV, 1, 7);
	struct ibv_rvh r;
	struct twc w;

	as_mlx5(&a, &b);
	memset(b.mem.p + 65536, 0xee, 4096);
	add(&b, 1, 65536, 65536, 7, ~0ull);
	r = (struct ibv_rvh){ htobe64((uintptr_t)a.mem.p), htonl(a.mem.mr->rkey ^ 0x3300), htonl(1000) };
	memcpy(a.mem.p, &h, TMH);
	memcpy(a.mem.p + TMH, &r, sizeof(r));
	put(&a, a.data, RNDV, 0);
	see(&b, 1, IBV_WC_SUCCESS, IBV_WC_TM_RECV, MATCH);
	w = see(&b, 1, IBV_WC_TM_RNDV_INCOMPLETE, IBV_WC_TM_RECV, MATCH | VALID);
	CHECK(!w.tag && !w.ctx && !w.len, "tag 0x%llx, ctx %u, length %u", (unsigned long long)w.tag, w.ctx, w.len);
	w = next_tm(&b, __LINE__);
	CHECK(w.id == 0 && w.status == IBV_WC_REM_ACCESS_ERR && w.qp_num == b.tm->qp_num, "%llu: %s at queue pair %u",
	      (unsigned long long)w.id, ibv_wc_status_str(w.status), w.qp_num);
	check_bytes(b.mem.p + 65536, 4096, 0xee, "the buffer");
	await_state(b.tm, IBV_QPS_ERR);
	await_state(a.data, IBV_QPS_ERR);
	close_sides(&a, &b);
}

/* An error of a tagged buffer names the next buffer of the shared queue, which stays with the device. */
static void error_names_another_buffer(void)
{
	struct side a, b;
	struct twc w;

	as_mlx5(&a, &b);
	add(&b, 1, 65536, 100, 7, ~0ull);
	eager_on(&a, a.data, IBV_TMH_EAGER, 1, 7, 101, 1);
	expect(a.sends, 1, IBV_WC_REM_INV_REQ_ERR);
	w = next_tm(&b, __LINE__);
	CHECK(w.id == BUF0 && w.status == IBV_WC_LOC_LEN_ERR && w.qp_num == b.tm->qp_num, "%llu: %s at queue pair %u",
	      (unsigned long long)w.id, ibv_wc_status_str(w.status), w.qp_num);
	tm_quiet(&b);
	await_state(b.tm, IBV_QPS_ERR);
	close_sides(&a, &b);
}

/* A TAG_DEL says SYNC_REQ, also one that is too late, if messages have been left to software since the TAG_ADD. */
static void late_deletion_asks_for_sync(void)
{
	struct ibv_ops_wr w = { .wr_id = 4444, .opcode = IBV_WR_TAG_DEL, .flags = SYNCED };
	struct side a, b;
	uint64_t id = BUF0;

	as_mlx5(&a, &b);
	w.tm.handle = add(&b, 1, 65536, 100, 7, ~0ull);
	eager(&a, 8, 10, 1);
	see_unexpected(&b, &id, 8, 10, 1);
	eager(&a, 7, 10, 2);
	see_match(&b, 1, 7, 65536, 10, 2);
	MUST(try_ops(&b, &w));
	see(&b, 4444, IBV_WC_TM_ERR, IBV_WC_TM_DEL, IBV_WC_TM_SYNC_REQ);
	close_sides(&a, &b);
}

/* A completion that cannot be read is lost. After a failed next_poll the queue is locked until end_poll. */
static void *poll_again(void *arg)
{
	struct ibv_poll_cq_attr pa = { 0 };
	struct side *s = arg;
	intptr_t rc = ibv_start_poll(s->cq, &pa);

	if (rc == 0)
		ibv_end_poll(s->cq);
	return (void *)rc;
}

static void failing_poll(void)
{
	struct ibv_poll_cq_attr pa = { 0 };
	struct side a, b;
	pthread_t t;
	struct timespec soon;
	void *rc = (void *)1;

	CHECK(setenv("SOFTHCA_FAIL", "poll:3", 1) == 0, "setenv: %m");
	open_sides(&a, &b);
	add(&b, 1, 65536, 100, 7, ~0ull);
	for (unsigned i = 0; i < 3; i++)
		eager(&a, 8, 10, i);
	nap(0.05);
	MUST(ibv_start_poll(b.cq, &pa));
	CHECK(ibv_next_poll(b.cq) == -2, "next_poll of a completion that cannot be read");
	MUST(pthread_create(&t, NULL, poll_again, &b));
	clock_gettime(CLOCK_REALTIME, &soon);
	soon.tv_sec += 1;
	CHECK(pthread_timedjoin_np(t, &rc, &soon) == ETIMEDOUT, "the queue is not locked: start_poll: %d", (int)(intptr_t)rc);
	ibv_end_poll(b.cq);
	MUST(pthread_join(t, &rc));
	CHECK(!rc, "start_poll after end_poll: %d", (int)(intptr_t)rc);
	close_sides(&a, &b);
}

static const struct test tests[] = {
	TEST(expected_eager, PAIRS), TEST(unexpected_eager, PAIRS), TEST(expected_rendezvous, PAIRS),
	TEST(unexpected_rendezvous, PAIRS), TEST(no_tag, PAIRS), TEST(both_ways, PAIRS),
	TEST(eager_lengths, PAIRS), TEST(rendezvous_lengths, PAIRS), TEST(fin_comes_last, PAIRS),
	TEST(zero_length_tag, PAIRS),
	TEST(rendezvous_too_long, PAIRS), TEST(eager_too_long, PAIRS), TEST(bad_tagged_buffer, PAIRS), TEST(bad_offer, PAIRS),
	TEST(first_that_fits, PAIRS), TEST(masks, PAIRS), TEST(several_peers, PAIRS),
	TEST(deletion, PAIRS), TEST(deletion_in_rendezvous, PAIRS),
	TEST(inert_until_synchronised, PAIRS), TEST(number_without_flag, PAIRS), TEST(no_overtaking_of_inert, PAIRS),
	TEST(fin_is_not_counted, PAIRS), TEST(counter_wraps, 0), TEST(race, PAIRS),
	TEST(list_is_full, PAIRS), TEST(operations_are_full, PAIRS), TEST(chain_of_operations, PAIRS),
	TEST(unsignalled_add, PAIRS), TEST(few_buffers, PAIRS), TEST(refused, 0), TEST(torn_down, PAIRS),
	TEST(offer_taken_back, PAIRS), TEST(offer_in_two_steps, SOFT), TEST(given_up_like_an_offer, SOFT),
	TEST(error_names_another_buffer, SOFT), TEST(late_deletion_asks_for_sync, SOFT), TEST(failing_poll, SOFT),
};

int main(int argc, char **argv) { return run_tests(argc, argv, tests, COUNT(tests)); }
