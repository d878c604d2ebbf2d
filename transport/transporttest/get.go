package transporttest

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"

	"github.com/gorun-mpi/mpi/transport"
)

// getters opens a pair both of whose links can read.
func (f *fixture) getters() (a, b *end) {
	f.Helper()
	a, b = f.linked()
	if f.noGet {
		f.Skip("this transport was opened without Get")
	}
	for _, e := range []*end{a, b} {
		if _, ok := e.link.(transport.Getter); !ok || !e.link.Caps().Get {
			f.Fatalf("rank %d: the link is no Getter: %q", e.rank, e.link.Caps().WhyNot)
		}
	}
	return a, b
}

// register asks until it is granted, where the transport may refuse.
func (f *fixture) register(e *end, buf []byte) (addr, key uint64) {
	f.Helper()
	for c := start(); ; {
		if addr, key, ok := e.link.(transport.Getter).Register(buf); ok {
			return addr, key
		} else if !f.unreliable || c.late() {
			f.Fatalf("rank %d: Register of %d bytes was refused", e.rank, len(buf))
		}
	}
}

// get reads and waits. tries: how often it may fail.
func (f *fixture) get(e *end, dst []byte, addr, key, cookie uint64) error {
	var err error
	for tries := 1; tries > 0; tries-- {
		if f.unreliable && tries == 1 && err == nil {
			tries = 200
		}
		if err = getOnce(e, dst, addr, key, cookie); err == nil {
			return nil
		}
	}
	return err
}

func getOnce(e *end, dst []byte, addr, key, cookie uint64) error {
	for c := start(); ; {
		state, err := e.link.(transport.Getter).TryGet(dst, addr, key, cookie)
		switch {
		case err != nil:
			return err
		case state == transport.GetDone:
			return nil
		case state == transport.GetStarted:
			m, err := e.next()
			if err != nil {
				return err
			}
			if m.Event != transport.Got || m.Header.ID != cookie {
				return fmt.Errorf("a Get with cookie %d was started; then came event %d, cookie %d", cookie, m.Event, m.Header.ID)
			}
			return m.Err
		case c.late():
			return errors.New("TryGet says GetFull for ever")
		}
		e.poll()
		runtime.Gosched()
	}
}

// getContents reads parts of registered memory into the middle of other memory.
func getContents(f *fixture) {
	a, b := f.getters()
	src := pattern(1<<20+4096, 5)
	addr, key := f.register(a, src)
	const guard = 64
	for i, n := range []int{1, 2, 7, 8, 63, 64, 65, 511, 4095, 4096, 4097, 65537, 1 << 20} {
		for _, off := range []int{0, 1, 63, 64, 2049, 4095} {
			dst := pattern(n+2*guard, 6)
			want := bytes.Clone(dst)
			copy(want[guard:], src[off:off+n])
			if err := f.get(b, dst[guard:guard+n:guard+n], addr+uint64(off), key, uint64(i)); err != nil {
				f.Fatalf("%d bytes at offset %d: %v", n, off, err)
			}
			if !bytes.Equal(dst, want) {
				f.Fatalf("%d bytes at offset %d: wrong contents, or bytes beside them written", n, off)
			}
		}
	}
	a.link.(transport.Getter).Deregister(addr, key)
}

// getMany: many registrations both ways and many reads under way, each completed once.
func getMany(f *fixture) {
	a, b := f.getters()
	const n = 64
	for _, p := range []struct{ owner, reader *end }{{a, b}, {b, a}} {
		var addr, key [n]uint64
		var src, dst [n][]byte
		open := map[uint64]bool{} // started and not yet Got
		for i := range n {
			src[i], dst[i] = pattern(1000+i, uint64(i)), make([]byte, 1000+i)
			addr[i], key[i] = f.register(p.owner, src[i])
		}
		settle := func() {
			for m, ok := p.reader.tryNext(); ok; m, ok = p.reader.tryNext() {
				i := m.Header.ID
				if m.Event != transport.Got || !open[i] {
					f.Fatalf("event %d with cookie %d; that Get is not under way", m.Event, i)
				}
				delete(open, i)
				if m.Err != nil {
					f.must(f.retry(p.reader, m.Err, dst[i], addr[i], key[i]))
				}
			}
		}
		for i := 0; i < n; {
			state, err := p.reader.link.(transport.Getter).TryGet(dst[i], addr[i], key[i], uint64(i))
			switch {
			case err != nil && !f.unreliable:
				f.Fatal(err)
			case err != nil: // once more
			case state == transport.GetStarted:
				open[uint64(i)] = true
				i++
			case state == transport.GetDone:
				i++
			case state == transport.GetFull:
				settle()
			}
		}
		for c := start(); len(open) > 0; settle() {
			if c.late() {
				f.Fatalf("%d Gets were started and never completed", len(open))
			}
		}
		for i := range n {
			if !bytes.Equal(dst[i], src[i]) {
				f.Fatalf("read %d of %d: wrong contents", i, n)
			}
			p.owner.link.(transport.Getter).Deregister(addr[i], key[i])
		}
		f.must(p.reader.quiet())
	}
}

