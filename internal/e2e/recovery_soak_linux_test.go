package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/testkit/leak"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

func init() {
	role("deaths", dieOneByOne)
	role("replaced deaths", replaceEach)
}

const (
	leastLeft  = 2   // ranks of a job of deaths
	warmUp     = 30  // turns until a rank looks at what it has
	lastTurns  = 100 // that all make when no more is to die
	growthMost = 16 << 20

	// Go ends no thread, and has one more for each goroutine that was in a system call when the others were too.
	moreThreads = 10
)

// dieOneByOne is a job of which a rank dies every so often, until two are left. The others revoke, agree, shrink and go
// on. They compare what they have agreed, and each looks at its memory and its descriptors. os.Args: the seed, and how
// often a rank dies.
func dieOneByOne(_ context.Context, w *mpi.Comm) error {
	seed, err := strconv.ParseUint(os.Args[1], 10, 64)
	if err != nil {
		return err
	}
	every, err := time.ParseDuration(os.Args[2])
	if err != nil {
		return err
	}
	n, rnd := w.Size(), rand.New(rand.NewPCG(seed, 5))
	if err := linkAll(w); err != nil { // a link that is being made when its rank dies ends by its own timeout
		return err
	}
	for i, rank := range rnd.Perm(n)[leastLeft:] {
		after := time.Duration(i)*every + time.Duration(rnd.Int64N(int64(every)))
		if rank == w.Rank() {
			time.AfterFunc(after, die)
		}
	}
	o := outliver{w: w, c: w, knows: true}
	for done := 0; done < lastTurns; o.turn++ {
		if o.turn == warmUp {
			o.first = take()
		}
		agreed, err := o.goOn()
		if err != nil {
			return fmt.Errorf("seed %d, turn %d: %w", seed, o.turn, err)
		}
		if agreed && o.c.Size() == leastLeft {
			done++
		}
	}
	return o.last()
}

// linkAll has all ranks of c make a link to each other.
func linkAll(c *mpi.Comm) error {
	for other := range c.Size() {
		if _, err := mpi.Sendrecv(c, []byte{1}, other, tagGo, make([]byte, 1), other, tagGo); err != nil {
			return err
		}
	}
	return mpi.Barrier(c)
}

// replaceEach is a job of which a rank dies every so often, and is replaced. os.Args: until when, in Unix milliseconds.
// What a rank has at the end it compares with what it had when so many had been replaced. The last rank does not die.
func replaceEach(_ context.Context, w *mpi.Comm) error {
	until := time.UnixMilli(int64(mustAtoi(os.Args[1])))
	o := outliver{w: w, c: w, replaces: true, knows: !isNew()}
	if w.Rank() == w.Size()-1 {
		fmt.Printf("the last rank is process %d\n", os.Getpid())
	}
	for replaced, last := 0, w.Size(); ; {
		o.mayEnd = o.calm >= warmUp && time.Now().After(until)
		agreed, err := o.goOn()
		if err != nil {
			return fmt.Errorf("turn %d: %w", o.turn, err)
		}
		if o.calm++; !agreed {
			replaced, o.calm = replaced+1, 0
		}
		if o.calm == warmUp && replaced >= last && o.first.bytes == 0 {
			o.first = take()
		}
		if o.turn++; o.ended {
			return o.last()
		}
	}
}

// outliver is a rank of such a job.
type outliver struct {
	w, c     *mpi.Comm
	replaces bool   // it calls Replace, and not Shrink
	knows    bool   // what follows, which a rank in the place of a dead one is told in its first turn
	turn     int    // the same at all ranks
	calm     int    // turns that have gone well since a rank was replaced, likewise
	history  uint64 // what has been agreed, in all turns
	first    footprint
	mayEnd   bool // as this rank says
	ended    bool // as all say
}

