/* A port's random numbers, injected failures, slow calls, and reports on stderr. Every part uses them. */
#include "base.h"

#include <endian.h>
#include <stdarg.h>
#include <stdio.h>

#define PREFIX 0xfe80000000000000u

unsigned port_count(const struct hca_ctx *ctx)
{
	return ctx->knobs.mode == MODE_TWO_PORTS ? 2 : 1;
}

uint16_t port_lid(const struct hca_ctx *ctx, unsigned port)
{
	return port == 2 ? ctx->lid2 : ctx->lid;
}

/*
 * The GIDs of a port. Over Ethernet the table is as the kernel fills it: the link-local address and an IPv4 address,
 * each as RoCE v1 (even) and as RoCE v2 (odd).
 */
bool port_gid(const struct hca_ctx *ctx, unsigned port, unsigned index, union ibv_gid *gid)
{
	uint16_t lid = port_lid(ctx, port);

	if (!port || port > port_count(ctx) || index >= (ctx->knobs.mode == MODE_ROCE ? GIDS_ROCE : 1))
		return false;
	memset(gid, 0, sizeof(*gid));
	if (index < 2) {
		gid->global.subnet_prefix = htobe64(PREFIX | ctx->knobs.subnet);
		gid->global.interface_id = htobe64(GUID | lid);
	} else {
		gid->global.interface_id = htobe64(0xffff0a000000u | lid); /* ::ffff:10.0.x.x */
	}
	return true;
}

/* The LID of the port that has a GID; 0: no port has it. */
uint16_t gid_lid(const union ibv_gid *gid)
{
	uint64_t id = be64toh(gid->global.interface_id);

	if (gid->global.subnet_prefix ? (id & ~0xffffull) == GUID : (id & ~0xffffull) == 0xffff0a000000u)
		return (uint16_t)id;
	return 0;
}

/* Says on stderr why a verb is refused or a request fails, if SOFTHCA_DEBUG=1. */
void debug(struct hca_ctx *ctx, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	if (!ctx->knobs.debug)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "softhca: lid %u: %s\n", ctx->lid, text);
}

/* Whether the operation that is about to happen is the one that SOFTHCA_FAIL names. */
bool fail_now(struct hca_ctx *ctx, enum fail_kind kind)
{
	return ++ctx->seen[kind] == ctx->knobs.fail[kind];
}

/* Calls that a test makes slow wait here. The condition is shared by all ports of the process. */
static pthread_mutex_t hold_mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t hold_over = PTHREAD_COND_INITIALIZER;

void hold(struct hca_ctx *ctx, enum hold what, uint64_t from)
{
	atomic_store(&ctx->hold_from[what], from);
}

void hold_release(struct hca_ctx *ctx, enum hold what)
{
	pthread_mutex_lock(&hold_mu);
	atomic_store(&ctx->hold_from[what], 0);
	pthread_cond_broadcast(&hold_over);
	pthread_mutex_unlock(&hold_mu);
}

static bool is_held(struct hca_ctx *ctx, enum hold what, uint64_t bytes)
{
	uint64_t from = atomic_load(&ctx->hold_from[what]);

	return from && bytes >= from;
}

/* Returns when a call of so many bytes is not held. The caller holds no lock. */
void hold_await(struct hca_ctx *ctx, enum hold what, uint64_t bytes)
{
	static const enum counter held[HOLDS] = { C_held_registrations, C_held_deregistrations,
						   C_held_creations, C_held_destructions };

	if (!is_held(ctx, what, bytes))
		return;
	count(ctx, held[what], 1);
	pthread_mutex_lock(&hold_mu);
	while (is_held(ctx, what, bytes))
		pthread_cond_wait(&hold_over, &hold_mu);
	pthread_mutex_unlock(&hold_mu);
	count(ctx, held[what], (uint64_t)-1);
}

uint64_t next_random(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15u);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

bool chance(struct hca_ctx *ctx, unsigned per_thousand)
{
	return per_thousand && next_random(&ctx->rng) % 1000 < per_thousand;
}
