/*
 * What the software HCA can be made to do: each knob of the environment, each
 * thing that can be injected, and the counters; and how it behaves in a
 * process: threads, signals, descriptors, files, memory.
 */
#define _GNU_SOURCE
#include "test.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <endian.h>
#include <fcntl.h>
#include <infiniband/tm_types.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 4096, BIG = 1 << 20 };

static void knob(const char *name, const char *value)
{
	CHECK(setenv(name, value, 1) == 0, "setenv: %m");
}

/* One message from a to b, and one back. */
static void talk(struct pair *p)
{
	static uint64_t id = 100;

	id += 2;
	MUST(try_end_recv(&p->b, id, NULL, 0));
	post(p->a.qp, .id = id, .opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED);
	done(p->a.cq, id, IBV_WC_SEND);
	done(p->b.cq, id, IBV_WC_RECV);
	MUST(try_end_recv(&p->a, id + 1, NULL, 0));
	post(p->b.qp, .id = id + 1, .opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED);
	done(p->b.cq, id + 1, IBV_WC_SEND);
	done(p->a.cq, id + 1, IBV_WC_RECV);
}

/* Knobs. */

/* Opening must fail, and stderr must say which variable is wrong. */
static void refused_with(const char *name, const char *value)
{
	struct ibv_device **l = ibv_get_device_list(NULL);
	struct ibv_context *ctx;
	char text[2000] = "";
	int fd[2], saved;
	ssize_t n;

	CHECK(l && l[0], "no device");
	knob(name, value);
	CHECK(pipe2(fd, O_CLOEXEC | O_NONBLOCK) == 0, "pipe: %m");
	fflush(stderr);
	saved = dup(2);
	dup2(fd[1], 2);
	errno = 0;
	ctx = ibv_open_device(l[0]);
	fflush(stderr);
	dup2(saved, 2);
	close(saved);
	n = read(fd[0], text, sizeof(text) - 1);
	close(fd[0]);
	close(fd[1]);
	CHECK(!ctx, "%s=%s is accepted", name, value);
	CHECK(errno, "%s=%s: no errno", name, value);
	CHECK(n > 0 && strstr(text, name), "%s=%s: stderr says \"%s\"", name, value, text);
	unsetenv(name);
	ibv_free_device_list(l);
}

static void bad_knobs(void)
{
	static const char *const bad[][2] = {
		{ "SOFTHCA_NONSENSE", "1" }, { "SOFTHCA_", "1" }, { "SOFTHCA_seed", "1" },
		{ "SOFTHCA_SEED", "" }, { "SOFTHCA_SEED", "abc" }, { "SOFTHCA_SEED", "-1" }, { "SOFTHCA_SEED", "1x" },
		{ "SOFTHCA_LIST_DELAY", "long" }, { "SOFTHCA_LIST_DELAY", "-5" },
		{ "SOFTHCA_RNR", "1001" }, { "SOFTHCA_RNR", "-1" }, { "SOFTHCA_RNR", "1.5" },
		{ "SOFTHCA_DROP", "2000" }, { "SOFTHCA_DROP", "all" },
		{ "SOFTHCA_FAIL", "" }, { "SOFTHCA_FAIL", "read" }, { "SOFTHCA_FAIL", "read:" }, { "SOFTHCA_FAIL", "read:0" },
		{ "SOFTHCA_FAIL", "read:x" }, { "SOFTHCA_FAIL", "jump:1" }, { "SOFTHCA_FAIL", "read:1;reg:2" },
		{ "SOFTHCA_FAIL", "poll:0" }, { "SOFTHCA_MODE", "" }, { "SOFTHCA_MODE", "mlx4" },
		{ "SOFTHCA_TM", "maybe" }, { "SOFTHCA_TM", "2" }, { "SOFTHCA_MAX_TAGS", "-1" }, { "SOFTHCA_MAX_TAGS", "many" },
		{ "SOFTHCA_MAX_OPS", "x" }, { "SOFTHCA_MAX_INLINE", "-64" }, { "SOFTHCA_MAX_MSG", "0" },
		{ "SOFTHCA_MAX_MSG", "99999999999" }, { "SOFTHCA_MAX_RD", "0" }, { "SOFTHCA_MAX_RD", "256" },
		{ "SOFTHCA_PKEYS", "" }, { "SOFTHCA_PKEYS", "ffff," }, { "SOFTHCA_PKEYS", "0" }, { "SOFTHCA_PKEYS", "8000" },
		{ "SOFTHCA_PKEYS", "1ffff" }, { "SOFTHCA_PKEYS", "8001 8002" }, { "SOFTHCA_PKEYS", "-1" },
		{ "SOFTHCA_PKEYS", "1,2,3,4,5,6,7,8,9,a,b,c,d,e,f,10,11" },
		{ "SOFTHCA_DROP_FROM", "" }, { "SOFTHCA_DROP_FROM", "x" }, { "SOFTHCA_DROP_FROM", "65536" },
		{ "SOFTHCA_DROP_FROM", "1:" }, { "SOFTHCA_DROP_FROM", "1:-1" }, { "SOFTHCA_DROP_FROM", "1,2:3x" },
		{ "SOFTHCA_DROP_FROM", "1,2," }, { "SOFTHCA_DROP_FROM", "1,2,3,4,5,6,7,8,9" },
		{ "SOFTHCA_RETRY_SCALE", "0" }, { "SOFTHCA_RETRY_SCALE", "fast" }, { "SOFTHCA_RETRY_SCALE", "-2" },
		{ "SOFTHCA_DIR", "" }, { "SOFTHCA_DIR", "relative" }, { "SOFTHCA_DIR", "/proc/nowhere" },
	};
	struct dev *d;

	for (size_t i = 0; i < COUNT(bad); i++)
		refused_with(bad[i][0], bad[i][1]);
	d = dev_open();	/* without them it opens */
	dev_close(d);
}

