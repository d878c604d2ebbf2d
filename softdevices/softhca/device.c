/* The device: listing, opening, closing, and its attributes. */
#include "verbs.h"

#include <arpa/inet.h>
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define DEVICE(n, node, transport) \
	{ .node_type = (node), .transport_type = (transport), .name = n, .dev_name = n, .dev_path = "/nonexistent/" n, \
	  .ibdev_path = "/nonexistent/" n }

/* Before the device that this library is about stand the devices of mode efa, which have neither SRQ nor RC. */
static struct ibv_device devices[] = {
	DEVICE("efa0", IBV_NODE_UNSPECIFIED, IBV_TRANSPORT_UNSPECIFIED),
	DEVICE("irdma0", IBV_NODE_RNIC, IBV_TRANSPORT_IWARP),
	DEVICE("nosrq0", IBV_NODE_CA, IBV_TRANSPORT_IB),
	DEVICE("softhca0", IBV_NODE_CA, IBV_TRANSPORT_IB),
};

enum { DEVICES = sizeof(devices) / sizeof(*devices) };

EXPORT struct ibv_device **ibv_get_device_list(int *n)
{
	struct ibv_device **list = calloc(DEVICES + 1, sizeof(*list));
	const char *mode = getenv("SOFTHCA_MODE");
	int first = mode && !strcmp(mode, "efa") ? 0 : DEVICES - 1;

	if (!list)
		return NULL;
	for (int i = first; i < DEVICES; i++)
		list[i - first] = &devices[i];
	if (n)
		*n = DEVICES - first;
	return list;
}

EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

EXPORT int ibv_get_device_index(struct ibv_device *device)
{
	(void)device;
	return -1; /* the kernel knows of none */
}

static uint64_t guid(uint16_t lid)
{
	return GUID | lid;
}

EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
	(void)device;
	return htobe64(guid(0));
}

EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *a)
{
	struct hca_ctx *ctx = to_ctx(context);

	if (ctx->fatal)
		return EIO;
	*a = (struct ibv_device_attr){
		.fw_ver = "soft", .node_guid = htobe64(guid(ctx->lid)), .sys_image_guid = htobe64(guid(0)),
		.max_mr_size = UINT64_MAX, .page_size_cap = (uint64_t)sysconf(_SC_PAGESIZE), .max_qp = (int)ctx->knobs.max_qp,
		.max_qp_wr = MAX_WR, .max_sge = MAX_SGE, .max_sge_rd = MAX_SGE, .max_cq = 1 << 20, .max_cqe = MAX_CQE,
		.max_mr = 1 << 22, .max_pd = 1 << 20, .max_qp_rd_atom = (int)ctx->knobs.max_rd,
		.max_res_rd_atom = (int)ctx->knobs.max_rd * 200000, .max_qp_init_rd_atom = (int)ctx->knobs.max_rd,
		.atomic_cap = ctx->knobs.mode == MODE_VF ? IBV_ATOMIC_NONE : IBV_ATOMIC_HCA,
		.max_srq = ctx->bare && context->device->transport_type != IBV_TRANSPORT_IB ? 0 : 1 << 16, .max_srq_wr = MAX_WR, .max_srq_sge = MAX_SGE,
		.max_pkeys = (uint16_t)ctx->knobs.npkeys, .local_ca_ack_delay = 15, .phys_port_cnt = (uint8_t)port_count(ctx),
		.device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_PORT_ACTIVE_EVENT |
				    IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SYS_IMAGE_GUID,
	};
	return 0;
}

static int hca_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *in,
			       struct ibv_device_attr_ex *attr, size_t size)
{
	struct hca_ctx *ctx = to_ctx(context);
	struct ibv_device_attr_ex a;
	int err;

