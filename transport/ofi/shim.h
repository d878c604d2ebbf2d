// What Go calls of libfabric. Only plain records and numbers cross this border: see the head of shim.c.

#ifndef OFI_SHIM_H
#define OFI_SHIM_H

#include <stddef.h>
#include <stdint.h>

#define OF_ERR 256 // bytes of an error's text

// Results of of_send, of_recv and of_take that are no error of libfabric, which are negative.
#define OF_DONE 0
#define OF_STARTED 1
#define OF_FULL 2 // nothing has been done: there is no room, or the peer is not connected yet

struct of_dev;
typedef uint64_t of_handle; // of a device: cgo looks into pointers before each call

// of_end is how an operation has ended. status: 0, or an error of libfabric.
struct of_end {
	uint32_t slot;
	int32_t status;
	uint64_t tag, length; // of a receive's message
	uint64_t answer;      // not 0: its sender waits for an of_answer with this number
};

#define OF_SMALL 128 // bytes of memory of each slot, for a short message

// of_ring holds what has ended, oldest first, from head to tail. Both only grow; mask is its size less one.
struct of_ring {
	struct of_end *entries;
	uint64_t head, tail, mask;
};

struct of_found {
	uint64_t message, tag, length;
};

// of_facts are what the provider says.
struct of_facts {
	const char *provider;
	const void *address;
	size_t address_length, longest; // longest: bytes of a message
	uint32_t format;                // of address
	int fd;                         // that shows completions, or -1
	int registers;                  // memory has to be registered
};

int of_load(const char *path, char *err);
const char *of_path(void);
void of_version(unsigned *major, unsigned *minor);
const char *of_text(int32_t status);
int of_list(const char *provider, char *names, int size); // lines of "provider|domain"

// of_open opens an endpoint of the provider; "": of the first fast one. registers: memory is registered in any case.
// none: there is no such provider here.
struct of_dev *of_open(const char *provider, uint32_t rank, int registers, int *none, char *err);
void of_close(struct of_dev *d);
void of_facts(struct of_dev *d, struct of_facts *f);
struct of_ring *of_ring_of(struct of_dev *d);

// of_reserve makes room for so many slots.
int of_reserve(struct of_dev *d, uint32_t slots);
void *of_small(struct of_dev *d, uint32_t slot); // OF_SMALL bytes, fixed

// of_insert returns 0 and the number of an address.
int of_insert(struct of_dev *d, const void *address, uint64_t *to);

// A send with sync ends when the peer has answered, rank peer.
int of_send(of_handle h, uint64_t to, uint32_t peer, uint64_t tag, uint64_t buf, uint64_t length, int sync,
	uint32_t slot);
// of_try_send returns 1 if a short message has been sent, or else does nothing.
int of_try_send(of_handle h, uint64_t to, uint64_t tag, uint64_t buf, uint64_t length);
// of_answer tells a sender that its message has been received. It returns OF_DONE, OF_FULL or an error.
int of_answer(of_handle h, uint64_t to, uint64_t number);

// buf 0: the slot's own memory, all of it, whatever length says.
int of_recv(of_handle h, uint64_t tag, uint64_t ignore, uint64_t buf, uint64_t length, uint32_t slot);
// of_take receives a message that of_probe has taken.
int of_take(of_handle h, uint64_t message, uint64_t buf, uint64_t length, uint32_t slot);
int of_probe(of_handle h, uint64_t tag, uint64_t ignore, int take, struct of_found *f);
void of_cancel(of_handle h, uint32_t slot); // of a receive

int of_ended(of_handle h, uint32_t slot);   // the end of an operation that has been begun is in the ring
int of_answers(of_handle h, uint32_t slot); // only the peer's answer is missing: the buffer is not used any more

// of_turn goes on until something has ended, at most turns times.
void of_turn(of_handle h, unsigned turns);
// of_drain takes all those turns.
void of_drain(of_handle h, unsigned turns);
// of_arm returns OF_DONE if the descriptor shows what comes from now on; OF_STARTED: there is something already.
int of_arm(of_handle h);

#endif
