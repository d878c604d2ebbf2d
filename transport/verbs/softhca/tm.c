#include "hca.h"
struct tm_srq *tm_create(struct hca_srq *srq, struct ibv_tm_cap *cap) { (void)srq; (void)cap; return NULL; }
void tm_destroy(struct tm_srq *tm) { (void)tm; }
void tm_receive(struct hca_qp *qp, struct pkt *p) { responder_receive(qp, p, IBV_WC_RECV, 0); }
void tm_device_done(struct hca_qp *qp, struct wqe *w, void *area, enum ibv_wc_status status) { (void)qp; (void)w; (void)area; (void)status; }
void tm_pump(struct hca_qp *qp) { (void)qp; }
void tm_qp_gone(struct hca_qp *qp) { (void)qp; }
void tm_resume(struct hca_ctx *ctx) { (void)ctx; }
void tm_free_ops(struct tm_srq *tm, uint32_t op_index) { (void)tm; (void)op_index; }
void tm_free_entry(struct tm_srq *tm, uint32_t index) { (void)tm; (void)index; }
int hca_post_srq_ops(struct ibv_srq *srq, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad) { (void)srq; *bad = wr; return EOPNOTSUPP; }
