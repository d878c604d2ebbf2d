//go:build ofi && linux

// What Go calls of libfabric. Rules:
//  - C never calls Go. What has ended is a record in the device's ring, which Go reads where it lies.
//  - C keeps no Go pointer but the buffers of operations, which Go has pinned. An operation is known by its slot.
//  - All functions that take a device are called by one thread at a time.
//  - The library's threads get no signals: Go's handlers are for Go's threads.
// libfabric exports a few functions; the others are inline in its headers, by way of tables of its objects.

#define _GNU_SOURCE
#include "shim.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The versions of the symbols are those of 1.17: later libraries keep them, with the records that 1.17 has.
#define FUNCTIONS(F) \
	F(uint32_t, fi_version, (void), "FABRIC_1.0") \
	F(int, fi_getinfo, (uint32_t, const char *, const char *, uint64_t, const struct fi_info *, struct fi_info **), \
		"FABRIC_1.3") \
	F(void, fi_freeinfo, (struct fi_info *), "FABRIC_1.3") \
	F(struct fi_info *, fi_dupinfo, (const struct fi_info *), "FABRIC_1.3") \
	F(int, fi_fabric, (struct fi_fabric_attr *, struct fid_fabric **, void *), "FABRIC_1.1") \
	F(const char *, fi_strerror, (int), "FABRIC_1.0")

#define DECLARE(ret, name, args, version) static ret(*o_##name) args;
FUNCTIONS(DECLARE)
#undef DECLARE

enum { api = FI_VERSION(1, 17) }; // the oldest library that has been tested

enum { batch = 16, answers = 8, inject_most = 1024, slots_first = 64 };

#define ANSWER_TAG ((uint64_t)0xffff << 48) // the context of answers: see Limits
#define LOW31 (((uint64_t)1 << 31) - 1)
#define SOURCE_SHIFT 31
#define SOURCE_MASK (((uint64_t)1 << 17) - 1)

enum kind { plain, claimed, peek, answer };

// of_op is what libfabric knows an operation by.
struct of_op {
	struct fi_context2 context; // first
	struct of_slot *slot;       // of plain and claimed
	enum kind kind;
};

struct of_slot {
	struct of_op op;
	uint32_t index, peer;
	int sends, waits;    // waits: ends that are to come: libfabric's, and the peer's answer
	int unanswered;      // one of them is the answer
	int32_t status;      // of the first
	uint64_t length;     // of a receive's buffer
	struct fid_mr *mr;   // of the buffer
	void *desc;          // of small
	unsigned char *small;
};

// of_claim is a message that a probe has found, or looks for.
struct of_claim {
	struct of_op op;
	struct of_claim *next, **at; // of the messages that are taken
	uint64_t tag;
};

struct of_block {
	struct of_slot *slots;
	size_t count;
	unsigned char *small;
	struct fid_mr *mr;
};

struct of_dev {
	struct fid_ep *ep;
	struct fid_cq *cq;
	struct of_ring ring;
	uint32_t rank, slots, blocks;
	struct of_slot **slot;
	size_t inject;
	int registers;
	int always; // each message has data: sockets does not always say of a completion whether it has
	uint64_t key; // of the next registration
	struct of_op answer[answers];
	uint32_t unposted; // answers whose receive is to be posted, a bit each
	struct of_claim *peek, *taken;
	int peeking, found; // of the peek under way
	struct of_found what;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fi_info *info;
	struct of_block block[32];
	int fd;
	unsigned char name[256]; // its address
	size_t name_length;
};

static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static void *library;
static char library_path[1024];

#define FAIL(...) failed(err, __VA_ARGS__)

__attribute__((format(printf, 2, 3))) static int failed(char *err, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(err, OF_ERR, format, args);
	va_end(args);
	return -1;
}

static void block_signals(sigset_t *old)
{
	sigset_t all;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, old);
}

static void restore_signals(const sigset_t *old) { pthread_sigmask(SIG_SETMASK, old, NULL); }