	if (in && in->comp_mask)
		return EINVAL;
	memset(&a, 0, sizeof(a));
	err = ibv_query_device(context, &a.orig_attr);
	if (err)
		return err;
	a.device_cap_flags_ex = a.orig_attr.device_cap_flags;
	a.phys_port_cnt_ex = port_count(ctx);
	if (ctx->knobs.tm && !ctx->bare) /* whatever the link layer is, as mlx5 says it of the device */
		a.tm_caps = (struct ibv_tm_caps){ .max_rndv_hdr_size = TM_RNDV_HDR, .max_num_tags = ctx->knobs.max_tags,
						  .flags = IBV_TM_CAP_RC, .max_ops = ctx->knobs.max_ops, .max_sge = 1 };
	memset(attr, 0, size);
	memcpy(attr, &a, MIN(size, sizeof(a)));
	return 0;
}

static int hca_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t size)
{
	struct hca_ctx *ctx = to_ctx(context);
	bool roce = ctx->knobs.mode == MODE_ROCE;
	enum ibv_mtu mtu = roce ? IBV_MTU_1024 : IBV_MTU_4096; /* an Ethernet MTU of 1500 */
	struct ibv_port_attr a = {
		.state = ctx->port_down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE, .max_mtu = IBV_MTU_4096,
		.active_mtu = mtu, .gid_tbl_len = roce ? GIDS_ROCE : 1, .max_msg_sz = (uint32_t)ctx->knobs.max_msg,
		.pkey_tbl_len = (uint16_t)ctx->knobs.npkeys, .lid = roce ? 0 : port_lid(ctx, port), .sm_lid = 0, .max_vl_num = 1, .active_width = 2,
			.active_speed = 32,
		.phys_state = ctx->port_down ? 3 : 5, .link_layer = roce ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND,
		.flags = ctx->knobs.mode == MODE_VF ? IBV_QPF_GRH_REQUIRED : 0,
	};

	if (!port || port > port_count(ctx))
		return EINVAL;
	memset(attr, 0, size);
	memcpy(attr, &a, MIN(size, sizeof(a)));
	return 0;
}

static void fill_ops(struct hca_ctx *ctx)
{
	ctx->v.sz = sizeof(ctx->v);
	ctx->v.query_port = hca_query_port;
	ctx->v.query_device_ex = hca_query_device_ex;
	ctx->v.create_cq_ex = hca_create_cq_ex;
	ctx->v.create_srq_ex = hca_create_srq_ex;
	ctx->v.create_qp_ex = hca_create_qp_ex;
	ctx->v.get_srq_num = hca_get_srq_num;
	ctx->v.post_srq_ops = hca_post_srq_ops;
	ctx->v.context.ops.poll_cq = hca_poll_cq;
	ctx->v.context.ops.req_notify_cq = hca_req_notify_cq;
	ctx->v.context.ops.post_send = hca_post_send;
	ctx->v.context.ops.post_recv = hca_post_recv;
	ctx->v.context.ops.post_srq_recv = hca_post_srq_recv;
}

static struct hca_ctx *ctx_new(void)
{
	struct hca_ctx *ctx = calloc(1, sizeof(*ctx));

	if (!ctx)
		return NULL;
	if (knobs_read(&ctx->knobs)) {
		free(ctx);
		return errno = EINVAL, NULL;
	}
	list_init(&ctx->link);
	list_init(&ctx->held);
	list_init(&ctx->qps);
	list_init(&ctx->cqs);
	pthread_mutex_init(&ctx->ack_mu, NULL);
	pthread_cond_init(&ctx->ack_cond, NULL);
	pthread_mutex_init(&ctx->v.context.mutex, NULL);
	ctx->v.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	ctx->v.context.num_comp_vectors = 1;
	ctx->v.context.cmd_fd = -1;
	fill_ops(ctx);
	return ctx;
}

static void complain(const struct hca_ctx *ctx, int err)
{
	if (err == EBUSY)
		fprintf(stderr, "softhca: SOFTHCA_DIR=%s, but the device is open in this process with %s: close it first\n",
			ctx->knobs.dir, engine.dir);
	else
		fprintf(stderr, "softhca: %s/softhca-%u: %s (SOFTHCA_DIR can name another directory)\n", ctx->knobs.dir,
			(unsigned)geteuid(), strerror(err));
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct hca_ctx *ctx;
	int err;

	if (device < devices || device >= devices + DEVICES)
		return errno = ENODEV, NULL;
	ctx = ctx_new();
	if (!ctx)
		return NULL;
	ctx->v.context.device = device;
	ctx->bare = device != &devices[DEVICES - 1];
	err = events_open(&ctx->async);
	if (err) {
		free(ctx);
		return errno = err, NULL;
	}
	ctx->v.context.async_fd = ctx->async.fd;
	err = engine_attach(ctx);
	if (err) {
		complain(ctx, err);
		events_close(&ctx->async);
		free(ctx);
		return errno = err, NULL;
	}
	return &ctx->v.context;
}

