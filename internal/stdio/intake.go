package stdio

import (
	"fmt"
	"sync"

	"github.com/gorun-mpi/mpi/internal/frames"
)

// Intake queues output, or input, that has come in frames. It never holds more than a window: the sender is told how
// much has been taken.
type Intake struct {
	mu    sync.Mutex
	more  sync.Cond      // of mu: there is a frame, or there will be none
	queue []frames.Frame // guarded by mu
	bytes int            // guarded by mu; in the queue, and taken without the sender's knowledge
	ended bool           // guarded by mu
}

// NewIntake makes an Intake in which nothing is.
func NewIntake() *Intake {
	q := &Intake{}
	q.more.L = &q.mu
	return q
}

// Put queues a frame. It never waits.
func (q *Intake) Put(f frames.Frame) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.bytes += len(f.Body); q.bytes > frames.Window || len(f.Body) == 0 {
		return fmt.Errorf("a %v frame of %d bytes, for which there is no room", f.Kind, len(f.Body))
	}
	q.queue = append(q.queue, f)
	q.more.Signal()
	return nil
}

// End says that no more comes.
func (q *Intake) End() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.more.Signal()
}

// Run hands all to take, and tells room how much may be sent again.
func (q *Intake) Run(take func(frames.Frame), room func(int)) {
	taken := 0
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if taken > frames.Window/8 || taken > 0 && len(q.queue) == 0 {
			q.bytes -= taken
			room(taken)
			taken = 0
		}
		for len(q.queue) == 0 && !q.ended {
			q.more.Wait()
		}
		if len(q.queue) == 0 {
			return
		}
		f := q.queue[0]
		q.queue[0].Body = nil
		q.queue = q.queue[1:]
		q.mu.Unlock()
		take(f)
		taken += len(f.Body)
		q.mu.Lock()
	}
}
