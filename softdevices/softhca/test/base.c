/*
 * What every verbs device does for two reliably connected queue pairs: each
 * operation with its contents, order, completion and notification. Runs on the
 * software HCA and on real devices.
 */
#define _GNU_SOURCE
#include "test.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#define KIB 1024u
#define MIB (1024u * 1024u)

/* Messages. */

/* Cuts n bytes of b into k pieces that lie apart and not in order; returns how many bytes there are. */
static size_t cut(const struct buf *b, struct ibv_sge *sg, int k, size_t each)
{
	size_t total = 0;

	for (int i = 0; i < k; i++) {
		sg[i] = part(b, (size_t)(k - 1 - i) * 8192 + (size_t)i, each + (size_t)i * 3);
		total += sg[i].length;
	}
	return total;
}

static void scatter_fill(const struct ibv_sge *sg, int k, unsigned seed)
{
	uint8_t all[8 * 8192];
	size_t at = 0;

	fill(all, sizeof(all), seed);
	for (int i = 0; i < k; at += sg[i].length, i++)
		memcpy((void *)(uintptr_t)sg[i].addr, all + at, sg[i].length);
}

static void scatter_check(const struct ibv_sge *sg, int k, size_t total, unsigned seed)
{
	size_t at = 0;

	for (int i = 0; i < k && at < total; at += sg[i].length, i++) {
		size_t n = sg[i].length < total - at ? sg[i].length : total - at;

		check_fill((void *)(uintptr_t)sg[i].addr, n, seed, at, "a piece");
	}
}

static void send_pieces(void)
{
	struct pair p;
	struct buf s, r;

	pair_open(&p, &usual);
	s = buf_new(p.a.d, 8 * 8192, 0);
	r = buf_new(p.b.d, 8 * 8192, IBV_ACCESS_LOCAL_WRITE);
	for (int i = 1; i <= 4; i++)
		for (int j = 1; j <= 4; j++) {
			struct ibv_sge from[4], to[4];
			size_t n = cut(&s, from, i, 500), room = cut(&r, to, j, 4 * 512 / (size_t)j + 20);
			unsigned seed = (unsigned)(10 * i + j);
			struct ibv_wc w;

			CHECK(room >= n, "the test's own sizes: %zu %zu", room, n);
			memset(r.p, 0xee, r.n);
			scatter_fill(from, i, seed);
			MUST(try_recv(p.b.qp, seed, to, j));
			post(p.a.qp, .id = seed, .opcode = IBV_WR_SEND, .sg = from, .n = i, .flags = IBV_SEND_SIGNALED);
			done(p.a.cq, seed, IBV_WC_SEND);
			w = done(p.b.cq, seed, IBV_WC_RECV);
			CHECK(w.byte_len == n, "byte_len %u, not %zu", w.byte_len, n);
			CHECK(w.qp_num == p.b.qp->qp_num, "qp_num %u", w.qp_num);
			CHECK(!(w.wc_flags & IBV_WC_WITH_IMM), "immediate data from nowhere");
			scatter_check(to, j, n, seed);
		}
	buf_free(&s);
	buf_free(&r);
	pair_close(&p);
}

static void send_inline(void)
{
	struct pair p;
	struct buf r;
	uint8_t data[2][128];

	pair_open(&p, &usual);
	r = buf_new(p.b.d, 4096, IBV_ACCESS_LOCAL_WRITE);
	for (unsigned n = 0; n <= 64; n += n < 4 ? 1 : 12) {
		/* Of inline data the lkey means nothing, and the bytes are taken before the call returns. */
		struct ibv_sge sg[2] = {
			{ (uintptr_t)data[0], n / 2, 0xdead }, { (uintptr_t)data[1], n - n / 2, 0xbeef },
		};
		uint8_t all[64];

		fill(all, sizeof(all), n);
		memcpy(data[0], all, n / 2);
		memcpy(data[1], all + n / 2, n - n / 2);
		memset(r.p, 0xee, r.n);
		post(p.a.qp, .id = n, .opcode = IBV_WR_SEND, .sg = sg, .n = 2,
		     .flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE);
		memset(data, 0xdd, sizeof(data));
		memset(sg, 0xdd, sizeof(sg));
		end_recv(&p.b, n, part(&r, 0, 4096));
		CHECK(done(p.b.cq, n, IBV_WC_RECV).byte_len == n, "byte_len of %u", n);
		check_fill(r.p, n, n, 0, "inline data");
		check_bytes(r.p + n, 64, 0xee, "after inline data");
		done(p.a.cq, n, IBV_WC_SEND);
	}
	buf_free(&r);
	pair_close(&p);
}

static void write_inline(void)
{
	struct pair p;
	struct buf r;
	uint8_t data[48];

	pair_open(&p, &usual);
	r = buf_new(p.b.d, 4096, ALL_ACCESS);
	memset(r.p, 0xee, r.n);
	fill(data, sizeof(data), 7);
	post(p.a.qp, .id = 1, .opcode = IBV_WR_RDMA_WRITE, .flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
	     .sg = &(struct ibv_sge){ (uintptr_t)data, 48, 0 }, .n = 1, .raddr = (uintptr_t)r.p + 16, .rkey = r.mr->rkey);
	memset(data, 0, sizeof(data));
	done(p.a.cq, 1, IBV_WC_RDMA_WRITE);
	check_fill(r.p + 16, 48, 7, 0, "inline data");
	check_bytes(r.p, 16, 0xee, "before it");
	check_bytes(r.p + 64, 64, 0xee, "after it");
	buf_free(&r);
	pair_close(&p);
}

static void send_immediate(void)
{
	static const uint32_t imm[] = { 0, 1, 0x80000000, 0x12345678, 0xffffffff };
	struct pair p;
	struct buf s, r;

	pair_open(&p, &usual);
	s = buf_new(p.a.d, 4096, 0);
	r = buf_new(p.b.d, 4096, IBV_ACCESS_LOCAL_WRITE);
	for (unsigned i = 0; i < COUNT(imm); i++) {
		struct ibv_sge sg = part(&s, 0, 100);
		struct ibv_wc w;

		fill(s.p, s.n, i);
		end_recv(&p.b, i, part(&r, 0, 4096));
		post(p.a.qp, .id = i, .opcode = IBV_WR_SEND_WITH_IMM, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED,
		     .imm = htonl(imm[i]));
		done(p.a.cq, i, IBV_WC_SEND);
		w = done(p.b.cq, i, IBV_WC_RECV);
		CHECK(w.wc_flags & IBV_WC_WITH_IMM, "no immediate data");
		CHECK(ntohl(w.imm_data) == imm[i], "immediate data 0x%x, not 0x%x", ntohl(w.imm_data), imm[i]);
		check_fill(r.p, 100, i, 0, "message");
	}
	buf_free(&s);
	buf_free(&r);
	pair_close(&p);
}

static void send_zero(void)
{
	struct pair p;
	struct buf r;

	pair_open(&p, &usual);
	r = buf_new(p.b.d, 4096, IBV_ACCESS_LOCAL_WRITE);
	memset(r.p, 0xee, r.n);
	MUST(try_recv(p.b.qp, 1, NULL, 0));	/* a receive without a buffer takes a message without bytes */
	end_recv(&p.b, 2, part(&r, 0, 4096));
	end_recv(&p.b, 3, part(&r, 0, 4096));
	post(p.a.qp, .id = 1, .opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED);
	post(p.a.qp, .id = 2, .opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE);
	post(p.a.qp, .id = 3, .opcode = IBV_WR_SEND_WITH_IMM, .flags = IBV_SEND_SIGNALED, .imm = htonl(9));
	for (uint64_t i = 1; i <= 3; i++) {
		struct ibv_wc w = done(p.b.cq, i, IBV_WC_RECV);

		CHECK(w.byte_len == 0, "byte_len %u", w.byte_len);
		CHECK(!!(w.wc_flags & IBV_WC_WITH_IMM) == (i == 3), "flags 0x%x of message %d", w.wc_flags, (int)i);
		done(p.a.cq, i, IBV_WC_SEND);
	}
	check_bytes(r.p, r.n, 0xee, "the buffer");
	buf_free(&r);
	pair_close(&p);
}

/* As long as the receive, around multiples of the MTU, and in a receive that is longer. */
static void send_lengths(void)
{
	static const uint32_t len[] = { 1, 7, 255, 256, 1023, 1024, 4095, 4096, 4097, 8192, 12289, 65536, 262144, 1048576 };
	struct pair p;
	struct buf s, r;

	pair_open(&p, &usual);
	s = buf_new(p.a.d, MIB, 0);
	r = buf_new(p.b.d, MIB + 64, IBV_ACCESS_LOCAL_WRITE);
	fill(s.p, s.n, 3);
	for (unsigned i = 0; i < COUNT(len); i++)
		for (unsigned more = 0; more <= 64; more += 64) {
			struct ibv_sge sg = part(&s, MIB - len[i], len[i]);

			memset(r.p, 0xee, r.n);
			end_recv(&p.b, i, part(&r, 0, len[i] + more));
			post(p.a.qp, .id = i, .opcode = IBV_WR_SEND, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED);
			CHECK(done(p.b.cq, i, IBV_WC_RECV).byte_len == len[i], "byte_len of %u", len[i]);
			done(p.a.cq, i, IBV_WC_SEND);
			check_fill(r.p, len[i], 3, MIB - len[i], "message");
			check_bytes(r.p + len[i], MIB + 64 - len[i], 0xee, "after the message");
		}
	buf_free(&s);
	buf_free(&r);
	pair_close(&p);
}

