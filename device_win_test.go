package mpi

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/accel/acceltest"
	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/internal/door"
	"github.com/gorun-mpi/mpi/internal/ranks"
	"github.com/gorun-mpi/mpi/pml"
	"github.com/gorun-mpi/mpi/rma"
)

// deviceWindow makes a window of int32, as package gpu does.
func deviceWindow(c *Comm, b accel.Buffer) (w *deviceWin, released chan struct{}) {
	released = make(chan struct{})
	win, _, err := deviceDoor{}.WinCreate(c, door.WinSpec{Type: reflect.TypeFor[int32](), Count: int(b.Len / 4), Mem: b,
		Tell: []byte{byte(c.Rank())}, Quiesce: func() error { return nil }, Release: func() { close(released) }}, nil)
	must(err)
	return win.(*deviceWin), released
}

// What a program that is none of ours asks of a window over device memory is told that it cannot be, and changes no
// byte but of the elements that a request may name.
func TestHostileDeviceWindow(t *testing.T) {
	m := acceltest.New(acceltest.Options{Delay: 100 * time.Microsecond})
	d := m.Process()
	overLoop(t)(2, func(w *Comm) {
		const size, from, elements = 4096, 1024, 256
		mem := ok(d.Alloc(0, size))
		want := bytes.Repeat([]byte{7}, size)
		d.Write(mem.Base, want)
		win, released := deviceWindow(w, accel.Buffer{Driver: d, Memory: mem, Addr: mem.Base + from, Len: 4 * elements})
		if w.Rank() == 0 {
			e, ctx := win.comm.group.Engine, win.comm.group.Context
			say := func(r rma.Request, more []byte) {
				must(e.Send(nil, ctx, 1, tagRequest, append(r.Append(nil), more...), pml.Standard))
			}
			hear := func(slot int32) (a rma.Answer, more []byte) {
				b := make([]byte, 100)
				st := ok(e.Recv(nil, ctx, 1, slot, b))
				more = ok(a.Decode(b[:st.Bytes]))
				return a, more
			}
			flush := func() rma.Result {
				say(rma.Request{Kind: rma.Flush, Slot: 99}, nil)
				a, _ := hear(99)
				return a.Result
			}
			four := make([]byte, 4)
			say(rma.Request{Kind: rma.Put, N: 1}, four)
			same(flush(), rma.Senseless)
			say(rma.Request{Kind: rma.Update, Op: 1, N: 1}, four)
			same(flush(), rma.Senseless)
			say(rma.Request{Kind: rma.Put, N: 1, Slot: 98, Then: rma.Flush}, four)
			a, _ := hear(98)
			same(a.Result, rma.Senseless)
			say(rma.Request{Kind: rma.PutAlone, Slot: 50, At: elements - 3, N: 4}, nil)
			must(e.Send(nil, ctx, 1, 50, make([]byte, 16), pml.Standard))
			same(flush(), rma.Outside)
			say(rma.Request{Kind: rma.PutAlone, Slot: 51, At: math.MaxInt64, N: math.MaxInt64}, nil)
			must(e.Send(nil, ctx, 1, 51, four, pml.Standard))
			same(flush(), rma.Outside)
			say(rma.Request{Kind: rma.PutAlone, Slot: 52, N: 2}, nil) // and a longer message
			must(e.Send(nil, ctx, 1, 52, bytes.Repeat([]byte{7}, 4000), pml.Standard))
			same(flush(), rma.Done)
			for i, r := range []rma.Request{{At: elements, N: 1}, {At: 1, N: math.MaxInt64}, {N: 1, Runs: 4}} {
				r.Kind, r.Slot = rma.Get, int32(60+i)
				say(r, make([]byte, r.Runs))
				same(ok(e.Recv(nil, ctx, 1, r.Slot, make([]byte, 100))).Bytes, int64(0))
				same(flush(), []rma.Result{rma.Outside, rma.Outside, rma.Senseless}[i])
			}
			for i, kind := range []rma.Kind{rma.Fetch, rma.Swap} {
				say(rma.Request{Kind: kind, Slot: int32(70 + i), N: 1}, make([]byte, 8))
				a, _ := hear(int32(70 + i))
				same(a.Result, rma.Senseless)
			}
			say(rma.Request{Kind: rma.Info, Slot: 80}, nil)
			var region rma.Region
			_, more := hear(80)
			must(region.Decode(more))
			same(region, rma.Region{Count: elements})
			must(e.Send(nil, ctx, 1, tagRequest, []byte("no request"), pml.Standard))
			same(flush(), rma.Done)
		}
		must(Barrier(w))
		check(bytes.Equal(d.Read(mem.Base, size), want), "rank %d: bytes have changed", w.Rank())
		must(win.Free())
		<-released
		must(d.Free(mem))
	})
	if left := m.Left(); left != "" {
		t.Error(left)
	}
}

