package mpi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/looptag"
)

// Every mistake of a caller, with every verb that can make it. The call does not panic or hang, no message is sent,
// received or lost, and the error says what was wrong.

// typed is every call that takes a communicator and an element type, so that each mistake can be made with each.
// to and tag are the destination's or the source's.
func typed[T any]() map[string]func(c *Comm, to, tag int) error {
	buf := make([]T, 3)
	wait := func(r *Request, err error) error {
		if err != nil {
			return err
		}
		return r.Free() // never reached by a bad call
	}
	return map[string]func(c *Comm, to, tag int) error{
		"Send":                 func(c *Comm, to, tag int) error { return Send(c, buf, to, tag) },
		"Ssend":                func(c *Comm, to, tag int) error { return Ssend(c, buf, to, tag) },
		"Rsend":                func(c *Comm, to, tag int) error { return Rsend(c, buf, to, tag) },
		"Bsend":                func(c *Comm, to, tag int) error { return Bsend(c, buf, to, tag) },
		"Isend":                func(c *Comm, to, tag int) error { return wait(Isend(c, buf, to, tag)) },
		"Issend":               func(c *Comm, to, tag int) error { return wait(Issend(c, buf, to, tag)) },
		"Irsend":               func(c *Comm, to, tag int) error { return wait(Irsend(c, buf, to, tag)) },
		"Ibsend":               func(c *Comm, to, tag int) error { return wait(Ibsend(c, buf, to, tag)) },
		"SendInit":             func(c *Comm, to, tag int) error { return wait(SendInit(c, buf, to, tag)) },
		"SsendInit":            func(c *Comm, to, tag int) error { return wait(SsendInit(c, buf, to, tag)) },
		"RsendInit":            func(c *Comm, to, tag int) error { return wait(RsendInit(c, buf, to, tag)) },
		"BsendInit":            func(c *Comm, to, tag int) error { return wait(BsendInit(c, buf, to, tag)) },
		"SendValue":            func(c *Comm, to, tag int) error { return SendValue(c, buf[0], to, tag) },
		"Recv":                 func(c *Comm, to, tag int) error { return second(Recv(c, buf, to, tag)) },
		"RecvAlloc":            func(c *Comm, to, tag int) error { _, _, err := RecvAlloc[T](c, to, tag); return err },
		"RecvValue":            func(c *Comm, to, tag int) error { _, _, err := RecvValue[T](c, to, tag); return err },
		"Irecv":                func(c *Comm, to, tag int) error { return wait(Irecv(c, buf, to, tag)) },
		"RecvInit":             func(c *Comm, to, tag int) error { return wait(RecvInit(c, buf, to, tag)) },
		"Sendrecv dest":        func(c *Comm, to, tag int) error { return second(Sendrecv(c, buf, to, tag, buf, 0, 0)) },
		"Sendrecv source":      func(c *Comm, to, tag int) error { return second(Sendrecv(c, buf, 0, 0, buf, to, tag)) },
		"SendrecvReplace dest": func(c *Comm, to, tag int) error { return second(SendrecvReplace(c, buf, to, tag, 0, 0)) },
		"SendrecvReplace source": func(c *Comm, to, tag int) error {
			return second(SendrecvReplace(c, buf, 0, 0, to, tag))
		},
		"Isendrecv dest":   func(c *Comm, to, tag int) error { return wait(Isendrecv(c, buf, to, tag, buf, 0, 0)) },
		"Isendrecv source": func(c *Comm, to, tag int) error { return wait(Isendrecv(c, buf, 0, 0, buf, to, tag)) },
	}
}

// untyped is every call that takes a rank and a tag but no element type.
func untyped() map[string]func(c *Comm, to, tag int) error {
	return map[string]func(c *Comm, to, tag int) error{
		"SendObject": func(c *Comm, to, tag int) error { return SendObject(c, "x", to, tag) },
		"RecvObject": func(c *Comm, to, tag int) error { _, _, err := RecvObject[string](c, to, tag); return err },
		"Probe":      func(c *Comm, to, tag int) error { return second(Probe(c, to, tag)) },
		"Iprobe":     func(c *Comm, to, tag int) error { _, _, err := Iprobe(c, to, tag); return err },
		"Mprobe":     func(c *Comm, to, tag int) error { _, _, err := Mprobe(c, to, tag); return err },
		"Improbe":    func(c *Comm, to, tag int) error { _, _, _, err := Improbe(c, to, tag); return err },
	}
}

