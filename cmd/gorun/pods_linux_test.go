package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/k8s"
	"github.com/gorun-mpi/mpi/internal/testkit/netns"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// cluster is hosts on which pods run, one on each, as a manifest of gorun says: the command, the account without any
// capability, and the key as a file. gorun is process 1 of its pod. Their names are known to a server of DNS.
type cluster struct {
	*netns.Hosts
	names    *nameServer
	networks []string // of the hosts
	before   []int    // what runs on the hosts when there is no job
}

// nodes makes a cluster.
func nodes(t *testing.T, n int) *cluster {
	t.Helper()
	proc.RequireProgram(t, "setpriv", "util-linux")
	h := &cluster{Hosts: netns.Up(t, n)}
	h.names = serveNames(t, h.Hosts)
	for host := range n {
		network, err := h.Command(host+1, "readlink", "/proc/self/ns/net").Output()
		if err != nil {
			t.Fatal(err)
		}
		h.networks = append(h.networks, strings.TrimSpace(string(network)))
	}
	for _, p := range h.processes() {
		h.before = append(h.before, p.PID)
	}
	return h
}

// processes lists what runs on the hosts and in their pods, but for what their first processes do to pass the time.
func (h *cluster) processes() []proc.Info {
	return proc.List(func(p proc.Info) bool {
		return slices.Contains(h.networks, p.Namespace("net")) && !slices.Equal(p.Args(), []string{"sleep", "1000000"})
	})
}

// on runs a line of sh on a host.
func (h *cluster) on(t *testing.T, host int, line string) string {
	t.Helper()
	out, err := h.Command(host, "sh", "-c", line).CombinedOutput()
	if err != nil {
		t.Fatalf("%s on h%d: %v\n%s", line, host, err, out)
	}
	return strings.TrimSpace(string(out))
}

// nothingLeft sees that the hosts that are left are as they were.
func (h *cluster) nothingLeft(t *testing.T) {
	t.Helper()
	proc.Eventually(t, "the hosts to be as they were", func() bool {
		return !slices.ContainsFunc(h.processes(), func(p proc.Info) bool { return !slices.Contains(h.before, p.PID) })
	})
}

// nameServer is a server of DNS that knows names of the namespace "default". It stands for that of a cluster, in which
// a headless Service makes the name of a pod known when that has an address.
type nameServer struct {
	mu    sync.Mutex
	known map[string]net.IP // guarded by mu
	asked int               // guarded by mu; questions about names that are not known
}

const domain = ".default.svc.cluster.local"

