//go:build cuda && linux && cgo

package gpu

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/internal/testkit/cudakit"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// Two ranks that are processes make a round of all kinds of calls, and while they do one call of the driver fails at
// one of them. Each rank does what a program can do then: it looks at the error of each call, tells the other rank
// which of its messages have failed, and cancels what that rank will not answer.

// eachWays are the ways of a message between the two ranks.
var eachWays = map[string]func(*testing.T) []string{
	"IPC":    randomWays["IPC"],
	"VMM":    randomWays["VMM"],
	"staged": randomWays["staged"],
	"tcp":    randomWays["tcp"],
}

const (
	eachMostVar = "GORUN_TEST_EACH_MOST" // how many calls of each name fail at a rank
	eachPartVar = "GORUN_TEST_EACH_PART" // which third of the names, from 0 on; -1: all
	eachCopyVar = "GORUN_TEST_EACH_COPY" // the copy that ends the context of a rank
	roundTakes  = 60 * time.Second       // then it is not slow but stuck
	eachLong    = 300_001
	eachShort   = 333
)

// acquiring are the calls after whose failure nothing may be left, as the driver names them.
var acquiring = []string{
	"cuPointerGetAttributes", "cuPointerSetAttribute", "cuCtxPushCurrent", "cuMemCreate", "cuMemAlloc",
	"cuMemAddressReserve", "cuMemMap", "cuMemSetAccess", "cuMemExportToShareableHandle",
	"cuMemImportFromShareableHandle", "cuIpcGetMemHandle", "cuIpcOpenMemHandle", "cuMemHostRegister",
	"cuMemcpyAsync", "cuEventCreate", "cuEventRecord", "cuEventQuery", "cuStreamSynchronize", "cuLaunchHostFunc",
	"cuMemGetHandleForAddressRange", "cuFlushGPUDirectRDMAWrites",
}

// releasing are calls that leave what they should have given back.
var releasing = []string{"cuMemFree", "cuMemUnmap", "cuMemAddressFree", "cuMemRelease", "cuIpcCloseMemHandle",
	"cuMemHostUnregister", "cuEventDestroy"}

// elsewhere reports whether a call is not made in the way of this process.
func elsewhere(call string) bool {
	switch call {
	case "cuMemAlloc", "cuMemFree", "cuIpcGetMemHandle", "cuIpcOpenMemHandle", "cuIpcCloseMemHandle":
		return os.Getenv("SOFTCUDA_VMM") != "0"
	case "cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess", "cuMemExportToShareableHandle",
		"cuMemImportFromShareableHandle", "cuMemUnmap", "cuMemAddressFree", "cuMemRelease":
		return os.Getenv("SOFTCUDA_VMM") == "0"
	case "cuMemGetHandleForAddressRange", "cuFlushGPUDirectRDMAWrites":
		return os.Getenv("GORUN_TRANSPORTS") != "verbs"
	}
	return false
}

// mustTell are the calls in whose place there is no other way: an error has to come of them.
var mustTell = []string{"cuMemcpyAsync", "cuMemCreate", "cuMemAlloc"}

func init() {
	for role, body := range map[string]func(*mpi.Comm, *eachCall){"each call": eachCallFails, "context": contextEnds} {
		roles[role] = func() error {
			mpi.Main(func(_ context.Context, world *mpi.Comm) error {
				return checked(world, func(c *mpi.Comm) { body(c, newEachCall(c)) })
			})
			return nil
		}
	}
}

// eachCall is a rank of these programs.
type eachCall struct {
	*mpi.Comm
	peer   int
	device int
	tag    int     // of the next message
	errs   []error // of the round
	what   string  // for the reports
	page   []byte  // memory off the heap
	left   string  // what this process has between rounds
}

func newEachCall(c *mpi.Comm) *eachCall {
	page := ok(syscall.Mmap(-1, 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE))
	return &eachCall{Comm: c, peer: 1 - c.Rank(), device: c.Rank() % len(ok(Devices())), page: page}
}

// userCall calls a function of the software GPU.
func (e *eachCall) userCall(name string, args ...uint64) {
	d := ok(accel.InUse()).(interface {
		UserCall(device int, name string, args ...uint64) error
	})
	_ = d.UserCall(-1, name, args...) // what it returns may be a length
}