// retry reads synchronously what failed while others are under way: so only where Gets do not complete later.
func (f *fixture) retry(e *end, why error, dst []byte, addr, key uint64) error {
	if !f.unreliable {
		return why
	}
	for c := start(); !c.late(); {
		if state, err := e.link.(transport.Getter).TryGet(dst, addr, key, 1<<40); err == nil && state == transport.GetDone {
			return nil
		} else if err == nil && state == transport.GetStarted {
			for m, err := e.next(); ; m, err = e.next() {
				if err != nil {
					return err
				}
				if m.Header.ID == 1<<40 {
					if m.Err == nil {
						return nil
					}
					break
				}
				defer func() { e.inbox = append(e.inbox, m) }() // another's: for the caller
			}
		}
		e.poll()
	}
	return why
}

// getNothing: zero bytes can be registered and read.
func getNothing(f *fixture) {
	a, b := f.getters()
	for _, src := range [][]byte{nil, {}, pattern(10, 1)[3:3]} {
		addr, key := f.register(a, src)
		f.must(f.get(b, nil, addr, key, 1))
		f.must(f.get(b, []byte{}, addr, key, 2))
		a.link.(transport.Getter).Deregister(addr, key)
	}
}

// getDeregister: memory can be registered again and again, and is never confused with what was there before.
func getDeregister(f *fixture) {
	a, b := f.getters()
	dst := make([]byte, 3000)
	var oldAddr, oldKey uint64
	for i := range uint64(200) {
		src := pattern(3000, i)
		addr, key := f.register(a, src)
		f.must(f.get(b, dst, addr, key, i))
		if !bytes.Equal(dst, src) {
			f.Fatalf("registration %d: wrong contents", i)
		}
		if f.checksKeys && i > 0 {
			if err := getOnce(b, dst, oldAddr, oldKey, 0); err == nil {
				f.Fatalf("registration %d was read after Deregister", i-1)
			}
		}
		a.link.(transport.Getter).Deregister(addr, key)
		oldAddr, oldKey = addr, key
	}
	if f.badKeysEnd {
		f.badKey(a, b, "after Deregister", dst, oldAddr, oldKey)
	}
}

// badKey: a read that must not be granted, after which the connection is over at both ends.
func (f *fixture) badKey(a, b *end, what string, dst []byte, addr, key uint64) {
	f.Helper()
	if err := getOnce(b, dst, addr, key, 1); err == nil {
		f.Errorf("%s: read %d bytes at %#x with key %#x", what, len(dst), addr, key)
		return
	}
	for _, e := range []*end{b, a} {
		if m, err := e.next(); err != nil || m.Event != transport.Down || !errors.Is(m.Err, transport.ErrPeerGone) {
			f.Errorf("%s: rank %d: event %d (%v), %v; want Down and ErrPeerGone", what, e.rank, m.Event, m.Err, err)
		}
	}
}

// badKeys is getBadKey where each is the end of a connection.
func (f *fixture) badKeys() {
	for what, change := range map[string]func(addr, key uint64) (uint64, uint64, int){
		"another key":       func(addr, key uint64) (uint64, uint64, int) { return addr, key ^ 0xff00, 1 },
		"all ones":          func(addr, _ uint64) (uint64, uint64, int) { return addr, 1<<32 - 1, 1 },
		"one byte too many": func(addr, key uint64) (uint64, uint64, int) { return addr, key, 101 },
		"one byte too far":  func(addr, key uint64) (uint64, uint64, int) { return addr + 1, key, 100 },
		"before the start":  func(addr, key uint64) (uint64, uint64, int) { return addr - 1, key, 1 },
		"address 0":         func(_, key uint64) (uint64, uint64, int) { return 0, key, 1 },
		"address wraps":     func(_, key uint64) (uint64, uint64, int) { return ^uint64(0), key, 2 },
	} {
		a, b := f.getters()
		src, dst := pattern(100, 1), make([]byte, 200)
		addr, key := f.register(a, src)
		addr, key, n := change(addr, key)
		f.badKey(a, b, what, dst[:n], addr, key)
		if !bytes.Equal(dst, make([]byte, len(dst))) {
			f.Errorf("%s: something was written", what)
		}
		f.close(a)
		f.close(b)
	}
}

