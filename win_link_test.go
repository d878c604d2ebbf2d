package mpi

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

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
