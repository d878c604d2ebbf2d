package mpi

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/transport/faulty"
)

// unreached has no link reach the memory of a peer.
var unreached = faulty.Plan{RefuseRegister: 1 - 1e-12}

// linked reports whether a link may reach the memory of a window here.
func linked(t *testing.T) bool {
	return !slices.Contains([]string{"stream", "tcp", "tagged", "ucx", "ofi"}, path.Base(t.Name()))
}

// Where a link reaches the memory, it does so until all ranks have called Free, also behind a Free that has ended with
// its context.
func TestLinkUntilFree(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			for _, win := range []*Win[int64]{ok(WinAlloc[int64](w, 1000)), ok(WinCreate(w, make([]int64, 1000)))} {
				src, dst := make([]int64, 1000), make([]int64, 1000)
				move := func(v int64) {
					for i := range src {
						src[i] = v + int64(i)
					}
					must(win.Lock(0, Exclusive))
					must(win.Put(src, 0, 0))
					must(win.Flush(0))
					must(win.Get(dst, 0, 0))
					must(win.Unlock(0))
					check(slices.Equal(src, dst), "not what has been put")
				}
				if w.Rank() == 1 {
					move(1)
					sendSignal(w, 0)
					awaitSignal(w, 0)
					move(1 << 40)
					must(win.Free())
					continue
				}
				awaitSignal(w, 1)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
				err := win.WithContext(ctx).Free()
				cancel()
				check(errors.Is(err, context.DeadlineExceeded), "Free: %v", err)
				sendSignal(w, 1)
			}
		})
	})
}

// Puts that are not flushed yet may be any number, and more than a link takes: all are there after the Flush. Several
// goroutines make them.
func TestManyPuts(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		const goroutines = 3
		each := inShort(20000, 2000)
		run(2, func(w *Comm) {
			withWin(w, goroutines*each, func(win *Win[int32]) {
				must(win.LockAll())
				if w.Rank() == 0 {
					src := make([]int32, goroutines*each)
					done := make(chan error, goroutines)
					for g := range goroutines {
						go func() {
							var err error
							for i := g * each; i < (g+1)*each; i++ {
								src[i] = int32(i) + 1
								err = errors.Join(err, win.Put(src[i:][:1], 1, int64(i)))
							}
							done <- errors.Join(err, win.Flush(1))
						}()
					}
					for range goroutines {
						must(<-done)
					}
				}
				must(win.UnlockAll())
				must(Barrier(w))
				if w.Rank() == 1 {
					for i, v := range win.Local() {
						same(v, int32(i)+1)
					}
				}
				must(Barrier(w))
			})
		})
	})
}

// A link that reaches the memory needs nothing of the rank whose memory it is: neither a call nor its watcher.
func TestLinkNeedsNoRank(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		f := &frozen{make(chan struct{}), make(chan struct{})}
		run(2, func(w *Comm) {
			const n = 1 << 13
			c := ok(w.Dup())
			win := ok(WinCreate(w, make([]int64, n)))
			if w.Rank() == 1 {
				for i := range win.Local() {
					win.Local()[i] = int64(i)
				}
				freezes(c, f)
				sendSignal(w, 0)
				<-f.over
				awaitSignal(w, 0)
			} else {
				awaitSignal(w, 1)
				must(win.Lock(1, Shared))
				must(win.Get(nil, 1, 0)) // has the memory lent
				dst := make([]int64, n)
				does := linked(t) && !strings.Contains(t.Name(), "faulty") // whose links may or may not reach it
				func() {
					defer close(f.over)
					freeze(c, 1, f)
					if does {
						must(win.Get(dst, 1, 0))
						must(win.Flush(1))
						same(dst[n-1], n-1)
						ok(ok(win.RGet(dst[:1], 1, 5)).Wait())
						same(dst[0], 5)
					}
					if does && strings.Contains(t.Name(), "verbs") {
						must(win.Put(dst[1:], 1, 0))
						must(win.FlushAll())
						ok(ok(win.RPut(dst[:3], 1, 7)).Wait())
					}
				}()
				must(win.Unlock(1))
				sendSignal(w, 1)
			}
			must(win.Free())
			must(c.Free())
		})
	})
}
