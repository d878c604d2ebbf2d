/*
 * What a verbs device refuses, and how: each wrong key, bound, access flag,
 * state, depth and length, with the status at both ends; what is left of the
 * queues after an error; peers that are gone.
 *
 * The statuses are those of ibv_poll_cq(3) and of the InfiniBand architecture's
 * tables of completion errors: a fault of the requester's own buffers is known
 * to it alone; a fault at the responder is reported to both.
 */
#define _GNU_SOURCE
#include "test.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SIZE = 4096 };

/* What may be wrong with a buffer. */
enum wrong { KEY_INDEX, KEY_SALT, STALE, OTHER_PD, PAST_END, BEFORE_START, NO_ACCESS, WRONGS };

static const char *const wrong_names[] = {
	"a key of no region", "a key with another salt", "a key of a region that is gone", "a region of another PD",
	"one byte past the end", "one byte before the start", "no access",
};

static const enum ibv_wr_opcode remote_ops[] = {
	IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_ATOMIC_FETCH_AND_ADD,
	IBV_WR_ATOMIC_CMP_AND_SWP,
};

static bool is_atomic(enum ibv_wr_opcode op)
{
	return op == IBV_WR_ATOMIC_CMP_AND_SWP || op == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static bool writes_locally(enum ibv_wr_opcode op)
{
	return op == IBV_WR_RDMA_READ || is_atomic(op);
}

/* The access of a region that lacks just what the operation needs. */
static int all_but(enum ibv_wr_opcode op)
{
	switch (op) {
	case IBV_WR_RDMA_READ:
		return ALL_ACCESS & ~IBV_ACCESS_REMOTE_READ;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return ALL_ACCESS & ~IBV_ACCESS_REMOTE_WRITE;
	default:
		return ALL_ACCESS & ~IBV_ACCESS_REMOTE_ATOMIC;
	}
}

/*
 * A place of len bytes that is wrong in this way. It lies in the middle of
 * three pages that are all mapped, so that only the device can find fault.
 */
struct place {
	uint64_t addr;
	uint32_t key;
	uint8_t *pages;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
};

static struct place wrong_place(struct dev *d, enum wrong how, uint32_t len, int access, int without, bool remote)
{
	struct place p = { .pd = d->pd };
	uint32_t key;

	p.pages = mmap(NULL, 3 * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p.pages != MAP_FAILED, "mmap: %m");
	memset(p.pages, 0xee, 3 * SIZE);
	p.addr = (uintptr_t)p.pages + SIZE;
	if (how == OTHER_PD)
		p.pd = ibv_alloc_pd(d->ctx);
	CHECK(p.pd, "ibv_alloc_pd: %m");
	p.mr = ibv_reg_mr(p.pd, p.pages + SIZE, SIZE, how == NO_ACCESS ? without : access);
	CHECK(p.mr, "ibv_reg_mr: %m");
	key = remote ? p.mr->rkey : p.mr->lkey;
	p.key = key;
	if (how == KEY_INDEX)
		p.key = key + (1234u << 8);
	if (how == KEY_SALT)
		p.key = key ^ 1;
	if (how == PAST_END)
		p.addr += SIZE - len + 1;
	if (how == BEFORE_START)
		p.addr -= 1;
	if (how == STALE) {
		/* A new region takes the place of the old, which must not revive the key. */
		MUST(ibv_dereg_mr(p.mr));
		p.mr = ibv_reg_mr(p.pd, p.pages + SIZE, SIZE, access);
		CHECK(p.mr, "ibv_reg_mr: %m");
		CHECK((remote ? p.mr->rkey : p.mr->lkey) != key, "the key 0x%x is given out again at once", key);
	}
	return p;
}

static void place_free(struct place *p, struct dev *d)
{
	MUST(ibv_dereg_mr(p->mr));
	if (p->pd != d->pd)
		MUST(ibv_dealloc_pd(p->pd));
	munmap(p->pages, 3 * SIZE);
}

/* The queue pair is in error, and what is posted now comes back at once. */
static void check_dead(struct end *e, const char *what)
{
	await_state(e->qp, IBV_QPS_ERR);
	CHECK(try_post(e->qp, &(struct op){ .id = 901, .opcode = IBV_WR_SEND }) == 0, "%s: posting in the error state", what);
	expect(e->cq, 901, IBV_WC_WR_FLUSH_ERR);
	if (!e->srq && soft()) {	/* soft-RoCE learns nothing of a receive that is posted now */
		CHECK(try_recv(e->qp, 902, NULL, 0) == 0, "%s: receiving in the error state", what);
		expect(e->cq, 902, IBV_WC_WR_FLUSH_ERR);
	}
	quiet(e->cq, 0.002);
}

/* Nothing has reached the end: it is still ready, and has its receive number 800. */
static void check_untouched(struct end *e, const char *what)
{
	quiet(e->cq, 0.005);
	CHECK(qp_state(e->qp) == IBV_QPS_RTS, "%s: the other end is in state %d", what, qp_state(e->qp));
	MUST(to_state(e->qp, IBV_QPS_ERR));
	expect(e->cq, 800, IBV_WC_WR_FLUSH_ERR);
}

/* Requester's own buffers. */

static void local_fault(enum ibv_wr_opcode op, enum wrong how)
{
	char what[100];
	struct pair p;
	struct buf good, far;
	struct place bad;
	struct ibv_sge sg[2];
	uint32_t len = is_atomic(op) ? 8 : 64;
	int n = 1;

	snprintf(what, sizeof(what), "opcode %d, own buffer: %s", op, wrong_names[how]);
	pair_open(&p, &usual);
	good = buf_new(p.a.d, SIZE, ALL_ACCESS);
	far = buf_new(p.b.d, SIZE, ALL_ACCESS);
	memset(far.p, 0xaa, SIZE);
	bad = wrong_place(p.a.d, how, len, ALL_ACCESS, 0, false);
	sg[0] = (struct ibv_sge){ bad.addr, len, bad.key };
	if (!is_atomic(op)) {	/* the first piece is good, and nothing of it may go */
		sg[1] = sg[0];
		sg[0] = part(&good, 0, 64);
		n = 2;
	}
	end_recv(&p.b, 800, part(&far, 0, SIZE));
	/* Not signalled: an error completes all the same. */
	post(p.a.qp, .id = 1, .opcode = op, .sg = sg, .n = n, .raddr = (uintptr_t)far.p, .rkey = far.mr->rkey);
	post(p.a.qp, .id = 2, .opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED);
	{
		struct ibv_wc w = next_wc(p.a.cq);

		CHECK(w.wr_id == 1 && w.status == IBV_WC_LOC_PROT_ERR, "%s: %d: %s", what, (int)w.wr_id, ibv_wc_status_str(w.status));
		CHECK(w.qp_num == p.a.qp->qp_num, "%s: qp_num", what);
	}
	expect(p.a.cq, 2, IBV_WC_WR_FLUSH_ERR);
	check_dead(&p.a, what);
	check_untouched(&p.b, what);
	check_bytes(far.p, SIZE, 0xaa, what);
	check_bytes(bad.pages, 3 * SIZE, 0xee, what);
	place_free(&bad, p.a.d);
	buf_free(&good);
	buf_free(&far);
	pair_close(&p);
}

/* (Soft-RoCE of Linux 6.12 calls some of these flushed, and still sends a message that was posted after one.) */
static void own_buffer_faults(void)
{
	for (enum wrong how = 0; how < WRONGS; how++) {
		if (how != NO_ACCESS)	/* reading is always allowed */
			local_fault(IBV_WR_SEND, how);
		for (size_t i = 0; i < COUNT(remote_ops); i++)
			if (how != NO_ACCESS || writes_locally(remote_ops[i]))
				local_fault(remote_ops[i], how);
	}
}

/* The responder's receive. */

static void receive_fault(enum wrong how, bool shared)
{
	char what[100];
	struct how h = usual;
	struct pair p;
	struct buf s;
	struct place bad;
	struct ibv_sge sg, to;

	snprintf(what, sizeof(what), "receive buffer: %s%s", wrong_names[how], shared ? ", shared queue" : "");
	h.srq_wr = shared ? 16 : 0;
	pair_open2(&p, &usual, &h);
	s = buf_new(p.a.d, SIZE, 0);
	sg = part(&s, 0, 64);
	bad = wrong_place(p.b.d, how, 64, ALL_ACCESS, ALL_ACCESS & ~(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			  IBV_ACCESS_REMOTE_ATOMIC), false);
	to = (struct ibv_sge){ bad.addr, 64, bad.key };
	end_recv(&p.b, 10, to);
	if (!shared)
		MUST(try_recv(p.b.qp, 11, NULL, 0));
	post(p.a.qp, .id = 1, .opcode = IBV_WR_SEND, .sg = &sg, .n = 1);
	post(p.a.qp, .id = 2, .opcode = IBV_WR_SEND);
	{
		struct ibv_wc w = next_wc(p.a.cq), v = next_wc(p.b.cq);

		CHECK(w.wr_id == 1 && w.status == IBV_WC_REM_OP_ERR, "%s: sender %d: %s", what, (int)w.wr_id,
		      ibv_wc_status_str(w.status));
		CHECK(v.wr_id == 10 && (v.status == IBV_WC_LOC_PROT_ERR || (!soft() && v.status == IBV_WC_LOC_QP_OP_ERR)),
		      "%s: receiver %d: %s", what, (int)v.wr_id, ibv_wc_status_str(v.status));
	}
	expect(p.a.cq, 2, IBV_WC_WR_FLUSH_ERR);
	if (!shared)
		expect(p.b.cq, 11, IBV_WC_WR_FLUSH_ERR);
	check_dead(&p.a, what);
	check_dead(&p.b, what);
	check_bytes(bad.pages, 3 * SIZE, 0xee, what);
	place_free(&bad, p.b.d);
	buf_free(&s);
	pair_close(&p);
}

static void receive_buffer_faults(void)
{
	for (enum wrong how = 0; how < WRONGS; how++) {
		receive_fault(how, false);
		receive_fault(how, true);
	}
}

/* Remote memory. */

/* The request must end with want; the rest of it is flushed at both ends. */
static void remote_fault(enum ibv_wr_opcode op, uint64_t raddr, uint32_t rkey, struct pair *p, struct buf *own,
			 enum ibv_wc_status want, const char *what)
{
	struct ibv_sge sg = part(own, 0, is_atomic(op) ? 8 : 64);
	struct ibv_wc w;

	memset(own->p, 0xbb, SIZE);
	MUST(try_recv(p->b.qp, 800, NULL, 0));
	MUST(try_recv(p->b.qp, 801, NULL, 0));
	post(p->a.qp, .id = 1, .opcode = op, .sg = &sg, .n = 1, .raddr = raddr, .rkey = rkey, .add = 1, .swap = 2);
	post(p->a.qp, .id = 2, .opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED);
	w = next_wc(p->a.cq);
	CHECK(w.wr_id == 1 && w.status == want, "%s: %d: %s, not %s", what, (int)w.wr_id, ibv_wc_status_str(w.status),
	      ibv_wc_status_str(want));
	expect(p->a.cq, 2, IBV_WC_WR_FLUSH_ERR);
	/* Of a WRITE with immediate data soft-RoCE has taken the receive already, and reports the reason to the receiver. */
	w = next_wc(p->b.cq);
	CHECK(w.wr_id == 800 && (w.status == IBV_WC_WR_FLUSH_ERR || (!soft() && w.status == want)), "%s: receiver %d: %s",
	      what, (int)w.wr_id, ibv_wc_status_str(w.status));
	expect(p->b.cq, 801, IBV_WC_WR_FLUSH_ERR);
	check_dead(&p->a, what);
	check_dead(&p->b, what);
	check_bytes(own->p, SIZE, 0xbb, what);
}

static void remote_memory_faults(void)
{
	for (size_t i = 0; i < COUNT(remote_ops); i++)
		for (enum wrong how = 0; how < WRONGS; how++) {
			enum ibv_wr_opcode op = remote_ops[i];
			char what[100];
			struct pair p;
			struct buf own;
			struct place bad;

			snprintf(what, sizeof(what), "opcode %d, remote memory: %s", op, wrong_names[how]);
			pair_open(&p, &usual);
			own = buf_new(p.a.d, SIZE, ALL_ACCESS);
			bad = wrong_place(p.b.d, how, is_atomic(op) ? 8 : 64, ALL_ACCESS, all_but(op), true);
			if (is_atomic(op) && (how == PAST_END || how == BEFORE_START))
				bad.addr = (uintptr_t)bad.pages + (how == PAST_END ? 2 * SIZE : SIZE - 8);
			remote_fault(op, bad.addr, bad.key, &p, &own, IBV_WC_REM_ACCESS_ERR, what);
			check_bytes(bad.pages, 3 * SIZE, 0xee, what);
			place_free(&bad, p.b.d);
			buf_free(&own);
			pair_close(&p);
		}
}

/* Keys are reused as late as possible: a program that still uses an old one must not find a new region. */
static void keys_come_again_late(void)
{
	enum { N = 250 };
	struct dev *d = dev_open();
	uint8_t page[64];
	uint32_t seen[N];

	for (int i = 0; i < N; i++) {
		struct ibv_mr *mr = ibv_reg_mr(d->pd, page, sizeof(page), ALL_ACCESS);

		CHECK(mr, "ibv_reg_mr: %m");
		seen[i] = mr->rkey;
		for (int k = 0; k < i; k++)
			CHECK(seen[k] != seen[i], "registration %d has the key 0x%x of number %d", i, seen[i], k);
		MUST(ibv_dereg_mr(mr));
	}
	dev_close(d);
}

/* A region may be as small as it likes, and ends where it ends. */
static void small_region(void)
{
	for (int over = 0; over < 2; over++)
		for (int read = 0; read < 2; read++) {
			struct pair p;
			struct buf own, far;
			struct ibv_sge sg;

			pair_open(&p, &usual);
			own = buf_new(p.a.d, SIZE, ALL_ACCESS);
			far = buf_new(p.b.d, 13, ALL_ACCESS);
			sg = part(&own, 0, (size_t)(13 + over));
			post(p.a.qp, .id = 1, .opcode = read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, .sg = &sg, .n = 1,
			     .flags = IBV_SEND_SIGNALED, .raddr = (uintptr_t)far.p, .rkey = far.mr->rkey);
			expect(p.a.cq, 1, over ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
			buf_free(&own);
			buf_free(&far);
			pair_close(&p);
		}
}

/* What the responder's queue pair does not offer is an invalid request. */
static void not_offered(void)
{
	for (size_t i = 0; i < COUNT(remote_ops); i++) {
		enum ibv_wr_opcode op = remote_ops[i];
		struct how h = usual;
		struct pair p;
		struct buf own, far;

		h.access = (unsigned)all_but(op);
		pair_open2(&p, &usual, &h);
		own = buf_new(p.a.d, SIZE, ALL_ACCESS);
		far = buf_new(p.b.d, SIZE, ALL_ACCESS);
		memset(far.p, 0xaa, SIZE);
		remote_fault(op, (uintptr_t)far.p, far.mr->rkey, &p, &own, IBV_WC_REM_INV_REQ_ERR, "access of the queue pair");
		check_bytes(far.p, SIZE, 0xaa, "far memory");
		buf_free(&own);
		buf_free(&far);
		pair_close(&p);
	}
}

static void misaligned_atomic(void)
{
	for (unsigned off = 1; off < 8; off += 3)
		for (int swap = 0; swap < 2; swap++) {
			struct pair p;
			struct buf own, far;

			pair_open(&p, &usual);
			own = buf_new(p.a.d, SIZE, ALL_ACCESS);
			far = buf_new(p.b.d, SIZE, ALL_ACCESS);
			memset(far.p, 0xaa, SIZE);
			remote_fault(swap ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD, (uintptr_t)far.p + off,
				     far.mr->rkey, &p, &own, IBV_WC_REM_INV_REQ_ERR, "an address that is no multiple of 8");
			check_bytes(far.p, SIZE, 0xaa, "far memory");
			buf_free(&own);
			buf_free(&far);
			pair_close(&p);
		}
}

/* More READs at once than the responder takes. */
static void no_reads_taken(void)
{
	struct how a = usual, b = usual;
	struct pair p;
	struct buf own, far;

	a.rd = 4;
	b.dest_rd = 0;
	pair_open2(&p, &a, &b);
	own = buf_new(p.a.d, SIZE, ALL_ACCESS);
	far = buf_new(p.b.d, SIZE, ALL_ACCESS);
	remote_fault(IBV_WR_RDMA_READ, (uintptr_t)far.p, far.mr->rkey, &p, &own, IBV_WC_REM_INV_REQ_ERR,
		     "max_dest_rd_atomic 0");
	buf_free(&own);
	buf_free(&far);
	pair_close(&p);
}

/* Lengths. */

static void message_too_long(void)
{
	for (int shared = 0; shared < 2; shared++)
		for (unsigned room = 0; room <= 4096; room += 2048) {
			struct how h = usual;
			struct pair p;
			struct buf s, r;
			struct ibv_sge sg, to;

			h.srq_wr = shared ? 16 : 0;
			pair_open2(&p, &usual, &h);
			s = buf_new(p.a.d, 8192, 0);
			r = buf_new(p.b.d, 8192, ALL_ACCESS);
			memset(r.p, 0xee, 8192);
			sg = part(&s, 0, room + 1);
			to = part(&r, 0, room);
			MUST(try_end_recv(&p.b, 10, &to, room ? 1 : 0));
			post(p.a.qp, .id = 1, .opcode = IBV_WR_SEND, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED);
			post(p.a.qp, .id = 2, .opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED);
			expect(p.a.cq, 1, IBV_WC_REM_INV_REQ_ERR);
			expect(p.a.cq, 2, IBV_WC_WR_FLUSH_ERR);
			expect(p.b.cq, 10, IBV_WC_LOC_LEN_ERR);
			check_dead(&p.a, "too long");
			check_dead(&p.b, "too long");
			check_bytes(r.p + room, 4096, 0xee, "after the buffer");
			buf_free(&s);
			buf_free(&r);
			pair_close(&p);
		}
}

static void posting_refused(void)
{
	struct how h = usual;
	struct pair p;
	struct buf b;
	struct ibv_sge sg[64];
	uint8_t data[4096] = { 0 };
	unsigned inl, n;
	int rc;

	h.srq_wr = 16;
	pair_open2(&p, &usual, &h);
	b = buf_new(p.a.d, 64, ALL_ACCESS);
	for (unsigned i = 0; i < 64; i++)
		sg[i] = part(&b, i, 1);
	n = p.a.cap.max_send_sge;
	CHECK(n < 64 && p.a.cap.max_recv_sge < 64, "the test's own size: %u %u", n, p.a.cap.max_recv_sge);
	REFUSED(EINVAL, try_post(p.a.qp, &(struct op){ .opcode = IBV_WR_SEND, .sg = sg, .n = (int)n + 1 }));
	REFUSED(EINVAL, try_post(p.a.qp, &(struct op){ .opcode = IBV_WR_RDMA_READ, .sg = sg, .n = (int)n + 1 }));
	REFUSED(EINVAL, try_recv(p.a.qp, 1, sg, (int)p.a.cap.max_recv_sge + 1));
	REFUSED(EINVAL, try_srq(p.b.srq, 1, sg, 30));
	MUST(try_recv(p.a.qp, 1, sg, (int)p.a.cap.max_recv_sge));

	inl = p.a.cap.max_inline_data;
	CHECK(inl < sizeof(data), "the test's own size: %u", inl);
	sg[0] = (struct ibv_sge){ (uintptr_t)data, inl + 1, 0 };
	rc = try_post(p.a.qp, &(struct op){ .opcode = IBV_WR_SEND, .sg = sg, .n = 1, .flags = IBV_SEND_INLINE });
	CHECK(rc == EINVAL || rc == ENOMEM, "inline data that are too long: %d", rc);
	rc = try_post(p.a.qp, &(struct op){ .opcode = IBV_WR_RDMA_READ, .sg = sg, .n = 1, .flags = IBV_SEND_INLINE });
	CHECK(rc == EINVAL, "an inline READ: %d", rc);
	if (soft()) {
		rc = try_post(p.a.qp, &(struct op){ .opcode = (enum ibv_wr_opcode)99 });
		CHECK(rc == EINVAL || rc == EOPNOTSUPP, "opcode 99: %d", rc);
	}
	/* None of these has done harm. */
	sg[0].length = inl;
	MUST(try_srq(p.b.srq, 5, NULL, 0));
	post(p.a.qp, .id = 6, .opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED);
	done(p.a.cq, 6, IBV_WC_SEND);
	done(p.b.cq, 5, IBV_WC_RECV);
	buf_free(&b);
	pair_close(&p);
}

static void creating_refused(void)
{
	struct dev *d = dev_open();
	struct end e;
	struct ibv_qp_init_attr a;
	struct ibv_srq_init_attr s = { 0 };
	uint8_t page[64];

	end_open(&e, d, &usual);
#define QP_WITH(field, value) do { \
	a = (struct ibv_qp_init_attr){ .send_cq = e.cq, .recv_cq = e.cq, .qp_type = IBV_QPT_RC, \
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } }; \
	a.field = (value); \
	errno = 0; \
	CHECK(!ibv_create_qp(d->pd, &a) && errno, "a queue pair with " #field " beyond the limit"); \
} while (0)
	QP_WITH(cap.max_send_wr, (uint32_t)d->attr.max_qp_wr + 1);
	QP_WITH(cap.max_recv_wr, (uint32_t)d->attr.max_qp_wr + 1);
	QP_WITH(cap.max_send_sge, (uint32_t)d->attr.max_sge + 1);
	QP_WITH(cap.max_recv_sge, (uint32_t)d->attr.max_sge + 1);
	QP_WITH(cap.max_inline_data, 1u << 20);
	errno = 0;
	CHECK(!ibv_create_cq(d->ctx, d->attr.max_cqe + 1, NULL, NULL, 0) && errno, "a queue beyond max_cqe");
	errno = 0;
	CHECK(!ibv_create_cq(d->ctx, 0, NULL, NULL, 0) && errno, "a queue without room");
	s.attr.max_wr = (uint32_t)d->attr.max_srq_wr + 1;
	s.attr.max_sge = 1;
	CHECK(!ibv_create_srq(d->pd, &s) && errno, "a shared queue beyond max_srq_wr");
	s.attr.max_wr = 1;
	s.attr.max_sge = (uint32_t)d->attr.max_srq_sge + 1;
	CHECK(!ibv_create_srq(d->pd, &s) && errno, "a shared queue beyond max_srq_sge");
	/* ibv_reg_mr(3): a region that others may write must be locally writable. */
	CHECK(!ibv_reg_mr(d->pd, page, 64, IBV_ACCESS_REMOTE_WRITE) && errno == EINVAL, "REMOTE_WRITE without LOCAL_WRITE");
	CHECK(!ibv_reg_mr(d->pd, page, 64, IBV_ACCESS_REMOTE_ATOMIC) && errno == EINVAL, "REMOTE_ATOMIC without LOCAL_WRITE");
	end_close(&e);
	dev_close(d);
}

/* Memory that is not there cannot be registered. */
static void no_such_memory(void)
{
	struct dev *d = dev_open();
	uint8_t *p = mmap(NULL, 4 * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED, "mmap: %m");
	MUST(munmap(p + SIZE, SIZE));
	errno = 0;
	CHECK(!ibv_reg_mr(d->pd, p, 3 * SIZE, ALL_ACCESS) && errno == EFAULT, "a region with a hole: errno %d", errno);
	dev_close(d);
}

/* States. */

static void posting_by_state(void)
{
	struct how h = usual;
	struct dev *d = dev_open();
	struct end e;
	struct addr x;
	const struct op send = { .id = 1, .opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED };

	end_open(&e, d, &h);
	x = end_addr(&e);
	CHECK(try_post(e.qp, &send) != 0, "a send in RESET");
	CHECK(try_recv(e.qp, 1, NULL, 0) != 0, "a receive in RESET");
	MUST(to_init(e.qp, &h));
	CHECK(try_post(e.qp, &send) != 0, "a send in INIT");
	MUST(try_recv(e.qp, 2, NULL, 0));
	MUST(to_rtr(e.qp, d, &h, &x));
	CHECK(try_post(e.qp, &send) != 0, "a send in RTR");
	MUST(try_recv(e.qp, 3, NULL, 0));
	MUST(to_rts(e.qp, &h, e.psn));
	quiet(e.cq, 0.005);
	MUST(to_state(e.qp, IBV_QPS_ERR));
	expect(e.cq, 2, IBV_WC_WR_FLUSH_ERR);
	expect(e.cq, 3, IBV_WC_WR_FLUSH_ERR);
	check_dead(&e, "ERR");
	MUST(to_state(e.qp, IBV_QPS_RESET));
	CHECK(try_recv(e.qp, 4, NULL, 0) != 0, "a receive in RESET again");
	end_close(&e);
	dev_close(d);
}

/* Brings a new queue pair, connected to itself, into a state. */
static void bring(struct end *e, enum ibv_qp_state s)
{
	struct addr x = end_addr(e);

	MUST(to_state(e->qp, IBV_QPS_RESET));
	if (s != IBV_QPS_RESET)
		MUST(to_init(e->qp, &e->how));
	if (s == IBV_QPS_ERR)
		MUST(to_state(e->qp, IBV_QPS_ERR));
	if (s == IBV_QPS_RTR || s == IBV_QPS_RTS)
		MUST(to_rtr(e->qp, e->d, &e->how, &x));
	if (s == IBV_QPS_RTS)
		MUST(to_rts(e->qp, &e->how, e->psn));
	CHECK(qp_state(e->qp) == s, "state %d, not %d", qp_state(e->qp), s);
}

static int go(struct end *e, enum ibv_qp_state s)
{
	struct addr x = end_addr(e);

	return s == IBV_QPS_INIT ? to_init(e->qp, &e->how) : s == IBV_QPS_RTR ? to_rtr(e->qp, e->d, &e->how, &x) :
	       s == IBV_QPS_RTS ? to_rts(e->qp, &e->how, e->psn) : to_state(e->qp, s);
}

static void transitions(void)
{
	static const struct { enum ibv_qp_state from, to; bool legal; } step[] = {
		{ IBV_QPS_RESET, IBV_QPS_RESET, true }, { IBV_QPS_RESET, IBV_QPS_INIT, true },
		{ IBV_QPS_RESET, IBV_QPS_RTR, false }, { IBV_QPS_RESET, IBV_QPS_RTS, false },
		{ IBV_QPS_RESET, IBV_QPS_ERR, false }, { IBV_QPS_RESET, IBV_QPS_SQD, false },
		{ IBV_QPS_INIT, IBV_QPS_INIT, true }, { IBV_QPS_INIT, IBV_QPS_RTR, true },
		{ IBV_QPS_INIT, IBV_QPS_RTS, false }, { IBV_QPS_INIT, IBV_QPS_ERR, true },
		{ IBV_QPS_INIT, IBV_QPS_RESET, true }, { IBV_QPS_INIT, IBV_QPS_SQD, false },
		{ IBV_QPS_RTR, IBV_QPS_INIT, false }, { IBV_QPS_RTR, IBV_QPS_RTR, false },
		{ IBV_QPS_RTR, IBV_QPS_RTS, true }, { IBV_QPS_RTR, IBV_QPS_ERR, true },
		{ IBV_QPS_RTR, IBV_QPS_RESET, true }, { IBV_QPS_RTR, IBV_QPS_SQD, false },
		{ IBV_QPS_RTS, IBV_QPS_INIT, false }, { IBV_QPS_RTS, IBV_QPS_RTR, false },
		{ IBV_QPS_RTS, IBV_QPS_ERR, true }, { IBV_QPS_RTS, IBV_QPS_RESET, true },
		{ IBV_QPS_ERR, IBV_QPS_INIT, false }, { IBV_QPS_ERR, IBV_QPS_RTR, false },
		{ IBV_QPS_ERR, IBV_QPS_RTS, false }, { IBV_QPS_ERR, IBV_QPS_RESET, true },
		{ IBV_QPS_ERR, IBV_QPS_ERR, true },
	};
	struct end e;

	end_open(&e, dev_open(), &usual);
	for (size_t i = 0; i < COUNT(step); i++) {
		int rc;

		bring(&e, step[i].from);
		rc = go(&e, step[i].to);
		CHECK(rc == (step[i].legal ? 0 : EINVAL), "from state %d to %d: %d", step[i].from, step[i].to, rc);
		CHECK(qp_state(e.qp) == (step[i].legal ? step[i].to : step[i].from), "from state %d to %d: now in %d",
		      step[i].from, step[i].to, qp_state(e.qp));
	}
	end_close(&e);
	dev_close(e.d);
}

static void missing_attributes(void)
{
	static const struct { enum ibv_qp_state from, to; int mask; } step[] = {
		{ IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS },
		{ IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER },
		{ IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT |
		  IBV_QP_RNR_RETRY | IBV_QP_TIMEOUT },
	};
	struct end e;

	end_open(&e, dev_open(), &usual);
	for (size_t i = 0; i < COUNT(step); i++)
		for (int bit = 0; bit < 31; bit++) {
			bool needed = step[i].mask >> bit & 1;
			struct addr x = end_addr(&e);
			struct ibv_qp_attr a = {
				.qp_state = step[i].to, .port_num = 1, .path_mtu = e.d->port.active_mtu, .dest_qp_num = x.qpn,
				.max_dest_rd_atomic = 1, .max_rd_atomic = 1, .min_rnr_timer = 1, .timeout = 14, .retry_cnt = 7,
				.ah_attr = { .dlid = x.lid, .port_num = 1, .is_global = e.d->global,
					     .grh = { .dgid = x.gid, .sgid_index = (uint8_t)e.d->gid_index, .hop_limit = 1 } },
			};

			if (!needed && bit)
				continue;
			bring(&e, step[i].from);
			/* With bit 0, which is the state itself, nothing is missing. */
			int rc = ibv_modify_qp(e.qp, &a, IBV_QP_STATE | (step[i].mask & ~(bit ? 1 << bit : 0)));

			CHECK(rc == (bit ? EINVAL : 0), "to state %d without 0x%x: %d", step[i].to, 1 << bit, rc);
			CHECK(qp_state(e.qp) == (bit ? step[i].from : step[i].to), "state %d", qp_state(e.qp));
		}
	end_close(&e);
	dev_close(e.d);
}

static void wrong_attributes(void)
{
	struct end e;
	struct how h = usual;
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 2 };
	const int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;

	end_open(&e, dev_open(), &usual);
	REFUSED(EINVAL, ibv_modify_qp(e.qp, &a, mask));
	a.port_num = 0;
	REFUSED(EINVAL, ibv_modify_qp(e.qp, &a, mask));
	a.port_num = 1;
	a.pkey_index = e.d->port.pkey_tbl_len;
	if (soft())
		REFUSED(EINVAL, ibv_modify_qp(e.qp, &a, mask));
	a.pkey_index = 0;
	/* An attribute that has no place in this step. */
	REFUSED(EINVAL, ibv_modify_qp(e.qp, &a, mask | IBV_QP_SQ_PSN));
	CHECK(qp_state(e.qp) == IBV_QPS_RESET, "state %d", qp_state(e.qp));
	MUST(ibv_modify_qp(e.qp, &a, mask));
	h.dest_rd = (uint8_t)(e.d->attr.max_qp_rd_atom + 1);
	if (soft() && e.d->attr.max_qp_rd_atom < 255) {
		struct addr x = end_addr(&e);

		REFUSED(EINVAL, to_rtr(e.qp, e.d, &h, &x));
		MUST(to_rtr(e.qp, e.d, &usual, &x));
		h = usual;
		h.rd = (uint8_t)(e.d->attr.max_qp_init_rd_atom + 1);
		REFUSED(EINVAL, to_rts(e.qp, &h, 0));
		h = usual;
		h.retry = 8;	/* three bits */
		REFUSED(EINVAL, to_rts(e.qp, &h, 0));
		h = usual;
		h.rnr = 8;
		REFUSED(EINVAL, to_rts(e.qp, &h, 0));
		MUST(to_rts(e.qp, &usual, 0));
	}
	end_close(&e);
	dev_close(e.d);
}

