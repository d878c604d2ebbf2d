/*
 * Sockets to other processes. The process that has requests connects; answers go back the same way. A greeting finds
 * out which side can read the other's memory: HELLO (where the connecting side has a number in its memory), WELCOME
 * (whether it could be read, and the same of the other side).
 */
#include "wire.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define BODY_MAX ((1u << 31) + 65536u) /* the longest message, and SGEs */

static struct list conns = { &conns, &conns };
static struct conn *by_slot[SLOTS];
static const struct wire_upcalls *upcalls;

void wire_init(const struct wire_upcalls *up)
{
	upcalls = up;
}

struct pkt *pkt_new(size_t size)
{
	struct pkt *p = malloc(sizeof(*p) + size);

	if (p) {
		list_init(&p->link);
		p->from = NULL;
		p->pid = 0;
	}
	return p;
}

/* Between ports of one process a packet only changes its list. It is handled later, not inside the work under way. */
void deliver(struct pkt *p)
{
	list_add_tail(&engine.local, &p->link);
}

static bool reads(int pid, uint64_t at, uint64_t want)
{
	uint64_t got = ~want;
	struct iovec dst = { &got, 8 }, src = { (void *)(uintptr_t)at, 8 };

	return pid > 0 && engine.may_readv && process_vm_readv(pid, &dst, 1, &src, 1, 0) == 8 && got == want;
}

bool wire_self_test(void)
{
	uint64_t magic = 0x736f66742d686361;

	return reads(getpid(), (uintptr_t)&magic, magic);
}

static int peer_pid(int fd)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) ? -1 : cred.pid;
}

static struct conn *conn_new(int fd, int slot)
{
	struct conn *c = calloc(1, sizeof(*c));
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = (uintptr_t)c };

	if (!c || epoll_ctl(engine.epfd, EPOLL_CTL_ADD, fd, &ev)) {
		free(c);
		close(fd);
		return NULL;
	}
	c->fd = fd;
	c->slot = slot;
	c->pid = peer_pid(fd);
	c->magic = next_random(&engine.rng);
	list_init(&c->out);
	list_init(&c->waiters);
	list_add_tail(&conns, &c->link);
	return c;
}

static void drop_queue(struct list *q, const struct conn *from)
{
	struct list *l, *tmp;

	list_for_each(l, tmp, q) {
		struct pkt *p = container_of(l, struct pkt, link);

		if (from && p->from != from)
			continue;
		list_del(&p->link);
		free(p);
	}
}

static void conn_free(struct conn *c)
{
	if (c->slot >= 0)
		by_slot[c->slot] = NULL;
	list_del(&c->link);
	drop_queue(&c->out, NULL);
	free(c->in);
	close(c->fd);
	free(c);
}

static void wake_waiters(struct conn *c)
{
	while (!list_empty(&c->waiters)) {
		struct conn_waiter *w = container_of(c->waiters.next, struct conn_waiter, link);

		list_del(&w->link);
		ring_doorbell(w->work);
	}
}

/* The other side is gone. */
static void conn_gone(struct conn *c)
{
	struct list *l, *tmp;

	list_for_each(l, tmp, &engine.ports)
		drop_queue(&container_of(l, struct hca_ctx, link)->held, c);
	drop_queue(&engine.local, c);
	if (c->slot >= 0) {
		by_slot[c->slot] = NULL; /* so that a retry connects anew */
		wake_waiters(c);
		upcalls->conn_gone(c);
		c->slot = -1;
	}
	conn_free(c);
}

void wire_close_all(void)
{
	while (!list_empty(&conns))
		conn_free(container_of(conns.next, struct conn, link));
}

/* The connection to the process of a LID; made if there is none, and then not yet READY. */
struct conn *wire_to(uint16_t lid)
{
	int slot = (lid - 1) / LIDS_PER_SLOT, fd;
	struct conn *c;
	struct pkt *p;

	if (!lid || slot >= SLOTS)
		return NULL;
	if (by_slot[slot])
		return by_slot[slot];
	fd = slots_connect(slot);
	if (fd < 0 || !(c = conn_new(fd, slot)))
		return NULL;
	by_slot[slot] = c;
	p = pkt_new(0);
	if (!p) {
		conn_free(c);
		return NULL;
	}
	p->h = (struct pkt_head){ .op = PKT_HELLO, .a = (uintptr_t)&c->magic, .b = c->magic };
	wire_send(c, p);
	return by_slot[slot];
}