/* Messages come in the order of posting, into receives in the order of posting, however many are waiting. */
static void send_order(void)
{
	struct pair p;
	struct buf s, r;

	pair_open(&p, &usual);
	s = buf_new(p.a.d, 64 * 64, 0);
	r = buf_new(p.b.d, 64 * 64, IBV_ACCESS_LOCAL_WRITE);
	for (unsigned round = 0; round < 4; round++) {
		for (unsigned i = 0; i < 48; i++) {
			struct ibv_sge sg = part(&s, 64 * i, 1 + i);

			fill(s.p + 64 * i, 64, round * 48 + i);
			if (round & 1)
				end_recv(&p.b, 1000 + i, part(&r, 64 * i, 64));
			post(p.a.qp, .id = i, .opcode = IBV_WR_SEND, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED);
		}
		for (unsigned i = 0; i < 48 && !(round & 1); i++)
			end_recv(&p.b, 1000 + i, part(&r, 64 * i, 64));
		for (unsigned i = 0; i < 48; i++) {
			CHECK(done(p.b.cq, 1000 + i, IBV_WC_RECV).byte_len == 1 + i, "length of message %u", i);
			done(p.a.cq, i, IBV_WC_SEND);
			check_fill(r.p + 64 * i, 1 + i, round * 48 + i, 0, "message");
		}
	}
	buf_free(&s);
	buf_free(&r);
	pair_close(&p);
}

/* The receiver posts late: the device tries again, and no completion shows it. */
static void receiver_not_ready(void)
{
	struct pair p;
	struct buf s, r;
	struct ibv_sge sg;

	pair_open(&p, &usual);
	s = buf_new(p.a.d, 4096, 0);
	r = buf_new(p.b.d, 4096, IBV_ACCESS_LOCAL_WRITE);
	sg = part(&s, 0, 4096);
	fill(s.p, 4096, 5);
	for (unsigned i = 0; i < 8; i++) {
		post(p.a.qp, .id = i, .opcode = IBV_WR_SEND, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED);
		quiet(p.a.cq, 0.01);
		end_recv(&p.b, i, part(&r, 0, 4096));
		done(p.b.cq, i, IBV_WC_RECV);
		done(p.a.cq, i, IBV_WC_SEND);
	}
	check_fill(r.p, 4096, 5, 0, "message");
	buf_free(&s);
	buf_free(&r);
	pair_close(&p);
}

/* The work request and its list belong to the caller again when the call returns. */
static void requests_are_copied(void)
{
	struct pair p;
	struct buf s, r;

	pair_open(&p, &usual);
	s = buf_new(p.a.d, 4096, 0);
	r = buf_new(p.b.d, 4096, IBV_ACCESS_LOCAL_WRITE);
	fill(s.p, 4096, 1);
	for (unsigned i = 0; i < 16; i++) {
		struct ibv_sge sg[2] = { part(&s, 0, 100), part(&s, 100, 200) };
		struct ibv_send_wr w = { .wr_id = i, .sg_list = sg, .num_sge = 2, .opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_SIGNALED }, *bad;
		struct ibv_recv_wr v = { .wr_id = i, .sg_list = sg, .num_sge = 2 }, *worse;

		MUST(ibv_post_send(p.a.qp, &w, &bad));
		memset(sg, 0xff, sizeof(sg));
		memset(&w, 0xff, sizeof(w));
		sg[0] = part(&r, 0, 250);
		sg[1] = part(&r, 1000, 250);
		MUST(ibv_post_recv(p.b.qp, &v, &worse));
		memset(sg, 0xff, sizeof(sg));
		memset(&v, 0xff, sizeof(v));
		CHECK(done(p.b.cq, i, IBV_WC_RECV).byte_len == 300, "byte_len");
		done(p.a.cq, i, IBV_WC_SEND);
		check_fill(r.p, 250, 1, 0, "first piece");
		check_fill(r.p + 1000, 50, 1, 250, "second piece");
	}
	buf_free(&s);
	buf_free(&r);
	pair_close(&p);
}

/* A list of requests in one call; the one that has no room is named, those before it are done. */
static void request_lists(void)
{
	struct pair p;
	struct buf s, r;
	struct ibv_send_wr w[300], *bad = NULL;
	struct ibv_recv_wr v[300], *worse = NULL;
	struct ibv_sge sg[300], to[300];
	struct how h = usual;
	unsigned n;

	h.send_wr = h.recv_wr = 16;
	h.cqe = 600;
	pair_open(&p, &h);
	s = buf_new(p.a.d, 4096, 0);
	r = buf_new(p.b.d, 4096, IBV_ACCESS_LOCAL_WRITE);
	n = p.a.cap.max_send_wr;
	CHECK(n < 299 && p.b.cap.max_recv_wr < 299, "the test's own size: %u %u", n, p.b.cap.max_recv_wr);
	fill(s.p, 4096, 2);
	for (unsigned i = 0; i < 300; i++) {
		sg[i] = part(&s, i, 1);
		to[i] = part(&r, i, 1);
		w[i] = (struct ibv_send_wr){ .wr_id = i, .next = &w[i + 1], .sg_list = &sg[i], .num_sge = 1,
			.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };
		v[i] = (struct ibv_recv_wr){ .wr_id = i, .next = &v[i + 1], .sg_list = &to[i], .num_sge = 1 };
	}
	w[299].next = NULL;
	v[299].next = NULL;
	REFUSED(ENOMEM, ibv_post_send(p.a.qp, w, &bad));
	CHECK(bad == &w[n], "the bad request is number %ld, not %u", (long)(bad - w), n);
	n = p.b.cap.max_recv_wr;
	REFUSED(ENOMEM, ibv_post_recv(p.b.qp, v, &worse));
	CHECK(worse == &v[n], "the bad receive is number %ld, not %u", (long)(worse - v), n);
	n = p.a.cap.max_send_wr < n ? p.a.cap.max_send_wr : n;
	for (unsigned i = 0; i < n; i++) {
		done(p.a.cq, i, IBV_WC_SEND);
		done(p.b.cq, i, IBV_WC_RECV);
	}
	check_fill(r.p, n, 2, 0, "messages");
	buf_free(&s);
	buf_free(&r);
	pair_close(&p);
}

/* Both ends may be one queue pair. */
static void own_peer(void)
{
	struct end e;
	struct addr self;
	struct buf s;
	struct ibv_sge sg;

	end_open(&e, dev_open(), &usual);
	self = end_addr(&e);
	end_connect(&e, &self);
	s = buf_new(e.d, 8192, ALL_ACCESS);
	fill(s.p, 4096, 6);
	sg = part(&s, 0, 4096);
	end_recv(&e, 1, part(&s, 4096, 4096));
	post(e.qp, .id = 2, .opcode = IBV_WR_SEND, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED);
	for (int i = 0; i < 2; i++) {
		struct ibv_wc w = next_wc(e.cq);

		CHECK(w.status == IBV_WC_SUCCESS && w.opcode == (w.wr_id == 1 ? IBV_WC_RECV : IBV_WC_SEND),
		      "%d: %s, opcode %d", (int)w.wr_id, ibv_wc_status_str(w.status), w.opcode);
	}
	check_fill(s.p + 4096, 4096, 6, 0, "message");
	sg = part(&s, 0, 8);
	post(e.qp, .id = 3, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED,
	     .raddr = (uintptr_t)s.p + 4096, .rkey = s.mr->rkey, .add = 1);
	done(e.cq, 3, IBV_WC_FETCH_ADD);
	check_fill(s.p, 8, 6, 0, "old value");
	buf_free(&s);
	end_close(&e);
	dev_close(e.d);
}

/* Shared receive queues. */

