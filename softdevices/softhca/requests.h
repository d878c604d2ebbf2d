/* Layer requests: the sending half of a queue pair, the receiving half, and the end of both in the error state. */
#ifndef REQUESTS_H
#define REQUESTS_H

#include "queues.h"

/* requester.c */
void requester_run(struct work *w);
bool requester_flush_one(struct hca_qp *qp);
void requester_response(struct hca_qp *qp, struct pkt *p);
void requester_conn_gone(struct conn *c);
void requester_retry_fire(struct timer *t);
void requester_wait_fire(struct timer *t);

/* responder.c */
void responder_request(struct hca_qp *qp, struct pkt *p);
bool responder_flush_one(struct hca_qp *qp);
void respond(struct hca_ctx *ctx, struct pkt *to, enum pkt_op op, uint8_t status);
void responder_complete(struct hca_qp *qp, struct pkt *p, struct cqe *e);
bool responder_receive(struct hca_qp *qp, struct pkt *p, enum ibv_wc_opcode opcode, unsigned wc_flags);
void responder_done(struct hca_qp *qp, struct pkt *p);
void responder_not_ready(struct hca_qp *qp, struct pkt *p);
void responder_refuse(struct hca_qp *qp, struct pkt *p, enum ibv_wc_status status);
enum ibv_wc_status responder_move(struct hca_qp *qp, struct pkt *p, const struct iovec *dst, unsigned ndst);
int payload_of(struct pkt *p, struct iovec *iov, unsigned *n, bool *by_pull);

/* flush.c */
void qp_flush(struct hca_qp *qp);
void qp_flush_fire(struct timer *t);

#endif