// settings are variables that libfabric and what it loads read.
static void settings(void)
{
	// With these on, a Go program is corrupted or crashes. No value of the user's is better.
	static const char *const needed[][2] = {
		{"FI_MR_CACHE_MONITOR", "disabled"}, // registrations by address: Go uses addresses again
		{"FI_EFA_MR_CACHE_ENABLE", "0"},
		{"HFI_NO_BACKTRACE", "1"},  // psm2's signal handlers: nil pointers would no longer panic
		{"IPATH_NO_BACKTRACE", "1"}, // psm's
		{"PSM3_NO_BACKTRACE", "1"},
		// Over these buffers ofi_rxm 1.17 says neither length nor data of a message that is cut off. One that comes in
		// segments, and is cut off, ends twice.
		{"FI_OFI_RXM_ENABLE_DYN_RBUF", "0"},
		{"FI_OFI_RXM_SAR_LIMIT", "0"},
	};
	static const char *const preferred[][2] = {
		{"FI_HMEM", "system"}, // it need not look for accelerators
		// How many receives and sends there may be at a time. More are held by the engine, and wait for one to end.
		{"FI_OFI_RXM_RX_SIZE", "16384"},
		{"FI_OFI_RXM_TX_SIZE", "4096"},
	};
	for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
		setenv(needed[i][0], needed[i][1], 1);
	for (size_t i = 0; i < sizeof preferred / sizeof preferred[0]; i++)
		setenv(preferred[i][0], preferred[i][1], 0);
}