static void srq_order(void)
{
	struct how h = usual;
	struct pair p;
	struct end c;	/* a second queue pair at b's shared queue, and its peer */
	struct addr x, y;
	struct buf s, r;
	uint64_t next = 0, posted = 0;

	h.srq_wr = 32;
	pair_open2(&p, &usual, &h);
	end_open(&c, p.a.d, &usual);
	{
		struct end other = p.b;

		other.qp = make_qp(&other);
		x = end_addr(&c);
		y = address(other.d, other.qp, 77);
		connect_qp(other.qp, other.d, &h, 77, &x);
		end_connect(&c, &y);
		s = buf_new(p.a.d, 4096, 0);
		r = buf_new(p.b.d, 32 * 128, IBV_ACCESS_LOCAL_WRITE);
		fill(s.p, s.n, 8);
		for (unsigned round = 0; round < 40; round++) {
			unsigned batch = 1 + rnd(16);
			uint64_t per_qp[2] = { 0, 0 }, last[2] = { 0, 0 }, taken = 0;

			while (posted < next + 32) {
				end_recv(&p.b, posted, part(&r, 128 * (posted % 32), 128));
				posted++;
			}
			for (unsigned i = 0; i < batch; i++) {
				unsigned q = rnd(2);
				struct ibv_sge sg = part(&s, i, 1 + i);

				post(q ? c.qp : p.a.qp, .id = i, .opcode = IBV_WR_SEND_WITH_IMM, .sg = &sg, .n = 1,
				     .flags = IBV_SEND_SIGNALED, .imm = htonl(i));
				per_qp[q] |= 1u << i;
			}
			for (unsigned i = 0; i < batch; i++) {
				/* Receives are taken in order; only those of one queue pair also complete in order. */
				struct ibv_wc w = next_wc(p.b.cq);
				unsigned k = ntohl(w.imm_data), q = w.qp_num == other.qp->qp_num;

				CHECK(w.status == IBV_WC_SUCCESS && w.opcode == IBV_WC_RECV, "%s", ibv_wc_status_str(w.status));
				CHECK(w.wr_id >= next && w.wr_id < next + batch && w.wr_id >= last[q], "receive %d after %d of %d to %d",
				      (int)w.wr_id, (int)last[q], (int)next, (int)(next + batch));
				CHECK(!(taken >> (w.wr_id - next) & 1), "receive %d is over twice", (int)w.wr_id);
				taken |= 1ull << (w.wr_id - next);
				last[q] = w.wr_id + 1;
				CHECK(q || w.qp_num == p.b.qp->qp_num, "qp_num %u", w.qp_num);
				CHECK(per_qp[q] >> k & 1, "message %u came by the wrong queue pair or twice", k);
				CHECK(!(per_qp[q] & ((1u << k) - 1)), "message %u overtook one before it", k);
				per_qp[q] &= ~(1ull << k);
				check_fill(r.p + 128 * (w.wr_id % 32), 1 + k, 8, k, "message");
			}
			next += batch;
			for (unsigned i = 0; i < batch; i++) {
				struct ibv_wc w;
				double t = 0;

				while (ibv_poll_cq(p.a.cq, 1, &w) == 0 && ibv_poll_cq(c.cq, 1, &w) == 0)
					CHECK(until(&t), "a send does not complete");
				CHECK(w.status == IBV_WC_SUCCESS, "send: %s", ibv_wc_status_str(w.status));
			}
		}
		MUST(ibv_destroy_qp(other.qp));
	}
	end_close(&c);
	buf_free(&s);
	buf_free(&r);
	pair_close(&p);
}

/* The limit is an event once, when fewer than so many receives are left, and then no more until armed again. */
static void srq_limit(void)
{
	struct how h = usual;
	struct pair p;
	struct buf b;
	struct ibv_async_event e;
	struct ibv_srq_attr a = { .srq_limit = 4 };

	h.srq_wr = 16;
	pair_open2(&p, &usual, &h);
	b = buf_new(p.b.d, 4096, IBV_ACCESS_LOCAL_WRITE);
	for (unsigned i = 0; i < 6; i++)
		end_recv(&p.b, i, part(&b, 0, 64));
	MUST(ibv_modify_srq(p.b.srq, &a, IBV_SRQ_LIMIT));
	MUST(ibv_query_srq(p.b.srq, &a));
	CHECK(a.srq_limit == 4 && a.max_wr >= 16, "query: limit %u, max_wr %u", a.srq_limit, a.max_wr);
	for (unsigned i = 0; i < 6; i++) {
		post(p.a.qp, .id = i, .opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED);
		done(p.a.cq, i, IBV_WC_SEND);
		done(p.b.cq, i, IBV_WC_RECV);
		if (i < 2)	/* 4 are left, which is not fewer than 4 */
			no_event(p.b.d->ctx, 0.02);
		if (i == 2) {
			e = next_event(p.b.d->ctx, IBV_EVENT_SRQ_LIMIT_REACHED);
			CHECK(e.element.srq == p.b.srq, "the event is of another shared queue");
		}
	}
	no_event(p.b.d->ctx, 0.02);
	buf_free(&b);
	pair_close(&p);
}

/* Remote memory. */

static const uint32_t lengths[] = { 1, 3, 8, 63, 4095, 4096, 4097, 10000, 65536, 300001, 1048576 };

static void rdma_write(void)
{
	struct pair p;
	struct buf s, r;

	pair_open(&p, &usual);
	s = buf_new(p.a.d, MIB, 0);
	r = buf_new(p.b.d, MIB + 64, ALL_ACCESS);
	fill(s.p, s.n, 11);
	for (unsigned i = 0; i < COUNT(lengths); i++) {
		struct ibv_sge sg = part(&s, 0, lengths[i]);

		memset(r.p, 0xee, r.n);
		post(p.a.qp, .id = i, .opcode = IBV_WR_RDMA_WRITE, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED,
		     .raddr = (uintptr_t)r.p + 5, .rkey = r.mr->rkey);
		done(p.a.cq, i, IBV_WC_RDMA_WRITE);
		check_bytes(r.p, 5, 0xee, "before it");
		check_fill(r.p + 5, lengths[i], 11, 0, "written");
		check_bytes(r.p + 5 + lengths[i], 59, 0xee, "after it");
	}
	quiet(p.b.cq, 0.02);	/* the target has no completion */
	buf_free(&s);
	buf_free(&r);
	pair_close(&p);
}

static void rdma_read(void)
{
	struct pair p;
	struct buf s, r;

	pair_open(&p, &usual);
	s = buf_new(p.a.d, MIB + 64, IBV_ACCESS_LOCAL_WRITE);
	r = buf_new(p.b.d, MIB + 64, IBV_ACCESS_REMOTE_READ);
	fill(r.p, r.n, 12);
	for (unsigned i = 0; i < COUNT(lengths); i++) {
		uint32_t half = lengths[i] / 2;
		/* In two pieces, the second of which lies before the first. */
		struct ibv_sge sg[2] = { part(&s, lengths[i] - half, half), part(&s, 0, lengths[i] - half) };
		struct ibv_wc w;

		memset(s.p, 0xee, s.n);
		post(p.a.qp, .id = i, .opcode = IBV_WR_RDMA_READ, .sg = sg, .n = 2, .flags = IBV_SEND_SIGNALED,
		     .raddr = (uintptr_t)r.p + 5, .rkey = r.mr->rkey);
		w = done(p.a.cq, i, IBV_WC_RDMA_READ);
		CHECK(w.byte_len == lengths[i], "byte_len %u, not %u", w.byte_len, lengths[i]);
		check_fill(s.p + (lengths[i] - half), half, 12, 5, "first piece");
		check_fill(s.p, lengths[i] - half, 12, 5 + half, "second piece");
		check_bytes(s.p + lengths[i], 64, 0xee, "after it");
	}
	quiet(p.b.cq, 0.02);
	buf_free(&s);
	buf_free(&r);
	pair_close(&p);
}

/* Without bytes no key is looked at. */
static void rdma_zero(void)
{
	struct pair p;

	pair_open(&p, &usual);
	post(p.a.qp, .id = 1, .opcode = IBV_WR_RDMA_WRITE, .flags = IBV_SEND_SIGNALED);
	post(p.a.qp, .id = 2, .opcode = IBV_WR_RDMA_READ, .flags = IBV_SEND_SIGNALED);
	done(p.a.cq, 1, IBV_WC_RDMA_WRITE);
	CHECK(done(p.a.cq, 2, IBV_WC_RDMA_READ).byte_len == 0, "byte_len");
	pair_close(&p);
}

static void write_immediate(void)
{
	static const uint32_t len[] = { 0, 1, 4096, 100000 };
	struct pair p;
	struct buf s, r, unused;

	pair_open(&p, &usual);
	s = buf_new(p.a.d, MIB, 0);
	r = buf_new(p.b.d, MIB, ALL_ACCESS);
	unused = buf_new(p.b.d, 4096, IBV_ACCESS_LOCAL_WRITE);
	fill(s.p, s.n, 13);
	memset(unused.p, 0xee, 4096);
	for (unsigned i = 0; i < COUNT(len); i++) {
		struct ibv_sge sg = part(&s, 0, len[i]);
		struct ibv_wc w;

		memset(r.p, 0, r.n);
		if (i & 1)
			end_recv(&p.b, 50 + i, part(&unused, 0, 16));
		post(p.a.qp, .id = i, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .sg = &sg, .n = len[i] ? 1 : 0,
		     .flags = IBV_SEND_SIGNALED, .imm = htonl(0xabc0 + i), .raddr = (uintptr_t)r.p, .rkey = r.mr->rkey);
		if (!(i & 1))	/* it takes a receive, if only one without a buffer */
			MUST(try_recv(p.b.qp, 50 + i, NULL, 0));
		w = done(p.b.cq, 50 + i, IBV_WC_RECV_RDMA_WITH_IMM);
		CHECK(w.wc_flags & IBV_WC_WITH_IMM && ntohl(w.imm_data) == 0xabc0 + i, "immediate data 0x%x", ntohl(w.imm_data));
		CHECK(w.byte_len == len[i], "byte_len %u, not %u", w.byte_len, len[i]);
		check_fill(r.p, len[i], 13, 0, "written");
		done(p.a.cq, i, IBV_WC_RDMA_WRITE);
	}
	check_bytes(unused.p, 4096, 0xee, "the buffer of the receive");
	buf_free(&s);
	buf_free(&r);
	buf_free(&unused);
	pair_close(&p);
}

