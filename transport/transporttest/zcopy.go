package transporttest

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// placement is a stream that a sends without copies and b receives in place.
type placement struct {
	f    *fixture
	a, b *end
	key  uint64
	gen  int32
	dst  []byte
}

// announceStream announces the stream to its receiver.
func (f *fixture) announceStream(a, b *end, key uint64, gen int32, size, from int) *placement {
	s := &placement{f, a, b, key, gen, make([]byte, size)}
	b.link.Caps().ZeroCopy.Place(key, gen, transport.HostMem(s.dst), int64(from))
	return s
}

// pieces collects what Placed says until the bytes from … to are there: in order, without gaps. Where the transport
// may leave out placing, a fragment comes as a packet, which is put where it belongs.
func (s *placement) pieces(from, to int) error {
	for at, c := from, start(); at < to; {
		p, ok := s.b.tryNext()
		if !ok {
			if runtime.Gosched(); c.late() {
				return fmt.Errorf("%d of %d bytes were placed", at-from, to-from)
			}
			continue
		}
		h := p.Header
		if s.f.unreliable && p.Event == transport.Arrived && h.Kind == wire.Data && h.Addr <= uint64(to) {
			p.Event, h.Len = transport.Placed, uint64(copy(s.dst[h.Addr:to], p.Payload))
		}
		if p.Event != transport.Placed || h.Key != s.key || h.Tag != s.gen ||
			h.Addr != uint64(at) || h.Len == 0 || h.Len > uint64(to-at) {
			return fmt.Errorf("event %d, %+v where byte %d of stream %d.%d was due", p.Event, h, at, s.key, s.gen)
		}
		at += int(h.Len)
		c = start()
	}
	return nil
}

// send sends body from offset from on, at most part at once, polling in between as an engine does. It lends a copy,
// which it overwrites as soon as the link has let go of it.
func (s *placement) send(body []byte, from, part int) error {
	body = bytes.Clone(body)
	for at, c := from, start(); at < len(body); {
		n := min(part, len(body)-at)
		h := wire.Header{Kind: wire.Data, Flags: wire.Urgent, Key: s.key, Tag: s.gen, Addr: uint64(at)}
		if s.a.link.Caps().ZeroCopy.Send(&h, transport.HostMem(body[at:at+n])) {
			at += n
			c = start()
			continue
		}
		s.a.poll()
		if runtime.Gosched(); c.late() {
			return fmt.Errorf("ZeroCopy.Send has been refused for %v", patience)
		}
	}
	if err := s.released(); err != nil {
		return err
	}
	clear(body)
	return nil
}

// released returns when the link reads nothing any more, of which Room tells if it still does.
func (s *placement) released() error {
	for z, c := s.a.link.Caps().ZeroCopy, start(); z.Reads(); {
		for s.a.rooms() == 0 {
			if runtime.Gosched(); c.late() {
				return fmt.Errorf("a payload that was taken has been read for %v, and there was no Room", patience)
			}
		}
	}
	return nil
}

// carry runs both sides. The sender polls until the receiver has all: what was taken may not have gone out.
func (s *placement) carry(send, receive func() error) {
	s.f.Helper()
	done := make(chan struct{})
	s.f.drive(func() error {
		defer s.a.untilClosed(done)
		return send()
	}, func() error {
		defer close(done)
		return receive()
	})
}

// displace ends it and compares what is there with want.
func (s *placement) displace(want []byte) {
	s.f.Helper()
	s.b.link.Caps().ZeroCopy.Displace(s.key)
	if !bytes.Equal(s.dst, want) {
		s.f.Fatalf("a stream of %d bytes: the contents differ, or something was written in front of them", len(want))
	}
}

