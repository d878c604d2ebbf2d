/* The engine of the process: its lock, ready work, and timers. loop.c has its thread. */
#include "base.h"

#include <time.h>
#include <unistd.h>

struct engine engine = {
	.mu = PTHREAD_MUTEX_INITIALIZER,
	.cond = PTHREAD_COND_INITIALIZER,
	.doorbell_mu = PTHREAD_MUTEX_INITIALIZER,
	.ready = { &engine.ready, &engine.ready },
	.ports = { &engine.ports, &engine.ports },
	.timers = { &engine.timers, &engine.timers },
	.local = { &engine.local, &engine.local },
};

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* In turn: a control verb waits for one round of the HCA thread, however busy that is. */
void engine_lock(void)
{
	uint64_t mine;

	pthread_mutex_lock(&engine.mu);
	mine = engine.ticket++;
	while (engine.serving != mine)
		pthread_cond_wait(&engine.cond, &engine.mu);
	pthread_mutex_unlock(&engine.mu);
}

void engine_unlock(void)
{
	pthread_mutex_lock(&engine.mu);
	engine.serving++;
	if (engine.serving != engine.ticket)
		pthread_cond_broadcast(&engine.cond);
	pthread_mutex_unlock(&engine.mu);
}

void engine_wake(void)
{
	uint64_t one = 1;

	while (write(engine.doorbell_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

/* Tells the HCA thread that there is something to do. From any thread. */
void ring_doorbell(struct work *w)
{
	bool sleeping = false;

	pthread_mutex_lock(&engine.doorbell_mu);
	if (!w->queued) {
		w->queued = true;
		list_add_tail(&engine.ready, &w->link);
		sleeping = engine.sleeping;
		engine.sleeping = false;
	}
	pthread_mutex_unlock(&engine.doorbell_mu);
	if (sleeping)
		engine_wake();
}

void work_cancel(struct work *w)
{
	pthread_mutex_lock(&engine.doorbell_mu);
	if (w->queued)
		list_del(&w->link);
	w->queued = false;
	pthread_mutex_unlock(&engine.doorbell_mu);
}

struct work *work_next(void)
{
	struct work *w = NULL;

	pthread_mutex_lock(&engine.doorbell_mu);
	if (!list_empty(&engine.ready)) {
		struct list *l = engine.ready.next;

		/* A seed decides which of the first few is next. */
		for (uint64_t n = engine.seeded ? next_random(&engine.rng) % 4 : 0; n && l->next != &engine.ready; n--)
			l = l->next;
		w = container_of(l, struct work, link);
		list_del(&w->link);
		w->queued = false;
	}
	pthread_mutex_unlock(&engine.doorbell_mu);
	return w;
}

/* Whether no work is ready: then the thread may sleep, and the next doorbell wakes it. */
bool work_none(void)
{
	bool ok;

	pthread_mutex_lock(&engine.doorbell_mu);
	ok = engine.sleeping = list_empty(&engine.ready);
	pthread_mutex_unlock(&engine.doorbell_mu);
	return ok;
}

void timer_arm(struct timer *t, uint64_t at)
{
	t->at = at;
	list_del(&t->link);
	list_add_tail(&engine.timers, &t->link);
}

void timer_stop(struct timer *t)
{
	list_del(&t->link);
}

unsigned timers_run(void)
{
	struct list due, *l, *tmp;
	uint64_t now;
	unsigned n = 0;

	if (list_empty(&engine.timers))
		return 0;
	now = now_ns();
	list_init(&due);
	list_for_each(l, tmp, &engine.timers) {
		if (container_of(l, struct timer, link)->at > now)
			continue;
		list_del(l);
		list_add_tail(&due, l);
	}
	while (!list_empty(&due)) {
		struct timer *t = container_of(due.next, struct timer, link);

		list_del(&t->link);
		t->fire(t);
		n++;
	}
	return n;
}

/* Nanoseconds until the next timer; UINT64_MAX: none. */
uint64_t timers_until(void)
{
	uint64_t at = UINT64_MAX, now;
	struct list *l, *tmp;

	list_for_each(l, tmp, &engine.timers)
		at = MIN(at, container_of(l, struct timer, link)->at);
	if (at == UINT64_MAX)
		return at;
	now = now_ns();
	return at <= now ? 0 : at - now;
}
