package netns

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gorun-mpi/mpi/internal/cpuset"
	"github.com/gorun-mpi/mpi/internal/place"
	"github.com/gorun-mpi/mpi/internal/pmi"
)

// Job is a program of this module that runs on hosts, with the wire-up served at the switch.
type Job struct {
	PerHost []int // ranks on h1, h2, ...; nil: PPN on each host
	PPN     int   // 0: 1
	Program string
	Args    []string
	Env     []string // beyond this process's; later ones win, over what Run sets too
	Mapping string   // PMI_process_mapping; "": as PerHost says
	Pin     bool     // each rank runs on a core of its own, or where these are too few on its host's part of them
	// Grace is what the others are given when a rank has failed; 0: 1 s; negative: they are never killed.
	Grace time.Duration
	// PeerTimeout is GORUN_PEER_TIMEOUT, and the launcher's too; 0: the default of both.
	PeerTimeout time.Duration
	// Stdout and Stderr get what ranks print, which Output has too; nil: Output only.
	Stdout, Stderr io.Writer
}

// maxOutput is what is kept of a rank's output.
const maxOutput = 16 << 20

// Running is a job that has been started.
type Running struct {
	job    Job
	size   int // ranks of all hosts
	server *pmi.Server
	ln     net.Listener
	ranks  []*rank
	exits  chan int // ranks that have ended
	done   chan struct{}

	mu   sync.Mutex
	code int // guarded by mu; of the job: of its first failure
}

type rank struct {
	host  int
	cmd   *exec.Cmd
	out   capture
	ended chan struct{}
	code  int // written before ended is closed
}

// capture keeps what is printed and hands it on.
type capture struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (c *capture) tee(to io.Writer) io.Writer { return teeWriter{c, to} }

type teeWriter struct {
	c  *capture
	to io.Writer // may be nil
}

func (w teeWriter) Write(b []byte) (int, error) {
	w.c.mu.Lock()
	if w.c.text.Len() < maxOutput {
		w.c.text.Write(b)
	}
	w.c.mu.Unlock()
	if w.to != nil {
		return w.to.Write(b)
	}
	return len(b), nil
}

// Run starts a job. It ends with the hosts at the latest.
func (h *Hosts) Run(job Job) (*Running, error) {
	if job.PerHost == nil {
		for range h.n {
			job.PerHost = append(job.PerHost, max(job.PPN, 1))
		}
	}
	if len(job.PerHost) > h.n {
		return nil, fmt.Errorf("ranks for %d hosts, and there are %d", len(job.PerHost), h.n)
	}
	if job.Grace == 0 {
		job.Grace = time.Second
	}
	size := 0
	for _, n := range job.PerHost {
		size += n
	}
	ln, err := h.Listen()
	if err != nil {
		return nil, err
	}
	if job.Mapping == "" {
		job.Mapping = place.Blocks(job.PerHost).Mapping()
	}
	r := &Running{
		job: job, size: size, ln: ln, exits: make(chan int, size), done: make(chan struct{}),
		server: pmi.NewServer(size, pmi.Options{PeerTimeout: job.PeerTimeout, Mapping: job.Mapping}),
	}
	r.server.Listen(ln)
	h.mu.Lock()
	h.jobs = append(h.jobs, r)
	h.mu.Unlock()
	err = r.startAll(h)
	if err != nil {
		r.Stop()
	}
	go func() { r.supervise(); close(r.done) }()
	if err != nil {
		r.Wait()
		return nil, err
	}
	return r, nil
}

func (r *Running) startAll(h *Hosts) error {
	usable := cpuset.Read().Usable()
	for i, n := range r.job.PerHost {
		share := max(1, usable/len(r.job.PerHost))
		if r.job.Pin && r.size <= usable {
			share = n
		}
		for local := range n {
			k := &rank{host: i + 1, ended: make(chan struct{})}
			k.cmd = r.command(h, i+1, len(r.ranks))
			k.cmd.Env = r.environ(len(r.ranks), local, n, share)
			k.cmd.Stdout, k.cmd.Stderr = k.out.tee(r.job.Stdout), k.out.tee(r.job.Stderr)
			if err := k.cmd.Start(); err != nil {
				return fmt.Errorf("starting rank %d on h%d: %w", len(r.ranks), i+1, err)
			}
			r.ranks = append(r.ranks, k)
			go r.await(len(r.ranks)-1, k)
		}
	}
	return nil
}

func (r *Running) command(h *Hosts, host, rank int) *exec.Cmd {
	if !r.job.Pin {
		return h.Command(host, r.job.Program, r.job.Args...)
	}
	return h.Command(host, "taskset", append([]string{"-c", r.cores(host, rank), r.job.Program}, r.job.Args...)...)
}