// onWhole is every call on a communicator that takes neither.
func onWhole() map[string]func(c *Comm) error {
	return map[string]func(c *Comm) error{
		"Barrier": Barrier,
		"Dup":     func(c *Comm) error { return second(c.Dup()) },
		"Free":    func(c *Comm) error { return c.Free() },
	}
}

// receives reports whether the named call takes wildcards where its rank and tag go.
func receives(verb string) bool {
	op, end, two := strings.Cut(verb, " ")
	return two && end == "source" || !two && (strings.Contains(op, "ecv") || strings.Contains(op, "robe"))
}

// every calls f with each verb that takes a rank and a tag.
func every(f func(verb string, call func(c *Comm, to, tag int) error)) {
	for _, m := range []map[string]func(*Comm, int, int) error{typed[int](), untyped()} {
		for verb, call := range m {
			f(verb, call)
		}
	}
}

// checkError checks an error's class, operation, peer and tag.
func checkError(verb string, err, class error, peer, tag int) {
	var e *Error
	check(errors.As(err, &e), "%s: the error is a %T: %v", verb, err, err)
	check(errors.Is(err, class), "%s: the error is %v, not of class %v", verb, err, class)
	op, _, _ := strings.Cut(verb, " ")
	op = map[string]string{"SendValue": "Send", "RecvValue": "Recv"}[op]
	if op == "" {
		op, _, _ = strings.Cut(verb, " ")
	}
	check(e.Op == op && e.Peer == peer && e.Tag == tag, "%s: the error has Op %q, Peer %d, Tag %d; want %d, %d",
		verb, e.Op, e.Peer, e.Tag, peer, tag)
	check(strings.HasPrefix(err.Error(), "mpi: "+op), "%s: %v", verb, err)
	if from := strings.HasPrefix(err.Error(), "mpi: "+op+" from "); class == ErrRank || class == ErrTag {
		check(from == receives(verb), "%s: from or to? %v", verb, err)
	}
}

// quiet runs a body as the ranks of a world of 3 and checks that it has sent nothing and left nothing.
func quiet(t *testing.T, body func(w *Comm)) {
	over(t)(3, func(w *Comm) {
		body(w)
		s := w.Stats()
		check(s.EagerSent+s.RendezvousSent == 0 && s.Posted == 0 && s.Unexpected == 0,
			"a bad call has done something: %+v", s)
	})
}

func TestRankOutOfRange(t *testing.T) {
	quiet(t, func(w *Comm) {
		every(func(verb string, call func(c *Comm, to, tag int) error) {
			for _, rank := range []int{3, 4, -3, -4, 1 << 20, 1 << 40, -1 << 63, 1<<63 - 1} {
				checkError(verb, call(w, rank, 1), ErrRank, rank, Undefined)
			}
			if !receives(verb) {
				checkError(verb, call(w, AnySource, 1), ErrRank, AnySource, Undefined)
			}
		})
	})
}

func TestTagOutOfRange(t *testing.T) {
	quiet(t, func(w *Comm) {
		every(func(verb string, call func(c *Comm, to, tag int) error) {
			for _, tag := range []int{-2, -3, MaxTag + 1, 1 << 40, -1 << 63} {
				checkError(verb, call(w, 1, tag), ErrTag, 1, Undefined)
				checkError(verb, call(w, ProcNull, tag), ErrTag, ProcNull, Undefined)
			}
			if !receives(verb) {
				checkError(verb, call(w, 1, AnyTag), ErrTag, 1, Undefined)
			}
		})
	})
}

// The largest tag arrives over every device, also at a receive of any; the next one is an error that names it.
func TestLargestTag(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			peer, got := 1-w.Rank(), make([]int, 1)
			for _, tag := range []int{MaxTag, AnyTag} {
				r := ok(Isend(w, []int{tag}, peer, MaxTag))
				st := ok(Recv(w, got, peer, tag))
				must(second(r.Wait()))
				check(st.Tag == MaxTag && got[0] == tag, "%+v, %v", st, got)
			}
			err := Send(w, got, peer, MaxTag+1)
			is(err, ErrTag)
			check(strings.Contains(err.Error(), "0 to 2147483647"), "%v", err)
		})
	})
}