static void want_out(struct conn *c, bool want)
{
	struct epoll_event ev = { .events = EPOLLIN | (want ? EPOLLOUT : 0), .data.u64 = (uintptr_t)c };

	if (c->want_out != want)
		epoll_ctl(engine.epfd, EPOLL_CTL_MOD, c->fd, &ev);
	c->want_out = want;
}

/* The rest of a packet into the socket. False if it does not take all of it. A broken socket is found by reading. */
static bool push(struct conn *c, struct pkt *p)
{
	size_t total = sizeof(p->h) + p->h.size;

	while (c->out_off < total) {
		bool head = c->out_off < sizeof(p->h);
		struct iovec iov[2] = {
			{ (char *)&p->h + c->out_off, head ? sizeof(p->h) - c->out_off : 0 },
			{ p->body + (head ? 0 : c->out_off - sizeof(p->h)),
			  p->h.size - (head ? 0 : c->out_off - sizeof(p->h)) },
		};
		struct msghdr m = { .msg_iov = head ? iov : iov + 1, .msg_iovlen = head ? 2 : 1 };
		ssize_t n = sendmsg(c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno != EAGAIN && errno != ENOBUFS;
		c->out_off += (size_t)n;
	}
	return true;
}

void wire_send(struct conn *c, struct pkt *p)
{
	if (list_empty(&c->out)) {
		c->out_off = 0;
		if (push(c, p)) {
			free(p);
			return;
		}
	}
	list_add_tail(&c->out, &p->link);
	want_out(c, true);
}

static void flush_out(struct conn *c)
{
	while (!list_empty(&c->out)) {
		struct pkt *p = container_of(c->out.next, struct pkt, link);

		if (!push(c, p))
			return;
		list_del(&p->link);
		free(p);
		c->out_off = 0;
	}
	want_out(c, false);
}

static void greet(struct conn *c, struct pkt *in)
{
	struct pkt *p = pkt_new(0);

	c->state = CONN_READY;
	if (!p)
		return;
	p->h = (struct pkt_head){ .op = PKT_WELCOME, .status = reads(c->pid, in->h.a, in->h.b),
				  .a = (uintptr_t)&c->magic, .b = c->magic };
	wire_send(c, p);
}

static void welcomed(struct conn *c, struct pkt *in)
{
	c->peer_reads = in->h.status;
	c->we_read = reads(c->pid, in->h.a, in->h.b);
	c->state = CONN_READY;
	wake_waiters(c);
}

static void incoming(struct conn *c, struct pkt *p)
{
	p->from = c;
	p->pid = c->pid;
	if (p->h.op == PKT_HELLO && c->slot < 0)
		greet(c, p);
	else if (p->h.op == PKT_WELCOME && c->slot >= 0)
		welcomed(c, p);
	else if (p->h.op >= PKT_SEND) {
		upcalls->arrive(p);
		return;
	}
	free(p);
}

/* One read; 1: something came, 0: nothing there, -1: the other side is gone. */
static int read_some(struct conn *c)
{
	bool head = c->in_got < sizeof(c->in_head);
	char *at = head ? (char *)&c->in_head + c->in_got : (char *)c->in->body + (c->in_got - sizeof(c->in_head));
	size_t want = head ? sizeof(c->in_head) - c->in_got : c->in_head.size - (c->in_got - sizeof(c->in_head));
	ssize_t n = recv(c->fd, at, want, MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	if (n == 0)
		return -1;
	c->in_got += (size_t)n;
	if (c->in_got == sizeof(c->in_head)) {
		if (c->in_head.size > BODY_MAX || !(c->in = pkt_new(c->in_head.size)))
			return -1;
		c->in->h = c->in_head;
	}
	if (c->in_got == sizeof(c->in_head) + c->in_head.size) {
		struct pkt *p = c->in;

		c->in = NULL;
		c->in_got = 0;
		incoming(c, p);
	}
	return 1;
}

void wire_event(struct conn *c, uint32_t events)
{
	int r = 1;

	if (events & EPOLLOUT)
		flush_out(c);
	if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
		return;
	for (int budget = 64; r > 0 && budget; budget--)
		r = read_some(c);
	if (r < 0)
		conn_gone(c);
}

void wire_accept(int listen_fd)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);
	int fd;

	while ((fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
		if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) || cred.uid != geteuid())
			close(fd);
		else
			conn_new(fd, -1);
	}
}
