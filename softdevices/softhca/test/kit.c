#define _GNU_SOURCE
#include "test.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *device = "softhca0";
static const char *running;	/* the case, with its variant */
static bool twice;

/*
 * Shared by all processes of a case: the first that fails or skips prints it, the
 * others print nothing, so that each case has one line.
 */
static atomic_int *printed;

static void report(const char *word, const char *fmt, va_list ap)
{
	char why[600];

	if (atomic_exchange(printed, 1))
		return;
	vsnprintf(why, sizeof(why), fmt, ap);
	printf("%s %s: %s\n", word, running, why);
	fflush(stdout);
}

void fail_at(const char *file, int line, const char *fmt, ...)
{
	char where[700];
	va_list ap;

	snprintf(where, sizeof(where), "%s [%s:%d]", fmt, file, line);
	va_start(ap, fmt);
	report("FAIL", where, ap);
	va_end(ap);
	_exit(1);
}

void skip(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	report("skip", fmt, ap);
	va_end(ap);
	_exit(77);
}

bool soft(void) { return strncmp(device, "softhca", 7) == 0; }
bool two_contexts(void) { return twice; }

double patience(void)
{
	const char *s = getenv("TEST_PATIENCE");
	double d = s ? atof(s) : 0;

	return d > 0 ? d : 20;
}

double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

void nap(double seconds)
{
	struct timespec t = { (time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9) };

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

bool until(double *start)
{
	if (*start == 0)
		*start = now();
	if (now() - *start > patience())
		return false;
	nap(50e-6);
	return true;
}

/* Runs one case in a process of its own, and reports whether it may be called good. */
static bool run_one(const struct test *t)
{
	int status;
	pid_t pid;

	atomic_store(printed, 0);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		/* In a group of its own, so that nothing that it has started outlives it. */
		setpgid(0, 0);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm((unsigned)(4 * patience()));
		if ((t->flags & SOFT) && !soft())
			skip("a property of the software HCA only");
		t->run();
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid) {
		printf("FAIL %s: fork: %s\n", running, strerror(errno));
		return false;
	}
	kill(-pid, SIGKILL);
	if (WIFSIGNALED(status) && !atomic_exchange(printed, 1)) {
		if (WTERMSIG(status) == SIGALRM)
			printf("FAIL %s: hangs\n", running);
		else
			printf("FAIL %s: killed by signal %d\n", running, WTERMSIG(status));
		return false;
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77 && atomic_load(printed))
		return true;
	if (!WIFEXITED(status) || WEXITSTATUS(status)) {
		if (!atomic_exchange(printed, 1))
			printf("FAIL %s: exit status %d\n", running, WEXITSTATUS(status));
		return false;
	}
	if (!atomic_load(printed))
		printf("ok %s\n", running);
	return true;
}

static bool wanted(const char *name, int argc, char **argv)
{
	for (int i = 2; i < argc; i++)
		if (strcmp(argv[i], name) == 0)
			return true;
	return argc <= 2;
}

int run_tests(int argc, char **argv, const struct test *t, size_t n)
{
	bool good = true;
	int ran = 0;

	if (argc > 1)
		device = argv[1];
	printed = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (printed == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	for (size_t i = 0; i < n; i++) {
		for (int v = 0; v < (t[i].flags & PAIRS ? 2 : 1); v++) {
			char name[100];

			if (!wanted(t[i].name, argc, argv))
				continue;
			twice = v;
			snprintf(name, sizeof(name), "%s%s", t[i].name,
				 !(t[i].flags & PAIRS) ? "" : v ? "/two-contexts" : "/one-context");
			running = name;
			ran++;
			good &= run_one(&t[i]);
			fflush(stdout);
		}
	}
	if (!ran) {
		fprintf(stderr, "%s: no such case\n", argv[0]);
		return 1;
	}
	return good ? 0 : 1;
}

/* Processes. */

struct peer spawn(void (*body)(int, const void *), const void *arg)
{
	struct peer p;
	int fd[2];

	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) == 0, "socketpair: %m");
	p.pid = fork();
	CHECK(p.pid >= 0, "fork: %m");
	if (p.pid == 0) {
		close(fd[0]);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		body(fd[1], arg);
		_exit(0);
	}
	close(fd[1]);
	p.fd = fd[0];
	return p;
}

