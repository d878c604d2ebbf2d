// What Go calls of UCX. Only plain records and numbers cross this border: see the head of shim.c.

#ifndef UX_SHIM_H
#define UX_SHIM_H

#include <stddef.h>
#include <stdint.h>

#define UX_ERR 256 // bytes of an error's text

// Results of ux_send and ux_recv that are no status of UCX, which are negative.
#define UX_DONE 0
#define UX_STARTED 1

struct ux_worker;

#define UX_DOWN UINT32_MAX // ux_done.slot: an endpoint has failed, and tag is its peer

// ux_done is how an operation has ended.
struct ux_done {
	uint32_t slot;
	int32_t status;
	uint64_t tag, length; // of a receive's message
};

#define UX_SMALL 128 // bytes of memory of each slot, for a short message

// ux_slot is an operation. It belongs to UCX from the call of C that begins it until its end is in the ring, and to Go
// otherwise: Go writes what is to be received, and reads a short message that has come. worker and index are fixed.
struct ux_slot {
	struct ux_worker *worker;
	void *request; // UCX's; NULL: none, or it has ended
	uint64_t tag, mask, length;
	uint64_t with; // of a receive: the mapping of buf, or 0; of a send: its endpoint
	uint32_t index, ended;
	unsigned char small[UX_SMALL];
	uint64_t buf; // of a receive; 0: small
};

// ux_ring holds what has ended, oldest first, from head to tail. Both only grow; mask is its size less one. slots are
// all that there are, by index; they do not move.
struct ux_ring {
	struct ux_done *entries;
	uint64_t head, tail, mask;
	struct ux_slot **slots;
};

#define UX_BATCH 16  // of so many ends Go is told at a time
#define UX_HELD 64   // receives, and sends, that wait for the next call of C, at most; a power of two
#define UX_KEPT 256  // sends that have left the queue and whose bytes UCX has not read yet, at most
#define UX_INLINE 64 // bytes of a send that waits so

// ux_held is a send that Go has begun and UCX does not know yet.
struct ux_held {
	uint64_t tag, ep, length;
	unsigned char data[UX_INLINE];
};

// ux_queue holds them, oldest first, and the slots of receives likewise. Heads and tails only grow. Go writes at the
// tails, without a call of C. Each call of C that begins, ends or looks for an operation has UCX begin all of them
// first.
struct ux_queue {
	uint32_t receives[UX_HELD];
	uint64_t head, tail; // of receives
	uint64_t sends_head, sends_tail;
	struct ux_held sends[UX_HELD];
	uint32_t kept; // see UX_KEPT
};

typedef uint64_t ux_handle; // of a worker, for what is called often: cgo looks into pointers before each call
struct ux_found {
	uint64_t message, tag, length;
};

int ux_load(const char *path, char *err);
const char *ux_path(void);
const char *ux_version(void);
int ux_names(char *names, int size); // lines of "transport/device"

struct ux_worker *ux_open(int *no_tls, char *err);
void ux_close(struct ux_worker *w);
struct ux_ring *ux_ring_of(struct ux_worker *w);
struct ux_queue *ux_queue_of(struct ux_worker *w);
const void *ux_address(struct ux_worker *w, size_t *length);
int ux_fd(struct ux_worker *w);
void ux_worker_names(struct ux_worker *w, char *names, int size); // as ux_names, of what it may use

// ux_reserve makes room for slots operations and for the ends of all of them and of ends endpoints.
int ux_reserve(struct ux_worker *w, uint32_t slots, uint32_t ends);

// ux_connect returns an endpoint, or 0 and the status. watched: its failure is reported.
uint64_t ux_connect(struct ux_worker *w, const void *address, uint32_t peer, int watched, int32_t *status);
void ux_disconnect(struct ux_worker *w, uint64_t ep);

int ux_send(ux_handle h, uint64_t ep, uint64_t tag, uint64_t buf, uint64_t length, uint64_t mem, int sync,
	uint32_t slot);
// ux_try_send returns 1 if a short message has been sent, or else does nothing.
int ux_try_send(uint64_t ep, uint64_t tag, uint64_t buf, uint64_t length);
// ux_recv begins the receive in a slot, and then goes on until something has ended, at most turns times.
int ux_recv(ux_handle h, uint32_t slot, unsigned turns);
// ux_take receives a message that ux_probe has taken.
int ux_take(ux_handle h, uint64_t message, uint32_t slot);
int ux_probe(struct ux_worker *w, uint64_t tag, uint64_t mask, int take, struct ux_found *f);
void ux_cancel(struct ux_worker *w, uint32_t slot);
int ux_ended(struct ux_worker *w, uint32_t slot); // an operation that has been begun

// ux_turn begins what is held and goes on until something has ended, at most turns times.
void ux_turn(ux_handle h, unsigned turns);
// ux_drain goes on until nothing comes for a while, at most turns times.
void ux_drain(struct ux_worker *w, unsigned turns);
// ux_arm returns 0 if the descriptor shows what comes from now on; UX_STARTED: there is something already.
int ux_arm(ux_handle h);

// ux_use: UCX may have something to send by the endpoint, which ux_settle looks at.
void ux_use(uint64_t ep);

// ux_settle says whether UCX has moved all that was sent, or its descriptor shows when UCX can go on; it asks UCX where
// it must.
int ux_settle(struct ux_worker *w);

uint64_t ux_map(struct ux_worker *w, uint64_t addr, uint64_t length, int32_t *status);
int ux_unmap(struct ux_worker *w, uint64_t mem);
void *ux_pages(size_t length);
void ux_unpages(void *mem, size_t length);

const char *ux_status_text(int32_t status);

#endif
