//go:build verbs && linux

#define _GNU_SOURCE
#include "shim.h"

#include <infiniband/verbs.h>

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// The functions of libibverbs that are symbols; all others are inline and go through the device's own tables. They must
// not be defined here by their real names: providers would find ours.
#define FUNCTIONS(F, O) \
	F(struct ibv_device **, get_device_list, (int *)) \
	F(void, free_device_list, (struct ibv_device **)) \
	F(const char *, get_device_name, (struct ibv_device *)) \
	F(struct ibv_context *, open_device, (struct ibv_device *)) \
	F(int, close_device, (struct ibv_context *)) \
	F(int, query_device, (struct ibv_context *, struct ibv_device_attr *)) \
	F(int, query_gid, (struct ibv_context *, uint8_t, int, union ibv_gid *)) \
	F(int, query_pkey, (struct ibv_context *, uint8_t, int, __be16 *)) \
	F(struct ibv_pd *, alloc_pd, (struct ibv_context *)) \
	F(int, dealloc_pd, (struct ibv_pd *)) \
	F(struct ibv_mr *, reg_mr, (struct ibv_pd *, void *, size_t, int)) \
	F(int, dereg_mr, (struct ibv_mr *)) \
	F(struct ibv_comp_channel *, create_comp_channel, (struct ibv_context *)) \
	F(int, destroy_comp_channel, (struct ibv_comp_channel *)) \
	F(struct ibv_cq *, create_cq, (struct ibv_context *, int, void *, struct ibv_comp_channel *, int)) \
	F(int, destroy_cq, (struct ibv_cq *)) \
	F(int, get_cq_event, (struct ibv_comp_channel *, struct ibv_cq **, void **)) \
	F(void, ack_cq_events, (struct ibv_cq *, unsigned int)) \
	F(struct ibv_srq *, create_srq, (struct ibv_pd *, struct ibv_srq_init_attr *)) \
	F(int, modify_srq, (struct ibv_srq *, struct ibv_srq_attr *, int)) \
	F(int, destroy_srq, (struct ibv_srq *)) \
	F(struct ibv_qp *, create_qp, (struct ibv_pd *, struct ibv_qp_init_attr *)) \
	F(int, modify_qp, (struct ibv_qp *, struct ibv_qp_attr *, int)) \
	F(int, destroy_qp, (struct ibv_qp *)) \
	F(int, get_async_event, (struct ibv_context *, struct ibv_async_event *)) \
	F(void, ack_async_event, (struct ibv_async_event *)) \
	F(const char *, wc_status_str, (enum ibv_wc_status)) \
	F(const char *, event_type_str, (enum ibv_event_type))

#define DECLARE(ret, name, args) static ret(*v_##name) args;
FUNCTIONS(DECLARE, )
#undef DECLARE

static int (*v_query_port)(struct ibv_context *, uint8_t, struct _compat_ibv_port_attr *);
static struct ibv_mr *(*v_reg_mr_iova2)(struct ibv_pd *, void *, size_t, uint64_t, unsigned); // of rdma-core 28
static struct ibv_mr *(*v_reg_dmabuf_mr)(struct ibv_pd *, uint64_t, size_t, uint64_t, int, int); // of rdma-core 34
static int (*v_query_gid_ex)(struct ibv_context *, uint32_t, uint32_t, struct ibv_gid_entry *, uint32_t, size_t);

enum { HUGE_PAGE = 2 << 20, RELAXED_ORDERING = 1 << 20 }; // IBV_ACCESS_RELAXED_ORDERING, of rdma-core 28

static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static void *library;
static char library_path[1024];

struct vb_ctx {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_cq_ex *cqx; // cq, if the receive queue matches tags; else NULL
	struct ibv_srq *srq;
	struct ibv_comp_channel *prover_channel;
	struct ibv_cq *prover_cq;
	uint64_t base; // of the receive buffers
	uint32_t slot;
	int nparts;
	struct {
		uint32_t first, lkey;
	} parts[16]; // of their memory; each doubles it
	unsigned int unacked; // events of the channel
	int poll_failed;      // error number for the next vb_turn: a poll has failed behind completions
};

struct vb_qp {
	struct ibv_qp *qp;
};

#define FAIL(...) failed(err, __VA_ARGS__)

__attribute__((format(printf, 2, 3))) static int failed(char *err, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(err, VB_ERR, format, args);
	va_end(args);
	return -1;
}

