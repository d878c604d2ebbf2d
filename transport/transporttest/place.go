package transporttest

import (
	"bytes"
	"fmt"
	"runtime"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// lender and placer return the optional sides of a link, or end the test: most transports have none.
func (f *fixture) lender(e *end) transport.Lender {
	l, ok := e.link.(transport.Lender)
	if !ok {
		f.Skip("the link is no transport.Lender")
	}
	return l
}

func (f *fixture) placer(e *end) transport.Placer {
	l, ok := e.link.(transport.Placer)
	if !ok {
		f.Skip("the link is no transport.Placer")
	}
	return l
}

// pieces collects what Placed says about one stream until want bytes are there: in order, without gaps.
func (e *end) pieces(key uint64, gen int32, from, want int) error {
	for at, c := from, start(); at < from+want; {
		m, ok := e.tryNext()
		if !ok {
			if runtime.Gosched(); c.late() {
				return fmt.Errorf("rank %d: %d of %d bytes were placed", e.rank, at-from, want)
			}
			continue
		}
		h := m.Header
		if m.Event != transport.Placed || h.Key != key || h.Tag != gen || h.Addr != uint64(at) || h.Len == 0 || h.Len > uint64(from+want-at) {
			return fmt.Errorf("rank %d: event %d, %+v where byte %d of stream %d.%d was due", e.rank, m.Event, h, at, key, gen)
		}
		at += int(h.Len)
		c = start()
	}
	return nil
}

// lend sends parts of body from offset from on, each at most part long, polling in between as an engine does.
func (e *end) lend(l transport.Lender, key uint64, gen int32, body []byte, from, part int) error {
	for at, c := from, start(); at < len(body); {
		n := min(part, len(body)-at)
		h := wire.Header{Kind: wire.Data, Flags: wire.Urgent, Key: key, Tag: gen, Addr: uint64(at)}
		if l.TryLend(&h, body[at:at+n]) {
			at += n
			c = start()
			continue
		}
		e.poll()
		if runtime.Gosched(); c.late() {
			return fmt.Errorf("rank %d: TryLend has been refused for %v", e.rank, patience)
		}
	}
	return nil
}

// marker is sent behind something whose end has no packet of its own.
func (e *end) marker(id uint64) error { return e.send(wire.Header{Kind: wire.FIN, ID: id}, nil) }

// untilClosed polls, so that what was taken goes out, until stop is closed.
func (e *end) untilClosed(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
			e.poll()
			runtime.Gosched()
		}
	}
}

// lentIsPlaced: whatever the sizes, what is lent is where Place said, and nothing around it has changed.
func lentIsPlaced(f *fixture) {
	a, b := f.linked()
	l, p := f.lender(a), f.placer(b)
	most := l.Caps().LendMax
	for i, c := range []struct{ size, from, part int }{{1, 0, 1}, {100, 10, 7}, {most + 1, 0, most}, {5 * most, 3, most}, {3 * most / 2, most / 3, most / 7}} {
		key, gen := uint64(i+1)<<32|77, int32(i)
		body, dst := pattern(c.size, uint64(i)), make([]byte, c.size)
		p.Place(key, gen, dst, int64(c.from))
		done := make(chan struct{})
		f.drive(func() error {
			defer a.untilClosed(done)
			return a.lend(l, key, gen, body, c.from, c.part)
		}, func() error {
			defer close(done)
			return b.pieces(key, gen, c.from, c.size-c.from)
		})
		p.Displace(key)
		if !bytes.Equal(dst[c.from:], body[c.from:]) {
			f.Fatalf("%+v: the contents differ", c)
		}
		if !bytes.Equal(dst[:c.from], make([]byte, c.from)) {
			f.Fatalf("%+v: something was written in front of it", c)
		}
	}
}