void reap(struct peer *p)
{
	int status;

	CHECK(waitpid(p->pid, &status, 0) == p->pid, "waitpid: %m");
	CHECK(WIFEXITED(status), "the peer was killed by signal %d", WTERMSIG(status));
	CHECK(WEXITSTATUS(status) == 0, "the peer's exit status is %d", WEXITSTATUS(status));
	close(p->fd);
}

void kill_peer(struct peer *p)
{
	int status;

	kill(p->pid, SIGKILL);
	CHECK(waitpid(p->pid, &status, 0) == p->pid, "waitpid: %m");
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "the peer ended before it was killed");
	close(p->fd);
}

void send_all(int fd, const void *data, size_t n)
{
	CHECK(send(fd, data, n, MSG_NOSIGNAL) == (ssize_t)n, "sending to the other process: %m");
}

void recv_all(int fd, void *data, size_t n)
{
	struct pollfd p = { fd, POLLIN, 0 };

	for (size_t got = 0; got < n;) {
		ssize_t k;

		CHECK(poll(&p, 1, (int)(1000 * patience())) == 1, "the other process sends nothing");
		k = recv(fd, (char *)data + got, n - got, 0);
		CHECK(k > 0, "the other process is gone");
		got += (size_t)k;
	}
}

/* Devices. */

struct ibv_context *open_context(void)
{
	struct ibv_context *ctx = NULL;
	int n = 0;
	struct ibv_device **l = ibv_get_device_list(&n);

	CHECK(l, "no devices: %m");
	for (int i = 0; i < n; i++)
		if (strcmp(ibv_get_device_name(l[i]), device) == 0)
			ctx = ibv_open_device(l[i]);
	CHECK(ctx, "cannot open %s among %d devices: %m", device, n);
	ibv_free_device_list(l);
	return ctx;
}

/* On RoCE the address is a GID: the first that stands for an IPv4 address, as it is version 2. */
static void find_gid(struct dev *d)
{
	d->global = d->port.link_layer == IBV_LINK_LAYER_ETHERNET;
	for (int i = 0; d->global && i < d->port.gid_tbl_len; i++)
		if (ibv_query_gid(d->ctx, 1, i, &d->gid) == 0 && d->gid.raw[10] == 0xff && d->gid.raw[11] == 0xff) {
			d->gid_index = i;
			return;
		}
	d->gid_index = 0;
	MUST(ibv_query_gid(d->ctx, 1, 0, &d->gid));
}

struct dev *dev_of(struct ibv_context *ctx)
{
	struct dev *d = calloc(1, sizeof(*d));

	CHECK(d, "calloc: %m");
	d->ctx = ctx;
	MUST(ibv_query_device(ctx, &d->attr));
	if (ibv_query_device_ex(ctx, NULL, &d->ex))
		memset(&d->ex, 0, sizeof(d->ex));
	MUST(ibv_query_port(ctx, 1, &d->port));
	CHECK(d->port.state == IBV_PORT_ACTIVE, "port 1 is %s", ibv_port_state_str(d->port.state));
	find_gid(d);
	d->pd = ibv_alloc_pd(ctx);
	CHECK(d->pd, "ibv_alloc_pd: %m");
	return d;
}

struct dev *dev_open(void) { return dev_of(open_context()); }

void dev_close(struct dev *d)
{
	MUST(ibv_dealloc_pd(d->pd));
	MUST(ibv_close_device(d->ctx));
	free(d);
}

/* Memory. */

struct buf buf_new(struct dev *d, size_t n, int access)
{
	size_t pages = (n + 4095) / 4096 * 4096 + 4096;
	struct buf b = { .n = n };

