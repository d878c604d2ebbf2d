/* Layer verbs: the thread of the engine, and what a program calls to make and to end the objects of a device. */
#ifndef VERBS_H
#define VERBS_H

#include "matching.h"

/* cqex.c */
void cqex_init(struct hca_cq *cq);

/* verbs_cq.c */
struct ibv_cq_ex *hca_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
int hca_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int hca_req_notify_cq(struct ibv_cq *cq, int solicited_only);

/* verbs_srq.c */
struct ibv_srq *hca_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr);
int hca_get_srq_num(struct ibv_srq *srq, uint32_t *num);
int hca_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* verbs_qp.c */
struct ibv_qp *hca_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);

/* knobs.c */
int knobs_read(struct knobs *k); /* 0, or -1 after a message on stderr */
int knobs_pkeys(struct knobs *k, const char *name, const char *value); /* likewise */

/* loop.c */
int engine_attach(struct hca_ctx *ctx); /* starts the engine, gives the port a LID; errno or 0 */
void engine_detach(struct hca_ctx *ctx);

#endif