static uint64_t word(const struct buf *b, size_t off)
{
	return __atomic_load_n((uint64_t *)(b->p + off), __ATOMIC_SEQ_CST);
}

static void set_word(struct buf *b, size_t off, uint64_t v)
{
	__atomic_store_n((uint64_t *)(b->p + off), v, __ATOMIC_SEQ_CST);
}

static void atomics(void)
{
	struct pair p;
	struct buf s, r;
	struct ibv_sge sg;

	pair_open(&p, &usual);
	s = buf_new(p.a.d, 4096, IBV_ACCESS_LOCAL_WRITE);
	r = buf_new(p.b.d, 4096, ALL_ACCESS);
	sg = part(&s, 8, 8);
	memset(s.p, 0xee, 64);
	set_word(&r, 0, 7);
	set_word(&r, 8, 0xfffffffffffffffeull);
	set_word(&r, 16, 1);

	post(p.a.qp, .id = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED,
	     .raddr = (uintptr_t)r.p + 8, .rkey = r.mr->rkey, .add = 5);
	CHECK(done(p.a.cq, 1, IBV_WC_FETCH_ADD).byte_len == 8, "byte_len");
	CHECK(word(&s, 8) == 0xfffffffffffffffeull && word(&r, 8) == 3, "FETCH_ADD: old %llx, new %llx",
	      (long long)word(&s, 8), (long long)word(&r, 8));

	post(p.a.qp, .id = 2, .opcode = IBV_WR_ATOMIC_CMP_AND_SWP, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED,
	     .raddr = (uintptr_t)r.p + 8, .rkey = r.mr->rkey, .add = 3, .swap = 0x1122334455667788);
	CHECK(done(p.a.cq, 2, IBV_WC_COMP_SWAP).byte_len == 8, "byte_len");
	CHECK(word(&s, 8) == 3 && word(&r, 8) == 0x1122334455667788, "CMP_SWAP that fits: old %llx, new %llx",
	      (long long)word(&s, 8), (long long)word(&r, 8));

	post(p.a.qp, .id = 3, .opcode = IBV_WR_ATOMIC_CMP_AND_SWP, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED,
	     .raddr = (uintptr_t)r.p + 8, .rkey = r.mr->rkey, .add = 3, .swap = 9);
	done(p.a.cq, 3, IBV_WC_COMP_SWAP);
	CHECK(word(&s, 8) == 0x1122334455667788 && word(&r, 8) == 0x1122334455667788,
	      "CMP_SWAP that does not fit: old %llx, new %llx", (long long)word(&s, 8), (long long)word(&r, 8));

	CHECK(word(&r, 0) == 7 && word(&r, 16) == 1, "a neighbour was changed");
	check_bytes(s.p, 8, 0xee, "before the result");
	check_bytes(s.p + 16, 8, 0xee, "after the result");
	buf_free(&s);
	buf_free(&r);
	pair_close(&p);
}

/* Two queue pairs add to one word at once: no addition is lost, and no old value comes twice. */
static void atomics_compete(void)
{
	enum { EACH = 200, DEPTH = 10 };
	struct pair p[2];
	struct buf s[2], r;
	static uint8_t seen[2 * EACH];
	struct dev *target;

	pair_open(&p[0], &usual);
	target = p[0].b.d;
	{
		struct addr x, y;

		end_open(&p[1].a, two_contexts() ? dev_open() : target, &usual);
		end_open(&p[1].b, target, &usual);
		x = end_addr(&p[1].a);
		y = end_addr(&p[1].b);
		end_connect(&p[1].b, &x);
		end_connect(&p[1].a, &y);
	}
	r = buf_new(target, 4096, ALL_ACCESS);
	for (int q = 0; q < 2; q++)
		s[q] = buf_new(p[q].a.d, 4096, IBV_ACCESS_LOCAL_WRITE);
	for (unsigned i = 0; i < EACH; i += DEPTH)
		for (int half = 0; half < 2; half++)
			for (int q = 0; q < 2; q++)
				for (unsigned j = 0; j < DEPTH; j++) {
					struct ibv_sge sg = part(&s[q], 8 * j, 8);

					if (half == 0) {
						post(p[q].a.qp, .id = j, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
						     .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED,
						     .raddr = (uintptr_t)r.p, .rkey = r.mr->rkey, .add = 1);
						continue;
					}
					done(p[q].a.cq, j, IBV_WC_FETCH_ADD);
					CHECK(word(&s[q], 8 * j) < 2 * EACH && !seen[word(&s[q], 8 * j)]++,
					      "the old value %llu came twice", (long long)word(&s[q], 8 * j));
				}
	CHECK(word(&r, 0) == 2 * EACH, "the sum is %llu, not %d", (long long)word(&r, 0), 2 * EACH);
}

static void reads_in_flight(uint8_t depth)
{
	struct how h = usual;
	struct pair p;
	struct buf s, r;

	h.rd = depth;
	h.dest_rd = depth;
	pair_open(&p, &h);
	s = buf_new(p.a.d, MIB, IBV_ACCESS_LOCAL_WRITE);
	r = buf_new(p.b.d, MIB, IBV_ACCESS_REMOTE_READ);
	fill(r.p, r.n, depth);
	for (unsigned i = 0; i < 40; i++) {
		struct ibv_sge sg = part(&s, i * 20000, 20000);

		post(p.a.qp, .id = i, .opcode = IBV_WR_RDMA_READ, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED,
		     .raddr = (uintptr_t)r.p + i * 20000, .rkey = r.mr->rkey);
	}
	for (unsigned i = 0; i < 40; i++) {
		done(p.a.cq, i, IBV_WC_RDMA_READ);
		check_fill(s.p + i * 20000, 20000, depth, i * 20000, "read");
	}
	buf_free(&s);
	buf_free(&r);
	pair_close(&p);
}

static void reads_in_flight_1(void) { reads_in_flight(1); }
static void reads_in_flight_16(void) { reads_in_flight(16); }

/* Order. */

/* What was written before a message is there when the message is. */
static void send_after_write(void)
{
	struct pair p;
	struct buf s, r;

	pair_open(&p, &usual);
	s = buf_new(p.a.d, 32768, 0);
	r = buf_new(p.b.d, 32768 + 64, ALL_ACCESS);
	for (unsigned i = 0; i < 100; i++) {
		struct ibv_sge sg = part(&s, 0, 32768);

		fill(s.p, s.n, i);
		end_recv(&p.b, i, part(&r, 32768, 64));
		post(p.a.qp, .id = i, .opcode = IBV_WR_RDMA_WRITE, .sg = &sg, .n = 1,
		     .raddr = (uintptr_t)r.p, .rkey = r.mr->rkey);
		post(p.a.qp, .id = i, .opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED);
		done(p.b.cq, i, IBV_WC_RECV);
		check_fill(r.p, 32768, i, 0, "written");
		done(p.a.cq, i, IBV_WC_SEND);
	}
	buf_free(&s);
	buf_free(&r);
	pair_close(&p);
}

/* With FENCE a message is not sent before the READ that fetches its contents is over. */
static void fence(void)
{
	struct pair p;
	struct buf s, r;

	pair_open(&p, &usual);
	s = buf_new(p.a.d, 262144, IBV_ACCESS_LOCAL_WRITE);
	r = buf_new(p.b.d, 2 * 262144, ALL_ACCESS);
	for (unsigned i = 0; i < 20; i++) {
		struct ibv_sge sg = part(&s, 0, 262144);

		memset(s.p, 0, s.n);
		fill(r.p, 262144, i);
		end_recv(&p.b, i, part(&r, 262144, 262144));
		post(p.a.qp, .id = 1, .opcode = IBV_WR_RDMA_READ, .sg = &sg, .n = 1,
		     .raddr = (uintptr_t)r.p, .rkey = r.mr->rkey);
		post(p.a.qp, .id = 2, .opcode = IBV_WR_SEND, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE);
		done(p.b.cq, i, IBV_WC_RECV);
		check_fill(r.p + 262144, 262144, i, 0, "what was read and sent");
		done(p.a.cq, 2, IBV_WC_SEND);
	}
	buf_free(&s);
	buf_free(&r);
	pair_close(&p);
}

/* A READ after a WRITE to the same place sees what was written. */
static void read_after_write(void)
{
	struct pair p;
	struct buf s, r;

	pair_open(&p, &usual);
	s = buf_new(p.a.d, 8192, IBV_ACCESS_LOCAL_WRITE);
	r = buf_new(p.b.d, 4096, ALL_ACCESS);
	for (unsigned i = 0; i < 100; i++) {
		struct ibv_sge from = part(&s, 0, 4096), to = part(&s, 4096, 4096);

		fill(s.p, 4096, i);
		post(p.a.qp, .id = 1, .opcode = IBV_WR_RDMA_WRITE, .sg = &from, .n = 1,
		     .raddr = (uintptr_t)r.p, .rkey = r.mr->rkey);
		post(p.a.qp, .id = 2, .opcode = IBV_WR_RDMA_READ, .sg = &to, .n = 1, .flags = IBV_SEND_SIGNALED,
		     .raddr = (uintptr_t)r.p, .rkey = r.mr->rkey);
		done(p.a.cq, 2, IBV_WC_RDMA_READ);
		check_fill(s.p + 4096, 4096, i, 0, "read");
	}
	buf_free(&s);
	buf_free(&r);
	pair_close(&p);
}

