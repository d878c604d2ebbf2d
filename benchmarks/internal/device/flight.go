package device

import (
	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
	"github.com/gorun-mpi/mpi/gpu"
)

// Flight is bench.Flight on a device.
type Flight struct {
	world    *mpi.Comm
	requests []*mpi.Request
	buffers  []buffer // one for each message, or one for all
	mishap
}

// NewFlight makes room for count messages.
func NewFlight(j *bench.Job, device, count int) (*Flight, error) {
	f := &Flight{world: j.World, requests: make([]*mpi.Request, count), buffers: make([]buffer, 1)}
	if j.Options.Multiple {
		f.buffers = make([]buffer, count)
	}
	for i := range f.buffers {
		var err error
		if f.buffers[i], err = newBuffer(j, device); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// Resize is part of bench.Rounds.
func (f *Flight) Resize(size int64) error {
	for i := range f.buffers {
		f.buffers[i].resize(size)
	}
	return nil
}

// Isend starts n messages to a rank, from the message numbered from on.
func (f *Flight) Isend(from, n, to int) error {
	for i := from; i < from+n; i++ {
		r, err := gpu.Isend(f.world, f.buffers[i%len(f.buffers)].now, to, bench.DataTag)
		if err != nil {
			return err
		}
		f.requests[i] = r
	}
	return f.err
}

// Irecv starts n receives from a rank.
func (f *Flight) Irecv(from, n, source int) error {
	for i := from; i < from+n; i++ {
		r, err := gpu.Irecv(f.world, f.buffers[i%len(f.buffers)].now, source, bench.DataTag)
		if err != nil {
			return err
		}
		f.requests[i] = r
	}
	return f.err
}

// Wait waits for all messages.
func (f *Flight) Wait() error { return mpi.WaitAll(f.requests...) }

// Stamp writes the patterns of a round into the buffers.
func (f *Flight) Stamp(round, sender int) {
	for i := range f.buffers {
		f.add(f.buffers[i].fill(round, bench.Mark(sender, i)))
	}
}

// Clear takes every pattern out.
func (f *Flight) Clear() {
	for i := range f.buffers {
		f.add(f.buffers[i].clear())
	}
}

// Wrong counts the buffers without the round's pattern of this sender.
func (f *Flight) Wrong(round, sender int) (wrong int64) {
	for i := range f.buffers {
		right, err := f.buffers[i].holds(round, bench.Mark(sender, i))
		f.add(err)
		if !right {
			wrong++
		}
	}
	return wrong
}

// Windows is the side of a rank that sends windows of messages to its partner, or receives them, on the device where -d
// says so.
func Windows(j *bench.Job, device, partner int, sends bool) (bench.Rounds, error) {
	if device == mpi.Undefined {
		return bench.Windows(j, partner, sends)
	}
	f, err := NewFlight(j, device, j.Options.Window)
	return &window{Flight: f, partner: partner, sends: sends}, err
}

// window is one side of the windows between two ranks. The answer to a window is in memory of the host.
type window struct {
	*Flight
	partner int
	sends   bool
	answer  [4]byte
}

// Play implements bench.Rounds: n windows and their answers.
func (w *window) Play(n int) error {
	for range n {
		start := w.Irecv
		if w.sends {
			start = w.Isend
		}
		if err := start(0, len(w.requests), w.partner); err != nil {
			return err
		}
		if err := w.Wait(); err != nil {
			return err
		}
		if err := w.end(); err != nil {
			return err
		}
	}
	return nil
}

func (w *window) end() error {
	if w.sends {
		return bench.RecvAnswer(w.world, w.answer[:], w.partner)
	}
	return bench.SendAnswer(w.world, w.answer[:], w.partner)
}

// Fill implements bench.Rounds.
func (w *window) Fill(round int) {
	if w.sends {
		w.Stamp(round, w.world.Rank())
	} else {
		w.Clear()
	}
}

// Check implements bench.Rounds.
func (w *window) Check(round int) int64 {
	if w.sends {
		return 0
	}
	return w.Wrong(round, w.partner)
}