/* One end of the pair below: a port with these partitions, a queue pair in the one at this index. */
static void partition_open(struct end *e, const char *keys, uint16_t index, const struct how *h)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .pkey_index = index, .port_num = 1, .qp_access_flags = ALL_ACCESS };

	knob("SOFTHCA_PKEYS", keys);
	end_open(e, dev_open(), h);
	MUST(ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

/* Requests pass in a partition that both ends are in, unless both are limited members. */
static void partitions(void)
{
	static const struct {
		const char *a, *b;
		uint16_t ai, bi;
		bool pass;
	} c[] = {
		{ "ffff", "ffff", 0, 0, true },	 { "ffff", "7fff", 0, 0, true },  { "7fff", "ffff", 0, 0, true },
		{ "7fff", "7fff", 0, 0, false }, { "ffff", "8001", 0, 0, false }, { "7fff,8001", "8002,1", 1, 1, true },
		{ "7fff,8001", "8002,1", 1, 0, false }, { "7fff,8001", "ffff,1", 0, 1, false },
	};

	for (size_t i = 0; i < COUNT(c); i++) {
		struct how h = usual;
		struct pair p;
		struct addr x, y;
		__be16 k;

		h.retry = 1;
		partition_open(&p.a, c[i].a, c[i].ai, &h);
		partition_open(&p.b, c[i].b, c[i].bi, &h);
		x = end_addr(&p.a);
		y = end_addr(&p.b);
		MUST(to_rtr(p.a.qp, p.a.d, &h, &y));
		MUST(to_rtr(p.b.qp, p.b.d, &h, &x));
		MUST(to_rts(p.a.qp, &h, p.a.psn));
		MUST(to_rts(p.b.qp, &h, p.b.psn));
		MUST(ibv_query_pkey(p.b.d->ctx, 1, c[i].bi, &k));
		CHECK(ibv_get_pkey_index(p.b.d->ctx, 1, k) == c[i].bi, "index of %04x", ntohs(k));
		REFUSED(EINVAL, ibv_query_pkey(p.b.d->ctx, 1, p.b.d->port.pkey_tbl_len, &k));
		if (c[i].pass) {
			talk(&p);
		} else {
			MUST(try_end_recv(&p.b, 1, NULL, 0));
			post(p.a.qp, .id = 2, .opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED);
			expect(p.a.cq, 2, IBV_WC_RETRY_EXC_ERR);
			quiet(p.b.cq, 0.01);
		}
		end_close(&p.a);
		end_close(&p.b);
		dev_close(p.a.d);
		dev_close(p.b.d);
	}
}

static void limits(void)
{
	struct pair p;
	struct buf s, r;
	struct ibv_qp_init_attr a;
	static const enum ibv_wr_opcode ops[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ };

	knob("SOFTHCA_MAX_TAGS", "7");
	knob("SOFTHCA_MAX_OPS", "9");
	knob("SOFTHCA_MAX_INLINE", "100");
	knob("SOFTHCA_MAX_MSG", "65536");
	knob("SOFTHCA_MAX_RD", "3");
	for (size_t i = 0; i < COUNT(ops); i++)
		for (uint32_t over = 0; over < 2; over++) {
			struct how h = usual;
			struct ibv_sge sg[2];

			h.rd = h.dest_rd = 3;
			pair_open(&p, &h);
			CHECK(p.a.d->ex.tm_caps.max_num_tags == 7 && p.a.d->ex.tm_caps.max_ops == 9, "%u tags, %u operations",
			      p.a.d->ex.tm_caps.max_num_tags, p.a.d->ex.tm_caps.max_ops);
			CHECK(p.a.d->port.max_msg_sz == 65536, "max_msg_sz %u", p.a.d->port.max_msg_sz);
			CHECK(p.a.d->attr.max_qp_rd_atom == 3 && p.a.d->attr.max_qp_init_rd_atom == 3, "%d READs",
			      p.a.d->attr.max_qp_rd_atom);
			a = (struct ibv_qp_init_attr){ .send_cq = p.a.cq, .recv_cq = p.a.cq, .qp_type = IBV_QPT_RC,
				.cap = { .max_send_wr = 1, .max_send_sge = 1, .max_inline_data = 101 } };
			CHECK(!ibv_create_qp(p.a.d->pd, &a), "inline data beyond the limit");
			s = buf_new(p.a.d, 65537, ALL_ACCESS);
			r = buf_new(p.b.d, 65537, ALL_ACCESS);
			sg[0] = part(&s, 0, 30000);
			sg[1] = part(&s, 30000, 35536 + over);
			end_recv(&p.b, 5, part(&r, 0, 65537));
			post(p.a.qp, .id = 1, .opcode = ops[i], .sg = sg, .n = 2, .flags = IBV_SEND_SIGNALED,
			     .raddr = (uintptr_t)r.p, .rkey = r.mr->rkey);
			expect(p.a.cq, 1, over ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS);
			buf_free(&s);
			buf_free(&r);
			pair_close(&p);
		}
}

static void without_tags(void)
{
	struct pair p;
	struct ibv_cq_init_attr_ex ca = { .cqe = 8, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_TM_INFO };
	struct ibv_srq_init_attr_ex sa = {
		.attr = { .max_wr = 64, .max_sge = 1 }, .srq_type = IBV_SRQT_TM,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
		.tm_cap = { .max_num_tags = 1, .max_ops = 1 },
	};
	struct ibv_cq_ex *cq;

	knob("SOFTHCA_TM", "0");
	pair_open(&p, &usual);
	CHECK(!(p.a.d->ex.tm_caps.flags & IBV_TM_CAP_RC) && !p.a.d->ex.tm_caps.max_num_tags && !p.a.d->ex.tm_caps.max_ops,
	      "capabilities: flags 0x%x, %u tags", p.a.d->ex.tm_caps.flags, p.a.d->ex.tm_caps.max_num_tags);
	cq = ibv_create_cq_ex(p.a.d->ctx, &ca);
	if (cq) {
		sa.pd = p.a.d->pd;
		sa.cq = ibv_cq_ex_to_cq(cq);
		errno = 0;
		CHECK(!ibv_create_srq_ex(p.a.d->ctx, &sa) && errno, "a shared queue with tags, all the same");
		MUST(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	}
	talk(&p);
	pair_close(&p);
}

/* Requests are lost on the way: they are repeated, each takes effect once, and in order. */
static void lost_requests(void)
{
	struct how h = usual;
	struct pair p;
	struct buf s, r;
	uint64_t want = 0;

	h.timeout = 6;	/* a quarter of a millisecond */
	knob("SOFTHCA_SEED", "5");
	knob("SOFTHCA_DROP", "100");
	pair_open(&p, &h);
	s = buf_new(p.a.d, 8 * SIZE, ALL_ACCESS);
	r = buf_new(p.b.d, 8 * SIZE, ALL_ACCESS);
	for (unsigned i = 0; i < 300; i++) {
		struct ibv_sge sg = part(&s, 0, 64), word = part(&s, 128, 8), far = part(&s, 256, 64);

		fill(s.p, 64, i);
		end_recv(&p.b, i, part(&r, 0, 64));
		post(p.a.qp, .id = 1, .opcode = IBV_WR_SEND, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED);
		post(p.a.qp, .id = 2, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .sg = &word, .n = 1, .flags = IBV_SEND_SIGNALED,
		     .raddr = (uintptr_t)r.p + SIZE, .rkey = r.mr->rkey, .add = i);
		post(p.a.qp, .id = 3, .opcode = IBV_WR_RDMA_WRITE, .sg = &sg, .n = 1,
		     .raddr = (uintptr_t)r.p + 2 * SIZE, .rkey = r.mr->rkey);
		post(p.a.qp, .id = 4, .opcode = IBV_WR_RDMA_READ, .sg = &far, .n = 1, .flags = IBV_SEND_SIGNALED,
		     .raddr = (uintptr_t)r.p + 2 * SIZE, .rkey = r.mr->rkey);
		done(p.a.cq, 1, IBV_WC_SEND);
		done(p.a.cq, 2, IBV_WC_FETCH_ADD);
		done(p.a.cq, 4, IBV_WC_RDMA_READ);
		done(p.b.cq, i, IBV_WC_RECV);
		check_fill(r.p, 64, i, 0, "sent");
		check_fill(r.p + 2 * SIZE, 64, i, 0, "written");
		check_fill(s.p + 256, 64, i, 0, "read");
		CHECK(*(uint64_t *)(s.p + 128) == want, "old value %llu, not %llu", (long long)*(uint64_t *)(s.p + 128),
		      (long long)want);
		want += i;
	}
	CHECK(*(uint64_t *)(r.p + SIZE) == want, "sum");
	CHECK(counter(p.a.d->ctx, "retries") > 0, "nothing was lost");
	buf_free(&s);
	buf_free(&r);
	pair_close(&p);
}

/* When all is lost the retries end. */
static void all_is_lost(void)
{
	struct how h = usual;
	struct pair p;

	h.timeout = 8;
	h.retry = 2;
	knob("SOFTHCA_DROP", "1000");
	pair_open(&p, &h);
	MUST(try_recv(p.b.qp, 9, NULL, 0));
	post(p.a.qp, .id = 1, .opcode = IBV_WR_SEND);
	post(p.a.qp, .id = 2, .opcode = IBV_WR_SEND);
	expect(p.a.cq, 1, IBV_WC_RETRY_EXC_ERR);
	expect(p.a.cq, 2, IBV_WC_WR_FLUSH_ERR);
	quiet(p.b.cq, 0.01);
	pair_close(&p);
}

/* Connects two ports. */
static void join(struct pair *p, const struct how *h)
{
	struct addr x = end_addr(&p->a), y = end_addr(&p->b);

	MUST(to_rtr(p->a.qp, p->a.d, h, &y));
	MUST(to_rtr(p->b.qp, p->b.d, h, &x));
	MUST(to_rts(p->a.qp, h, p->a.psn));
	MUST(to_rts(p->b.qp, h, p->b.psn));
}

/* A request from one end to the other, and what becomes of it there and here. */
static void dead_or_alive(struct end *from, struct end *to, enum ibv_wr_opcode op, uint32_t bytes, bool arrives,
			  enum ibv_wc_status status)
{
	struct buf s = buf_new(from->d, SIZE, ALL_ACCESS), r = buf_new(to->d, SIZE, ALL_ACCESS);
	struct ibv_sge sg = part(&s, 0, bytes);

	if (op == IBV_WR_SEND)
		end_recv(to, 3, part(&r, 0, SIZE));
	post(from->qp, .id = 4, .opcode = op, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED, .raddr = (uintptr_t)r.p,
	     .rkey = r.mr->rkey);
	expect(from->cq, 4, status);
	if (op == IBV_WR_SEND && arrives)
		done(to->cq, 3, IBV_WC_RECV);
	else
		quiet(to->cq, 0.01);
	buf_free(&s);
	buf_free(&r);
}

/* What one port loses of another: all, in one direction, requests and answers; or long packets only. */
static void one_way(void)
{
	static const struct { const char *hole; enum ibv_wr_opcode op; uint32_t bytes; bool from_a, arrives, ends; } c[] = {
		{ "7", IBV_WR_SEND, 1, true, false, false },	   /* the request from a is lost */
		{ "7", IBV_WR_SEND, 1, false, true, false },	   /* a's answer is */
		{ "6,8", IBV_WR_SEND, 1, true, true, true },	   /* of others, nothing is */
		{ "6", IBV_WR_SEND, 1, false, true, true },
		{ "6,7:1024", IBV_WR_SEND, 1024, true, true, true },
		{ "6,7:1024", IBV_WR_SEND, 1025, true, false, false },
		{ "7:1024", IBV_WR_SEND, 2048, false, true, true },	/* the answer is short */
		{ "7:1024", IBV_WR_RDMA_WRITE, 2048, true, false, false },
		{ "7:1024", IBV_WR_RDMA_READ, 2048, true, true, true }, /* a asks, b's data pass */
		{ "7:1024", IBV_WR_RDMA_READ, 2048, false, true, false },
		{ "7:1024", IBV_WR_RDMA_READ, 1024, false, true, true },
	};

	knob("SOFTHCA_SUBNET", "7");
	for (size_t i = 0; i < COUNT(c); i++) {
		struct how h = usual;
		struct pair p;

		h.retry = 1;
		h.timeout = 8;
		unsetenv("SOFTHCA_DROP_FROM");
		knob("SOFTHCA_SUBNET", "7");
		end_open(&p.a, dev_open(), &h);
		knob("SOFTHCA_DROP_FROM", c[i].hole);
		end_open(&p.b, dev_open(), &h);
		MUST(to_init(p.a.qp, &h));
		MUST(to_init(p.b.qp, &h));
		join(&p, &h);
		dead_or_alive(c[i].from_a ? &p.a : &p.b, c[i].from_a ? &p.b : &p.a, c[i].op, c[i].bytes, c[i].arrives,
			      c[i].ends ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR);
		CHECK(!counter(p.b.d->ctx, "dropped") == c[i].ends, "case %zu: %llu packets were lost", i,
		      (unsigned long long)counter(p.b.d->ctx, "dropped"));
		end_close(&p.a);
		end_close(&p.b);
		dev_close(p.a.d);
		dev_close(p.b.d);
	}
}

static void injected_rnr(void)
{
	struct how h = usual;
	struct pair p;
	struct ibv_wc w;
	bool failed = false;

	knob("SOFTHCA_SEED", "5");
	knob("SOFTHCA_RNR", "300");
	pair_open(&p, &h);
	for (int i = 0; i < 50; i++)
		talk(&p);
	CHECK(counter(p.a.d->ctx, "rnr") + counter(p.b.d->ctx, "rnr") > 0, "there was no RNR NAK");
	pair_close(&p);

	h.rnr = 0;	/* a sender that does not try again fails */
	pair_open(&p, &h);
	for (int i = 0; i < 200 && !failed; i++) {
		MUST(try_recv(p.b.qp, 1, NULL, 0));
		post(p.a.qp, .id = 2, .opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED);
		w = next_wc(p.a.cq);
		CHECK(w.status == IBV_WC_SUCCESS || w.status == IBV_WC_RNR_RETRY_EXC_ERR, "%s", ibv_wc_status_str(w.status));
		failed = w.status != IBV_WC_SUCCESS;
		if (!failed)
			done(p.b.cq, 1, IBV_WC_RECV);
	}
	CHECK(failed, "200 messages of which 300 per thousand fail, and none did");
	pair_close(&p);
}

/* The third of each kind fails, and no other. */
static void failing_requests(void)
{
	static const struct { const char *name; enum ibv_wr_opcode op; } kinds[] = {
		{ "send:3", IBV_WR_SEND }, { "write:3", IBV_WR_RDMA_WRITE }, { "read:3", IBV_WR_RDMA_READ },
		{ "atomic:3", IBV_WR_ATOMIC_FETCH_AND_ADD },
	};

	for (size_t k = 0; k < COUNT(kinds); k++)
		for (size_t op = 0; op < COUNT(kinds); op++) {
			struct pair p;
			struct buf s, r;
			struct ibv_sge sg;
			struct ibv_wc w;

			knob("SOFTHCA_FAIL", kinds[k].name);
			pair_open(&p, &usual);
			s = buf_new(p.a.d, 64, ALL_ACCESS);
			r = buf_new(p.b.d, 64, ALL_ACCESS);
			sg = part(&s, 0, 8);
			for (unsigned i = 1; i <= 5; i++) {
				end_recv(&p.b, i, part(&r, 0, 64));
				post(p.a.qp, .id = i, .opcode = kinds[op].op, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED,
				     .raddr = (uintptr_t)r.p, .rkey = r.mr->rkey);
			}
			for (unsigned i = 1; i <= 5; i++) {
				w = next_wc(p.a.cq);
				CHECK(w.wr_id == i, "order");
				if (k != op || i < 3)
					CHECK(w.status == IBV_WC_SUCCESS, "%s, opcode %d: number %u: %s", kinds[k].name,
					      kinds[op].op, i, ibv_wc_status_str(w.status));
				else if (i == 3)
					CHECK(w.status != IBV_WC_SUCCESS && w.status != IBV_WC_WR_FLUSH_ERR, "%s: %s",
					      kinds[k].name, ibv_wc_status_str(w.status));
				else
					CHECK(w.status == IBV_WC_WR_FLUSH_ERR, "%s: after it: %s", kinds[k].name,
					      ibv_wc_status_str(w.status));
			}
			CHECK(qp_state(p.a.qp) == (k == op ? IBV_QPS_ERR : IBV_QPS_RTS), "state %d", qp_state(p.a.qp));
			buf_free(&s);
			buf_free(&r);
			pair_close(&p);
		}
}

static void failing_registration(void)
{
	struct dev *d;
	uint8_t page[64];
	struct ibv_mr *m[5];

	knob("SOFTHCA_FAIL", "reg:3,read:1");
	d = dev_open();
	for (int i = 0; i < 5; i++) {
		errno = 0;
		m[i] = ibv_reg_mr(d->pd, page, 64, ALL_ACCESS);
		CHECK(!m[i] == (i == 2), "registration number %d", i + 1);
		CHECK(m[i] || errno == ENOMEM, "errno %d, not ENOMEM", errno);
	}
	CHECK(counter(d->ctx, "mrs") == 4, "%llu regions", (unsigned long long)counter(d->ctx, "mrs"));
	for (int i = 0; i < 5; i++)
		if (m[i])
			MUST(ibv_dereg_mr(m[i]));
	CHECK(counter(d->ctx, "mrs") == 0, "regions are left");
	dev_close(d);
}

/* Retries no faster than SOFTHCA_RETRY_SCALE says. An upper bound would depend on the machine. */
static void slow_retries(void)
{
	struct how h = usual;
	struct pair p;
	double start;

	h.timeout = 12;	/* 17 ms */
	h.retry = 1;
	knob("SOFTHCA_RETRY_SCALE", "20");
	pair_open(&p, &h);
	MUST(to_state(p.b.qp, IBV_QPS_RESET));
	start = now();
	post(p.a.qp, .id = 1, .opcode = IBV_WR_SEND);
	expect(p.a.cq, 1, IBV_WC_RETRY_EXC_ERR);
	CHECK(now() - start > 0.25, "retries of 20 times 17 ms were over after %g s", now() - start);
	pair_close(&p);
}

/* Many queue pairs under random delays: each keeps its order, and all get on. */
static void seeded_scheduling(void)
{
	enum { N = 6, EACH = 60 };

	for (int seed = 0; seed < 4; seed++) {
		char text[10];
		struct pair p;
		struct ibv_qp *a[N], *b[N];
		unsigned next[N] = { 0 }, ends[N] = { 0 };
		struct how h = usual;

		snprintf(text, sizeof(text), "%d", seed);
		knob("SOFTHCA_SEED", text);
		h.srq_wr = 512;
		h.cqe = 1024;
		pair_open(&p, &h);
		for (unsigned i = 0; i < N * EACH; i++)
			MUST(try_srq(p.b.srq, i, NULL, 0));
		for (unsigned q = 0; q < N; q++) {
			struct addr x, y;

			a[q] = make_qp(&p.a);
			b[q] = make_qp(&p.b);
			x = address(p.a.d, a[q], q);
			y = address(p.b.d, b[q], q + 9);
			connect_qp(b[q], p.b.d, &h, q + 9, &x);
			connect_qp(a[q], p.a.d, &h, q, &y);
		}
		for (unsigned i = 0; i < EACH; i++)
			for (unsigned q = 0; q < N; q++)
				post(a[q], .id = q * 1000 + i, .opcode = IBV_WR_SEND_WITH_IMM, .flags = IBV_SEND_SIGNALED, .imm = htonl(i));
		for (unsigned i = 0; i < 2 * N * EACH; i++) {
			struct ibv_wc w = next_wc(i & 1 ? p.a.cq : p.b.cq);
			unsigned q = 0;

			CHECK(w.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(w.status));
			while (q < N && (i & 1 ? a : b)[q]->qp_num != w.qp_num)
				q++;
			CHECK(q < N, "qp_num %u", w.qp_num);
			if (i & 1)
				CHECK(w.wr_id == q * 1000 + ends[q]++, "order of sends");
			else
				CHECK(ntohl(w.imm_data) == next[q]++, "order of receives");
		}
		for (unsigned q = 0; q < N; q++) {
			MUST(ibv_destroy_qp(a[q]));
			MUST(ibv_destroy_qp(b[q]));
		}
		pair_close(&p);
	}
}

/* A minimal shared queue with tags and one sender. */
struct tags {
	struct pair p;		/* a sends by its own queue pair; b's is replaced */
	struct ibv_cq_ex *cq;
	struct ibv_srq *srq;
	struct buf bufs, mem, offer;	/* b's, b's, and a's */
};

static void tags_open(struct tags *t)
{
	struct ibv_cq_init_attr_ex ca = { .cqe = 512, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_TM_INFO };
	struct ibv_srq_init_attr_ex sa = {
		.attr = { .max_wr = 64, .max_sge = 1 }, .srq_type = IBV_SRQT_TM,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
		.tm_cap = { .max_num_tags = 16, .max_ops = 16 },
	};
	struct ibv_qp_init_attr qa = { .qp_type = IBV_QPT_RC };
	struct addr x, y;

	pair_open(&t->p, &usual);
	t->cq = ibv_create_cq_ex(t->p.b.d->ctx, &ca);
	CHECK(t->cq, "ibv_create_cq_ex: %m");
	sa.pd = t->p.b.d->pd;
	sa.cq = qa.send_cq = qa.recv_cq = ibv_cq_ex_to_cq(t->cq);
	t->srq = ibv_create_srq_ex(t->p.b.d->ctx, &sa);
	CHECK(t->srq, "ibv_create_srq_ex: %m");
	qa.srq = t->srq;
	MUST(ibv_destroy_qp(t->p.b.qp));
	t->p.b.qp = ibv_create_qp(t->p.b.d->pd, &qa);
	CHECK(t->p.b.qp, "ibv_create_qp: %m");
	MUST(to_state(t->p.a.qp, IBV_QPS_RESET));
	x = end_addr(&t->p.a);
	y = end_addr(&t->p.b);
	end_connect(&t->p.b, &x);
	end_connect(&t->p.a, &y);
	t->bufs = buf_new(t->p.b.d, 64 * 1024, IBV_ACCESS_LOCAL_WRITE);
	t->mem = buf_new(t->p.b.d, BIG, ALL_ACCESS);
	t->offer = buf_new(t->p.a.d, BIG, ALL_ACCESS);
	for (unsigned i = 0; i < 64; i++) {
		struct ibv_sge sg = part(&t->bufs, 1024 * i, 1024);

		MUST(try_srq(t->srq, 1000 + i, &sg, 1));
	}
}

static void tags_close(struct tags *t)
{
	buf_free(&t->bufs);
	buf_free(&t->mem);
	buf_free(&t->offer);
	MUST(ibv_destroy_qp(t->p.b.qp));
	MUST(ibv_destroy_srq(t->srq));
	MUST(ibv_destroy_cq(ibv_cq_ex_to_cq(t->cq)));
	t->p.b.qp = make_qp(&t->p.b);
	pair_close(&t->p);
}

static void tags_add(struct tags *t, uint64_t id, uint64_t tag, uint32_t len)
{
	struct ibv_sge sg = part(&t->mem, 0, len);
	struct ibv_ops_wr w = { .wr_id = id + 500, .opcode = IBV_WR_TAG_ADD, .flags = IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC },
		*bad;

	w.tm.add.recv_wr_id = id;
	w.tm.add.sg_list = &sg;
	w.tm.add.num_sge = 1;
	w.tm.add.tag = tag;
	w.tm.add.mask = ~0ull;
	MUST(ibv_post_srq_ops(t->srq, &w, &bad));
}

static struct ibv_wc tags_next(struct tags *t)
{
	struct ibv_poll_cq_attr pa = { 0 };
	struct ibv_wc w = { 0 };
	double start = 0;
	int rc;

	while ((rc = ibv_start_poll(t->cq, &pa)) == ENOENT)
		CHECK(until(&start), "no completion");
	CHECK(rc == 0, "ibv_start_poll: %d", rc);
	w.wr_id = t->cq->wr_id;
	w.status = t->cq->status;
	w.opcode = ibv_wc_read_opcode(t->cq);
	w.wc_flags = ibv_wc_read_wc_flags(t->cq);
	ibv_end_poll(t->cq);
	return w;
}

static void tags_send(struct tags *t, uint8_t opcode, uint64_t tag, uint32_t len)
{
	struct { struct ibv_tmh h; struct ibv_rvh r; } m = {
		{ .opcode = opcode, .tag = htobe64(tag) },
		{ htobe64((uintptr_t)t->offer.p), htonl(t->offer.mr->rkey), htonl(len) },
	};
	struct ibv_sge sg = { (uintptr_t)&m, sizeof(m), 0 };

	post(t->p.a.qp, .id = 1, .opcode = IBV_WR_SEND, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE);
}

/* A list operation takes its time: what arrives meanwhile does not see the tag. */
static void slow_list(void)
{
	struct tags t;
	struct ibv_wc w;

	knob("SOFTHCA_LIST_DELAY", "2000000");
	tags_open(&t);
	tags_add(&t, 1, 7, 100);
	tags_send(&t, IBV_TMH_EAGER, 7, 0);
	done(t.p.a.cq, 1, IBV_WC_SEND);
	w = tags_next(&t);
	CHECK(w.opcode == IBV_WC_TM_RECV && w.wr_id == 1000 && !(w.wc_flags & IBV_WC_TM_MATCH), "%d: opcode %d, flags 0x%x",
	      (int)w.wr_id, w.opcode, w.wc_flags);
	/* And when it is carried out, the tag is inert: software has not spoken of that message. */
	w = tags_next(&t);
	CHECK(w.opcode == IBV_WC_TM_ADD && w.wr_id == 501 && w.wc_flags == IBV_WC_TM_SYNC_REQ, "%d: opcode %d, flags 0x%x",
	      (int)w.wr_id, w.opcode, w.wc_flags);
	tags_close(&t);
}

/* The FIN fails: the receive must report it one way or the other, and neither side hangs. */
static void failing_fin(void)
{
	struct tags t;
	struct ibv_wc w;
	bool failed = false;

	knob("SOFTHCA_FAIL", "fin:1");
	tags_open(&t);
	tags_add(&t, 1, 7, BIG);
	w = tags_next(&t);
	CHECK(w.opcode == IBV_WC_TM_ADD, "opcode %d", w.opcode);
	tags_send(&t, IBV_TMH_RNDV, 7, BIG);
	done(t.p.a.cq, 1, IBV_WC_SEND);
	for (int i = 0; i < 3 && !failed; i++) {
		w = tags_next(&t);
		failed = w.status != IBV_WC_SUCCESS;
		CHECK(w.wr_id == 1 || failed, "%d: opcode %d", (int)w.wr_id, w.opcode);
		if (!failed && w.wc_flags & IBV_WC_TM_DATA_VALID)
			break;
	}
	await_state(t.p.b.qp, IBV_QPS_ERR);
	quiet(t.p.a.cq, 0.01);
	tags_close(&t);
}

/* Counters. */

#define DELTA(name, n) do { uint64_t v_ = counter(ctx, name); \
	CHECK(v_ == (uint64_t)(n), "%s is %llu, not %llu", name, (unsigned long long)v_, (unsigned long long)(n)); } while (0)

static void counters(void)
{
	struct pair p;
	struct buf s, r;
	struct ibv_context *ctx;
	struct ibv_sge sg, word;

	pair_open(&p, &usual);
	ctx = p.a.d->ctx;
	CHECK(counter(ctx, "nonsense") == UINT64_MAX && counter(ctx, "") == UINT64_MAX, "a counter that there is not");
	DELTA("qps", two_contexts() ? 1 : 2);
	DELTA("mrs", 0);
	s = buf_new(p.a.d, BIG, ALL_ACCESS);
	r = buf_new(p.b.d, BIG, ALL_ACCESS);
	DELTA("mrs", two_contexts() ? 1 : 2);
	sg = part(&s, 0, 1000);
	word = part(&s, 0, 8);
	DELTA("sends", 0);
	for (unsigned i = 0; i < 10; i++) {
		end_recv(&p.b, i, part(&r, 0, 4096));
		post(p.a.qp, .id = i, .opcode = IBV_WR_SEND, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED);
		done(p.a.cq, i, IBV_WC_SEND);
	}
	DELTA("sends", 10);
	DELTA("send_bytes", 10000);
	for (unsigned i = 0; i < 7; i++) {
		post(p.a.qp, .id = 1, .opcode = IBV_WR_RDMA_READ, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED,
		     .raddr = (uintptr_t)r.p, .rkey = r.mr->rkey);
		done(p.a.cq, 1, IBV_WC_RDMA_READ);
	}
	DELTA("reads", 7);
	DELTA("read_bytes", 7000);
	post(p.a.qp, .id = 1, .opcode = IBV_WR_RDMA_WRITE, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED,
	     .raddr = (uintptr_t)r.p, .rkey = r.mr->rkey);
	done(p.a.cq, 1, IBV_WC_RDMA_WRITE);
	DELTA("writes", 1);
	post(p.a.qp, .id = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .sg = &word, .n = 1, .flags = IBV_SEND_SIGNALED,
	     .raddr = (uintptr_t)r.p, .rkey = r.mr->rkey);
	done(p.a.cq, 1, IBV_WC_FETCH_ADD);
	DELTA("atomics", 1);
	DELTA("retries", 0);
	DELTA("rnr", 0);
	DELTA("fins", 0);
	DELTA("sends", 10);
	buf_free(&s);
	buf_free(&r);
	DELTA("mrs", 0);
	pair_close(&p);
}

static void tag_counters(void)
{
	struct tags t;
	struct ibv_context *ctx;
	struct ibv_wc w;

	tags_open(&t);
	ctx = t.p.b.d->ctx;
	for (unsigned i = 0; i < 6; i++) {
		tags_add(&t, i, i, BIG);
		CHECK(tags_next(&t).opcode == IBV_WC_TM_ADD, "ADD");
	}
	DELTA("tm_added", 6);
	DELTA("tm_matched", 0);
	tags_send(&t, IBV_TMH_EAGER, 1, 0);
	CHECK(tags_next(&t).wc_flags == (IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID), "match");
	DELTA("tm_matched", 1);
	DELTA("tm_unexpected", 0);
	tags_send(&t, IBV_TMH_EAGER, 99, 0);
	CHECK(tags_next(&t).opcode == IBV_WC_TM_RECV, "unexpected");
	DELTA("tm_matched", 1);
	DELTA("tm_unexpected", 1);
	MUST(try_recv(t.p.a.qp, 77, &(struct ibv_sge){ (uintptr_t)t.offer.p, 64, t.offer.mr->lkey }, 1));
	fill(t.offer.p, BIG, 5);
	tags_send(&t, IBV_TMH_RNDV, 2, BIG);
	w = tags_next(&t);
	CHECK(w.wc_flags == IBV_WC_TM_MATCH && w.status == IBV_WC_SUCCESS, "match");
	w = tags_next(&t);
	CHECK(w.wc_flags == IBV_WC_TM_DATA_VALID && w.status == IBV_WC_SUCCESS, "data");
	check_fill(t.mem.p + 64, BIG - 64, 5, 64, "read by the device");
	for (unsigned i = 0; i < 4; i++) {	/* three messages, one FIN */
		w = next_wc(t.p.a.cq);
		CHECK(w.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(w.status));
	}
	DELTA("tm_matched", 2);
	DELTA("fins", 1);
	DELTA("reads", 1);
	DELTA("read_bytes", BIG);
	/* No byte of a payload went through a buffer of the host's software. */
	DELTA("payload_copies_by_cpu", 0);
	tags_close(&t);
}

/* Injections. */

static void injected_nonsense(void)
{
	struct dev *d = dev_open();

	CHECK(inject(d->ctx, "nonsense") == EINVAL && inject(d->ctx, "") == EINVAL && inject(d->ctx, "qp_fatal:") == EINVAL &&
	      inject(d->ctx, "qp_fatal:x") == EINVAL, "nonsense is accepted");
	CHECK(inject(d->ctx, "hold_registrations") == EINVAL && inject(d->ctx, "hold_registrations:0") == EINVAL &&
	      inject(d->ctx, "hold_destructions:1") == EINVAL && inject(d->ctx, "release_registrations:1") == EINVAL &&
	      inject(d->ctx, "release_all") == EINVAL, "calls that there are not are slow");
	CHECK(inject(d->ctx, "qp_fatal:123456") == ENOENT, "a queue pair that there is not");
	no_event(d->ctx, 0.005);
	dev_close(d);
}

static void device_fatal(void)
{
	struct how h = usual;
	struct pair p, other;
	struct ibv_async_event ev;
	struct ibv_wc w;
	int rc;

	h.timeout = 10;
	h.retry = 2;
	pair_open(&p, &h);
	pair_open(&other, &h);
	for (unsigned i = 0; i < 3; i++)
		MUST(try_recv(p.a.qp, 10 + i, NULL, 0));
	post(p.a.qp, .id = 1, .opcode = IBV_WR_SEND);	/* waits: b has no receive */
	MUST(inject(p.a.d->ctx, "device_fatal"));
	ev = next_event(p.a.d->ctx, IBV_EVENT_DEVICE_FATAL);
	CHECK(ev.event_type == IBV_EVENT_DEVICE_FATAL, "event");
	/* All that was posted comes back as an error, and what is posted now as well, if it is taken at all. */
	for (unsigned i = 0; i < 4; i++) {
		w = next_wc(p.a.cq);
		CHECK(w.status != IBV_WC_SUCCESS, "%d: success", (int)w.wr_id);
	}
	rc = try_post(p.a.qp, &(struct op){ .id = 2, .opcode = IBV_WR_SEND });
	if (rc == 0)
		expect(p.a.cq, 2, IBV_WC_WR_FLUSH_ERR);
	if (two_contexts()) {	/* the peer is another port: it finds no peer */
		post(p.b.qp, .id = 3, .opcode = IBV_WR_SEND);
		expect(p.b.cq, 3, IBV_WC_RETRY_EXC_ERR);
	}
	talk(&other);	/* other ports live */
	pair_close(&p);	/* and all can be taken down */
	pair_close(&other);
}

/* What a queue pair in error gives back comes later and in steps, and says no more than it must. */
static void slow_flush(void)
{
	enum { N = 40 };
	struct how h = usual;
	struct pair p;
	struct ibv_wc w;
	unsigned sends = 0, receives = 0;

	knob("SOFTHCA_FLUSH_DELAY", "20000");
	h.send_wr = h.recv_wr = N;
	pair_open(&p, &h);
	MUST(inject(p.a.d->ctx, "port_err"));	/* so that nothing is answered */
	for (unsigned i = 0; i < N; i++) {
		MUST(try_recv(p.a.qp, 100 + i, NULL, 0));
		post(p.a.qp, .id = i, .opcode = IBV_WR_RDMA_WRITE);
	}
	MUST(to_state(p.a.qp, IBV_QPS_ERR));
	for (unsigned n = 0; n < 2 * N; n++) {
		w = next_wc(p.a.cq);
		CHECK(w.status == IBV_WC_WR_FLUSH_ERR && w.wr_id == (w.wr_id < 100 ? sends++ : 100 + receives++) &&
		      w.qp_num == p.a.qp->qp_num, "%d: %s", (int)w.wr_id, ibv_wc_status_str(w.status));
		CHECK(w.opcode == (w.wr_id < 100 ? IBV_WC_RECV : IBV_WC_RDMA_READ) && w.byte_len > SIZE,
		      "%d: opcode %d and %u bytes, which is what it was", (int)w.wr_id, w.opcode, w.byte_len);
		CHECK(n || counter(p.a.d->ctx, "cqes") < N, "all of it came at once");
	}
	quiet(p.a.cq, 0.1);
	MUST(inject(p.a.d->ctx, "port_active"));
	pair_close(&p);
}

static void port_events(void)
{
	struct pair p;
	struct ibv_port_attr a;
	struct ibv_async_event ev;

	pair_open(&p, &usual);
	talk(&p);
	for (int i = 0; i < 3; i++) {
		MUST(inject(p.a.d->ctx, "port_err"));
		ev = next_event(p.a.d->ctx, IBV_EVENT_PORT_ERR);
		CHECK(ev.element.port_num == 1, "port %d", ev.element.port_num);
		MUST(ibv_query_port(p.a.d->ctx, 1, &a));
		CHECK(a.state != IBV_PORT_ACTIVE, "the port is still active");
		MUST(inject(p.a.d->ctx, "port_active"));
		ev = next_event(p.a.d->ctx, IBV_EVENT_PORT_ACTIVE);
		CHECK(ev.element.port_num == 1, "port %d", ev.element.port_num);
		MUST(ibv_query_port(p.a.d->ctx, 1, &a));
		CHECK(a.state == IBV_PORT_ACTIVE, "the port is in state %d", a.state);
		talk(&p);
	}
	pair_close(&p);
}

/* A port that stays down: the retries end. */
static void port_stays_down(void)
{
	struct how h = usual;
	struct pair p;

	h.timeout = 10;
	h.retry = 2;
	pair_open(&p, &h);
	MUST(inject(p.a.d->ctx, "port_err"));
	MUST(try_recv(p.b.qp, 1, NULL, 0));
	post(p.a.qp, .id = 1, .opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED);
	expect(p.a.cq, 1, IBV_WC_RETRY_EXC_ERR);
	next_event(p.a.d->ctx, IBV_EVENT_PORT_ERR);
	pair_close(&p);
}

static void queue_pair_fatal(void)
{
	struct pair p;
	struct ibv_async_event ev;
	char what[40];

	pair_open(&p, &usual);
	for (unsigned i = 0; i < 5; i++)
		MUST(try_recv(p.b.qp, i, NULL, 0));
	snprintf(what, sizeof(what), "qp_fatal:%u", p.b.qp->qp_num);
	MUST(inject(p.b.d->ctx, what));
	ev = next_event(p.b.d->ctx, IBV_EVENT_QP_FATAL);
	CHECK(ev.element.qp == p.b.qp, "the event is of another queue pair");
	await_state(p.b.qp, IBV_QPS_ERR);
	for (unsigned i = 0; i < 5; i++)
		expect(p.b.cq, i, IBV_WC_WR_FLUSH_ERR);
	post(p.a.qp, .id = 1, .opcode = IBV_WR_SEND);
	expect(p.a.cq, 1, IBV_WC_RETRY_EXC_ERR);
	pair_close(&p);
}

static void queue_fatal(void)
{
	struct pair p;
	struct ibv_async_event ev;
	bool seen[2] = { false, false };

	pair_open(&p, &usual);
	MUST(inject(p.b.d->ctx, "cq_err"));
	for (int i = 0; i < (two_contexts() ? 1 : 2); i++) {	/* every queue of the context */
		ev = next_event(p.b.d->ctx, IBV_EVENT_CQ_ERR);
		CHECK(ev.element.cq == p.b.cq || ev.element.cq == p.a.cq, "the event is of a stranger");
		seen[ev.element.cq == p.b.cq] = true;
	}
	CHECK(seen[1], "no event of b's queue");
	await_state(p.b.qp, IBV_QPS_ERR);
	pair_close(&p);
}

static void paused(void)
{
	struct how h = usual;
	struct pair p;

	h.timeout = 0;	/* waits without end */
	pair_open(&p, &h);
	for (int i = 0; i < 3; i++) {
		talk(&p);
		MUST(inject(p.b.d->ctx, "pause"));
		MUST(try_recv(p.b.qp, 1, NULL, 0));
		post(p.a.qp, .id = 2, .opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED);
		quiet(p.a.cq, 0.05);
		quiet(p.b.cq, 0.005);
		MUST(inject(p.b.d->ctx, "resume"));
		done(p.a.cq, 2, IBV_WC_SEND);
		done(p.b.cq, 1, IBV_WC_RECV);
	}
	pair_close(&p);
}

/* Events. */

struct late {
	struct ibv_async_event ev;
	int acked;
};

static void *late_ack(void *arg)
{
	struct late *l = arg;

	nap(0.1);
	__atomic_store_n(&l->acked, 1, __ATOMIC_SEQ_CST);
	ibv_ack_async_event(&l->ev);
	return NULL;
}

/* What an event is about is not gone before the event is acknowledged. */
static void destroy_waits_for_acks(void)
{
	for (int which = 0; which < 2; which++) {
		struct pair p;
		struct late l = { .acked = 0 };
		char what[40];
		pthread_t t;

		pair_open(&p, &usual);
		if (which == 0)
			snprintf(what, sizeof(what), "qp_fatal:%u", p.b.qp->qp_num);
		else
			snprintf(what, sizeof(what), "cq_err");
		if (which == 1)
			MUST(ibv_destroy_qp(p.b.qp));
		MUST(inject(p.b.d->ctx, what));
		do {
			CHECK(readable(p.b.d->ctx->async_fd, patience()), "no event");
			MUST(ibv_get_async_event(p.b.d->ctx, &l.ev));
			if (which == 1 && l.ev.element.cq != p.b.cq)
				ibv_ack_async_event(&l.ev);
		} while (which == 1 && l.ev.element.cq != p.b.cq);
		MUST(pthread_create(&t, NULL, late_ack, &l));
		if (which == 0)
			MUST(ibv_destroy_qp(p.b.qp));
		else
			MUST(ibv_destroy_cq(p.b.cq));
		CHECK(__atomic_load_n(&l.acked, __ATOMIC_SEQ_CST), "destroyed before its event was acknowledged");
		MUST(pthread_join(t, NULL));
	}
}

/* An event of something that is destroyed before it was read is not delivered any more. */
static void event_of_the_dead(void)
{
	struct pair p;
	char what[40];

	pair_open(&p, &usual);
	snprintf(what, sizeof(what), "qp_fatal:%u", p.b.qp->qp_num);
	MUST(inject(p.b.d->ctx, what));
	MUST(ibv_destroy_qp(p.b.qp));
	no_event(p.b.d->ctx, 0.02);
	p.b.qp = make_qp(&p.b);
	pair_close(&p);
}

static void *wait_event(void *arg)
{
	struct ibv_async_event ev;

	if (ibv_get_async_event(arg, &ev) == 0) {
		ibv_ack_async_event(&ev);
		return ev.event_type == IBV_EVENT_PORT_ERR ? arg : NULL;
	}
	return NULL;
}

/* Blocking and not: as the descriptor says. */
static void waiting_for_events(void)
{
	struct dev *d = dev_open();
	struct ibv_async_event ev;
	pthread_t t;
	void *good;

	CHECK(fcntl(d->ctx->async_fd, F_SETFL, O_NONBLOCK) == 0, "fcntl: %m");
	errno = 0;
	CHECK(ibv_get_async_event(d->ctx, &ev) == -1 && errno == EAGAIN, "no event: errno %d", errno);
	CHECK(fcntl(d->ctx->async_fd, F_SETFL, 0) == 0, "fcntl: %m");
	MUST(pthread_create(&t, NULL, wait_event, d->ctx));
	nap(0.05);
	MUST(inject(d->ctx, "port_err"));
	MUST(pthread_join(t, &good));
	CHECK(good, "the thread that waits gets something else");
	no_event(d->ctx, 0.005);
	dev_close(d);
}

/* As a guest. */

static int entries(const char *path)
{
	DIR *d = opendir(path);
	int n = 0;

	CHECK(d, "%s: %m", path);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* After the last context nothing is left: no thread, no descriptor, no file. */
static void nothing_is_left(void)
{
	char dir[] = "/tmp/softhca-test.XXXXXX";
	int threads, fds = 0;

	CHECK(mkdtemp(dir), "mkdtemp: %m");
	knob("SOFTHCA_DIR", dir);
	threads = entries("/proc/self/task");
	for (int i = 0; i < 20; i++) {
		struct pair p;

		if (i == 1)
			fds = entries("/proc/self/fd");
		pair_open(&p, &usual);
		talk(&p);
		pair_close(&p);
	}
	for (double t = 0; entries("/proc/self/task") > threads;)
		CHECK(until(&t), "%d threads, and %d before", entries("/proc/self/task") - 2, threads - 2);
	CHECK(entries("/proc/self/fd") == fds, "%d descriptors, and %d before", entries("/proc/self/fd") - 2, fds - 2);
	{
		char path[200], cmd[300];
		struct stat st;

		snprintf(path, sizeof(path), "%s/softhca-%d", dir, (int)getuid());
		if (stat(path, &st) == 0) {
			CHECK((st.st_mode & 0777) == 0700 && st.st_uid == getuid(), "mode %o", st.st_mode & 0777);
			CHECK(entries(path) == 2, "%d files are left", entries(path) - 2);
		}
		snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
		CHECK(system(cmd) == 0, "%s", cmd);
	}
}

static void short_life(int fd, const void *arg)
{
	struct pair p;
	char c = 1;

	(void)arg;
	pair_open(&p, &usual);
	talk(&p);
	send_all(fd, &c, 1);
	nap(1000);
}

static int tree(const char *dir)
{
	char cmd[300];
	FILE *f;
	int n = -1;

	snprintf(cmd, sizeof(cmd), "find %s | wc -l", dir);
	f = popen(cmd, "r");
	CHECK(f && fscanf(f, "%d", &n) == 1, "%s", cmd);
	pclose(f);
	return n;
}

/* Processes are killed again and again: their places are taken by others, and the folder does not grow. */
static void killed_processes(void)
{
	char dir[] = "/tmp/softhca-test.XXXXXX", cmd[300];
	int files = 0;
	struct pair p;

	CHECK(mkdtemp(dir), "mkdtemp: %m");
	knob("SOFTHCA_DIR", dir);
	for (int i = 0; i < 20; i++) {
		struct peer k = spawn(short_life, NULL);
		char c;

		recv_all(k.fd, &c, 1);
		kill_peer(&k);
		if (i == 0)
			files = tree(dir);
		CHECK(tree(dir) <= files, "%d files after %d processes, %d after the first", tree(dir), i + 1, files);
	}
	pair_open(&p, &usual);
	CHECK(p.a.d->port.lid < 300, "LID %u: those of the dead are not used again", p.a.d->port.lid);
	talk(&p);
	pair_close(&p);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	CHECK(system(cmd) == 0, "%s", cmd);
}

/* A folder that others may write to is not taken. */
static void strange_folder(void)
{
	char dir[] = "/tmp/softhca-test.XXXXXX", path[200], cmd[300];

	CHECK(mkdtemp(dir), "mkdtemp: %m");
	snprintf(path, sizeof(path), "%s/softhca-%d", dir, (int)getuid());
	CHECK(mkdir(path, 0700) == 0 && chmod(path, 0777) == 0, "mkdir: %m");
	refused_with("SOFTHCA_DIR", dir);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	CHECK(system(cmd) == 0, "%s", cmd);
}

/* The device's thread takes no signal: they are the program's. */
static void signals_are_not_taken(void)
{
	struct pair p;
	DIR *d;
	struct dirent *e;
	int others = 0;

	pair_open(&p, &usual);
	talk(&p);
	d = opendir("/proc/self/task");
	CHECK(d, "opendir: %m");
	while ((e = readdir(d))) {
		char path[300], line[200];
		unsigned long long blocked = 0;
		FILE *f;

		if (e->d_name[0] == '.' || atoi(e->d_name) == getpid())
			continue;
		others++;
		snprintf(path, sizeof(path), "/proc/self/task/%s/status", e->d_name);
		f = fopen(path, "r");
		CHECK(f, "%s: %m", path);
		while (fgets(line, sizeof(line), f))
			sscanf(line, "SigBlk: %llx", &blocked);
		fclose(f);
		for (int s = 1; s <= 31; s++)
			CHECK(s == SIGKILL || s == SIGSTOP || blocked >> (s - 1) & 1, "signal %d is not blocked in thread %s", s, e->d_name);
	}
	closedir(d);
	CHECK(others > 0, "the device has no thread");
	pair_close(&p);
}

/* Idle, it uses no CPU, also with requests that wait for a receiver. */
static void idle(void)
{
	struct pair p;
	struct rusage a, b;
	double used;

	pair_open(&p, &usual);
	talk(&p);
	getrusage(RUSAGE_SELF, &a);
	nap(1);
	getrusage(RUSAGE_SELF, &b);
	used = (double)(b.ru_utime.tv_sec - a.ru_utime.tv_sec) + 1e-6 * (double)(b.ru_utime.tv_usec - a.ru_utime.tv_usec) +
	       (double)(b.ru_stime.tv_sec - a.ru_stime.tv_sec) + 1e-6 * (double)(b.ru_stime.tv_usec - a.ru_stime.tv_usec);
	CHECK(used < 0.05, "%g s of CPU in an idle second", used);
	pair_close(&p);
}

/* A connected queue pair of depth 64 costs at most 8 KiB. */
static void memory_per_peer(void)
{
	enum { N = 500 };
	struct how h = usual;
	struct pair p;
	static struct ibv_qp *q[2 * N];
	struct mallinfo2 before, after;
	size_t per;

	h.srq_wr = 64;
	h.send_sge = 1;
	h.inl = 0;
	h.rd = h.dest_rd = 4;
	pair_open(&p, &h);
	before = mallinfo2();
	for (uint32_t i = 0; i < 2 * N; i += 2) {
		struct addr x, y;

		q[i] = make_qp(&p.a);
		q[i + 1] = make_qp(&p.b);
		x = address(p.a.d, q[i], i);
		y = address(p.b.d, q[i + 1], i);
		connect_qp(q[i + 1], p.b.d, &h, i, &x);
		connect_qp(q[i], p.a.d, &h, i, &y);
	}
	after = mallinfo2();
	per = (after.uordblks + after.hblkhd - before.uordblks - before.hblkhd) / (2 * N);
	CHECK(per <= 8192, "%zu bytes for a queue pair", per);
	for (uint32_t i = 0; i < 2 * N; i++)
		MUST(ibv_destroy_qp(q[i]));
	pair_close(&p);
}

static void *come_and_go(void *arg)
{
	for (int i = 0; i < 15; i++) {
		struct pair p;

		pair_open(&p, &usual);
		for (int k = 0; k < 5; k++) {
			MUST(try_recv(p.b.qp, 1, NULL, 0));
			post(p.a.qp, .id = 2, .opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED);
			done(p.a.cq, 2, IBV_WC_SEND);
			done(p.b.cq, 1, IBV_WC_RECV);
		}
		pair_close(&p);
	}
	return arg;
}

/* Contexts are opened and closed by several threads at once. */
static void threads_come_and_go(void)
{
	pthread_t t[6];

	for (size_t i = 0; i < COUNT(t); i++)
		MUST(pthread_create(&t[i], NULL, come_and_go, NULL));
	for (size_t i = 0; i < COUNT(t); i++)
		MUST(pthread_join(t[i], NULL));
}

static const struct test tests[] = {
	TEST(bad_knobs, SOFT), TEST(partitions, SOFT), TEST(limits, SOFT | PAIRS), TEST(without_tags, SOFT | PAIRS),
	TEST(lost_requests, SOFT | PAIRS),
	TEST(one_way, SOFT), TEST(all_is_lost, SOFT | PAIRS), TEST(injected_rnr, SOFT | PAIRS),
	TEST(failing_requests, SOFT | PAIRS),
	TEST(failing_registration, SOFT), TEST(slow_retries, SOFT | PAIRS), TEST(seeded_scheduling, SOFT | PAIRS),
	TEST(slow_list, SOFT | PAIRS), TEST(failing_fin, SOFT | PAIRS), TEST(counters, SOFT | PAIRS),
	TEST(tag_counters, SOFT | PAIRS), TEST(injected_nonsense, SOFT), TEST(device_fatal, SOFT | PAIRS),
		TEST(slow_flush, SOFT | PAIRS),
	TEST(port_events, SOFT | PAIRS), TEST(port_stays_down, SOFT | PAIRS), TEST(queue_pair_fatal, SOFT | PAIRS),
	TEST(queue_fatal, SOFT | PAIRS), TEST(paused, SOFT | PAIRS), TEST(destroy_waits_for_acks, SOFT | PAIRS),
	TEST(event_of_the_dead, SOFT | PAIRS), TEST(waiting_for_events, SOFT), TEST(nothing_is_left, SOFT | PAIRS),
	TEST(killed_processes, SOFT), TEST(strange_folder, SOFT), TEST(signals_are_not_taken, SOFT), TEST(idle, SOFT | PAIRS),
	TEST(memory_per_peer, SOFT | PAIRS), TEST(threads_come_and_go, SOFT | PAIRS),
};

int main(int argc, char **argv) { return run_tests(argc, argv, tests, COUNT(tests)); }
