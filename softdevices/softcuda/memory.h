/* Layer memory: where device memory is, and the table of what the driver knows. */
#ifndef MEMORY_H
#define MEMORY_H

#include "base.h"

/* space.c */
bool space_reserve(void);
uint64_t space_take(uint64_t size, uint64_t align);
void space_give(uint64_t addr, uint64_t size);
bool space_open(uint64_t addr, uint64_t size, int fd);
void space_close(uint64_t addr, uint64_t size);
uint64_t round_up(uint64_t n, uint64_t to);

/* store.c */
struct store *store_new(int device, uint64_t size);
struct store *store_of_fd(int fd, uint64_t size);
struct store *store_ref(struct store *s);
void store_unref(struct store *s);
bool store_shadow(struct store *s);
void store_wrote(struct store *s, uint64_t offset, uint64_t n);
void store_flush(int device);
int fd_high(int fd);

/* range.c */
struct range *range_at(uint64_t addr);
struct range *range_holding(uint64_t addr, uint64_t n);
bool range_overlaps(uint64_t addr, uint64_t n);
struct range *range_new(enum kind kind, uint64_t start, uint64_t size, struct ctx *ctx, int device);
void range_free(struct range *r);
struct range *range_next(uint64_t addr);
bool is_device(const struct range *r);

/* alloc.c */
bool charge(int device, uint64_t size);
void refund(int device, uint64_t size);
CUresult allocate(struct ctx *c, enum kind kind, uint64_t size, struct range **out);
CUresult import(struct ctx *c, int device, int fd, uint64_t whole, uint64_t offset, uint64_t size, struct range **out);
void release(struct range *r);
void release_of(struct ctx *c);

#endif
