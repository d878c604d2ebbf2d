/*
 * The functions of libsofthca.so that are no verbs. Find them by dlsym: the real libibverbs does not have them.
 */
#ifndef SOFTHCA_H
#define SOFTHCA_H

#include <stdint.h>

struct ibv_context;

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The value of a counter of this context since it was opened, UINT64_MAX for a name that does not exist. README.md
 * has the names.
 */
uint64_t softhca_counter(struct ibv_context *context, const char *name);

/*
 * Makes something happen to the device; README.md has the words. 0, or EINVAL for anything else, ENOENT for a queue pair
 * that is not there.
 */
int softhca_inject(struct ibv_context *context, const char *what);

#ifdef __cplusplus
}
#endif

#endif