// order has the nth call of a name fail from now on; 0: none. It returns how many calls of the name that was ordered
// before there have been.
func (e *eachCall) order(call string, nth int) int {
	clear(e.page)
	copy(e.page[8:], call)
	at := addressOf(e.page)
	e.userCall("softcuda_fail", at+8, uint64(nth), at)
	return int(binary.NativeEndian.Uint64(e.page))
}

// kept is what this process has of the device, but for what the library keeps between calls.
func (e *eachCall) kept() (lines string) {
	clear(e.page)
	e.userCall("softcuda_left", addressOf(e.page), uint64(len(e.page)))
	text, _, _ := bytes.Cut(e.page, []byte{0})
	for line := range strings.Lines(string(text)) {
		switch name, _, _ := strings.Cut(line, " "); name {
		case "contexts", "streams", "events", "operations", "host_registrations":
		default:
			lines += line
		}
	}
	return lines
}

// note notes the error of a call, and reports whether err is nil.
func (e *eachCall) note(err error) bool {
	if err == nil {
		return true
	}
	var named *mpi.Error
	check(errors.As(err, &named), "the error is a %T: %v", err, err)
	check(slices.ContainsFunc([]error{mpi.ErrDevice, mpi.ErrNoMemory, mpi.ErrPeerFailed}, func(class error) bool {
		return errors.Is(err, class)
	}), "an error of another class: %v", err)
	e.errs = append(e.errs, err)
	return false
}

// again makes a call a second time if it fails, since a call of the driver fails once. It reports whether it has
// succeeded.
func (e *eachCall) again(call func() error) bool { return e.note(call()) || e.note(call()) }

// memory is device memory with this contents; nil: it could not be allocated, or not be filled.
func (e *eachCall) memory(host []byte) *Slice[byte] {
	var s Slice[byte]
	if !e.again(func() (err error) {
		s, err = Alloc[byte](e.device, len(host))
		return err
	}) {
		return nil
	}
	if !e.again(func() error { return s.CopyFrom(host) }) { // the context has ended; what the memory has is not host's
		e.free(&s)
		return nil
	}
	return &s
}

// free gives memory back. After an error of a window's Free messages may touch it for some time.
func (e *eachCall) free(all ...*Slice[byte]) {
	for _, s := range all {
		if s == nil {
			continue
		}
		err := s.Free()
		for ; errors.Is(err, mpi.ErrBuffer); err = s.Free() {
			time.Sleep(100 * time.Microsecond)
		}
		e.note(err)
	}
}

// holds checks that device memory has the contents of a call that has succeeded.
func (e *eachCall) holds(s Slice[byte], want []byte) {
	got := make([]byte, s.Len())
	if e.again(func() error { return s.CopyTo(got) }) {
		same(got, want)
	}
}

// What the ranks tell each other of a pair of messages.
const (
	sendFailed = 1 << iota
	recvFailed
	allOver
)

// exchange completes a send to the other rank and a receive from it, which have been started or have failed. It reports
// whether a message has come.
func (e *eachCall) exchange(s *mpi.Request, sendErr error, r *mpi.Request, recvErr error, persistent bool) (came bool) {
	news, word := e.tag, make([]byte, 1)
	e.tag++
	t := ok(mpi.Irecv(e.Comm, word, e.peer, news))
	tell := func(what byte) { must(mpi.Send(e.Comm, []byte{what}, e.peer, news)) }
	cancel := func(r *mpi.Request) {
		if r != nil {
			must(r.Cancel())
		}
	}
	ended := func(q **mpi.Request, err error, failed byte) {
		if *q != nil && persistent {
			must((*q).Free())
		}
		if *q = nil; !e.note(err) {
			tell(failed)
		}
	}
	if sendErr != nil {
		ended(&s, sendErr, sendFailed)
	}
	if recvErr != nil {
		ended(&r, recvErr, recvFailed)
	}
	told := false
	for {
		if s == nil && r == nil && !told {
			told = true
			tell(allOver)
		}
		if s == nil && r == nil && t == nil {
			return came
		}
		i, st, err := mpi.WaitAny(s, r, t)
		switch i {
		case 0:
			ended(&s, err, sendFailed)
		case 1:
			came = err == nil && !st.Cancelled
			ended(&r, err, recvFailed)
		case 2:
			must(err)
			if t = nil; word[0]&allOver != 0 {
				break
			}
			if word[0]&sendFailed != 0 {
				cancel(r)
			}
			if word[0]&recvFailed != 0 {
				cancel(s)
			}
			t = ok(mpi.Irecv(e.Comm, word, e.peer, news))
		default:
			panic(fmt.Errorf("WaitAny: %d, %v", i, err))
		}
	}
}

