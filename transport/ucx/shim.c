//go:build ucx && linux

// What Go calls of UCX. Rules:
//  - C never calls Go. A callback of UCX writes a record into the worker's ring, which Go reads where it lies.
//  - C keeps no Go pointer but the buffers of operations, which Go has pinned. An operation is known by its slot.
//  - All functions that take a worker are called by one thread at a time, except ux_map and ux_unmap.
//  - The library's threads get no signals: Go's handlers are for Go's threads.

#define _GNU_SOURCE
#include "shim.h"

#include <ucp/api/ucp.h>
#include <ucs/debug/log_def.h>

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define FUNCTIONS(F) \
	F(void, ucp_get_version, (unsigned *, unsigned *, unsigned *)) \
	F(const char *, ucp_get_version_string, (void)) \
	F(ucs_status_t, ucp_config_read, (const char *, const char *, ucp_config_t **)) \
	F(void, ucp_config_release, (ucp_config_t *)) \
	F(ucs_status_t, ucp_init_version, \
		(unsigned, unsigned, const ucp_params_t *, const ucp_config_t *, ucp_context_h *)) \
	F(void, ucp_cleanup, (ucp_context_h)) \
	F(void, ucp_context_print_info, (const ucp_context_h, FILE *)) \
	F(ucs_status_t, ucp_worker_create, (ucp_context_h, const ucp_worker_params_t *, ucp_worker_h *)) \
	F(void, ucp_worker_destroy, (ucp_worker_h)) \
	F(ucs_status_t, ucp_worker_get_address, (ucp_worker_h, ucp_address_t **, size_t *)) \
	F(void, ucp_worker_release_address, (ucp_worker_h, ucp_address_t *)) \
	F(ucs_status_t, ucp_worker_get_efd, (ucp_worker_h, int *)) \
	F(unsigned, ucp_worker_progress, (ucp_worker_h)) \
	F(ucs_status_t, ucp_worker_arm, (ucp_worker_h)) \
	F(void, ucp_ep_print_info, (ucp_ep_h, FILE *)) \
	F(ucs_status_ptr_t, ucp_ep_flush_nbx, (ucp_ep_h, const ucp_request_param_t *)) \
	F(ucs_status_t, ucp_ep_create, (ucp_worker_h, const ucp_ep_params_t *, ucp_ep_h *)) \
	F(ucs_status_ptr_t, ucp_ep_close_nbx, (ucp_ep_h, const ucp_request_param_t *)) \
	F(ucs_status_ptr_t, ucp_tag_send_nbx, (ucp_ep_h, const void *, size_t, ucp_tag_t, const ucp_request_param_t *)) \
	F(ucs_status_ptr_t, ucp_tag_send_sync_nbx, \
		(ucp_ep_h, const void *, size_t, ucp_tag_t, const ucp_request_param_t *)) \
	F(ucs_status_ptr_t, ucp_tag_recv_nbx, \
		(ucp_worker_h, void *, size_t, ucp_tag_t, ucp_tag_t, const ucp_request_param_t *)) \
	F(ucs_status_ptr_t, ucp_tag_msg_recv_nbx, \
		(ucp_worker_h, void *, size_t, ucp_tag_message_h, const ucp_request_param_t *)) \
	F(ucp_tag_message_h, ucp_tag_probe_nb, (ucp_worker_h, ucp_tag_t, ucp_tag_t, int, ucp_tag_recv_info_t *)) \
	F(void, ucp_request_cancel, (ucp_worker_h, void *)) \
	F(void, ucp_request_free, (void *)) \
	F(ucs_status_t, ucp_request_check_status, (void *)) \
	F(ucs_status_t, ucp_mem_map, (ucp_context_h, const ucp_mem_map_params_t *, ucp_mem_h *)) \
	F(ucs_status_t, ucp_mem_unmap, (ucp_context_h, ucp_mem_h)) \
	F(const char *, ucs_status_string, (ucs_status_t)) \
	F(void, ucs_log_push_handler, (ucs_log_func_t))

_Static_assert(sizeof(struct ux_slot) == 192, "a slot is three cache lines");

#define DECLARE(ret, name, args) static ret(*u_##name) args;
FUNCTIONS(DECLARE)
#undef DECLARE

