package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// Strong progress: what was started completes although the rank that started it computes and calls nothing.

// tries are made while the rank computes. How much they are delayed is printed (benchmarks/overlap measures it); that
// they do not wait for the end of the computation is sure, because it goes on until they are complete.
const tries = 3

// endless is when a computation ends although what it waits for has not come: that is a failure.
const endless = patience / 2

// large is the size of a message that takes a while.
var large = 64 << 20

func init() {
	if brief {
		large = 2 << 20
	}
	role("computes after a wait", computesAfterWait)
	role("progress", progress)
	withoutReadv("progress", progress)
}

// side is one of the two ranks: 0 computes, 1 is its peer.
type side struct {
	w       *mpi.Comm
	buffers [][]byte // as many as tries
	perMS   float64  // turns of the computation
	strict  bool     // what was started completes before the computation ends, however long that takes
	flags   []byte   // memory that both share: each rank counts in its own byte the phases in which it has all
	phases  byte     // those with a computation so far
	sink    uint64
}

// progress runs phases. The first argument is a file that the ranks share, each other one the name of a phase and how
// long to compute in it, if that does not depend on what completes: isend=300ms.
func progress(_ context.Context, w *mpi.Comm) error {
	p := &side{w: w, strict: os.Getenv(proc.RoleVar) == "progress"}
	f, err := os.OpenFile(os.Args[1], os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if p.flags, err = unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return err
	}
	defer unix.Munmap(p.flags)
	for range tries {
		p.buffers = append(p.buffers, make([]byte, large))
	}
	p.calibrate()
	for _, arg := range os.Args[2:] {
		name, text, _ := strings.Cut(arg, "=")
		d, err := time.ParseDuration(text)
		if err != nil {
			return err
		}
		// The first time, pages are still to be found and connections to be made. The second time is what it takes
		// when both are in the library.
		for _, d := range []time.Duration{0, 0, d} {
			if err := p.phase(name, d); err != nil {
				return fmt.Errorf("%s, computing %v: %w", name, d, err)
			}
		}
	}
	return nil
}

func (p *side) phase(name string, d time.Duration) error {
	if name == "both" || (p.w.Rank() == 0) == (name == "isend") {
		for _, b := range p.buffers {
			pattern(b, p.w.Rank())
		}
	}
	if err := mpi.Barrier(p.w); err != nil {
		return err
	}
	if d > 0 {
		p.phases++
	}
	switch {
	case name == "both":
		return p.both(d)
	case p.w.Rank() == 0:
		return p.computing(d, name == "isend")
	default:
		return p.waiting(d, name)
	}
}

// computing starts transfers and computes.
func (p *side) computing(d time.Duration, send bool) error {
	var rs []*mpi.Request
	for i, b := range p.buffers {
		begin := mpi.Irecv[byte]
		if send {
			begin = mpi.Isend[byte]
		}
		r, err := begin(p.w, b, 1, i)
		if err != nil {
			return err
		}
		rs = append(rs, r)
	}
	if d > 0 {
		p.until(p.phases) // the peer computes nothing in this phase
		if err := p.compute(d, rs...); err != nil {
			return err
		}
	}
	if err := mpi.WaitAll(rs...); err != nil || send {
		return err
	}
	return p.verify(1)
}

// waiting does the other side of the transfers, one after the other, with a clock.
func (p *side) waiting(d time.Duration, name string) error {
	if d > 0 {
		time.Sleep(50 * time.Millisecond) // rank 0 computes by now
	}
	var took []float64
	for i, b := range p.buffers {
		from := time.Now()
		var err error
		if name == "isend" {
			_, err = mpi.Recv(p.w, b, 0, i)
		} else {
			err = mpi.Send(p.w, b, 0, i)
		}
		if err != nil {
			return err
		}
		took = append(took, float64(time.Since(from).Microseconds())/1000)
	}
	if d > 0 {
		p.flags[1] = p.phases
	}
	fmt.Printf("%s computing %v: quickest %.1f slowest %.1f all %.1f\n", name, d, slices.Min(took), slices.Max(took), took)
	if name == "isend" {
		return p.verify(0)
	}
	return nil
}