// fewTags is a device that has room for tags of 20 bits.
type fewTags struct {
	transport.Device
	transport.Tagged
	facts transport.Facts
}

func (d *fewTags) Facts() *transport.Facts { return &d.facts }
func (d *fewTags) Limits() transport.TaggedLimits {
	l := d.Tagged.Limits()
	l.Tag = 1<<20 - 1
	return l
}

// A tag for which a device has no room is ErrTag, and the error names the device's limit.
func TestTagOfTheDevice(t *testing.T) {
	var fabric *looptag.Fabric
	over(t, withDevices(func(rank int, d transport.Device) transport.Device {
		d.Close()
		if rank == 0 {
			fabric = looptag.New(5)
		}
		below := fabric.Device(rank)
		few := &fewTags{Device: below, Tagged: below.Facts().Tagged, facts: *below.Facts()}
		few.facts.Tagged = few
		return few
	}))(2, func(w *Comm) {
		peer, got := 1-w.Rank(), make([]int, 1)
		_, err := Sendrecv(w, []int{1}, peer, 1<<20-1, got, peer, 1<<20-1)
		must(err)
		for verb, call := range map[string]func() error{
			"Send":  func() error { return Send(w, got, peer, 1<<20) },
			"Ssend": func() error { return Ssend(w, got, peer, 1<<20) },
			"Recv":  func() error { return second(Recv(w, got, peer, 1<<20)) },
		} {
			err := call()
			checkError(verb, err, ErrTag, peer, 1<<20)
			check(strings.Contains(err.Error(), "0 to 1048575"), "%v", err)
		}
	})
}

type (
	inner  struct{ Z *int }
	nested struct {
		A int
		B [2]struct{ C inner }
	}
)

func TestTypesWithPointers(t *testing.T) {
	quiet(t, func(w *Comm) {
		badType[string](w, "string holds a pointer")
		badType[[]int](w, "[]int holds")
		badType[map[string]int](w, "map[string]int holds")
		badType[*int](w, "*int holds")
		badType[any](w, "interface {} holds")
		badType[error](w, "error holds")
		badType[chan int](w, "chan int holds")
		badType[func()](w, "func() holds")
		badType[unsafe.Pointer](w, "unsafe.Pointer is an unsafe.Pointer")
		badType[[4]string](w, "[4]string[…] is a string, which holds")
		badType[nested](w, "mpi.nested.B[…].C.Z is a *int, which holds")
	})
}

// badType checks each verb with a T, and that the error names the part of T.
func badType[T any](w *Comm, part string) {
	for verb, call := range typed[T]() {
		err := call(w, 0, 1)
		peer, tag := 0, 1
		var e *Error
		if errors.As(err, &e) && strings.Contains(verb, " ") {
			peer, tag = e.Peer, e.Tag // of the half that is checked first
		}
		checkError(verb, err, ErrType, peer, tag)
		check(strings.Contains(err.Error(), part), "%s: %v does not say %q", verb, err, part)
	}
	is(second(Alloc[T](1)), ErrType)
	m, _, err := Mprobe(w, ProcNull, 0)
	must(err)
	is(second(Mrecv(m, []T{})), ErrType)
	is(second(Imrecv(m, []T{})), ErrType)
}

func TestNilAndEmptyBuffers(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(1, func(w *Comm) {
			for _, buf := range [][]int{nil, {}} {
				r := ok(Irecv(w, buf, 0, 1))
				must(Ssend(w, buf, 0, 1))
				same(ok(r.Wait()), Status{Tag: 1})
				same(ok(SendrecvReplace(w, buf, 0, 1, 0, 1)), Status{Tag: 1})
				must(Send(w, buf, 0, 1))
				same(ok(Recv(w, buf, 0, 1)), Status{Tag: 1})
				must(Send(w, []int{1}, 0, 1))
				is(second(Recv(w, buf, 0, 1)), ErrTruncate)
			}
			must(SendObject(w, 5, 0, 1))
			is(SendObject(w, nil, 0, 1), ErrType)
			v, _, err := RecvObject[int](w, 0, 1)
			check(v == 5 && err == nil, "%v %v", v, err)
		})
	})
}

