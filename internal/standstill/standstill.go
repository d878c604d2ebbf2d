package standstill

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/mpi/internal/waits"
	"github.com/gorun-mpi/mpi/pml"
)

// Job is a RunLocal that is looked at.
type Job struct {
	engines    []*pml.Engine
	goroutines []atomic.Uint64    // of each rank, by Go's number
	names      []Names            // of each rank; what Enter has been told
	stands     func(table string) // no rank can move
}

var (
	// Look is the time between two looks at the ranks.
	Look = 20 * time.Millisecond
	// Pause is the longest time between two looks after looks at all goroutines, which stop them, for nothing.
	Pause = time.Second
)

// jobs are the jobs of this process. One goroutine looks at all of them: a rank of one may wait for a rank of another.
var jobs struct {
	sync.Mutex
	all         []*Job          // in the order in which their engines are locked
	engines     [][]*pml.Engine // of each of all
	over, ended chan struct{}   // of the goroutine, which is there while all is not empty
}

// Watch looks at the ranks of these engines until Stop. When no rank can move it calls stands with the table, once.
func Watch(engines []*pml.Engine, stands func(table string)) *Job {
	j := &Job{engines: engines, goroutines: make([]atomic.Uint64, len(engines)), names: make([]Names, len(engines)),
		stands: stands}
	jobs.Lock()
	defer jobs.Unlock()
	jobs.engines = append(jobs.engines, engines)
	if jobs.all = append(jobs.all, j); len(jobs.all) == 1 {
		jobs.over, jobs.ended = make(chan struct{}), make(chan struct{})
		go lookOver(jobs.over, jobs.ended)
	}
	return j
}

// Enter notes that the calling goroutine is the one of a rank, which names communicators so.
func (j *Job) Enter(rank int, names Names) {
	j.names[rank] = names
	j.goroutines[rank].Store(goroutineID())
}

// Stop ends the looks. No call of stands is under way afterwards.
func (j *Job) Stop() {
	jobs.Lock()
	at := slices.Index(jobs.all, j)
	jobs.all, jobs.engines = slices.Delete(jobs.all, at, at+1), slices.Delete(jobs.engines, at, at+1)
	last, ended := len(jobs.all) == 0, jobs.ended
	if last {
		close(jobs.over)
	}
	jobs.Unlock()
	if last {
		<-ended
	}
}

// lookOver looks at the jobs again and again.
func lookOver(over, ended chan struct{}) {
	defer close(ended)
	pause := Look
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-over:
			return
		case <-timer.C:
		}
		if stopped := lookOnce(); stopped {
			pause = min(2*pause, Pause)
		} else {
			pause = Look
		}
		timer.Reset(pause)
	}
}

// lookOnce tells the jobs if no rank of any of them can move. It reports whether it has looked at all goroutines in
// vain.
func lookOnce() (stopped bool) {
	jobs.Lock()
	defer jobs.Unlock()
	return pml.Stand(jobs.engines) && lookAtAll()
}

// lookAtAll is lookOnce where each rank seems to wait. It reports whether it has looked at all goroutines in vain.
func lookAtAll() (stopped bool) {
	var found [][]*pml.Snapshot
	var all []stack
	pml.StandStill(jobs.engines, func(s [][]*pml.Snapshot) {
		found = s
		all = allWait(asleep(s))
	})
	if all == nil {
		return found != nil
	}
	for i, j := range jobs.all {
		j.stands(j.table(found[i], all))
	}
	return false
}

// asleep is how many callers sleep.
func asleep(found [][]*pml.Snapshot) (n int) {
	for _, ranks := range found {
		for _, s := range ranks {
			n += s.Asleep
		}
	}
	return n
}

// table says which rank waits for what.
func (j *Job) table(found []*pml.Snapshot, all []stack) string {
	var ranks []waits.Rank
	for rank, snapshot := range found {
		r := waits.Rank{Rank: rank, Account: waits.Account{Note: "has returned"}}
		own := slices.IndexFunc(all, func(g stack) bool { return g.id == j.goroutines[rank].Load() })
		if own >= 0 {
			r.Account = account([]sight{{snapshot, j.names[rank], nil}}, own, all)
		}
		ranks = append(ranks, r)
	}
	return strings.Join(waits.Table(ranks), "\n  ")
}