// The oldest version that has been tested, and the newest whose interface is the one that this was built against.
enum { oldest_major = 1, oldest_minor = 13 };

static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static void *library;
static char library_path[1024];

struct ux_ep {
	struct ux_worker *worker;
	struct ux_ep *next;
	ucp_ep_h ep;
	uint32_t peer;
	int watched, failed;

	int tcp, other;     // it has lanes that are TCP connections, and others
	uint32_t under_way; // sends
	int sent;           // something, maybe, since flush has begun
	void *flush;        // NULL: none
	struct ux_ep *next_used;
	int used; // it is in the worker's list
};

// ux_kept is a send from the queue whose bytes UCX reads later.
struct ux_kept {
	struct ux_ep *ep;
	void *request; // as that of a slot
	uint32_t ended;
	struct ux_kept *next; // free
	unsigned char data[UX_INLINE];
};

struct ux_worker {
	ucp_worker_h worker;
	struct ux_ring ring;
	struct ux_queue queue;
	struct ux_kept kept[UX_KEPT];
	struct ux_kept *spare; // of kept
	uint32_t slots, blocks;
	struct ux_slot *block[32]; // slots are allocated together, each time as many as there are at least
	ucp_context_h context;
	ucp_address_t *address;
	size_t address_length;
	struct ux_ep *eps;
	struct ux_ep *used; // those by which UCX may still have something to send
};

#define FAIL(...) failed(err, __VA_ARGS__)

__attribute__((format(printf, 2, 3))) static int failed(char *err, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(err, UX_ERR, format, args);
	va_end(args);
	return -1;
}

// quietly has the threads that the library makes in between receive no signals.
static void block_signals(sigset_t *old)
{
	sigset_t all;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, old);
}

static void restore_signals(const sigset_t *old) { pthread_sigmask(SIG_SETMASK, old, NULL); }

// settings are UCX's variables, which it reads when it is loaded and when it makes its objects.
static void settings(void)
{
	// With these on, a Go program is corrupted or crashes. No value of the user's is better.
	static const char *const needed[][2] = {
		{"UCX_HANDLE_ERRORS", "none"},    // signal handlers: nil pointers would no longer panic
		{"UCX_DEBUG_SIGNO", "0"},         // likewise
		{"UCX_MEM_EVENTS", "n"},          // hooks: they see only some of what Go's memory does
		{"UCX_MEM_MMAP_HOOK_MODE", "none"},
		{"UCX_MEM_MALLOC_HOOKS", "n"},
		{"UCX_MEM_MALLOC_RELOC", "n"},
		{"UCX_RCACHE_ENABLE", "n"},       // registrations by address: Go uses addresses again
		{"UCX_IB_REG_METHODS", "direct"}, // likewise, until 1.15
		{"UCX_IB_FORK_INIT", "n"},        // it splits Go's heap into mappings
	};
	static const char *const preferred[][2] = {
		{"UCX_LOG_LEVEL", "fatal"},
		{"UCX_MEM_LOG_LEVEL", "fatal"},
		{"UCX_WARN_UNUSED_ENV_VARS", "n"},
		{"UCX_VFS_ENABLE", "n"},             // a thread that is of no use here
		// soft-RoCE says more than once that a queue pair that was closed is empty, and UCX then aborts. Without these
		// events it keeps those of peers that have ended until it is closed itself.
		{"UCX_IB_ASYNC_EVENTS", "n"},
		{"UCX_KEEPALIVE_INTERVAL", "1s"},    // how soon the end of a peer is noticed that was sent nothing
	};
	for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
		setenv(needed[i][0], needed[i][1], 1);
	for (size_t i = 0; i < sizeof preferred / sizeof preferred[0]; i++)
		setenv(preferred[i][0], preferred[i][1], 0);
}