EXPORT int ibv_close_device(struct ibv_context *context)
{
	struct hca_ctx *ctx = to_ctx(context);

	engine_detach(ctx);
	events_close(&ctx->async);
	pthread_mutex_destroy(&ctx->ack_mu);
	pthread_cond_destroy(&ctx->ack_cond);
	free(ctx);
	return 0;
}

/* The old struct is a prefix of the new one: it ends before port_cap_flags2. */
EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	return hca_query_port(context, port, (struct ibv_port_attr *)attr,
			      offsetof(struct ibv_port_attr, flags));
}

EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	return index >= 0 && port_gid(to_ctx(context), port, (unsigned)index, gid) ? 0 : (errno = EINVAL, -1);
}

static uint32_t gid_type(struct ibv_context *context, uint32_t index)
{
	if (to_ctx(context)->knobs.mode != MODE_ROCE)
		return IBV_GID_TYPE_IB;
	return index & 1 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
}

EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
			     uint32_t flags, size_t size)
{
	struct ibv_gid_entry e = { .gid_index = index, .port_num = port, .gid_type = gid_type(context, index),
				   .ndev_ifindex = to_ctx(context)->knobs.ifindex };

	if (!to_ctx(context)->knobs.gid_ex)
		return EOPNOTSUPP;
	if (flags || !port_gid(to_ctx(context), port, index, &e.gid))
		return EINVAL;
	memset(entry, 0, size);
	memcpy(entry, &e, MIN(size, sizeof(e)));
	return 0;
}

EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max,
				    uint32_t flags, size_t size)
{
	size_t n = 0;

	if (flags || !max)
		return -EINVAL;
	for (unsigned port = 1; port <= port_count(to_ctx(context)); port++)
		for (unsigned i = 0; i < GIDS_ROCE && n < max; i++)
			if (!_ibv_query_gid_ex(context, port, i, (struct ibv_gid_entry *)((char *)entries + n * size), 0, size))
				n++;
	return n ? (ssize_t)n : -EINVAL;
}

/* ibv_devinfo asks for it through the private interface. */
EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index, int *type)
{
	union ibv_gid gid;

	if (!port_gid(to_ctx(context), port, index, &gid))
		return errno = EINVAL, -1;
	*type = gid_type(context, index) == IBV_GID_TYPE_ROCE_V2; /* numbered as sysfs does: IB and v1 are one */
	return 0;
}

EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	const struct knobs *k = &to_ctx(context)->knobs;

	if (!port || port > port_count(to_ctx(context)) || index < 0 || (unsigned)index >= k->npkeys)
		return errno = EINVAL, -1;
	*pkey = htons(k->pkeys[index]);
	return 0;
}

EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	const struct knobs *k = &to_ctx(context)->knobs;

	for (unsigned i = 0; port && port <= port_count(to_ctx(context)) && i < k->npkeys; i++)
		if (k->pkeys[i] == ntohs(pkey))
			return (int)i;
	return -1;
}

EXPORT int ibv_fork_init(void)
{
	return 0; /* pages are not pinned: fork does no harm */
}

EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}

EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
	(void)dir, (void)file, (void)buf, (void)size;
	errno = ENOENT;
	return -1;
}

EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	(void)pd, (void)attr;
	errno = EOPNOTSUPP; /* there is no UD */
	return NULL;
}

EXPORT int ibv_destroy_ah(struct ibv_ah *ah)
{
	(void)ah;
	return EOPNOTSUPP;
}

EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	(void)qp, (void)op, (void)flags;
	return 0;
}
