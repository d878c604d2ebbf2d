/* The functions of softhca.h: counters, and injected events. */
#include "verbs.h"

#include <stdlib.h>

EXPORT uint64_t softhca_counter(struct ibv_context *context, const char *name)
{
	static const char *const names[COUNTER_COUNT] = {
#define X(n) #n,
		COUNTERS(X)
#undef X
	};

	for (int i = 0; i < COUNTER_COUNT; i++)
		if (!strcmp(names[i], name))
			return atomic_load(&to_ctx(context)->counters[i]);
	return UINT64_MAX;
}

static void each_qp(struct hca_ctx *ctx, void (*f)(struct hca_qp *qp))
{
	struct list *l, *tmp;

	list_for_each(l, tmp, &ctx->qps)
		f(container_of(l, struct hca_qp, link));
}

static void ring(struct hca_qp *qp)
{
	ring_doorbell(&qp->work);
}

static void fatal(struct hca_ctx *ctx)
{
	if (ctx->fatal)
		return;
	ctx->fatal = ctx->port_down = true;
	for (int i = 0; i < HOLDS; i++)
		hold_release(ctx, (enum hold)i);
	async_event(ctx, IBV_EVENT_DEVICE_FATAL, NULL);
	each_qp(ctx, qp_error);
}

static void port(struct hca_ctx *ctx, bool down)
{
	if (ctx->port_down == down || ctx->fatal)
		return;
	ctx->port_down = down;
	async_port_event(ctx, down ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE);
}

/* Port 1 gets another LID, and the GIDs that contain it. What comes to the old one is lost. */
static int readdress(struct hca_ctx *ctx, enum ibv_event_type type)
{
	uint16_t lid;
	int err = slots_take_lid(&lid);

	if (err)
		return err;
	engine.by_lid[lid] = ctx;
	engine.by_lid[ctx->lid] = NULL;
	ctx->lid = lid;
	async_port_event(ctx, type);
	return 0;
}

/* The events by which a device tells of another address. */
static int change(struct hca_ctx *ctx, const char *what)
{
	static const struct {
		const char *name;
		enum ibv_event_type type;
	} events[] = {
		{ "lid_change", IBV_EVENT_LID_CHANGE },
		{ "gid_change", IBV_EVENT_GID_CHANGE },
		{ "sm_change", IBV_EVENT_SM_CHANGE },
		{ "client_reregister", IBV_EVENT_CLIENT_REREGISTER },
	};

	for (unsigned i = 0; i < sizeof(events) / sizeof(*events); i++)
		if (!strcmp(what, events[i].name))
			return readdress(ctx, events[i].type);
	return EINVAL;
}

static int pkey_change(struct hca_ctx *ctx, const char *keys)
{
	struct knobs k = ctx->knobs;

	if (knobs_pkeys(&k, "pkey_change", keys))
		return EINVAL;
	memset(ctx->knobs.pkeys, 0, sizeof(ctx->knobs.pkeys));
	memcpy(ctx->knobs.pkeys, k.pkeys, k.npkeys * sizeof(*k.pkeys));
	ctx->knobs.npkeys = k.npkeys;
	async_port_event(ctx, IBV_EVENT_PKEY_CHANGE);
	return 0;
}

static void resume(struct hca_ctx *ctx)
{
	ctx->paused = false;
	while (!list_empty(&ctx->held)) {
		struct list *l = ctx->held.next;

		list_del(l);
		deliver(container_of(l, struct pkt, link));
	}
	each_qp(ctx, ring);
	tm_resume(ctx);
}

static int qp_fatal(struct hca_ctx *ctx, const char *qpn)
{
	char *end;
	unsigned long n = strtoul(qpn, &end, 0);
	struct hca_qp *qp;

	if (!*qpn || *end)
		return EINVAL;
	qp = qp_find(ctx, (uint32_t)n);
	if (!qp)
		return ENOENT;
	async_event(ctx, IBV_EVENT_QP_FATAL, qp);
	qp_error(qp);
	return 0;
}

/* what: registrations:BYTES or deregistrations:BYTES, and creations or destructions; in the end without the bytes. */
static int slow(struct hca_ctx *ctx, const char *what, bool begins)
{
	static const char *const kinds[HOLDS] = { "registrations", "deregistrations", "creations", "destructions" };
	const char *colon = strchrnul(what, ':');
	int i = 0;
	unsigned long n = 1;
	char *end = "";

	while (i < HOLDS && (strlen(kinds[i]) != (size_t)(colon - what) || strncmp(what, kinds[i], strlen(kinds[i]))))
		i++;
	if (*colon)
		n = strtoul(colon + 1, &end, 10);
	if (i == HOLDS || !n || *end || (*colon != 0) != (begins && i < HOLD_CREATIONS))
		return EINVAL;
	if (begins)
		hold(ctx, (enum hold)i, n);
	else
		hold_release(ctx, (enum hold)i);
	return 0;
}

static void all_cqs_fail(struct hca_ctx *ctx)
{
	struct list *l, *tmp;

	list_for_each(l, tmp, &ctx->cqs)
		cq_fail(container_of(l, struct hca_cq, link));
}

static int inject(struct hca_ctx *ctx, const char *what)
{
	if (!strcmp(what, "device_fatal"))
		fatal(ctx);
	else if (!strcmp(what, "port_err"))
		port(ctx, true);
	else if (!strcmp(what, "port_active"))
		port(ctx, false);
	else if (!strncmp(what, "qp_fatal:", 9))
		return qp_fatal(ctx, what + 9);
	else if (!strncmp(what, "pkey_change:", 12))
		return pkey_change(ctx, what + 12);
	else if (!strcmp(what, "lose"))
		ctx->lose = true;
	else if (!strcmp(what, "cq_err"))
		all_cqs_fail(ctx);
	else if (!strcmp(what, "polls_fail"))
		atomic_store(&ctx->polls_fail, true);
	else if (!strcmp(what, "pause"))
		ctx->paused = true;
	else if (!strcmp(what, "resume"))
		resume(ctx);
	else if (!strncmp(what, "hold_", 5))
		return slow(ctx, what + 5, true);
	else if (!strncmp(what, "release_", 8))
		return slow(ctx, what + 8, false);
	else
		return change(ctx, what);
	return 0;
}

EXPORT int softhca_inject(struct ibv_context *context, const char *what)
{
	int err;

	engine_lock();
	err = inject(to_ctx(context), what);
	engine_unlock();
	return err;
}
