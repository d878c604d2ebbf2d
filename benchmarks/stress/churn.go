package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"
)

// churn makes the ground unsteady while a round is played: memory is collected and given back to the kernel, and
// sometimes there are no descriptors. It returns what ends that.
func (r *rank) churn(round int) (end func()) {
	stop := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() { churnMemory(r.dice(round, ofMemory), stop) })
	if *limits {
		done.Go(func() { churnDescriptors(r.dice(round, ofDescriptors), stop) })
	}
	return func() {
		close(stop)
		done.Wait()
	}
}

// rest waits for a time below limit. It reports whether stop is still open.
func rest(dice *rand.Rand, limit time.Duration, stop <-chan struct{}) bool {
	select {
	case <-stop:
		return false
	case <-time.After(time.Duration(dice.Int64N(int64(limit)))):
		return true
	}
}

// churnMemory collects garbage, some of it fresh and written to, and has the scavenger give pages back: a registration
// or a mapping that outlives its buffer then moves the bytes of another one.
func churnMemory(dice *rand.Rand, stop <-chan struct{}) {
	for rest(dice, 20*time.Millisecond, stop) {
		switch dice.IntN(4) {
		case 0:
			debug.FreeOSMemory()
		case 1:
			runtime.GC()
		default:
			for range dice.IntN(20) {
				dying := make([]byte, 1<<dice.IntN(20))
				for i := range dying {
					dying[i] = 0xdd
				}
			}
		}
	}
}

// churnDescriptors lowers the limit of open files, so that hardly one more can be opened, and raises it.
func churnDescriptors(dice *rand.Rand, stop <-chan struct{}) {
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		fmt.Fprintln(os.Stderr, "stress: reading the limit of open files:", err)
		return
	}
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old)
	for rest(dice, 50*time.Millisecond, stop) {
		low := old
		low.Cur = lowestFree() + uint64(dice.IntN(4))
		syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low)
		rest(dice, 20*time.Millisecond, stop)
		syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old)
	}
}

// lowestFree is the descriptor that the next file will have.
func lowestFree() uint64 {
	f, err := os.Open(os.DevNull)
	if err != nil {
		return 0
	}
	defer f.Close()
	return uint64(f.Fd())
}
