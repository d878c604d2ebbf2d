/* The driver and its devices. */
#include "exec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool device_ok(int device)
{
	return device >= 0 && (unsigned)device < lib.ndevices;
}

static void add_device(unsigned physical)
{
	unsigned pci = lib.knobs.pci[physical];

	lib.devices[lib.ndevices++] = (struct device){
		.physical = (int)physical, .domain = pci >> 16, .bus = pci >> 8 & 0xff, .slot = pci & 0xff,
	};
}

/* CUDA_VISIBLE_DEVICES=2,0 renumbers them; what follows a wrong number is not there. */
static void find_devices(void)
{
	const char *p = getenv("CUDA_VISIBLE_DEVICES");
	char *end;

	if (!p) {
		for (unsigned i = 0; i < lib.knobs.devices; i++)
			add_device(i);
		return;
	}
	while (lib.ndevices < MAX_DEVICES) {
		unsigned long n = strtoul(p, &end, 10);

		if (end == p || n >= lib.knobs.devices)
			return;
		add_device((unsigned)n);
		if (*end != ',')
			return;
		p = end + 1;
	}
}

static CUresult init(unsigned flags)
{
	CUresult r;

	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (lib.initialized)
		return CUDA_SUCCESS;
	if (knobs_read(&lib.knobs))
		return CUDA_ERROR_INVALID_VALUE;
	if ((r = fail_now("cuInit", CUDA_ERROR_UNKNOWN)))
		return r;
	if (!lib.knobs.devices)
		return CUDA_ERROR_NO_DEVICE;
	lib.ndevices = 0;
	find_devices();
	if (!lib.ndevices)
		return CUDA_ERROR_NO_DEVICE;
	if (!space_reserve())
		return CUDA_ERROR_OPERATING_SYSTEM;
	lib.rng = lib.knobs.seed;
	lib.initialized = true;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuInit(unsigned flags)
{
	if (atomic_load(&forked))
		return CUDA_ERROR_NOT_INITIALIZED;
	if (in_host_function)
		return CUDA_ERROR_NOT_PERMITTED;
	pthread_mutex_lock(&lib.mu);
	return end(init(flags));
}

/* Works before cuInit. */
EXPORT CUresult cuDriverGetVersion(int *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = 13000;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int *n)
{
	BEGIN(cuDeviceGetCount);
	if (!n)
		return end(CUDA_ERROR_INVALID_VALUE);
	*n = (int)lib.ndevices;
	return end(CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceGet(CUdevice *out, int ordinal)
{
	BEGIN(cuDeviceGet);
	if (!out)
		return end(CUDA_ERROR_INVALID_VALUE);
	if (!device_ok(ordinal))
		return end(CUDA_ERROR_INVALID_DEVICE);
	*out = ordinal;
	return end(CUDA_SUCCESS);
}

static CUresult text_of(char *out, int len, CUdevice d, const char *text)
{
	if (!out || len < 1)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_ok(d))
		return CUDA_ERROR_INVALID_DEVICE;
	snprintf(out, (size_t)len, "%s", text);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetName(char *name, int len, CUdevice d)
{
	BEGIN(cuDeviceGetName);
	return end(text_of(name, len, d, "softcuda"));
}

EXPORT CUresult cuDeviceGetPCIBusId(char *id, int len, CUdevice d)
{
	char text[32] = "";

	BEGIN(cuDeviceGetPCIBusId);
	if (device_ok(d))
		snprintf(text, sizeof(text), "%04x:%02x:%02x.0", lib.devices[d].domain, lib.devices[d].bus,
			 lib.devices[d].slot);
	return end(text_of(id, len, d, text));
}

EXPORT CUresult cuDeviceGetByPCIBusId(CUdevice *out, const char *id)
{
	unsigned domain, bus, slot;

	BEGIN(cuDeviceGetByPCIBusId);
	if (!out || !id || sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3)
		return end(CUDA_ERROR_INVALID_VALUE);
	for (int d = 0; device_ok(d); d++)
		if (lib.devices[d].domain == domain && lib.devices[d].bus == bus && lib.devices[d].slot == slot) {
			*out = d;
			return end(CUDA_SUCCESS);
		}
	return end(CUDA_ERROR_INVALID_DEVICE);
}

static CUresult uuid(CUuuid *out, CUdevice d)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_ok(d))
		return CUDA_ERROR_INVALID_DEVICE;
	memset(out, 0, sizeof(*out));
	snprintf(out->bytes, sizeof(out->bytes), "soft%04x%02x%02x", lib.devices[d].domain & 0xffff,
		 lib.devices[d].bus & 0xff, lib.devices[d].slot & 0xff);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid(CUuuid *out, CUdevice d)
{
	BEGIN(cuDeviceGetUuid);
	return end(uuid(out, d));
}

EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *out, CUdevice d)
{
	BEGIN(cuDeviceGetUuid);
	return end(uuid(out, d));
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice d)
{
	BEGIN(cuDeviceTotalMem);
	if (!bytes)
		return end(CUDA_ERROR_INVALID_VALUE);
	if (!device_ok(d))
		return end(CUDA_ERROR_INVALID_DEVICE);
	*bytes = lib.knobs.memory;
	return end(CUDA_SUCCESS);
}

/* What an H100 answered, where that is known; 0 for what a program for copies does not ask. */
static int attribute(int attribute, const struct device *d)
{
	switch (attribute) {
	case 33:
		return (int)d->bus;
	case 34:
		return (int)d->slot;
	case 50:
		return (int)d->domain;
	case 102: /* virtual memory management, its POSIX and fabric handles, RDMA to it */
	case 103:
	case 110:
	case 128:
		return lib.knobs.vmm;
	case 116: /* GPU_DIRECT_RDMA_SUPPORTED */
	case 124: /* DMA_BUF_SUPPORTED */
		return lib.knobs.dmabuf;
	case 118: /* GPU_DIRECT_RDMA_WRITES_ORDERING */
		return (int)lib.knobs.ordering;
	case 10: /* WARP_SIZE */
		return 32;
	case 40: /* ASYNC_ENGINE_COUNT */
		return 3;
	case 75: /* compute capability */
		return 9;
	case 119: /* MEMPOOL_SUPPORTED_HANDLE_TYPES */
		return 9;
	case 41:  /* UNIFIED_ADDRESSING */
	case 83:  /* MANAGED_MEMORY */
	case 89:  /* CONCURRENT_MANAGED_ACCESS */
	case 91:  /* CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM */
	case 99:  /* HOST_REGISTER_SUPPORTED */
	case 113: /* READ_ONLY_HOST_REGISTER_SUPPORTED */
	case 115: /* MEMORY_POOLS_SUPPORTED */
	case 117: /* GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS: by the host */
	case 125: /* IPC_EVENT_SUPPORTED */
		return 1;
	default:
		return 0;
	}
}

EXPORT CUresult cuDeviceGetAttribute(int *out, int which, CUdevice d)
{
	BEGIN(cuDeviceGetAttribute);
	if (!out || which < 1 || which > 148)
		return end(CUDA_ERROR_INVALID_VALUE);
	if (!device_ok(d))
		return end(CUDA_ERROR_INVALID_DEVICE);
	*out = attribute(which, &lib.devices[d]);
	return end(CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice d, CUdevice peer)
{
	BEGIN(cuDeviceCanAccessPeer);
	if (!can)
		return end(CUDA_ERROR_INVALID_VALUE);
	if (!device_ok(d) || !device_ok(peer))
		return end(CUDA_ERROR_INVALID_DEVICE);
	*can = d != peer && lib.knobs.peers;
	return end(CUDA_SUCCESS);
}

/* 1 PERFORMANCE_RANK, 2 ACCESS_SUPPORTED, 3 NATIVE_ATOMIC_SUPPORTED, 4 CUDA_ARRAY_ACCESS_SUPPORTED */
EXPORT CUresult cuDeviceGetP2PAttribute(int *out, int which, CUdevice d, CUdevice peer)
{
	BEGIN(cuDeviceGetP2PAttribute);
	if (!out || which < 1 || which > 4)
		return end(CUDA_ERROR_INVALID_VALUE);
	if (!device_ok(d) || !device_ok(peer) || d == peer)
		return end(CUDA_ERROR_INVALID_DEVICE);
	*out = which == 1 ? 0 : lib.knobs.peers;
	return end(CUDA_SUCCESS);
}