// messages are of n bytes, from and to each kind of memory.
func (e *eachCall) messages(n int) {
	sent, want := message(n, e.tag+e.Rank()), message(n, e.tag+e.peer)
	host := make([]byte, n)
	out, in := e.memory(sent), e.memory(host)
	defer e.free(out, in)
	if out == nil || in == nil {
		// The other rank hears of it.
		for range 5 {
			e.tag += 2
			e.exchange(nil, errNoBuffer, nil, errNoBuffer, false)
		}
		return
	}
	for _, start := range []struct {
		send, recv func(tag int) (*mpi.Request, error)
		toHost     bool
		persistent bool
	}{
		{func(tag int) (*mpi.Request, error) { return Isend(e.Comm, *out, e.peer, tag) },
			func(tag int) (*mpi.Request, error) { return Irecv(e.Comm, *in, e.peer, tag) }, false, false},
		{func(tag int) (*mpi.Request, error) { return Issend(e.Comm, out.On(0), e.peer, tag) },
			func(tag int) (*mpi.Request, error) { return mpi.Irecv(e.Comm, host, e.peer, tag) }, true, false},
		{func(tag int) (*mpi.Request, error) { return mpi.Isend(e.Comm, sent, e.peer, tag) },
			func(tag int) (*mpi.Request, error) { return Irecv(e.Comm, in.On(0), e.peer, tag) }, false, false},
		{func(tag int) (*mpi.Request, error) { return begun(SendInit(e.Comm, *out, e.peer, tag)) },
			func(tag int) (*mpi.Request, error) { return begun(RecvInit(e.Comm, *in, e.peer, tag)) }, false, true},
		{func(tag int) (*mpi.Request, error) { return IsendLayout(e.Comm, *out, halves(n), e.peer, tag) },
			func(tag int) (*mpi.Request, error) { return IrecvLayout(e.Comm, *in, halves(n), e.peer, tag) }, false, false},
	} {
		clear(host)
		e.again(func() error { return in.CopyFrom(host) })
		tag := e.tag
		e.tag += 2
		r, recvErr := start.recv(tag)
		s, sendErr := start.send(tag)
		switch came := e.exchange(s, sendErr, r, recvErr, start.persistent); {
		case came && start.toHost:
			same(host, want)
		case came:
			e.holds(*in, want)
		}
	}
}

var errNoBuffer = &mpi.Error{Op: "test", Class: mpi.ErrNoMemory, Err: errors.New("there is no buffer")}

// halves is a layout of n bytes in two runs.
func halves(n int) mpi.Layout {
	return mpi.Indexed([]int{n - n/2, n / 2}, []int{n / 2, 0}, mpi.Of[byte]())
}

func begun(r *mpi.Request, err error) (*mpi.Request, error) {
	if err == nil {
		if err = r.Start(); err != nil {
			must(r.Free())
			r = nil
		}
	}
	return r, err
}

// collectives are calls with n bytes of each rank.
func (e *eachCall) collectives(n int) {
	mine, theirs := message(n, e.tag+e.Rank()), message(n, e.tag+e.peer)
	e.tag += 2
	a, b := e.memory(mine), e.memory(make([]byte, 2*n))
	defer e.free(a, b)
	if a == nil || b == nil {
		none := &allocation{bad: errNoBuffer}
		a, b = &Slice[byte]{of: none, n: n}, &Slice[byte]{of: none, n: 2 * n}
	}
	xor, all := make([]byte, n), slices.Concat(mine, theirs)
	for i := range xor {
		xor[i] = mine[i] ^ theirs[i]
	}
	if e.Rank() == 1 {
		all = slices.Concat(theirs, mine)
	}
	if e.note(Allreduce(e.Comm, *a, b.Slice(0, n), mpi.BitXor)) {
		e.holds(b.Slice(0, n), xor)
	}
	if e.note(waited(Iallgather(e.Comm, *a, *b))) {
		e.holds(*b, all)
	}
	root := *a
	if e.Rank() == 0 {
		root = b.Slice(n, 2*n)
	}
	if e.note(Bcast(e.Comm, root, 1)) && e.Rank() == 0 {
		e.holds(root, theirs)
	}
	e.note(waited(Ireduce(e.Comm, *a, b.Slice(0, n), mpi.BitXor, 0)))
}