// checkUnusable checks that a call fails because of its communicator, and names the rank and tag that are checked
// first.
func checkUnusable(verb string, call func(c *Comm, to, tag int) error, c *Comm, to int) {
	tag := 5
	err := call(c, to, tag)
	if strings.HasSuffix(verb, " source") {
		to, tag = 0, 0 // those of the other half, which is checked first
	}
	checkError(verb, err, ErrComm, to, tag)
}

func TestNilCommunicator(t *testing.T) {
	defer watchdog(t)()
	for _, c := range []*Comm{nil, {}, (*Comm)(nil).WithContext(t.Context()), (&Comm{}).WithContext(t.Context())} {
		every(func(verb string, call func(c *Comm, to, tag int) error) {
			checkUnusable(verb, call, c, 0)
		})
		for verb, call := range onWhole() {
			checkError(verb, call(c), ErrComm, Undefined, Undefined)
		}
		if c.Stats() != (Stats{}) {
			t.Error("a nil communicator has counted")
		}
		if c.Rank() != Undefined || c.Size() != 0 || c.Name() != "" {
			t.Errorf("a nil communicator has rank %d of %d and is called %q", c.Rank(), c.Size(), c.Name())
		}
	}
}

func TestFreedCommunicator(t *testing.T) {
	over(t)(2, func(w *Comm) {
		d := ok(w.Dup())
		r := ok(RecvInit(d, []int{0}, 0, 1))
		must(d.Free())
		for _, c := range []*Comm{d, d.WithContext(context.Background()), d.WithContext(t.Context())} {
			every(func(verb string, call func(c *Comm, to, tag int) error) {
				checkUnusable(verb, call, c, 0)
				checkUnusable(verb, call, c, ProcNull)
			})
			for verb, call := range onWhole() {
				checkError(verb, call(c), ErrComm, Undefined, Undefined)
			}
		}
		is(r.Start(), ErrComm)
		must(Barrier(w)) // the parent works
	})
}

// A request that is waited for a second time is free by then, or another operation has it, which must not be harmed.
func TestRequestWaitedTwice(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			peer := 1 - w.Rank()
			buf := make([]int, 1)
			old := []*Request{ok(Irecv(w, buf, peer, 1)), ok(Isend(w, []int{1}, peer, 1)), ok(Irecv(w, buf, ProcNull, 0))}
			must(WaitAll(old...))
			misuse := func() {
				for _, r := range old {
					is(second(r.Wait()), ErrRequest)
					_, _, err := r.Test()
					is(err, ErrRequest)
					is(r.Cancel(), ErrRequest)
					<-r.Done()
					is(r.Start(), ErrRequest)
				}
				is(WaitAll(old...), ErrRequest)
				_, err := WaitAllStatus(old...)
				is(err, ErrRequest)
				_, _, err = WaitAny(old...)
				is(err, ErrRequest)
				_, _, err = WaitSome(old...)
				is(err, ErrRequest)
				is(second(TestAll(old...)), ErrRequest)
				_, _, _, err = TestAny(old...)
				is(err, ErrRequest)
				_, _, err = TestSome(old...)
				is(err, ErrRequest)
			}
			misuse()
			for i := range 14 { // no more, or they are reused
				in, out := make([]int, 1), []int{i}
				r, s := ok(Irecv(w, in, peer, 2)), ok(Isend(w, out, peer, 2))
				misuse()
				must(WaitAll(r, s))
				same(in[0], i)
			}
			// Until the requests are reused; Done of a finished one must not stay with the next holder.
			for i := range 100 {
				in := make([]int, 1)
				r, s := ok(Irecv(w, in, peer, 2)), ok(Isend(w, []int{i}, peer, 2))
				must(WaitAll(r, s))
				<-r.Done()
				<-s.Done()
				same(in[0], i)
			}
		})
	})
}

func TestRequestThatIsNone(t *testing.T) {
	defer watchdog(t)()
	for _, r := range []*Request{nil, {}} {
		for verb, err := range map[string]error{
			"Wait": second(r.Wait()), "Cancel": r.Cancel(), "Start": r.Start(), "Free": r.Free(),
			"Test": func() error { _, _, err := r.Test(); return err }(),
		} {
			func() { checkError(verb, err, ErrRequest, Undefined, Undefined) }()
		}
		<-r.Done()
	}
	is(WaitAll(nil, &Request{}), ErrRequest)
	is(StartAll(nil), ErrRequest)
	var m *Message
	is(second(Mrecv(m, []int{1})), ErrRequest)
	is(second(Imrecv(&Message{}, []int{1})), ErrRequest)
	_ = m.String()
}

