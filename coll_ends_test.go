package mpi

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/background"
	"github.com/gorun-mpi/mpi/internal/coll"
	"github.com/gorun-mpi/mpi/transport"
)

// A rank that ends is ErrPeerFailed at a root that has no link to it, though those that have links to it do not use the
// communicator any more: they have made their part of the call and freed it.
func TestSharedEndOfAStranger(t *testing.T) {
	const n = 8
	for victim := 1; victim < n; victim++ {
		var freed sync.WaitGroup
		freed.Add(n - 2)
		seen := make(chan struct{})
		var dies transport.Device
		over(t, withDevices(func(rank int, d transport.Device) transport.Device {
			if rank == victim {
				dies = d
			}
			return d
		}))(n, func(w *Comm) {
			c := ok(w.Dup())
			buf := []int{w.Rank()}
			for range coll.BoardSetup { // over trees, so that there are few links
				must(Bcast(c, buf, 0))
			}
			switch w.Rank() {
			case victim:
				freed.Wait()
				dies.Close() // as a kill does: the engine says nothing
			case 0:
				err := Reduce(c, []int{1}, buf, Sum, 0)
				close(seen)
				check(errors.Is(err, ErrPeerFailed), "victim %d: %v", victim, err)
			default:
				must(Reduce(c, []int{1}, nil, Sum, 0))
				must(c.Free())
				freed.Done()
				<-seen
			}
		}, onBoard)
	}
}

// leftCalls are calls that each rank has a part in which the others wait for, or which it waits for.
var leftCalls = map[string]func(c *Comm) error{
	"by messages": Barrier,
	"by a board":  func(c *Comm) error { return Allreduce(c, make([]int, 100), make([]int, 100), Sum) },
	"Dup":         func(c *Comm) error { return second(c.Dup()) },
	"Ibarrier": func(c *Comm) error {
		r, err := Ibarrier(c)
		if err == nil {
			_, err = r.Wait()
		}
		return err
	},
	"with an operator": func(c *Comm) error { return Scan(c, make([]int, 50_000), make([]int, 50_000), Sum) },
}

var leftSetting = WithEnviron([]string{"GORUN_COLL_CHECK=0",
	"GORUN_COLL=bcast:shared,allreduce:shared,barrier:dissemination"})

// A rank whose calls go on, since their contexts have ended, is at its end when they are over: that is no error, in
// whichever way the call is made, and also where the other ranks make it late.
func TestLeftCallsAreWaitedFor(t *testing.T) {
	for name, call := range leftCalls {
		t.Run(name, func(t *testing.T) {
			over(t)(3, func(w *Comm) {
				for range coll.BoardSetup {
					must(Bcast(w, []int{1}, 0))
				}
				if w.Rank() == 0 { // and is at its end before the others begin
					ctx, cancel := context.WithCancel(context.Background())
					cancel()
					err := call(w.WithContext(ctx))
					check(errors.Is(err, context.Canceled), "%v", err)
					return
				}
				time.Sleep(5 * time.Millisecond)
				if name == "Dup" {
					must(ok(w.Dup()).Free())
				} else {
					must(call(w))
				}
			}, leftSetting)
		})
	}
}

