#ifndef CUDA_SHIM_H
#define CUDA_SHIM_H

#include <stdint.h>

// The driver's calls, as package cuda makes them. A function returns 0, or fills f and returns -1. Unless it says
// otherwise it makes the primary context of its device current, does one thing, and makes it no longer current: a
// goroutine may be on another thread at its next call.

#define CA_ERR 512
#define CA_MAX_DEVICES 64
#define CA_IPC 64 // bytes of a CUipcMemHandle

struct ca_fail {
	const char *call;
	int32_t code;
};

struct ca_device {
	char name[128];
	char pci[32];
	uint64_t memory;
	uint64_t peers; // a bit for each device that it reaches directly
	int32_t dmabuf;
	int32_t unused;
};

struct ca_memory {
	uint64_t base, size, id;
	int32_t type; // 0: unknown; 1: of the host; 2: of a device
	int32_t managed, device, ipc;
};

struct ca_block {
	uint64_t addr, size;
	uint64_t handle; // of cuMemCreate; 0: made by cuMemAlloc
};

// ca_load opens the library; path "": that of the system. err has CA_ERR bytes.
int ca_load(const char *path, char *err);
// ca_init starts the driver and returns the number of devices, or -1. No context is made or used.
int ca_init(struct ca_fail *f);
// ca_error_name returns "" for a code that the driver does not know.
const char *ca_error_name(int code);
// ca_device makes and uses no context.
int ca_device(int device, struct ca_device *d, struct ca_fail *f);

// ca_query makes and uses no context.
int ca_query(uint64_t addr, struct ca_memory *m, struct ca_fail *f);
// ca_sync_memops: the driver's own copies to and from an allocation return when they are done.
int ca_sync_memops(int device, uint64_t addr, struct ca_fail *f);
int ca_alloc(int device, uint64_t n, struct ca_block *b, struct ca_fail *f);
int ca_free(int device, const struct ca_block *b, struct ca_fail *f);
// ca_export returns a descriptor of memory that has a handle.
int ca_export(uint64_t handle, struct ca_fail *f);
// ca_import maps the memory of a descriptor, which stays open. b->handle is 0.
int ca_import(int device, int fd, uint64_t size, struct ca_block *b, struct ca_fail *f);
// ca_unmap ends ca_import.
int ca_unmap(int device, const struct ca_block *b, struct ca_fail *f);
int ca_ipc_get(int device, uint64_t addr, unsigned char *handle, struct ca_fail *f);
int ca_ipc_open(int device, const unsigned char *handle, uint64_t *addr, struct ca_fail *f);
int ca_ipc_close(int device, uint64_t addr, struct ca_fail *f);

// ca_pin returns the device in whose context the memory was registered: that is for ca_unpin.
int ca_pin(void *p, uint64_t n, struct ca_fail *f);
int ca_unpin(int device, void *p, struct ca_fail *f);

// ca_copy returns the event, or 0.
uint64_t ca_copy(int device, uint64_t dst, uint64_t src, uint64_t n, struct ca_fail *f);
// ca_mark returns an event that ends with what is on the user's stream now, or 0.
uint64_t ca_mark(int device, uint64_t stream, struct ca_fail *f);
// ca_done returns 1 if the event has ended, 0 if it has not, and -1 if it has failed. After 1 and -1 the event is gone,
// and the copy does not run any more.
int ca_done(int device, uint64_t event, struct ca_fail *f);
// ca_drop gives up an event of ca_mark.
void ca_drop(int device, uint64_t event);
int ca_notify(int device, int fd, struct ca_fail *f);

// ca_dmabuf returns a descriptor.
int ca_dmabuf(int device, uint64_t addr, uint64_t n, struct ca_fail *f);
int ca_flush(int device, struct ca_fail *f);

// For tests, which stand for a user's program: any function of the library by its name, with the primary context of
// device current, or -1: without one, and a function for cuLaunchHostFunc that reads from a descriptor.
int ca_user_call(int device, const char *name, const uint64_t *args, struct ca_fail *f);
uint64_t ca_reader(void);

#endif