func TestRequestTwiceInAList(t *testing.T) {
	over(t)(1, func(w *Comm) {
		r, other := ok(Irecv(w, []int{0}, 0, 1)), ok(Irecv(w, []int{0}, 0, 2))
		is(WaitAll(other, r, r), ErrRequest)
		_, _, err := WaitAny(other, r, r)
		is(err, ErrRequest)
		_, _, err = TestSome(r, r)
		is(err, ErrRequest)
		must(Send(w, []int{1}, 0, 1))
		must(Send(w, []int{1}, 0, 2))
		must(WaitAll(other, r)) // unharmed
	})
}

func TestRequestOfAnotherRank(t *testing.T) {
	var mu sync.Mutex
	all := make(chan *Request, 2)
	over(t)(2, func(w *Comm) {
		mine := ok(Irecv(w, []int{0}, 1-w.Rank(), 1))
		all <- mine
		must(Barrier(w))
		if w.Rank() == 0 {
			mu.Lock()
			a, b := <-all, <-all
			mu.Unlock()
			is(WaitAll(a, b), ErrRequest)
			_, _, err := WaitAny(nil, a, b)
			is(err, ErrRequest)
			is(second(TestAll(a, nil, b)), ErrRequest)
		}
		must(Barrier(w))
		must(Send(w, []int{1}, 1-w.Rank(), 1))
		ok(mine.Wait()) // unharmed
	})
}

func TestTwoGoroutinesWaitForOneRequest(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(1, func(w *Comm) {
			const n = 4
			r := ok(Irecv(w, []int{0}, 0, 1))
			results := make(chan error, n)
			for i := range n {
				go func() {
					if i%2 == 0 {
						results <- second(r.Wait())
					} else {
						_, _, err := WaitAny(r)
						results <- err
					}
				}()
			}
			for range n - 1 { // all but the goroutine that waits
				is(<-results, ErrRequest)
			}
			must(Send(w, []int{1}, 0, 1))
			must(<-results)
		})
	})
}

func TestMisuseOfPersistentRequests(t *testing.T) {
	over(t)(1, func(w *Comm) {
		buf := []int{0}
		r := ok(RecvInit(w, buf, 0, 1))
		is(r.Cancel(), ErrRequest)
		must(r.Start())
		is(r.Start(), ErrRequest)
		is(r.Free(), ErrRequest)
		must(Send(w, []int{5}, 0, 1))
		<-r.Done()
		is(r.Start(), ErrRequest) // its result has not been collected
		ok(r.Wait())
		<-r.Done()
		must(r.Start()) // after Done of an inactive one
		must(Send(w, []int{5}, 0, 1))
		ok(r.Wait())
		plain := ok(Irecv(w, buf, 0, 1))
		is(plain.Start(), ErrRequest)
		idle := ok(RecvInit(w, buf, 0, 2))
		is(StartAll(idle, plain), ErrRequest)
		must(idle.Cancel())
		ok(idle.Wait())
		must(Send(w, []int{6}, 0, 1))
		ok(plain.Wait())
		for _, r := range []*Request{r, idle} {
			must(r.Free())
			is(r.Free(), ErrRequest)
			is(r.Start(), ErrRequest)
			is(second(r.Wait()), ErrRequest)
		}
	})
}

func TestOpenRequestsAtTheEnd(t *testing.T) {
	defer watchdog(t)()
	err := RunLocal(2, func(w *Comm) error {
		if w.Rank() == 1 {
			return nil
		}
		_, err := Irecv(w, []int{0}, AnySource, 1)
		return err
	})
	if !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), "rank 0:") ||
		!strings.Contains(err.Error(), "1 operation") {
		t.Error(err)
	}
}

func TestRunLocalWithoutRanks(t *testing.T) {
	for _, n := range []int{0, -1} {
		is(RunLocal(n, func(*Comm) error { panic("called") }), ErrCount)
	}
}

