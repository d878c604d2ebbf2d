/* cuGetProcAddress: functions by the names that the documents use, without a version in them. */
#include "calls.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* The newest form that a program of that version may have. */
static void *lookup(const char *name, int version)
{
	static void *self;
	char newer[80];
	Dl_info info;
	void *p;

	if (!self && dladdr((void *)(uintptr_t)&lookup, &info))
		self = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	if (!self || strncmp(name, "cu", 2) || strlen(name) > 70 || strstr(name, "_v"))
		return NULL;
	if (!strcmp(name, "cuCtxCreate") && version >= 11040)
		return NULL; /* it has other arguments then, and is not here */
	snprintf(newer, sizeof(newer), "%s_v2", name);
	if ((p = dlsym(self, newer)) && (version >= 12000 || strcmp(name, "cuGetProcAddress")))
		return p;
	return dlsym(self, name);
}

/* Both may be called before cuInit. */
EXPORT CUresult cuGetProcAddress_v2(const char *name, void **out, int version, unsigned long long flags, int *status)
{
	if (!name || !out || flags > 2)
		return CUDA_ERROR_INVALID_VALUE;
	*out = lookup(name, version);
	if (status)
		*status = *out ? 0 : 1;
	return *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult cuGetProcAddress(const char *name, void **out, int version, unsigned long long flags)
{
	return cuGetProcAddress_v2(name, out, version, flags, NULL);
}
