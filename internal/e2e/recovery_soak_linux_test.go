package e2e

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/testkit/leak"
)

func init() { role("deaths", deaths) }

const (
	leastLeft  = 2   // ranks of a job of deaths
	warmUp     = 30  // turns until a rank looks at what it has
	lastTurns  = 100 // that all make when no more is to die
	growthMost = 16 << 20
)

// deaths is a job of which a rank dies every so often, until two are left. The others revoke, agree, shrink and go on.
// They compare what they have agreed, and each looks at its memory and its descriptors. os.Args: the seed, and how
// often a rank dies.
func deaths(_ context.Context, w *mpi.Comm) error {
	seed, err := strconv.ParseUint(os.Args[1], 10, 64)
	if err != nil {
		return err
	}
	every, err := time.ParseDuration(os.Args[2])
	if err != nil {
		return err
	}
	n, rnd := w.Size(), rand.New(rand.NewPCG(seed, 5))
	for other := range n { // a link to each: one that is being made when its rank dies ends by its own timeout
		if _, err := mpi.Sendrecv(w, []byte{1}, other, tagGo, make([]byte, 1), other, tagGo); err != nil {
			return err
		}
	}
	if err := mpi.Barrier(w); err != nil {
		return err
	}
	for i, rank := range rnd.Perm(n)[leastLeft:] {
		after := time.Duration(i)*every + time.Duration(rnd.Int64N(int64(every)))
		if rank == w.Rank() {
			time.AfterFunc(after, die)
		}
	}
	o := outliver{w: w, c: w}
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

// outliver is a rank of such a job.
type outliver struct {
	w, c    *mpi.Comm
	turn    int    // the same at all ranks
	history uint64 // what has been agreed, in all turns
	first   footprint
}

// goOn makes a turn, and reports whether all ranks have agreed that it went well.
func (o *outliver) goOn() (agreed bool, err error) {
	flags := uint32(o.turn)<<1 | 1
	if failed := o.work(); failed != nil {
		if !errors.Is(failed, mpi.ErrPeerFailed) && !errors.Is(failed, mpi.ErrRevoked) {
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
	if got>>1 != flags>>1 {
		return false, fmt.Errorf("all give %#x, and have agreed on %#x", flags>>1, got>>1)
	}
	o.note(fmt.Sprint(got, err == nil))
	if err == nil && got&1 == 1 {
		return true, nil
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

// note adds to the history.
func (o *outliver) note(what string) {
	h := fnv.New64a()
	fmt.Fprint(h, o.history, what)
	o.history = h.Sum64()
}

// work is what a turn does.
func (o *outliver) work() error {
	most := make([]uint64, 2)
	if err := mpi.Allreduce(o.c, []uint64{o.history, ^o.history}, most, mpi.Max); err != nil {
		return err
	}
	if most[0] != o.history || ^most[1] != o.history {
		return fmt.Errorf("the ranks have agreed on different things: %#x here, from %#x to %#x", o.history, ^most[1],
			most[0])
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
	bytes int // of memory
	leak.Snapshot
}

func take() footprint {
	debug.FreeOSMemory()
	text, _ := os.ReadFile("/proc/self/statm")
	var size, resident int
	fmt.Sscan(string(text), &size, &resident)
	return footprint{resident * os.Getpagesize(), leak.Take()}
}

// last says what is left, and whether the rank has more than at first.
func (o *outliver) last() error {
	if err := o.first.Check(20 * time.Second); err != nil {
		return err
	}
	now := take()
	if most := o.first.bytes + growthMost; now.bytes > most {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return fmt.Errorf("memory has grown from %d KiB to %d KiB in %d turns; %d KiB are in Go's heap", o.first.bytes>>10,
			now.bytes>>10, o.turn, m.HeapInuse>>10)
	}
	fmt.Printf("left: %d ranks, %d turns, history %x; rank %d: KiB %d to %d, descriptors %d to %d, goroutines %d to %d\n",
		o.c.Size(), o.turn, o.history, o.w.Rank(), o.first.bytes>>10, now.bytes>>10, o.first.Files, now.Files,
		o.first.Goroutines, now.Goroutines)
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
			for begun := time.Now(); ; seed++ {
				dieOneByOne(t, seed, every, "GORUN_TRANSPORTS="+transports)
				if t.Failed() || testing.Short() || time.Since(begun) > last {
					return
				}
			}
		})
	}
}

func dieOneByOne(t *testing.T, seed uint64, every time.Duration, env string) {
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
