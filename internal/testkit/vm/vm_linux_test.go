package vm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// within bounds what is certain to happen; it is no claim about speed.
const within = 2 * time.Minute

// belonging are the living processes of the script's group: all that it has started.
func belonging(r *Running) []proc.Info {
	return proc.List(func(p proc.Info) bool { return p.Group == r.cmd.Process.Pid })
}

// qemu is a process of a guest that is there, 0 if there is none.
func qemu(r *Running) int {
	for _, p := range belonging(r) {
		if args := p.Args(); len(args) > 0 && strings.HasPrefix(args[0], "qemu-system") {
			return p.PID
		}
	}
	return 0
}

func noneLeft(t *testing.T, r *Running) {
	t.Helper()
	// The kernel kills what is left when the script is gone, but not in the same instant.
	proc.Eventually(t, "the end of all processes", func() bool { return len(belonging(r)) == 0 })
}

func wantCode(t *testing.T, r Result, code int) {
	t.Helper()
	if r.Code == code {
		return
	}
	for i, h := range r.Hosts {
		t.Errorf("host %d: ended %v, code %d, stdout %q, stderr %q", i+1, h.Ended, h.Code, h.Stdout, h.Stderr)
	}
	t.Fatalf("exit code %d, want %d", r.Code, code)
}

func TestCommand(t *testing.T) {
	t.Parallel()
	out, here := t.TempDir(), t.TempDir()
	folder, _ := os.Getwd()
	r := Run(t, Spec{Env: []string{"WORD=two  spaces"}, Out: out}, "sh", "-c", `
		head -c 3000000 /dev/zero | tr '\0' '\377'
		echo "$PWD:$WORD:$GUEST_HOST:$(hostname):$1" >&2
		echo kept >"$GUEST_OUT/file"
		echo lost >"$2/file" && cat "$2/file" >&2
		exit 3`, "sh", `it's "quoted"`, here)
	wantCode(t, r, 3)
	h := r.Hosts[0]
	if !h.Ended || h.Code != 3 {
		t.Errorf("ended %v, code %d", h.Ended, h.Code)
	}
	if want := strings.Repeat("\377", 3000000); h.Stdout != want {
		t.Errorf("%d bytes of stdout, want %d of them 255", len(h.Stdout), len(want))
	}
	if want := folder + `:two  spaces:1:guest1:it's "quoted"` + "\nlost\n"; h.Stderr != want {
		t.Errorf("stderr %q, want %q", h.Stderr, want)
	}
	if text, err := os.ReadFile(filepath.Join(out, "file")); err != nil || string(text) != "kept\n" {
		t.Errorf("what was written to GUEST_OUT: %q, %v", text, err)
	}
	if list, _ := os.ReadDir(here); len(list) != 0 {
		t.Errorf("what was written elsewhere is there: %v", list)
	}
}

func TestDevice(t *testing.T) {
	t.Parallel()
	need(t)
	proc.RequireProgram(t, "ibv_rc_pingpong", "ibverbs-utils")
	r := Run(t, Spec{}, "sh", "-e", "-c", `
		test -c /dev/infiniband/rdma_cm
		ibv_devinfo -d rxe0
		ibv_rc_pingpong -g 1 -n 50 >"$GUEST_OUT/server" & server=$!
		until ibv_rc_pingpong -g 1 -n 50 127.0.0.1; do sleep 0.2; done
		wait $server; cat "$GUEST_OUT/server"`)
	wantCode(t, r, 0)
	got := r.Hosts[0].Stdout
	if !strings.Contains(got, "PORT_ACTIVE") {
		t.Errorf("no active port: %s", got)
	}
	if n := strings.Count(got, "50 iters in"); n != 2 {
		t.Errorf("%d of 2 processes have printed their numbers: %s", n, got)
	}
}

// Two guests reach each other. When the command fails in one, the other is given a little time and killed.
func TestTwoHosts(t *testing.T) {
	t.Parallel()
	need(t)
	proc.RequireProgram(t, "ibv_rc_pingpong", "ibverbs-utils")
	out := t.TempDir()
	s := Start(t, Spec{Hosts: 2, Out: out, Grace: 20 * time.Second}, "sh", "-e", "-c", `
		other=$((3 - GUEST_HOST))
		busybox ping -c 2 -s 8000 10.99.0.$other; busybox ping -c 1 guest$other
		hostname >"$GUEST_OUT/name"
		if [ $GUEST_HOST = 1 ]; then
			ibv_rc_pingpong -g 1 -n 20
			exec sleep 1000
		fi
		until ibv_rc_pingpong -g 1 -n 20 guest1; do sleep 0.2; done
		exit 7`)
	r, err := s.Wait()
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, r, 7)
	for i, h := range r.Hosts {
		if !strings.Contains(h.Stdout, "2 packets received") || !strings.Contains(h.Stdout, "20 iters in") {
			t.Errorf("host %d: stdout %s, stderr %s", i+1, h.Stdout, h.Stderr)
		}
		name, err := os.ReadFile(filepath.Join(out, fmt.Sprintf("h%d", i+1), "name"))
		if want := fmt.Sprintf("guest%d\n", i+1); err != nil || string(name) != want {
			t.Errorf("host %d has the name %q, want %q (%v)", i+1, name, want, err)
		}
	}
	if one, two := r.Hosts[0], r.Hosts[1]; one.Ended || !two.Ended || two.Code != 7 {
		t.Errorf("ended: %v, %v with %d; want that host 1 was killed and host 2 ended with 7", one.Ended, two.Ended, two.Code)
	}
	noneLeft(t, s)
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	s := Start(t, Spec{Timeout: 8 * time.Second}, "sleep", "1000")
	r, err := s.Wait()
	if !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "after 8 s guest 1 ") || r.Hosts[0].Ended {
		t.Errorf("%+v, %v; want that the time is up", r, err)
	}
	noneLeft(t, s)
}