static int resolve(void *lib, char *err)
{
	if (!(u_ucp_get_version = (void (*)(unsigned *, unsigned *, unsigned *))dlsym(lib, "ucp_get_version")))
		return FAIL("it is no libucp: it has no ucp_get_version");
	unsigned major, minor, patch;
	u_ucp_get_version(&major, &minor, &patch);
	if (major != oldest_major || minor < oldest_minor)
		return FAIL("it is version %u.%u.%u; %d.%d and later versions %d have been tested", major, minor, patch,
			oldest_major, oldest_minor, oldest_major);
#define FIND(ret, name, args) \
	if (!(u_##name = (ret(*) args)dlsym(lib, #name))) \
		return FAIL("it has no " #name);
	FUNCTIONS(FIND)
#undef FIND
	return 0;
}

// live_on keeps UCX from aborting this process when an endpoint has failed that is not watched: when it reads memory of
// a process that has just ended, for instance. The operation ends with an error then, and the kernel tells of the end.
static ucs_log_func_rc_t live_on(const char *file, unsigned line, const char *function, ucs_log_level_t level,
	const ucs_log_component_config_t *component, const char *message, va_list args)
{
	(void)file, (void)line, (void)function, (void)component, (void)message, (void)args;
	return level == UCS_LOG_LEVEL_FATAL ? UCS_LOG_FUNC_RC_STOP : UCS_LOG_FUNC_RC_CONTINUE;
}

int ux_load(const char *path, char *err)
{
	int r = 0;
	pthread_mutex_lock(&loading);
	if (!library) {
		sigset_t old;
		settings();
		block_signals(&old);
		// Never closed: UCX leaves threads behind.
		void *lib = dlopen(path[0] ? path : "libucp.so.0", RTLD_NOW | RTLD_LOCAL);
		restore_signals(&old);
		if (!lib)
			r = FAIL("%s", dlerror());
		else {
			Dl_info info;
			void *f = dlsym(lib, "ucp_get_version");
			if (f && dladdr(f, &info) && info.dli_fname)
				snprintf(library_path, sizeof library_path, "%s", info.dli_fname);
			if ((r = resolve(lib, err)) == 0) {
				library = lib;
				u_ucs_log_push_handler(live_on);
			}
		}
	}
	pthread_mutex_unlock(&loading);
	return r;
}

const char *ux_path(void) { return library_path; }
const char *ux_version(void) { return u_ucp_get_version_string(); }
const char *ux_status_text(int32_t status) { return u_ucs_status_string((ucs_status_t)status); }

static void push(struct ux_worker *w, uint32_t slot, ucs_status_t status, uint64_t tag, uint64_t length)
{
	struct ux_ring *r = &w->ring; // ux_reserve has made room
	r->entries[r->tail++ & r->mask] = (struct ux_done){.slot = slot, .status = status, .tag = tag, .length = length};
}

static struct ux_slot *slot_at(struct ux_worker *w, uint32_t index) { return w->ring.slots[index]; }

static struct ux_worker *worker_of(ux_handle h) { return (struct ux_worker *)(uintptr_t)h; }

// Callbacks.

static struct ux_ep *ep_of(uint64_t ep) { return (struct ux_ep *)(uintptr_t)ep; }

static void ended(struct ux_slot *s, void *request, struct ux_ep *e, ucs_status_t status, uint64_t tag, uint64_t length)
{
	push(s->worker, s->index, status, tag, length);
	if (!s->request) {
		s->ended = 1; // inside of the call that begins it, which frees it
		return;
	}
	s->request = NULL;
	if (e)
		e->under_way--;
	u_ucp_request_free(request);
}

static void sent(void *request, ucs_status_t status, void *arg)
{
	struct ux_slot *s = arg;
	ended(s, request, ep_of(s->with), status, 0, 0);
}

static void received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *arg)
{
	ended(arg, request, NULL, status, info->sender_tag, info->length);
}

static void let_go(struct ux_kept *k)
{
	struct ux_worker *w = k->ep->worker;
	k->next = w->spare;
	w->spare = k;
	w->queue.kept--;
}

static void kept_sent(void *request, ucs_status_t status, void *arg)
{
	struct ux_kept *k = arg;
	(void)status; // an endpoint that has failed says so itself
	if (!k->request) {
		k->ended = 1; // inside of the call that begins it
		return;
	}
	k->ep->under_way--;
	u_ucp_request_free(request);
	let_go(k);
}

static void ep_failed(void *arg, ucp_ep_h ep, ucs_status_t status)
{
	struct ux_ep *e = arg;
	(void)ep;
	if (!e->failed) {
		e->failed = 1;
		push(e->worker, UX_DOWN, status, e->peer, 0);
	}
}

// The worker.

static ucs_status_t make_context(ucp_context_h *context)
{
	ucp_config_t *config;
	ucs_status_t st = u_ucp_config_read(NULL, NULL, &config);
	if (st != UCS_OK)
		return st;
	ucp_params_t p = {
		.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_TAG_SENDER_MASK | UCP_PARAM_FIELD_MT_WORKERS_SHARED,
		.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP,
		.tag_sender_mask = 0x0000ffff80000000, // of transport.PackTag
		.mt_workers_shared = 1,                // ux_map
	};
	st = u_ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &p, config, context);
	u_ucp_config_release(config);
	return st;
}

static void print_context(ucp_context_h context, char *names, int size)
{
	FILE *f = fmemopen(names, size, "w");
	if (f) {
		u_ucp_context_print_info(context, f);
		fclose(f);
	}
}

int ux_names(char *names, int size)
{
	ucp_context_h context;
	sigset_t old;
	block_signals(&old);
	ucs_status_t st = make_context(&context);
	if (st == UCS_OK) {
		print_context(context, names, size);
		u_ucp_cleanup(context);
	}
	restore_signals(&old);
	return st;
}

static ucs_status_t make_worker(struct ux_worker *w, const char **step)
{
	*step = "ucp_init";
	ucs_status_t st = make_context(&w->context);
	if (st != UCS_OK)
		return st;
	ucp_worker_params_t p = {
		.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_EVENTS,
		.thread_mode = UCS_THREAD_MODE_SERIALIZED, // goroutines change threads
		.events = UCP_WAKEUP_TAG_SEND | UCP_WAKEUP_TAG_RECV | UCP_WAKEUP_RX | UCP_WAKEUP_TX,
	};
	*step = "ucp_worker_create";
	if ((st = u_ucp_worker_create(w->context, &p, &w->worker)) != UCS_OK)
		return st;
	*step = "ucp_worker_get_address";
	return u_ucp_worker_get_address(w->worker, &w->address, &w->address_length);
}

struct ux_worker *ux_open(int *no_tls, char *err)
{
	struct ux_worker *w = calloc(1, sizeof *w);
	if (!w) {
		FAIL("out of memory");
		return NULL;
	}
	for (size_t i = 0; i < UX_KEPT; i++) {
		w->kept[i].next = w->spare;
		w->spare = &w->kept[i];
	}
	const char *step;
	sigset_t old;
	block_signals(&old);
	ucs_status_t st = make_worker(w, &step);
	restore_signals(&old);
	if (st == UCS_OK)
		return w;
	*no_tls = st == UCS_ERR_NO_DEVICE;
	FAIL("%s: %s", step, ux_status_text(st));
	ux_close(w);
	return NULL;
}

void ux_close(struct ux_worker *w)
{
	sigset_t old;
	block_signals(&old);
	if (w->address)
		u_ucp_worker_release_address(w->worker, w->address);
	if (w->worker)
		u_ucp_worker_destroy(w->worker);
	if (w->context)
		u_ucp_cleanup(w->context);
	restore_signals(&old);
	for (struct ux_ep *e = w->eps, *next; e; e = next) {
		next = e->next;
		free(e);
	}
	for (uint32_t i = 0; i < w->blocks; i++)
		free(w->block[i]);
	free(w->ring.slots);
	free(w->ring.entries);
	free(w);
}

struct ux_ring *ux_ring_of(struct ux_worker *w) { return &w->ring; }
struct ux_queue *ux_queue_of(struct ux_worker *w) { return &w->queue; }

const void *ux_address(struct ux_worker *w, size_t *length)
{
	*length = w->address_length;
	return w->address;
}

int ux_fd(struct ux_worker *w)
{
	int fd;
	return u_ucp_worker_get_efd(w->worker, &fd) == UCS_OK ? fd : -1;
}

void ux_worker_names(struct ux_worker *w, char *names, int size) { print_context(w->context, names, size); }

static int widen(struct ux_ring *r, uint64_t least)
{
	uint64_t size = r->mask ? r->mask + 1 : 256;
	while (size < least)
		size *= 2;
	if (r->mask && size == r->mask + 1)
		return 0;
	struct ux_done *entries = malloc(size * sizeof *entries);
	if (!entries)
		return -1;
	for (uint64_t i = r->head; i != r->tail; i++)
		entries[i & (size - 1)] = r->entries[i & r->mask];
	free(r->entries);
	r->entries = entries;
	r->mask = size - 1;
	return 0;
}

int ux_reserve(struct ux_worker *w, uint32_t slots, uint32_t ends)
{
	if (slots > w->slots) {
		struct ux_slot **all = realloc(w->ring.slots, slots * sizeof *all);
		if (!all)
			return -1;
		w->ring.slots = all;
		size_t n = slots - w->slots;
		struct ux_slot *block = w->blocks < 32 ? aligned_alloc(64, n * sizeof *block) : NULL;
		if (!block)
			return -1;
		w->block[w->blocks++] = block;
		for (; w->slots < slots; block++) {
			*block = (struct ux_slot){.worker = w, .index = w->slots};
			all[w->slots++] = block;
		}
	}
	return widen(&w->ring, (uint64_t)w->slots + ends + 1);
}

// Endpoints.

// look finds out what lanes an endpoint has. No function of UCX says it but the one that prints. Where none can be
// read, the endpoint counts as one with both kinds.
static void look(struct ux_ep *e)
{
	char text[4096] = "", *rest = text;
	FILE *f = fmemopen(text, sizeof text, "w");
	if (f) {
		u_ucp_ep_print_info(e->ep, f);
		fclose(f);
	}
	for (char *line; (line = strsep(&rest, "\n"));)
		if (strstr(line, " lane[")) {
			if (strstr(line, ":tcp/"))
				e->tcp = 1;
			else
				e->other = 1;
		}
	if (!e->tcp && !e->other)
		e->tcp = e->other = 1;
}

uint64_t ux_connect(struct ux_worker *w, const void *address, uint32_t peer, int watched, int32_t *status)
{
	struct ux_ep *e = calloc(1, sizeof *e);
	if (!e) {
		*status = UCS_ERR_NO_MEMORY;
		return 0;
	}
	*e = (struct ux_ep){.worker = w, .peer = peer, .watched = watched, .next = w->eps};
	ucp_ep_params_t p = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
		.address = address,
		.err_mode = watched ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE,
	};
	if (watched) {
		p.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLER;
		p.err_handler.cb = ep_failed;
		p.err_handler.arg = e;
	}
	sigset_t old;
	block_signals(&old);
	ucs_status_t st = u_ucp_ep_create(w->worker, &p, &e->ep);
	restore_signals(&old);
	if (st != UCS_OK) {
		free(e);
		*status = st;
		return 0;
	}
	look(e);
	w->eps = e;
	return (uint64_t)(uintptr_t)e;
}