/* Depths. */

static void depths(void)
{
	for (unsigned want = 1; want <= 40; want += 13) {
		struct how h = usual;
		struct pair p;
		struct ibv_srq_attr sa;
		unsigned n;

		h.send_wr = h.recv_wr = want;
		h.cqe = 1024;
		pair_open(&p, &h);
		/* The peer receives nothing: all that is posted is outstanding. */
		n = p.a.cap.max_send_wr;
		for (unsigned i = 0; i < n; i++)
			post(p.a.qp, .id = i, .opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED);
		REFUSED(ENOMEM, try_post(p.a.qp, &(struct op){ .opcode = IBV_WR_SEND }));
		quiet(p.a.cq, 0.005);
		for (unsigned i = 0; i < p.a.cap.max_recv_wr; i++)
			MUST(try_recv(p.a.qp, 1000 + i, NULL, 0));
		REFUSED(ENOMEM, try_recv(p.a.qp, 1, NULL, 0));
		for (unsigned i = 0; i < n; i++)
			MUST(try_recv(p.b.qp, i, NULL, 0));
		for (unsigned i = 0; i < n; i++) {
			done(p.a.cq, i, IBV_WC_SEND);
			done(p.b.cq, i, IBV_WC_RECV);
		}
		/* The places are there again. */
		for (unsigned i = 0; i < n; i++) {
			MUST(try_recv(p.b.qp, i, NULL, 0));
			post(p.a.qp, .id = i, .opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED);
		}
		for (unsigned i = 0; i < n; i++)
			done(p.a.cq, i, IBV_WC_SEND);
		pair_close(&p);

		h = usual;
		h.srq_wr = want;
		pair_open2(&p, &usual, &h);
		MUST(ibv_query_srq(p.b.srq, &sa));
		CHECK(sa.max_wr >= want, "max_wr %u of %u", sa.max_wr, want);
		for (int round = 0; round < 2; round++) {
			for (unsigned i = 0; i < sa.max_wr; i++)
				MUST(try_srq(p.b.srq, i, NULL, 0));
			REFUSED(ENOMEM, try_srq(p.b.srq, 1, NULL, 0));
			for (unsigned i = 0; i < sa.max_wr; i++) {
				post(p.a.qp, .id = i, .opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED);
				done(p.a.cq, i, IBV_WC_SEND);
				done(p.b.cq, i, IBV_WC_RECV);
			}
		}
		pair_close(&p);
	}
}