// placedAmongOthers: other packets come through in their order while a stream is placed.
func placedAmongOthers(f *fixture) {
	a, b := f.linked()
	l, p := f.lender(a), f.placer(b)
	body, dst := pattern(1<<20, 5), make([]byte, 1<<20)
	p.Place(9, 1, dst, 0)
	done := make(chan struct{})
	f.drive(func() error {
		defer a.untilClosed(done)
		for at := 0; at < len(body); at += 32 << 10 {
			if err := a.lend(l, 9, 1, body[:at+32<<10], at, 32<<10); err != nil {
				return err
			}
			if err := a.send(wire.Header{Kind: wire.Eager, Tag: int32(at)}, body[at:at+100]); err != nil {
				return err
			}
		}
		return nil
	}, func() error {
		defer close(done)
		for at := 0; at < len(body); at += 32 << 10 {
			if err := b.pieces(9, 1, at, 32<<10); err != nil {
				return err
			}
			m, err := b.nextPacket()
			if err != nil || m.Header.Tag != int32(at) || !bytes.Equal(m.body, body[at:at+100]) {
				return fmt.Errorf("the packet behind byte %d: %+v, %w", at, m.Header, err)
			}
		}
		return nil
	})
	if !bytes.Equal(dst, body) {
		f.Fatal("the contents differ")
	}
}

// displacedIsLeftAlone: after Displace nothing is written there, and what follows arrives.
func displacedIsLeftAlone(f *fixture) {
	a, b := f.linked()
	l, p := f.lender(a), f.placer(b)
	body, dst := pattern(l.Caps().LendMax, 6), make([]byte, l.Caps().LendMax)
	p.Place(3, 1, dst, 0)
	done := make(chan struct{})
	f.drive(func() error {
		defer a.untilClosed(done)
		if err := a.lend(l, 3, 1, body, 0, len(body)); err != nil {
			return err
		}
		return a.marker(4)
	}, func() error {
		defer close(done)
		m, err := b.next() // the first piece
		if err != nil || m.Event != transport.Placed {
			return fmt.Errorf("event %d, %w", m.Event, err)
		}
		p.Displace(3)
		clear(dst)
		for {
			m, err := b.next()
			if err != nil {
				return err
			}
			if m.Event == transport.Arrived && m.Header.Kind == wire.FIN {
				return nil
			}
		}
	})
	if !bytes.Equal(dst, make([]byte, len(dst))) {
		f.Error("something was written after Displace")
	}
}

// placeRefusesOutside: a fragment for bytes that are not its business is not written there.
func placeRefusesOutside(f *fixture) {
	a, b := f.linked()
	p := f.placer(b)
	mem := make([]byte, 300)
	p.Place(5, 1, mem[:200], 100)
	for i, h := range []wire.Header{{Key: 5, Tag: 1, Addr: 50}, {Key: 5, Tag: 1, Addr: 150}, {Key: 5, Tag: 2, Addr: 100}, {Key: 6, Tag: 1, Addr: 100}, {Key: 5, Tag: 1, Addr: 1 << 63}} {
		h.Kind = wire.Data
		f.must(a.send(h, pattern(100, 1)))
		f.must(a.marker(uint64(i)))
		for {
			m, err := b.next()
			f.must(err)
			if m.Event == transport.Placed {
				f.Fatalf("%+v was placed", h)
			}
			if m.Header.Kind == wire.FIN {
				break
			}
		}
	}
	if !bytes.Equal(mem, make([]byte, len(mem))) {
		f.Error("a fragment was written where it does not belong")
	}
}

// roomIsTold: a link that tells says so once there is room again, and wakes who sleeps.
func roomIsTold(f *fixture) {
	a, b := f.linked()
	if !a.link.Caps().TellsRoom {
		f.Skip("the link does not say when it has room")
	}
	h, body := wire.Header{Kind: wire.Data}, pattern(a.link.Caps().FragMax, 1)
	sent := 0
	for a.link.TrySend(&h, body) {
		sent++
	}
	done := make(chan struct{})
	f.drive(func() error {
		w := watch(f, a)
		for {
			for _, p := range a.pkts[:a.dev.Poll(a.pkts)] {
				if p.Event == transport.Room && int(p.Peer) == a.peer {
					close(done)
					return nil
				}
			}
			if a.dev.Arm(transport.Any, true) {
				a.dev.Park(true)
				a.dev.Disarm()
			}
			if w.Fired() {
				close(done)
				return fmt.Errorf("%d packets went out and no word of room came", sent)
			}
		}
	}, func() error {
		b.untilClosed(done)
		return nil
	})
	if !a.link.TrySend(&h, nil) {
		f.Error("the link says that it has room, and refuses")
	}
}
