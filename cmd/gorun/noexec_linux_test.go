package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// Where memory files are not executable unless asked for (vm.memfd_noexec=1), or never (2), a package is built and run
// all the same, and its ranks have their shared memory. Nothing is left behind, also where gorun is killed.
func TestMemfdNoexec(t *testing.T) {
	t.Parallel()
	const sysctl = "/proc/sys/vm/memfd_noexec"
	if _, err := os.Stat(sysctl); err != nil {
		t.Skip("the kernel has no vm.memfd_noexec")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, to set vm.memfd_noexec in a PID namespace of its own")
	}
	unshare := proc.RequireProgram(t, "unshare", "util-linux")
	ring, small := proc.Build(t, "examples/ring"), module(t, hello)
	// A program that ends gorun.
	killer := module(t, "package main\n\nimport (\n\t\"os\"\n\t\"syscall\"\n\t\"time\"\n)\n\nfunc main() {\n"+
		"\tsyscall.Kill(os.Getppid(), syscall.SIGKILL)\n\ttime.Sleep(time.Hour)\n}\n")
	for _, level := range []int{1, 2} {
		for program, prints := range map[string]string{
			ring:   "the token went round 2 ranks and is now 1\n",
			small:  "built []\nbuilt []\n", // by this gorun
			killer: "",
		} {
			if program == killer && level == 1 {
				continue // there it is a memory file, as elsewhere
			}
			temp := t.TempDir()
			j := prepare(t, "-n", "2", "-x", "GORUN_TRANSPORTS=shm", program)
			set := fmt.Sprintf(`echo %d >%s && "$0" "$@"; exit $?`, level, sysctl) // the first process cannot be killed
			j.cmd.Args = append([]string{unshare, "--pid", "--fork", "--mount-proc", "sh", "-c", set, j.cmd.Path},
				j.cmd.Args[1:]...)
			j.cmd.Path = unshare
			j.cmd.Env = append(j.cmd.Env, "TMPDIR="+temp, "GOFLAGS=")
			if j.start(); program == killer {
				j.cmd.Wait()
			} else {
				j.wait(0).prints(prints)
			}
			if left, _ := os.ReadDir(temp); len(left) > 0 {
				t.Errorf("vm.memfd_noexec=%d: left in TMPDIR: %v", level, left)
			}
		}
	}
}
