/* Queues of events behind a descriptor: of a completion channel, and the asynchronous ones of a context. */
#include "queues.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct event {
	struct list link;
	void *element;
	int type;
};

int events_open(struct event_queue *q)
{
	pthread_mutex_init(&q->mu, NULL);
	list_init(&q->events);
	q->fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	return q->fd < 0 ? errno : 0;
}

void events_close(struct event_queue *q)
{
	struct list *l, *tmp;

	list_for_each(l, tmp, &q->events)
		free(container_of(l, struct event, link));
	close(q->fd);
	pthread_mutex_destroy(&q->mu);
}

void events_put(struct event_queue *q, void *element, int type)
{
	struct event *e = malloc(sizeof(*e));
	uint64_t one = 1;

	if (!e)
		return;
	e->element = element;
	e->type = type;
	pthread_mutex_lock(&q->mu);
	list_add_tail(&q->events, &e->link);
	/* Cannot block: the counter ends at 2^64. */
	while (write(q->fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
	pthread_mutex_unlock(&q->mu);
}

/*
 * The next event; waits for it unless the program has made the descriptor non-blocking. taken is called under the
 * queue's lock. -1 with errno set otherwise. A token may turn out to have no event any more, if its element is
 * destroyed between the two.
 */
int events_get(struct event_queue *q, void **element, int *type, void (*taken)(void *element, int type))
{
	for (;;) {
		struct event *e = NULL;
		uint64_t one;

		if (read(q->fd, &one, sizeof(one)) != (ssize_t)sizeof(one))
			return -1;
		pthread_mutex_lock(&q->mu);
		if (!list_empty(&q->events)) {
			e = container_of(q->events.next, struct event, link);
			list_del(&e->link);
			taken(e->element, e->type);
		}
		pthread_mutex_unlock(&q->mu);
		if (!e)
			continue;
		*element = e->element;
		*type = e->type;
		free(e);
		return 0;
	}
}

/*
 * Takes a token if there is one. The descriptor may be a blocking one and others may read it, so it needs a read that
 * never waits.
 */
static void drop_token(struct event_queue *q)
{
	uint64_t one;
	struct iovec iov = { &one, sizeof(one) };
	struct pollfd p = { .fd = q->fd, .events = POLLIN };

	if (preadv2(q->fd, &iov, 1, -1, RWF_NOWAIT) >= 0 || errno != EOPNOTSUPP)
		return;
	if (poll(&p, 1, 0) == 1 && read(q->fd, &one, sizeof(one)) < 0)
		return; /* an old kernel: as good as it can be */
}

/* Removes the events of an element that is being destroyed, so that the descriptor announces none that is not there. */
void events_forget(struct event_queue *q, void *element)
{
	struct list *l, *tmp;

	pthread_mutex_lock(&q->mu);
	list_for_each(l, tmp, &q->events) {
		struct event *e = container_of(l, struct event, link);

		if (e->element == element) {
			list_del(&e->link);
			free(e);
			drop_token(q);
		}
	}
	pthread_mutex_unlock(&q->mu);
}

void async_event(struct hca_ctx *ctx, enum ibv_event_type type, void *element)
{
	count(ctx, C_async_events, 1);
	debug(ctx, "event: %s", ibv_event_type_str(type));
	events_put(&ctx->async, element, (int)type);
}

/* An event of each port: its element is the port's number. */
void async_port_event(struct hca_ctx *ctx, enum ibv_event_type type)
{
	for (uintptr_t port = 1; port <= port_count(ctx); port++)
		async_event(ctx, type, (void *)port);
}

static uint32_t *async_taken(void *element, int type)
{
	switch ((enum ibv_event_type)type) {
	case IBV_EVENT_CQ_ERR:
		return &((struct hca_cq *)element)->async_taken;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return &((struct hca_qp *)element)->async_taken;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return &((struct hca_srq *)element)->async_taken;
	default:
		return NULL;
	}
}

static void note_taken(void *element, int type)
{
	uint32_t *n = async_taken(element, type);

	if (n)
		++*n;
}

EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	void *element;
	int type;

	if (events_get(&to_ctx(context)->async, &element, &type, note_taken))
		return -1;
	memset(event, 0, sizeof(*event));
	event->event_type = (enum ibv_event_type)type;
	if (async_taken(element, type))
		event->element.qp = element;
	else
		event->element.port_num = (int)(uintptr_t)element; /* 0: the event is of the device */
	return 0;
}

EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	struct hca_ctx *ctx;
	uint32_t *acked;

	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		ctx = to_ctx(event->element.cq->context);
		acked = &event->element.cq->async_events_completed;
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		ctx = to_ctx(event->element.srq->context);
		acked = &event->element.srq->events_completed;
		break;
	default:
		if (!async_taken(event->element.qp, event->event_type))
			return;
		ctx = to_ctx(event->element.qp->context);
		acked = &event->element.qp->events_completed;
	}
	pthread_mutex_lock(&ctx->ack_mu);
	++*acked;
	pthread_cond_broadcast(&ctx->ack_cond);
	pthread_mutex_unlock(&ctx->ack_mu);
}

/* Waits until all events that were handed out are acknowledged. No new ones come: the element is out of the engine. */
void async_wait_acked(struct hca_ctx *ctx, uint32_t *taken, uint32_t *acked)
{
	pthread_mutex_lock(&ctx->ack_mu);
	while (*acked != *taken)
		pthread_cond_wait(&ctx->ack_cond, &ctx->ack_mu);
	pthread_mutex_unlock(&ctx->ack_mu);
}
