/* Memory and addresses apart: cuMemCreate, cuMemAddressReserve, cuMemMap, and the descriptors that carry memory. */
#include "calls.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Memory of cuMemCreate or imported; it lives as long as somebody has its handle or has it mapped. */
struct vmm {
	struct vmm *next;
	CUmemGenericAllocationHandle handle;
	unsigned refs, maps;
	struct store *store;
	int device;
	bool imported;
	struct allocation_prop prop;
};

struct reservation {
	struct reservation *next;
	uint64_t addr, size;
};

static struct vmm *all;
static struct reservation *reserved;
static CUmemGenericAllocationHandle next_handle = 0x1000;

static struct vmm *find(CUmemGenericAllocationHandle handle)
{
	struct vmm *v = all;

	while (v && v->handle != handle)
		v = v->next;
	return v && v->refs ? v : NULL;
}

static void drop_if_unused(struct vmm *v)
{
	struct vmm **at = &all;

	if (v->refs || v->maps)
		return;
	while (*at != v)
		at = &(*at)->next;
	*at = v->next;
	if (!v->imported)
		refund(v->device, v->store->size);
	store_unref(v->store);
	free(v);
}

/* Takes s. */
static struct vmm *vmm_new(struct store *s, int device, const struct allocation_prop *prop, bool imported)
{
	struct vmm *v = calloc(1, sizeof(*v));

	if (!v) {
		store_unref(s);
		return NULL;
	}
	*v = (struct vmm){ .next = all, .handle = next_handle += 0x10, .refs = 1, .store = s, .device = device,
			   .imported = imported, .prop = *prop };
	all = v;
	count(C_vmm_handles, 1);
	return v;
}

static CUresult check_prop(const struct allocation_prop *p)
{
	if (!lib.knobs.vmm)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!p || p->type != ALLOCATION_PINNED || p->location.type != LOCATION_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_ok(p->location.id))
		return CUDA_ERROR_INVALID_DEVICE;
	if (p->handle_types == HANDLE_FABRIC)
		return CUDA_ERROR_NOT_PERMITTED;
	return p->handle_types & ~HANDLE_POSIX_FD ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult create(CUmemGenericAllocationHandle *out, uint64_t size, const struct allocation_prop *p,
		       uint64_t flags)
{
	CUresult r = check_prop(p);
	struct store *s;
	struct vmm *v;

	if (r)
		return r;
	if (!out || flags || !size || size % GRANULARITY)
		return CUDA_ERROR_INVALID_VALUE;
	if (size > 1ull << 42 || !charge(p->location.id, size))
		return CUDA_ERROR_OUT_OF_MEMORY;
	s = store_new(p->location.id, size);
	v = s ? vmm_new(s, p->location.id, p, false) : NULL;
	if (!v) {
		refund(p->location.id, size);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*out = v->handle;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t size, const struct allocation_prop *p,
			    unsigned long long flags)
{
	BEGIN(cuMemCreate);
	return end(create(out, size, p, flags));
}

/* Which: 0 minimum, 1 recommended */
EXPORT CUresult cuMemGetAllocationGranularity(size_t *out, const struct allocation_prop *p, int which)
{
	CUresult r;

	BEGIN(cuMemGetAllocationGranularity);
	r = check_prop(p);
	if (!r && (!out || which < 0 || which > 1))
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r)
		*out = GRANULARITY;
	return end(r);
}

EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(struct allocation_prop *out, CUmemGenericAllocationHandle h)
{
	struct vmm *v;

	BEGIN(cuMemGetAllocationPropertiesFromHandle);
	v = find(h);
	if (!out || !v)
		return end(CUDA_ERROR_INVALID_VALUE);
	*out = v->prop;
	return end(CUDA_SUCCESS);
}

EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct vmm *v;

	BEGIN(cuMemRelease);
	if (!(v = find(handle)))
		return end(CUDA_ERROR_INVALID_VALUE);
	if (!--v->refs)
		count(C_vmm_handles, -1);
	drop_if_unused(v);
	return end(CUDA_SUCCESS);
}

EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *p)
{
	struct range *m;

	BEGIN(cuMemRetainAllocationHandle);
	m = range_at((uintptr_t)p);
	if (!out || !m || m->kind != VMM)
		return end(CUDA_ERROR_INVALID_VALUE);
	if (!m->vmm->refs++)
		count(C_vmm_handles, 1);
	*out = m->vmm->handle;
	return end(CUDA_SUCCESS);
}

/* The wish for an address is not heard. */
static CUresult reserve(uint64_t *out, uint64_t size, uint64_t align, uint64_t flags)
{
	struct reservation *v;

	if (!lib.knobs.vmm)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!out || flags || !size || size % GRANULARITY || align & (align - 1))
		return CUDA_ERROR_INVALID_VALUE;
	if (!(v = calloc(1, sizeof(*v))))
		return CUDA_ERROR_OUT_OF_MEMORY;
	v->size = size;
	v->addr = space_take(size, align);
	if (!v->addr) {
		free(v);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	v->next = reserved;
	reserved = v;
	count(C_vmm_reservations, 1);
	*out = v->addr;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t align, CUdeviceptr wish,
				    unsigned long long flags)
{
	uint64_t p = 0;
	CUresult r;

	(void)wish;
	BEGIN(cuMemAddressReserve);
	r = reserve(out ? &p : NULL, size, align, flags);
	if (!r)
		*out = p;
	return end(r);
}

EXPORT CUresult cuMemAddressFree(CUdeviceptr p, size_t size)
{
	struct reservation **at = &reserved, *v;

	BEGIN(cuMemAddressFree);
	while (*at && (*at)->addr != p)
		at = &(*at)->next;
	v = *at;
	if (!v || v->size != size || range_overlaps(p, size))
		return end(CUDA_ERROR_INVALID_VALUE);
	*at = v->next;
	space_give(p, size);
	free(v);
	count(C_vmm_reservations, -1);
	return end(CUDA_SUCCESS);
}

static bool inside_reservation(uint64_t addr, uint64_t size)
{
	for (struct reservation *v = reserved; v; v = v->next)
		if (addr >= v->addr && addr - v->addr < v->size && size <= v->size - (addr - v->addr))
			return true;
	return false;
}

