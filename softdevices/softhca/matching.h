/* Layer matching: the list operations of a TM-SRQ, what arrives there, and rendezvous that the device carries out. */
#ifndef MATCHING_H
#define MATCHING_H

#include "requests.h"

/* A rendezvous of the device: READ of the sender's buffer, FIN to the sender. */
struct tm_job {
	struct list link; /* qp->tm_waiting, or qp->tm_active while in the send queue */
	struct hca_qp *qp;
	struct tm_srq *tm;
	struct tm_entry *entry;
	struct timer timer; /* of an offer for software that lands later; otherwise not armed */
	uint64_t va;
	uint32_t rkey, len;
	uint8_t fin[32];
};

/* tm.c */
struct tm_srq *tm_create(struct hca_srq *srq, struct ibv_tm_cap *cap);
void tm_destroy(struct tm_srq *tm);
void tm_detach_all(struct hca_ctx *ctx);
void tm_resume(struct hca_ctx *ctx);
void tm_push(struct tm_srq *tm, struct cqe *c);
int hca_post_srq_ops(struct ibv_srq *srq, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad);

/* tmrecv.c */
extern const struct matcher tm_matcher;

#endif
