package eventset

import (
	"testing"
	"time"
)

// A Check wakes a rank for which something waits and that does not poll; not one that polls, and none after Stop.
func TestCheck(t *testing.T) {
	woken := make(chan bool, 1)
	waits := make(chan bool, 1)
	var c Check
	c.Init(func() bool {
		select {
		case <-waits:
			return true
		default:
			return false
		}
	}, func() { woken <- true })
	waits <- true
	c.Start()
	c.Start()
	select {
	case <-woken:
	case <-time.After(patience):
		t.Fatal("something waits, no Poll comes, and the rank is not woken")
	}
	for n := range uint64(50) { // a rank that polls is not looked after
		c.Polled(n + 1)
		time.Sleep(time.Millisecond)
	}
	c.Stop()
	c.Stop()
	waits <- true
	c.Start()
	select {
	case <-woken:
		t.Error("the rank is woken after Stop")
	case <-time.After(3 * checkEvery):
	}
}
