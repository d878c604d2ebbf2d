package bench

import (
	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
)

// Flight is messages in flight: requests, and as many buffers, or one buffer for all of them. A message of n bytes
// uses the first n of its buffer.
type Flight struct {
	World    *mpi.Comm
	Requests []*mpi.Request
	Buffers  [][]byte // of the present size
	whole    [][]byte
}

// NewFlight makes room for count messages.
func NewFlight(j *Job, count int) (*Flight, error) {
	f := &Flight{World: j.World, Requests: make([]*mpi.Request, count)}
	buffers, n := 1, int(j.Options.MaxSize)
	if j.Options.Multiple {
		buffers = count
	}
	all, err := j.Memory(n * buffers)
	if err != nil {
		return nil, err
	}
	for i := range buffers {
		f.whole = append(f.whole, all[i*n:(i+1)*n])
	}
	f.Buffers = make([][]byte, buffers)
	return f, f.Resize(0)
}

// BuffersOf is Program.Buffers of a program with so many flights of a window each.
func BuffersOf(flights int64) func(harness.Options) int64 {
	return func(o harness.Options) int64 {
		if o.Multiple {
			return flights * int64(o.Window)
		}
		return flights
	}
}

// Resize is part of Rounds.
func (f *Flight) Resize(size int64) error {
	for i := range f.Buffers {
		f.Buffers[i] = f.whole[i][:size]
	}
	return nil
}

// Isend starts the messages [from, from+n) to a rank.
func (f *Flight) Isend(from, n, to int) error {
	world, buffers, requests := f.World, f.Buffers, f.Requests[from:from+n]
	single := len(buffers) == 1
	buf := buffers[0]
	for i := range requests {
		if !single {
			buf = buffers[from+i]
		}
		r, err := mpi.Isend(world, buf, to, DataTag)
		if err != nil {
			return err
		}
		requests[i] = r
	}
	return nil
}

// Irecv starts the receives [from, from+n) from a rank or AnySource.
func (f *Flight) Irecv(from, n, source int) error {
	world, buffers, requests := f.World, f.Buffers, f.Requests[from:from+n]
	single := len(buffers) == 1
	buf := buffers[0]
	for i := range requests {
		if !single {
			buf = buffers[from+i]
		}
		r, err := mpi.Irecv(world, buf, source, DataTag)
		if err != nil {
			return err
		}
		requests[i] = r
	}
	return nil
}

// Wait waits for all messages.
func (f *Flight) Wait() error { return mpi.WaitAll(f.Requests...) }

// Stamp writes the patterns of a round into the buffers. With as many buffers as messages each has its own.
func (f *Flight) Stamp(round, sender int) {
	for i, buf := range f.Buffers {
		harness.Fill(buf, round, Mark(sender, i))
	}
}

// Clear takes every pattern out.
func (f *Flight) Clear() {
	for _, buf := range f.Buffers {
		clear(buf)
	}
}

// Wrong counts the buffers without the round's pattern of this sender.
func (f *Flight) Wrong(round, sender int) (wrong int64) {
	for i, buf := range f.Buffers {
		if !harness.Check(buf, round, Mark(sender, i)) {
			wrong++
		}
	}
	return wrong
}

// Mark differs for each buffer of each sender.
func Mark(sender, i int) int { return sender<<24 + i }

// Window is one side of the windows between two ranks: the sender starts a window of Isend and waits for all, the
// receiver has posted as many Irecv, waits for all, and answers the whole window with four bytes. With --run-ahead only
// the last window of a Play is answered.
type Window struct {
	*Flight
	Partner int
	Sends   bool
	ahead   bool
	answer  [4]byte
}

// NewWindow makes the side of a rank that sends to its partner or receives from it.
func NewWindow(j *Job, partner int, sends bool) (*Window, error) {
	f, err := NewFlight(j, j.Options.Window)
	return &Window{Flight: f, Partner: partner, Sends: sends, ahead: j.Options.RunAhead}, err
}

// Narrow implements WindowRounds.
func (w *Window) Narrow(n int) {
	w.Requests, w.Buffers = w.Requests[:n], w.Buffers[:min(n, len(w.whole))]
}

// Play implements Rounds: n windows and their answers.
func (w *Window) Play(n int) error {
	if w.Partner == NoPartner {
		return nil
	}
	for i := range n {
		var err error
		if w.Sends {
			err = w.Isend(0, len(w.Requests), w.Partner)
		} else {
			err = w.Irecv(0, len(w.Requests), w.Partner)
		}
		if err != nil {
			return err
		}
		if err := w.Wait(); err != nil {
			return err
		}
		if w.ahead && i < n-1 {
			continue
		}
		if err := w.Answer(); err != nil {
			return err
		}
	}
	return nil
}

// Answer ends a window: the receiver answers when it has all.
func (w *Window) Answer() error {
	if w.Sends {
		return RecvAnswer(w.World, w.answer[:], w.Partner)
	}
	return SendAnswer(w.World, w.answer[:], w.Partner)
}

// SendAnswer answers a sender whose window has been received.
func SendAnswer(world *mpi.Comm, answer []byte, to int) error {
	return mpi.Send(world, answer, to, answerTag)
}

// RecvAnswer waits for a receiver's answer.
func RecvAnswer(world *mpi.Comm, answer []byte, from int) error {
	_, err := mpi.Recv(world, answer, from, answerTag)
	return err
}

// Fill implements Rounds.
func (w *Window) Fill(round int) {
	switch {
	case w.Partner == NoPartner:
	case w.Sends:
		w.Stamp(round, w.World.Rank())
	default:
		w.Clear()
	}
}

// Check implements Rounds.
func (w *Window) Check(round int) int64 {
	if w.Partner == NoPartner || w.Sends {
		return 0
	}
	return w.Wrong(round, w.Partner)
}
