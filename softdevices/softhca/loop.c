/*
 * The thread of the engine: it hands each event, packet, work and timer to its layer. And the start and the end of the
 * thread, with the first and the last port of the process.
 */
#include "verbs.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Serialises opening and closing. Taken before the engine's lock, as the thread is joined under it. */
static pthread_mutex_t open_mu = PTHREAD_MUTEX_INITIALIZER;

/* Kernels before 5.11 have epoll_wait only, which counts in milliseconds. */
static int wait_events(struct epoll_event *ev, int n, uint64_t ns)
{
	struct timespec t = { .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u) };
	int got = -1;

	errno = ENOSYS;
#ifdef SYS_epoll_pwait2
	got = (int)syscall(SYS_epoll_pwait2, engine.epfd, ev, n, ns == UINT64_MAX ? NULL : &t, NULL, 0);
#endif
	if (got < 0 && errno == ENOSYS)
		got = epoll_wait(engine.epfd, ev, n, ns == UINT64_MAX ? -1 : (int)MIN((ns + 999999) / 1000000, 60000u));
	return MAX(got, 0);
}

/* Whether both are in one partition, at least one of them as a full member. */
static bool same_partition(const struct hca_qp *qp, uint16_t theirs)
{
	uint16_t ours = qp->ctx->knobs.pkeys[qp->pkey_index];

	return !((ours ^ theirs) & 0x7fff) && (ours | theirs) & 0x8000;
}

/* Whether SOFTHCA_DROP_FROM loses a packet. The longest packet of a message has the path's MTU. */
static bool in_hole(const struct hca_qp *qp, const struct pkt_head *h)
{
	bool data = h->op == PKT_SEND || h->op == PKT_WRITE || h->op == PKT_READ_OK;
	int64_t longest = data ? (int64_t)MIN(h->len, 128ull << qp->path_mtu) : 0;

	for (unsigned i = 0; i < qp->ctx->knobs.nholes; i++)
		if (qp->ctx->knobs.holes[i].subnet == h->subnet && longest > qp->ctx->knobs.holes[i].bytes)
			return true;
	return false;
}

/* Why the fabric or the port does not pass a request to a queue pair; NULL: it does. */
static const char *not_passed(const struct hca_qp *qp, const struct pkt_head *h)
{
	bool grh = h->flags & PKT_GRH, v2 = h->flags & PKT_V2;

	if (!same_partition(qp, h->pkey))
		return "it is of another partition";
	if (h->dlid != port_lid(qp->ctx, qp->port_num))
		return "it has come to another port";
	if (!grh && qp->ctx->knobs.mode == MODE_VF)
		return "it has no GRH, which says for which function it is";
	if (!grh && h->subnet != qp->ctx->knobs.subnet)
		return "it is of another subnet and has no GRH";
	if (v2 != (qp->av.grh.sgid_index & 1))
		return "one side has RoCE v1 and the other RoCE v2";
	return NULL;
}

/* A packet for a port of this process that has arrived. Owns it. */
static void arrive(struct pkt *p)
{
	struct hca_ctx *ctx = p->h.dlid < LIDS ? engine.by_lid[p->h.dlid] : NULL;
	bool request = p->h.op >= PKT_SEND && p->h.op <= PKT_ATOMIC_SWAP;
	const char *why;
	struct hca_qp *qp;

	if (ctx && ctx->paused) {
		list_add_tail(&ctx->held, &p->link);
		return;
	}
	qp = ctx && !ctx->port_down ? qp_find(ctx, p->h.dqpn) : NULL;
	why = qp && request ? not_passed(qp, &p->h) : NULL;
	if (why) {
		debug(ctx, "a request for QP %u is lost: %s", p->h.dqpn, why);
		qp = NULL;
	}
	if (qp && p->h.op != PKT_GONE && in_hole(qp, &p->h)) {
		count(ctx, C_dropped, 1);
		if (request)
			qp = NULL;
		else
			p->h.op = PKT_GONE; /* the requester waits, and asks again */
	}
	if (qp && request)
		responder_request(qp, p);
	else if (qp)
		requester_response(qp, p);
	else if (request)
		respond(NULL, p, PKT_GONE, 0);
	free(p);
}

static const struct wire_upcalls upcalls = { .arrive = arrive, .conn_gone = requester_conn_gone };

static unsigned run_local(unsigned budget)
{
	unsigned n = 0;

	while (n < budget && !list_empty(&engine.local)) {
		struct pkt *p = container_of(engine.local.next, struct pkt, link);

		list_del(&p->link);
		arrive(p);
		n++;
	}
	return n;
}

static unsigned run_events(struct epoll_event *ev, int n)
{
	unsigned done = 0;

	for (int i = 0; i < n; i++) {
		uint64_t tag = ev[i].data.u64;

		if (tag == 0) {
			uint64_t drop;

			if (read(engine.doorbell_fd, &drop, sizeof(drop)) < 0)
				continue;
		} else if (tag & 1) {
			wire_accept((int)(tag >> 1));
		} else {
			wire_event((struct conn *)(uintptr_t)tag, ev[i].events);
		}
		done++;
	}
	return done;
}

/* One round. The count of what was done; 0: there is nothing to do. */
static unsigned round_once(struct epoll_event *ev, int nev)
{
	unsigned n = run_events(ev, nev);
	struct work *w;

	for (int i = 0; i < 16 && (w = work_next()); i++, n++)
		w->run(w);
	n += run_local(64);
	n += timers_run();
	return n;
}

