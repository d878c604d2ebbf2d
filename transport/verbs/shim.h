//go:build verbs && linux

// The C layer under package verbs. It opens libibverbs at run time, keeps the objects of one device together, and takes
// and gives plain records in batches. It decides nothing: who owns which buffer and what is posted when is Go's.
// Nothing in here calls Go. Memory of Go's is used during a call only, but for buffers that Go has pinned and registered.
#ifndef VERBS_SHIM_H
#define VERBS_SHIM_H

#include <stddef.h>
#include <stdint.h>

enum { VB_ERR = 256 }; // bytes of an error text

// What one port of a device is and can.
struct vb_gid {
	uint8_t raw[16];
	uint32_t index;
	uint32_t type; // 0 InfiniBand, 1 RoCE v1, 2 RoCE v2, 255 not known
	uint32_t ifindex;
};

struct vb_port {
	uint8_t number, state, phys_state, active_mtu, max_mtu, link_layer, width, speed;
	uint16_t lid, pkeys;
	uint32_t gids; // length of the table
	uint32_t max_msg;
	uint32_t flags; // IBV_QPF_…
};

enum vb_transport { VB_TRANSPORT_IB, VB_TRANSPORT_IWARP }; // of enum ibv_transport_type


struct vb_caps {
	char name[64];
	char firmware[64];
	uint64_t node_guid, max_mr_size, device_flags;
	uint32_t vendor, vendor_part, ports;
	int32_t transport; // enum ibv_transport_type
	uint32_t max_qp, max_qp_wr, max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd;
	uint32_t max_srq, max_srq_wr, max_srq_sge;
	uint32_t max_rd_atom, max_init_rd_atom, atomic;
	uint32_t tm_flags, tm_tags, tm_ops, tm_sge, tm_rndv;
	uint64_t odp_general;
	uint32_t odp_rc;
};

// One open device.
struct vb_ctx;

// A queue pair, as its number and a handle.
struct vb_qp;

// Where the other end of a connection is.
struct vb_remote {
	uint8_t gid[16];
	uint32_t qpn, psn;
	uint16_t lid;
	uint8_t mtu;      // enum ibv_mtu
	uint8_t rd_atom;  // READs and atomics that this side may have under way
	uint8_t rd_serve; // that the other side may have
	uint8_t timeout, retries, rnr_retries, rnr_timer;
	uint8_t sl, traffic_class, hops;
};

enum vb_opcode { VB_SEND, VB_WRITE, VB_WRITE_IMM, VB_READ, VB_ADD, VB_SWAP };

enum vb_op_flags { VB_SIGNALED = 1, VB_SOLICITED = 2, VB_INLINE = 4, VB_FENCE = 8 };

// Something to post on a send queue.
struct vb_op {
	uint64_t qp; // a struct vb_qp *; records have no pointers, or Go would look through what is around them
	uint64_t id;
	uint64_t local, remote;
	uint64_t compare, swap; // VB_ADD: compare is what is added
	uint32_t length, lkey, rkey, imm;
	uint16_t opcode, flags;
	uint32_t zero;
};

enum vb_wc_opcode {
	VB_WC_SEND, VB_WC_WRITE, VB_WC_READ, VB_WC_ATOMIC, VB_WC_RECV, VB_WC_RECV_IMM, VB_WC_OTHER,
	// With a tag-matching receive queue:
	VB_WC_TM_ADD, VB_WC_TM_DEL, VB_WC_TM_SYNC, // of list operations
	VB_WC_TM_RECV,   // of a message with a tag: into a tagged buffer, or one that no entry was for
	VB_WC_TM_NO_TAG, // of any other
};

enum vb_wc_flags { VB_MATCH = 1, VB_VALID = 2, VB_SYNC_WANTED = 4 };

// Of vb_wc.status, that are not failures of a queue pair.
enum vb_tm_status { VB_TM_ERR = 22, VB_TM_INCOMPLETE = 23 };

// A completion.
struct vb_wc {
	uint64_t id;
	// enum ibv_wc_status. With an error only id, qpn and vendor hold, and id only if the queue is the program's: mlx5
	// takes an error of a tagged buffer for one of a receive buffer. VB_TM_ERR: flags hold too.
	uint32_t status;
	uint32_t opcode; // enum vb_wc_opcode
	uint32_t length, qpn, imm, vendor;
	uint64_t tag;   // of a match
	uint32_t priv;  // what its sender has put into the header
	uint32_t flags; // enum vb_wc_flags
};

enum vb_access { VB_LOCAL_WRITE = 1, VB_REMOTE_WRITE = 2, VB_REMOTE_READ = 4, VB_REMOTE_ATOMIC = 8, VB_RELAXED = 16 };

struct vb_event {
	uint32_t type; // enum ibv_event_type
	uint32_t of;   // the owner of the queue pair, or the number of the port
};

struct vb_sizes {
	uint32_t cqe, srq_wr, slot; // wanted; what came of it is returned in them. slot: bytes of one receive buffer
	uint32_t tags, ops;         // entries and operations of the list of tagged buffers; 0: an ordinary receive queue
};

// vb_load opens the library; 0, or -1 with a text. Later calls do nothing.
int vb_load(const char *path, char *err);

// vb_names fills names, 64 bytes each, and returns how many devices there are; an error is -1 with a text.
int vb_names(char *names, int max, char *err);