func serveNames(t *testing.T, h *netns.Hosts) *nameServer {
	t.Helper()
	s := &nameServer{known: map[string]net.IP{}}
	var conn net.PacketConn
	err := h.Do(netns.Switch, func() (err error) {
		conn, err = net.ListenPacket("udp", net.JoinHostPort(h.Address(netns.Switch).String(), "53"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for b := make([]byte, 512); ; {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			if answer := s.answer(b[:n]); answer != nil {
				conn.WriteTo(answer, from)
			}
		}
	}()
	t.Cleanup(func() { conn.Close(); <-done })
	return s
}

// answer is that to a question for the addresses of one name.
func (s *nameServer) answer(q []byte) []byte {
	var labels []string
	at := 12 // after the header
	for at < len(q) && q[at] != 0 && at+1+int(q[at]) < len(q) {
		labels = append(labels, string(q[at+1:at+1+int(q[at])]))
		at += 1 + int(q[at])
	}
	if at+5 > len(q) {
		return nil
	}
	kind := q[at+2] // 1: A
	name, in := strings.CutSuffix(strings.Join(labels, "."), domain)
	s.mu.Lock()
	defer s.mu.Unlock()
	ip := s.known[name]
	a := append([]byte{q[0], q[1], 0x84, 0, 0, 1, 0, 0, 0, 0, 0, 0}, q[12:at+5]...)
	switch {
	case ip == nil || !in:
		s.asked++
		a[3] = 3 // there is no such name
	case kind == 1:
		a[7] = 1
		a = append(a, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4)
		a = append(a, ip.To4()...)
	}
	return a
}

// know makes the name of a pod known.
func (s *nameServer) know(name string, ip string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[name] = net.ParseIP(ip)
}

func (s *nameServer) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, name)
}

func (s *nameServer) questions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// podJob is a job of pods on a cluster. Pod i is on host i+1.
type podJob struct {
	*cluster
	*pods
	command []string // of each pod
	prog    string   // of the ranks; "": the test's rank program
	all     []*pod
}

// inPod is what the image and the kubelet do: gorun and the program are at their places, and so is the key, for the
// account of the pod. Its words: gorun, the program, the key, resolv.conf, and the command.
const inPod = `set -e
mount -t tmpfs -o mode=755 none /run
for file in gorun prog; do
	: >/run/$file
	mount --bind "$1" /run/$file
	shift
done
mkdir /run/secret
cat "$1" >/run/secret/key
chmod 440 /run/secret/key
chgrp 65532 /run/secret/key
mount --bind "$2" /etc/resolv.conf
shift 2
cd /
exec setpriv --reuid 65532 --regid 65532 --clear-groups --no-new-privs --bounding-set -all --inh-caps -all "$@"
`

// job makes the manifest of a job of as many pods as there are hosts, and takes the command of the pods from it.
func (h *cluster) job(t *testing.T, flags, words []string) *podJob {
	t.Helper()
	j := &podJob{cluster: h, pods: newPods(t, h.Count())}
	args := append([]string{"k8s", "manifest", "--image", "x", "--name", "job", "--gorun", "/run/gorun", "--pods",
		strconv.Itoa(h.Count()), "-x", proc.RoleVar + "=rank"}, flags...)
	made := call(t, append(append(args, "/run/prog"), words...)...)
	var manifest struct {
		Items []struct {
			Spec struct {
				Template struct {
					Spec struct {
						SecurityContext struct{ RunAsUser int }
						Containers      []struct{ Command []string }
					}
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(made.out), &manifest); err != nil || len(manifest.Items) != 2 {
		t.Fatalf("%v: %s", err, made.err)
	}
	pod := manifest.Items[1].Spec.Template.Spec
	if j.command = pod.Containers[0].Command; pod.SecurityContext.RunAsUser != 65532 {
		t.Fatalf("the pods run as %d", pod.SecurityContext.RunAsUser)
	}
	file := slices.Index(j.command, "--key-file="+k8s.KeyFile)
	j.command[file] = "--key-file=/run/secret/key" // /etc is that of the machine
	h.names.know("job-0.job", h.Address(1).String())
	return j
}

// start starts the pod with an index on its host.
func (j *podJob) start(index int) *pod {
	j.t.Helper()
	resolv := filepath.Join(j.t.TempDir(), "resolv.conf")
	text := fmt.Sprintf("nameserver %v\nsearch %s svc.cluster.local cluster.local\noptions ndots:5\n",
		j.Address(netns.Switch), domain[1:])
	if err := os.WriteFile(resolv, []byte(text), 0o644); err != nil {
		j.t.Fatal(err)
	}
	prog := j.prog
	if prog == "" {
		prog = j.gorun
	}
	args := []string{"--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", inPod, "sh", j.gorun,
		prog, j.key, resolv}
	o := j.pod(index, j.Command(index+1, "unshare", append(args, j.command...)...)).start()
	j.t.Cleanup(func() { netns.KillGroup(o.cmd) })
	j.all = append(j.all, o)
	return o
}

// startAll starts the pods of all hosts, index 0 first.
func (j *podJob) startAll() *podJob {
	j.t.Helper()
	for index := range j.Count() {
		j.start(index)
	}
	return j
}

// ready waits for n ranks.
func (j *podJob) ready(n int) *podJob {
	j.t.Helper()
	proc.Eventually(j.t, "the ranks", func() bool {
		return strings.Count(j.all[0].out.String(), "ready\n") == n
	})
	return j
}

// first is process 1 of a pod, seen from outside.
func (o *pod) first() proc.Info {
	o.t.Helper()
	var found []proc.Info
	proc.Eventually(o.t, "gorun in the pod", func() bool {
		found = proc.List(func(p proc.Info) bool {
			args, env := p.Args(), p.Env()
			return len(args) > 2 && args[0] == "/run/gorun" && args[1] == "k8s" &&
				slices.Contains(env, markVar+"="+o.mark) && slices.Contains(env, envIndex+"="+strconv.Itoa(o.index))
		})
		return len(found) == 1
	})
	return found[0]
}

// signal sends a signal to process 1, as a kubelet does.
func (o *pod) signal(s syscall.Signal) {
	o.t.Helper()
	if err := syscall.Kill(o.first().PID, s); err != nil {
		o.t.Error(err)
	}
}

// ends expects exit codes of the pods, in the order of their start; -1: any, as of a pod that was killed.
func (j *podJob) ends(at time.Time, codes ...int) *podJob {
	j.t.Helper()
	for i, o := range j.all {
		if codes[i] < 0 {
			o.cmd.Wait()
		} else {
			o.wait(codes[i])
		}
		j.t.Logf("pod %d has ended after %v", o.index, time.Since(at))
	}
	j.nothingLeft(j.t)
	j.t.Logf("and nothing was left after %v", time.Since(at))
	return j
}

// Pods on hosts of their own are one job, as the manifest has it: ranks on all, their output, the exit code. gorun is
// process 1 there.
func TestPodsOnHosts(t *testing.T) {
	h := nodes(t, 3)
	t.Run("ranks", func(t *testing.T) {
		j := h.job(t, []string{"-n", "5", "-l"}, []string{"join", "exchange=7", "env=" + envIndex, "finalize"})
		j.startAll().ends(time.Now(), 0, 0, 0)
		want := ""
		for rank, index := range []int{0, 0, 1, 1, 2} {
			want += fmt.Sprintf("[%d] 35\n[%[1]d] %s=%d\n", rank, envIndex, index)
		}
		if got := j.all[0].out.String(); sorted(got) != sorted(want) {
			t.Errorf("the output is\n%s\nwant\n%s", got, want)
		}
		for _, o := range j.all {
			if o.err.String() != "" || o.index > 0 && o.out.String() != "" {
				t.Errorf("pod %d says %s%s", o.index, o.out.String(), o.err.String())
			}
		}
	})
}

// An MPI program computes over pods, some of whose ranks share a host; and when a pod is killed under it, that is why
// the job has failed, whatever the ranks say that waited for those of the pod.
func TestPodsOnHostsCompute(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: hosts, and a program is built; TestPodsOnHosts has the test's own ranks")
	}
	cg := proc.Build(t, "examples/cg")
	h := nodes(t, 3)
	t.Run("to the end", func(t *testing.T) {
		j := h.job(t, []string{"-n", "5"}, []string{"-cells", "12"})
		j.prog = cg
		j.startAll().ends(time.Now(), 0, 0, 0)
		if got := j.all[0].out.String(); !strings.HasPrefix(got, "144 unknowns on 5 ranks: ") {
			t.Errorf("the output is %q", got)
		}
	})
	t.Run("a pod killed", func(t *testing.T) {
		j := h.job(t, []string{"-n", "5"}, []string{"-cells", "3000", "-tolerance", "1e-300"}) // for hours
		j.prog = cg
		j.startAll()
		proc.Eventually(t, "the ranks of pod 2 to have connections to others", func() bool {
			n, _ := strconv.Atoi(h.on(t, 3, "ss -H -tn state established | grep -cv :23000 || :"))
			return n >= 2
		})
		at := time.Now()
		j.all[2].signal(syscall.SIGKILL)
		j.ends(at, 1, 0, -1)
		j.all[0].says("host job-2 is lost: its agent is gone: ")
	})
}

// What ends one pod, one host or one rank ends the job on all hosts, and leaves nothing behind.
func TestPodsOnHostsFail(t *testing.T) {
	sleep := []string{"deaf", "child", "daemon", "join", "fence", "sleep"}
	timeout := []string{"-n", "5", "-x", "GORUN_PEER_TIMEOUT=" + silent}
	for _, c := range []struct {
		name  string
		words []string // nil: the ranks wait, and resist
		hit   func(j *podJob)
		codes []int
		says  string // index 0
		mend  func(j *podJob)
	}{
		{"a rank fails", []string{"join", "fence", "4:exit=3", "sleep"}, nil, []int{3, 0, 0}, "rank 4 ", nil},
		{"SIGTERM to index 0", nil, func(j *podJob) { j.all[0].signal(syscall.SIGTERM) }, []int{143, 0, 0},
			"stopped by signal 15", nil},
		{"SIGTERM to a pod", []string{"child", "join", "fence", "sleep"},
			func(j *podJob) { j.all[1].signal(syscall.SIGTERM) }, []int{143, 0, 0},
			"the agent on host job-1 was stopped by signal 15", nil},
		{"a pod killed", nil, func(j *podJob) { j.all[2].signal(syscall.SIGKILL) }, []int{1, 0, -1},
			"host job-2 is lost: its agent is gone: ", nil},
		{"index 0 killed", nil, func(j *podJob) { j.all[0].signal(syscall.SIGKILL) }, []int{-1, 1, 1}, "", nil},
		{"link down", nil, func(j *podJob) { j.LinkDown(3) }, []int{1, 0, 1}, "host job-2 is lost: " + unheard,
			func(j *podJob) { j.LinkUp(3) }},
		{"link of index 0 down", nil, func(j *podJob) { j.LinkDown(1) }, []int{1, 1, 1}, "this host, job-0, is cut off from them",
			func(j *podJob) { j.LinkUp(1) }},
		{"a host crashes", nil, func(j *podJob) { j.Crash(2) }, []int{1, -1, 0},
			"host job-1 is lost: its agent is gone: ", nil},
		{"power off", nil, func(j *podJob) { j.PowerOff(2) }, []int{1, -1, 0}, "host job-1 is lost: " + unheard, nil},
		{"power of index 0 off", nil, func(j *podJob) { j.PowerOff(1) }, []int{-1, 1, 1}, "", nil},
	} {
		if testing.Short() && c.name != "a pod killed" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			words := c.words
			if words == nil {
				words = sleep
			}
			j := nodes(t, 3).job(t, timeout, words).startAll()
			at := time.Now()
			if c.hit != nil {
				j.ready(5)
				at = time.Now()
				c.hit(j)
			}
			j.ends(at, c.codes...)
			j.all[0].says(c.says)
			if c.mend != nil {
				c.mend(j)
			}
		})
	}
}

// A pod that fails with its ranks, in whatever way, comes again on its host, and the ranks start there again. gorun is
// process 1 of it: nothing of the old pod is left.
func TestPodsOnHostsComeAgain(t *testing.T) {
	for _, c := range []struct {
		name  string
		hit   func(j *podJob)
		codes []int
		says  string
		mend  func(j *podJob)
	}{
		{"killed", func(j *podJob) { j.all[2].signal(syscall.SIGKILL) }, []int{0, 0, -1, 0}, "its agent is gone: ", nil},
		{"told to end", func(j *podJob) { j.all[2].signal(syscall.SIGTERM) }, []int{0, 0, 75, 0},
			"the pod was told to end by signal 15", nil},
		{"its agent killed", func(j *podJob) { j.killAgent(2) }, []int{0, 0, 75, 0},
			"an agent of the pod has ended: signal: killed", nil},
		{"link down", func(j *podJob) { j.LinkDown(3) }, []int{0, 0, 75, 0}, unheard, func(j *podJob) { j.LinkUp(3) }},
	} {
		if testing.Short() && c.name != "its agent killed" { // the others are in TestPodComesAgain too
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			flags := []string{"-n", "5", "--respawn", "4", "-x", "GORUN_PEER_TIMEOUT=" + silent}
			dir, err := os.MkdirTemp("", "lost") // t.TempDir is closed to the account of the pods
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			os.Chmod(dir, 0o755)
			lost := filepath.Join(dir, "lost")
			words := []string{"join", "4:sleep", "0:await=" + lost, "0:replace=4", "finalize"}
			j := nodes(t, 3).job(t, flags, words).startAll()
			defer func() {
				for _, o := range j.all {
					if t.Failed() {
						t.Logf("pod %d says\n%s", o.index, o.err.String())
					}
				}
			}()
			j.ready(1)
			at := time.Now()
			c.hit(j)
			j.all[0].hears("host job-2 is lost: ").says(c.says)
			makeFile(t, lost)
			j.all[2].cmd.Wait()
			if c.mend != nil {
				c.mend(j)
			}
			j.start(2)
			j.ends(at, c.codes...)
			j.all[0].says("host job-2 is there again", "rank 4 has been started again on job-2")
		})
	}
}

