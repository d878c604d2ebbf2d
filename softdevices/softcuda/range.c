/* The table of the ranges that the driver knows, by address. No two overlap. */
#include "memory.h"

#include <stdlib.h>
#include <string.h>

static struct range **table;
static size_t n, room;

/* The number of ranges that begin at addr or below. */
static size_t below(uint64_t addr)
{
	size_t lo = 0, hi = n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (table[mid]->start <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* The range that addr is in, or NULL. */
struct range *range_at(uint64_t addr)
{
	size_t i = below(addr);

	return i && addr - table[i - 1]->start < table[i - 1]->size ? table[i - 1] : NULL;
}

/* The range that all n bytes are in, or NULL. */
struct range *range_holding(uint64_t addr, uint64_t bytes)
{
	struct range *r = range_at(addr);

	return r && bytes <= r->size - (addr - r->start) ? r : NULL;
}

/* The first range that begins at addr or above, or NULL. */
struct range *range_next(uint64_t addr)
{
	size_t i = addr ? below(addr - 1) : 0;

	return i < n ? table[i] : NULL;
}

bool range_overlaps(uint64_t addr, uint64_t bytes)
{
	struct range *next = range_next(addr);

	return range_at(addr) || (next && next->start - addr < bytes);
}

struct range *range_new(enum kind kind, uint64_t start, uint64_t size, struct ctx *ctx, int device)
{
	struct range *r = calloc(1, sizeof(*r));
	size_t i = below(start);

	if (r && n == room) {
		struct range **more = realloc(table, (room * 2 + 64) * sizeof(*table));

		if (!more)
			return free(r), NULL;
		table = more;
		room = room * 2 + 64;
	}
	if (!r)
		return NULL;
	*r = (struct range){ .start = start, .size = size, .kind = kind, .id = lib.next_id++, .ctx = ctx, .device = device };
	memmove(table + i + 1, table + i, (n - i) * sizeof(*table));
	table[i] = r;
	n++;
	return r;
}

/* Takes r out of the table and gives its store back; its addresses are the caller's. */
void range_free(struct range *r)
{
	size_t i = below(r->start) - 1;

	memmove(table + i, table + i + 1, (n - i - 1) * sizeof(*table));
	n--;
	store_unref(r->store);
	free(r);
}

bool is_device(const struct range *r)
{
	return r && r->kind != HOST_ALLOCATED && r->kind != HOST_REGISTERED;
}