// getBadKey: an error for whatever a peer may ask, and dst is not written beyond.
func getBadKey(f *fixture) {
	if f.badKeysEnd {
		f.badKeys()
		return
	}
	a, b := f.getters()
	if !f.checksKeys {
		f.Skip("this transport does not promise to check keys: transporttest.ChecksKeys")
	}
	src := pattern(100, 1)
	addr, key := f.register(a, src)
	dst := make([]byte, 200)
	for _, c := range []struct {
		what      string
		addr, key uint64
		n         int
	}{
		{"key 0", addr, 0, 1},
		{"another key", addr, key + 1, 1},
		{"all ones", addr, ^uint64(0), 1},
		{"one byte too many", addr, key, 101},
		{"one byte too far", addr + 1, key, 100},
		{"beyond the end", addr + 101, key, 1},
		{"beyond the end, nothing", addr + 101, key, 0},
		{"before the start", addr - 1, key, 1},
		{"address 0", 0, key, 1},
		{"address wraps", ^uint64(0), key, 2},
	} {
		if err := getOnce(b, dst[:c.n], c.addr, c.key, 1); err == nil {
			f.Errorf("%s: read %d bytes at %#x with key %#x of a registration of 100 bytes at %#x", c.what, c.n, c.addr, c.key, addr)
		}
	}
	f.must(f.get(b, dst[:100], addr, key, 1))
	if !bytes.Equal(dst[:100], src) {
		f.Error("a good read after the bad ones: wrong contents")
	}
	// Memory is readable by the peer of the link that registered it.
	if err := getOnce(a, dst[:1], addr, key, 1); err == nil {
		f.Error("rank 0 read with a key of its own what rank 1 has not registered")
	}
}

// getPeerClosed: no crash and no hang when the memory's owner is gone; an error, or in one process still the bytes.
func getPeerClosed(f *fixture) {
	a, b := f.getters()
	src := pattern(100, 1)
	addr, key := f.register(a, src)
	f.close(a)
	dst := make([]byte, 100)
	if err := getOnce(b, dst, addr, key, 1); err == nil && !bytes.Equal(dst, src) {
		f.Error("the peer is gone, TryGet gave no error and other bytes")
	}
	runtime.KeepAlive(src)
}

// memory: what a transport.Memory allocates.
func memory(f *fixture) {
	a, b := f.linked()
	m, ok := a.dev.(transport.Memory)
	if !ok {
		f.Skip("the device is no transport.Memory")
	}
	for _, n := range []int{1, 4096, 100_001} {
		mem, err := m.Alloc(n)
		f.must(err)
		if len(mem) != n || !bytes.Equal(mem, make([]byte, n)) {
			f.Fatalf("Alloc(%d): %d bytes, not all zero", n, len(mem))
		}
		fill(mem, 9)
		if !f.noGet {
			addr, key := f.register(a, mem)
			for range 3 { // the first may go another way than later ones
				dst := make([]byte, n)
				if err := f.get(b, dst, addr, key, 1); err != nil || !bytes.Equal(dst, mem) {
					f.Fatalf("reading %d bytes of Alloc: wrong contents, or %v", n, err)
				}
			}
			a.link.(transport.Getter).Deregister(addr, key)
		}
		f.must(m.Free(mem))
	}
	for _, n := range []int{-1, 1 << 60} {
		if mem, err := m.Alloc(n); err == nil || err.Error() == "" {
			f.Errorf("Alloc(%d) gave %d bytes and error %v", n, len(mem), err)
		}
	}
	if err := m.Free(make([]byte, 10)); err == nil {
		f.Error("Free took memory that Alloc did not give")
	}
	if mem, err := m.Alloc(0); err == nil {
		f.must(m.Free(mem))
	}
}
