package main

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	gaugeWarm   = 100 * time.Millisecond // the processors are in another state right after they were idle
	gaugeBursts = 25
	gaugeTrips  = 2000 // round trips of a burst
)

// errOneCore is that this process may use one core only, between whose threads no line moves.
var errOneCore = errors.New("there are no two cores")

// newGauge makes the gauge: a cache line that goes back and forth between the processors that ranks 0 and 1 have. It
// returns the time one way in µs.
func newGauge() (func() float64, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, err
	}
	all := coresOf(set, siblings)
	if len(all) < 2 {
		return nil, errOneCore
	}
	return func() float64 { return bounce(all[0], all[1]) }, nil
}

// usableCores is how many cores this process may use.
func usableCores() int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return runtime.NumCPU()
	}
	return len(coresOf(set, siblings))
}

// coresOf are the first processors of a set on each of its cores, ascending.
func coresOf(set unix.CPUSet, siblings func(cpu int) []int) (all []int) {
	taken := make(map[int]bool)
	for cpu := range len(set) * 64 {
		if !set.IsSet(cpu) || taken[cpu] {
			continue
		}
		all = append(all, cpu)
		for _, sibling := range siblings(cpu) {
			taken[sibling] = true
		}
	}
	return all
}

// siblings are the processors on the core of one, "0-1" or "0,64" in the kernel's words; none where it does not say.
func siblings(cpu int) (list []int) {
	text, _ := os.ReadFile("/sys/devices/system/cpu/cpu" + strconv.Itoa(cpu) + "/topology/thread_siblings_list")
	return parseCPUs(strings.TrimSpace(string(text)))
}

func parseCPUs(text string) (list []int) {
	for part := range strings.SplitSeq(text, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		from, err1 := strconv.Atoi(low)
		to, err2 := strconv.Atoi(high)
		if err1 != nil || err2 != nil || to-from > 1<<12 {
			return nil
		}
		for cpu := from; cpu <= to; cpu++ {
			list = append(list, cpu)
		}
	}
	return list
}

// bounce measures with a thread on each of two processors. The median of short bursts is not moved by what interrupts
// one of them.
func bounce(first, second int) float64 {
	var ball struct {
		_    [64]byte
		word atomic.Uint64 // even: at home
		_    [64]byte
	}
	const stop = 1 << 63
	var away sync.WaitGroup
	away.Go(func() {
		defer onCPU(second)()
		for want := uint64(1); ; {
			switch v := ball.word.Load(); {
			case v == want:
				ball.word.Store(v + 1)
				want += 2
			case v == stop:
				return
			}
		}
	})
	defer onCPU(first)()
	at := uint64(0)
	burst := func() float64 {
		start := time.Now()
		for range gaugeTrips {
			ball.word.Store(at + 1)
			for at += 2; ball.word.Load() != at; {
			}
		}
		return float64(time.Since(start)) / 1e3 / gaugeTrips / 2
	}
	for start := time.Now(); time.Since(start) < gaugeWarm; {
		burst()
	}
	times := make([]float64, gaugeBursts)
	for i := range times {
		times[i] = burst()
	}
	ball.word.Store(stop)
	away.Wait()
	slices.Sort(times)
	return median(times)
}

// onCPU ties the goroutine to a thread on one processor until the function that it returns is called.
func onCPU(cpu int) (free func()) {
	runtime.LockOSThread()
	var before, one unix.CPUSet
	_ = unix.SchedGetaffinity(0, &before)
	one.Set(cpu)
	_ = unix.SchedSetaffinity(0, &one) // without it the gauge wanders, and turns are thrown out
	return func() {
		_ = unix.SchedSetaffinity(0, &before)
		runtime.UnlockOSThread()
	}
}
