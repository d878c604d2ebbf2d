package transporttest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/gorun-mpi/mpi/transport"
)

// operation begins an operation on the peer's memory.
type operation func(cookie uint64) (transport.State, error)

// operations are several: begin number i.
type operations func(i int, cookie uint64) (transport.State, error)

// attempt begins an operation, again as long as the link is full, and waits for its end.
func (e *end) attempt(op operation) (value uint64, err error) {
	e.cookie++
	for c := start(); ; {
		state, err := op(e.cookie)
		switch {
		case err != nil || state == transport.Done:
			return 0, err
		case state == transport.Started:
			p, err := e.next()
			if err == nil && (p.Event != transport.RMADone || p.Cookie != e.cookie) {
				err = fmt.Errorf("operation %d was started; then came event %d, cookie %d", e.cookie, p.Event, p.Cookie)
			}
			return p.Value, errors.Join(err, p.Err)
		case c.late():
			return 0, errors.New("the link says Full for ever")
		}
		e.poll()
		runtime.Gosched()
	}
}

// do runs one operation of e to its end, and returns what an atomic has found.
func (f *fixture) do(e *end, op operation) uint64 {
	f.Helper()
	return f.doAll(e, 1, func(_ int, cookie uint64) (transport.State, error) { return op(cookie) })[0]
}

// doAll runs n operations of e, as many at once as the link takes, each to its end.
func (f *fixture) doAll(e *end, n int, op operations) []uint64 {
	f.Helper()
	values, err := e.finish(n, op)
	f.must(err)
	return values
}

// finish is doAll for any goroutine. What the transport may fail is repeated.
func (e *end) finish(n int, op operations) ([]uint64, error) {
	values := make([]uint64, n)
	open := map[uint64]int{} // those under way, by cookie
	var waiting []int
	for i := range n {
		waiting = append(waiting, i)
	}
	ended := func(i int, err error) error {
		if err != nil && e.f.unreliable {
			waiting = append(waiting, i)
			return nil
		}
		return err
	}
	for c := start(); len(waiting)+len(open) > 0; runtime.Gosched() {
		if c.late() {
			return nil, fmt.Errorf("rank %d: of %d operations %d were not begun and %d have not ended",
				e.rank, n, len(waiting), len(open))
		}
		if len(waiting) > 0 {
			i := waiting[0]
			e.cookie++
			state, err := op(i, e.cookie)
			if state == transport.Started && err == nil {
				open[e.cookie] = i
			}
			if state != transport.Full || err != nil {
				waiting = waiting[1:]
			}
			if err := ended(i, err); err != nil {
				return nil, err
			}
		}
		for p, ok := e.tryNext(); ok; p, ok = e.tryNext() {
			i, known := open[p.Cookie]
			if p.Event != transport.RMADone || !known {
				return nil, fmt.Errorf("rank %d: event %d with cookie %d; that operation is not under way",
					e.rank, p.Event, p.Cookie)
			}
			delete(open, p.Cookie)
			if err := ended(i, p.Err); err != nil {
				return nil, err
			}
			values[i] = p.Value
			c = start()
		}
	}
	return values, nil
}

// register asks until it is granted, where the transport may refuse.
func (f *fixture) register(e *end, mem []byte, access transport.Access) (addr, key uint64) {
	f.Helper()
	rma := e.link.Caps().RMA
	for c := start(); ; {
		if addr, key, ok := rma.Register(transport.HostMem(mem), access); ok {
			return addr, key
		} else if rma.Prepare != nil && rma.Prepare(transport.HostMem(mem), access, 1<<40) {
			p, err := e.next()
			if err != nil || p.Event != transport.RMADone || p.Cookie != 1<<40 {
				f.Fatalf("rank %d: event %d, cookie %d, %v; want the end of Prepare", e.rank, p.Event, p.Cookie, err)
			}
		} else if !f.unreliable || c.late() {
			f.Fatalf("rank %d: Register of %d bytes was refused", e.rank, len(mem))
		}
	}
}

func deregister(e *end, addr, key uint64) { e.link.Caps().RMA.Deregister(addr, key) }

// way is one of the two in which memory moves, by the access that the peer's memory needs. near is memory of the
// caller, far that of its peer.
type way transport.Access

const (
	get = way(transport.Readable)
	put = way(transport.Writable)
)

// between is the operation between near, memory of e, and that at addr.
func (w way) between(e *end, near []byte, addr, key uint64) operation {
	r, mem := e.link.Caps().RMA, transport.HostMem(near)
	begin := r.Get
	if w == put {
		begin = r.Put
	}
	return func(cookie uint64) (transport.State, error) { return begin(mem, addr, key, cookie) }
}