/* Completion. */

static void unsignalled(void)
{
	struct pair p;

	pair_open(&p, &usual);
	for (unsigned round = 0; round < 20; round++) {
		for (unsigned i = 0; i < 10; i++)
			MUST(try_recv(p.b.qp, i, NULL, 0));
		for (unsigned i = 0; i < 9; i++)
			post(p.a.qp, .id = 1000 + i, .opcode = IBV_WR_SEND);
		post(p.a.qp, .id = round, .opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED);
		done(p.a.cq, round, IBV_WC_SEND);
		for (unsigned i = 0; i < 10; i++)
			done(p.b.cq, i, IBV_WC_RECV);
	}
	quiet(p.a.cq, 0.02);
	pair_close(&p);
}

static void all_signalled(void)
{
	struct how h = usual;
	struct pair p;

	h.sig_all = true;
	pair_open(&p, &h);
	for (unsigned i = 0; i < 10; i++) {
		MUST(try_recv(p.b.qp, i, NULL, 0));
		post(p.a.qp, .id = i, .opcode = IBV_WR_SEND);
	}
	for (unsigned i = 0; i < 10; i++)
		done(p.a.cq, i, IBV_WC_SEND);
	pair_close(&p);
}

/*
 * The send queue is as deep as reported. What is executed but unsignalled keeps
 * its slot, until a signalled request after it has been polled.
 */
static void slots(void)
{
	struct how h = usual;
	struct pair p;
	unsigned depth;

	if (!soft())
		skip("this device frees slots by itself");
	h.send_wr = 16;
	h.recv_wr = 64;
	pair_open(&p, &h);
	depth = p.a.cap.max_send_wr;
	for (unsigned i = 0; i < depth - 1; i++) {
		MUST(try_recv(p.b.qp, i, NULL, 0));
		post(p.a.qp, .id = i, .opcode = IBV_WR_SEND);
		done(p.b.cq, i, IBV_WC_RECV);
	}
	MUST(try_recv(p.b.qp, 99, NULL, 0));
	post(p.a.qp, .id = 99, .opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED);
	REFUSED(ENOMEM, try_post(p.a.qp, &(struct op){ .opcode = IBV_WR_SEND }));
	done(p.b.cq, 99, IBV_WC_RECV);
	nap(0.02);	/* all executed, none polled */
	REFUSED(ENOMEM, try_post(p.a.qp, &(struct op){ .opcode = IBV_WR_SEND }));
	done(p.a.cq, 99, IBV_WC_SEND);
	for (unsigned i = 0; i < depth; i++) {
		MUST(try_recv(p.b.qp, i, NULL, 0));
		post(p.a.qp, .id = i, .opcode = IBV_WR_SEND);
	}
	/* All of them unsignalled: there is no way out of a full queue but the error state. */
	REFUSED(ENOMEM, try_post(p.a.qp, &(struct op){ .opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED }));
	for (unsigned i = 0; i < depth; i++)
		done(p.b.cq, i, IBV_WC_RECV);
	quiet(p.a.cq, 0.02);
	REFUSED(ENOMEM, try_post(p.a.qp, &(struct op){ .opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED }));
	pair_close(&p);
}

static void many_on_one_queue(void)
{
	enum { N = 8 };
	struct dev *d = dev_open(), *f = two_contexts() ? dev_open() : d;
	struct end a[N], b[N];
	struct ibv_cq *own[2 * N];
	struct buf s = buf_new(d, 4096, 0), r = buf_new(f, N * 4096, IBV_ACCESS_LOCAL_WRITE);
	unsigned next[N] = { 0 };

	for (int i = 0; i < N; i++) {
		struct addr x, y;

		end_open(&a[i], d, &usual);
		end_open(&b[i], f, &usual);
		own[i] = a[i].cq;
		own[N + i] = b[i].cq;
		if (i > 0) {
			MUST(ibv_destroy_qp(a[i].qp));
			MUST(ibv_destroy_qp(b[i].qp));
			a[i].cq = a[0].cq;
			b[i].cq = b[0].cq;
			a[i].qp = make_qp(&a[i]);
			b[i].qp = make_qp(&b[i]);
		}
		x = end_addr(&a[i]);
		y = end_addr(&b[i]);
		end_connect(&b[i], &x);
		end_connect(&a[i], &y);
	}
	fill(s.p, 4096, 9);
	for (unsigned i = 0; i < 20; i++)
		for (unsigned q = 0; q < N; q++) {
			struct ibv_sge sg = part(&s, q, 1 + i);

			end_recv(&b[q], i, part(&r, 4096 * q + 64 * i, 64));
			post(a[q].qp, .id = 100 * q + i, .opcode = IBV_WR_SEND, .sg = &sg, .n = 1,
			     .flags = i % 4 == 3 ? IBV_SEND_SIGNALED : 0);
		}
	for (unsigned k = 0; k < 20 * N; k++) {
		struct ibv_wc w = next_wc(b[0].cq);
		unsigned q = 0;

		while (q < N && b[q].qp->qp_num != w.qp_num)
			q++;
		CHECK(q < N && w.status == IBV_WC_SUCCESS, "qp_num %u: %s", w.qp_num, ibv_wc_status_str(w.status));
		CHECK(w.wr_id == next[q] && w.byte_len == 1 + next[q], "message %d of queue pair %u after %u",
		      (int)w.wr_id, q, next[q]);
		check_fill(r.p + 4096 * q + 64 * next[q], 1 + next[q], 9, q, "message");
		next[q]++;
	}
	memset(next, 0, sizeof(next));
	for (unsigned k = 0; k < 5 * N; k++) {
		struct ibv_wc w = next_wc(a[0].cq);
		unsigned q = (unsigned)w.wr_id / 100;

		CHECK(q < N && w.qp_num == a[q].qp->qp_num && w.status == IBV_WC_SUCCESS, "%d: qp_num %u: %s",
		      (int)w.wr_id, w.qp_num, ibv_wc_status_str(w.status));
		CHECK(w.wr_id % 100 == 4 * next[q]++ + 3, "request %d out of order", (int)w.wr_id);
	}
	quiet(a[0].cq, 0.02);
	for (int i = 0; i < N; i++) {
		MUST(ibv_destroy_qp(a[i].qp));
		MUST(ibv_destroy_qp(b[i].qp));
	}
	for (int i = 0; i < 2 * N; i++)
		MUST(ibv_destroy_cq(own[i]));
}

/* Several completions in one call, no more than asked for. */
static void poll_batches(void)
{
	struct pair p;
	struct ibv_wc w[40];
	unsigned got = 0;
	double t = 0;

	pair_open(&p, &usual);
	CHECK(ibv_poll_cq(p.b.cq, 40, w) == 0, "completions in an empty queue");
	for (unsigned i = 0; i < 30; i++) {
		MUST(try_recv(p.b.qp, i, NULL, 0));
		post(p.a.qp, .id = i, .opcode = IBV_WR_SEND, .flags = i == 29 ? IBV_SEND_SIGNALED : 0);
	}
	done(p.a.cq, 29, IBV_WC_SEND);
	while (got < 30) {
		int n = ibv_poll_cq(p.b.cq, 7, w);

		CHECK(n >= 0 && n <= 7 && until(&t), "ibv_poll_cq of 7: %d, after %u", n, got);
		for (int i = 0; i < n; i++)
			CHECK(w[i].wr_id == got++, "out of order");
	}
	pair_close(&p);
}

/* Notification. */

static void take_event(struct end *e)
{
	struct ibv_cq *cq;
	void *arg;

	MUST(ibv_get_cq_event(e->ch, &cq, &arg));
	CHECK(cq == e->cq && arg == cq->cq_context, "the event is of another queue");
	ibv_ack_cq_events(cq, 1);
}

static void message(struct pair *p, uint64_t id, unsigned flags)
{
	MUST(try_end_recv(&p->b, id, NULL, 0));
	post(p->a.qp, .id = id, .opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED | flags);
	done(p->a.cq, id, IBV_WC_SEND);
}

static void notified_once(void)
{
	struct pair p;

	pair_open(&p, &usual);
	message(&p, 0, 0);
	CHECK(!readable(p.b.ch->fd, 0.02), "an event that was not asked for");
	done(p.b.cq, 0, IBV_WC_RECV);
	for (unsigned i = 1; i < 20; i++) {
		MUST(ibv_req_notify_cq(p.b.cq, 0));
		CHECK(!readable(p.b.ch->fd, 0.005), "an event without a completion");
		message(&p, i, 0);
		CHECK(readable(p.b.ch->fd, patience()), "no event after ibv_req_notify_cq number %u", i);
		take_event(&p.b);
		message(&p, 100 + i, 0);
		CHECK(!readable(p.b.ch->fd, 0.01), "two events for one ibv_req_notify_cq");
		done(p.b.cq, i, IBV_WC_RECV);
		done(p.b.cq, 100 + i, IBV_WC_RECV);
	}
	pair_close(&p);
}