	b.p = mmap(NULL, pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(b.p != MAP_FAILED, "mmap: %m");
	b.mr = ibv_reg_mr(d->pd, b.p, n, access);
	CHECK(b.mr, "ibv_reg_mr of %zu bytes: %m", n);
	return b;
}

void buf_free(struct buf *b)
{
	if (b->mr)
		MUST(ibv_dereg_mr(b->mr));
	munmap(b->p, (b->n + 4095) / 4096 * 4096 + 4096);
	b->mr = NULL;
}

struct ibv_sge part(const struct buf *b, size_t off, size_t len)
{
	return (struct ibv_sge){ (uintptr_t)b->p + off, (uint32_t)len, b->mr->lkey };
}

static uint8_t byte_of(unsigned seed, size_t i)
{
	return (uint8_t)((i * 31 + (i >> 8) * 7 + (i >> 16)) ^ (seed * 0x9e3779b1u >> 24) ^ seed);
}

void fill(void *p, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		((uint8_t *)p)[i] = byte_of(seed, i);
}

void check_fill(const void *p, size_t n, unsigned seed, size_t off, const char *what)
{
	for (size_t i = 0; i < n; i++)
		CHECK(((const uint8_t *)p)[i] == byte_of(seed, off + i), "%s: byte %zu of %zu is 0x%02x, not 0x%02x",
		      what, i, n, ((const uint8_t *)p)[i], byte_of(seed, off + i));
}

void check_bytes(const void *p, size_t n, uint8_t value, const char *what)
{
	for (size_t i = 0; i < n; i++)
		CHECK(((const uint8_t *)p)[i] == value, "%s: byte %zu of %zu is 0x%02x, not 0x%02x",
		      what, i, n, ((const uint8_t *)p)[i], value);
}

unsigned rnd(unsigned below)
{
	static uint64_t x = 88172645463325252u;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return (unsigned)((x >> 16) % below);
}

/* Queue pairs. */

/*
 * A timeout of 2^14 * 4.096 us is 67 ms; 7 of them are half a second before a
 * dead peer is noticed. Receivers that are not ready are waited for without end.
 */
const struct how usual = {
	.send_wr = 64, .recv_wr = 64, .send_sge = 4, .recv_sge = 4, .inl = 64, .srq_sge = 4, .cqe = 256,
	.access = ALL_ACCESS, .rd = 8, .dest_rd = 8, .timeout = 14, .retry = 7, .rnr = 7, .rnr_timer = 1,
};

struct ibv_qp *make_qp(struct end *e)
{
	struct ibv_qp_init_attr a = {
		.send_cq = e->cq, .recv_cq = e->cq, .srq = e->srq, .qp_type = IBV_QPT_RC, .sq_sig_all = e->how.sig_all,
		.cap = {
			.max_send_wr = e->how.send_wr, .max_recv_wr = e->srq ? 0 : e->how.recv_wr,
			.max_send_sge = e->how.send_sge, .max_recv_sge = e->srq ? 0 : e->how.recv_sge,
			.max_inline_data = e->how.inl,
		},
	};
	struct ibv_qp *qp = ibv_create_qp(e->d->pd, &a);

	CHECK(qp, "ibv_create_qp: %m");
	CHECK(a.cap.max_send_wr >= e->how.send_wr && a.cap.max_inline_data >= e->how.inl &&
	      (e->srq || a.cap.max_recv_wr >= e->how.recv_wr), "the queue pair is smaller than what was asked for");
	e->cap = a.cap;
	return qp;
}

void end_open(struct end *e, struct dev *d, const struct how *h)
{
	static uint32_t psn = 0xfffff0;	/* wraps early */

	memset(e, 0, sizeof(*e));
	e->d = d;
	e->how = *h;
	e->psn = psn++ & 0xffffff;
	e->ch = ibv_create_comp_channel(d->ctx);
	CHECK(e->ch, "ibv_create_comp_channel: %m");
	e->cq = ibv_create_cq(d->ctx, h->cqe, e, e->ch, 0);
	CHECK(e->cq, "ibv_create_cq: %m");
	if (h->srq_wr) {
		struct ibv_srq_init_attr a = { .attr = { .max_wr = h->srq_wr, .max_sge = h->srq_sge } };

		e->srq = ibv_create_srq(d->pd, &a);
		CHECK(e->srq, "ibv_create_srq: %m");
	}
	e->qp = make_qp(e);
}

void end_close(struct end *e)
{
	MUST(ibv_destroy_qp(e->qp));
	if (e->srq)
		MUST(ibv_destroy_srq(e->srq));
	MUST(ibv_destroy_cq(e->cq));
	MUST(ibv_destroy_comp_channel(e->ch));
}

struct addr address(struct dev *d, struct ibv_qp *qp, uint32_t psn)
{
	return (struct addr){ .qpn = qp->qp_num, .psn = psn, .lid = d->port.lid, .gid = d->gid };
}

struct addr end_addr(const struct end *e) { return address(e->d, e->qp, e->psn); }

int to_init(struct ibv_qp *qp, const struct how *h)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = h->access };

	return ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int to_rtr(struct ibv_qp *qp, struct dev *d, const struct how *h, const struct addr *peer)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR, .path_mtu = d->port.active_mtu, .dest_qp_num = peer->qpn, .rq_psn = peer->psn,
		.max_dest_rd_atomic = h->dest_rd, .min_rnr_timer = h->rnr_timer,
		.ah_attr = { .dlid = peer->lid, .port_num = 1, .is_global = d->global },
	};

	if (d->global) {
		a.ah_attr.grh.dgid = peer->gid;
		a.ah_attr.grh.sgid_index = (uint8_t)d->gid_index;
		a.ah_attr.grh.hop_limit = 1;
	}
	return ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

