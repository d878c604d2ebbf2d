package eager

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/wire"
)

// testLink takes as many packets as it has room for.
type testLink struct {
	room int
	sent []wire.Header
	data [][]byte
}

func (l *testLink) TrySend(h *wire.Header, payload []byte) bool {
	if l.room == 0 {
		return false
	}
	l.room--
	l.sent = append(l.sent, *h)
	l.data = append(l.data, bytes.Clone(payload))
	return true
}

// What a Sender lets pass, what it takes of the credit, and that a refusal leaves nothing behind.
func TestSender(t *testing.T) {
	var s Sender
	s.Disable()
	if s.Max != -1 {
		t.Fatalf("without a link messages of %d bytes may pass", s.Max)
	}
	l := &testLink{}
	s.Connect(l, 10_000, 1000, 100)
	if s.Max != -1 || s.Limit() != 1000 {
		t.Fatalf("connected, not enabled: %+v", s)
	}
	if s.Enable(); s.Max != 1000 || s.Limit() != 1000 {
		t.Fatalf("enabled: %+v", s)
	}
	for n, want := range map[int]bool{0: false, 100: false, 101: true, 1000: true, 1001: false} {
		if s.Measured(n) != want {
			t.Errorf("%d bytes: measured is %v", n, !want)
		}
	}
	if s.Disable(); s.Measured(500) || s.Sure != -1 {
		t.Fatalf("disabled: %+v", s)
	}
	s.Enable()
	if s.Send(1, 2, []byte("full")) || s.credit != 10_000 {
		t.Fatalf("a full link has taken a message, or %d bytes of credit", 10_000-s.credit)
	}
	if s.TakeEnvelope(); s.SendPaid(wire.Header{Kind: wire.RTS}, nil, Envelope) || s.credit != 10_000 {
		t.Fatalf("a full link has taken an RTS, or %d bytes of credit", 10_000-s.credit)
	}
	l.room = 100
	s.Came()
	if !s.Send(1, 2, []byte("message")) || s.credit != 10_000-Cost(7) || string(l.data[0]) != "message" ||
		l.sent[0] != (wire.Header{Kind: wire.Eager, Ctx: 1, Tag: 2}) {
		t.Fatalf("sent %+v, %d bytes of credit left", l.sent, s.credit)
	}
	if s.TakeEnvelope(); !s.SendPaid(wire.Header{Kind: wire.RTS, ID: 9}, nil, Envelope) || l.sent[1].ID != 9 {
		t.Fatalf("sent %+v", l.sent)
	}
	if !s.Send(3, 4, nil) || !l.sent[2].More || l.sent[2].Kind != wire.Eager || l.sent[2].Ctx != 3 || l.sent[2].Tag != 4 {
		t.Fatalf("sent %+v", l.sent)
	}
	for s.Send(1, 2, make([]byte, 1000)) {
	}
	if l.room == 0 {
		t.Error("the credit has no end")
	}
}

// What is kept of a message is what came, its bytes are counted, and its buffer is used again.
func TestStore(t *testing.T) {
	s := Store{Pool: Pool{Keep: 1 << 20}}
	for _, c := range []struct {
		h       wire.Header
		payload string
		want    Unexpected
	}{
		{wire.Header{Kind: wire.Eager, ID: 5, Key: 6}, "short", Unexpected{Kind: wire.Eager, Size: 5, Cost: Cost(5)}}, // its ID is rubbish
		{wire.Header{Kind: wire.EagerSync, ID: 5}, "sync", Unexpected{Kind: wire.EagerSync, Size: 4, Cost: Cost(4), ID: 5}},
		{wire.Header{Kind: wire.RTS, Flags: wire.Readable, ID: 5, Len: 1 << 40, Addr: 7, Key: 8}, "",
			Unexpected{Kind: wire.RTS, Flags: wire.Readable, Size: 1 << 40, Cost: Envelope, ID: 5, Addr: 7, Key: 8}},
		{wire.Header{Kind: wire.Eager}, "", Unexpected{Kind: wire.Eager, Cost: Cost(0)}},
		{wire.Header{Kind: wire.Eager}, strings.Repeat("a", 64), Unexpected{Kind: wire.Eager, Size: 64, Cost: Cost(64)}},
		{wire.Header{Kind: wire.Eager}, strings.Repeat("b", 65), Unexpected{Kind: wire.Eager, Size: 65, Cost: Cost(65)}},
	} {
		u := Unexpected{ID: 99, Addr: 99, Key: 99, Size: 99}
		s.Keep(&u, &c.h, []byte(c.payload))
		if string(u.Payload) != c.payload || s.Bytes != c.want.Cost {
			t.Errorf("%v: %q is kept, %d bytes", c.h.Kind, u.Payload, s.Bytes)
		}
		if rts := u.RTS(); c.h.Kind == wire.RTS && rts != c.h {
			t.Errorf("announced by %+v, said to be by %+v", c.h, rts)
		}
		s.Release(&u)
		if u.Payload != nil || s.Bytes != 0 {
			t.Errorf("%v: after its release %q is kept, %d bytes", c.h.Kind, u.Payload, s.Bytes)
		}
		c.want.Payload = nil
		if u.Kind != c.want.Kind || u.Flags != c.want.Flags || u.Size != c.want.Size || u.Cost != c.want.Cost || u.ID != c.want.ID || u.Addr != c.want.Addr || u.Key != c.want.Key {
			t.Errorf("kept %+v, want %+v", u, c.want)
		}
	}
	if s.Peak != Cost(65) || int64(s.kept) != Cost(65)-Envelope {
		t.Errorf("at most %d bytes were kept, %d are for reuse", s.Peak, s.kept)
	}
}
