/*
 * The driver's binary interface, as far as softcuda has it: types, numbers and structures, written down from the
 * documents of CUDA's driver API. The names without prefix are as in the documents.
 */
#ifndef ABI_H
#define ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RESULTS(X)                                                                                                  \
	X(SUCCESS, 0, "no error")                                                                                   \
	X(INVALID_VALUE, 1, "invalid argument")                                                                     \
	X(OUT_OF_MEMORY, 2, "out of memory")                                                                        \
	X(NOT_INITIALIZED, 3, "initialization error")                                                               \
	X(DEINITIALIZED, 4, "driver shutting down")                                                                 \
	X(NO_DEVICE, 100, "no CUDA-capable device is detected")                                                     \
	X(INVALID_DEVICE, 101, "invalid device ordinal")                                                            \
	X(INVALID_CONTEXT, 201, "invalid device context")                                                           \
	X(PEER_ACCESS_UNSUPPORTED, 217, "peer access is not supported between these two devices")                   \
	X(OPERATING_SYSTEM, 304, "OS call failed or operation not supported on this OS")                            \
	X(INVALID_HANDLE, 400, "invalid resource handle")                                                           \
	X(NOT_FOUND, 500, "named symbol not found")                                                                 \
	X(NOT_READY, 600, "device not ready")                                                                       \
	X(ILLEGAL_ADDRESS, 700, "an illegal memory access was encountered")                                         \
	X(PEER_ACCESS_ALREADY_ENABLED, 704, "peer access is already enabled")                                       \
	X(PEER_ACCESS_NOT_ENABLED, 705, "peer access has not been enabled")                                         \
	X(CONTEXT_IS_DESTROYED, 709, "context is destroyed")                                                        \
	X(HOST_MEMORY_ALREADY_REGISTERED, 712, "part or all of the requested memory range is already mapped")       \
	X(HOST_MEMORY_NOT_REGISTERED, 713, "pointer does not correspond to a registered memory region")             \
	X(LAUNCH_FAILED, 719, "unspecified launch failure")                                                         \
	X(NOT_PERMITTED, 800, "operation not permitted")                                                            \
	X(NOT_SUPPORTED, 801, "operation not supported")                                                            \
	X(UNKNOWN, 999, "unknown error")

typedef enum {
#define X(name, number, text) CUDA_ERROR_##name = number,
	RESULTS(X)
#undef X
	CUDA_SUCCESS = 0,
} CUresult;

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct ctx *CUcontext;
typedef struct stream *CUstream;
typedef struct event *CUevent;
typedef struct { char bytes[16]; } CUuuid;
typedef struct { char reserved[64]; } CUipcMemHandle;
typedef void (*CUhostFn)(void *);

enum {
	MEMORYTYPE_HOST = 1,
	MEMORYTYPE_DEVICE = 2,

	DEVICEPTR_NO_DEVICE = -2, /* CU_DEVICE_INVALID */

	STREAM_NON_BLOCKING = 1,
	STREAM_LEGACY = 1, /* as a handle */
	STREAM_PER_THREAD = 2,

	IPC_LAZY_ENABLE_PEER_ACCESS = 1,

	HOSTREGISTER_PORTABLE = 1,
	HOSTREGISTER_DEVICEMAP = 2,
	HOSTREGISTER_IOMEMORY = 4,
	HOSTREGISTER_READ_ONLY = 8,

	ALLOCATION_PINNED = 1,
	LOCATION_DEVICE = 1,
	HANDLE_POSIX_FD = 1,
	HANDLE_FABRIC = 8,
	ACCESS_READ = 1,
	ACCESS_READWRITE = 3,

	RANGE_DMA_BUF_FD = 1, /* CUmemRangeHandleType */

	FLUSH_CURRENT_CTX = 0,
	FLUSH_TO_OWNER = 100,
	FLUSH_TO_ALL_DEVICES = 200,
};

enum attribute {
	POINTER_CONTEXT = 1,
	POINTER_MEMORY_TYPE = 2,
	POINTER_DEVICE_POINTER = 3,
	POINTER_HOST_POINTER = 4,
	POINTER_SYNC_MEMOPS = 6,
	POINTER_BUFFER_ID = 7,
	POINTER_IS_MANAGED = 8,
	POINTER_DEVICE_ORDINAL = 9,
	POINTER_IS_LEGACY_IPC_CAPABLE = 10,
	POINTER_RANGE_START = 11,
	POINTER_RANGE_SIZE = 12,
	POINTER_MAPPED = 13,
	POINTER_ALLOWED_HANDLE_TYPES = 14,
	POINTER_IS_GPU_DIRECT_RDMA_CAPABLE = 15,
	POINTER_ACCESS_FLAGS = 16,
	POINTER_MAPPING_SIZE = 18,
	POINTER_MAPPING_BASE = 19,
};

struct location {
	int type, id;
};

struct allocation_prop {
	int type, handle_types;
	struct location location;
	void *win32;
	struct {
		unsigned char compression, gpu_direct_rdma;
		unsigned short usage;
		unsigned char reserved[4];
	} flags;
};

struct access_desc {
	struct location location;
	int flags;
};

#endif