// goOn makes a turn, and reports whether all ranks have agreed that it went well.
func (o *outliver) goOn() (agreed bool, err error) {
	failed := o.work()
	flags := ^uint32(0) // of a rank that does not know the turn
	if o.knows {
		flags = uint32(o.turn)<<2 | 3
	}
	if !o.mayEnd {
		flags &^= 2
	}
	if failed != nil {
		if !hasFailed(failed) && !(o.replaces && errors.Is(failed, mpi.ErrTimeout)) {
			return false, failed
		}
		if err := o.c.Revoke(); err != nil {
			return false, err
		}
		flags &^= 1
	}
	got, err := o.c.Agree(flags)
	if err != nil && !errors.Is(err, mpi.ErrPeerFailed) {
		return false, err
	}
	if o.knows && got>>2 != flags>>2 {
		return false, fmt.Errorf("all give %#x, and have agreed on %#x", flags>>2, got>>2)
	}
	o.note(fmt.Sprint(got, err == nil))
	if err == nil && got&1 == 1 {
		o.ended = got&2 != 0
		return true, nil
	}
	if o.replaces {
		return false, o.replace()
	}
	d, err := o.c.Shrink()
	if err != nil {
		return false, err
	}
	if o.c != o.w {
		if err := o.c.Free(); err != nil {
			return false, err
		}
	}
	o.c = d
	places := make([]int, d.Size())
	for i := range places {
		places[i] = i
	}
	if places, err = d.Group().Translate(places, o.w.Group()); err != nil {
		return false, err
	}
	o.note(fmt.Sprint(places))
	return false, nil
}

// replace has new ranks in the places of the dead ones. It calls Replace again if a process dies meanwhile.
func (o *outliver) replace() error {
	for {
		d, err := o.c.Replace()
		if err == nil {
			o.c = d
			return nil
		}
		if err := accepted(err); err != nil {
			return err
		}
	}
}

// note adds to the history.
func (o *outliver) note(what string) {
	h := fnv.New64a()
	fmt.Fprint(h, o.history, what)
	o.history = h.Sum64()
}

// work is what a turn does.
func (o *outliver) work() error {
	most := make([]uint64, 3)
	own := []uint64{o.history, ^o.history, uint64(o.turn)}
	if !o.knows {
		own = []uint64{0, 0, 0}
	}
	if err := mpi.Allreduce(o.c, own, most, mpi.Max); err != nil {
		return err
	}
	if !o.knows {
		o.history, o.turn, o.knows = most[0], int(most[2]), true
	}
	if most[0] != o.history || ^most[1] != o.history || most[2] != uint64(o.turn) {
		return fmt.Errorf("the ranks have agreed on different things: %#x here, from %#x to %#x", o.history, ^most[1],
			most[0])
	}
	if o.replaces && o.calm == warmUp-1 { // before ranks look at what they have
		return linkAll(o.c)
	}
	return []func() error{o.ring, o.duplicate, o.window, o.gather}[o.turn%4]()
}

// ring is long messages.
func (o *outliver) ring() error {
	const long = 20_000
	me, n := o.c.Rank(), o.c.Size()
	send, recv := make([]int, long), make([]int, long)
	for i := range send {
		send[i] = me + i*o.turn
	}
	last := (me + n - 1) % n
	if _, err := mpi.Sendrecv(o.c, send, (me+1)%n, tagData, recv, last, tagData); err != nil {
		return err
	}
	for i, v := range recv {
		if v != last+i*o.turn {
			return fmt.Errorf("element %d of rank %d is %d, not %d", i, last, v, last+i*o.turn)
		}
	}
	return nil
}

// duplicate makes a communicator and frees it.
func (o *outliver) duplicate() error {
	d, err := o.c.Dup()
	if err != nil {
		return err
	}
	if err = mpi.Barrier(d); err != nil {
		err = errors.Join(err, d.Revoke())
	}
	return errors.Join(err, d.Free())
}

// window makes a window and frees it.
func (o *outliver) window() error {
	me, n := o.c.Rank(), o.c.Size()
	win, err := mpi.WinAlloc[int](o.c, 1000)
	if err != nil {
		return err
	}
	err = win.Fence()
	if err == nil {
		err = win.Put([]int{o.turn + me}, (me+1)%n, 7)
	}
	if err == nil {
		err = win.Fence()
	}
	if want := o.turn + (me+n-1)%n; err == nil && win.Local()[7] != want {
		err = fmt.Errorf("the element is %d, not %d", win.Local()[7], want)
	}
	return errors.Join(err, win.Free())
}

