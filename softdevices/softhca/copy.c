/*
 * How bytes move. Always by process_vm_readv where that works, in this process as well: memory that a program has
 * unmapped under a registration is then an error and no SIGSEGV. (A real device holds the pages, so it is no SIGSEGV
 * there either.)
 */
#include "wire.h"

struct cursor {
	struct iovec v[MAX_SGE + 4];
	unsigned n, at;
};

/* The first len bytes of iov. */
static void cursor_set(struct cursor *c, const struct iovec *iov, unsigned n, uint64_t len)
{
	c->n = c->at = 0;
	for (unsigned i = 0; i < n && len; i++) {
		if (!iov[i].iov_len)
			continue;
		c->v[c->n] = iov[i];
		c->v[c->n].iov_len = MIN(iov[i].iov_len, len);
		len -= c->v[c->n++].iov_len;
	}
}

static void cursor_skip(struct cursor *c, size_t n)
{
	while (n) {
		struct iovec *v = &c->v[c->at];
		size_t k = MIN(n, v->iov_len);

		v->iov_base = (char *)v->iov_base + k;
		v->iov_len -= k;
		n -= k;
		if (!v->iov_len)
			c->at++;
	}
}

static void copy_plain(struct cursor *d, struct cursor *s)
{
	while (d->at < d->n && s->at < s->n) {
		size_t k = MIN(d->v[d->at].iov_len, s->v[s->at].iov_len);

		memcpy(d->v[d->at].iov_base, s->v[s->at].iov_base, k);
		cursor_skip(d, k);
		cursor_skip(s, k);
	}
}

/* The memory could not be read: because it was given back, or because it is not there though it should be. */
static int why_not(int pid, uint64_t gen_addr, uint32_t gen)
{
	uint32_t seen = gen;
	struct iovec dst = { &seen, sizeof(seen) }, src = { (void *)(uintptr_t)gen_addr, sizeof(seen) };

	if (gen_addr && process_vm_readv(pid, &dst, 1, &src, 1, 0) == sizeof(seen) && seen != gen)
		return ESTALE;
	return EFAULT;
}

/*
 * Copies len bytes from the memory of a process. If gen_addr is set, the word there is read after the data and must
 * be gen: otherwise the memory was given back meanwhile and what was read may be anything. 0, EFAULT, ESRCH (no such
 * process) or ESTALE.
 */
int copy_pull(int pid, const struct iovec *dst, unsigned ndst, const struct iovec *src, unsigned nsrc, uint64_t len,
	      uint64_t gen_addr, uint32_t gen)
{
	struct cursor d, s;
	uint32_t seen = gen;

	cursor_set(&d, dst, ndst, len);
	cursor_set(&s, src, nsrc, len);
	if (gen_addr) {
		d.v[d.n++] = (struct iovec){ &seen, sizeof(seen) };
		s.v[s.n++] = (struct iovec){ (void *)(uintptr_t)gen_addr, sizeof(seen) };
	}
	if (pid == engine.pid && !engine.reads_self) {
		copy_plain(&d, &s);
		return seen == gen ? 0 : ESTALE;
	}
	while (d.at < d.n) {
		ssize_t n = process_vm_readv(pid, d.v + d.at, d.n - d.at, s.v + s.at, s.n - s.at, 0);

		if (n <= 0)
			return n && errno != EFAULT && errno != ENOMEM ? ESRCH : why_not(pid, gen_addr, gen);
		cursor_skip(&d, (size_t)n);
		cursor_skip(&s, (size_t)n);
	}
	return seen == gen ? 0 : ESTALE;
}

/* Whether our memory is at fault when a copy has failed. */
bool copy_is_ours(const struct iovec *iov, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		char c;
		struct iovec to = { &c, 1 }, first = { iov[i].iov_base, 1 };
		struct iovec last = { (char *)iov[i].iov_base + iov[i].iov_len - 1, 1 };

		if (iov[i].iov_len && (copy_local(&to, 1, &first, 1, 1) || copy_local(&to, 1, &last, 1, 1)))
			return true;
	}
	return false;
}

int copy_local(const struct iovec *dst, unsigned ndst, const struct iovec *src, unsigned nsrc, uint64_t len)
{
	return copy_pull(engine.pid, dst, ndst, src, nsrc, len, 0, 0);
}
