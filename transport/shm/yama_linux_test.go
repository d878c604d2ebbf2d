package shm

import (
	"context"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

func init() {
	roles["read me"] = func() error {
		if err := unprivileged(); err != nil {
			return err
		}
		tracer, _ := strconv.Atoi(os.Getenv("TRACER"))
		if tracer < 0 {
			tracer = os.Getpid()
		}
		d, err := newDevice(Options{Rank: 1, Size: 2, Tracer: tracer, NoGet: os.Getenv("NO_GET") != ""})
		if err != nil {
			return err
		}
		proc.Send(d.Address())
		proc.Recv() // until the test has ended
		return nil
	}
	roles["reader"] = func() error {
		if err := unprivileged(); err != nil {
			return err
		}
		d, err := newDevice(Options{Rank: 0, Size: 2})
		if err != nil {
			return err
		}
		address, err := proc.Recv()
		if err != nil {
			return err
		}
		l, err := d.Connect(context.Background(), 1, address)
		if err != nil {
			return err
		}
		proc.Send([]byte(l.Caps().WhyNoRMA))
		return d.Close()
	}
}

// unprivileged makes this process one of another user if it is root's, since root may trace whatever Yama says. A
// process that changes its user cannot be traced before it allows that.
func unprivileged() error {
	if os.Getuid() != 0 {
		return nil
	}
	if err := syscall.Setuid(another); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
}

// Where Yama restricts who may trace a process, a rank can be read by the ranks that descend from the same launcher,
// and by no other process; where it does not, by all of its user. In a guest (scripts/rdma) it does.
func TestYama(t *testing.T) {
	const setting = "/proc/sys/kernel/yama/ptrace_scope"
	if os.Getenv("GORUN_TEST_GUEST") != "" {
		if err := os.WriteFile(setting, []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
	}
	scope, _ := os.ReadFile(setting)
	restricted := strings.TrimSpace(string(scope)) == "1"
	for _, c := range []struct {
		what    string
		env     []string
		refused bool
	}{
		{"the launcher is known", []string{"TRACER=" + strconv.Itoa(os.Getpid())}, false},
		{"the launcher was dialled, and is the parent", []string{"TRACER=0"}, false},
		{"another launcher's descendants only", []string{"TRACER=-1"}, restricted},
		{"switched off", []string{"TRACER=0", "NO_GET=1"}, restricted},
	} {
		target, reader := proc.Start(t, "read me", c.env...), proc.Start(t, "reader")
		reader.Send(target.Recv())
		if why := string(reader.Recv()); (why != "") != c.refused {
			t.Errorf("%s: a sibling may not read because of %q; refused: want %v", c.what, why, c.refused)
		}
		target.Kill()
		reader.Kill()
	}
}
