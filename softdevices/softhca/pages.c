/*
 * SOFTHCA_PAGES=1: memory regions keep the physical pages that they had when they were registered, as on a real
 * device. A copy by virtual address reads what the program sees; a device reads the page that it was given, also
 * when the program has another at that address by now, after MADV_DONTNEED for example.
 *
 * The pages are pinned, by registering them with an io_uring that is used for nothing else: so the kernel neither moves
 * nor reuses them while the region exists, and a page with the same number is the same page. At every
 * access the numbers in /proc/self/pagemap are compared. If one has changed, the access goes to a place of its own:
 * reads there find poison, and writes there are lost.
 *
 * Needs io_uring, and CAP_SYS_ADMIN for the numbers. Only memory that may be written to can be registered then.
 */
#include "queues.h"

#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { POISON = 0xdb };

#define PIECE (1ull << 30)		 /* the most that one entry of an io_uring may have */
#define FRAME ((1ull << 55) - 1)	 /* in an entry of pagemap */
#define PRESENT (1ull << 63)

struct pages {
	int ring;	  /* holds the pins */
	int map;	  /* /proc/self/pagemap */
	uint64_t first;	  /* number of the first virtual page */
	uint64_t at, len; /* what is registered */
	uint8_t *astray;  /* where accesses to pages go that have been replaced; NULL before the first */
	size_t n;
	uint64_t frame[];
};

static uint64_t page_size(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* The entries of n virtual pages. */
static int read_map(int fd, uint64_t first, size_t n, uint64_t *out)
{
	char *to = (char *)out;
	size_t left = n * sizeof(*out);
	off_t at = (off_t)(first * sizeof(*out));

	while (left) {
		ssize_t got = pread(fd, to, left, at);

		if (got <= 0)
			return got ? errno : EIO;
		to += got;
		at += got;
		left -= (size_t)got;
	}
	return 0;
}

static int pin(int ring, uint64_t at, uint64_t len)
{
	unsigned n = (unsigned)((len + PIECE - 1) / PIECE);
	struct iovec *iov = calloc(n, sizeof(*iov));
	int err = 0;

	if (!iov)
		return ENOMEM;
	for (unsigned i = 0; i < n; i++)
		iov[i] = (struct iovec){ (void *)(uintptr_t)(at + i * PIECE), MIN(PIECE, len - i * PIECE) };
	if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, iov, n))
		err = errno;
	free(iov);
	return err;
}

void pages_unpin(struct pages *p)
{
	if (!p)
		return;
	if (p->ring >= 0) {
		/* Closing alone would leave the pins to a thread of the kernel, for later. */
		syscall(SYS_io_uring_register, p->ring, IORING_UNREGISTER_BUFFERS, NULL, 0);
		close(p->ring);
	}
	if (p->map >= 0)
		close(p->map);
	free(p->astray);
	free(p);
}

int pages_pin(struct pages **out, void *addr, size_t length)
{
	uint64_t size = page_size(), at = (uintptr_t)addr, first = at / size;
	size_t n = (size_t)((at + length - 1) / size - first + 1);
	struct io_uring_params params = { 0 };
	struct pages *p = calloc(1, sizeof(*p) + n * sizeof(p->frame[0]));
	int err = 0;

	if (!p)
		return ENOMEM;
	p->first = first;
	p->n = n;
	p->at = at;
	p->len = length;
	p->map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	p->ring = (int)syscall(SYS_io_uring_setup, 1, &params);
	if (p->map < 0 || p->ring < 0)
		err = errno;
	if (!err)
		err = pin(p->ring, at, length);
	if (!err)
		err = read_map(p->map, first, n, p->frame);
	for (size_t i = 0; i < n && !err; i++)
		if (!(p->frame[i] & PRESENT) || !(p->frame[i] & FRAME))
			err = EPERM; /* the number is 0 without the capability */
	if (err) {
		pages_unpin(p);
		return err;
	}
	*out = p;
	return 0;
}

/* The number of pages of an access that are not the registered ones any more. */
static size_t replaced(struct pages *p, uint64_t va, uint64_t len)
{
	uint64_t entries[512], size = page_size(), from = va / size, to = (va + len - 1) / size + 1;
	size_t bad = 0;

	while (from < to) {
		size_t n = (size_t)MIN(to - from, 512u);

		if (read_map(p->map, from, n, entries))
			return bad + 1;
		for (size_t i = 0; i < n; i++)
			bad += !(entries[i] & PRESENT) ||
			       ((entries[i] ^ p->frame[from - p->first + i]) & FRAME);
		from += n;
	}
	return bad;
}

/* Where the device finds what was at va. The engine lock is held. */
uint64_t pages_at(struct hca_ctx *ctx, struct pages *p, uint64_t va, uint64_t len)
{
	size_t bad;

	if (!len || !(bad = replaced(p, va, len)))
		return va;
	count(ctx, C_stale_pages, bad);
	debug(ctx, "%zu pages of %#llx+%llu are not those any more that were registered", bad, (unsigned long long)va,
	      (unsigned long long)len);
	if (!p->astray && !(p->astray = malloc(p->len)))
		abort(); /* the alternative is wrong data */
	memset(p->astray + (va - p->at), POISON, len);
	return (uintptr_t)p->astray + (va - p->at);
}

/* Whether this process can have that; else stderr has the reason. */
int pages_possible(void)
{
	struct pages *p = NULL;
	void *mem = mmap(NULL, page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int err = mem == MAP_FAILED ? errno : pages_pin(&p, mem, page_size());

	pages_unpin(p);
	if (mem != MAP_FAILED)
		munmap(mem, page_size());
	if (err)
		fprintf(stderr, "softhca: SOFTHCA_PAGES=1: %s: it needs CAP_SYS_ADMIN, which shows page frames, and io_uring\n",
			strerror(err));
	return err ? -1 : 0;
}
