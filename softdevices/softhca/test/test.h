/*
 * The kit of the test programs for verbs devices: cases that run each in a
 * process of their own, devices, connected queue pairs, buffers, completions.
 *
 * A program is called as PROGRAM [DEVICE [CASE...]]; without a device it takes
 * softhca0, without cases all of them. It prints a line per case, "ok NAME",
 * "FAIL NAME: why" or "skip NAME: why", and its exit status is 1 if any failed.
 * TEST_PATIENCE is how many seconds it waits for what must come (default 20).
 */
#ifndef SOFTHCA_TEST_H
#define SOFTHCA_TEST_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Cases. */

enum {
	PAIRS = 1,	/* runs twice: both ends in one context, each end in its own */
	SOFT = 2,	/* only for the software HCA: hardware is not that strict, or has no such knob */
};

struct test {
	const char *name;
	void (*run)(void);
	unsigned flags;
};

#define TEST(fn, flags) { #fn, fn, flags }

int run_tests(int argc, char **argv, const struct test *t, size_t n);

void fail_at(const char *file, int line, const char *fmt, ...)
	__attribute__((noreturn, format(printf, 3, 4)));
void skip(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));

#define FAIL(...) fail_at(__FILE__, __LINE__, __VA_ARGS__)
#define CHECK(cond, ...) do { if (!(cond)) FAIL(__VA_ARGS__); } while (0)
/* For calls that return 0 or an error number, and for those that set errno. */
#define MUST(call) do { int rc_ = (call); \
	CHECK(rc_ == 0, "%s: %d (%s)", #call, rc_, strerror(rc_ < 0 ? errno : rc_)); } while (0)
/* The call must be refused with just this error number. */
#define REFUSED(want, call) do { int rc_ = (call); if (rc_ == -1) rc_ = errno; \
	CHECK(rc_ == (want), "%s: %d (%s), not %s", #call, rc_, strerror(rc_), #want); } while (0)

bool soft(void);		/* is the device the software HCA? */
bool two_contexts(void);	/* of a case with PAIRS: which of its two runs is this? */
double patience(void);		/* seconds */
double now(void);
void nap(double seconds);
bool until(double *start);	/* for loops: false once patience is over; naps a moment */

/* Processes: a helper dies with its case. It gets one end of a socket pair. */
struct peer {
	pid_t pid;
	int fd;
};

struct peer spawn(void (*body)(int fd, const void *arg), const void *arg);
void reap(struct peer *p);	/* waits; fails unless the process ended with 0 */
void kill_peer(struct peer *p);	/* SIGKILL, waits */
void send_all(int fd, const void *data, size_t n);
void recv_all(int fd, void *data, size_t n);

/* Devices. */

struct dev {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_device_attr attr;
	struct ibv_device_attr_ex ex;
	struct ibv_port_attr port;
	union ibv_gid gid;
	int gid_index;
	bool global;	/* addresses need a GRH: RoCE */
};

struct ibv_context *open_context(void);
struct dev *dev_open(void);
struct dev *dev_of(struct ibv_context *ctx);
void dev_close(struct dev *d);

/* Memory. */

struct buf {
	uint8_t *p;
	size_t n;
	struct ibv_mr *mr;
};

#define ALL_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | \
	IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

struct buf buf_new(struct dev *d, size_t n, int access);
void buf_free(struct buf *b);
struct ibv_sge part(const struct buf *b, size_t off, size_t len);
void fill(void *p, size_t n, unsigned seed);
/* Fails unless the n bytes are those of fill with this seed, from its byte off on. */
void check_fill(const void *p, size_t n, unsigned seed, size_t off, const char *what);
void check_bytes(const void *p, size_t n, uint8_t value, const char *what);
unsigned rnd(unsigned below);	/* the same sequence in each run of a case */

/* Queue pairs. */

struct how {
	uint32_t send_wr, recv_wr, send_sge, recv_sge, inl;
	uint32_t srq_wr, srq_sge;	/* 0: the queue pair has its own receive queue */
	int cqe;
	bool sig_all;
	unsigned access;
	uint8_t rd, dest_rd, timeout, retry, rnr, rnr_timer;
};

extern const struct how usual;

struct addr {
	uint32_t qpn, psn;
	uint16_t lid;
	union ibv_gid gid;
};

struct end {
	struct dev *d;
	struct how how;
	struct ibv_comp_channel *ch;
	struct ibv_cq *cq;	/* of both queues */
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_qp_cap cap;	/* as the device has reported it */
	uint32_t psn;
};

struct ibv_qp *make_qp(struct end *e);
void end_open(struct end *e, struct dev *d, const struct how *h);
void end_close(struct end *e);
struct addr address(struct dev *d, struct ibv_qp *qp, uint32_t psn);
struct addr end_addr(const struct end *e);
int to_init(struct ibv_qp *qp, const struct how *h);
int to_rtr(struct ibv_qp *qp, struct dev *d, const struct how *h, const struct addr *peer);
int to_rts(struct ibv_qp *qp, const struct how *h, uint32_t psn);
int to_state(struct ibv_qp *qp, enum ibv_qp_state s);	/* RESET or ERR */
void connect_qp(struct ibv_qp *qp, struct dev *d, const struct how *h, uint32_t psn, const struct addr *peer);
void end_connect(struct end *e, const struct addr *peer);
enum ibv_qp_state qp_state(struct ibv_qp *qp);
void await_state(struct ibv_qp *qp, enum ibv_qp_state s);

struct pair {
	struct end a, b;
};

void pair_open(struct pair *p, const struct how *h);
void pair_open2(struct pair *p, const struct how *a, const struct how *b);
void pair_close(struct pair *p);

/* Work requests. */

struct op {
	uint64_t id;
	enum ibv_wr_opcode opcode;
	const struct ibv_sge *sg;
	int n;
	unsigned flags;
	uint32_t imm;		/* as it is on the wire */
	uint64_t raddr;
	uint32_t rkey;
	uint64_t add, swap;	/* atomics: compare_add and swap */
};

struct ibv_send_wr wr_of(const struct op *o);
int try_post(struct ibv_qp *qp, const struct op *o);
#define post(qp, ...) MUST(try_post(qp, &(struct op){ __VA_ARGS__ }))
int try_recv(struct ibv_qp *qp, uint64_t id, const struct ibv_sge *sg, int n);
int try_srq(struct ibv_srq *srq, uint64_t id, const struct ibv_sge *sg, int n);
/* A receive of one buffer in whichever queue the end has. */
int try_end_recv(struct end *e, uint64_t id, const struct ibv_sge *sg, int n);
void end_recv(struct end *e, uint64_t id, struct ibv_sge sg);

/* Completions. */

struct ibv_wc next_wc_at(struct ibv_cq *cq, const char *file, int line);
#define next_wc(cq) next_wc_at(cq, __FILE__, __LINE__)
struct ibv_wc expect_at(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status s, const char *file, int line);
/* The next completion, which must have this wr_id and status. */
#define expect(cq, id, status) expect_at(cq, id, status, __FILE__, __LINE__)
struct ibv_wc done_at(struct ibv_cq *cq, uint64_t id, enum ibv_wc_opcode op, const char *file, int line);
/* The next completion, which must be a success. */
#define done(cq, id, op) done_at(cq, id, op, __FILE__, __LINE__)
void quiet_at(struct ibv_cq *cq, double seconds, const char *file, int line);
/* Nothing may come meanwhile. */
#define quiet(cq, seconds) quiet_at(cq, seconds, __FILE__, __LINE__)

/* Events. */

bool readable(int fd, double seconds);
struct ibv_async_event next_event(struct ibv_context *ctx, enum ibv_event_type want);
void no_event(struct ibv_context *ctx, double seconds);

/* The extra calls of the software HCA. */

uint64_t counter(struct ibv_context *ctx, const char *name);
int inject(struct ibv_context *ctx, const char *what);

#endif
