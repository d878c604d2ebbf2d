/* Layer wire: LIDs, packets, the sockets to other processes, and the memory of those. */
#ifndef WIRE_H
#define WIRE_H

#include "base.h"

/* ---- packets ---- */

enum pkt_op {
	PKT_HELLO = 1, PKT_WELCOME, PKT_READY,
	PKT_SEND, PKT_WRITE, PKT_READ, PKT_ATOMIC_ADD, PKT_ATOMIC_SWAP,
	PKT_ACK, PKT_READ_OK, PKT_ATOMIC_OK, PKT_NAK, PKT_RNR, PKT_SEQ, PKT_GONE,
};

enum {
	PKT_IMM = 1,
	PKT_SOLICITED = 2,
	PKT_PAYLOAD = 4,      /* the data follows */
	PKT_WANT_PAYLOAD = 8, /* of a READ: the requester cannot read the responder's memory */
	PKT_FIN = 16,
	PKT_RETRY = 32,
	PKT_GRH = 64,
	PKT_V2 = 128, /* RoCE v2 */
};

/* The head of a packet; then niov struct iovec of the sender's memory, then payload bytes. */
struct pkt_head {
	uint32_t size; /* of all that follows the head */
	uint8_t op, flags;
	uint8_t status; /* NAK: enum ibv_wc_status; RNR: the timer's code */
	uint8_t rd_out;
	uint16_t slid, dlid;
	uint32_t sqpn, dqpn;
	uint32_t psn;
	uint32_t imm;
	uint32_t rkey;
	uint32_t niov;
	uint16_t pkey;	/* requests only: an answer is for a requester that was admitted */
	uint16_t subnet; /* of the sender */
	uint64_t raddr;
	uint64_t len;	     /* of the message */
	uint64_t a, b;	     /* operands and result of an atomic; READ_OK: where the memory lies */
	uint64_t gen_addr;   /* of the generation that says whether the memory is still the meant one */
	uint32_t gen;
	uint32_t payload;
};

struct pkt {
	struct list link;
	struct conn *from; /* NULL: of this process; answers go back there */
	int pid;
	struct pkt_head h;
	uint8_t body[]; /* h.size bytes */
};

/* ---- connections ---- */

/* A queue pair that waits for the greeting of a connection: its work is due when there is an outcome. */
struct conn_waiter {
	struct list link; /* conn.waiters */
	struct work *work;
};

enum conn_state { CONN_GREETING, CONN_READY };

struct conn {
	struct list link; /* all of them */
	int fd;
	int slot;	  /* that it leads to; -1: the peer connected */
	int pid;
	enum conn_state state;
	bool peer_reads;  /* the peer can read our memory: SEND and WRITE need no payload */
	bool we_read;	  /* we can read the peer's: READs come without payload */
	bool want_out;
	struct list out;  /* packets that did not fit into the socket */
	size_t out_off;
	struct list waiters; /* for the greeting */
	struct pkt_head in_head;
	size_t in_got;
	struct pkt *in;
	uint64_t magic;
};

/* The functions of higher layers that the wire calls. */
struct wire_upcalls {
	void (*arrive)(struct pkt *p);	   /* a packet from another process; owns p */
	void (*conn_gone)(struct conn *c); /* what went to c->slot and has no answer did not get there */
};

/* slots.c */
int slots_take_lid(uint16_t *lid);
void slots_drop_lid(uint16_t lid);
void slots_close(void);
int slots_connect(int slot);
int dir_open(const char *dir);

/* wire.c */
bool wire_self_test(void);
void wire_init(const struct wire_upcalls *up);
struct conn *wire_to(uint16_t lid); /* NULL: no process has the LID */
void wire_send(struct conn *c, struct pkt *p); /* owns p */
void wire_event(struct conn *c, uint32_t events);
void wire_accept(int listen_fd);
void wire_close_all(void);
void deliver(struct pkt *p); /* to a port of this process; owns p */
struct pkt *pkt_new(size_t size);

/* copy.c: every byte of a message goes through here */
int copy_pull(int pid, const struct iovec *dst, unsigned ndst, const struct iovec *src, unsigned nsrc, uint64_t len,
	      uint64_t gen_addr, uint32_t gen);
bool copy_is_ours(const struct iovec *iov, unsigned n);
int copy_local(const struct iovec *dst, unsigned ndst, const struct iovec *src, unsigned nsrc, uint64_t len);

#endif