// gather receives from any source.
func (o *outliver) gather() error {
	if o.c.Rank() != 0 {
		return mpi.Send(o.c, []int{o.turn}, 0, tagGo)
	}
	for range o.c.Size() - 1 {
		got := []int{0}
		if _, err := mpi.Recv(o.c, got, mpi.AnySource, tagGo); err != nil {
			return err
		}
		if got[0] != o.turn {
			return fmt.Errorf("a message of turn %d has come", got[0])
		}
	}
	return nil
}

// footprint is what a rank has of the machine.
type footprint struct {
	bytes, threads int
	leak.Snapshot
}

func take() footprint {
	debug.FreeOSMemory()
	text, _ := os.ReadFile("/proc/self/statm")
	var size, resident int
	fmt.Sscan(string(text), &size, &resident)
	threads, _ := os.ReadDir("/proc/self/task")
	return footprint{resident * os.Getpagesize(), len(threads), leak.Take()}
}

// last says what is left, and whether the rank has more than at first.
func (o *outliver) last() error {
	now := take()
	if o.first.bytes == 0 { // a rank that was started late
		o.first = now
	}
	if err := o.first.Check(20 * time.Second); err != nil {
		return err
	}
	if most := o.first.threads + moreThreads; now.threads > most {
		return fmt.Errorf("there were %d threads, and are %d after %d turns", o.first.threads, now.threads, o.turn)
	}
	if most := o.first.bytes + growthMost; now.bytes > most {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return fmt.Errorf("memory has grown from %d KiB to %d KiB in %d turns; %d KiB are in Go's heap", o.first.bytes>>10,
			now.bytes>>10, o.turn, m.HeapInuse>>10)
	}
	fmt.Printf("left: %d ranks, %d turns, history %x; rank %d: KiB %d to %d, descriptors %d to %d, goroutines %d to %d, "+
		"threads %d to %d\n", o.c.Size(), o.turn, o.history, o.w.Rank(), o.first.bytes>>10, now.bytes>>10, o.first.Files,
		now.Files, o.first.Goroutines, now.Goroutines, o.first.threads, now.threads)
	return nil
}

// A job goes on while its ranks die one by one, in one memory and over TCP: what the others have agreed is equal, and
// no memory or descriptor of a rank grows. GORUN_TEST_SOAK says for how long jobs are begun again, with a death each
// 5 s.
func TestDeathsOneByOne(t *testing.T) {
	t.Parallel()
	last, seed := soak(t)
	every := 300 * time.Millisecond
	if os.Getenv(soakVar) != "" {
		every = 5 * time.Second
	}
	for _, transports := range []string{"shm", "tcp"} {
		t.Run(transports, func(t *testing.T) {
			t.Parallel()
			seed := seed
			for begun := time.Now(); ; seed++ {
				runDeaths(t, seed, every, "GORUN_TRANSPORTS="+transports)
				if t.Failed() || testing.Short() || time.Since(begun) > last {
					return
				}
			}
		})
	}
}

func runDeaths(t *testing.T, seed uint64, every time.Duration, env string) {
	j := run(t, spec{n: 8, role: "deaths", flags: []string{"--enable-recovery"}, env: []string{env},
		args: []string{fmt.Sprint(seed), every.String()}}, 137)
	left := regexp.MustCompile(`(?m)^left: ([^;]*); (.*)$`).FindAllStringSubmatch(j.out.String(), -1)
	if len(left) != leastLeft {
		t.Fatalf("%s=%d: %d ranks say that they are left:\n%s\n%s", seedVar, seed, len(left), clip(j.out.String()),
			clip(j.err.String()))
	}
	for _, l := range left {
		if l[1] != left[0][1] || !strings.HasPrefix(l[1], fmt.Sprintf("%d ranks", leastLeft)) {
			t.Errorf("%s=%d: the ranks that are left differ:\n%s", seedVar, seed, j.out.String())
		}
	}
	t.Logf("%s=%d: %s; %s; %s", seedVar, seed, left[0][1], left[0][2], left[1][2])
}