// window has operations of n bytes.
func (e *eachCall) window(n int) {
	mine, theirs := message(n, e.tag+e.Rank()), message(n, e.tag+e.peer)
	part, half := message(n/2, e.tag+2+e.Rank()), make([]byte, n-n/2)
	wants := slices.Concat(message(n/2, e.tag+2+e.peer), theirs[n/2:])
	e.tag += 4
	mem, buf := e.memory(wants), e.memory(mine)
	all := []*Slice[byte]{mem, buf} // which stay where a byte is wrong: the window has them
	if mem == nil || buf == nil {
		mem = &Slice[byte]{of: &allocation{bad: errNoBuffer}, n: n}
	}
	before := len(e.errs)
	w, err := WinCreate(e.Comm, *mem)
	if !e.note(err) {
		e.free(all...)
		return
	}
	// Where writes of an adapter need a flush, softcuda's adapters do not see what other processes write by a mapping.
	apart := os.Getenv("SOFTCUDA_ORDERING") == "0"
	// holds checks what there must be if no rank has had an error here.
	holds := func(s Slice[byte], want []byte) {
		if ok(mpi.AllreduceValue(e.Comm, len(e.errs)-before, mpi.Sum)) == 0 && !apart {
			e.holds(s, want)
		}
		must(mpi.Barrier(e.Comm))
	}
	e.note(w.Fence())
	e.note(Put(w, *buf, e.peer, 0))
	e.note(w.Fence())
	holds(*mem, theirs)
	e.note(buf.CopyFrom(theirs))
	e.note(Get(w, buf.On(0), e.peer, 0))
	e.note(w.Fence())
	holds(*buf, mine)
	e.note(Put(w, part, e.peer, 0))
	e.note(Get(w, half, e.peer, int64(n/2)))
	e.note(w.Fence())
	holds(*mem, wants)
	if ok(mpi.AllreduceValue(e.Comm, len(e.errs)-before, mpi.Sum)) == 0 && !apart {
		same(half, mine[n/2:])
	}
	if e.Rank() == 0 {
		e.note(w.Lock(1, mpi.Exclusive))
		e.note(Put(w, *buf, 1, 0))
		e.note(w.Flush(1))
		e.note(Get(w, *buf, 1, 0))
		e.note(w.Unlock(1))
	}
	if e.Rank() == 1 {
		wants = theirs
	}
	holds(*mem, wants)
	e.note(w.Free())
	e.free(all...)
}

// round makes all calls, and returns what has failed.
func (e *eachCall) round() (errs []error) {
	defer time.AfterFunc(roundTakes, func() {
		fmt.Fprintf(os.Stderr, "rank %d: %s: stuck\n", e.Rank(), e.what)
		_ = syscall.Kill(os.Getpid(), syscall.SIGQUIT)
	}).Stop()
	e.errs = nil
	for _, n := range []int{eachShort, eachLong} {
		e.messages(n)
		e.collectives(n)
		e.window(n)
	}
	drain()
	must(mpi.Barrier(e.Comm))
	return e.errs
}

