/*
 * The addresses of the device: one range of this process that nothing may touch. A slot is GRANULARITY bytes. The
 * lowest free place is taken, so an address that was given back is used again at once.
 */
#include "memory.h"

#include <sys/mman.h>

#define SLOTS (128u << 10) /* 256 GiB of addresses */

static char *base;
static unsigned char used[SLOTS];

uint64_t round_up(uint64_t n, uint64_t to)
{
	return (n + to - 1) / to * to;
}

static bool closed(uint64_t addr, uint64_t size)
{
	return mmap((void *)(uintptr_t)addr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
		    -1, 0) != MAP_FAILED;
}

bool space_reserve(void)
{
	uint64_t size = (uint64_t)SLOTS * GRANULARITY;
	char *p = mmap(NULL, size + GRANULARITY, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return false;
	base = (char *)(uintptr_t)round_up((uintptr_t)p, GRANULARITY);
	return true;
}

/* 0: there is no place. */
uint64_t space_take(uint64_t size, uint64_t align)
{
	uint64_t n = round_up(size, GRANULARITY) / GRANULARITY, run = 0;

	if (!n || n > SLOTS)
		return 0;
	for (uint64_t i = 0; i < SLOTS; i++) {
		if (!run && ((uintptr_t)base + i * GRANULARITY) % (align ? align : 1))
			continue;
		run = used[i] ? 0 : run + 1;
		if (run < n)
			continue;
		for (uint64_t k = i + 1 - n; k <= i; k++)
			used[k] = 1;
		return (uintptr_t)base + (i + 1 - n) * GRANULARITY;
	}
	return 0;
}

void space_give(uint64_t addr, uint64_t size)
{
	uint64_t i = (addr - (uintptr_t)base) / GRANULARITY, n = round_up(size, GRANULARITY) / GRANULARITY;

	while (n--)
		used[i++] = 0;
}

/* Lets the CPU use a place that was taken: memory of its own, or that of fd. */
bool space_open(uint64_t addr, uint64_t size, int fd)
{
	int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;

	return mmap((void *)(uintptr_t)addr, size, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0) != MAP_FAILED;
}

void space_close(uint64_t addr, uint64_t size)
{
	if (!closed(addr, round_up(size, PAGE)))
		report("the CPU can still touch %#llx: %m", (unsigned long long)addr);
}
