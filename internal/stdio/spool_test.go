package stdio

import (
	"bytes"
	"runtime"
	"sync"
	"testing"
	"time"
)

// What all ranks have taken is freed, and the input is read no faster than the fastest rank takes it.
func TestSpool(t *testing.T) {
	const n, size = 50, 64 << 10
	s := newSpool()
	var lag, freed sync.WaitGroup
	var got [2]int
	lag.Add(1)
	freed.Add(n)
	var done sync.WaitGroup
	for i := range got {
		r := s.newTaker()
		done.Go(func() {
			if i == 1 {
				lag.Wait()
			}
			r.run(func(b []byte) error {
				got[i] += len(b)
				return nil
			})
		})
	}
	for i := range n {
		if !s.wanted() {
			t.Fatal("no rank wants input")
		}
		if got[0] != i*size { // it is idle, and so has taken all
			t.Fatalf("the input is read when rank 0 has taken %d of %d bytes", got[0], i*size)
		}
		b := bytes.Repeat([]byte{'x'}, size)
		runtime.AddCleanup(&b[0], func(struct{}) { freed.Done() }, struct{}{})
		s.add(b)
	}
	lag.Done()
	for s.wanted() { // until both have all
		s.mu.Lock()
		idle := s.idle
		s.mu.Unlock()
		if idle == 2 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	all := make(chan struct{})
	go func() {
		freed.Wait()
		close(all)
	}()
	for end := time.Now().Add(time.Minute); ; {
		runtime.GC()
		select {
		case <-all:
		case <-time.After(10 * time.Millisecond):
			if time.Now().Before(end) {
				continue
			}
			t.Error("what all ranks have taken is not freed")
		}
		break
	}
	s.end()
	done.Wait()
	if got[0] != n*size || got[1] != n*size || s.wanted() {
		t.Errorf("the ranks took %v of %d bytes", got, n*size)
	}
}

// A rank that takes no more does not hold up the others; when none does, no input is wanted.
func TestSpoolRefused(t *testing.T) {
	s := newSpool()
	r := s.newTaker()
	var done sync.WaitGroup
	done.Go(func() { r.run(func([]byte) error { return bytes.ErrTooLarge }) })
	if !s.wanted() {
		t.Error("a rank that has all there is wants no more")
	}
	s.add([]byte("x"))
	done.Wait()
	if s.wanted() {
		t.Error("input is wanted though no rank takes it")
	}
}
