package bench

import (
	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
)

// element is what the messages of -T are made of. Bytes have code of their own, which is what is measured without -T.
type element interface{ int32 | float32 }

// PingPong is the side of a rank in a ping-pong of messages of the options' type.
func PingPong(j *Job, partner int, serves bool) (Rounds, error) {
	switch j.Options.Type {
	case harness.Int:
		return newTypedPair[int32](j, partner, serves)
	case harness.Float:
		return newTypedPair[float32](j, partner, serves)
	}
	return NewPair(j, partner, serves)
}

// WindowRounds runs rounds of a window of messages, which can be narrower than the window of the options.
type WindowRounds interface {
	Rounds
	// Narrow makes the window one of n messages, at most the options' Window. Resize comes after it.
	Narrow(n int)
}

// Windows is the side of a rank that sends windows of messages of the options' type to its partner, or receives them.
func Windows(j *Job, partner int, sends bool) (WindowRounds, error) {
	switch j.Options.Type {
	case harness.Int:
		return newTypedWindow[int32](j, partner, sends)
	case harness.Float:
		return newTypedWindow[float32](j, partner, sends)
	}
	return NewWindow(j, partner, sends)
}

// typed is what the two have in common: buffers of elements.
type typed[T element] struct {
	world   *mpi.Comm
	partner int
	first   bool // sends first, or all
	whole   [][]T
	buffers [][]T // of the present size
}

func newTyped[T element](j *Job, partner int, first bool, buffers int) *typed[T] {
	t := &typed[T]{world: j.World, partner: partner, first: first, buffers: make([][]T, buffers)}
	for range buffers {
		t.whole = append(t.whole, make([]T, j.Options.MaxSize/harness.ElementSize))
	}
	return t
}

// Resize implements Rounds.
func (t *typed[T]) Resize(size int64) error {
	for i := range t.buffers {
		t.buffers[i] = t.whole[i][:size/harness.ElementSize]
	}
	return nil
}

// fill and wrong are the patterns of a round.
func (t *typed[T]) fill(b []T, round, sender int) {
	for i := range b {
		b[i] = T((round*7 + sender*3 + i) % 1021)
	}
}

func (t *typed[T]) wrong(b []T, round, sender int) int64 {
	for i := range b {
		if b[i] != T((round*7+sender*3+i)%1021) {
			return 1
		}
	}
	return 0
}

type typedPair[T element] struct{ *typed[T] }

func newTypedPair[T element](j *Job, partner int, serves bool) (Rounds, error) {
	return typedPair[T]{newTyped[T](j, partner, serves, 2)}, nil
}

// Play implements Rounds.
func (p typedPair[T]) Play(n int) error {
	if p.partner == NoPartner {
		return nil
	}
	world, send, recv, partner := p.world, p.buffers[0], p.buffers[1], p.partner
	for range n {
		if p.first {
			if err := mpi.Send(world, send, partner, PingTag); err != nil {
				return err
			}
		}
		if _, err := mpi.Recv(world, recv, partner, PingTag); err != nil {
			return err
		}
		if !p.first {
			if err := mpi.Send(world, send, partner, PingTag); err != nil {
				return err
			}
		}
	}
	return nil
}

// Fill implements Rounds.
func (p typedPair[T]) Fill(round int) {
	p.fill(p.buffers[0], round, p.world.Rank())
	clear(p.buffers[1])
}

// Check implements Rounds.
func (p typedPair[T]) Check(round int) int64 {
	if p.partner == NoPartner {
		return 0
	}
	return p.wrong(p.buffers[1], round, p.partner)
}

type typedWindow[T element] struct {
	*typed[T]
	requests []*mpi.Request
	answer   [4]byte
	ahead    bool
}

func newTypedWindow[T element](j *Job, partner int, sends bool) (WindowRounds, error) {
	buffers := 1
	if j.Options.Multiple {
		buffers = j.Options.Window
	}
	return &typedWindow[T]{typed: newTyped[T](j, partner, sends, buffers),
		requests: make([]*mpi.Request, j.Options.Window), ahead: j.Options.RunAhead}, nil
}

// Narrow implements WindowRounds.
func (w *typedWindow[T]) Narrow(n int) {
	w.requests, w.buffers = w.requests[:n], w.buffers[:min(n, len(w.whole))]
}

// Play implements Rounds.
func (w *typedWindow[T]) Play(n int) error {
	if w.partner == NoPartner {
		return nil
	}
	for round := range n {
		for i := range w.requests {
			var err error
			b := w.buffers[i%len(w.buffers)]
			if w.first {
				w.requests[i], err = mpi.Isend(w.world, b, w.partner, DataTag)
			} else {
				w.requests[i], err = mpi.Irecv(w.world, b, w.partner, DataTag)
			}
			if err != nil {
				return err
			}
		}
		if err := mpi.WaitAll(w.requests...); err != nil {
			return err
		}
		var err error
		switch {
		case w.ahead && round < n-1:
		case w.first:
			err = RecvAnswer(w.world, w.answer[:], w.partner)
		default:
			err = SendAnswer(w.world, w.answer[:], w.partner)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Fill implements Rounds.
func (w *typedWindow[T]) Fill(round int) {
	for i, b := range w.buffers {
		if w.first {
			w.fill(b, round, w.world.Rank()+i)
		} else {
			clear(b)
		}
	}
}

// Check implements Rounds.
func (w *typedWindow[T]) Check(round int) (wrong int64) {
	if w.partner == NoPartner || w.first {
		return 0
	}
	for i, b := range w.buffers {
		wrong += w.wrong(b, round, w.partner+i)
	}
	return wrong
}
