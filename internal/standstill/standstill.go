package standstill

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/gorun-mpi/mpi/internal/waits"
	"github.com/gorun-mpi/mpi/pml"
)

// Watcher tells the user of RunLocal that no rank can move.
type Watcher struct {
	engines    []*pml.Engine
	goroutines []atomic.Uint64 // of each rank, by Go's number
	names      []Names         // of each rank; what Enter has been told
	tell       func(text string)
	over       chan struct{}
	wg         sync.WaitGroup
}

var (
	// Look is the time between two looks at the ranks. Two looks in a row must find the same.
	Look = time.Second
	// Pause is the longest time between two looks when other goroutines were there.
	Pause = time.Minute
)

// New starts looking at the ranks of these engines. A nil log writes to standard error.
func New(engines []*pml.Engine, log hclog.Logger) *Watcher {
	s := &Watcher{engines: engines, goroutines: make([]atomic.Uint64, len(engines)), over: make(chan struct{}),
		names: make([]Names, len(engines))}
	s.tell = func(text string) { fmt.Fprintln(os.Stderr, "mpi: RunLocal: "+text) }
	if log != nil {
		s.tell = func(text string) { log.Warn(text) }
	}
	s.wg.Go(s.watch)
	return s
}

// Enter notes that the calling goroutine is the one of a rank, which names communicators so.
func (s *Watcher) Enter(rank int, names Names) {
	s.names[rank] = names
	s.goroutines[rank].Store(goroutineID())
}

// Stop ends the looks.
func (s *Watcher) Stop() {
	close(s.over)
	s.wg.Wait()
}

func (s *Watcher) watch() {
	pause := Look
	timer := time.NewTimer(pause)
	defer timer.Stop()
	var before *pml.Standstill
	for {
		select {
		case <-s.over:
			return
		case <-timer.C:
		}
		var now *pml.Standstill
		var stacks []stack
		pml.StandsStill(s.engines, func(found *pml.Standstill) {
			if now = found; now.SameAs(before) {
				stacks = allWait(now.Asleep)
			}
		})
		switch {
		case stacks != nil:
			s.tell(s.text(now, stacks))
			return
		case now == nil || !now.SameAs(before):
			pause = Look
		default:
			pause = min(2*pause, Pause) // a look at all goroutines stops them
		}
		before = now
		timer.Reset(pause)
	}
}

// text says which rank waits for what.
func (s *Watcher) text(found *pml.Standstill, all []stack) string {
	text := "no rank can move: all wait for each other, and no other goroutine could call the library. " +
		"Only a timer or a signal could end this. Ranks are numbered as in world."
	var ranks []waits.Rank
	for rank, snapshot := range found.Ranks {
		r := waits.Rank{Rank: rank, Account: waits.Account{Note: "has returned"}}
		own := slices.IndexFunc(all, func(g stack) bool { return g.id == s.goroutines[rank].Load() })
		if own >= 0 {
			r.Account = account(snapshot, own, all, s.names[rank])
		}
		ranks = append(ranks, r)
	}
	return strings.Join(append([]string{text}, waits.Table(ranks)...), "\n  ")
}
