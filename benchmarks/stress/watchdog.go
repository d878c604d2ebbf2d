package main

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"
)

// progress counts what shows that this rank is not hanging.
var progress atomic.Int64

// otherDumps is how long the ranks wait after their own report, so that the others write theirs.
const otherDumps = 10 * time.Second

// watch calls report when there was no progress for as long as patience. It returns what ends it.
func watch(patience time.Duration, report func()) (end func()) {
	stop := make(chan struct{})
	go func() {
		seen, quiet := progress.Load(), 0
		for quiet < 10 { // in pieces: a machine that stands still takes one of them away and not all
			select {
			case <-stop:
				return
			case <-time.After(patience / 10):
			}
			quiet++
			if now := progress.Load(); now != seen {
				seen, quiet = now, 0
			}
		}
		report()
	}()
	return func() { close(stop) }
}

// hung ends a rank that hangs, with the seed that leads there and what all goroutines do.
func hung(seed uint64, round *atomic.Int64, rank int) {
	fmt.Fprintf(os.Stderr, "stress: -seed %d, round %d, rank %d: nothing has happened for %v\n\n%s\n",
		seed, round.Load(), rank, *hang, stacks())
	time.Sleep(otherDumps)
	os.Exit(1)
}

func stacks() []byte {
	for size := 1 << 20; ; size *= 2 {
		buf := make([]byte, size)
		if n := runtime.Stack(buf, true); n < size {
			return buf[:n]
		}
	}
}