// moved does to near and far what the operation is to do.
func (w way) moved(near, far []byte) {
	if w == put {
		near, far = far, near
	}
	copy(near, far)
}

// rmaContents moves parts between the middle of one memory and the middle of another.
func rmaContents(f *fixture, w way) {
	a, b := f.linked()
	far, other := pattern(1<<20+8192, 5), pattern(1<<20+8192, 6)
	wantFar := bytes.Clone(far)
	addr, key := f.register(a, far, transport.Access(w))
	const margin = 64
	for i, n := range []int{1, 2, 7, 8, 63, 64, 65, 511, 4095, 4096, 4097, 65537, 1 << 20} {
		for _, off := range []int{0, 1, 63, 64, 2049, 4095} {
			near := bytes.Clone(other[i : i+n+2*margin])
			wantNear := bytes.Clone(near)
			w.moved(wantNear[margin:margin+n], wantFar[off:off+n])
			f.do(b, w.between(b, near[margin:margin+n:margin+n], addr+uint64(off), key))
			if !bytes.Equal(near, wantNear) || !bytes.Equal(far, wantFar) {
				f.Fatalf("%d bytes at offset %d: wrong contents, or bytes around them written", n, off)
			}
		}
	}
	deregister(a, addr, key)
}

// rmaLasting registers memory for long, twice, and uses it as long as one registration has not ended.
func rmaLasting(f *fixture, w way) {
	a, b := f.linked()
	for _, n := range []int{1, 8, 5000, 1<<20 + 5} { // the last takes long where there is Prepare
		far, near := pattern(n, 5), pattern(n, 6)
		wantFar, wantNear := bytes.Clone(far), bytes.Clone(near)
		addr, key := f.register(a, far, transport.Access(w)|transport.Lasting)
		again, keyAgain := f.register(a, far, transport.Access(w)|transport.Lasting)
		for i := range 4 {
			if f.do(b, w.between(b, near, addr, key)); i == 1 {
				deregister(a, again, keyAgain)
			}
			w.moved(wantNear, wantFar)
			if !bytes.Equal(near, wantNear) || !bytes.Equal(far, wantFar) {
				f.Fatalf("%d bytes: wrong contents after %d operations", n, i+1)
			}
			fill(near, uint64(i))
			copy(wantNear, near)
		}
		deregister(a, addr, key)
	}
}

// rmaMany makes many registrations both ways, and many operations that are under way at once, each completed once.
func rmaMany(f *fixture, w way) {
	a, b := f.linked()
	const n = 64
	for _, p := range []struct{ owner, user *end }{{a, b}, {b, a}} {
		var addr, key [n]uint64
		var far, near [n][]byte
		for i := range n {
			far[i], near[i] = pattern(1000+i, uint64(i)), pattern(1000+i, uint64(n+i))
			addr[i], key[i] = f.register(p.owner, far[i], transport.Access(w))
		}
		f.doAll(p.user, n, func(i int, cookie uint64) (transport.State, error) {
			return w.between(p.user, near[i], addr[i], key[i])(cookie)
		})
		for i := range n {
			wantFar, wantNear := pattern(1000+i, uint64(i)), pattern(1000+i, uint64(n+i))
			w.moved(wantNear, wantFar)
			if !bytes.Equal(far[i], wantFar) || !bytes.Equal(near[i], wantNear) {
				f.Fatalf("operation %d of %d: wrong contents", i, n)
			}
			deregister(p.owner, addr[i], key[i])
		}
		f.must(p.user.quiet())
	}
}

// rmaNothing checks that zero bytes can be registered and moved.
func rmaNothing(f *fixture, w way) {
	a, b := f.linked()
	for _, far := range [][]byte{nil, {}, pattern(10, 1)[3:3]} {
		addr, key := f.register(a, far, transport.Access(w))
		f.do(b, w.between(b, nil, addr, key))
		f.do(b, w.between(b, []byte{}, addr, key))
		deregister(a, addr, key)
	}
}

