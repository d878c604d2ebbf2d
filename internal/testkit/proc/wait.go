package proc

import "time"

// AwaitEnd is how a role ends that something else ends: return AwaitEnd(). Without cgo, Go ends a process all of whose
// goroutines block, as in select {}, but not one that sleeps.
func AwaitEnd() (never error) {
	for {
		time.Sleep(time.Hour)
	}
}