func (p *side) verify(seed int) error {
	for i, b := range p.buffers {
		if err := verify(b, seed); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	return nil
}

// both has each rank start a send and a receive, and compute.
func (p *side) both(d time.Duration) error {
	peer := 1 - p.w.Rank()
	out, in := p.buffers[0], p.buffers[1]
	s, err := mpi.Isend(p.w, out, peer, 0)
	if err != nil {
		return err
	}
	r, err := mpi.Irecv(p.w, in, peer, 0)
	if err != nil {
		return err
	}
	if d > 0 {
		if err := p.compute(d, s, r); err != nil {
			return err
		}
		fmt.Printf("rank %d has computed\n", p.w.Rank())
	}
	if err := mpi.WaitAll(s, r); err != nil {
		return err
	}
	return verify(in, peer)
}

// compute computes for some time; or, if p is strict, until all requests are complete and the peer has all of its own,
// which it sees without giving the library a chance to do anything for them.
func (p *side) compute(d time.Duration, rs ...*mpi.Request) error {
	if !p.strict {
		p.sink += spin(int(float64(d.Milliseconds())*p.perMS), p.sink)
		return nil
	}
	var done []<-chan struct{}
	for _, r := range rs {
		done = append(done, r.Done())
	}
	for began := time.Now(); time.Since(began) < endless; {
		p.sink += spin(int(50*p.perMS), p.sink)
		if finished(done) {
			p.flags[p.w.Rank()] = p.phases
			if p.flags[1-p.w.Rank()] == p.phases {
				return nil
			}
		}
	}
	return fmt.Errorf("after %v of computation: all complete here %v, at the peer %v", endless, finished(done),
		p.flags[1-p.w.Rank()] == p.phases)
}

func finished(done []<-chan struct{}) bool {
	for _, c := range done {
		select {
		case <-c:
		default:
			return false
		}
	}
	return true
}

// spin is a loop without calls: only the runtime's signals can take the processor from it.
func spin(turns int, x uint64) uint64 {
	for range turns {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x
}

// until is such a loop too: it ends when the peer has completed the phase, or takes too long.
func (p *side) until(phase byte) {
	if !p.strict {
		return
	}
	peer, turns, x := &p.flags[1-p.w.Rank()], int(p.perMS*float64(endless.Milliseconds())), p.sink
	for i := 0; i < turns && *peer != phase; i++ {
		x = x*6364136223846793005 + 1442695040888963407
	}
	p.sink = x
}

func (p *side) calibrate() {
	const probe = 20_000_000
	best := time.Hour
	for range 3 {
		from := time.Now()
		p.sink += spin(probe, p.sink)
		best = min(best, time.Since(from))
	}
	p.perMS = probe * float64(time.Millisecond) / float64(best)
}

// progressJob runs phases with so many processors for each rank.
func progressJob(t *testing.T, role string, procs int, phases ...string) *job {
	t.Helper()
	shared := filepath.Join(t.TempDir(), "shared")
	if err := os.WriteFile(shared, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	s := spec{n: 2, role: role, args: append([]string{shared}, phases...),
		env: []string{"GOMAXPROCS=" + strconv.Itoa(procs)}}
	if procs > 1 {
		s.flags = []string{"--bind-to", "none"}
	}
	return run(t, s, 0)
}

func milliseconds(s string) time.Duration {
	f, _ := strconv.ParseFloat(s, 64)
	return time.Duration(f*1000) * time.Microsecond
}

// report logs how long the messages of a phase took.
func (j *job) report(phase string) {
	j.t.Helper()
	m := j.find(`^` + phase + ` computing (\S+): quickest (\S+) slowest (\S+) all (.*)`)
	if len(m) != 3 || m[2][1] == "0s" {
		j.t.Fatalf("rank 1 has not reported three times on %s:\n%s", phase, j.out.String())
	}
	j.t.Logf("%s of %d MiB: with the peer in the library %s ms, with the peer computing for %s %s ms: delayed by %v",
		phase, large>>20, m[1][4], m[2][1], m[2][4], milliseconds(m[2][2])-milliseconds(m[1][2]))
}

// computesAfterWait: rank 1 waits, some time so long that all its threads sleep, and then computes until a goroutine
// that is ready has had the processor, as the library's own must have it.
func computesAfterWait(_ context.Context, w *mpi.Comm) error {
	for i := range 40 {
		if w.Rank() == 0 {
			time.Sleep(time.Duration(i) * time.Millisecond)
		}
		if err := mpi.Barrier(w); err != nil {
			return err
		}
		var other atomic.Bool
		go other.Store(true)
		x := uint64(1)
		for began := time.Now(); !other.Load(); x = spin(1000, x) {
			if time.Since(began) > endless {
				return fmt.Errorf("%v of computation (%d) kept the processor from a ready goroutine", endless, x)
			}
		}
	}
	return nil
}

// A rank that has slept in a wait and then computes does not keep its only processor from the library: Go's monitor has
// been woken.
func TestComputesAfterWait(t *testing.T) {
	t.Parallel()
	run(t, spec{n: 2, role: "computes after a wait", env: []string{"GOMAXPROCS=1"}}, 0)
}

func TestStrongProgress(t *testing.T) {
	for procs := 1; procs <= 2; procs++ {
		t.Run(fmt.Sprintf("GOMAXPROCS=%d", procs), func(t *testing.T) {
			// The times are not used but to tell a computation from none.
			j := progressJob(t, "progress", procs, "isend=1s", "irecv=1s", "both=1s")
			j.report("isend")
			j.report("irecv")
			if got := j.count(`^rank \d has computed`); got != 2 {
				t.Errorf("%d of 2 ranks have found both requests complete\n%s", got, j.out.String())
			}
		})
	}
}

// Where no rank can read its peer's memory, the ranks' own processors must move the data between turns of their
// computations; how fast depends on Go's scheduler. It arrives all the same.
func TestProgressWithoutReadv(t *testing.T) {
	j := progressJob(t, "progress without readv", 1, "isend=300ms", "irecv=300ms", "both=300ms")
	j.report("isend")
	j.report("irecv")
}
