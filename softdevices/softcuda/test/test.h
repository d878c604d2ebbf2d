/*
 * The kit of the test programs for a libcuda.so.1: its functions by dlopen, answers as text, two processes.
 *
 * The programs are written from the documents of the driver API and know nothing of softcuda, except where they say so.
 * They open the library that the variable CUDA_LIB names, else libcuda.so.1, so they run on a real GPU as well.
 */
#ifndef SOFTCUDA_TEST_H
#define SOFTCUDA_TEST_H

#define _GNU_SOURCE

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef unsigned long long ptr;
typedef struct { char bytes[64]; } ipc_handle;

struct prop {
	int type, handle_types, location_type, location;
	void *win32;
	unsigned char compression, gpu_direct_rdma;
	unsigned short usage;
	unsigned char reserved[4];
};

struct access {
	int location_type, location, flags;
};

/* The functions that the programs call: name here, name in the library, arguments. */
#define CALLS(X)                                                                                                    \
	X(cuInit, cuInit, (unsigned))                                                                               \
	X(cuGetErrorName, cuGetErrorName, (int, const char **))                                                     \
	X(cuDeviceGetAttribute, cuDeviceGetAttribute, (int *, int, int))                                            \
	X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (void **, int))                                       \
	X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (int))                                           \
	X(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, (int, unsigned *, int *))                         \
	X(cuCtxSetCurrent, cuCtxSetCurrent, (void *))                                                               \
	X(cuCtxGetCurrent, cuCtxGetCurrent, (void **))                                                              \
	X(cuCtxPushCurrent, cuCtxPushCurrent_v2, (void *))                                                          \
	X(cuCtxPopCurrent, cuCtxPopCurrent_v2, (void **))                                                           \
	X(cuCtxSynchronize, cuCtxSynchronize, (void))                                                               \
	X(cuMemAlloc, cuMemAlloc_v2, (ptr *, size_t))                                                               \
	X(cuMemFree, cuMemFree_v2, (ptr))                                                                           \
	X(cuMemAllocAsync, cuMemAllocAsync, (ptr *, size_t, void *))                                                \
	X(cuMemFreeAsync, cuMemFreeAsync, (ptr, void *))                                                            \
	X(cuMemAllocManaged, cuMemAllocManaged, (ptr *, size_t, unsigned))                                          \
	X(cuMemGetInfo, cuMemGetInfo_v2, (size_t *, size_t *))                                                      \
	X(cuMemGetAddressRange, cuMemGetAddressRange_v2, (ptr *, size_t *, ptr))                                    \
	X(cuMemHostAlloc, cuMemHostAlloc, (void **, size_t, unsigned))                                              \
	X(cuMemFreeHost, cuMemFreeHost, (void *))                                                                   \
	X(cuMemHostRegister, cuMemHostRegister_v2, (void *, size_t, unsigned))                                      \
	X(cuMemHostUnregister, cuMemHostUnregister, (void *))                                                       \
	X(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2, (ptr *, void *, unsigned))                       \
	X(cuMemcpyHtoD, cuMemcpyHtoD_v2, (ptr, const void *, size_t))                                               \
	X(cuMemcpyDtoH, cuMemcpyDtoH_v2, (void *, ptr, size_t))                                                     \
	X(cuMemcpyDtoD, cuMemcpyDtoD_v2, (ptr, ptr, size_t))                                                        \
	X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, (void *, ptr, size_t, void *))                                   \
	X(cuMemcpyAsync, cuMemcpyAsync, (ptr, ptr, size_t, void *))                                                 \
	X(cuMemsetD8, cuMemsetD8_v2, (ptr, unsigned char, size_t))                                                  \
	X(cuStreamCreate, cuStreamCreate, (void **, unsigned))                                                      \
	X(cuStreamDestroy, cuStreamDestroy_v2, (void *))                                                            \
	X(cuStreamQuery, cuStreamQuery, (void *))                                                                   \
	X(cuStreamSynchronize, cuStreamSynchronize, (void *))                                                       \
	X(cuStreamWaitEvent, cuStreamWaitEvent, (void *, void *, unsigned))                                         \
	X(cuEventCreate, cuEventCreate, (void **, unsigned))                                                        \
	X(cuEventDestroy, cuEventDestroy_v2, (void *))                                                              \
	X(cuEventRecord, cuEventRecord, (void *, void *))                                                           \
	X(cuEventQuery, cuEventQuery, (void *))                                                                     \
	X(cuEventSynchronize, cuEventSynchronize, (void *))                                                         \
	X(cuLaunchHostFunc, cuLaunchHostFunc, (void *, void (*)(void *), void *))                                   \
	X(cuPointerGetAttribute, cuPointerGetAttribute, (void *, int, ptr))                                         \
	X(cuPointerGetAttributes, cuPointerGetAttributes, (unsigned, int *, void **, ptr))                          \
	X(cuPointerSetAttribute, cuPointerSetAttribute, (const void *, int, ptr))                                   \
	X(cuIpcGetMemHandle, cuIpcGetMemHandle, (ipc_handle *, ptr))                                                \
	X(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2, (ptr *, ipc_handle, unsigned))                                 \
	X(cuIpcCloseMemHandle, cuIpcCloseMemHandle, (ptr))                                                          \
	X(cuMemCreate, cuMemCreate, (ptr *, size_t, const struct prop *, unsigned long long))                       \
	X(cuMemRelease, cuMemRelease, (ptr))                                                                        \
	X(cuMemAddressReserve, cuMemAddressReserve, (ptr *, size_t, size_t, ptr, unsigned long long))               \
	X(cuMemAddressFree, cuMemAddressFree, (ptr, size_t))                                                        \
	X(cuMemMap, cuMemMap, (ptr, size_t, size_t, ptr, unsigned long long))                                       \
	X(cuMemUnmap, cuMemUnmap, (ptr, size_t))                                                                    \
	X(cuMemSetAccess, cuMemSetAccess, (ptr, size_t, const struct access *, size_t))                             \
	X(cuMemExportToShareableHandle, cuMemExportToShareableHandle, (void *, ptr, int, unsigned long long))       \
	X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, (ptr *, void *, int))                     \
	X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, (ptr *, void *))                                \
	X(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, (size_t *, const struct prop *, int))       \
	X(cuMemGetHandleForAddressRange, cuMemGetHandleForAddressRange, (void *, ptr, size_t, int, unsigned long long)) \
	X(cuFlushGPUDirectRDMAWrites, cuFlushGPUDirectRDMAWrites, (int, int))

#define X(name, symbol, args) extern int(*name) args;
CALLS(X)
#undef X

void *library(void);			/* opened by load */
void load(void);			/* all functions, cuInit */
void start(void);			/* load, and the primary context of device 0 is current */
const char *res(int r);			/* "ok", or "201 INVALID_CONTEXT"; eight of them at a time */
void must(int r, const char *what);	/* ends the process unless r is 0 */
bool vmm_make(ptr *p, ptr *handle, size_t size, bool rdma); /* created, reserved, mapped, accessible */

#define MUST(call) must(call, #call)

/* Two processes: two() forks, before CUDA is started, and says which one this is. tell and hear are their socket. */
extern const char *side;		/* "A" or "B" */
void two(void);
void tell(const void *data, size_t n);
bool hear(void *data, size_t n);	/* false: the peer has ended */
void tell_fd(int fd);
int hear_fd(void);
void join(void);			/* A waits for B's end */

#endif