// ux_disconnect ends the operations of a watched endpoint. Of one that is not watched UCX keeps them.
void ux_disconnect(struct ux_worker *w, uint64_t ep)
{
	struct ux_ep *e = ep_of(ep);
	(void)w;
	if (!e->watched || !e->ep)
		return;
	e->failed = 1;
	ucp_request_param_t p = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
	ucs_status_ptr_t r = u_ucp_ep_close_nbx(e->ep, &p);
	if (UCS_PTR_IS_PTR(r))
		u_ucp_request_free(r);
	e->ep = NULL;
}

// Operations.

static void params(ucp_request_param_t *p, void *arg)
{
	p->op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
	p->user_data = arg;
}

static void with_mapping(ucp_request_param_t *p, uint64_t mem)
{
	if (mem) {
		p->op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
		p->memh = (ucp_mem_h)(uintptr_t)mem;
	}
}

static void recv_params(ucp_request_param_t *p, struct ux_slot *s)
{
	params(p, s);
	// What ends at once calls the callback too: 1.13 does not say otherwise what has come.
	p->op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
	p->cb.recv = received;
	with_mapping(p, s->with);
	s->request = NULL;
	s->ended = 0;
}

static void *buffer(struct ux_slot *s) { return s->buf ? (void *)(uintptr_t)s->buf : s->small; }