// killAgent kills the agent of a pod.
func (j *podJob) killAgent(index int) {
	j.t.Helper()
	for _, p := range j.agents() {
		if slices.Contains(p.Env(), envIndex+"="+strconv.Itoa(index)) {
			syscall.Kill(p.PID, syscall.SIGKILL)
			return
		}
	}
	j.t.Error("the pod has no agent")
}

// Pods meet although they and their names come late. What keeps them from meeting is said, and ends them.
func TestPodsOnHostsMeet(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: hosts; TestPodsThatDoNotMeet has the same on one")
	}
	h := nodes(t, 3)
	words := []string{"join", "fence", "finalize", "env=" + envIndex}
	t.Run("the name of index 0 comes late", func(t *testing.T) {
		j := h.job(t, nil, words)
		h.names.forget("job-0.job")
		asked := h.names.questions()
		late := j.start(1)
		proc.Eventually(t, "the pod to say that it waits", func() bool { return late.err.String() != "" })
		if h.names.questions() == asked {
			t.Error("the name was not asked for")
		}
		head := j.start(0)
		h.names.know("job-0.job", h.Address(1).String())
		j.start(2)
		late.says("is not reached yet: ", "no such host")
		j.ends(time.Now(), 0, 0, 0)
		if n := strings.Count(head.out.String(), envIndex); n != 3 {
			t.Errorf("%d ranks:\n%s", n, head.out.String())
		}
	})
	t.Run("the name is that of another pod", func(t *testing.T) {
		j := h.job(t, nil, words)
		h.names.know("job-0.job", h.Address(2).String()) // where nothing listens
		j.startAll()
		proc.Eventually(t, "the pods to wait", func() bool {
			return strings.Contains(j.all[1].err.String(), "refused")
		})
		h.names.know("job-0.job", h.Address(1).String())
		j.ends(time.Now(), 0, 0, 0)
	})
	t.Run("a pod never comes", func(t *testing.T) {
		j := h.job(t, []string{"--host-timeout", "2s"}, words)
		j.start(0)
		j.start(1)
		j.ends(time.Now(), 126, 0)
		j.all[0].says("host job-2 cannot be used: its agent has not come in time", "--host-timeout sets")
	})
	t.Run("index 0 never comes", func(t *testing.T) {
		j := h.job(t, []string{"--host-timeout", "2s"}, words)
		j.start(1)
		j.start(2)
		j.ends(time.Now(), 1, 1)
		j.all[1].says("gorun is not reached: ", "tried for 2s, which --host-timeout sets")
	})
	t.Run("another key", func(t *testing.T) {
		j := h.job(t, nil, words) // the pods would wait for ten minutes
		j.start(0)
		j.key = writeKey(t, 8)
		stranger := j.start(1)
		stranger.wait(1).says("another secret", "for 10s")
		j.all[0].says("did not prove the job's secret")
		j.all[0].signal(syscall.SIGTERM) // as the Job's controller does
		j.ends(time.Now(), 143, 1)
	})
	t.Run("another build", func(t *testing.T) {
		j := h.job(t, nil, words)
		j.start(0)
		j.start(2)
		j.gorun = proc.Gorun(t)
		j.start(1)
		j.ends(time.Now(), 126, 0, 1)
		j.all[0].says("host job-1 cannot be used: its gorun is of another build")
		j.all[2].says("another build")
	})
	t.Run("told to end while it waits", func(t *testing.T) {
		j := h.job(t, nil, words)
		h.names.forget("job-0.job")
		asked := h.names.questions()
		j.start(1)
		proc.Eventually(t, "the name to be asked for", func() bool { return h.names.questions() > asked })
		j.all[0].signal(syscall.SIGTERM)
		j.ends(time.Now(), 1)
		j.all[0].says("stopped by signal: terminated")
	})
	t.Run("index 0 told to end while it waits", func(t *testing.T) {
		j := h.job(t, nil, words)
		j.start(0)
		j.start(2)
		proc.Eventually(t, "pod 2 to come", func() bool {
			return h.on(t, 1, "ss -H -tn state established | grep -c :23000 || :") == "1"
		})
		j.all[0].signal(syscall.SIGTERM)
		j.ends(time.Now(), 143, -1)
		// Its connection is made; it is an agent only when both sides have proved the key.
		if code := j.all[1].cmd.ProcessState.ExitCode(); code != 0 && code != 1 {
			t.Errorf("pod 2 exited with %d; want 0 of an agent, 1 of a pod that has not become one", code)
		}
	})
}

// gorun is process 1 of a pod: what the ranks leave without a parent is its child, and does not stay as a zombie.
func TestPodsReapOrphans(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: hosts; TestOrphansAreReaped has the same on one")
	}
	h := nodes(t, 2)
	j := h.job(t, []string{"-n", "2"}, []string{"-c", `for i in 1 2 3 4 5; do (setsid sh -c 'sleep 0.2; exit 3' &) done
		echo ready; exec sleep 1000`})
	j.prog = "/bin/sh"
	j.startAll().ready(2)
	var first []int
	for _, o := range j.all {
		first = append(first, o.first().PID)
	}
	proc.Eventually(t, "gorun to have a rank and its cleaner only", func() bool {
		for _, pid := range first {
			children := 0 // zombies too, which proc.List does not count
			threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
			for _, thread := range threads {
				text, _ := os.ReadFile(thread)
				children += len(strings.Fields(string(text)))
			}
			if children == 0 || children > 2 {
				return false
			}
		}
		return true
	})
	j.all[0].signal(syscall.SIGTERM)
	j.ends(time.Now(), 143, 0)
}
