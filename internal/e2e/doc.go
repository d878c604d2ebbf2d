// Package e2e holds tests of package mpi as users run it: ranks that are processes, started by gorun (or by
// mpiexec.hydra), that speak over shared memory; or started on hosts of internal/testkit/netns, that speak over TCP
// between them, while the hosts and the cables fail (hosts_*_test.go).
//
// The ranks are the test binary itself: TestMain looks for GORUN_TEST_ROLE and becomes a role instead of running
// tests. A test starts a job, waits for its exit code, and then nothing may be left of it: see job_linux_test.go.
//
//	Owns:     nothing
//	May call: mpi, internal/testkit/proc, internal/testkit/netns
//	Never:    be imported; reach below package mpi
package e2e