int to_rts(struct ibv_qp *qp, const struct how *h, uint32_t psn)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTS, .timeout = h->timeout, .retry_cnt = h->retry, .rnr_retry = h->rnr,
		.sq_psn = psn, .max_rd_atomic = h->rd,
	};

	return ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

int to_state(struct ibv_qp *qp, enum ibv_qp_state s)
{
	struct ibv_qp_attr a = { .qp_state = s };

	return ibv_modify_qp(qp, &a, IBV_QP_STATE);
}

void connect_qp(struct ibv_qp *qp, struct dev *d, const struct how *h, uint32_t psn, const struct addr *peer)
{
	MUST(to_init(qp, h));
	MUST(to_rtr(qp, d, h, peer));
	MUST(to_rts(qp, h, psn));
}

void end_connect(struct end *e, const struct addr *peer) { connect_qp(e->qp, e->d, &e->how, e->psn, peer); }

enum ibv_qp_state qp_state(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = { 0 };
	struct ibv_qp_init_attr i;

	MUST(ibv_query_qp(qp, &a, IBV_QP_STATE, &i));
	return a.qp_state;
}

void await_state(struct ibv_qp *qp, enum ibv_qp_state s)
{
	double t = 0;

	while (qp_state(qp) != s)
		CHECK(until(&t), "the queue pair is in state %d, not %d", qp_state(qp), s);
}

void pair_open2(struct pair *p, const struct how *a, const struct how *b)
{
	struct dev *d = dev_open();
	struct addr x, y;

	end_open(&p->a, d, a);
	end_open(&p->b, two_contexts() ? dev_open() : d, b);
	x = end_addr(&p->a);
	y = end_addr(&p->b);
	/* Both are ready to receive before either may send. */
	MUST(to_init(p->a.qp, a));
	MUST(to_init(p->b.qp, b));
	MUST(to_rtr(p->a.qp, p->a.d, a, &y));
	MUST(to_rtr(p->b.qp, p->b.d, b, &x));
	MUST(to_rts(p->a.qp, a, p->a.psn));
	MUST(to_rts(p->b.qp, b, p->b.psn));
}

void pair_open(struct pair *p, const struct how *h) { pair_open2(p, h, h); }

void pair_close(struct pair *p)
{
	struct dev *d = p->a.d, *e = p->b.d;

	end_close(&p->a);
	end_close(&p->b);
	dev_close(d);
	if (e != d)
		dev_close(e);
}

/* Work requests. */

struct ibv_send_wr wr_of(const struct op *o)
{
	struct ibv_send_wr w = {
		.wr_id = o->id, .sg_list = (struct ibv_sge *)o->sg, .num_sge = o->n, .opcode = o->opcode,
		.send_flags = o->flags, .imm_data = o->imm,
	};

	if (o->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || o->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		w.wr.atomic.remote_addr = o->raddr;
		w.wr.atomic.rkey = o->rkey;
		w.wr.atomic.compare_add = o->add;
		w.wr.atomic.swap = o->swap;
	} else {
		w.wr.rdma.remote_addr = o->raddr;
		w.wr.rdma.rkey = o->rkey;
	}
	return w;
}

int try_post(struct ibv_qp *qp, const struct op *o)
{
	struct ibv_send_wr w = wr_of(o), *bad = NULL;
	int rc = ibv_post_send(qp, &w, &bad);

	CHECK(rc == 0 || bad == &w || !soft(), "ibv_post_send fails with %d and does not say which request is bad", rc);
	return rc;
}

int try_recv(struct ibv_qp *qp, uint64_t id, const struct ibv_sge *sg, int n)
{
	struct ibv_recv_wr w = { .wr_id = id, .sg_list = (struct ibv_sge *)sg, .num_sge = n }, *bad = NULL;
	int rc = ibv_post_recv(qp, &w, &bad);

	CHECK(rc == 0 || bad == &w || !soft(), "ibv_post_recv fails with %d and does not say which request is bad", rc);
	return rc;
}