// rmaDeregister checks that memory can be registered again and again, and is never confused with what was there before.
func rmaDeregister(f *fixture, w way) {
	a, b := f.linked()
	var oldAddr, oldKey uint64
	for i := range uint64(200) {
		far, near := pattern(3000, 2*i), pattern(3000, 2*i+1)
		wantFar, wantNear := bytes.Clone(far), bytes.Clone(near)
		addr, key := f.register(a, far, transport.Access(w))
		f.do(b, w.between(b, near, addr, key))
		if w.moved(wantNear, wantFar); !bytes.Equal(far, wantFar) || !bytes.Equal(near, wantNear) {
			f.Fatalf("registration %d: wrong contents", i)
		}
		if f.checksKeys && i > 0 {
			if _, err := b.attempt(w.between(b, near, oldAddr, oldKey)); err == nil {
				f.Fatalf("registration %d was reached after Deregister", i-1)
			}
		}
		deregister(a, addr, key)
		oldAddr, oldKey = addr, key
	}
	if f.badKeysEnd && !f.unreliable {
		f.denied(a, b, "after Deregister", w.between(b, make([]byte, 3000), oldAddr, oldKey))
	}
}

// denied has b begin an operation that must not be granted. Where that ends the connection it is over at both ends.
func (f *fixture) denied(a, b *end, what string, op operation) {
	f.Helper()
	if _, err := b.attempt(op); err == nil {
		f.Errorf("%s: the operation has succeeded", what)
		return
	}
	if !f.badKeysEnd {
		return
	}
	for _, e := range []*end{b, a} {
		if err := e.down(); err != nil {
			f.Errorf("%s: %v", what, err)
		}
	}
}

// rmaBadKey checks that operations with bad keys are errors, whatever a peer may ask, and that neither memory is
// touched.
func rmaBadKey(f *fixture, w way) {
	var a, b *end
	var far []byte
	var addr, key uint64
	for i, c := range []struct {
		what   string
		change func() (badAddr, badKey uint64, n int)
		lasts  bool // only where the connection lasts: whether a device has such a key, or looks, is its own business
	}{
		{"another key", func() (uint64, uint64, int) { return addr, key ^ 0xff00, 1 }, false},
		{"all ones", func() (uint64, uint64, int) { return addr, 1<<32 - 1, 1 }, false},
		{"one byte too many", func() (uint64, uint64, int) { return addr, key, 101 }, false},
		{"one byte too far", func() (uint64, uint64, int) { return addr + 1, key, 100 }, false},
		{"before the start", func() (uint64, uint64, int) { return addr - 1, key, 1 }, false},
		{"address 0", func() (uint64, uint64, int) { return 0, key, 1 }, false},
		{"address wraps", func() (uint64, uint64, int) { return ^uint64(0), key, 2 }, false},
		{"beyond the end", func() (uint64, uint64, int) { return addr + 101, key, 1 }, true},
		{"beyond the end, nothing", func() (uint64, uint64, int) { return addr + 101, key, 0 }, true},
		{"key 0", func() (uint64, uint64, int) { return addr, 0, 1 }, true},
		{"the next key", func() (uint64, uint64, int) { return addr, key + 1, 1 }, true},
		{"all ones in 64 bits", func() (uint64, uint64, int) { return addr, ^uint64(0), 1 }, true},
	} {
		if c.lasts && f.badKeysEnd {
			continue
		}
		if i == 0 || f.badKeysEnd {
			a, b = f.linked()
			far = pattern(100, 1)
			addr, key = f.register(a, far, transport.Access(w))
		}
		badAddr, badKey, n := c.change()
		near := pattern(200, 2)
		if f.denied(a, b, c.what, w.between(b, near[:n], badAddr, badKey)); !bytes.Equal(far, pattern(100, 1)) {
			f.Errorf("%s: something was written at the peer", c.what)
		}
		if !f.unreliable && !bytes.Equal(near, pattern(200, 2)) {
			f.Errorf("%s: something was written here", c.what)
		}
		if f.badKeysEnd {
			f.close(a)
			f.close(b)
		}
	}
	if f.badKeysEnd {
		return
	}
	near, wantNear, wantFar := pattern(100, 3), pattern(100, 3), pattern(100, 1)
	f.do(b, w.between(b, near, addr, key))
	if w.moved(wantNear, wantFar); !bytes.Equal(near, wantNear) || !bytes.Equal(far, wantFar) {
		f.Error("a good operation after the bad ones: wrong contents")
	}
	// Memory is for the peer of the link that has registered it.
	f.denied(b, a, "rank 0 names memory of its own to rank 1", w.between(a, make([]byte, 1), addr, key))
}