// A guest that dies while it boots is booted again, as often as not for good.
func TestBootsAgain(t *testing.T) {
	t.Parallel()
	s := Start(t, Spec{}, "true")
	pid := 0
	proc.Eventually(t, "a guest", func() bool { pid = qemu(s); return pid != 0 })
	syscall.Kill(pid, syscall.SIGKILL)
	r, err := s.Wait()
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, r, 0)
	if printed := s.stderr.String(); !strings.Contains(printed, "has not come up (boot 1 of 3)") {
		t.Errorf("a guest was killed, and the script printed %q", printed)
	}
}

// A script that is killed takes its guests with it.
func TestScriptKilled(t *testing.T) {
	t.Parallel()
	s := Start(t, Spec{}, "sh", "-c", "echo runs; exec sleep 1000")
	proc.Eventually(t, "the command", func() bool { return s.Stdout(1) == "runs\n" })
	s.cmd.Process.Kill()
	if r, err := s.Wait(); err == nil {
		t.Errorf("the script was killed and there is no error: %+v", r)
	}
	noneLeft(t, s)
}

// So does a test that ends or is killed: then the script's standard input ends.
func TestStopped(t *testing.T) {
	t.Parallel()
	s := Start(t, Spec{Hosts: 2}, "true")
	proc.Eventually(t, "a guest", func() bool { return qemu(s) != 0 })
	s.Stop()
	if r, err := s.Wait(); err == nil {
		t.Errorf("the guests were stopped and there is no error: %+v", r)
	}
	noneLeft(t, s)
}

// What cannot work is refused before anything is made.
func TestRefusals(t *testing.T) {
	script, err := proc.CheckoutFile("scripts/guest")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--hosts", "3", "--", "true"}, "--hosts 3: must be 1 or 2"},
		{[]string{"--timeout", "soon", "--", "true"}, "--timeout soon: must be a number"},
		{[]string{"--cpus", "3", "--", "true"}, "there is no option --cpus"},
		{[]string{"--timeout"}, "--timeout needs a value"},
		{nil, "scripts/guest [OPTION...] -- CMD"},
	} {
		printed, code := output(exec.Command(script, c.args...))
		if code != 2 || !strings.Contains(printed, c.want) {
			t.Errorf("%q: code %d, %s; want 2 and %q", c.args, code, printed, c.want)
		}
	}
}

func output(cmd *exec.Cmd) (printed string, code int) {
	text, _ := cmd.CombinedOutput()
	return string(text), cmd.ProcessState.ExitCode()
}

func TestMissingPrograms(t *testing.T) {
	script, err := proc.CheckoutFile("scripts/guest")
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir()
	for _, name := range []string{"env", "bash", "readlink", "uname", "id"} {
		there, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(there, filepath.Join(path, name)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(script, "--", "true")
	cmd.Env = append(os.Environ(), "PATH="+path)
	printed, code := output(cmd)
	if code != unavailable || !strings.Contains(printed, "guest: ") ||
		!strings.Contains(printed, "amd64") &&
			!strings.Contains(printed, "apt-get install --no-install-recommends qemu-system-x86") {
		t.Errorf("code %d, %s; want %d and how to install it", code, printed, unavailable)
	}
}

func TestNotRoot(t *testing.T) {
	if os.Getuid() != 0 || runtime.GOARCH != "amd64" {
		t.Skip("needs root, to become another user, and amd64")
	}
	for _, program := range []string{"qemu-system-x86_64", "busybox"} {
		proc.RequireProgram(t, program, "qemu-system-x86 busybox-static")
	}
	script, err := proc.CheckoutFile("scripts/guest")
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(script)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	// As a descriptor, since another user may not see the checkout.
	cmd := exec.Command("bash", "/dev/fd/3", "--", "true")
	cmd.ExtraFiles = []*os.File{file}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	cmd.Dir = "/"
	printed, code := output(cmd)
	if code != unavailable || !strings.Contains(printed, "only root can run guests") {
		t.Errorf("code %d, %s; want %d and the reason", code, printed, unavailable)
	}
}