static int resolve(void *lib, char *err)
{
#define FIND(ret, name, args) \
	if (!(v_##name = (ret(*) args)dlsym(lib, "ibv_" #name))) \
		return FAIL("it has no ibv_" #name);
	FUNCTIONS(FIND, )
#undef FIND
	v_query_port = (int (*)(struct ibv_context *, uint8_t, struct _compat_ibv_port_attr *))dlsym(lib, "ibv_query_port");
	v_query_gid_ex = (int (*)(struct ibv_context *, uint32_t, uint32_t, struct ibv_gid_entry *, uint32_t, size_t))dlsym(lib, "_ibv_query_gid_ex");
	v_reg_mr_iova2 = (struct ibv_mr * (*)(struct ibv_pd *, void *, size_t, uint64_t, unsigned)) dlsym(lib, "ibv_reg_mr_iova2");
	v_reg_dmabuf_mr = (struct ibv_mr * (*)(struct ibv_pd *, uint64_t, size_t, uint64_t, int, int)) dlsym(lib, "ibv_reg_dmabuf_mr");
	return 0;
}

int vb_load(const char *path, char *err)
{
	int r = 0;
	pthread_mutex_lock(&loading);
	if (!library) {
		// Never closed: providers leave threads and handlers behind.
		void *lib = dlopen(path[0] ? path : "libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
		if (!lib)
			r = FAIL("%s", dlerror());
		else if ((r = resolve(lib, err)) == 0) {
			library = lib;
			Dl_info info;
			if (dladdr((void *)v_open_device, &info) && info.dli_fname)
				snprintf(library_path, sizeof library_path, "%s", info.dli_fname);
		}
	}
	pthread_mutex_unlock(&loading);
	return r;
}

const char *vb_path(void) { return library_path; }
void *vb_symbol(const char *name) { return library ? dlsym(library, name) : NULL; }

uint64_t vb_counter(struct vb_ctx *c, const char *name)
{
	uint64_t (*f)(struct ibv_context *, const char *) = (uint64_t(*)(struct ibv_context *, const char *))vb_symbol("softhca_counter");
	return f ? f(c->ctx, name) : UINT64_MAX;
}

int vb_inject(struct vb_ctx *c, const char *what)
{
	int (*f)(struct ibv_context *, const char *) = (int (*)(struct ibv_context *, const char *))vb_symbol("softhca_inject");
	return f ? f(c->ctx, what) : ENOSYS;
}

int vb_names(char *names, int max, char *err)
{
	int n = 0;
	errno = 0;
	struct ibv_device **list = v_get_device_list(&n);
	if (!list) { // also where the kernel has no RDMA at all
		if (errno && errno != ENOSYS && errno != ENOENT)
			return FAIL("ibv_get_device_list: %s", strerror(errno));
		return 0;
	}
	for (int i = 0; i < n && i < max; i++)
		snprintf(names + 64 * i, 64, "%s", v_get_device_name(list[i]));
	v_free_device_list(list);
	return n < max ? n : max;
}

struct vb_ctx *vb_open(const char *name, char *err)
{
	int n = 0;
	struct ibv_device **list = v_get_device_list(&n);
	if (!list) {
		FAIL("there is no RDMA device");
		return NULL;
	}
	struct vb_ctx *c = calloc(1, sizeof *c);
	for (int i = 0; c && i < n && !c->ctx; i++) {
		if (strcmp(v_get_device_name(list[i]), name))
			continue;
		if (!(c->ctx = v_open_device(list[i]))) {
			FAIL("opening it: %s", strerror(errno));
			break;
		}
	}
	v_free_device_list(list);
	if (c && c->ctx)
		return c;
	if (c && !err[0])
		FAIL("there is no such device");
	free(c);
	return NULL;
}

int vb_query(struct vb_ctx *c, struct vb_caps *o, char *err)
{
	struct ibv_device_attr_ex x;
	memset(&x, 0, sizeof x);
	struct verbs_context *v = verbs_get_ctx_op(c->ctx, query_device_ex);
	int r = v ? v->query_device_ex(c->ctx, NULL, &x, sizeof x) : EOPNOTSUPP;
	if (r == EOPNOTSUPP || r == ENOSYS) {
		memset(&x, 0, sizeof x);
		r = v_query_device(c->ctx, &x.orig_attr);
	}
	if (r)
		return FAIL("asking what it can: %s", strerror(r));
	struct ibv_device_attr *a = &x.orig_attr;
	memset(o, 0, sizeof *o);
	snprintf(o->name, sizeof o->name, "%s", v_get_device_name(c->ctx->device));
	snprintf(o->firmware, sizeof o->firmware, "%s", a->fw_ver);
	o->node_guid = be64toh(a->node_guid);
	o->max_mr_size = a->max_mr_size;
	o->device_flags = x.device_cap_flags_ex ? x.device_cap_flags_ex : a->device_cap_flags;
	o->vendor = a->vendor_id;
	o->vendor_part = a->vendor_part_id;
	o->ports = a->phys_port_cnt;
	o->transport = c->ctx->device->transport_type;
	o->max_qp = a->max_qp;
	o->max_qp_wr = a->max_qp_wr;
	o->max_sge = a->max_sge;
	o->max_sge_rd = a->max_sge_rd;
	o->max_cq = a->max_cq;
	o->max_cqe = a->max_cqe;
	o->max_mr = a->max_mr;
	o->max_pd = a->max_pd;
	o->max_srq = a->max_srq;
	o->max_srq_wr = a->max_srq_wr;
	o->max_srq_sge = a->max_srq_sge;
	o->max_rd_atom = a->max_qp_rd_atom;
	o->max_init_rd_atom = a->max_qp_init_rd_atom;
	o->atomic = a->atomic_cap;
	o->tm_flags = x.tm_caps.flags;
	o->tm_tags = x.tm_caps.max_num_tags;
	o->tm_ops = x.tm_caps.max_ops;
	o->tm_sge = x.tm_caps.max_sge;
	o->tm_rndv = x.tm_caps.max_rndv_hdr_size;
	o->odp_general = x.odp_caps.general_caps;
	o->odp_rc = x.odp_caps.per_transport_caps.rc_odp_caps;
	return 0;
}

int vb_query_port(struct vb_ctx *c, int number, struct vb_port *o, char *err)
{
	struct ibv_port_attr a;
	memset(&a, 0, sizeof a);
	struct verbs_context *v = verbs_get_ctx_op(c->ctx, query_port);
	int r = EOPNOTSUPP;
	if (v)
		r = v->query_port(c->ctx, number, &a, sizeof a);
	else if (v_query_port)
		r = v_query_port(c->ctx, number, (struct _compat_ibv_port_attr *)&a);
	if (r)
		return FAIL("asking about port %d: %s", number, strerror(r));
	memset(o, 0, sizeof *o);
	o->number = number;
	o->state = a.state;
	o->phys_state = a.phys_state;
	o->active_mtu = a.active_mtu;
	o->max_mtu = a.max_mtu;
	o->link_layer = a.link_layer;
	o->width = a.active_width;
	o->speed = a.active_speed;
	o->lid = a.lid;
	o->pkeys = a.pkey_tbl_len;
	o->gids = a.gid_tbl_len;
	o->max_msg = a.max_msg_sz;
	o->flags = a.flags;
	return 0;
}

int vb_query_gid(struct vb_ctx *c, int port, int index, struct vb_gid *o)
{
	memset(o, 0, sizeof *o);
	o->index = index;
	o->type = 255;
	struct ibv_gid_entry e;
	memset(&e, 0, sizeof e);
	if (v_query_gid_ex && v_query_gid_ex(c->ctx, port, index, &e, 0, sizeof e) == 0) {
		memcpy(o->raw, e.gid.raw, 16);
		o->type = e.gid_type;
		o->ifindex = e.ndev_ifindex;
		return 0;
	}
	union ibv_gid g;
	int r = v_query_gid(c->ctx, port, index, &g);
	if (r == 0)
		memcpy(o->raw, g.raw, 16);
	return r ? -1 : 0;
}

int vb_query_pkey(struct vb_ctx *c, int port, int index)
{
	__be16 k;
	return v_query_pkey(c->ctx, port, index, &k) ? -1 : be16toh(k);
}

static int unblocked(int fd) { return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

static int make_plain(struct vb_ctx *c, struct vb_sizes *z, char *err)
{
	if (!(c->cq = v_create_cq(c->ctx, z->cqe, NULL, c->channel, 0)))
		return FAIL("making a completion queue of %u: %s", z->cqe, strerror(errno));
	z->cqe = c->cq->cqe;
	struct ibv_srq_init_attr s = {.attr = {.max_wr = z->srq_wr, .max_sge = 1}};
	if (!(c->srq = v_create_srq(c->pd, &s)))
		return FAIL("making a shared receive queue of %u: %s", z->srq_wr, strerror(errno));
	if (s.attr.max_wr < z->srq_wr)
		z->srq_wr = s.attr.max_wr;
	return 0;
}

static int make_tagged(struct vb_ctx *c, struct vb_sizes *z, char *err)
{
	struct verbs_context *v = verbs_get_ctx_op(c->ctx, create_cq_ex);
	struct verbs_context *w = verbs_get_ctx_op(c->ctx, create_srq_ex);
	if (!v || !w)
		return FAIL("no extended queues");
	struct ibv_cq_init_attr_ex a = {.cqe = z->cqe, .channel = c->channel, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_TM_INFO};
	if (!(c->cqx = v->create_cq_ex(c->ctx, &a)))
		return FAIL("making a completion queue of %u for tags: %s", z->cqe, strerror(errno));
	c->cq = ibv_cq_ex_to_cq(c->cqx);
	z->cqe = c->cq->cqe;
	struct ibv_srq_init_attr_ex s = {.attr = {.max_wr = z->srq_wr, .max_sge = 1}, .srq_type = IBV_SRQT_TM, .pd = c->pd, .cq = c->cq,
		.tm_cap = {.max_num_tags = z->tags, .max_ops = z->ops},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM};
	if (!(c->srq = w->create_srq_ex(c->ctx, &s)))
		return FAIL("making a receive queue of %u with a list of %u tags: %s", z->srq_wr, z->tags, strerror(errno));
	if (s.attr.max_wr < z->srq_wr)
		z->srq_wr = s.attr.max_wr;
	return 0;
}

int vb_make(struct vb_ctx *c, struct vb_sizes *z, char *err)
{
	if (!(c->pd = v_alloc_pd(c->ctx)))
		return FAIL("making a protection domain: %s", strerror(errno));
	if (!(c->channel = v_create_comp_channel(c->ctx)))
		return FAIL("making a completion channel: %s", strerror(errno));
	if (unblocked(c->channel->fd) || unblocked(c->ctx->async_fd))
		return FAIL("O_NONBLOCK: %s", strerror(errno));
	c->slot = z->slot;
	return z->tags ? make_tagged(c, z, err) : make_plain(c, z, err);
}

static void ack(struct vb_ctx *c)
{
	if (c->unacked)
		v_ack_cq_events(c->cq, c->unacked);
	c->unacked = 0;
}

static void drain(struct vb_ctx *c)
{
	struct ibv_cq *cq;
	void *mine;
	while (v_get_cq_event(c->channel, &cq, &mine) == 0)
		c->unacked++;
	if (c->unacked >= 1024)
		ack(c);
}

void vb_unmake(struct vb_ctx *c)
{
	if (c->srq)
		v_destroy_srq(c->srq);
	if (c->cq) {
		drain(c);
		ack(c);
		v_destroy_cq(c->cq);
	}
	if (c->channel)
		v_destroy_comp_channel(c->channel);
	if (c->prover_cq)
		v_destroy_cq(c->prover_cq);
	if (c->prover_channel)
		v_destroy_comp_channel(c->prover_channel);
	if (c->pd)
		v_dealloc_pd(c->pd);
	*c = (struct vb_ctx){.ctx = c->ctx};
}

void vb_close(struct vb_ctx *c)
{
	vb_unmake(c);
	v_close_device(c->ctx);
	free(c);
}

void *vb_pages(size_t bytes)
{
	size_t spare = bytes < HUGE_PAGE ? 0 : HUGE_PAGE; // a huge page begins at a multiple of its size
	char *p = mmap(NULL, bytes + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED || !spare)
		return p == MAP_FAILED ? NULL : p;
	size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
	size_t before = -(uintptr_t)p % HUGE_PAGE;
	if (before)
		munmap(p, before);
	munmap(p + before + whole, spare - before);
	// Registered memory is all there anyway. The device needs one translation for a huge page in place of 512. A kernel
	// without huge pages refuses, which does no harm.
	madvise(p + before, bytes, MADV_HUGEPAGE);
	return p + before;
}

void vb_unpages(void *mem, size_t bytes) { munmap(mem, bytes); }

static int access_of(int access)
{
	return (access & VB_LOCAL_WRITE ? IBV_ACCESS_LOCAL_WRITE : 0) | (access & VB_REMOTE_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0) |
		(access & VB_REMOTE_READ ? IBV_ACCESS_REMOTE_READ : 0) | (access & VB_REMOTE_ATOMIC ? IBV_ACCESS_REMOTE_ATOMIC : 0);
}

static void *registered(struct ibv_mr *mr, uint32_t *lkey, uint32_t *rkey, int *no)
{
	if (!mr) {
		*no = errno ? errno : EINVAL;
		return NULL;
	}
	*lkey = mr->lkey;
	*rkey = mr->rkey;
	return mr;
}

void *vb_register(struct vb_ctx *c, uint64_t addr, uint64_t bytes, int access, uint32_t *lkey, uint32_t *rkey, int *no)
{
	errno = 0;
	if (access & VB_RELAXED && v_reg_mr_iova2) // which leaves out what the kernel does not know; ibv_reg_mr does not
		return registered(v_reg_mr_iova2(c->pd, (void *)(uintptr_t)addr, bytes, addr, access_of(access) | RELAXED_ORDERING),
				  lkey, rkey, no);
	return registered(v_reg_mr(c->pd, (void *)(uintptr_t)addr, bytes, access_of(access)), lkey, rkey, no);
}

void *vb_register_dmabuf(struct vb_ctx *c, int fd, uint64_t addr, uint64_t bytes, int access, uint32_t *lkey, uint32_t *rkey, int *no)
{
	if (!v_reg_dmabuf_mr) {
		*no = ENOSYS;
		return NULL;
	}
	errno = 0;
	return registered(v_reg_dmabuf_mr(c->pd, 0, bytes, addr, fd, access_of(access)), lkey, rkey, no);
}

int vb_deregister(void *mr) { return v_dereg_mr(mr); }

static struct vb_qp *qp_make(struct vb_ctx *c, int port, int pkey, int rights, struct ibv_qp_init_attr *a, uint32_t *qpn, char *err)
{
	struct vb_qp *q = calloc(1, sizeof *q);
	if (!q) {
		FAIL("out of memory");
		return NULL;
	}
	while (!(q->qp = v_create_qp(c->pd, a)) && a->cap.max_inline_data > 0 && errno == EINVAL)
		a->cap.max_inline_data /= 2; // nothing says beforehand how much a device takes
	if (!q->qp) {
		FAIL("making a queue pair of %u: %s", a->cap.max_send_wr, strerror(errno));
		free(q);
		return NULL;
	}
	*qpn = q->qp->qp_num;
	struct ibv_qp_attr m = {.qp_state = IBV_QPS_INIT, .pkey_index = pkey, .port_num = port,
		.qp_access_flags = access_of(rights)};
	int r = v_modify_qp(q->qp, &m, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (r) {
		FAIL("a queue pair to INIT: %s", strerror(r));
		vb_qp_destroy(q);
		return NULL;
	}
	return q;
}

struct vb_qp *vb_qp_make(struct vb_ctx *c, int port, int pkey, int rights, uint32_t owner, uint32_t *depth, uint32_t *inlined, uint32_t *qpn, char *err)
{
	struct ibv_qp_init_attr a = {.qp_context = (void *)(uintptr_t)owner,
		.send_cq = c->cq, .recv_cq = c->cq, .srq = c->srq, .qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = *depth, .max_send_sge = 1, .max_inline_data = *inlined}};
	struct vb_qp *q = qp_make(c, port, pkey, rights, &a, qpn, err);
	*inlined = a.cap.max_inline_data;
	return q;
}

struct vb_qp *vb_qp_serve(struct vb_ctx *c, int port, int pkey, int rights, uint32_t owner, uint32_t *qpn, char *err)
{
	// Its send queue is the device's own: the program does not post there.
	struct ibv_qp_init_attr a = {.qp_context = (void *)(uintptr_t)owner,
		.send_cq = c->cq, .recv_cq = c->cq, .srq = c->srq, .qp_type = IBV_QPT_RC};
	return qp_make(c, port, pkey, rights, &a, qpn, err);
}

int vb_qp_connect(struct vb_ctx *c, struct vb_qp *q, int port, int gid_index, int global, const struct vb_remote *o, uint32_t psn, char *err)
{
	(void)c;
	struct ibv_qp_attr m = {.qp_state = IBV_QPS_RTR, .path_mtu = o->mtu, .dest_qp_num = o->qpn, .rq_psn = o->psn,
		.max_dest_rd_atomic = o->rd_serve, .min_rnr_timer = o->rnr_timer,
		.ah_attr = {.dlid = o->lid, .sl = o->sl, .port_num = port, .is_global = global}};
	if (global) {
		memcpy(m.ah_attr.grh.dgid.raw, o->gid, 16);
		m.ah_attr.grh.sgid_index = gid_index;
		m.ah_attr.grh.hop_limit = o->hops;
		m.ah_attr.grh.traffic_class = o->traffic_class;
	}
	int r = v_modify_qp(q->qp, &m, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (r)
		return FAIL("a queue pair to RTR: %s", strerror(r));
	memset(&m, 0, sizeof m);
	m.qp_state = IBV_QPS_RTS;
	m.sq_psn = psn;
	m.timeout = o->timeout;
	m.retry_cnt = o->retries;
	m.rnr_retry = o->rnr_retries;
	m.max_rd_atomic = o->rd_atom;
	r = v_modify_qp(q->qp, &m, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
	return r ? FAIL("a queue pair to RTS: %s", strerror(r)) : 0;
}

int vb_qp_fail(struct vb_qp *q)
{
	struct ibv_qp_attr m = {.qp_state = IBV_QPS_ERR};
	return v_modify_qp(q->qp, &m, IBV_QP_STATE);
}

int vb_qp_destroy(struct vb_qp *q)
{
	int r = v_destroy_qp(q->qp);
	free(q);
	return r;
}

void vb_srq(struct vb_ctx *c, uint64_t base) { c->base = base; }

int vb_srq_part(struct vb_ctx *c, uint32_t first, uint32_t lkey)
{
	if (c->nparts == sizeof c->parts / sizeof *c->parts)
		return ENOSPC;
	c->parts[c->nparts].first = first;
	c->parts[c->nparts++].lkey = lkey;
	return 0;
}

static uint32_t lkey_of(const struct vb_ctx *c, uint32_t buffer)
{
	int k = c->nparts - 1;
	while (k > 0 && buffer < c->parts[k].first)
		k--;
	return c->parts[k].lkey;
}

int vb_srq_limit(struct vb_ctx *c, uint32_t limit)
{
	struct ibv_srq_attr a = {.srq_limit = limit};
	return v_modify_srq(c->srq, &a, IBV_SRQ_LIMIT);
}

static int refill(struct vb_ctx *c, const uint32_t *buffers, int *n)
{
	enum { BATCH = 32 };
	struct ibv_sge sge[BATCH];
	struct ibv_recv_wr wr[BATCH], *bad = wr;
	int left = *n;
	while (left > 0) {
		int k = left < BATCH ? left : BATCH;
		for (int i = 0; i < k; i++) {
			sge[i] = (struct ibv_sge){c->base + (uint64_t)buffers[i] * c->slot, c->slot, lkey_of(c, buffers[i])};
			wr[i] = (struct ibv_recv_wr){.wr_id = (1ull << 63) | buffers[i], .next = i + 1 < k ? &wr[i + 1] : NULL, .sg_list = &sge[i], .num_sge = 1};
		}
		int r = ibv_post_srq_recv(c->srq, wr, &bad);
		if (r) {
			*n -= left - (int)(bad - wr);
			return r;
		}
		buffers += k;
		left -= k;
	}
	return 0;
}

int vb_prover_make(struct vb_ctx *c, uint32_t entries, char *err)
{
	if (!(c->prover_channel = v_create_comp_channel(c->ctx)))
		return FAIL("making a completion channel: %s", strerror(errno));
	if (unblocked(c->prover_channel->fd))
		return FAIL("O_NONBLOCK: %s", strerror(errno));
	if (!(c->prover_cq = v_create_cq(c->ctx, entries, NULL, c->prover_channel, 0)))
		return FAIL("making a completion queue of %u: %s", entries, strerror(errno));
	return 0;
}

struct vb_qp *vb_prover_qp(struct vb_ctx *c, int port, int pkey, uint32_t *qpn, char *err)
{
	// Nothing is received, but not every driver makes an empty queue.
	struct ibv_qp_init_attr a = {.send_cq = c->prover_cq, .recv_cq = c->prover_cq, .qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1, .max_send_sge = 1, .max_recv_wr = 1, .max_recv_sge = 1}};
	return qp_make(c, port, pkey, VB_REMOTE_WRITE, &a, qpn, err);
}

int vb_prover_channel(struct vb_ctx *c) { return c->prover_channel->fd; }

int vb_prover_poll(struct vb_ctx *c, struct vb_wc *out, int most, int *no)
{
	enum { BATCH = 32 };
	struct ibv_wc wc[BATCH];
	struct ibv_cq *cq;
	void *mine;
	while (v_get_cq_event(c->prover_channel, &cq, &mine) == 0)
		v_ack_cq_events(cq, 1);
	if ((*no = ibv_req_notify_cq(c->prover_cq, 0)))
		return -1;
	int k = ibv_poll_cq(c->prover_cq, most < BATCH ? most : BATCH, wc);
	if (k < 0)
		*no = EIO;
	for (int i = 0; i < k; i++)
		out[i] = (struct vb_wc){.id = wc[i].wr_id, .status = wc[i].status, .qpn = wc[i].qp_num, .vendor = wc[i].vendor_err};
	return k;
}

static uint32_t opcode_of(enum ibv_wc_opcode o)
{
	switch (o) {
	case IBV_WC_SEND:
		return VB_WC_SEND;
	case IBV_WC_RDMA_WRITE:
		return VB_WC_WRITE;
	case IBV_WC_RDMA_READ:
		return VB_WC_READ;
	case IBV_WC_COMP_SWAP:
	case IBV_WC_FETCH_ADD:
		return VB_WC_ATOMIC;
	case IBV_WC_RECV:
		return VB_WC_RECV;
	case IBV_WC_RECV_RDMA_WITH_IMM:
		return VB_WC_RECV_IMM;
	case IBV_WC_TM_ADD:
		return VB_WC_TM_ADD;
	case IBV_WC_TM_DEL:
		return VB_WC_TM_DEL;
	case IBV_WC_TM_SYNC:
		return VB_WC_TM_SYNC;
	case IBV_WC_TM_RECV:
		return VB_WC_TM_RECV;
	case IBV_WC_TM_NO_TAG:
		return VB_WC_TM_NO_TAG;
	default:
		return VB_WC_OTHER;
	}
}

_Static_assert((int)VB_TM_ERR == (int)IBV_WC_TM_ERR && (int)VB_TM_INCOMPLETE == (int)IBV_WC_TM_RNDV_INCOMPLETE, "enum vb_tm_status");

_Static_assert((int)VB_TRANSPORT_IB == (int)IBV_TRANSPORT_IB && (int)VB_TRANSPORT_IWARP == (int)IBV_TRANSPORT_IWARP, "enum vb_transport");

static void extended(struct ibv_cq_ex *q, struct vb_wc *o)
{
	*o = (struct vb_wc){.id = q->wr_id, .status = q->status, .opcode = VB_WC_OTHER, .qpn = ibv_wc_read_qp_num(q)};
	if (q->status && q->status != IBV_WC_TM_RNDV_INCOMPLETE) {
		o->vendor = ibv_wc_read_vendor_err(q);
		// A TAG_DEL that is too late, which is no failure: its flags hold.
		if (q->status == IBV_WC_TM_ERR && ibv_wc_read_wc_flags(q) & IBV_WC_TM_SYNC_REQ)
			o->flags = VB_SYNC_WANTED;
		return;
	}
	o->opcode = opcode_of(ibv_wc_read_opcode(q));
	if (o->opcode < VB_WC_RECV || (o->opcode >= VB_WC_TM_ADD && o->opcode <= VB_WC_TM_SYNC && !(ibv_wc_read_wc_flags(q) & IBV_WC_TM_SYNC_REQ)))
		return;
	unsigned int flags = ibv_wc_read_wc_flags(q);
	o->length = ibv_wc_read_byte_len(q);
	if (o->opcode == VB_WC_RECV_IMM)
		o->imm = ntohl(ibv_wc_read_imm_data(q));
	o->flags = (flags & IBV_WC_TM_MATCH ? VB_MATCH : 0) | (flags & IBV_WC_TM_DATA_VALID ? VB_VALID : 0) |
		(flags & IBV_WC_TM_SYNC_REQ ? VB_SYNC_WANTED : 0);
	if (o->flags & VB_MATCH) { // it says so in this completion only
		struct ibv_wc_tm_info info;
		ibv_wc_read_tm_info(q, &info);
		o->tag = info.tag;
		o->priv = info.priv;
	}
}

// The error number of a poll. mlx5 returns CQ_POLL_ERR, -2, which is none.
static int poll_error(int r) { return r > 0 ? r : EIO; }

// After a failed ibv_next_poll, as after ENOENT, ibv_end_poll is due: mlx5 keeps its lock until then. After a failed
// ibv_start_poll it is not.
static int poll_extended(struct vb_ctx *c, struct vb_wc *out, int most, int *no)
{
	struct ibv_cq_ex *q = c->cqx;
	struct ibv_poll_cq_attr a = {0};
	int n = 0, r;
	if (most <= 0)
		return 0;
	if (c->poll_failed) {
		*no = c->poll_failed;
		c->poll_failed = 0;
		return -1;
	}
	if ((r = ibv_start_poll(q, &a))) {
		*no = poll_error(r);
		return r == ENOENT ? 0 : -1;
	}
	do
		extended(q, &out[n++]);
	while (n < most && !(r = ibv_next_poll(q)));
	ibv_end_poll(q);
	if (r && r != ENOENT)
		c->poll_failed = poll_error(r);
	return n;
}

int vb_turn(struct vb_ctx *c, const uint32_t *buffers, int *n, struct vb_wc *out, int most, int *no)
{
	enum { BATCH = 32 };
	struct ibv_wc wc[BATCH];
	if (*n > 0 && (*no = refill(c, buffers, n)))
		return -1;
	if (c->cqx)
		return poll_extended(c, out, most, no);
	int k = ibv_poll_cq(c->cq, most < BATCH ? most : BATCH, wc);
	if (k < 0) {
		*no = EIO;
		return -1;
	}
	for (int i = 0; i < k; i++)
		out[i] = (struct vb_wc){.id = wc[i].wr_id, .status = wc[i].status, .opcode = wc[i].status ? VB_WC_OTHER : opcode_of(wc[i].opcode),
			.length = wc[i].byte_len, .qpn = wc[i].qp_num, .imm = ntohl(wc[i].imm_data), .vendor = wc[i].vendor_err};
	return k;
}

static const enum ibv_wr_opcode wr_opcodes[] = {
	[VB_SEND] = IBV_WR_SEND,
	[VB_WRITE] = IBV_WR_RDMA_WRITE,
	[VB_WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM,
	[VB_READ] = IBV_WR_RDMA_READ,
	[VB_ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD,
	[VB_SWAP] = IBV_WR_ATOMIC_CMP_AND_SWP,
};

int vb_post(const struct vb_op *ops, int n, int *no)
{
	*no = 0;
	for (int i = 0; i < n; i++) {
		const struct vb_op *o = &ops[i];
		struct ibv_sge sge = {o->local, o->length, o->lkey};
		struct ibv_send_wr wr = {.wr_id = o->id, .sg_list = &sge, .num_sge = o->length > 0, .opcode = wr_opcodes[o->opcode],
			.send_flags = (o->flags & VB_SIGNALED ? IBV_SEND_SIGNALED : 0) | (o->flags & VB_SOLICITED ? IBV_SEND_SOLICITED : 0) |
				(o->flags & VB_INLINE ? IBV_SEND_INLINE : 0) | (o->flags & VB_FENCE ? IBV_SEND_FENCE : 0)};
		struct ibv_send_wr *bad;
		if (o->opcode == VB_WRITE_IMM)
			wr.imm_data = htonl(o->imm);
		if (o->opcode >= VB_ADD) {
			wr.wr.atomic.remote_addr = o->remote;
			wr.wr.atomic.compare_add = o->compare;
			wr.wr.atomic.swap = o->swap;
			wr.wr.atomic.rkey = o->rkey;
		} else if (o->opcode != VB_SEND) {
			wr.wr.rdma.remote_addr = o->remote;
			wr.wr.rdma.rkey = o->rkey;
		}
		if ((*no = ibv_post_send(((struct vb_qp *)(uintptr_t)o->qp)->qp, &wr, &bad)))
			return i;
	}
	return n;
}

static int list_op(struct vb_ctx *c, struct ibv_ops_wr *w)
{
	struct verbs_context *v = verbs_get_ctx_op(c->ctx, post_srq_ops);
	struct ibv_ops_wr *bad;
	// Signalled always: the slots of the queue are freed by such completions only.
	w->flags = IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC;
	return v ? v->post_srq_ops(c->srq, w, &bad) : EOPNOTSUPP;
}

int vb_tm_add(struct vb_ctx *c, uint64_t id, uint64_t receive_id, uint64_t tag, uint64_t mask, uint64_t addr, uint32_t bytes,
	uint32_t lkey, uint16_t seen, uint32_t *handle)
{
	struct ibv_sge sge = {addr, bytes, lkey};
	struct ibv_ops_wr w = {.wr_id = id, .opcode = IBV_WR_TAG_ADD, .tm = {.unexpected_cnt = seen,
		.add = {.recv_wr_id = receive_id, .sg_list = &sge, .num_sge = 1, .tag = tag, .mask = mask}}};
	int r = list_op(c, &w);
	*handle = w.tm.handle;
	return r;
}

int vb_tm_del(struct vb_ctx *c, uint64_t id, uint32_t handle, uint16_t seen)
{
	struct ibv_ops_wr w = {.wr_id = id, .opcode = IBV_WR_TAG_DEL, .tm = {.unexpected_cnt = seen, .handle = handle}};
	return list_op(c, &w);
}

int vb_tm_sync(struct vb_ctx *c, uint64_t id, uint16_t seen)
{
	struct ibv_ops_wr w = {.wr_id = id, .opcode = IBV_WR_TAG_SYNC, .tm = {.unexpected_cnt = seen}};
	return list_op(c, &w);
}

int vb_channel(struct vb_ctx *c) { return c->channel->fd; }
int vb_async(struct vb_ctx *c) { return c->ctx->async_fd; }

int vb_notify(struct vb_ctx *c, int solicited)
{
	drain(c);
	return ibv_req_notify_cq(c->cq, solicited);
}

int vb_event(struct vb_ctx *c, struct vb_event *o)
{
	struct ibv_async_event e;
	if (v_get_async_event(c->ctx, &e))
		return 0;
	o->type = e.event_type;
	o->of = 0;
	switch (e.event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
		// Its number may be another queue pair's by the time that the event is dealt with.
		o->of = (uint32_t)(uintptr_t)e.element.qp->qp_context;
		break;
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
	case IBV_EVENT_GID_CHANGE:
		o->of = e.element.port_num;
		break;
	default:
		break;
	}
	v_ack_async_event(&e);
	return 1;
}

const char *vb_status_text(uint32_t status) { return v_wc_status_str(status); }
const char *vb_event_text(uint32_t type) { return v_event_type_str(type); }
