/* A port's random numbers, injected failures, and reports on stderr. Every part uses them. */
#include "base.h"

#include <stdarg.h>
#include <stdio.h>

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
