package pml

import (
	"fmt"
	"slices"
	"time"

	"github.com/gorun-mpi/mpi/accel"
)

// Streams of the program. A call with a buffer that is ordered by a stream marks the place where the stream is, and the
// message touches the buffer when the stream has come there. Until then the message takes no pinned memory and starts
// no copy: it holds up no other one, whatever the program has put on its stream. The copies have ended when the request
// has, so that the stream need not wait for them.
//
// Nothing on a device waits for a mark, so no device says when the stream has come there. Poll asks, as it asks for the
// ends of copies; while the rank sleeps the bell rings for it to ask.

// While messages wait for streams, a rank that sleeps wakes to ask after a part of the time that they have waited.
const (
	askPart  = 8
	askFirst = 50 * time.Microsecond
	askLast  = time.Millisecond
)

// mark is a place on the user's stream. Its owner is the call that has made it, then the deviceOp.
type mark struct {
	event  accel.Event // 0: there is none, or the stream has come there
	number uint64      // marks of one stream are reached in the order of their numbers
	stands bool        // the deviceOp waits for it, in accelerators.streams
	err    error       // the stream has failed
}

// userStream is a stream of the program with the operations that wait for it, in the order of their marks. Only the
// first is asked about.
type userStream struct {
	device int
	stream uint64
	ops    []*deviceOp
}

// useBuffer returns what a message in b needs. The lock is not held: a driver whose stream is full blocks its caller.
func (e *Engine) useBuffer(b *accel.Buffer) (*accelerators, mark, error) {
	a, err := e.useAccelerator(b.Driver)
	if err != nil || !b.Ordered {
		return a, mark{}, err
	}
	ev, err := a.driver.Mark(b.Memory.Device, b.Stream)
	if err != nil {
		return a, mark{}, streamError(b, err)
	}
	// The number is drawn after Mark has returned: what the program puts on the stream after one call, and before
	// another one's mark, is then between their numbers too.
	return a, mark{event: ev, number: a.marks.Add(1)}, nil
}

// streamError is what a driver has answered of the user's stream.
func streamError(b *accel.Buffer, err error) error {
	return deviceError(fmt.Sprintf("waiting for the stream %#x of On", b.Stream), err)
}

// dropMark gives up a mark of b that no message waits for.
func (a *accelerators) dropMark(b *accel.Buffer, m mark) {
	if m.event != 0 {
		a.driver.Drop(b.Memory.Device, m.event)
	}
}

// mayTouch reports whether the buffer may be touched. If not, o goes on in reached, or has failed.
func (o *deviceOp) mayTouch() bool {
	switch {
	case o.passed():
		return true
	case o.mark.err != nil:
		o.unreachable()
	case !o.mark.stands:
		o.stand()
	}
	return false
}

// passed reports whether the stream has come to the mark, or there is none.
func (o *deviceOp) passed() bool {
	if o.mark.event != 0 && !o.mark.stands {
		o.asks()
	}
	return o.mark.event == 0 && o.mark.err == nil
}

// asks reports whether the stream has come to the mark, or has failed. Then the mark has no event any more.
func (o *deviceOp) asks() bool {
	over, err := o.a.driver.Done(o.b.Memory.Device, o.mark.event)
	if over || err != nil {
		o.mark.event, o.mark.err = 0, err
	}
	return o.mark.event == 0
}

// stand has o wait for its mark.
func (o *deviceOp) stand() {
	a := o.a
	o.mark.stands = true
	i := slices.IndexFunc(a.streams, func(s *userStream) bool {
		return s.device == o.b.Memory.Device && s.stream == o.b.Stream
	})
	if i < 0 {
		i = len(a.streams)
		a.streams = append(a.streams, &userStream{device: o.b.Memory.Device, stream: o.b.Stream})
	}
	s := a.streams[i]
	at := len(s.ops)
	for at > 0 && s.ops[at-1].mark.number > o.mark.number {
		at--
	}
	s.ops = slices.Insert(s.ops, at, o)
	a.since = time.Now()
	a.begins()
}

// unmark gives up the mark of an operation that touches its buffer no more.
func (o *deviceOp) unmark() {
	if o.mark.event == 0 {
		return
	}
	o.a.dropMark(&o.b, o.mark)
	o.mark.event = 0
	if o.mark.stands {
		o.sits()
	}
}

// sits takes o off the operations that wait.
func (o *deviceOp) sits() {
	a := o.a
	o.mark.stands = false
	for i, s := range a.streams {
		if at := slices.Index(s.ops, o); at >= 0 {
			if s.ops = slices.Delete(s.ops, at, at+1); len(s.ops) == 0 {
				a.streams = slices.Delete(a.streams, i, i+1)
			}
			break
		}
	}
	a.since = time.Now()
	a.ends()
}

// pollStreams goes on with the operations whose streams have come to their marks. It returns how many.
func (a *accelerators) pollStreams() (n int) {
	for i := 0; i < len(a.streams); {
		o := a.streams[i].ops[0]
		if !o.asks() {
			i++
			continue
		}
		n++
		o.sits()
		o.reached()
		i = 0 // the list may be another
	}
	return n
}

// reached goes on with an operation whose stream has come to its mark, or has failed.
func (o *deviceOp) reached() {
	t := o.r.transfer
	switch {
	case o.mark.err != nil:
		o.unreachable()
	case len(o.rest) > 0:
		o.landRest()
	case o.over || t == nil || t.failed != nil:
	case o.r.op == opSend:
		o.a.e.links.worklist.set(jobStream, t, t.snd.Streaming())
		if o.share.held {
			o.share.held = false
			o.answer()
		}
		if len(o.r.pieces.targets) > 0 {
			o.fillTargets(t.peer.shares.pool)
		}
	default:
		o.fetch(t)
	}
	o.settle()
}

// unreachable ends an operation that waits for a stream that has failed.
func (o *deviceOp) unreachable() {
	err, t := streamError(&o.b, o.mark.err), o.r.transfer
	switch {
	case len(o.rest) > 0:
		o.rest = nil
		o.r.fails(err)
	case o.over || t == nil || t.failed != nil:
	case o.r.op == opSend:
		o.breaks(err)
	default:
		o.r.fails(err)
		o.a.e.links.transfers.onReceiver(t, t.rcv.Over())
	}
}

// askLater has the bell wake a rank that is about to sleep, to ask for the streams: the later, the longer nothing has
// happened.
func (a *accelerators) askLater() {
	if len(a.streams) == 0 {
		return
	}
	a.bell.Within(min(max(time.Since(a.since)/askPart, askFirst), askLast))
}

// leaveStreams is for finish: no operation waits for a stream any more.
func (a *accelerators) leaveStreams() {
	for len(a.streams) > 0 {
		o := a.streams[0].ops[0]
		o.unmark()
		o.rest = nil
		o.r.fails(a.e.closed)
		o.settle()
	}
}
