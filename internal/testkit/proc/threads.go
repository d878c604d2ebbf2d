package proc

import (
	"runtime"
	"sync"
)

// Threads has the runtime make n threads, which it keeps: a test that then limits the process's address space would
// otherwise be ended by the runtime, which cannot do without a thread that it wants.
func Threads(n int) {
	var all, made sync.WaitGroup
	all.Add(n)
	for range n {
		made.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			all.Done()
			all.Wait()
		})
	}
	made.Wait()
}