func TestAllocOutOfRange(t *testing.T) {
	is(second(Alloc[int](-1)), ErrCount)
	is(second(Alloc[int](1<<62)), ErrCount)
	b := ok(Alloc[point](0))
	if len(b.Slice()) != 0 {
		t.Error(len(b.Slice()))
	}
	must(b.Free())
	if b.Free() == nil {
		t.Error("freed twice")
	}
}

func TestBadSettings(t *testing.T) {
	for _, s := range []string{"GORUN_EAGER_MAX=many", "GORUN_UNEXPECTED_MAX=-5", "GORUN_SPIN=soon"} {
		err := RunLocal(1, func(*Comm) error { panic("called") }, WithEnviron([]string{s}))
		is(err, ErrUnavailable)
		name, _, _ := strings.Cut(s, "=")
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%v does not name %s", err, name)
		}
	}
}

var errMine = errors.New("mine")

// When one rank fails or panics the calls of the other ranks end, in whatever they wait, and the error names the rank.
func TestOneRankFails(t *testing.T) {
	waits := []func(w *Comm) error{
		func(w *Comm) error { return second(Recv(w, []int{0}, 2, 1)) },
		func(w *Comm) error { return second(Recv(w, []int{0}, AnySource, 1)) },
		func(w *Comm) error { return second(Recv(w, []int{0}, w.Rank(), 1)) },
		func(w *Comm) error { return Ssend(w, []int{0}, 2, 1) },
		func(w *Comm) error { return Ssend(w, []int{0}, w.Rank(), 1) },
		func(w *Comm) error { return Send(w, make([]byte, long), 2, 1) },
		func(w *Comm) error { return second(Probe(w, 2, 1)) },
		func(w *Comm) error { _, _, err := Mprobe(w, AnySource, 1); return err },
		func(w *Comm) error { return second(ok(Irecv(w, []int{0}, 2, 1)).Wait()) },
		func(w *Comm) error { _, _, err := WaitAny(nil, ok(Irecv(w, []int{0}, 2, 1))); return err },
		func(w *Comm) error { r := ok(Irecv(w, []int{0}, 2, 1)); <-r.Done(); return second(r.Wait()) },
		func(w *Comm) error { return Barrier(w) },
		func(w *Comm) error { return second(w.Dup()) },
		func(w *Comm) error { return second(Sendrecv(w, []int{1}, 2, 1, []int{0}, 2, 1)) },
		func(w *Comm) error {
			for {
				_, _, err := Iprobe(w, 2, 1)
				if err != nil {
					return err
				}
			}
		},
	}
	everywhere(t, func(t *testing.T, run runner) {
		for how, fail := range map[string]func() error{
			"panic: oops": func() error { panic("oops") },
			"mine":        func() error { return errMine },
		} {
			for _, wait := range waits {
				off := watchdog(t)
				err := RunLocal(3, func(w *Comm) error {
					if w.Rank() == 2 {
						return fail()
					}
					err := wait(w)
					is(err, ErrAborted)
					check(strings.Contains(err.Error(), "rank 2"), "%v does not name the rank", err)
					is(Bsend(w, []int{1}, 0, 1), ErrAborted) // and so do all later calls
					is(Send(w, []int{1}, 0, 1), ErrAborted)
					is(Barrier(w), ErrAborted)
					return nil
				})
				off()
				if err == nil || !strings.HasPrefix(err.Error(), "rank 2: ") || !strings.Contains(err.Error(), how) {
					t.Fatal(err)
				}
				if how == "mine" && !errors.Is(err, errMine) {
					t.Fatal("the rank's own error is not in", err)
				}
			}
		}
	})
}

// After RunLocal calls on its communicators are errors.
func TestCommunicatorKeptAfterRunLocal(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		var kept, dup *Comm
		var r *Request
		run(1, func(w *Comm) {
			kept, dup = w, ok(w.Dup())
			r = ok(RecvInit(w, []int{0}, 0, 1))
		})
		for _, c := range []*Comm{kept, dup} {
			every(func(verb string, call func(c *Comm, to, tag int) error) {
				if strings.HasPrefix(verb, "I") || strings.HasSuffix(verb, "Init") {
					return // their Wait returns the error
				}
				is(call(c, 0, 1), ErrInit)
			})
			is(second(ok(Isend(c, []int{1}, 0, 1)).Wait()), ErrInit)
			is(second(ok(Irecv(c, []int{1}, 0, 1)).Wait()), ErrInit)
			is(second(Ibsend(c, []int{1}, 0, 1)), ErrInit)
		}
		must(r.Start())
		is(second(r.Wait()), ErrInit)
	})
}

