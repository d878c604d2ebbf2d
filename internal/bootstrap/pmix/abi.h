// The types of the PMIx standard that we use, as they lie in memory.
#ifndef ABI_H
#define ABI_H
#include <stddef.h>
#include <stdint.h>

#define PX_BOOL 1
#define PX_UINT32 14
#define PX_BYTES 27
#define PX_GLOBAL 3
#define PX_WILDCARD 0xfffffffeu
#define PX_NOT_FOUND (-46)

struct px_proc {
	char nspace[256];
	uint32_t rank;
};

struct px_value {
	uint16_t type;
	union {
		_Bool flag;
		uint32_t number;
		struct { char *at; size_t size; } bytes;
		char room[24];
	} data __attribute__((aligned(8)));
};

struct px_info {
	char key[512];
	uint32_t flags;
	struct px_value value;
};

#endif