static void notified_if_solicited(void)
{
	struct pair p;

	pair_open(&p, &usual);
	for (unsigned i = 0; i < 5; i++) {
		MUST(ibv_req_notify_cq(p.b.cq, 1));
		message(&p, 1, 0);
		CHECK(!readable(p.b.ch->fd, 0.02), "an event of a message that does not solicit one");
		message(&p, 2, IBV_SEND_SOLICITED);
		CHECK(readable(p.b.ch->fd, patience()), "no event of a message that solicits one");
		take_event(&p.b);
		done(p.b.cq, 1, IBV_WC_RECV);
		done(p.b.cq, 2, IBV_WC_RECV);
	}
	if (!soft()) {	/* soft-RoCE has no event for this, against ibv_req_notify_cq(3) */
		pair_close(&p);
		return;
	}
	/* A failed completion is an event too. */
	MUST(ibv_req_notify_cq(p.b.cq, 1));
	MUST(try_recv(p.b.qp, 3, NULL, 0));
	MUST(to_state(p.b.qp, IBV_QPS_ERR));
	CHECK(readable(p.b.ch->fd, patience()), "no event of a flushed receive");
	take_event(&p.b);
	expect(p.b.cq, 3, IBV_WC_WR_FLUSH_ERR);
	pair_close(&p);
}

struct flood {
	struct end *e;
	unsigned n;
};

static void *flood_main(void *arg)
{
	struct flood *f = arg;

	for (unsigned i = 0; i < f->n; i++) {
		post(f->e->qp, .id = i, .opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED);
		done(f->e->cq, i, IBV_WC_SEND);
		if (i % 16 == 0)
			nap(1e-4);
	}
	return NULL;
}

/* The usual loop: arm, poll once more, sleep. However the messages fall, it never sleeps for ever. */
static void no_event_is_lost(void)
{
	struct pair p;
	struct flood f = { &p.a, soft() ? 3000 : 300 };
	unsigned got = 0, unacked = 0;
	pthread_t t;

	pair_open(&p, &usual);
	for (unsigned i = 0; i < 64; i++)
		MUST(try_recv(p.b.qp, i, NULL, 0));
	MUST(pthread_create(&t, NULL, flood_main, &f));
	while (got < f.n) {
		struct ibv_wc w;

		MUST(ibv_req_notify_cq(p.b.cq, 0));
		while (got < f.n && ibv_poll_cq(p.b.cq, 1, &w) == 1) {
			CHECK(w.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(w.status));
			CHECK(w.wr_id == got % 64, "message %u came into receive %d", got, (int)w.wr_id);
			MUST(try_recv(p.b.qp, w.wr_id, NULL, 0));
			got++;
		}
		if (got == f.n)
			break;
		CHECK(readable(p.b.ch->fd, patience()), "asleep after message %u of %u: the event is lost", got, f.n);
		{
			struct ibv_cq *cq;
			void *arg;

			MUST(ibv_get_cq_event(p.b.ch, &cq, &arg));
			unacked++;
		}
	}
	MUST(pthread_join(t, NULL));
	ibv_ack_cq_events(p.b.cq, unacked);
	pair_close(&p);
}

struct late {
	struct ibv_cq *cq;
	int acked;
};

static void *late_ack(void *arg)
{
	struct late *l = arg;

	nap(0.1);
	__atomic_store_n(&l->acked, 1, __ATOMIC_SEQ_CST);
	ibv_ack_cq_events(l->cq, 1);
	return NULL;
}

/* A queue is not gone before its events are acknowledged. */
static void destroy_waits_for_acks(void)
{
	struct pair p;
	struct ibv_cq *cq;
	struct late l = { 0 };
	pthread_t t;
	void *arg;

	pair_open(&p, &usual);
	MUST(ibv_req_notify_cq(p.b.cq, 0));
	message(&p, 1, 0);
	MUST(ibv_get_cq_event(p.b.ch, &cq, &arg));
	MUST(ibv_destroy_qp(p.b.qp));
	l.cq = p.b.cq;
	MUST(pthread_create(&t, NULL, late_ack, &l));
	MUST(ibv_destroy_cq(p.b.cq));
	CHECK(__atomic_load_n(&l.acked, __ATOMIC_SEQ_CST), "the queue was destroyed with an event that is not acknowledged");
	MUST(pthread_join(t, NULL));
	MUST(ibv_destroy_comp_channel(p.b.ch));
}

/* Two queues share a channel: each event names its queue. */
static void shared_channel(void)
{
	struct dev *d = dev_open();
	struct end a, b;
	struct addr x, y;
	struct ibv_cq *own, *cq;
	int seen[2] = { 0 };
	void *arg;

	end_open(&a, d, &usual);
	end_open(&b, d, &usual);
	MUST(ibv_destroy_qp(b.qp));
	own = b.cq;
	b.cq = ibv_create_cq(d->ctx, 64, &b, a.ch, 0);
	CHECK(b.cq, "ibv_create_cq: %m");
	b.qp = make_qp(&b);
	x = end_addr(&a);
	y = end_addr(&b);
	end_connect(&b, &x);
	end_connect(&a, &y);
	MUST(ibv_req_notify_cq(a.cq, 0));
	MUST(ibv_req_notify_cq(b.cq, 0));
	MUST(try_recv(b.qp, 1, NULL, 0));
	post(a.qp, .id = 1, .opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED);
	for (int i = 0; i < 2; i++) {
		CHECK(readable(a.ch->fd, patience()), "no event");
		MUST(ibv_get_cq_event(a.ch, &cq, &arg));
		CHECK((cq == a.cq && arg == &a) || (cq == b.cq && arg == &b), "an event of a stranger");
		seen[cq == b.cq]++;
		ibv_ack_cq_events(cq, 1);
	}
	CHECK(seen[0] == 1 && seen[1] == 1, "%d and %d events", seen[0], seen[1]);
	MUST(ibv_destroy_qp(b.qp));
	MUST(ibv_destroy_cq(b.cq));
	MUST(ibv_destroy_cq(own));
}

