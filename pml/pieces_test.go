package pml

import (
	"math"
	"testing"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// spread is a message in every second byte of mem.
type spread struct {
	mem   []byte
	packs int   // calls of Pack
	upTo  int64 // Unpack takes bytes before this one
	taken int64
}

func (s *spread) Pack(dst []byte, from int64) {
	s.packs++
	for i := range dst {
		dst[i] = s.mem[2*(from+int64(i))]
	}
}

func (s *spread) Unpack(src []byte, from int64) bool {
	if from != s.taken || from >= s.upTo {
		return false
	}
	for i, b := range src {
		s.mem[2*(from+int64(i))] = b
	}
	s.taken += int64(len(src))
	return true
}

// A message that lies in pieces is packed a fragment at a time, each once however often the link refuses it, and what
// its receiver does not take of them goes into the buffer. Neither end reads or writes the other's memory for it.
func TestPieces(t *testing.T) {
	for _, taken := range []int64{0, 2000, 5000} {
		watchdog(t)
		n := newTestNet(netOptions{ranks: 2, eagerMax: 100, fragMax: 1000, unexpectedMax: 64 << 10, put: true})
		n.linkAll()
		const size = 5000
		from, to := &spread{mem: make([]byte, 2*size)}, &spread{mem: make([]byte, 2*size), upTo: taken}
		buf := make([]byte, size)
		for i := range from.mem {
			from.mem[i] = byte(i >> 1 * 7)
		}
		s := n.engines[0].IsendPieces(nil, 0, 1, 7, size, from)
		if s == nil {
			t.Fatal("the link copies fragments, and the message is to be sent whole")
		}
		n.rooms[[2]int{0, 1}] = 1
		r := n.engines[1].IrecvPieces(nil, 0, 0, 7, buf, to)
		for range 40 {
			n.deliver(1, math.MaxInt)
			n.devices[0].tellRoom()
			n.deliver(0, math.MaxInt)
		}
		for _, q := range []*Request{s, r} {
			if done, st, err := q.Test(); !done || err != nil || st.Bytes != size {
				t.Fatalf("done %v, %+v, %v", done, st, err)
			}
		}
		if from.packs != 5 || to.taken != taken {
			t.Errorf("packed %d times, and %d bytes taken; want 5 and %d", from.packs, to.taken, taken)
		}
		for i := range int64(size) {
			got := buf[i]
			if i < taken {
				got = to.mem[2*i]
			}
			if got != from.mem[2*i] || i < taken && buf[i] != 0 {
				t.Fatalf("byte %d of %d is %d, want %d", i, taken, got, from.mem[2*i])
			}
		}
		n.close()
	}
}

// What is sent in pieces is refused where it has to be one: short, to a rank that is not connected, or over a link that
// lends memory. A receiver that asks for WRITEs of it gets none, and the stream that it asks for then.
func TestPiecesRefused(t *testing.T) {
	watchdog(t)
	for _, lends := range []bool{false, true} {
		n := newTestNet(netOptions{ranks: 2, eagerMax: 100, fragMax: 1000, unexpectedMax: 64 << 10, put: true,
			lends: lends})
		n.hostile = true
		e, from := n.engines[0], &spread{mem: make([]byte, 20_000)}
		if e.IsendPieces(nil, 0, 1, 7, 5000, from) != nil {
			t.Error("rank 1 is not connected")
		}
		n.linkAll()
		if e.IsendPieces(nil, 0, 1, 7, 100, from) != nil {
			t.Error("the message is eager")
		}
		r := e.IsendPieces(nil, 0, 1, 7, 5000, from)
		if (r == nil) != lends {
			t.Fatalf("lends %v: the request is %v", lends, r)
		}
		if r != nil {
			id := r.transfer.id
			for _, h := range []wire.Header{{Kind: wire.PutReq, ID: id, Key: 1, Len: 5000},
				{Kind: wire.CTS, ID: id, Key: 1, Len: 5000}, {Kind: wire.FIN, ID: id}} {
				n.wires[[2]int{1, 0}] = append(n.wires[[2]int{1, 0}], transport.Packet{Peer: 1, Header: h})
			}
			n.deliver(0, math.MaxInt)
			if done, _, err := r.Test(); !done || err != nil || from.packs != 5 {
				t.Errorf("done %v, %v, packed %d times", done, err, from.packs)
			}
			sent := n.onWire(0, 1)
			if len(sent) != 7 || sent[1].Header.Kind != wire.PutDone || sent[1].Header.Len != 0 ||
				len(sent[2].Payload) != 1000 || sent[0].Header.Flags&wire.Readable != 0 {
				t.Errorf("rank 0 has sent %d packets, first %v and %v", len(sent), sent[0].Header, sent[1].Header)
			}
		}
		n.close()
	}
}