// rmaPeerClosed checks that nothing crashes or hangs when the memory's owner is gone: there is an error, or in one
// process still the bytes.
func rmaPeerClosed(f *fixture, w way) {
	a, b := f.linked()
	far, near := pattern(100, 1), pattern(100, 2)
	wantFar, wantNear := bytes.Clone(far), bytes.Clone(near)
	addr, key := f.register(a, far, transport.Access(w))
	f.close(a)
	_, err := b.attempt(w.between(b, near, addr, key))
	if w.moved(wantNear, wantFar); err == nil && (!bytes.Equal(near, wantNear) || !bytes.Equal(far, wantFar)) {
		f.Error("the peer is gone, the operation gave no error and wrong contents")
	}
	runtime.KeepAlive(far)
}

// accessIsKept checks that a peer may do to registered memory what it was registered for, and no more; also to memory
// of Alloc, which a device may know for everything.
func accessIsKept(f *fixture) {
	type ask func(r *transport.RMA, addr, key, cookie uint64) (transport.State, error)
	writes := map[string]ask{
		"Put": func(r *transport.RMA, addr, key, cookie uint64) (transport.State, error) {
			return r.Put(transport.HostMem(pattern(8, 1)), addr, key, cookie)
		},
	}
	if f.has&PutNote != 0 {
		writes["PutNote"] = func(r *transport.RMA, addr, key, cookie uint64) (transport.State, error) {
			return r.PutNote(transport.HostMem(pattern(8, 1)), addr, key, 1, cookie)
		}
	}
	if f.has&Atomics != 0 {
		writes["FetchAdd"] = func(r *transport.RMA, addr, key, cookie uint64) (transport.State, error) {
			return r.FetchAdd(1, addr, key, cookie)
		}
	}
	reads := map[string]ask{"Get": func(r *transport.RMA, addr, key, cookie uint64) (transport.State, error) {
		return r.Get(transport.HostMem(make([]byte, 8)), addr, key, cookie)
	}}
	for access, asks := range map[transport.Access]map[string]ask{transport.Readable: writes, transport.Writable: reads} {
		for what, op := range asks {
			for _, allocated := range []bool{false, true} {
				if allocated && f.has&Memory == 0 {
					continue
				}
				a, b := f.linked()
				far := aligned(64)
				if allocated {
					mem, err := a.dev.Facts().Memory.Alloc(64)
					f.must(err)
					far = mem
				}
				addr, key := f.register(a, far, access)
				f.denied(a, b, fmt.Sprintf("%s with access %d, memory of Alloc %v", what, access, allocated),
					func(cookie uint64) (transport.State, error) { return op(b.link.Caps().RMA, addr, key, cookie) })
				if !bytes.Equal(far, make([]byte, 64)) {
					f.Errorf("%s has written to memory that was registered to be read", what)
				}
			}
		}
	}
}

// putNote checks that a note comes once, when all that was written with it is there. It is an arrival, and ends a
// sleep.
func putNote(f *fixture) {
	a, b := f.linked()
	const long, many = 5 << 20, 200
	far := make([]byte, long)
	addr, key := f.register(a, far, transport.Writable)
	note := func(near []byte, first int) operations {
		return func(i int, cookie uint64) (transport.State, error) {
			return b.link.Caps().RMA.PutNote(transport.HostMem(near), addr, key, uint32(first+i), cookie)
		}
	}
	for i, n := range []int{0, 1, 100_000, long} {
		clear(far)
		near := pattern(n, uint64(i))
		f.notes(a, b, 1, note(near, i), func(v uint64) bool {
			return v == uint64(i) && bytes.Equal(far[:n], near)
		})
	}
	came := map[uint64]bool{}
	f.notes(a, b, many, note(nil, 0), func(v uint64) bool {
		again := came[v]
		came[v] = true
		return v < many && !again
	})
	for _, thread := range []bool{true, false} {
		w := watch(f, a)
		f.drive(func() error {
			p, err := a.await(w, transport.Any, thread)
			if err == nil && p.Event != transport.Noted {
				err = fmt.Errorf("event %d, want Noted", p.Event)
			}
			return err
		}, func() error {
			pause(2000)
			_, err := b.finish(1, note(nil, 1))
			return err
		})
	}
}

// notes runs n operations of b, while a checks each note at the moment when it comes.
func (f *fixture) notes(a, b *end, n int, op operations, right func(note uint64) bool) {
	f.Helper()
	f.drive(func() error {
		for i := range n {
			p, err := a.next()
			if err != nil || p.Event != transport.Noted || !right(p.Value) {
				return fmt.Errorf("note %d of %d: event %d, %#x; it comes again, or its bytes are not there: %w",
					i, n, p.Event, p.Value, err)
			}
		}
		return a.quiet()
	}, func() error {
		_, err := b.finish(n, op)
		return err
	})
}