func (r *Running) cores(host, rank int) string {
	return cores(rank, r.size, host-1, len(r.job.PerHost))
}

// cores are those that a rank runs on if it is pinned, as a list for taskset: one of its own, or where ranks outnumber
// cores its host's part, which it shares with the other ranks of the host and no other one. Ranks and hosts count from
// 0. With more hosts than cores, several have the same.
func cores(rank, ranks, host, hosts int) string {
	all := cpuset.Read().CPUs
	if ranks <= len(all) {
		return strconv.Itoa(all[rank].ID)
	}
	part, ids := max(1, len(all)/hosts), []int(nil)
	for i := range part {
		ids = append(ids, all[(host*part+i)%len(all)].ID)
	}
	return cpuset.FormatList(ids)
}

// environ is what gorun would set, for a rank that dials.
func (r *Running) environ(rank, local, onHost, cpus int) []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "PMI_") && !strings.HasPrefix(kv, "PMIX_") && !strings.HasPrefix(kv, "OMPI_") {
			env = append(env, kv)
		}
	}
	env = append(env,
		pmi.EnvPort+"="+r.ln.Addr().String(),
		pmi.EnvID+"="+strconv.Itoa(rank),
		pmi.EnvJob+"="+r.server.Name(),
		pmi.EnvKey+"="+r.server.Key(),
		pmi.EnvLocalRank+"="+strconv.Itoa(local),
		pmi.EnvLocalSize+"="+strconv.Itoa(onHost),
		pmi.EnvCPUs+"="+strconv.Itoa(cpus))
	if r.job.PeerTimeout != 0 {
		env = append(env, pmi.EnvPeerTimeout+"="+r.job.PeerTimeout.String())
	}
	return append(env, r.job.Env...)
}

func (r *Running) await(i int, k *rank) {
	k.code = codeOf(k.cmd.Wait())
	if st := r.server.State(i); k.code == 0 && st.Joined && !st.Finalized {
		fmt.Fprintf(k.out.tee(r.job.Stderr), "rank %d has ended with code 0 and without Finalize\n", i)
		k.code = 1
	}
	close(k.ended)
	r.exits <- i
}

func codeOf(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return 0
	case !errors.As(err, &exit):
		return 1
	}
	if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return exit.ExitCode()
}

// supervise ends the job when a rank fails or aborts it, and the wire-up when all ranks have ended.
func (r *Running) supervise() {
	var grace <-chan time.Time
	for left := len(r.ranks); left > 0; {
		select {
		case i := <-r.exits:
			left--
			if r.fail(r.ranks[i].code) && r.job.Grace > 0 {
				grace = time.After(r.job.Grace)
			}
		case e := <-r.server.Events():
			if e.Kind == pmi.EventAbort {
				fmt.Fprintf(r.ranks[e.Rank].out.tee(r.job.Stderr), "rank %d: %s\n", e.Rank, e.Message)
				r.fail(e.Code)
				r.Stop()
			}
		case <-grace:
			r.Stop()
		}
	}
	r.server.Close()
}

// fail keeps the first code that is not 0 and reports whether this is it.
func (r *Running) fail(code int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if code == 0 || r.code != 0 {
		return false
	}
	r.code = code
	return true
}

// Wait waits until all ranks have ended, and returns their exit codes: 128 and the signal's number after a signal.
func (r *Running) Wait() (codes []int) {
	<-r.done
	for _, k := range r.ranks {
		codes = append(codes, k.code)
	}
	return codes
}

// Code returns the job's exit code after Wait: the code of abort, or of the rank that failed first.
func (r *Running) Code() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.code
}

// Ended is closed when a rank has ended.
func (r *Running) Ended(rank int) <-chan struct{} { return r.ranks[rank].ended }

// Output is what a rank has printed so far, on both streams.
func (r *Running) Output(rank int) string {
	k := r.ranks[rank]
	k.out.mu.Lock()
	defer k.out.mu.Unlock()
	return k.out.text.String()
}

// Host is where a rank runs.
func (r *Running) Host(rank int) int { return r.ranks[rank].host }

// Pid is a rank's process as seen from here. It waits until it is there.
func (r *Running) Pid(rank int) (int, error) {
	return insideOf(r.ranks[rank].cmd.Process.Pid, r.ranks[rank].ended)
}

// Kill ends a rank by SIGKILL.
func (r *Running) Kill(rank int) {
	select {
	case <-r.ranks[rank].ended: // its pid may have been given again
	default:
		KillGroup(r.ranks[rank].cmd)
	}
}

// Stop ends all ranks by SIGKILL; Wait returns when that has happened.
func (r *Running) Stop() {
	for i := range r.ranks {
		r.Kill(i)
	}
}