// begun takes what UCX has returned of an operation, whose callback has set ended if it was called.
static int begun(void **request, uint32_t ended, ucs_status_ptr_t r)
{
	if (r == NULL)
		return UX_DONE;
	if (UCS_PTR_IS_ERR(r))
		return UCS_PTR_STATUS(r);
	if (ended)
		u_ucp_request_free(r);
	else
		*request = r;
	return UX_STARTED;
}

static void use(struct ux_ep *e)
{
	e->sent = 1;
	if (!e->used) {
		e->used = 1;
		e->next_used = e->worker->used;
		e->worker->used = e;
	}
}

void ux_use(uint64_t ep) { use(ep_of(ep)); }

// begin_send sends a message that Go has been told is sent.
static void begin_send(struct ux_worker *w, const struct ux_held *h)
{
	struct ux_ep *e = ep_of(h->ep);
	if (!e->ep) // its peer is gone, of which Go knows
		return;
	struct ux_kept *k = w->spare; // there is one: see mayHoldSend
	w->spare = k->next;
	w->queue.kept++;
	memcpy(k->data, h->data, h->length);
	k->ep = e;
	k->request = NULL;
	k->ended = 0;
	ucp_request_param_t p;
	params(&p, k);
	p.cb.send = kept_sent;
	use(e);
	ucs_status_ptr_t r = u_ucp_tag_send_nbx(e->ep, k->data, h->length, h->tag, &p);
	int st = begun(&k->request, k->ended, r);
	if (k->request) {
		e->under_way++;
		return;
	}
	let_go(k);
	if (st < 0)
		ep_failed(e, e->ep, st);
}