// The receive of a message that a probe has taken is an error after RunLocal: its device is closed.
func TestMessageKeptAfterRunLocal(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		var kept *Message
		run(2, func(w *Comm) {
			if w.Rank() == 1 {
				must(Send(w, []int{7}, 0, 1))
				return
			}
			var err error
			kept, _, err = Mprobe(w, 1, 1)
			must(err)
		})
		is(second(Mrecv(kept, make([]int, 1))), ErrInit)
	})
}

func init() {
	roles["lifecycle"] = func() error { // a world of one that does everything in the wrong order
		is(Finalize(), ErrInit)
		w := ok(Init(WithEnviron(nil)))
		same(w.Rank(), 0)
		same(w.Size(), 1)
		is(second(Init()), ErrInit)
		must(Barrier(w))
		d := ok(w.Dup())
		r := ok(Irecv(w, []int{0}, 0, 1))
		err := Finalize()
		is(err, ErrRequest)
		check(strings.Contains(err.Error(), "under way: 1"), "%v", err)
		must(Send(w, []int{1}, 0, 1)) // nothing has been finalized
		ok(r.Wait())
		buf := ok(Alloc[int](10))
		must(Bsend(w, buf.Slice(), 0, 2))
		ok(Recv(w, buf.Slice(), 0, 2))
		must(Finalize())
		is(Finalize(), ErrInit)
		is(second(Init()), ErrInit)
		is(second(Alloc[int](1)), ErrInit)
		for _, c := range []*Comm{w, d} {
			every(func(verb string, call func(c *Comm, to, tag int) error) {
				if c == d && (strings.HasPrefix(verb, "I") || strings.HasSuffix(verb, "Init")) {
					return
				}
				check(errors.Is(call(c, 0, 1), ErrInit), "%s after Finalize: %v", verb, call(c, 0, 1))
			})
			is(second(c.Dup()), ErrInit)
			is(Barrier(c), ErrInit)
		}
		return nil
	}
	roles["lost"] = func() error { // the environment speaks of a job that cannot be joined
		_, err := Init()
		is(err, ErrUnavailable)
		fmt.Println(err)
		return nil
	}
	roles["main"] = func() error {
		Main(func(ctx context.Context, w *Comm) error {
			check(ctx.Err() == nil, "%v", ctx.Err())
			fmt.Println("rank", w.Rank(), "of", w.Size())
			if os.Getenv("FAIL") == "panic" {
				panic("oops")
			}
			if os.Getenv("FAIL") != "" {
				return errMine
			}
			return nil
		})
		return nil
	}
}

func TestLifecycle(t *testing.T) { reexec(t, "lifecycle") }

// §11.2.1: a job of several ranks without a way to join it is an error, never a world of one.
func TestInitWithoutLauncher(t *testing.T) {
	for _, env := range [][]string{{"PMI_SIZE=4", "PMI_RANK=1"}, {"OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=0"}} {
		if out := reexec(t, "lost", env...); !strings.Contains(out, env[0][:4]) {
			t.Errorf("%v: the error does not say which variable describes a job: %s", env, out)
		}
	}
}

func TestMainEnds(t *testing.T) {
	if out := reexec(t, "main"); !strings.Contains(out, "rank 0 of 1") {
		t.Error(out)
	}
	for how, want := range map[string]string{"error": "rank 0: mine", "panic": "rank 0: panic: oops"} {
		if out, code := reexecFails(t, "main", "FAIL="+how); code != 1 || !strings.Contains(out, want) {
			t.Errorf("exit code %d: %s", code, out)
		}
	}
}