// integers registers three integers of a, of which the outer ones are to stay as they are. b changes the middle one.
func integers(f *fixture) (b *end, words func() [3]uint64, addr, key uint64) {
	a, b := f.linked()
	mem := aligned(24)
	words = func() (w [3]uint64) {
		for i := range w {
			w[i] = binary.NativeEndian.Uint64(mem[8*i:])
		}
		return w
	}
	for i, v := range []uint64{7, 40, 9} {
		binary.NativeEndian.PutUint64(mem[8*i:], v)
	}
	addr, key = f.register(a, mem, transport.Readable|transport.Writable)
	return b, words, addr + 8, key
}

// aligned is memory that begins at a multiple of 8.
func aligned(n int) []byte {
	mem := make([]byte, n+7)
	off := int(-transport.HostMem(mem).Number() % 8)
	return mem[off : off+n : off+n]
}

// fetchAdd finds what was there, and wraps.
func fetchAdd(f *fixture) {
	b, words, addr, key := integers(f)
	for i, step := range []struct{ add, old, then uint64 }{
		{2, 40, 42}, {^uint64(0), 42, 41}, {1 << 63, 41, 41 + 1<<63}, {1 << 63, 41 + 1<<63, 41},
	} {
		got := f.do(b, func(cookie uint64) (transport.State, error) {
			return f.started(b.link.Caps().RMA.FetchAdd(step.add, addr, key, cookie))
		})
		if got != step.old || words() != [3]uint64{7, step.then, 9} {
			f.Errorf("step %d, %+v: found %d; then there was %d", i, step, got, words())
		}
	}
}

// compareSwap finds what was there, and changes it only if that was expected.
func compareSwap(f *fixture) {
	b, words, addr, key := integers(f)
	for i, step := range []struct{ compare, swap, old, then uint64 }{
		{7, 9, 40, 40}, {40, 1 << 63, 40, 1 << 63}, {40, 5, 1 << 63, 1 << 63}, {1 << 63, 0, 1 << 63, 0},
	} {
		got := f.do(b, func(cookie uint64) (transport.State, error) {
			return f.started(b.link.Caps().RMA.CompareSwap(step.compare, step.swap, addr, key, cookie))
		})
		if got != step.old || words() != [3]uint64{7, step.then, 9} {
			f.Errorf("step %d, %+v: found %d; then there was %d", i, step, got, words())
		}
	}
}

// started checks that an atomic is never Done at once.
func (f *fixture) started(state transport.State, err error) (transport.State, error) {
	if state == transport.Done && err == nil {
		f.Error("an atomic says Done; what it has found comes with a packet")
	}
	return state, err
}

// atomicsMany checks that of many that are under way each is one step, so no two find the same.
func atomicsMany(f *fixture) {
	b, words, addr, key := integers(f)
	n := f.rounds(2000)
	found := f.doAll(b, n, func(_ int, cookie uint64) (transport.State, error) {
		return b.link.Caps().RMA.FetchAdd(1, addr, key, cookie)
	})
	slices.Sort(found)
	for i, v := range found {
		if v != 40+uint64(i) {
			f.Fatalf("%d additions of 1 to 40: the one with place %d has found %d", n, i, v)
		}
	}
	if words() != [3]uint64{7, 40 + uint64(n), 9} {
		f.Errorf("after %d additions of 1 to 40 there is %d", n, words())
	}
}

// rmaWakes checks that the end of an operation that was started is an arrival.
func rmaWakes(f *fixture) {
	a, b := f.linked()
	addr, key := f.register(a, pattern(1<<20, 1), transport.Readable)
	near, w := make([]byte, 1<<20), watch(f, b)
	for i := range uint64(f.rounds(500)) {
		level := transport.Any
		if i%4 >= 2 {
			level = transport.Urgent
		}
		armed := i%8 >= 4 && b.set.Arm(level, false)
		state, err := get.between(b, near, addr, key)(i)
		switch {
		case state == transport.Done && err == nil && !f.unreliable:
			return // this device starts nothing that it does not end
		case state != transport.Started || err != nil:
			b.poll()
			continue
		}
		if armed {
			b.set.Park(false)
			if b.set.Disarm(); w.Fired() {
				f.Fatalf("round %d: an operation was started while the rank was armed, and its end has not ended the sleep", i)
			}
		}
		p, err := b.await(w, level, level == transport.Any && i%2 == 0)
		if err != nil || p.Event != transport.RMADone || p.Cookie != i {
			f.Fatalf("round %d: event %d, cookie %d, %v", i, p.Event, p.Cookie, err)
		}
	}
}