int try_srq(struct ibv_srq *srq, uint64_t id, const struct ibv_sge *sg, int n)
{
	struct ibv_recv_wr w = { .wr_id = id, .sg_list = (struct ibv_sge *)sg, .num_sge = n }, *bad = NULL;
	int rc = ibv_post_srq_recv(srq, &w, &bad);

	CHECK(rc == 0 || bad == &w || !soft(), "ibv_post_srq_recv fails with %d and does not say which request is bad", rc);
	return rc;
}

int try_end_recv(struct end *e, uint64_t id, const struct ibv_sge *sg, int n)
{
	return e->srq ? try_srq(e->srq, id, sg, n) : try_recv(e->qp, id, sg, n);
}

void end_recv(struct end *e, uint64_t id, struct ibv_sge sg) { MUST(try_end_recv(e, id, &sg, 1)); }

/* Completions. */

struct ibv_wc next_wc_at(struct ibv_cq *cq, const char *file, int line)
{
	struct ibv_wc w;
	double t = 0;
	int n;

	while ((n = ibv_poll_cq(cq, 1, &w)) == 0)
		if (!until(&t))
			fail_at(file, line, "no completion within %g s", patience());
	if (n != 1)
		fail_at(file, line, "ibv_poll_cq: %d", n);
	return w;
}

struct ibv_wc expect_at(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status s, const char *file, int line)
{
	struct ibv_wc w = next_wc_at(cq, file, line);

	if (w.wr_id != id || w.status != s)
		fail_at(file, line, "completion of %llu: %s; expected %llu: %s", (unsigned long long)w.wr_id,
			ibv_wc_status_str(w.status), (unsigned long long)id, ibv_wc_status_str(s));
	return w;
}

struct ibv_wc done_at(struct ibv_cq *cq, uint64_t id, enum ibv_wc_opcode op, const char *file, int line)
{
	struct ibv_wc w = expect_at(cq, id, IBV_WC_SUCCESS, file, line);

	if (w.opcode != op)
		fail_at(file, line, "completion of %llu has opcode %d, not %d", (unsigned long long)id, w.opcode, op);
	return w;
}

void quiet_at(struct ibv_cq *cq, double seconds, const char *file, int line)
{
	double end = now() + seconds;
	struct ibv_wc w;

	do {
		int n = ibv_poll_cq(cq, 1, &w);

		if (n)
			fail_at(file, line, "a completion too many: %d, %llu: %s", n,
				n > 0 ? (unsigned long long)w.wr_id : 0, n > 0 ? ibv_wc_status_str(w.status) : "");
		nap(500e-6);
	} while (now() < end);
}

/* Events. */

bool readable(int fd, double seconds)
{
	struct pollfd p = { fd, POLLIN, 0 };

	return poll(&p, 1, (int)(1000 * seconds)) == 1;
}

/* Events of other kinds that hardware may add, as of the path, are acknowledged and passed over. */
struct ibv_async_event next_event(struct ibv_context *ctx, enum ibv_event_type want)
{
	struct ibv_async_event e;

	for (int i = 0; i < 64; i++) {
		CHECK(readable(ctx->async_fd, patience()), "no event \"%s\"", ibv_event_type_str(want));
		MUST(ibv_get_async_event(ctx, &e));
		ibv_ack_async_event(&e);
		if (e.event_type == want)
			return e;
	}
	FAIL("64 events and none is \"%s\"", ibv_event_type_str(want));
}

void no_event(struct ibv_context *ctx, double seconds)
{
	struct ibv_async_event e;

	if (!readable(ctx->async_fd, seconds))
		return;
	MUST(ibv_get_async_event(ctx, &e));
	FAIL("an event too many: %s", ibv_event_type_str(e.event_type));
}

/* The extra calls of the software HCA, which a real libibverbs has not. */

uint64_t counter(struct ibv_context *ctx, const char *name)
{
	uint64_t (*fn)(struct ibv_context *, const char *) = NULL;

	*(void **)&fn = dlsym(RTLD_DEFAULT, "softhca_counter");
	CHECK(fn, "softhca_counter is not exported");
	return fn(ctx, name);
}

int inject(struct ibv_context *ctx, const char *what)
{
	int (*fn)(struct ibv_context *, const char *) = NULL;

	*(void **)&fn = dlsym(RTLD_DEFAULT, "softhca_inject");
	CHECK(fn, "softhca_inject is not exported");
	return fn(ctx, what);
}