// Error texts, to the letter: what was called, with which values, what was wrong, what to do.
func TestErrorTexts(t *testing.T) {
	var got []string
	say := func(err error) { got = append(got, err.Error()) }
	over(t)(4, func(w *Comm) {
		if w.Rank() != 0 {
			return
		}
		d := lookAlike(w, "world.dup1", 1)
		say(Send(w, []int{1}, 9, 0))
		say(second(Recv(d, []int{1}, -5, 0)))
		say(Send(w, []int{1}, 1, -7))
		say(second(Recv(w, []int{1}, AnySource, -7)))
		say(Send(w, []nested{}, 1, 3))
		say(second(Sendrecv(w, []int{1}, 1, 0, []int{1}, 7, 0)))
		say(second(Sendrecv(w, []int{1}, 8, 0, []int{1}, 1, 0)))
		must(Send(w, make([]int, 4), 0, 7))
		say(second(Recv(w, make([]int, 3), AnySource, 7)))
		must(Send(w, make([]byte, 5), 0, 7))
		_, _, err := RecvAlloc[int32](w, 0, AnyTag)
		say(err)
		must(Send(w, make([]byte, 5), 0, 7))
		_, _, err = RecvValue[int](w, 0, 7)
		say(err)
		r := ok(Isend(w, []int{1}, 0, 7))
		ok(r.Wait())
		say(second(r.Wait()))
		p := ok(Irecv(w, []int{1}, 0, 7))
		ok(p.Wait())
		say(WaitAll(nil, r))
		say(r.Start())
		p = ok(RecvInit(w, []int{1}, 0, 7))
		must(p.Start())
		say(p.Start())
		say(p.Free())
		must(p.Cancel())
		ok(p.Wait())
		say(w.Free())
		must(d.Free())
		say(Send(d, []int{1}, 1, 0))
		say(Barrier(nil))
		say((*Request)(nil).Cancel())
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		say(second(Recv(w.WithContext(ctx), []int{1}, 2, AnyTag)))
		say(Send(w.WithContext(ctx), []int{1}, 2, 5))
	})
	say(RunLocal(0, nil))
	say(second(Alloc[int](-1)))
	want := strings.Split(strings.TrimSpace(texts), "\n")
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(want):
			t.Errorf("no text is expected for\n%s", got[i])
		case i >= len(got) || got[i] != want[i]:
			t.Errorf("got\n%s\nwant\n%s", append(got, "nothing")[min(i, len(got))], want[i])
		}
	}
}

const texts = `
mpi: Send to rank 9: the communicator has 4 ranks (0–3)
mpi: Recv from rank -5 on world.dup1: the communicator has 4 ranks (0–3); a source may also be AnySource
mpi: Send to rank 1: the tag is -7; tags of sends are 0 to 2147483647
mpi: Recv from any source: the tag is -7; tags are 0 to 2147483647, or AnyTag
` + "mpi: Send to rank 1 tag 3: mpi.nested.B[…].C.Z is a *int, which holds a pointer and means nothing to another " +
	"process; send numbers, arrays and structs of them, or use SendObject" + `
mpi: Sendrecv from rank 7: the communicator has 4 ranks (0–3); a source may also be AnySource
mpi: Sendrecv to rank 8: the communicator has 4 ranks (0–3)
mpi: Recv from any source tag 7: the message has 32 bytes, the buffer 24: what does not fit is lost; use a longer buffer, or RecvAlloc
mpi: RecvAlloc from rank 0 tag any: the message has 5 bytes, which is not a whole number of elements of 4 bytes (int32)
mpi: RecvValue from rank 0 tag 7: the message has 5 bytes, one int has 8
mpi: Wait: unusable request: its result has been collected already; wait for a request once
mpi: WaitAll: request 1 of 2: unusable request: its result has been collected already; wait for a request once
mpi: Start: unusable request: only persistent requests can be started; SendInit and RecvInit make them
mpi: Start: unusable request: it is started already; collect its result with Wait or Test first
mpi: Free: unusable request: it is started; collect its result with Wait or Test first
mpi: Free: the world is given back by Finalize, not by Free
mpi: Send to rank 1 tag 0 on world.dup1: the communicator has been freed; use it before Free, or make another with Dup
mpi: Barrier: the communicator is nil; call Init (or Main) first and use what it returns
mpi: Cancel: the request is nil: no operation returned it
mpi: Recv from rank 2 tag any: context deadline exceeded
mpi: Send to rank 2 tag 5: context deadline exceeded
mpi: RunLocal: 0 ranks were asked for; at least 1 is needed
mpi: Alloc: -1 elements of 8 bytes were asked for
`
