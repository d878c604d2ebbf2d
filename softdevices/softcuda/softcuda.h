/*
 * The functions of libsoftcuda.so that the driver does not have. Find them by dlsym.
 */
#ifndef SOFTCUDA_H
#define SOFTCUDA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * What this process has now, one "NAME NUMBER" a line, without what there is none of. An empty text means that nothing
 * is left. Returns the length of the text, of which at most size - 1 bytes are stored.
 */
size_t softcuda_left(char *text, size_t size);

/* A count since cuInit, UINT64_MAX for a name that does not exist. README.md has the names. */
uint64_t softcuda_counter(const char *name);

/*
 * From now on the nth call of that name fails, as with SOFTCUDA_FAIL; 0: none does. This takes the place of what was
 * ordered before. *seen is how many calls of that name there have been since; NULL: that is not asked.
 */
void softcuda_fail(const char *call, uint64_t nth, uint64_t *seen);

/*
 * A descriptor for n bytes of device memory at addr, both multiples of 4096, for a software adapter that registers
 * addresses; -1: no allocation has all of them. README.md has its form.
 */
int softcuda_get_pages(uint64_t addr, uint64_t n);

#ifdef __cplusplus
}
#endif

#endif
