/* Layer exec: devices, contexts, streams, and the threads that do what is put on streams. */
#ifndef EXEC_H
#define EXEC_H

#include "memory.h"

/* thread.c */
bool thread_start(pthread_t *t, const char *name, void *(*run)(void *), void *arg);

/* copy.c */
CUresult op_run(struct op *o);
bool host_read(int scratch, char *to, uint64_t from, uint64_t n);

/* engine.c */
void submit(struct stream *s, struct op *o);
CUresult submit_wait(struct stream *s, struct op *o);
void complete(struct op *o, CUresult r);
void stream_idle(struct stream *s);
void ctx_idle(struct ctx *c);
bool engine_start(struct ctx *c);
void engine_stop(struct ctx *c);
void stream_drop(struct stream *s);
void mark_unref(struct mark *m);

/* context.c */
CUresult current(struct ctx **out);
struct ctx *ctx_find(CUcontext c);
CUresult ctx_start(struct ctx *c);
bool device_ok(int device);

/* stream.c */
CUresult stream_find(CUstream s, struct stream **out);

#endif