/* Nothing may use the memory before cuMemSetAccess. */
static CUresult map(uint64_t addr, uint64_t size, uint64_t offset, CUmemGenericAllocationHandle h, uint64_t flags)
{
	struct vmm *v = find(h);
	struct range *m;

	if (!v || flags || offset || !size || size % GRANULARITY || addr % GRANULARITY || size > v->store->size)
		return CUDA_ERROR_INVALID_VALUE;
	if (!inside_reservation(addr, size) || range_overlaps(addr, size))
		return CUDA_ERROR_INVALID_VALUE;
	if (!(m = range_new(VMM, addr, size, NULL, v->device)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	m->store = store_ref(v->store);
	m->vmm = v;
	m->handle_types = v->imported ? 0 : v->prop.handle_types;
	m->rdma = v->prop.flags.gpu_direct_rdma;
	m->imported = v->imported;
	v->maps++;
	count(C_vmm_mappings, 1);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemMap(CUdeviceptr p, size_t size, size_t offset, CUmemGenericAllocationHandle h,
			 unsigned long long flags)
{
	BEGIN(cuMemMap);
	return end(map(p, size, offset, h, flags));
}

/* Whether the bytes are whole mappings, one after the other. */
static bool whole_mappings(uint64_t addr, uint64_t size)
{
	uint64_t at = addr;

	while (size && at < addr + size) {
		struct range *m = range_at(at);

		if (!m || m->kind != VMM || m->start != at)
			return false;
		at += m->size;
	}
	return size && at == addr + size;
}

EXPORT CUresult cuMemUnmap(CUdeviceptr p, size_t size)
{
	BEGIN(cuMemUnmap);
	if (!whole_mappings(p, size))
		return end(CUDA_ERROR_INVALID_VALUE);
	for (uint64_t at = p; at < p + size;) {
		struct range *m = range_at(at);
		struct vmm *v = m->vmm;

		at += m->size;
		range_free(m);
		count(C_vmm_mappings, -1);
		v->maps--;
		drop_if_unused(v);
	}
	return end(CUDA_SUCCESS);
}

static CUresult check_access(const struct access_desc *d, size_t n, uint64_t addr)
{
	for (size_t i = 0; i < n; i++) {
		if (d[i].location.type != LOCATION_DEVICE || d[i].flags < 0 || d[i].flags > 3 || d[i].flags == 2)
			return CUDA_ERROR_INVALID_VALUE;
		if (!device_ok(d[i].location.id))
			return CUDA_ERROR_INVALID_DEVICE;
		if (d[i].location.id != range_at(addr)->device && !lib.knobs.peers)
			return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	}
	return CUDA_SUCCESS;
}

static CUresult set_access(uint64_t addr, uint64_t size, const struct access_desc *d, size_t n)
{
	CUresult r;

	if (!d || !n || !whole_mappings(addr, size))
		return CUDA_ERROR_INVALID_VALUE;
	if ((r = check_access(d, n, addr)))
		return r;
	for (uint64_t at = addr; at < addr + size; at += range_at(at)->size) {
		struct range *m = range_at(at);

		for (size_t i = 0; i < n; i++) {
			unsigned bit = 1u << d[i].location.id;

			m->readable = d[i].flags & ACCESS_READ ? m->readable | bit : m->readable & ~bit;
			m->writable = d[i].flags == ACCESS_READWRITE ? m->writable | bit : m->writable & ~bit;
		}
	}
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemSetAccess(CUdeviceptr p, size_t size, const struct access_desc *d, size_t n)
{
	BEGIN(cuMemSetAccess);
	return end(set_access(p, size, d, n));
}

/* The descriptor is good as long as it is open, whatever its maker does. */
static CUresult export(int *out, CUmemGenericAllocationHandle h, int type, uint64_t flags)
{
	struct vmm *v = find(h);
	int fd;

	if (!out || !v || flags || type != HANDLE_POSIX_FD || v->imported || !(v->prop.handle_types & type))
		return CUDA_ERROR_INVALID_VALUE;
	fd = fcntl(v->store->fd, F_DUPFD_CLOEXEC, 3);
	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	count(C_exports, 1);
	*out = fd;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle h, int type,
					     unsigned long long flags)
{
	BEGIN(cuMemExportToShareableHandle);
	return end(export(out, h, type, flags));
}

/* The memory that a descriptor of another process, or of this one, carries. It stays the caller's. */
static CUresult import_fd(CUmemGenericAllocationHandle *out, int fd, int type)
{
	struct allocation_prop prop = { .type = ALLOCATION_PINNED, .location = { LOCATION_DEVICE, 0 } };
	char path[40], name[100] = "";
	unsigned long long size;
	int physical, device, own;
	struct store *s;
	struct vmm *v;

	if (!lib.knobs.vmm)
		return CUDA_ERROR_NOT_SUPPORTED;
	pause_ns(lib.knobs.slow_open);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (!out || type != HANDLE_POSIX_FD || readlink(path, name, sizeof(name) - 1) < 0 ||
	    sscanf(name, "/memfd:softcuda:%d:%llu", &physical, &size) != 2)
		return CUDA_ERROR_INVALID_VALUE;
	if ((device = device_of_physical(physical)) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	if ((own = fcntl(fd, F_DUPFD_CLOEXEC, 3)) < 0 || !(s = store_of_fd(own, size)))
		return CUDA_ERROR_OPERATING_SYSTEM;
	s->device = prop.location.id = device;
	if (!(v = vmm_new(s, device, &prop, true)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	count(C_opens, 1);
	*out = v->handle;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *handle, int type)
{
	BEGIN(cuMemImportFromShareableHandle);
	return end(import_fd(out, (int)(intptr_t)handle, type));
}