// So it is where the ranks still compare what they call, also to make a persistent request that is never started.
func TestLeftComparisonsAreWaitedFor(t *testing.T) {
	for name, call := range map[string]func(c *Comm) (*Request, error){
		"nonblocking":        Ibarrier,
		"persistent":         BarrierInit,
		"never begun":        BarrierInit,
		"by a blocking call": func(c *Comm) (*Request, error) { return nil, Barrier(c) },
	} {
		t.Run(name, func(t *testing.T) {
			var others sync.WaitGroup // ranks 0 and 2
			others.Add(2)
			over(t)(3, func(w *Comm) {
				c, cancel, late := w, func() {}, w.Rank() == 1
				if name != "never begun" {
					var ctx context.Context
					ctx, cancel = context.WithCancel(context.Background())
					defer cancel()
					c = w.WithContext(ctx)
				}
				if late {
					others.Wait()
					time.Sleep(5 * time.Millisecond) // the others are at their ends
				} else if name == "by a blocking call" {
					cancel()
				}
				r, err := call(c)
				if r != nil && name == "persistent" {
					must(r.Start())
				}
				if !late {
					least := 1 // a receive of the comparison
					if name == "nonblocking" || name == "persistent" {
						least = 2 // and the request
					}
					for w.group.Engine.Pending() < least {
						runtime.Gosched()
					}
					cancel()
				}
				switch {
				case r == nil:
				case name == "never begun":
					err = r.Free()
				default:
					_, err = r.Wait()
				}
				check(err == nil || !late && errors.Is(err, context.Canceled), "%v", err)
				if !late {
					others.Done()
				}
			}, WithEnviron([]string{"GORUN_COLL_CHECK=1", "GORUN_COLL=barrier:dissemination"}))
		})
	}
}

// A call that one rank alone makes, and its context ends, is an error at the end of that rank, which says which call it
// was, in whichever way it is made.
func TestLeftCallsThatOthersNeverMake(t *testing.T) {
	defer func(d time.Duration) { background.Grace = d }(background.Grace)
	background.Grace = 20 * time.Millisecond
	for name, call := range leftCalls {
		t.Run(name, func(t *testing.T) {
			err := local(t, 3, func(w *Comm) {
				c := ok(w.Dup())
				for range coll.BoardSetup {
					must(Bcast(c, []int{1}, 0))
				}
				if w.Rank() == 1 {
					ctx, cancel := context.WithCancel(context.Background())
					cancel()
					err := call(c.WithContext(ctx))
					check(errors.Is(err, context.Canceled), "%v", err)
				}
			}, leftSetting)
			is(err, ErrRequest)
			names := map[string]string{"by messages": "Barrier", "by a board": "Allreduce", "with an operator": "Scan"}
			what := names[name]
			if what == "" {
				what = name
			}
			text := "rank 1: mpi: RunLocal: a context has ended this rank's " + what + " of world.dup1,"
			check(strings.Contains(err.Error(), text) && !strings.Contains(err.Error(), "rank 0"), "%v", err)
		})
	}
}

// An operator that ends its goroutine (runtime.Goexit), which is not that of the rank, is an error at the other ranks
// that need its part, if at any, and no rank waits: by messages, through a board, and with a context.
func TestOperatorEndsAGoroutine(t *testing.T) {
	for _, way := range []Option{onBoard, WithEnviron([]string{"GORUN_COLL_CHECK=0", byMessages})} {
		for _, n := range []int{1, 5000, 100_000} {
			for _, ends := range []bool{false, true} {
				var returned sync.WaitGroup
				returned.Add(4)
				over(t)(4, func(w *Comm) {
					for range coll.BoardSetup {
						must(Allreduce(w, []int{1}, make([]int, 1), Sum))
					}
					op := func(inout, in []int) {
						if w.Rank() == 1 {
							runtime.Goexit()
						}
						Sum(inout, in)
					}
					c, done := w, make(chan error, 1)
					if ends {
						ctx, cancel := context.WithCancel(context.Background())
						defer cancel()
						c = w.WithContext(ctx)
					}
					go func() {
						err := errGone
						defer func() { done <- err }()
						err = Allreduce(c, make([]int, n), make([]int, n), op)
					}()
					err := <-done
					returned.Done()
					returned.Wait() // no rank's end is what ends another's wait
					switch {
					case w.Rank() != 1:
						check(err == nil || errors.Is(err, ErrPeerFailed), "%d elements: %v", n, err)
					default:
						check(errors.Is(err, errGone) || errors.Is(err, ErrOp), "%d elements: %v", n, err)
					}
				}, way)
			}
		}
	}
}

var errGone = errors.New("the goroutine has ended")
