/*
 * The tags of a TM-SRQ: its entries, from the posting of their ADD until their last completion has been polled, and
 * the places of its list operations. tm.c has the operations.
 */
#include "queues.h"

#include <stdlib.h>

uint32_t tags_handle(const struct tm_entry *e)
{
	return (uint32_t)e->gen << 17 | e->index;
}

static void entry_free(struct tm_srq *tm, struct tm_entry *e)
{
	e->state = ENTRY_FREE;
	e->gen = (e->gen + 1) & 0x7fff;
	e->next_free = 0;
	if (tm->free_head)
		tm->table[tm->free_tail].next_free = e->index;
	else
		tm->free_head = e->index;
	tm->free_tail = e->index;
}

/* One completion of the entry has been polled. Under cq->mu. */
void tags_polled(struct tm_srq *tm, uint32_t index)
{
	struct tm_entry *e = &tm->table[index];

	pthread_mutex_lock(&tm->mu);
	if (!--e->pending && e->state == ENTRY_DONE)
		entry_free(tm, e);
	pthread_mutex_unlock(&tm->mu);
}

/* The completion of a signalled operation has been polled. Under cq->mu. */
void tags_op_polled(struct tm_srq *tm, uint32_t op_index)
{
	pthread_mutex_lock(&tm->mu);
	tm->ops_freed = op_index + 1;
	pthread_mutex_unlock(&tm->mu);
}

/* Takes an entry out of the list; so many completions will name it. */
void tags_consume(struct tm_srq *tm, struct tm_entry *e, unsigned completions)
{
	list_del(&e->link);
	tm->inactive -= !e->active;
	pthread_mutex_lock(&tm->mu);
	e->state = ENTRY_DONE;
	e->pending = (uint16_t)(e->pending + completions);
	if (!e->pending)
		entry_free(tm, e);
	pthread_mutex_unlock(&tm->mu);
}

/* The oldest active entry that a tag fits. */
struct tm_entry *tags_find(struct tm_srq *tm, uint64_t tag)
{
	struct list *l, *tmp;

	list_for_each(l, tmp, &tm->entries) {
		struct tm_entry *e = container_of(l, struct tm_entry, link);

		if (e->active && (tag & e->mask) == e->tag)
			return e;
	}
	return NULL;
}

/* A free entry, for an ADD that is posted; NULL: there is none. mu is held. */
struct tm_entry *tags_take(struct tm_srq *tm)
{
	struct tm_entry *e = &tm->table[tm->free_head];

	if (!tm->free_head)
		return NULL;
	tm->free_head = e->next_free;
	e->state = ENTRY_POSTED;
	return e;
}

/* The entry of a handle; NULL: it is not in the list, or not any more. */
struct tm_entry *tags_listed(struct tm_srq *tm, uint32_t handle)
{
	uint32_t i = handle & TAGS_INDEX;
	struct tm_entry *e = i && i <= tm->max_tags ? &tm->table[i] : NULL;
	bool listed;

	pthread_mutex_lock(&tm->mu);
	listed = e && e->state == ENTRY_LISTED && tags_handle(e) == handle;
	pthread_mutex_unlock(&tm->mu);
	return listed ? e : NULL;
}

struct tm_srq *tags_new(const struct ibv_tm_cap *cap)
{
	struct tm_srq *tm = calloc(1, sizeof(*tm));

	if (!tm)
		return NULL;
	tm->max_tags = cap->max_num_tags;
	tm->max_ops = cap->max_ops;
	tm->table = calloc(tm->max_tags + 1, sizeof(*tm->table));
	tm->ops = calloc(tm->max_ops, sizeof(*tm->ops));
	if (!tm->table || !tm->ops) {
		free(tm->table);
		free(tm->ops);
		free(tm);
		return NULL;
	}
	pthread_mutex_init(&tm->mu, NULL);
	list_init(&tm->entries);
	for (uint32_t i = 1; i <= tm->max_tags; i++) {
		tm->table[i].index = i;
		entry_free(tm, &tm->table[i]);
	}
	return tm;
}

void tags_free(struct tm_srq *tm)
{
	pthread_mutex_destroy(&tm->mu);
	free(tm->table);
	free(tm->ops);
	free(tm);
}