// A rank that cannot make the window has no rank have it, and nothing is left.
func TestDeviceWindowRefused(t *testing.T) {
	m := acceltest.New(acceltest.Options{})
	d := m.Process()
	overLoop(t)(3, func(w *Comm) {
		mem := ok(d.Alloc(0, 4096))
		released := make(chan struct{})
		must(Barrier(w))
		if w.Rank() == 1 {
			d.Fail("Pin", 1)
		}
		must(Barrier(w))
		for range 2 {
			_, _, err := deviceDoor{}.WinCreate(w, door.WinSpec{Type: reflect.TypeFor[int32](), Count: 1024,
				Mem: accel.Buffer{Driver: d, Memory: mem, Addr: mem.Base, Len: 4096}, Release: func() { close(released) }}, nil)
			if err == nil {
				break // the second time
			}
			is(err, ErrDevice)
			<-released
			released = make(chan struct{})
		}
		select {
		case <-released:
			panic("the window is over")
		default:
		}
		must(Barrier(w))
	})
}

// A revocation ends the call that makes a window where a rank waits for what another one tells, and that has left the
// call.
func TestRevokeEndsDeviceWinCreate(t *testing.T) {
	t.Setenv("GORUN_COLL_CHECK", "0") // it would end the wait, and so would a rank that returns
	m := acceltest.New(acceltest.Options{})
	d := m.Process()
	var others sync.WaitGroup
	others.Add(2)
	overLoop(t)(3, func(w *Comm) {
		c := ok(w.Dup())
		if w.Rank() == 1 {
			_, err := c.create(plan{kind: agree.MakeWinCreate, args: []byte(fmt.Sprint("device ", reflect.TypeFor[int32](), 4)),
				members: func() *ranks.Set { return c.group.Members() },
				after: func(*agree.Exchange, *Comm) *agree.Veto {
					must(c.Revoke())
					return &agree.Veto{Class: ErrPeerFailed, Text: "this rank leaves the call"}
				}})
			check(outlived(err), "the error is %v", err)
			others.Wait()
			must(c.Free())
			return
		}
		defer others.Done()
		mem := ok(d.Alloc(0, 4096))
		released := make(chan struct{})
		_, _, err := deviceDoor{}.WinCreate(c, door.WinSpec{Type: reflect.TypeFor[int32](), Count: 1024,
			Mem: accel.Buffer{Driver: d, Memory: mem, Addr: mem.Base, Len: 4096}, Tell: []byte{byte(w.Rank())},
			Release: func() { close(released) }}, nil)
		check(outlived(err), "the error is %v", err)
		<-released
		must(d.Free(mem))
		must(c.Free())
	})
	if left := m.Left(); left != "" {
		t.Error(left)
	}
}

// What ranks tell each other in the call that makes a window has the length that all tell.
func TestHostileTellAll(t *testing.T) {
	for n, good := range map[int]bool{0: false, 3: false, 4: true, 5: false} { // rank 2 of 4 speaks for two ranks
		take, verdict := &tellAll{size: 4, each: 2, heard: []byte{1, 2, 3, 4}}, &tellAll{size: 2, each: 2}
		d := agree.Decoder{B: agree.AppendBytes(nil, make([]byte, n))}
		if take.Take(2, &d); d.Over() != good {
			t.Errorf("%d bytes of two ranks are taken: %v", n, !good)
		}
		d = agree.Decoder{B: agree.AppendBytes(nil, make([]byte, n))}
		if verdict.ReadVerdict(&d); d.Over() != good {
			t.Errorf("%d bytes of all ranks are taken: %v", n, !good)
		}
	}
}
