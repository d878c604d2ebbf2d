/*
 * Takes the place of what MPICH's UCX netmod calls in MPI_Finalize for each connection. Over tcp that waits until the
 * other side has acknowledged all, which a side that waits in the barrier of PMI, without a look at its connections,
 * does not do: MPICH 4.0.2 with UCX 1.13.1 hangs there in four of ten runs on several hosts, under mpiexec.hydra and
 * under gorun alike. The connections are closed after that barrier, by ucp_worker_destroy.
 */
void *ucp_disconnect_nb(void *ep)
{
    (void)ep;
    return 0; /* closed, without an error */
}
