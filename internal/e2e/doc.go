// Package e2e tests package mpi as users run it. Ranks are processes that gorun or mpiexec.hydra starts and that
// communicate over shared memory. Or they run on hosts of internal/testkit/netns and communicate over TCP, while hosts
// and cables fail (hosts_*_test.go).
//
// The ranks are the test binary itself: TestMain looks for GORUN_TEST_ROLE and becomes a role instead of running tests.
// A test starts a job, waits for its exit code, and checks that nothing is left of it: see job_linux_test.go.
//
//	Owns:     nothing
//	May call: mpi, internal/testkit/proc, internal/testkit/netns
//	Never:    be imported; reach below package mpi
package e2e
