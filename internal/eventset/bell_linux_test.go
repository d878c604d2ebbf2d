package eventset

import (
	"sync/atomic"
	"testing"
)

// A bell that is told so rings by itself, once, and not after Close.
func TestBellWithin(t *testing.T) {
	var rings atomic.Int32
	b, err := NewBell(func() { rings.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	for i := range int32(3) {
		b.Within(1)
		if b.Await(); rings.Load() != i+1 {
			t.Errorf("it has rung %d times, want %d", rings.Load(), i+1)
		}
	}
	b.Within(1 << 40)
	b.Close()
	if n := rings.Load(); n != 3 {
		t.Errorf("it has rung %d times, want 3", n)
	}
}