static void *engine_main(void *arg)
{
	struct epoll_event ev[32];
	int nev = 0;

	(void)arg;
	prctl(PR_SET_NAME, "softhca");
	for (;;) {
		uint64_t wait;
		unsigned did;

		engine_lock();
		did = round_once(ev, nev);
		if (!list_empty(&engine.local))
			did++;
		wait = did ? 0 : timers_until();
		if (engine.stop) {
			engine_unlock();
			return NULL;
		}
		engine_unlock();
		if (wait && !work_none())
			wait = 0;
		nev = wait_events(ev, 32, wait);
	}
}

static int thread_start(void)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&engine.thread, NULL, engine_main, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return err;
}

static int engine_start(const struct knobs *k)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = 0 };
	int err;

	wire_init(&upcalls);
	engine.pid = getpid();
	engine.rng = now_ns() ^ (uint64_t)engine.pid << 32;
	engine.stop = engine.sleeping = false;
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* only Yama knows it; else an error that does not matter */
	engine.may_readv = k->readv;
	engine.reads_self = wire_self_test();
	engine.dirfd = dir_open(k->dir);
	if (engine.dirfd < 0)
		return errno;
	engine.epfd = epoll_create1(EPOLL_CLOEXEC);
	engine.doorbell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (engine.epfd < 0 || engine.doorbell_fd < 0 || epoll_ctl(engine.epfd, EPOLL_CTL_ADD, engine.doorbell_fd, &ev) ||
	    (errno = thread_start())) {
		err = errno;
		close(engine.epfd);
		close(engine.doorbell_fd);
		close(engine.dirfd);
		return err;
	}
	snprintf(engine.dir, sizeof(engine.dir), "%s", k->dir);
	engine.running = true;
	return 0;
}

/* The last port is gone. */
static void engine_stop(void)
{
	engine_lock();
	engine.stop = true;
	engine_unlock();
	engine_wake();
	pthread_join(engine.thread, NULL);
	wire_close_all();
	while (!list_empty(&engine.local)) {
		struct pkt *p = container_of(engine.local.next, struct pkt, link);

		list_del(&p->link);
		free(p);
	}
	slots_close();
	close(engine.epfd);
	close(engine.doorbell_fd);
	engine.running = false;
	engine.seeded = false;
}

/* A child of fork has its parent's memory but not its thread, and must not keep its LIDs: it starts anew. */
static void after_fork(void)
{
	pthread_mutex_init(&engine.mu, NULL);
	pthread_cond_init(&engine.cond, NULL);
	pthread_mutex_init(&engine.doorbell_mu, NULL);
	pthread_mutex_init(&open_mu, NULL);
	engine.ticket = engine.serving = 0;
	if (!engine.running)
		return;
	engine.pid = -1; /* so that nothing named is removed */
	wire_close_all();
	slots_close();
	close(engine.epfd);
	close(engine.doorbell_fd);
	list_init(&engine.ready);
	list_init(&engine.ports);
	list_init(&engine.timers);
	list_init(&engine.local);
	memset(engine.by_lid, 0, sizeof(engine.by_lid));
	engine.running = false;
}

static int take_lids(struct hca_ctx *ctx)
{
	int err = slots_take_lid(&ctx->lid);

	if (err)
		return err;
	engine.by_lid[ctx->lid] = ctx;
	if (port_count(ctx) < 2)
		return 0;
	err = slots_take_lid(&ctx->lid2);
	engine.by_lid[err ? ctx->lid : ctx->lid2] = err ? NULL : ctx;
	return err;
}

int engine_attach(struct hca_ctx *ctx)
{
	static bool watching_fork;
	int err = 0;

	pthread_mutex_lock(&open_mu);
	if (!watching_fork) {
		pthread_atfork(NULL, NULL, after_fork);
		watching_fork = true;
	}
	if (!engine.running)
		err = engine_start(&ctx->knobs);
	else if (strcmp(engine.dir, ctx->knobs.dir))
		err = EBUSY; /* device.c says why */
	if (!err) {
		engine_lock();
		err = take_lids(ctx);
		if (!err) {
			list_add_tail(&engine.ports, &ctx->link);
			ctx->rng = ctx->knobs.seeded ? ctx->knobs.seed ^ (uint64_t)ctx->lid << 40 : engine.rng ^ ctx->lid;
			if (ctx->knobs.seeded) {
				engine.seeded = true;
				engine.rng = ctx->knobs.seed;
			}
		}
		engine_unlock();
		if (err && list_empty(&engine.ports))
			engine_stop();
	}
	pthread_mutex_unlock(&open_mu);
	return err;
}

void engine_detach(struct hca_ctx *ctx)
{
	bool last;

	pthread_mutex_lock(&open_mu);
	if (engine.by_lid[ctx->lid] != ctx) { /* a child of fork, which has lost it */
		pthread_mutex_unlock(&open_mu);
		return;
	}
	engine_lock();
	qp_detach_all(ctx);
	tm_detach_all(ctx);
	mr_detach_all(ctx);
	list_del(&ctx->link);
	engine.by_lid[ctx->lid] = NULL;
	if (ctx->lid2)
		engine.by_lid[ctx->lid2] = NULL;
	while (!list_empty(&ctx->held)) {
		struct pkt *p = container_of(ctx->held.next, struct pkt, link);

		list_del(&p->link);
		free(p);
	}
	slots_drop_lid(ctx->lid);
	if (ctx->lid2)
		slots_drop_lid(ctx->lid2);
	last = list_empty(&engine.ports);
	engine_unlock();
	if (last)
		engine_stop();
	pthread_mutex_unlock(&open_mu);
}