// eachCallFails has the calls of each name fail, one in each round.
func eachCallFails(c *mpi.Comm, e *eachCall) {
	most, part := ok(strconv.Atoi(os.Getenv(eachMostVar))), ok(strconv.Atoi(os.Getenv(eachPartVar)))
	clean := func(after string) {
		e.what = after
		errs := e.round()
		check(len(errs) == 0, "%s: %v", after, errs)
	}
	clean("the first round")
	clean("the second round")
	e.left = e.kept()
	check(e.left == "", "after a round there are\n%s", e.left)
	rounds, failed := 0, 0
	for i, call := range slices.Concat(acquiring, releasing) {
		if elsewhere(call) || part >= 0 && i%3 != part {
			continue
		}
		var nths [2][]int
		// In the short form the calls are not counted: there may not be so many.
		nths[i&1] = []int{1 + i/2%4}
		if slices.Contains([]string{"cuMemcpyAsync", "cuEventRecord"}, call) {
			nths[1-i&1] = []int{24, 27} // in collective calls
		}
		if most > 1 {
			e.order(call, 1<<30)
			clean("the round that counts " + call)
			calls := ok(mpi.AllgatherValues(c, e.order("", 0)))
			nths = [2][]int{spread(calls[0], most), spread(calls[1], most)}
			if c.Rank() == 0 {
				fmt.Println(call, "is made", calls, "times in a round")
			}
		}
		for bad := range 2 {
			for _, nth := range nths[bad] {
				e.what = fmt.Sprintf("%s %d fails at rank %d", call, nth, bad)
				must(mpi.Barrier(c))
				if c.Rank() == bad {
					e.order(call, nth)
				}
				errs := e.round()
				rounds++
				seen := nth
				if c.Rank() == bad {
					seen = e.order("", 0)
				}
				happened := ok(mpi.BcastValue(c, seen >= nth, bad))
				n := ok(mpi.AllreduceValue(c, len(errs), mpi.Sum))
				if happened && n > 0 {
					failed++
				}
				check(n == 0 || happened, "%s, but did not: %v", e.what, errs)
				check(n > 0 || !happened || !slices.Contains(mustTell, call), "%s: no rank has an error", e.what)
				if left := e.kept(); left != e.left {
					check(slices.Contains(releasing, call) || call == "cuCtxPushCurrent" && slices.ContainsFunc(errs, ofFree),
						"%s: %v: there are then\n%s", e.what, errs, left)
					e.left = left
				}
			}
		}
	}
	clean("the last round")
	if c.Rank() == 0 {
		fmt.Println("all is well,", rounds, "rounds, errors in", failed)
	}
}

// ofFree reports whether Free has said that it could not free memory.
func ofFree(err error) bool { return strings.HasPrefix(err.Error(), "mpi: gpu.Free: ") }

// spread is up to most of the numbers 1 … n, with the first and the last.
func spread(n, most int) (all []int) {
	for i := range min(n, most) {
		at := 1 + i
		if n > most {
			at = 1 + i*(n-1)/(most-1)
		}
		all = append(all, at)
	}
	return all
}

// eachJob runs two ranks in a role.
func eachJob(t *testing.T, role string, env ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	again := proc.Again()
	cmd := exec.CommandContext(ctx, proc.Gorun(t), append([]string{"-n", "2"}, again.Args...)...)
	cmd.Env = append(append(cudakit.Env(t, "SOFTCUDA_DEVICES=2"), env...), proc.RoleVar+"="+role)
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("all is well")) {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// Each call of the driver fails once in a program of two ranks, in each way of its messages: each call of the program
// ends with its result or an error at both ranks, neither waits for ever, the next round succeeds, and no memory,
// mapping or handle is left.
func TestEachCallOfAProgramFails(t *testing.T) {
	for i, name := range slices.Sorted(maps.Keys(eachWays)) {
		t.Run(name, func(t *testing.T) {
			most, part := 16, -1
			if testing.Short() {
				most = 1
				if name != "IPC" && name != "VMM" { // which have calls that no other way has
					part = i % 3
				}
			}
			t.Log(eachJob(t, "each call", append(eachWays[name](t), fmt.Sprint(eachMostVar, "=", most),
				fmt.Sprint(eachPartVar, "=", part), fmt.Sprint("GORUN_COLL_CHECK=", i&1))...))
		})
	}
}

// contextEnds has a copy end the context of a rank, whose calls fail from then on.
func contextEnds(c *mpi.Comm, e *eachCall) {
	nth := ok(strconv.Atoi(os.Getenv(eachCopyVar)))
	e.what = fmt.Sprintf("copy %d ends the context", nth)
	if c.Rank() == nth&1 {
		e.order("copy", nth)
	}
	errs := e.round()
	more := e.round()
	seen := ok(mpi.AllreduceValue(c, e.order("", 0), mpi.Max))
	check(seen < nth || c.Rank() != nth&1 || len(errs)+len(more) > 0, "no error")
	if c.Rank() == 0 {
		fmt.Println("all is well,", seen, "copies")
	}
}

// A copy that fails ends the context of a rank, as on a device: from then on each call of the driver fails there. All
// calls of the program end at both ranks nevertheless.
func TestContextEndsInAProgram(t *testing.T) {
	copies := []int{1, 2, 6, 20, 33, 54}
	if testing.Short() {
		copies = []int{7}
	}
	for name, env := range eachWays {
		for _, nth := range copies {
			t.Run(fmt.Sprint(name, "/", nth), func(t *testing.T) {
				t.Log(eachJob(t, "context", append(env(t), fmt.Sprint(eachCopyVar, "=", nth))...))
			})
		}
	}
}