struct vb_ctx *vb_open(const char *name, char *err);
int vb_query(struct vb_ctx *c, struct vb_caps *caps, char *err);
int vb_query_port(struct vb_ctx *c, int number, struct vb_port *port, char *err);
int vb_query_gid(struct vb_ctx *c, int port, int index, struct vb_gid *gid);
int vb_query_pkey(struct vb_ctx *c, int port, int index); // or -1

// vb_make makes protection domain, completion channel and queue, and the shared receive queue, whose buffers begin at
// slots and have sizes->slot bytes each.
int vb_make(struct vb_ctx *c, struct vb_sizes *sizes, char *err);
void vb_unmake(struct vb_ctx *c); // ends what vb_make has made, all of it or a part
void vb_close(struct vb_ctx *c);

// vb_pages maps zeroed memory off every heap; NULL if there is none.
void *vb_pages(size_t bytes);
void vb_unpages(void *mem, size_t bytes);

// vb_register returns a handle, or NULL with the error number in *no.
void *vb_register(struct vb_ctx *c, uint64_t addr, uint64_t bytes, int access, uint32_t *lkey, uint32_t *rkey, int *no);
int vb_deregister(void *mr);

// vb_register_dmabuf is vb_register of the first bytes of dma-buf fd, which requests name by the addresses from addr on.
// ENOSYS in *no: this library has no such function.
void *vb_register_dmabuf(struct vb_ctx *c, int fd, uint64_t addr, uint64_t bytes, int access, uint32_t *lkey, uint32_t *rkey, int *no);

// rights: enum vb_access, what the peer may do. owner: what vb_event says of its events; 0: nothing.
struct vb_qp *vb_qp_make(struct vb_ctx *c, int port, int pkey, int rights, uint32_t owner, uint32_t *depth, uint32_t *inlined, uint32_t *qpn, char *err);
// vb_qp_serve makes the queue pair by which the device itself reads and answers for a list of tagged buffers.
struct vb_qp *vb_qp_serve(struct vb_ctx *c, int port, int pkey, int rights, uint32_t owner, uint32_t *qpn, char *err);
int vb_qp_connect(struct vb_ctx *c, struct vb_qp *qp, int port, int gid_index, int global, const struct vb_remote *r, uint32_t psn, char *err);
int vb_qp_fail(struct vb_qp *qp); // to the error state: what is queued is flushed
int vb_qp_destroy(struct vb_qp *qp);

// Probes, whose completions come to a queue and a channel of their own. Each has room for one request. vb_prover_poll
// forgets notifications, asks for one of the next completion, and polls; -1 with an error number in *no.
int vb_prover_make(struct vb_ctx *c, uint32_t entries, char *err);
struct vb_qp *vb_prover_qp(struct vb_ctx *c, int port, int pkey, uint32_t *qpn, char *err);
int vb_prover_channel(struct vb_ctx *c); // descriptor
int vb_prover_poll(struct vb_ctx *c, struct vb_wc *wc, int most, int *no);

// vb_srq says where the receive buffers are: number i lies at base + i * slot. Their memory is registered in parts, of
// which vb_srq_part adds one: from buffer first on, up to the next part. ENOSPC: there are as many as there may be.
void vb_srq(struct vb_ctx *c, uint64_t base);
int vb_srq_part(struct vb_ctx *c, uint32_t first, uint32_t lkey);

// vb_srq_limit asks for IBV_EVENT_SRQ_LIMIT_REACHED when fewer than limit buffers are left, once. 0, or an error number.
int vb_srq_limit(struct vb_ctx *c, uint32_t limit);

// vb_turn gives *n receive buffers back and polls: the one call that a rank makes all the time. It returns how many
// completions there were, or -1 with an error number in *no. After an error too, *n is how many buffers the device has
// taken.
int vb_turn(struct vb_ctx *c, const uint32_t *buffers, int *n, struct vb_wc *wc, int most, int *no);

// vb_post posts what is in ops, and returns how many were taken; *no is why not more.
int vb_post(const struct vb_op *ops, int n, int *no);

// The list of tagged buffers. Each is asynchronous and ends with a completion with id; seen is how many messages that
// found no entry have been dealt with. 0, or an error number: ENOMEM if the list or its queue is full.
int vb_tm_add(struct vb_ctx *c, uint64_t id, uint64_t receive_id, uint64_t tag, uint64_t mask, uint64_t addr, uint32_t bytes,
	uint32_t lkey, uint16_t seen, uint32_t *handle);
int vb_tm_del(struct vb_ctx *c, uint64_t id, uint32_t handle, uint16_t seen);
int vb_tm_sync(struct vb_ctx *c, uint64_t id, uint16_t seen);

int vb_channel(struct vb_ctx *c); // descriptor, readable when what vb_notify has asked for is there
int vb_async(struct vb_ctx *c);   // descriptor of vb_event

// vb_notify forgets earlier notifications and asks for one.
int vb_notify(struct vb_ctx *c, int solicited);
int vb_event(struct vb_ctx *c, struct vb_event *e); // 1, or 0: none now

const char *vb_status_text(uint32_t status);
const char *vb_event_text(uint32_t type);
const char *vb_path(void); // of the library, once it is open

// vb_symbol finds a further function of the library that was loaded, for tests.
void *vb_symbol(const char *name);
uint64_t vb_counter(struct vb_ctx *c, const char *name); // of the software HCA; all ones if it has none of that name
int vb_inject(struct vb_ctx *c, const char *what);

#endif
