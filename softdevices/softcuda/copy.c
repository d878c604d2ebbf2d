/*
 * What an operation does to bytes. No lock is held.
 *
 * The kernel copies to and from host memory, by read and write on the memfd of the device's memory: so an address that
 * is not mapped is an error, and does not kill the process.
 */
#include "exec.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 64 << 10 };

static bool host_to_fd(int fd, uint64_t offset, uint64_t from, uint64_t n)
{
	while (n) {
		ssize_t put = pwrite(fd, (void *)(uintptr_t)from, n, (off_t)offset);

		if (put <= 0)
			return false;
		offset += (uint64_t)put;
		from += (uint64_t)put;
		n -= (uint64_t)put;
	}
	return true;
}

static bool fd_to_host(int fd, uint64_t offset, uint64_t to, uint64_t n)
{
	while (n) {
		ssize_t got = pread(fd, (void *)(uintptr_t)to, n, (off_t)offset);

		if (got <= 0)
			return false;
		offset += (uint64_t)got;
		to += (uint64_t)got;
		n -= (uint64_t)got;
	}
	return true;
}

/* Reads memory of the program that may not be there. */
bool host_read(int scratch, char *to, uint64_t from, uint64_t n)
{
	for (uint64_t at = 0; at < n; at += PIECE) {
		uint64_t piece = n - at < PIECE ? n - at : PIECE;

		if (!host_to_fd(scratch, 0, from + at, piece) || !fd_to_host(scratch, 0, (uintptr_t)to + at, piece))
			return false;
	}
	return true;
}

static bool copy_piece(const struct op *o, uint64_t at, uint64_t n)
{
	uint64_t to = o->dst.offset + at, from = o->src.offset + at;
	char bounce[PIECE];

	if (o->dst.store) {
		if (o->staged)
			memcpy(o->dst.store->alias + to, o->staged + at, n);
		else if (o->src.store)
			memmove(o->dst.store->alias + to, o->src.store->alias + from, n);
		else if (!host_to_fd(o->dst.store->fd, to, from, n))
			return false;
		store_wrote(o->dst.store, to, n);
		return true;
	}
	if (o->src.store)
		return fd_to_host(o->src.store->fd, from, to, n);
	return host_read(o->stream->ctx->scratch, bounce, from, n) &&
	       host_to_fd(o->stream->ctx->scratch, 0, (uintptr_t)bounce, n) &&
	       fd_to_host(o->stream->ctx->scratch, 0, to, n);
}

/* In pieces; with a seed, half of the copies begin at the end, and others get the processor in between. */
static bool copy(const struct op *o)
{
	bool backwards = lib.knobs.seeded && next_random(&o->stream->ctx->rng) & 1;
	uint64_t pieces = (o->n + PIECE - 1) / PIECE;

	for (uint64_t i = 0; i < pieces; i++) {
		uint64_t at = (backwards ? pieces - 1 - i : i) * PIECE, n = o->n - at < PIECE ? o->n - at : PIECE;

		if (!copy_piece(o, at, n))
			return false;
		if (lib.knobs.seeded)
			sched_yield();
	}
	return true;
}

static bool set(const struct op *o)
{
	char filled[PIECE];

	for (uint64_t i = 0; i < PIECE; i += o->width)
		memcpy(filled + i, &o->pattern, o->width);
	for (uint64_t at = 0; at < o->n; at += PIECE) {
		uint64_t n = o->n - at < PIECE ? o->n - at : PIECE, to = o->dst.offset + at;

		if (o->dst.store) {
			memcpy(o->dst.store->alias + to, filled, n);
			store_wrote(o->dst.store, to, n);
		} else if (!host_to_fd(o->stream->ctx->scratch, 0, (uintptr_t)filled, n) ||
			   !fd_to_host(o->stream->ctx->scratch, 0, to, n)) {
			return false;
		}
	}
	return true;
}

CUresult op_run(struct op *o)
{
	bool ok = o->kind == OP_COPY ? copy(o) : o->kind == OP_SET ? set(o) : true;

	return ok ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}