static int resolve(void *lib, char *err)
{
	if (!dlsym(lib, "fi_version"))
		return FAIL("it is no libfabric: it has no fi_version");
#define FIND(ret, name, args, version) \
	if (!(o_##name = (ret(*) args)dlvsym(lib, #name, version))) \
		return FAIL("it has no " #name " of version " version);
	FUNCTIONS(FIND)
#undef FIND
	uint32_t v = o_fi_version();
	if (FI_VERSION_LT(v, api))
		return FAIL("it is version %u.%u; %u.%u and later versions are taken", FI_MAJOR(v), FI_MINOR(v), FI_MAJOR(api),
			FI_MINOR(api));
	return 0;
}

int of_load(const char *path, char *err)
{
	int r = 0;
	pthread_mutex_lock(&loading);
	if (!library) {
		sigset_t old;
		settings();
		block_signals(&old);
		// Never closed: providers leave threads behind.
		void *lib = dlopen(path[0] ? path : "libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
		restore_signals(&old);
		if (!lib)
			r = FAIL("%s", dlerror());
		else if ((r = resolve(lib, err)) == 0) {
			Dl_info info;
			if (dladdr((void *)o_fi_version, &info) && info.dli_fname)
				snprintf(library_path, sizeof library_path, "%s", info.dli_fname);
			library = lib;
		}
	}
	pthread_mutex_unlock(&loading);
	return r;
}

const char *of_path(void) { return library_path; }
const char *of_text(int32_t status) { return o_fi_strerror(status < 0 ? -status : status); }

void of_version(unsigned *major, unsigned *minor)
{
	uint32_t v = o_fi_version();
	*major = FI_MAJOR(v);
	*minor = FI_MINOR(v);
}

static struct of_dev *dev_of(of_handle h) { return (struct of_dev *)(uintptr_t)h; }

// Which provider.

static int fast(const char *provider)
{
	static const char *const names[] = {"efa", "verbs", "psm3", "psm2", "psm", "opx"};
	size_t length = strcspn(provider, ";");
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (strlen(names[i]) == length && !strncmp(names[i], provider, length))
			return 1;
	return 0;
}

// ask returns all that can do what this transport needs, or NULL and an error.
static struct fi_info *ask(const char *provider, size_t inject, int *error)
{
	struct fi_info *hints = o_fi_dupinfo(NULL), *all = NULL;
	*error = -FI_ENOMEM;
	if (!hints)
		return NULL;
	hints->caps = FI_TAGGED;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->ep_attr->mem_tag_format = 0xaaaaaaaaaaaaaaaa; // 64 bits of it: see transport.PackTag
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
	hints->domain_attr->cq_data_size = 4;
	hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
	hints->tx_attr->inject_size = inject;
	if (provider[0])
		hints->fabric_attr->prov_name = strdup(provider);
	*error = o_fi_getinfo(api, NULL, NULL, 0, hints, &all);
	o_fi_freeinfo(hints);
	return *error == 0 ? all : NULL;
}

int of_list(const char *provider, char *names, int size)
{
	sigset_t old;
	int error, at = 0;
	block_signals(&old);
	struct fi_info *all = ask(provider, 0, &error);
	restore_signals(&old);
	names[0] = 0;
	for (struct fi_info *i = all; i; i = i->next) {
		int n = snprintf(names + at, size - at, "%s|%s\n", i->fabric_attr->prov_name, i->domain_attr->name);
		if (n >= size - at) {
			names[at] = 0;
			break;
		}
		at += n;
	}
	if (all)
		o_fi_freeinfo(all);
	return error == -FI_ENODATA ? 0 : error;
}

static struct fi_info *choose(const char *provider, int *error)
{
	static const size_t sizes[] = {inject_most, 64, 0};
	struct fi_info *all = NULL;
	for (size_t i = 0; i < 3 && !all; i++)
		for (struct fi_info *x = all = ask(provider, sizes[i], error); x; x = x->next)
			if (provider[0] || fast(x->fabric_attr->prov_name)) {
				struct fi_info *one = o_fi_dupinfo(x);
				o_fi_freeinfo(all);
				*error = one ? 0 : -FI_ENOMEM;
				return one;
			}
	if (all) {
		o_fi_freeinfo(all);
		*error = -FI_ENODATA;
	}
	return NULL;
}

// The device.

static int post_answers(struct of_dev *d)
{
	for (int i = 0; i < answers; i++) {
		if (!(d->unposted & 1u << i))
			continue;
		int r = fi_trecv(d->ep, NULL, 0, NULL, FI_ADDR_UNSPEC, ANSWER_TAG, ~((uint64_t)0xffff << 48),
			&d->answer[i].context);
		if (r == -FI_EAGAIN)
			return 0;
		if (r)
			return r;
		d->unposted &= ~(1u << i);
	}
	return 0;
}

static int open_cq(struct of_dev *d)
{
	struct fi_cq_attr a = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_FD};
	d->fd = -1;
	if (fi_cq_open(d->domain, &a, &d->cq, NULL) == 0) {
		if (fi_control(&d->cq->fid, FI_GETWAIT, &d->fd) != 0)
			d->fd = -1;
		return 0;
	}
	a.wait_obj = FI_WAIT_NONE;
	return fi_cq_open(d->domain, &a, &d->cq, NULL);
}

static int make(struct of_dev *d, const char **step)
{
	struct fi_info *info = d->info;
	int r;
#define STEP(what, call) \
	*step = what; \
	if ((r = (call)) != 0) \
		return r;
	STEP("fi_fabric", o_fi_fabric(info->fabric_attr, &d->fabric, NULL))
	STEP("fi_domain", fi_domain(d->fabric, info, &d->domain, NULL))
	STEP("fi_cq_open", open_cq(d))
	struct fi_av_attr av = {.type = info->domain_attr->av_type};
	if (av.type == FI_AV_UNSPEC)
		av.type = FI_AV_TABLE;
	STEP("fi_av_open", fi_av_open(d->domain, &av, &d->av, NULL))
	STEP("fi_endpoint", fi_endpoint(d->domain, info, &d->ep, NULL))
	STEP("fi_ep_bind", fi_ep_bind(d->ep, &d->av->fid, 0))
	STEP("fi_ep_bind", fi_ep_bind(d->ep, &d->cq->fid, FI_TRANSMIT | FI_RECV))
	STEP("fi_enable", fi_enable(d->ep))
	d->name_length = sizeof d->name;
	STEP("fi_getname", fi_getname(&d->ep->fid, d->name, &d->name_length))
	for (int i = 0; i < answers; i++) {
		d->answer[i].kind = answer;
		d->unposted |= 1u << i;
	}
	STEP("fi_trecv", post_answers(d))
	STEP("of_reserve", of_reserve(d, slots_first))
#undef STEP
	return 0;
}

struct of_dev *of_open(const char *provider, uint32_t rank, int registers, int *none, char *err)
{
	struct of_dev *d = calloc(1, sizeof *d);
	if (!d) {
		FAIL("out of memory");
		return NULL;
	}
	const char *step = "fi_getinfo";
	int r;
	sigset_t old;
	block_signals(&old);
	d->rank = rank;
	if ((d->info = choose(provider, &r))) {
		d->inject = d->info->tx_attr->inject_size;
		if (d->inject > inject_most)
			d->inject = inject_most;
		d->registers = registers || (d->info->domain_attr->mr_mode & FI_MR_LOCAL);
		d->always = !strcmp(d->info->fabric_attr->prov_name, "sockets");
		r = make(d, &step);
	}
	restore_signals(&old);
	if (r == 0)
		return d;
	*none = !d->info && r == -FI_ENODATA;
	FAIL("%s: %s", step, of_text(r));
	of_close(d);
	return NULL;
}

void of_close(struct of_dev *d)
{
	sigset_t old;
	block_signals(&old);
	if (d->ep)
		fi_close(&d->ep->fid);
	for (uint32_t i = 0; i < d->slots; i++)
		if (d->slot[i]->mr)
			fi_close(&d->slot[i]->mr->fid);
	for (uint32_t i = 0; i < d->blocks; i++)
		if (d->block[i].mr)
			fi_close(&d->block[i].mr->fid);
	if (d->av)
		fi_close(&d->av->fid);
	if (d->cq)
		fi_close(&d->cq->fid);
	if (d->domain)
		fi_close(&d->domain->fid);
	if (d->fabric)
		fi_close(&d->fabric->fid);
	if (d->info)
		o_fi_freeinfo(d->info);
	restore_signals(&old);
	for (struct of_claim *c = d->taken, *next; c; c = next) {
		next = c->next;
		free(c);
	}
	free(d->peek);
	for (uint32_t i = 0; i < d->blocks; i++) {
		free(d->block[i].slots);
		free(d->block[i].small);
	}
	free(d->slot);
	free(d->ring.entries);
	free(d);
}

void of_facts(struct of_dev *d, struct of_facts *f)
{
	*f = (struct of_facts){
		.provider = d->info->fabric_attr->prov_name,
		.address = d->name,
		.address_length = d->name_length,
		.longest = d->info->ep_attr->max_msg_size,
		.format = d->info->addr_format,
		.fd = d->fd,
		.registers = d->registers,
	};
}

struct of_ring *of_ring_of(struct of_dev *d) { return &d->ring; }

static int register_mem(struct of_dev *d, void *buf, size_t length, struct fid_mr **mr)
{
	return fi_mr_reg(d->domain, buf, length, FI_SEND | FI_RECV, 0, d->key++, 0, mr, NULL);
}

static int widen(struct of_ring *r, uint64_t least)
{
	uint64_t size = r->mask ? r->mask + 1 : 64;
	while (size < least)
		size *= 2;
	if (r->mask && size == r->mask + 1)
		return 0;
	struct of_end *entries = malloc(size * sizeof *entries);
	if (!entries)
		return -FI_ENOMEM;
	for (uint64_t i = r->head; i != r->tail; i++)
		entries[i & (size - 1)] = r->entries[i & r->mask];
	free(r->entries);
	r->entries = entries;
	r->mask = size - 1;
	return 0;
}

int of_reserve(struct of_dev *d, uint32_t slots)
{
	if (slots <= d->slots)
		return 0;
	struct of_slot **all = realloc(d->slot, slots * sizeof *all);
	if (!all)
		return -FI_ENOMEM;
	d->slot = all;
	size_t n = slots - d->slots;
	if (d->blocks == sizeof d->block / sizeof d->block[0])
		return -FI_ENOMEM;
	struct of_block *b = &d->block[d->blocks];
	*b = (struct of_block){.slots = calloc(n, sizeof *b->slots), .count = n, .small = aligned_alloc(64, n * OF_SMALL)};
	int r = b->slots && b->small ? widen(&d->ring, (uint64_t)slots + 1) : -FI_ENOMEM;
	if (r == 0 && d->registers)
		r = register_mem(d, b->small, n * OF_SMALL, &b->mr);
	if (r != 0) {
		free(b->slots);
		free(b->small);
		return r;
	}
	d->blocks++;
	for (size_t i = 0; i < n; i++) {
		struct of_slot *s = &b->slots[i];
		*s = (struct of_slot){.op = {.slot = s}, .index = d->slots, .small = b->small + i * OF_SMALL,
			.desc = b->mr ? fi_mr_desc(b->mr) : NULL};
		d->slot[d->slots++] = s;
	}
	return 0;
}

void *of_small(struct of_dev *d, uint32_t slot) { return d->slot[slot]->small; }

int of_insert(struct of_dev *d, const void *address, uint64_t *to)
{
	fi_addr_t addr;
	int r = fi_av_insert(d->av, address, 1, &addr, 0, NULL);
	*to = addr;
	return r == 1 ? 0 : r < 0 ? r : -FI_EADDRNOTAVAIL;
}

// What has ended.

static void ended(struct of_dev *d, struct of_slot *s, int32_t status, uint64_t tag, uint64_t length, uint64_t number)
{
	if (s->status == 0)
		s->status = status;
	if (s->waits == 0 || --s->waits > 0)
		return;
	if (s->mr) {
		fi_close(&s->mr->fid);
		s->mr = NULL;
	}
	struct of_ring *r = &d->ring; // of_reserve has made room
	r->entries[r->tail++ & r->mask] =
		(struct of_end){.slot = s->index, .status = s->status, .tag = tag, .length = length, .answer = number};
}

static void forget(struct of_dev *d, struct of_claim *c)
{
	(void)d;
	*c->at = c->next;
	if (c->next)
		c->next->at = c->at;
	free(c);
}

// answered takes an answer, whose tag says of whom, and to which send. Other processes write it: it may be anything.
static void answered(struct of_dev *d, uint64_t tag)
{
	uint64_t slot = (tag & LOW31) - 1;
	if (slot >= d->slots)
		return;
	struct of_slot *s = d->slot[slot];
	if (!s->unanswered || s->peer != (tag >> SOURCE_SHIFT & SOURCE_MASK))
		return;
	s->unanswered = 0;
	ended(d, s, 0, 0, 0, 0);
}

static void complete(struct of_dev *d, struct of_op *op, int32_t status, uint64_t tag, uint64_t length, uint64_t data)
{
	struct of_slot *s = op->slot;
	switch (op->kind) {
	case plain:
		if (s->sends && status && s->unanswered) { // no answer will come
			s->unanswered = 0;
			s->waits = 1;
		}
		ended(d, s, status, tag, length, s->sends ? 0 : data);
		break;
	case claimed:
		forget(d, (struct of_claim *)op);
		ended(d, s, status, tag, length, data);
		break;
	case peek:
		d->peeking = 0;
		d->found = status == 0;
		d->what = (struct of_found){.tag = tag, .length = length};
		break;
	case answer:
		if (status == 0)
			answered(d, tag);
		if (status != FI_ECANCELED)
			d->unposted |= 1u << (op - d->answer);
		break;
	}
}

static uint64_t data_of(struct of_dev *d, uint64_t flags, uint64_t data)
{
	return flags & FI_REMOTE_CQ_DATA || d->always ? data : 0;
}

// known returns the operation of a completion, or NULL: ofi_rxm 1.17 reports errors of its own with its own records.
static struct of_op *known(struct of_dev *d, void *context)
{
	if (d->peek && context == &d->peek->op)
		return context;
	for (uint32_t i = 0; i < d->blocks; i++) {
		struct of_block *b = &d->block[i];
		if (context >= (void *)b->slots && context < (void *)(b->slots + b->count))
			return context;
	}
	if (context >= (void *)d->answer && context < (void *)(d->answer + answers))
		return context;
	for (struct of_claim *c = d->taken; c; c = c->next)
		if (context == &c->op)
			return context;
	return NULL;
}

static void complete_badly(struct of_dev *d)
{
	struct fi_cq_err_entry e = {0};
	if (fi_cq_readerr(d->cq, &e, 0) != 1)
		return;
	struct of_op *op = known(d, e.op_context);
	if (!op)
		return;
	uint64_t length = e.len;
	// Providers differ in whether len counts what is cut off.
	if (e.err == FI_ETRUNC && op->slot && length <= op->slot->length)
		length = op->slot->length + (e.olen ? e.olen : 1);
	complete(d, op, e.err ? e.err : FI_EOTHER, e.tag, length, data_of(d, e.flags, e.data));
}

// progress reports whether something has ended.
static int progress(struct of_dev *d)
{
	struct fi_cq_tagged_entry e[batch];
	ssize_t n = fi_cq_read(d->cq, e, batch);
	for (ssize_t i = 0; i < n; i++)
		complete(d, e[i].op_context, 0, e[i].tag, e[i].len, data_of(d, e[i].flags, e[i].data));
	if (n == -FI_EAVAIL)
		complete_badly(d);
	if (d->unposted)
		post_answers(d);
	return n > 0 || n == -FI_EAVAIL;
}

void of_turn(of_handle h, unsigned turns)
{
	struct of_dev *d = dev_of(h);
	for (; turns > 0 && d->ring.head == d->ring.tail; turns--)
		progress(d);
}

void of_drain(of_handle h, unsigned turns)
{
	for (; turns > 0; turns--)
		if (!progress(dev_of(h)))
			sched_yield();
}

int of_arm(of_handle h)
{
	struct of_dev *d = dev_of(h);
	struct fid *fids[] = {&d->cq->fid};
	progress(d);
	if (d->ring.head != d->ring.tail)
		return OF_STARTED;
	if (d->fd < 0)
		return OF_DONE;
	if (fi_trywait(d->fabric, fids, 1) != 0)
		return OF_STARTED;
	// fi_trywait may have taken a message off, which the descriptor then does not show.
	progress(d);
	return d->ring.head != d->ring.tail ? OF_STARTED : OF_DONE;
}

// Operations.

static void *desc_of(struct of_slot *s) { return s->mr ? fi_mr_desc(s->mr) : NULL; }

// prepare registers the buffer of an operation, if that is needed.
static int prepare(struct of_dev *d, struct of_slot *s, void *buf, size_t length, int sends)
{
	s->sends = sends;
	s->status = 0;
	s->unanswered = 0;
	s->length = length;
	if (d->registers && length && buf != s->small)
		return register_mem(d, buf, length, &s->mr);
	return 0;
}

// begun goes on with what libfabric has returned of an operation.
static int begun(struct of_slot *s, ssize_t r, int waits)
{
	if (r == 0) {
		s->waits = waits;
		return OF_STARTED;
	}
	if (s->mr) {
		fi_close(&s->mr->fid);
		s->mr = NULL;
	}
	s->waits = 0;
	s->unanswered = 0;
	return r == -FI_EAGAIN ? OF_FULL : (int)r;
}

static int inject(struct of_dev *d, uint64_t to, uint64_t tag, uint64_t buf, uint64_t length)
{
	const void *b = (const void *)(uintptr_t)buf;
	ssize_t r = d->always ? fi_tinjectdata(d->ep, b, length, 0, to, tag) : fi_tinject(d->ep, b, length, to, tag);
	return r == 0 ? OF_DONE : r == -FI_EAGAIN ? OF_FULL : (int)r;
}

int of_send(of_handle h, uint64_t to, uint32_t peer, uint64_t tag, uint64_t buf, uint64_t length, int sync,
	uint32_t slot)
{
	struct of_dev *d = dev_of(h);
	if (!sync && length <= d->inject)
		return inject(d, to, tag, buf, length);
	struct of_slot *s = d->slot[slot];
	void *b = (void *)(uintptr_t)buf;
	int r = prepare(d, s, b, length, 1);
	if (r != 0)
		return r;
	s->peer = peer;
	s->unanswered = sync;
	if (!sync && !d->always)
		return begun(s, fi_tsend(d->ep, b, length, desc_of(s), to, tag, &s->op.context), 1);
	return begun(s, fi_tsenddata(d->ep, b, length, desc_of(s), sync ? (uint64_t)slot + 1 : 0, to, tag, &s->op.context),
		1 + sync);
}

int of_try_send(of_handle h, uint64_t to, uint64_t tag, uint64_t buf, uint64_t length)
{
	struct of_dev *d = dev_of(h);
	return length <= d->inject && inject(d, to, tag, buf, length) == OF_DONE;
}

int of_answer(of_handle h, uint64_t to, uint64_t number)
{
	struct of_dev *d = dev_of(h);
	return inject(d, to, ANSWER_TAG | (uint64_t)d->rank << SOURCE_SHIFT | (number & LOW31), 0, 0);
}

// room returns where a message is received. The slot's memory is given as a whole: ofi_rxm 1.17 never ends a receive of
// 0 bytes that meets a long message.
static void *room(struct of_slot *s, uint64_t buf, uint64_t *length)
{
	if (buf)
		return (void *)(uintptr_t)buf;
	*length = OF_SMALL;
	return s->small;
}

int of_recv(of_handle h, uint64_t tag, uint64_t ignore, uint64_t buf, uint64_t length, uint32_t slot)
{
	struct of_dev *d = dev_of(h);
	struct of_slot *s = d->slot[slot];
	void *b = room(s, buf, &length);
	int r = prepare(d, s, b, length, 0);
	if (r != 0)
		return r;
	s->op.kind = plain;
	return begun(s,
		fi_trecv(d->ep, b, length, buf ? desc_of(s) : s->desc, FI_ADDR_UNSPEC, tag, ignore, &s->op.context), 1);
}

int of_take(of_handle h, uint64_t message, uint64_t buf, uint64_t length, uint32_t slot)
{
	struct of_dev *d = dev_of(h);
	struct of_slot *s = d->slot[slot];
	struct of_claim *c = (struct of_claim *)(uintptr_t)message;
	void *b = room(s, buf, &length);
	int r = prepare(d, s, b, length, 0);
	if (r != 0)
		return r;
	struct iovec iov = {.iov_base = b, .iov_len = length};
	void *desc = buf ? desc_of(s) : s->desc;
	struct fi_msg_tagged m = {.msg_iov = &iov, .desc = &desc, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = c->tag,
		.context = &c->op.context};
	c->op.slot = s;
	c->op.kind = claimed;
	s->waits = 1; // it may end in the call
	r = fi_trecvmsg(d->ep, &m, FI_CLAIM);
	return r == 0 ? OF_STARTED : begun(s, r, 1);
}

int of_probe(of_handle h, uint64_t tag, uint64_t ignore, int take, struct of_found *f)
{
	struct of_dev *d = dev_of(h);
	if (!d->peek && !(d->peek = calloc(1, sizeof *d->peek)))
		return 0;
	struct of_claim *c = d->peek;
	c->op.kind = peek;
	struct iovec none = {0};
	struct fi_msg_tagged m = {.msg_iov = &none, .addr = FI_ADDR_UNSPEC, .tag = tag, .ignore = ignore,
		.context = &c->op.context};
	d->peeking = 1;
	d->found = 0;
	if (fi_trecvmsg(d->ep, &m, FI_PEEK | (take ? FI_CLAIM : 0)) != 0) {
		d->peeking = 0;
		return 0;
	}
	// The provider answers without any peer.
	for (unsigned turns = 0; d->peeking; turns++)
		if (!progress(d) && turns > batch)
			sched_yield();
	if (!d->found)
		return 0;
	*f = d->what;
	if (take) {
		c->tag = f->tag;
		c->at = &d->taken;
		if ((c->next = d->taken))
			c->next->at = &c->next;
		d->taken = c;
		d->peek = NULL;
		f->message = (uint64_t)(uintptr_t)c;
	}
	return 1;
}

void of_cancel(of_handle h, uint32_t slot)
{
	struct of_dev *d = dev_of(h);
	struct of_slot *s = d->slot[slot];
	if (s->waits == 0 || s->sends)
		return;
	fi_cancel(&d->ep->fid, &s->op.context); // of a claimed message it finds nothing
	for (int turns = 0; turns < 4 && s->waits; turns++)
		progress(d);
}

int of_ended(of_handle h, uint32_t slot) { return dev_of(h)->slot[slot]->waits == 0; }

int of_answers(of_handle h, uint32_t slot)
{
	struct of_slot *s = dev_of(h)->slot[slot];
	return s->waits == 1 && s->unanswered;
}