static int begin_recv(struct ux_worker *w, struct ux_slot *s)
{
	ucp_request_param_t p;
	recv_params(&p, s);
	ucs_status_ptr_t r = u_ucp_tag_recv_nbx(w->worker, buffer(s), s->length, s->tag, s->mask, &p);
	return begun(&s->request, s->ended, r);
}

// step goes on until something has ended, at most turns times, and then while several things end at a time.
static void step(struct ux_worker *w, unsigned turns)
{
	uint64_t before = w->ring.tail;
	for (; turns > 0 && w->ring.head == w->ring.tail; turns--)
		u_ucp_worker_progress(w->worker);
	for (; turns > 0 && w->ring.tail - before > 1 && w->ring.tail - w->ring.head < UX_BATCH; turns--) {
		before = w->ring.tail;
		u_ucp_worker_progress(w->worker);
	}
}

// begin has UCX begin what is held.
static void begin(struct ux_worker *w)
{
	struct ux_queue *q = &w->queue;
	while (q->head != q->tail) {
		struct ux_slot *s = slot_at(w, q->receives[q->head++ % UX_HELD]);
		int st = begin_recv(w, s);
		if (st < 0)
			push(w, s->index, st, 0, 0);
	}
	while (q->sends_head != q->sends_tail)
		begin_send(w, &q->sends[q->sends_head++ % UX_HELD]);
}

int ux_send(ux_handle h, uint64_t ep, uint64_t tag, uint64_t buf, uint64_t length, uint64_t mem, int sync,
	uint32_t slot)
{
	struct ux_worker *w = worker_of(h);
	struct ux_slot *s = slot_at(w, slot);
	begin(w);
	ucp_request_param_t p;
	params(&p, s);
	with_mapping(&p, mem);
	p.cb.send = sent;
	s->request = NULL;
	s->ended = 0;
	struct ux_ep *e = ep_of(ep);
	const void *b = (const void *)(uintptr_t)buf;
	use(e);
	ucs_status_ptr_t r = sync ? u_ucp_tag_send_sync_nbx(e->ep, b, length, tag, &p)
	                          : u_ucp_tag_send_nbx(e->ep, b, length, tag, &p);
	int st = begun(&s->request, s->ended, r);
	if (s->request) {
		s->with = ep;
		e->under_way++;
	}
	return st;
}

int ux_try_send(uint64_t ep, uint64_t tag, uint64_t buf, uint64_t length)
{
	static const ucp_request_param_t p = {.op_attr_mask = UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL};
	struct ux_ep *e = ep_of(ep);
	begin(e->worker);
	if (u_ucp_tag_send_nbx(e->ep, (const void *)(uintptr_t)buf, length, tag, &p) != NULL)
		return 0;
	use(e);
	return 1;
}

int ux_recv(ux_handle h, uint32_t slot, unsigned turns)
{
	struct ux_worker *w = worker_of(h);
	begin(w);
	int st = begin_recv(w, slot_at(w, slot));
	if (st == UX_STARTED)
		step(w, turns);
	return st;
}