/* As many completions as the queue reports fit; one more is an error of the queue and of all that use it. */
static void completion_overrun(void)
{
	struct how h = usual;
	struct pair p;
	struct ibv_async_event ev;
	unsigned room;

	h.srq_wr = 512;
	h.cqe = 10;
	pair_open2(&p, &usual, &h);
	room = (unsigned)p.b.cq->cqe;
	CHECK(room >= 10 && room < 500, "the test's own size: %u", room);
	for (unsigned i = 0; i <= room; i++)
		end_recv(&p.b, i, (struct ibv_sge){ 0 });
	for (int round = 0; round < 2; round++) {
		for (unsigned i = 0; i < room; i++) {
			if (round)
				MUST(try_srq(p.b.srq, i, NULL, 0));
			post(p.a.qp, .id = i, .opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED);
			done(p.a.cq, i, IBV_WC_SEND);
		}
		no_event(p.b.d->ctx, 0.01);
		CHECK(qp_state(p.b.qp) == IBV_QPS_RTS, "a full queue is no error yet");
		if (round == 0)
			for (unsigned i = 0; i < room; i++)
				expect(p.b.cq, i, IBV_WC_SUCCESS);
	}
	post(p.a.qp, .id = 77, .opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED);
	ev = next_event(p.b.d->ctx, IBV_EVENT_CQ_ERR);
	CHECK(ev.element.cq == p.b.cq, "the event is of another queue");
	await_state(p.b.qp, IBV_QPS_ERR);
	pair_close(&p);
}

