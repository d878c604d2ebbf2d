package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/auth"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// pods are those of one job, as processes of this host.
type pods struct {
	t     *testing.T
	gorun string
	mark  string
	key   string // the file
	port  string
	head  string // what the pods dial
	flags []string
}

// pod is one of them.
type pod struct {
	*pods
	index    int
	cmd      *exec.Cmd
	out, err proc.Buffer
}

func writeKey(t *testing.T, b byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	text := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, auth.KeySize)) + "\n"
	if err := os.WriteFile(file, []byte(text), 0o400); err != nil {
		t.Fatal(err)
	}
	return file
}

// newPods is n of them. flags are those of the job.
func newPods(t *testing.T, n int, flags ...string) *pods {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	p := &pods{t: t, gorun: proc.Alias(t, self), key: writeKey(t, 7), head: "localhost",
		port: strconv.Itoa(ln.Addr().(*net.TCPAddr).Port),
		mark: fmt.Sprintf("%s-%d-%d", t.Name(), os.Getpid(), time.Now().UnixNano())}
	p.flags = append([]string{"--pods", strconv.Itoa(n), "--bind-to", "none"}, flags...)
	return p
}

// command is gorun in a pod, whose words are those of the rank program.
func (p *pods) command(index int, words ...string) *pod {
	p.t.Helper()
	args := append([]string{"k8s", "pod", "--name", "job", "--port", p.port, "--head", p.head, "--key-file", p.key},
		p.flags...)
	args = append(append(args, "-x", proc.RoleVar+"=rank", "--", p.gorun), words...)
	return p.pod(index, exec.Command(p.gorun, args...))
}

// pod is that with an index, which a command starts.
func (p *pods) pod(index int, cmd *exec.Cmd) *pod {
	o := &pod{pods: p, index: index, cmd: cmd}
	o.cmd.Env = append(os.Environ(), proc.RoleVar+"=gorun", markVar+"="+p.mark, envIndex+"="+strconv.Itoa(index))
	o.cmd.Stdout, o.cmd.Stderr = &o.out, &o.err
	o.cmd.WaitDelay = tooLong / 2
	return o
}

func (p *pods) start(index int, words ...string) *pod {
	p.t.Helper()
	return p.command(index, words...).start()
}

func (o *pod) start() *pod {
	o.t.Helper()
	if err := o.cmd.Start(); err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { o.cmd.Process.Kill() })
	return o
}

// wait expects an exit code.
func (o *pod) wait(code int) *pod {
	o.t.Helper()
	limit := time.AfterFunc(2*tooLong, func() { o.cmd.Process.Signal(syscall.SIGQUIT) })
	o.cmd.Wait()
	if got := o.cmd.ProcessState.ExitCode(); got != code || !limit.Stop() {
		o.t.Errorf("pod %d exited with %d, want %d\n%s%s", o.index, got, code, o.out.String(), o.err.String())
	}
	return o
}

func (o *pod) says(parts ...string) *pod {
	o.t.Helper()
	for _, part := range parts {
		if !strings.Contains(o.err.String(), part) {
			o.t.Errorf("pod %d did not say %q but:\n%s", o.index, part, o.err.String())
		}
	}
	return o
}

// gone waits for what may end a moment after the pods.
func (p *pods) gone() {
	p.t.Helper()
	proc.Eventually(p.t, "all processes to be gone", func() bool {
		return len(proc.List(func(q proc.Info) bool { return slices.Contains(q.Env(), markVar+"="+p.mark) })) == 0
	})
}

// Pods of an Indexed Job are one job, in whatever order they come up.
func TestPods(t *testing.T) {
	t.Parallel()
	words := []string{"join", "exchange=7", "env=JOB_COMPLETION_INDEX", "finalize"}
	p := newPods(t, 3, "-n", "5", "-l")
	var all []*pod
	for _, index := range []int{1, 2, 0} { // the head comes last
		all = append(all, p.start(index, words...))
	}
	for _, o := range all {
		o.wait(0)
	}
	head := all[2]
	want := ""
	for rank, index := range []int{0, 0, 1, 1, 2} {
		want += fmt.Sprintf("[%d] 35\n[%[1]d] JOB_COMPLETION_INDEX=%d\n", rank, index)
	}
	if got := head.out.String(); sorted(got) != sorted(want) {
		t.Errorf("the output is\n%s\nwant\n%s", got, want)
	}
	if said := all[0].out.String() + all[1].out.String() + all[0].err.String() + all[1].err.String(); said != "" {
		t.Errorf("the other pods say %q", said)
	}
	p.gone()
}

// The Job fails when its ranks do, whatever pod they are in; the other pods end well, and leave nothing behind.
func TestPodsOfAJobThatFails(t *testing.T) {
	t.Parallel()
	for words, code := range map[string]int{
		"join fence 2:exit=3 sleep": 3, "join fence 0:kill=9 sleep": 137, "join 1:abort=7 fence": 7,
	} {
		t.Run(words, func(t *testing.T) {
			t.Parallel()
			p := newPods(t, 3)
			var all []*pod
			for index := range 3 {
				all = append(all, p.start(index, strings.Fields(words)...))
			}
			all[0].wait(code)
			all[1].wait(0)
			all[2].wait(0)
			p.gone()
		})
	}
}