int ux_take(ux_handle h, uint64_t message, uint32_t slot)
{
	struct ux_worker *w = worker_of(h);
	struct ux_slot *s = slot_at(w, slot);
	begin(w);
	ucp_request_param_t p;
	recv_params(&p, s);
	ucs_status_ptr_t r =
		u_ucp_tag_msg_recv_nbx(w->worker, buffer(s), s->length, (ucp_tag_message_h)(uintptr_t)message, &p);
	return begun(&s->request, s->ended, r);
}

int ux_probe(struct ux_worker *w, uint64_t tag, uint64_t mask, int take, struct ux_found *f)
{
	ucp_tag_recv_info_t info;
	begin(w);
	ucp_tag_message_h m = u_ucp_tag_probe_nb(w->worker, tag, mask, take, &info);
	if (!m)
		return 0;
	*f = (struct ux_found){.message = (uint64_t)(uintptr_t)m, .tag = info.sender_tag, .length = info.length};
	return 1;
}

void ux_cancel(struct ux_worker *w, uint32_t slot)
{
	struct ux_slot *s = slot_at(w, slot);
	begin(w);
	if (s->request)
		u_ucp_request_cancel(w->worker, s->request);
}

int ux_ended(struct ux_worker *w, uint32_t slot)
{
	begin(w);
	return slot_at(w, slot)->request == NULL;
}

void ux_turn(ux_handle h, unsigned turns)
{
	struct ux_worker *w = worker_of(h);
	begin(w);
	step(w, turns);
}

void ux_drain(struct ux_worker *w, unsigned turns)
{
	// A process that was interrupted in the middle of a write holds up what is behind it: it gets some turns.
	for (unsigned quiet = 0; turns-- > 0 && quiet < 64;)
		if (u_ucp_worker_progress(w->worker) != 0)
			quiet = 0;
		else if (++quiet > 1)
			sched_yield();
}

int ux_arm(ux_handle h)
{
	struct ux_worker *w = worker_of(h);
	begin(w);
	if (u_ucp_worker_progress(w->worker) != 0 || w->ring.head != w->ring.tail)
		return UX_STARTED;
	ucs_status_t st = u_ucp_worker_arm(w->worker);
	return st == UCS_ERR_BUSY ? UX_STARTED : st;
}

// settled reports whether UCX has moved all that it had to send by e, for which it flushes e. It does not flush TCP
// while a send is under way: the first long send of an endpoint asks its peer for a connection back, and UCX 1.13
// crashes the peer if a flush follows so soon that both are read together.
static int settled(struct ux_ep *e)
{
	static const ucp_request_param_t p = {.op_attr_mask = 0};
	if (e->flush) {
		if (e->ep && u_ucp_request_check_status(e->flush) == UCS_INPROGRESS)
			return 0;
		u_ucp_request_free(e->flush);
		e->flush = NULL;
	}
	if (!e->sent || !e->ep)
		return 1;
	if (e->under_way && e->tcp)
		return 0;
	e->sent = 0;
	ucs_status_ptr_t r = u_ucp_ep_flush_nbx(e->ep, &p);
	if (UCS_PTR_IS_PTR(r))
		e->flush = r;
	return !e->flush;
}

int ux_settle(struct ux_worker *w)
{
	int all = 1;
	begin(w);
	for (struct ux_ep **at = &w->used, *e; (e = *at);)
		if (settled(e)) {
			e->used = 0;
			*at = e->next_used;
		} else {
			if (e->flush || e->other)
				all = 0;
			at = &e->next_used;
		}
	return all;
}

// Memory.

uint64_t ux_map(struct ux_worker *w, uint64_t addr, uint64_t length, int32_t *status)
{
	ucp_mem_map_params_t p = {
		.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
		.address = (void *)(uintptr_t)addr,
		.length = length,
	};
	ucp_mem_h m;
	*status = u_ucp_mem_map(w->context, &p, &m);
	return *status == UCS_OK ? (uint64_t)(uintptr_t)m : 0;
}

int ux_unmap(struct ux_worker *w, uint64_t mem) { return u_ucp_mem_unmap(w->context, (ucp_mem_h)(uintptr_t)mem); }

void *ux_pages(size_t length)
{
	void *p = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

void ux_unpages(void *mem, size_t length) { munmap(mem, length); }