static void extended_queue(void)
{
	struct ibv_cq_init_attr_ex ca = { .cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_poll_cq_attr pa = { 0 };
	struct how h = usual;
	struct pair p;
	struct buf s, r;
	struct ibv_cq_ex *ex;
	struct addr x, y;
	struct ibv_sge sg;
	unsigned got = 0;
	double t = 0;

	pair_open(&p, &h);
	/* b gets another queue pair, on an extended queue. */
	MUST(ibv_destroy_qp(p.b.qp));
	ex = ibv_create_cq_ex(p.b.d->ctx, &ca);
	if (!ex && !soft())
		skip("no extended completion queues");
	CHECK(ex, "ibv_create_cq_ex: %m");
	MUST(ibv_destroy_cq(p.b.cq));
	p.b.cq = ibv_cq_ex_to_cq(ex);
	p.b.qp = make_qp(&p.b);
	MUST(to_state(p.a.qp, IBV_QPS_RESET));
	x = end_addr(&p.a);
	y = end_addr(&p.b);
	end_connect(&p.b, &x);
	end_connect(&p.a, &y);

	s = buf_new(p.a.d, 4096, 0);
	r = buf_new(p.b.d, 4096, IBV_ACCESS_LOCAL_WRITE);
	fill(s.p, 4096, 1);
	sg = part(&s, 0, 100);
	CHECK(ibv_start_poll(ex, &pa) == ENOENT, "completions in an empty queue");
	for (unsigned i = 0; i < 20; i++) {
		end_recv(&p.b, 500 + i, part(&r, 100 * i, 100));
		post(p.a.qp, .id = i, .opcode = i & 1 ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, .sg = &sg, .n = 1,
		     .flags = IBV_SEND_SIGNALED, .imm = htonl(i));
		done(p.a.cq, i, IBV_WC_SEND);
	}
	while (got < 20) {
		int rc = ibv_start_poll(ex, &pa);

		CHECK(rc == 0 || rc == ENOENT, "ibv_start_poll: %d", rc);
		CHECK(until(&t), "no completion");
		if (rc)
			continue;
		do {
			CHECK(ex->wr_id == 500 + got && ex->status == IBV_WC_SUCCESS, "%d: %s", (int)ex->wr_id,
			      ibv_wc_status_str(ex->status));
			CHECK(ibv_wc_read_opcode(ex) == IBV_WC_RECV, "opcode %d", ibv_wc_read_opcode(ex));
			CHECK(ibv_wc_read_byte_len(ex) == 100, "byte_len %u", ibv_wc_read_byte_len(ex));
			CHECK(ibv_wc_read_qp_num(ex) == p.b.qp->qp_num, "qp_num %u", ibv_wc_read_qp_num(ex));
			CHECK(!!(ibv_wc_read_wc_flags(ex) & IBV_WC_WITH_IMM) == (got & 1), "flags 0x%x",
			      ibv_wc_read_wc_flags(ex));
			CHECK(!(got & 1) || ntohl(ibv_wc_read_imm_data(ex)) == got, "immediate data");
			got++;
			/* rxe of libibverbs 44 counts one too many when ibv_next_poll finds nothing. */
		} while (soft() && got % 7 && (rc = ibv_next_poll(ex)) == 0);
		CHECK(rc == 0 || rc == ENOENT, "ibv_next_poll: %d", rc);
		ibv_end_poll(ex);
	}
	CHECK(ibv_start_poll(ex, &pa) == ENOENT, "a completion too many");
	check_fill(r.p + 1900, 100, 1, 0, "message");
	/* The plain call works on an extended queue as well. */
	end_recv(&p.b, 7, part(&r, 0, 100));
	post(p.a.qp, .id = 7, .opcode = IBV_WR_SEND, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED);
	done(p.b.cq, 7, IBV_WC_RECV);
	done(p.a.cq, 7, IBV_WC_SEND);
	buf_free(&s);
	buf_free(&r);
	pair_close(&p);
}

/* Objects. */

static void queries(void)
{
	struct dev *d = dev_open();
	struct end e;
	struct addr x;
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr i;
	struct how h = usual;

	CHECK(d->attr.max_qp > 0 && d->attr.max_cqe > 0 && d->attr.max_mr > 0 && d->attr.max_sge >= 4 &&
	      d->attr.max_qp_rd_atom >= 16 && d->attr.max_srq_wr > 0, "the limits of the device");
	CHECK(d->attr.phys_port_cnt >= 1 && d->port.max_msg_sz >= 1u << 30 && d->port.gid_tbl_len > 0 &&
	      d->port.pkey_tbl_len > 0, "the port");
	h.rd = 5;
	h.dest_rd = 6;
	h.rnr = 3;
	h.rnr_timer = 14;
	h.retry = 2;
	h.access = IBV_ACCESS_REMOTE_READ;
	end_open(&e, d, &h);
	CHECK(qp_state(e.qp) == IBV_QPS_RESET, "a new queue pair is in state %d", qp_state(e.qp));
	x = end_addr(&e);
	MUST(to_init(e.qp, &h));
	CHECK(qp_state(e.qp) == IBV_QPS_INIT, "state %d", qp_state(e.qp));
	MUST(to_rtr(e.qp, d, &h, &x));
	CHECK(qp_state(e.qp) == IBV_QPS_RTR, "state %d", qp_state(e.qp));
	MUST(to_rts(e.qp, &h, e.psn));
	MUST(ibv_query_qp(e.qp, &a, 0x1fffff, &i));
	CHECK(a.qp_state == IBV_QPS_RTS && e.qp->state == IBV_QPS_RTS, "state %d, %d", a.qp_state, e.qp->state);
	CHECK(a.dest_qp_num == e.qp->qp_num && a.path_mtu == d->port.active_mtu, "the path");
	CHECK(a.max_rd_atomic >= 5 && a.max_dest_rd_atomic >= 6, "READs %u and %u", a.max_rd_atomic, a.max_dest_rd_atomic);
	CHECK(a.rnr_retry == 3 && a.min_rnr_timer == 14 && a.retry_cnt == 2 && a.timeout == 14, "retries");
	CHECK(a.qp_access_flags == IBV_ACCESS_REMOTE_READ, "access 0x%x", a.qp_access_flags);
	CHECK(a.cap.max_send_wr == e.cap.max_send_wr && a.cap.max_inline_data == e.cap.max_inline_data, "depths");
	CHECK(i.send_cq == e.cq && i.recv_cq == e.cq && i.qp_type == IBV_QPT_RC, "the queues");
	end_close(&e);
	dev_close(d);
}

/* Back to RESET, everything is forgotten, and the same queue pair serves again. */
static void reset_and_again(void)
{
	struct pair p;
	struct buf s;
	struct ibv_sge sg;

	pair_open(&p, &usual);
	s = buf_new(p.a.d, 4096, IBV_ACCESS_LOCAL_WRITE);
	sg = part(&s, 0, 64);
	for (unsigned i = 0; i < 10; i++) {
		struct addr x = end_addr(&p.a), y = end_addr(&p.b);
		struct ibv_wc w;

		if (i & 1)	/* something is in flight, and a receive is left over */
			post(p.a.qp, .id = 77, .opcode = IBV_WR_SEND, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED);
		else
			MUST(try_recv(p.b.qp, 78, NULL, 0));
		MUST(to_state(p.a.qp, IBV_QPS_RESET));
		MUST(to_state(p.b.qp, IBV_QPS_RESET));
		while (ibv_poll_cq(p.a.cq, 1, &w) > 0 || ibv_poll_cq(p.b.cq, 1, &w) > 0)
			;
		end_connect(&p.a, &y);
		end_connect(&p.b, &x);
		message(&p, i, 0);
		done(p.b.cq, i, IBV_WC_RECV);
	}
	buf_free(&s);
	pair_close(&p);
}

/* Many contexts, each with objects, in one process; what is closed can be opened again. */
static void many_contexts(void)
{
	enum { N = 100 };
	static struct end e[N];
	struct addr x, y;
	int n = soft() ? N : 8;

	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < n; i++)
			end_open(&e[i], dev_open(), &usual);
		for (int i = 0; i < n; i += 2) {
			x = end_addr(&e[i]);
			y = end_addr(&e[n - 1 - i]);
			end_connect(&e[n - 1 - i], &x);
			end_connect(&e[i], &y);
		}
		for (int i = 0; i < n; i += 2) {
			MUST(try_recv(e[n - 1 - i].qp, 5, NULL, 0));
			post(e[i].qp, .id = 6, .opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED);
		}
		for (int i = 0; i < n; i += 2) {
			done(e[i].cq, 6, IBV_WC_SEND);
			done(e[n - 1 - i].cq, 5, IBV_WC_RECV);
		}
		for (int i = 0; i < n; i++) {
			end_close(&e[i]);
			dev_close(e[i].d);
		}
	}
}

/* On InfiniBand an address may carry a GID as well. */
static void global_address(void)
{
	struct pair p;
	struct addr x, y;

	pair_open(&p, &usual);
	MUST(to_state(p.a.qp, IBV_QPS_RESET));
	MUST(to_state(p.b.qp, IBV_QPS_RESET));
	p.a.d->global = p.b.d->global = true;
	x = end_addr(&p.a);
	y = end_addr(&p.b);
	end_connect(&p.b, &x);
	end_connect(&p.a, &y);
	message(&p, 1, 0);
	done(p.b.cq, 1, IBV_WC_RECV);
	pair_close(&p);
}

/* A random mixture both ways at once; each end counts what must come. */
static void mixture(void)
{
	enum { OPS = 600, SLOT = 16384, DEPTH = 16 };
	struct how h = usual;
	struct pair p;
	struct buf mem[2];	/* DEPTH slots to work from, DEPTH to receive into, DEPTH for the peer's WRITEs, one to READ */
	struct end *e[2] = { &p.a, &p.b };
	unsigned sent[2] = { 0 }, over[2] = { 0 }, mine[2] = { 0 }, theirs[2] = { 0 };
	struct { unsigned kind, len, seed; } job[2][DEPTH];
	double t = 0;

	h.srq_wr = 64;
	pair_open(&p, &h);
	for (int i = 0; i < 2; i++) {
		mem[i] = buf_new(e[i]->d, (3 * DEPTH + 1) * SLOT, ALL_ACCESS);
		fill(mem[i].p + 3 * DEPTH * SLOT, SLOT, 200 + (unsigned)i);
		for (unsigned k = 0; k < DEPTH; k++)
			end_recv(e[i], 1000 + k, part(&mem[i], (DEPTH + k) * SLOT, SLOT));
	}
	while (over[0] < OPS || over[1] < OPS || theirs[0] < mine[1] || theirs[1] < mine[0]) {
		for (int i = 0; i < 2; i++) {
			struct buf *own = &mem[i], *far = &mem[1 - i];
			struct ibv_wc w;
			int n;

			/* No more messages than the other has receives for: this is not a test of RNR. */
			if (sent[i] < OPS && sent[i] - over[i] < DEPTH && mine[i] - theirs[1 - i] < DEPTH) {
				unsigned k = sent[i] % DEPTH, kind = rnd(3), len = 1 + rnd(rnd(4) ? 300 : SLOT);
				struct ibv_sge sg = part(own, k * SLOT, len);
				size_t at = kind == 1 ? (2 * DEPTH + k) * SLOT : 3 * DEPTH * SLOT;

				job[i][k].kind = kind;
				job[i][k].len = len;
				job[i][k].seed = sent[i];
				fill(own->p + k * SLOT, len, kind == 0 ? mine[i] : sent[i]);
				post(e[i]->qp, .id = k, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED,
				     .opcode = kind == 0 ? IBV_WR_SEND_WITH_IMM : kind == 1 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
				     .imm = htonl(len), .raddr = (uintptr_t)far->p + at, .rkey = far->mr->rkey);
				mine[i] += kind == 0;
				sent[i]++;
			}
			n = ibv_poll_cq(e[i]->cq, 1, &w);
			CHECK(n >= 0 && until(&t), "stuck after %u and %u operations", over[0], over[1]);
			if (n == 0)
				continue;
			t = 0;
			CHECK(w.status == IBV_WC_SUCCESS, "%d: %s", (int)w.wr_id, ibv_wc_status_str(w.status));
			if (w.wr_id >= 1000) {
				size_t slot = (DEPTH + theirs[i] % DEPTH) * SLOT;

				CHECK(w.wr_id == 1000 + theirs[i] % DEPTH && w.opcode == IBV_WC_RECV &&
				      w.byte_len == ntohl(w.imm_data), "message %u: %d, length %u", theirs[i], (int)w.wr_id, w.byte_len);
				check_fill(own->p + slot, w.byte_len, theirs[i], 0, "message");
				end_recv(e[i], w.wr_id, part(own, slot, SLOT));
				theirs[i]++;
				continue;
			}
			CHECK(w.wr_id == over[i] % DEPTH, "request %d is over before %u", (int)w.wr_id, over[i]);
			if (job[i][w.wr_id].kind == 1)
				check_fill(far->p + (2 * DEPTH + w.wr_id) * SLOT, job[i][w.wr_id].len, job[i][w.wr_id].seed, 0, "written");
			if (job[i][w.wr_id].kind == 2)
				check_fill(own->p + w.wr_id * SLOT, job[i][w.wr_id].len, 200 + 1 - (unsigned)i, 0, "read");
			over[i]++;
		}
	}
	buf_free(&mem[0]);
	buf_free(&mem[1]);
	pair_close(&p);
}