/* Receivers that are not ready. */

static void not_ready_for_ever(void)
{
	for (uint8_t retries = 0; retries <= 3; retries += 3) {
		struct how h = usual;
		struct pair p;
		struct buf s;
		struct ibv_sge sg;

		h.rnr = retries;
		pair_open2(&p, &h, &usual);
		s = buf_new(p.a.d, SIZE, 0);
		sg = part(&s, 0, 100);
		post(p.a.qp, .id = 1, .opcode = IBV_WR_SEND, .sg = &sg, .n = 1);
		post(p.a.qp, .id = 2, .opcode = IBV_WR_SEND);
		expect(p.a.cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
		expect(p.a.cq, 2, IBV_WC_WR_FLUSH_ERR);
		check_dead(&p.a, "not ready");
		end_recv(&p.b, 800, (struct ibv_sge){ 0 });
		check_untouched(&p.b, "not ready");
		buf_free(&s);
		pair_close(&p);
	}
}

/* A WRITE needs no receive, but one with immediate data does. */
static void write_not_ready(void)
{
	struct how h = usual;
	struct pair p;
	struct buf s, r;
	struct ibv_sge sg;

	h.rnr = 0;
	pair_open2(&p, &h, &usual);
	s = buf_new(p.a.d, SIZE, 0);
	r = buf_new(p.b.d, SIZE, ALL_ACCESS);
	sg = part(&s, 0, 100);
	post(p.a.qp, .id = 1, .opcode = IBV_WR_RDMA_WRITE, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED,
	     .raddr = (uintptr_t)r.p, .rkey = r.mr->rkey);
	done(p.a.cq, 1, IBV_WC_RDMA_WRITE);
	post(p.a.qp, .id = 2, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED,
	     .raddr = (uintptr_t)r.p, .rkey = r.mr->rkey);
	expect(p.a.cq, 2, IBV_WC_RNR_RETRY_EXC_ERR);
	buf_free(&s);
	buf_free(&r);
	pair_close(&p);
}

static void waits_with_seven(void)
{
	struct pair p;

	pair_open(&p, &usual);
	post(p.a.qp, .id = 1, .opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED);
	quiet(p.a.cq, 0.5);	/* hundreds of times min_rnr_timer */
	MUST(try_recv(p.b.qp, 2, NULL, 0));
	done(p.b.cq, 2, IBV_WC_RECV);
	done(p.a.cq, 1, IBV_WC_SEND);
	pair_close(&p);
}

/* What is left in the queues after an error comes back in the order of posting. */

static void flush_order(void)
{
	struct pair p;
	struct buf s, r;
	struct ibv_sge good, bad;

	pair_open(&p, &usual);
	s = buf_new(p.a.d, SIZE, ALL_ACCESS);
	r = buf_new(p.b.d, SIZE, ALL_ACCESS);
	good = part(&s, 0, 8);
	bad = good;
	bad.lkey ^= 0x5500;
	for (unsigned i = 0; i < 20; i++)
		MUST(try_recv(p.b.qp, 200 + i, NULL, 0));
	for (unsigned i = 0; i < 20; i++)
		MUST(try_recv(p.a.qp, 300 + i, NULL, 0));
	for (unsigned i = 0; i < 30; i++) {
		static const enum ibv_wr_opcode ops[] = { IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD };

		/* Each third is signalled; number 14 fails; those after it come back, signalled or not. */
		post(p.a.qp, .id = i, .opcode = ops[i % 3], .sg = i == 14 ? &bad : &good, .n = 1,
		     .flags = i % 3 == 2 ? IBV_SEND_SIGNALED : 0, .raddr = (uintptr_t)r.p, .rkey = r.mr->rkey);
	}
	for (unsigned i = 2; i < 14; i += 3)
		done(p.a.cq, i, IBV_WC_FETCH_ADD);
	expect(p.a.cq, 14, IBV_WC_LOC_PROT_ERR);
	{
		unsigned sq = 15, rq = 300;

		/* The two queues each keep their order; which goes first is not defined. */
		while (sq < 30 || rq < 320) {
			struct ibv_wc w = next_wc(p.a.cq);

			CHECK(w.status == IBV_WC_WR_FLUSH_ERR && w.wr_id == (w.wr_id < 200 ? sq : rq), "%d: %s after %u and %u",
			      (int)w.wr_id, ibv_wc_status_str(w.status), sq, rq);
			if (w.wr_id < 200)
				sq++;
			else
				rq++;
		}
	}
	quiet(p.a.cq, 0.01);
	MUST(to_state(p.b.qp, IBV_QPS_ERR));
	for (unsigned i = 0; i < 20; i++)
		expect(p.b.cq, 200 + i, IBV_WC_WR_FLUSH_ERR);
	quiet(p.b.cq, 0.01);
	buf_free(&s);
	buf_free(&r);
	pair_close(&p);
}

/* Requests before the failing one are done, also when they are READs on the way. */
static void error_among_reads(void)
{
	struct pair p;
	struct buf s, r;

	pair_open(&p, &usual);
	s = buf_new(p.a.d, 16 * 65536, ALL_ACCESS);
	r = buf_new(p.b.d, 16 * 65536, ALL_ACCESS);
	fill(r.p, r.n, 4);
	memset(s.p, 0xee, s.n);
	for (unsigned i = 0; i < 16; i++) {
		struct ibv_sge sg = part(&s, 65536 * i, 65536);

		post(p.a.qp, .id = i, .opcode = IBV_WR_RDMA_READ, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED,
		     .raddr = (uintptr_t)r.p + 65536 * i, .rkey = i == 9 ? r.mr->rkey ^ 0x7700 : r.mr->rkey);
	}
	for (unsigned i = 0; i < 9; i++)
		done(p.a.cq, i, IBV_WC_RDMA_READ);
	check_fill(s.p, 9 * 65536, 4, 0, "read");
	expect(p.a.cq, 9, IBV_WC_REM_ACCESS_ERR);
	for (unsigned i = 10; i < 16; i++)
		expect(p.a.cq, i, IBV_WC_WR_FLUSH_ERR);
	check_bytes(s.p + 9 * 65536, 65536, 0xee, "what was not read");
	await_state(p.b.qp, IBV_QPS_ERR);
	buf_free(&s);
	buf_free(&r);
	pair_close(&p);
}

/* An error of one queue pair is nothing to another, of the same queues. */
static void others_go_on(void)
{
	struct how h = usual;
	struct pair p;
	struct ibv_qp *a2, *b2;
	struct addr x, y;

	h.srq_wr = 32;
	pair_open(&p, &h);
	a2 = make_qp(&p.a);
	b2 = make_qp(&p.b);
	x = address(p.a.d, a2, 5);
	y = address(p.b.d, b2, 6);
	connect_qp(b2, p.b.d, &h, 6, &x);
	connect_qp(a2, p.a.d, &h, 5, &y);
	for (unsigned i = 0; i < 4; i++)
		MUST(try_srq(p.b.srq, i, NULL, 0));
	MUST(try_post(a2, &(struct op){ .id = 1, .opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED }));
	done(p.a.cq, 1, IBV_WC_SEND);
	done(p.b.cq, 0, IBV_WC_RECV);
	post(p.a.qp, .id = 2, .opcode = IBV_WR_SEND, .sg = &(struct ibv_sge){ 1, 1, 1 }, .n = 1, .flags = IBV_SEND_SIGNALED);
	expect(p.a.cq, 2, soft() ? IBV_WC_LOC_PROT_ERR : IBV_WC_WR_FLUSH_ERR);
	MUST(to_state(p.b.qp, IBV_QPS_ERR));	/* the receives of the shared queue stay */
	for (unsigned i = 1; i < 4; i++) {
		MUST(try_post(a2, &(struct op){ .id = i, .opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED }));
		done(p.a.cq, i, IBV_WC_SEND);
		done(p.b.cq, i, IBV_WC_RECV);
	}
	MUST(ibv_destroy_qp(a2));
	MUST(ibv_destroy_qp(b2));
	pair_close(&p);
}

/* A queue pair with a shared queue has an event when it will take no more receives. */
static void last_receive(void)
{
	struct how h = usual;
	struct pair p;
	struct ibv_async_event ev;

	h.srq_wr = 8;
	pair_open2(&p, &usual, &h);
	MUST(to_state(p.b.qp, IBV_QPS_ERR));
	ev = next_event(p.b.d->ctx, IBV_EVENT_QP_LAST_WQE_REACHED);
	CHECK(ev.element.qp == p.b.qp, "the event is of another queue pair");
	pair_close(&p);
}

/* Peers that are gone. */

static void requests_unanswered(struct end *e, const char *what)
{
	struct ibv_wc w;

	post(e->qp, .id = 1, .opcode = IBV_WR_SEND);
	post(e->qp, .id = 2, .opcode = IBV_WR_SEND);
	w = next_wc(e->cq);
	CHECK(w.wr_id == 1 && w.status == IBV_WC_RETRY_EXC_ERR, "%s: %d: %s", what, (int)w.wr_id, ibv_wc_status_str(w.status));
	expect(e->cq, 2, IBV_WC_WR_FLUSH_ERR);
	check_dead(e, what);
}

static void no_peer(void)
{
	struct how h = usual;
	struct pair p;
	struct addr x;

	h.timeout = 10;
	h.retry = 2;

	pair_open(&p, &h);
	MUST(to_state(p.b.qp, IBV_QPS_RESET));
	requests_unanswered(&p.a, "a queue pair that was reset");
	pair_close(&p);

	pair_open(&p, &h);
	MUST(to_state(p.b.qp, IBV_QPS_ERR));
	requests_unanswered(&p.a, "a queue pair in error");
	pair_close(&p);

	pair_open(&p, &h);
	MUST(ibv_destroy_qp(p.b.qp));
	requests_unanswered(&p.a, "a queue pair that was destroyed");
	p.b.qp = make_qp(&p.b);
	pair_close(&p);

	pair_open(&p, &h);
	MUST(to_state(p.a.qp, IBV_QPS_RESET));
	x = end_addr(&p.b);
	x.qpn ^= 0x5a5a00;
	end_connect(&p.a, &x);
	requests_unanswered(&p.a, "a number of no queue pair");
	pair_close(&p);

	if (soft()) {
		pair_open(&p, &h);
		MUST(to_state(p.a.qp, IBV_QPS_RESET));
		x = end_addr(&p.b);
		x.lid = 0xbf00;	/* unicast, but so high that no port has it */
		end_connect(&p.a, &x);
		requests_unanswered(&p.a, "an unassigned LID");
		pair_close(&p);
	}
}

struct hello {
	struct addr addr;
	uint64_t at;
	uint32_t rkey;
};

enum { LENT = 1 << 20 };

/* Lends its memory, connects, and then sleeps until it is killed. */
static void lender(int fd, const void *arg)
{
	const struct how *h = arg;
	struct hello me, other;
	struct end e;
	struct buf mem;
	char c;

	end_open(&e, dev_open(), h);
	mem = buf_new(e.d, LENT, ALL_ACCESS);
	fill(mem.p, mem.n, 3);
	recv_all(fd, &other, sizeof(other));
	end_connect(&e, &other.addr);
	memset(&me, 0, sizeof(me));
	me.addr = end_addr(&e);
	me.at = (uintptr_t)mem.p;
	me.rkey = mem.mr->rkey;
	send_all(fd, &me, sizeof(me));
	if (read(fd, &c, 1) < 0)
		nap(1000);
	nap(1000);
}

static struct hello borrow(struct peer *far, struct end *e)
{
	struct hello me = { .addr = end_addr(e) }, it;

	send_all(far->fd, &me, sizeof(me));
	recv_all(far->fd, &it, sizeof(it));
	end_connect(e, &it.addr);
	return it;
}

/*
 * Stopped, so that it cannot answer, and then killed: the READ is certainly
 * under way. (The memory of a process that is stopped can be read by hardware.)
 */
static void killed_in_read(void)
{
	static const struct how h = {
		.send_wr = 64, .recv_wr = 64, .send_sge = 1, .recv_sge = 1, .cqe = 256, .access = ALL_ACCESS,
		.rd = 8, .dest_rd = 8, .timeout = 14, .retry = 3, .rnr = 7, .rnr_timer = 1,
	};
	struct peer far = spawn(lender, &h);
	struct end e;
	struct buf mem;
	struct hello it;
	struct ibv_sge sg;

	end_open(&e, dev_open(), &h);
	mem = buf_new(e.d, LENT, ALL_ACCESS);
	it = borrow(&far, &e);
	sg = part(&mem, 0, LENT);
	post(e.qp, .id = 1, .opcode = IBV_WR_RDMA_READ, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED, .raddr = it.at,
	     .rkey = it.rkey);
	done(e.cq, 1, IBV_WC_RDMA_READ);
	check_fill(mem.p, LENT, 3, 0, "read");

	kill(far.pid, SIGSTOP);
	nap(0.01);
	for (unsigned i = 2; i < 12; i++)
		post(e.qp, .id = i, .opcode = IBV_WR_RDMA_READ, .sg = &sg, .n = 1, .flags = i & 1 ? IBV_SEND_SIGNALED : 0,
		     .raddr = it.at, .rkey = it.rkey);
	nap(0.01);
	kill_peer(&far);
	expect(e.cq, 2, IBV_WC_RETRY_EXC_ERR);
	for (unsigned i = 3; i < 12; i++)
		expect(e.cq, i, IBV_WC_WR_FLUSH_ERR);
	check_dead(&e, "killed");
	buf_free(&mem);
	end_close(&e);
	dev_close(e.d);
}

/* Killed at any moment: each READ is either whole or an error, and the first error ends the pair. */
static void killed_at_any_time(void)
{
	static const struct how h = {
		.send_wr = 64, .recv_wr = 64, .send_sge = 1, .recv_sge = 1, .cqe = 256, .access = ALL_ACCESS,
		.rd = 8, .dest_rd = 8, .timeout = 12, .retry = 3, .rnr = 7, .rnr_timer = 1,
	};

	for (int round = 0; round < (soft() ? 12 : 3); round++) {
		struct peer far = spawn(lender, &h);
		struct end e;
		struct buf mem;
		struct hello it;
		double kill_at;
		unsigned sent = 0, over = 0;
		bool dead = false;

		end_open(&e, dev_open(), &h);
		mem = buf_new(e.d, LENT, ALL_ACCESS);
		it = borrow(&far, &e);
		kill_at = now() + 1e-3 * rnd(20);
		for (double t = 0; !dead || over < sent;) {
			struct ibv_wc w;

			if (far.pid && now() > kill_at) {
				kill_peer(&far);
				far.pid = 0;
			}
			if (!dead && sent - over < 4) {
				struct ibv_sge sg = part(&mem, 0, LENT);

				post(e.qp, .id = sent++, .opcode = IBV_WR_RDMA_READ, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED,
				     .raddr = it.at, .rkey = it.rkey);
			}
			if (ibv_poll_cq(e.cq, 1, &w) == 0) {
				CHECK(until(&t), "a READ does not end after %u", over);
				continue;
			}
			t = 0;
			CHECK(w.wr_id == over, "READ %d after %u", (int)w.wr_id, over);
			over++;
			if (w.status == IBV_WC_SUCCESS) {
				CHECK(!dead, "a success after the error");
				check_fill(mem.p, LENT, 3, 0, "read");
				continue;
			}
			/* A kernel may take the memory away before the queue pair. */
			if (!soft() && !dead && w.status == IBV_WC_REM_ACCESS_ERR)
				w.status = IBV_WC_RETRY_EXC_ERR;
			CHECK(w.status == (dead ? IBV_WC_WR_FLUSH_ERR : IBV_WC_RETRY_EXC_ERR), "READ %d: %s", (int)w.wr_id,
			      ibv_wc_status_str(w.status));
			CHECK(!far.pid, "an error before the peer was killed");
			dead = true;
		}
		check_dead(&e, "killed");
		buf_free(&mem);
		end_close(&e);
		dev_close(e.d);
	}
}

/* A message that is on its way to a process which is killed, and one that comes from such a process. */
static void shouter(int fd, const void *arg)
{
	struct hello me, other;
	struct end e;
	struct buf mem;

	end_open(&e, dev_open(), arg);
	mem = buf_new(e.d, LENT, ALL_ACCESS);
	fill(mem.p, mem.n, 3);
	recv_all(fd, &other, sizeof(other));
	memset(&me, 0, sizeof(me));
	me.addr = end_addr(&e);
	send_all(fd, &me, sizeof(me));
	end_connect(&e, &other.addr);
	recv_all(fd, &me, 1);
	for (uint64_t i = 0;; i++) {
		struct ibv_sge sg = part(&mem, 0, LENT);

		post(e.qp, .id = i, .opcode = IBV_WR_SEND, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED);
		done(e.cq, i, IBV_WC_SEND);
	}
}

static void sender_killed(void)
{
	for (int round = 0; round < (soft() ? 12 : 3); round++) {
		struct peer far = spawn(shouter, &usual);
		struct end e;
		struct buf mem;
		double kill_at;
		uint64_t posted = 0, got = 0;
		char c = 1;

		end_open(&e, dev_open(), &usual);
		mem = buf_new(e.d, LENT, ALL_ACCESS);
		borrow(&far, &e);
		send_all(far.fd, &c, 1);
		kill_at = now() + 1e-3 * rnd(20);
		while (now() < kill_at + 0.1) {
			struct ibv_wc w;

			if (posted == got)
				end_recv(&e, posted++, part(&mem, 0, LENT));
			if (far.pid && now() > kill_at) {
				kill_peer(&far);
				far.pid = 0;
			}
			if (ibv_poll_cq(e.cq, 1, &w) != 1) {
				nap(50e-6);
				continue;
			}
			/* The death of the sender is no error of the receiver: either the whole message or none. */
			CHECK(w.status == IBV_WC_SUCCESS && w.wr_id == got && w.byte_len == LENT, "%d: %s", (int)w.wr_id,
			      ibv_wc_status_str(w.status));
			check_fill(mem.p, LENT, 3, 0, "message");
			got++;
		}
		MUST(to_state(e.qp, IBV_QPS_ERR));
		expect(e.cq, got, IBV_WC_WR_FLUSH_ERR);
		buf_free(&mem);
		end_close(&e);
		dev_close(e.d);
	}
}

/* Memory is deregistered while the peer reads: whole, or refused; never an error of this process. */
static void deregistered_in_read(void)
{
	for (unsigned round = 0; round < 20; round++) {
		struct pair p;
		struct buf s, r;
		struct ibv_sge sg;
		unsigned sent;

		pair_open(&p, &usual);
		s = buf_new(p.a.d, LENT, ALL_ACCESS);
		r = buf_new(p.b.d, LENT, ALL_ACCESS);
		fill(r.p, r.n, 3);
		sg = part(&s, 0, LENT);
		for (sent = 0; sent < 8; sent++)
			post(p.a.qp, .id = sent, .opcode = IBV_WR_RDMA_READ, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED,
			     .raddr = (uintptr_t)r.p, .rkey = r.mr->rkey);
		nap(1e-4 * rnd(10));
		buf_free(&r);	/* also unmaps it */
		for (unsigned i = 0, dead = 0; i < sent; i++) {
			struct ibv_wc w = next_wc(p.a.cq);

			CHECK(w.wr_id == i, "order");
			if (w.status != IBV_WC_SUCCESS) {
				CHECK(w.status == (dead ? IBV_WC_WR_FLUSH_ERR : IBV_WC_REM_ACCESS_ERR), "READ %u: %s", i,
				      ibv_wc_status_str(w.status));
				dead = 1;
			}
		}
		buf_free(&s);
		pair_close(&p);
	}
}

/* Lends its memory for a moment, and then writes something else there. */
static void fickle(int fd, const void *arg)
{
	struct hello me, other;
	struct end e;
	struct buf mem;
	char go;

	end_open(&e, dev_open(), arg);
	mem = buf_new(e.d, LENT, ALL_ACCESS);
	fill(mem.p, mem.n, 3);
	recv_all(fd, &other, sizeof(other));
	end_connect(&e, &other.addr);
	memset(&me, 0, sizeof(me));
	me.addr = end_addr(&e);
	me.at = (uintptr_t)mem.p;
	me.rkey = mem.mr->rkey;
	send_all(fd, &me, sizeof(me));
	recv_all(fd, &go, 1);
	nap(1e-6 * (double)other.rkey);
	MUST(ibv_dereg_mr(mem.mr));
	memset(mem.p, 0xdd, mem.n);
	recv_all(fd, &go, 1);
	MUST(ibv_destroy_qp(e.qp));
}

/* A READ that is under way when the memory is given back brings what was there before, or fails; no mixture. */
static void given_back_in_read(void)
{
	for (unsigned round = 0; round < (soft() ? 40 : 3); round++) {
		struct peer far = spawn(fickle, &usual);
		struct hello it, me;
		struct end e;
		struct buf mem;
		unsigned sent = 0;
		char go = 1;
		bool dead = false;

		end_open(&e, dev_open(), &usual);
		mem = buf_new(e.d, LENT, ALL_ACCESS);
		memset(&me, 0, sizeof(me));
		me.addr = end_addr(&e);
		me.rkey = 100 + rnd(1500);	/* microseconds, here */
		send_all(far.fd, &me, sizeof(me));
		recv_all(far.fd, &it, sizeof(it));
		end_connect(&e, &it.addr);
		send_all(far.fd, &go, 1);
		while (!dead) {
			struct ibv_sge sg = part(&mem, 0, LENT);
			struct ibv_wc w;

			post(e.qp, .id = ++sent, .opcode = IBV_WR_RDMA_READ, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED,
			     .raddr = it.at, .rkey = it.rkey);
			w = next_wc(e.cq);
			dead = w.status != IBV_WC_SUCCESS;
			CHECK(!dead || w.status == IBV_WC_REM_ACCESS_ERR, "READ %u: %s", sent, ibv_wc_status_str(w.status));
			if (!dead)	/* a few bytes of each page: all would cost more than the READ */
				for (size_t at = 0; at < LENT; at += 4096)
					check_fill(mem.p + at, 8, 3, at, "read");
		}
		send_all(far.fd, &go, 1);
		reap(&far);
		buf_free(&mem);
		end_close(&e);
		dev_close(e.d);
	}
}

/* Objects in use. */

static void in_use(void)
{
	struct how h = usual;
	struct end e;
	struct buf b;
	struct ibv_pd *pd;
	struct ibv_srq_init_attr sa = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq;

	h.srq_wr = 8;
	end_open(&e, dev_open(), &h);
	b = buf_new(e.d, 64, ALL_ACCESS);
	REFUSED(EBUSY, ibv_destroy_cq(e.cq));
	REFUSED(EBUSY, ibv_destroy_srq(e.srq));
	REFUSED(EBUSY, ibv_destroy_comp_channel(e.ch));
	REFUSED(EBUSY, ibv_dealloc_pd(e.d->pd));
	MUST(ibv_destroy_qp(e.qp));
	REFUSED(EBUSY, ibv_destroy_comp_channel(e.ch));
	REFUSED(EBUSY, ibv_dealloc_pd(e.d->pd));
	MUST(ibv_destroy_srq(e.srq));
	MUST(ibv_destroy_cq(e.cq));
	MUST(ibv_destroy_comp_channel(e.ch));
	REFUSED(EBUSY, ibv_dealloc_pd(e.d->pd));
	buf_free(&b);
	pd = ibv_alloc_pd(e.d->ctx);
	srq = ibv_create_srq(pd, &sa);
	CHECK(srq, "ibv_create_srq: %m");
	REFUSED(EBUSY, ibv_dealloc_pd(pd));
	MUST(ibv_destroy_srq(srq));
	MUST(ibv_dealloc_pd(pd));
	dev_close(e.d);
}

static const struct test tests[] = {
	TEST(own_buffer_faults, PAIRS | SOFT), TEST(receive_buffer_faults, PAIRS), TEST(remote_memory_faults, PAIRS),
	TEST(keys_come_again_late, SOFT), TEST(small_region, PAIRS), TEST(not_offered, PAIRS),
	TEST(misaligned_atomic, PAIRS | SOFT), TEST(no_reads_taken, PAIRS),
	TEST(message_too_long, PAIRS | SOFT), TEST(posting_refused, PAIRS), TEST(creating_refused, 0), TEST(no_such_memory, 0),
	TEST(posting_by_state, SOFT), TEST(transitions, 0), TEST(missing_attributes, 0), TEST(wrong_attributes, 0),
	TEST(depths, PAIRS), TEST(completion_overrun, PAIRS),
	TEST(not_ready_for_ever, PAIRS), TEST(write_not_ready, PAIRS), TEST(waits_with_seven, PAIRS),
	TEST(flush_order, PAIRS), TEST(error_among_reads, PAIRS), TEST(others_go_on, PAIRS), TEST(last_receive, PAIRS),
	TEST(no_peer, PAIRS), TEST(killed_in_read, SOFT), TEST(killed_at_any_time, 0), TEST(sender_killed, 0),
	TEST(deregistered_in_read, PAIRS), TEST(given_back_in_read, 0), TEST(in_use, 0),
};

int main(int argc, char **argv) { return run_tests(argc, argv, tests, COUNT(tests)); }