// One that is told to end ends the job; so does the head, also by kill -9.
func TestPodsThatAreKilled(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		index  int
		signal syscall.Signal
		codes  [3]int // -1: of the signal
		says   string
	}{
		{1, syscall.SIGTERM, [3]int{143, 0, 0}, "the agent on host job-1 was stopped by signal 15"},
		{0, syscall.SIGKILL, [3]int{-1, 1, 1}, ""},
		{0, syscall.SIGTERM, [3]int{143, 0, 0}, "stopped by signal"},
	} {
		t.Run(fmt.Sprint(c.index, c.signal), func(t *testing.T) {
			t.Parallel()
			p := newPods(t, 3)
			var all [3]*pod
			for index := range all {
				all[index] = p.start(index, "join", "sleep")
			}
			proc.Eventually(t, "the ranks", func() bool { return strings.Count(all[0].out.String(), "ready\n") == 3 })
			all[c.index].cmd.Process.Signal(c.signal)
			for index, o := range all {
				o.wait(c.codes[index])
			}
			all[0].says(c.says)
			p.gone()
		})
	}
}

// What keeps pods from meeting ends them after the time that was given, and is said.
func TestPodsThatDoNotMeet(t *testing.T) {
	t.Parallel()
	t.Run("one is missing", func(t *testing.T) {
		t.Parallel()
		p := newPods(t, 3, "--host-timeout", "1s")
		head, other := p.start(0, "sleep"), p.start(1, "sleep")
		head.wait(126).says("host job-2 cannot be used: its agent has not come in time", "--host-timeout sets")
		other.wait(0)
		if out := head.out.String(); out != "" {
			t.Errorf("ranks were started before all pods were there:\n%s", out)
		}
		p.gone()
	})
	t.Run("no head", func(t *testing.T) {
		t.Parallel()
		p := newPods(t, 2, "--host-timeout", "1s")
		p.start(1, "sleep").wait(1).says("gorun is not reached: ", "connection refused",
			"tried for 1s, which --host-timeout sets")
		p.head = "job-0.no-such-name.invalid"
		p.start(1, "sleep").wait(1).says("job-0.no-such-name.invalid", "tried for 1s")
	})
	t.Run("another key", func(t *testing.T) {
		t.Parallel()
		p := newPods(t, 2, "--host-timeout", "2s")
		head := p.start(0, "sleep")
		p.key = writeKey(t, 8)
		other := p.start(1, "sleep")
		head.wait(126).says("without the job's key were refused")
		other.wait(1).says("another secret")
		for _, o := range []*pod{head, other} {
			if strings.Contains(o.err.String()+o.out.String(), "CAgI") { // of writeKey's 8
				t.Errorf("pod %d shows its key", o.index)
			}
		}
	})
	t.Run("one is there twice", func(t *testing.T) {
		t.Parallel()
		p := newPods(t, 3)
		head, twins := p.start(0, "sleep"), []*pod{p.start(1, "sleep"), p.start(1, "sleep")}
		refused := func(o *pod) bool { return strings.Contains(o.err.String(), "has an agent already") }
		proc.Eventually(t, "one of the two to be refused", func() bool {
			return refused(twins[0]) || refused(twins[1])
		})
		if refused(twins[0]) {
			twins[0], twins[1] = twins[1], twins[0]
		}
		twins[1].wait(1)
		p.start(2, "sleep")
		proc.Eventually(t, "the ranks", func() bool { return strings.Count(head.out.String(), "ready\n") == 3 })
		head.cmd.Process.Signal(syscall.SIGTERM)
		head.wait(143)
		twins[0].wait(0)
		p.gone()
	})
}

func TestPodsThatCannotBe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		change func(p *pods, o *pod)
		code   int
		says   string
	}{
		{func(p *pods, o *pod) { o.cmd.Env = append(o.cmd.Env, envIndex+"=") }, 2, envIndex + " is not set"},
		{func(p *pods, o *pod) { o.cmd.Env = append(o.cmd.Env, envIndex+"=2") }, 2, "is no number from 0 to 1"},
		{func(p *pods, o *pod) { o.cmd.Env = append(o.cmd.Env, envIndex+"=x") }, 2, `="x" is no number`},
		{func(p *pods, o *pod) { o.cmd.Args = append(o.cmd.Args[:5], "--port", p.port, "x") }, 2, "--name and --pods"},
		{func(p *pods, o *pod) { o.cmd.Args[10] = "/no/such" }, 2, "a file of a Secret: open /no/such"},
		{func(p *pods, o *pod) { o.cmd.Args[10] = "/dev/null" }, 2, "must hold 32 bytes in base64"},
	} {
		p := newPods(t, 2)
		o := p.command(1, "sleep")
		c.change(p, o)
		o.start().wait(c.code).says(c.says)
	}
	p := newPods(t, 2)
	o := p.command(0, "sleep")
	o.cmd.Args = append(slices.Clone(o.cmd.Args[:len(p.flags)+11]), "--", "/no/such/program")
	o.start().wait(127).says("/no/such/program")
	taken := newPods(t, 2)
	ln, err := net.Listen("tcp", ":"+taken.port)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	taken.start(0, "sleep").wait(126).says("address already in use")
}