/* Two processes. */

struct hello {
	struct addr addr;
	uint64_t at;
	uint32_t rkey;
};

static void meet(int fd, struct end *e, struct buf *mem, struct hello *other)
{
	struct hello me;
	char ready = 1;

	memset(&me, 0, sizeof(me));
	me.addr = end_addr(e);
	me.at = (uintptr_t)mem->p;
	me.rkey = mem->mr->rkey;
	send_all(fd, &me, sizeof(me));
	recv_all(fd, other, sizeof(*other));
	end_connect(e, &other->addr);
	/* Neither sends before both are connected. */
	send_all(fd, &ready, 1);
	recv_all(fd, &ready, 1);
}

enum { TALK = 200, TALK_MEM = 262144 };

/* The far process answers each message with another, and otherwise only lends its memory. */
static void answerer(int fd, const void *arg)
{
	struct end e;
	struct buf mem;
	struct hello far;
	unsigned answered = 0;
	bool asked = false;
	char over;

	(void)arg;
	end_open(&e, dev_open(), &usual);
	mem = buf_new(e.d, 2 * TALK_MEM, ALL_ACCESS);
	fill(mem.p, TALK_MEM, 42);
	set_word(&mem, TALK_MEM, 0);
	MUST(to_init(e.qp, &usual));
	end_recv(&e, 0, part(&mem, TALK_MEM + 4096, 4096));
	meet(fd, &e, &mem, &far);
	for (unsigned i = 0; i < TALK; i++) {
		struct ibv_sge sg = part(&mem, TALK_MEM + 8192 + 256 * (i % 32), 1 + i);

		while (!asked) {	/* perhaps the last answer is over only now */
			struct ibv_wc w = next_wc(e.cq);

			CHECK(w.status == IBV_WC_SUCCESS, "%d: %s", (int)w.wr_id, ibv_wc_status_str(w.status));
			asked = w.opcode == IBV_WC_RECV;
			CHECK(w.wr_id == (asked ? i : 5000 + answered), "%d after %u and %u", (int)w.wr_id, i, answered);
			CHECK(!asked || w.byte_len == 1 + i, "length of message %u", i);
			answered += !asked;
		}
		asked = false;
		check_fill(mem.p + TALK_MEM + 4096, 1 + i, i, 0, "question");
		end_recv(&e, i + 1, part(&mem, TALK_MEM + 4096, 4096));
		fill(mem.p + TALK_MEM + 8192 + 256 * (i % 32), 1 + i, 1000 + i);
		post(e.qp, .id = 5000 + i, .opcode = IBV_WR_SEND, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED);
	}
	while (answered < TALK) {
		done(e.cq, 5000 + answered, IBV_WC_SEND);
		answered++;
	}
	/* From here on the other works alone; this process does not even poll. */
	recv_all(fd, &over, 1);
	check_fill(mem.p + TALK_MEM + 16384, 100000, 43, 0, "what the other process wrote");
	CHECK(word(&mem, TALK_MEM) == 2 * TALK, "the sum is %llu", (long long)word(&mem, TALK_MEM));
	send_all(fd, &over, 1);
	recv_all(fd, &over, 1);
	end_close(&e);
	buf_free(&mem);
	dev_close(e.d);
}

static void two_processes(void)
{
	struct peer far = spawn(answerer, NULL);
	struct end e;
	struct buf mem;
	struct hello it;
	struct ibv_sge sg;
	char over = 1;

	end_open(&e, dev_open(), &usual);
	mem = buf_new(e.d, TALK_MEM, ALL_ACCESS);
	meet(far.fd, &e, &mem, &it);
	for (unsigned i = 0; i < TALK; i++) {
		sg = part(&mem, 0, 1 + i);
		fill(mem.p, 1 + i, i);
		end_recv(&e, i, part(&mem, 4096, 4096));
		post(e.qp, .id = 5000 + i, .opcode = IBV_WR_SEND, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED);
		/* The answer may be here before the own message is complete. */
		for (int k = 0; k < 2; k++) {
			struct ibv_wc w = next_wc(e.cq);

			CHECK(w.status == IBV_WC_SUCCESS && w.wr_id == (w.opcode == IBV_WC_RECV ? i : 5000 + i), "%d: %s",
			      (int)w.wr_id, ibv_wc_status_str(w.status));
		}
		check_fill(mem.p + 4096, 1 + i, 1000 + i, 0, "answer");
	}
	for (unsigned i = 0; i < 20; i++) {
		sg = part(&mem, i, TALK_MEM - 20);
		post(e.qp, .id = i, .opcode = IBV_WR_RDMA_READ, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED,
		     .raddr = it.at + i, .rkey = it.rkey);
		done(e.cq, i, IBV_WC_RDMA_READ);
		check_fill(mem.p + i, TALK_MEM - 20, 42, i, "read");
	}
	fill(mem.p, 100000, 43);
	sg = part(&mem, 0, 100000);
	post(e.qp, .id = 1, .opcode = IBV_WR_RDMA_WRITE, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED,
	     .raddr = it.at + TALK_MEM + 16384, .rkey = it.rkey);
	done(e.cq, 1, IBV_WC_RDMA_WRITE);
	sg = part(&mem, 8, 8);
	for (unsigned i = 0; i < TALK; i++) {
		post(e.qp, .id = i, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED,
		     .raddr = it.at + TALK_MEM, .rkey = it.rkey, .add = 1);
		done(e.cq, i, IBV_WC_FETCH_ADD);
		CHECK(word(&mem, 8) == 2 * i, "old value");
		post(e.qp, .id = i, .opcode = IBV_WR_ATOMIC_CMP_AND_SWP, .sg = &sg, .n = 1, .flags = IBV_SEND_SIGNALED,
		     .raddr = it.at + TALK_MEM, .rkey = it.rkey, .add = 2 * i + 1, .swap = 2 * i + 2);
		done(e.cq, i, IBV_WC_COMP_SWAP);
	}
	send_all(far.fd, &over, 1);
	recv_all(far.fd, &over, 1);
	send_all(far.fd, &over, 1);
	reap(&far);
	end_close(&e);
	buf_free(&mem);
	dev_close(e.d);
}

static const struct test tests[] = {
	TEST(send_pieces, PAIRS), TEST(send_inline, PAIRS), TEST(write_inline, PAIRS), TEST(send_immediate, PAIRS),
	TEST(send_zero, PAIRS), TEST(send_lengths, PAIRS), TEST(send_order, PAIRS), TEST(receiver_not_ready, PAIRS),
	TEST(requests_are_copied, PAIRS), TEST(request_lists, PAIRS), TEST(own_peer, 0),
	TEST(srq_order, PAIRS), TEST(srq_limit, PAIRS),
	TEST(rdma_write, PAIRS), TEST(rdma_read, PAIRS), TEST(rdma_zero, PAIRS), TEST(write_immediate, PAIRS),
	TEST(atomics, PAIRS), TEST(atomics_compete, PAIRS), TEST(reads_in_flight_1, PAIRS), TEST(reads_in_flight_16, PAIRS),
	TEST(send_after_write, PAIRS), TEST(fence, PAIRS), TEST(read_after_write, PAIRS),
	TEST(unsignalled, PAIRS), TEST(all_signalled, PAIRS), TEST(slots, PAIRS), TEST(many_on_one_queue, PAIRS),
	TEST(poll_batches, PAIRS),
	TEST(notified_once, PAIRS), TEST(notified_if_solicited, PAIRS), TEST(no_event_is_lost, PAIRS),
	TEST(destroy_waits_for_acks, 0), TEST(shared_channel, 0), TEST(extended_queue, PAIRS),
	TEST(queries, 0), TEST(reset_and_again, PAIRS), TEST(many_contexts, 0), TEST(global_address, PAIRS),
	TEST(mixture, PAIRS), TEST(two_processes, 0),
};

int main(int argc, char **argv) { return run_tests(argc, argv, tests, COUNT(tests)); }