// A job stays whole while its ranks die one after the other, at any moment, and are replaced, in one memory and over
// TCP. What the ranks have agreed is equal, and no memory, descriptor or thread of a rank or of gorun grows.
// GORUN_TEST_SOAK says for how long, with a death each 5 s.
func TestDeathsReplaced(t *testing.T) {
	t.Parallel()
	last, seed := soak(t)
	every := 300 * time.Millisecond
	switch {
	case os.Getenv(soakVar) != "":
		every = 5 * time.Second
	case !testing.Short(): // each rank is replaced, and looks at what it has before another one dies
		every, last = time.Second, 30*time.Second
	}
	for _, transports := range []string{"shm", "tcp"} {
		t.Run(transports, func(t *testing.T) {
			t.Parallel()
			replaceDeaths(t, last, every, rand.New(rand.NewPCG(seed, 8)), "GORUN_TRANSPORTS="+transports)
		})
	}
}

func replaceDeaths(t *testing.T, last, every time.Duration, rnd *rand.Rand, env string) {
	const n = 8
	proc.Gorun(t) // its build takes a while
	until := time.Now().Add(last)
	j := start(t, spec{n: n, role: "replaced deaths", args: []string{fmt.Sprint(until.UnixMilli())}, endless: true,
		env: []string{env, "GORUN_TIMEOUT=15s"}, flags: []string{"--respawn", "1000000"}})
	ended := make(chan struct{})
	go func() {
		j.end()
		close(ended)
	}()
	said := func(pattern string) func() bool { return func() bool { return j.count(pattern) > 0 } }
	proc.Eventually(t, "the last rank says which it is", said(`^the last rank is process \d+$`))
	lasting := mustAtoi(j.find(`^the last rank is process (\d+)$`)[0][1])
	victims := func() []proc.Info { // the oldest first
		all := slices.DeleteFunc(j.processes(), func(p proc.Info) bool { return p.PID == lasting || p.Exe() == j.launcher })
		slices.SortFunc(all, func(a, b proc.Info) int { return cmp.Compare(mustAtoi(a.Start), mustAtoi(b.Start)) })
		return all
	}
	deaths := 0
	var first, now hostFootprint
	for time.Now().Before(until) {
		select {
		case <-time.After(every/2 + time.Duration(rnd.Int64N(int64(every)))):
		case <-ended:
			until = time.Now()
			continue
		}
		if of := victims(); len(of) > 0 {
			i := 0
			if deaths >= n { // until then all but the last rank are to be replaced once
				i = rnd.IntN(len(of))
			}
			syscall.Kill(of[i].PID, syscall.SIGKILL)
			deaths++
		}
		if now = footprintOf(j.cmd.Process.Pid); deaths == 2*n {
			first = now
		}
	}
	select {
	case <-ended:
	case <-time.After(patience):
		t.Errorf("the job does not end; goroutines of its ranks below")
		j.dump()
	}
	j.wait(0)
	left := j.find(`^left: ([^;]*); (.*)$`)
	if len(left) != n {
		t.Fatalf("%d ranks say that they are left:\n%s\n%s", len(left), clip(j.out.String()), clip(j.err.String()))
	}
	for _, l := range left {
		if l[1] != left[0][1] {
			t.Errorf("the ranks that are left differ: %s; %s", l[1], left[0][1])
		}
	}
	if first.bytes > 0 && (now.files > first.files+moreFiles || now.threads > first.threads+moreThreads ||
		now.bytes > first.bytes+growthMost) {
		t.Errorf("gorun has grown from %+v to %+v", first, now)
	}
	t.Logf("%d deaths; gorun: %+v to %+v; %s", deaths, first, now, left[0][1])
	for _, l := range left {
		t.Log(l[2])
	}
}

// moreFiles are descriptors that gorun may have more of while it starts a rank.
const moreFiles = 20

// hostFootprint is what another process has of the machine.
type hostFootprint struct{ bytes, threads, files int }

func footprintOf(pid int) hostFootprint {
	info, _ := proc.Lookup(pid)
	threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	files, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return hostFootprint{int(info.Memory("VmRSS")), len(threads), len(files)}
}
