package mpi

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/gorun-mpi/mpi/internal/coll"
	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/standstill"
	"github.com/gorun-mpi/mpi/pml"
)

// RunLocal runs body as n ranks that are goroutines of this process, and returns when all have returned: for tests,
// notebooks and simulation. Its error joins the errors of the ranks, each with its rank. When a rank fails, panics or
// ends its goroutine, the calls of the other ranks end with ErrAborted. A call that waits for a rank that has returned
// ends with ErrPeerFailed after about a second. n below 1 is ErrCount. A rank that returns while its operations are
// under way is ErrRequest. RunLocal waits for collective calls that continue after their context ended; they are
// ErrRequest if other ranks have not made them when all have returned.
//
// If all ranks wait for each other, and no other goroutine of the process could call the library, all calls end with
// ErrAborted at once, and RunLocal's error says which rank is in which call and waits for what. RunLocal cannot see a
// timer of time.AfterFunc whose function would call the library: use a goroutine that sleeps.
func RunLocal(n int, body func(world *Comm) error, opts ...Option) error {
	if n < 1 {
		return mpierr.New("RunLocal", ErrCount, "%d ranks were asked for; at least 1 is needed", n)
	}
	o := optionsOf(opts)
	engines, how, err := join.Local(n, o)
	if err != nil {
		return mpierr.New("RunLocal", ErrUnavailable, "%w", err)
	}
	errs := make([]error, n)
	var wg, bodies sync.WaitGroup
	bodies.Add(n)
	last := make(chan struct{})
	go func() {
		bodies.Wait()
		close(last)
	}()
	var stood error
	why := errors.New("no rank can move; RunLocal's error says which rank waits for what")
	job := standstill.Watch(engines, func(table string) {
		stood = mpierr.New("RunLocal", ErrAborted, "no rank can move: all wait for each other. Ranks are numbered as in "+
			"world.\n  %s", table)
		pml.FailAll(engines, mpierr.New("", ErrAborted, "%w", why))
	})
	for rank, e := range engines {
		wg.Go(func() {
			world := worldOf(e, rank, n, coll.NewSetup(e, coll.Settings(how)))
			job.Enter(rank, world.group.Numbers.Describe)
			err := error(mpierr.New("RunLocal", ErrAborted, "the goroutine of the rank has ended (runtime.Goexit, as "+
				"by t.FailNow); a rank returns an error"))
			defer func() {
				if err == nil {
					return
				}
				errs[rank] = fmt.Errorf("rank %d: %w", rank, err)
				others := slices.Concat(engines[:rank], engines[rank+1:])
				pml.FailAll(others, mpierr.New("", ErrAborted, "rank %d has failed", rank))
			}()
			err = runRank(world, o, body, bodies.Done, last)
		})
	}
	wg.Wait()
	job.Stop()
	over := mpierr.New("", ErrInit, "called after the end of RunLocal")
	for _, e := range engines {
		e.Close(over)
	}
	if stood != nil {
		errs = slices.DeleteFunc(errs, func(err error) bool { return errors.Is(err, why) })
	}
	return errors.Join(append([]error{stood}, errs...)...)
}

// runRank is one rank. It calls returned when body has, and last is closed when all bodies have.
func runRank(w *Comm, o options, body func(world *Comm) error, returned func(), last <-chan struct{}) error {
	world, r := observed(w, o)
	err := func() error {
		defer returned()
		return protect(func() error { return body(world) })
	}()
	if err != nil {
		return err
	}
	if r != nil {
		r.gather()
	}
	if h := world.hook(); h != nil {
		return h.observe(callOf("Finalize", CallOther), func(w *Comm) error { return endRank(w, last) })
	}
	return endRank(w, last)
}

// endRank is the Finalize of a rank of RunLocal.
func endRank(w *Comm, last <-chan struct{}) error {
	switch open, err := w.group.Process.Finish(w.group.Engine.Flush, func() <-chan struct{} { return last }); {
	case err != nil:
		return mpierr.New("RunLocal", ErrRequest, "%w", err)
	case open > 0:
		return mpierr.New("RunLocal", ErrRequest, "%d operations are under way at the end of the rank; "+
			"complete each request with Wait or Test", open)
	}
	w.group.LeaveAll()
	w.group.Leave()
	w.group.Engine.Return()
	return nil
}