// zeroCopyContents checks that whatever the sizes, what is sent is where Place said, and nothing around it has changed.
func zeroCopyContents(f *fixture) {
	a, b := f.linked()
	most := a.link.Caps().ZeroCopy.Max
	for i, c := range []struct{ size, from, part int }{
		{1, 0, 1}, {100, 10, 7}, {most + 1, 0, most}, {5 * most, 3, most}, {3 * most / 2, most / 3, most / 7},
	} {
		s := f.announceStream(a, b, uint64(i+1)<<32|77, int32(i), c.size, c.from)
		body := pattern(c.size, uint64(i))
		s.carry(func() error { return s.send(body, c.from, c.part) }, func() error { return s.pieces(c.from, c.size) })
		clear(body[:c.from])
		s.displace(body)
	}
}

// zeroCopyAmongOthers checks that other packets come through in their order while a stream is placed.
func zeroCopyAmongOthers(f *fixture) {
	a, b := f.linked()
	const size, part = 1 << 20, 32 << 10
	s, body := f.announceStream(a, b, 9, 1, size, 0), pattern(size, 5)
	s.carry(func() error {
		for at := 0; at < size; at += part {
			if err := s.send(body[:at+part], at, part); err != nil {
				return err
			}
			if err := a.send(wire.Header{Kind: wire.Eager, Tag: int32(at)}, body[at:at+100]); err != nil {
				return err
			}
		}
		return nil
	}, func() error {
		for at := 0; at < size; at += part {
			if err := s.pieces(at, at+part); err != nil {
				return err
			}
			p, err := b.nextPacket()
			if err != nil || p.Header.Tag != int32(at) || !bytes.Equal(p.Payload, body[at:at+100]) {
				return fmt.Errorf("the packet behind byte %d: %+v, %w", at, p.Header, err)
			}
		}
		return nil
	})
	s.displace(body)
}

// displacedIsLeftAlone checks that after Displace nothing is written there, be it of a fragment that has begun to
// arrive or of a later one, and what follows arrives.
func displacedIsLeftAlone(f *fixture) {
	a, b := f.linked()
	most := a.link.Caps().ZeroCopy.Max
	s, body := f.announceStream(a, b, 3, 1, 2*most, 0), pattern(2*most, 6)
	displaced := make(chan struct{})
	s.carry(func() error {
		err := s.send(body[:most], 0, most)
		a.untilClosed(displaced)
		return errors.Join(err, s.send(body, most, most), a.send(wire.Header{Kind: wire.FIN}, nil))
	}, func() error {
		p, err := b.next() // the first piece
		if err == nil && p.Event != transport.Placed && !f.unreliable {
			err = fmt.Errorf("event %d, want Placed", p.Event)
		}
		b.link.Caps().ZeroCopy.Displace(s.key)
		clear(s.dst)
		close(displaced)
		for err == nil && p.Header.Kind != wire.FIN {
			p, err = b.next()
		}
		return err
	})
	s.displace(make([]byte, 2*most))
}

// placeRefusesOutside checks that a fragment for bytes that are not its business is not written there.
func placeRefusesOutside(f *fixture) {
	a, b := f.linked()
	mem := make([]byte, 300)
	b.link.Caps().ZeroCopy.Place(5, 1, transport.HostMem(mem[:200]), 100)
	for i, h := range []wire.Header{
		{Key: 5, Tag: 1, Addr: 50}, {Key: 5, Tag: 1, Addr: 150}, {Key: 5, Tag: 1, Addr: 1 << 63},
		{Key: 5, Tag: 2, Addr: 100}, {Key: 6, Tag: 1, Addr: 100},
	} {
		h.Kind = wire.Data
		f.must(a.send(h, pattern(100, 1)))
		p, err := b.nextPacket()
		if f.must(err); p.Header != h || !bytes.Equal(p.Payload, pattern(100, 1)) {
			f.Errorf("fragment %d, %+v, came as %+v with %d bytes", i, h, p.Header, len(p.Payload))
		}
	}
	if !bytes.Equal(mem, make([]byte, len(mem))) {
		f.Error("a fragment was written where it does not belong")
	}
}
