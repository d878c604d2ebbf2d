//go:build cuda && linux && cgo

package gpu

import (
	"fmt"

	"github.com/gorun-mpi/mpi"
)

// windows is what each rank does.
func windows(c *mpi.Comm) { windowsOn(c, 2, true) }

// windowsOn is windows with that many devices. mapped: each rank maps the memory of the others.
func windowsOn(c *mpi.Comm, devices int, mapped bool) {
	me, size := c.Rank(), c.Size()
	device := me % devices
	next, before := (me+1)%size, (me+size-1)%size
	host := func(s Slice[byte]) []byte {
		b := make([]byte, s.Len())
		must(s.CopyTo(b))
		return b
	}
	for _, n := range []int{1, 333, 70_001, chunk + 1} {
		mem, buf := ok(Alloc[byte](device, 2*n+100)), ok(Alloc[byte](device, n))
		part := mem.Slice(100, 100+2*n)
		w := ok(WinCreate(c, part))
		must(buf.CopyFrom(message(n, me+10)))
		must(w.Fence())
		must(Put(w, message(n, me), next, 0))
		must(Put(w, buf, next, int64(n)))
		must(w.Fence())
		same(host(part.Slice(0, n)), message(n, before))
		same(host(part.Slice(n, 2*n)), message(n, before+10))

		got := make([]byte, n)
		must(w.LockAll())
		must(Get(w, got, before, 0))
		must(Get(w, buf, before, int64(n)))
		must(w.FlushAll())
		same(got, message(n, (before+size-1)%size))
		same(host(buf), message(n, (before+size-1)%size+10))
		must(mpi.Barrier(c))     // the next rank has got what is there
		must(Put(w, got, me, 0)) // which the rank makes alone
		must(w.UnlockAll())
		must(mpi.Barrier(c))
		for _, rank := range []int{next, before} {
			for _, m := range w.paths.ranks[rank].maps {
				check((m.opened != 0) == mapped, "the memory of rank %d is open for device %d: %v", rank, m.device, !mapped)
			}
		}
		must(w.Free())
		same(host(part.Slice(0, n)), got)
		free(mem, buf)
	}
	mem := ok(Alloc[byte](device, 1000))
	for range 50 { // of one allocation
		w := ok(WinCreate(c, mem))
		must(w.Lock(next, mpi.Exclusive))
		must(Put(w, message(10, me), next, int64(10*me)))
		must(w.Unlock(next))
		must(w.Free())
		same(host(mem.Slice(10*before, 10*before+10)), message(10, before))
	}
	free(mem)
	must(mpi.Barrier(c))
	drain()
	if me == 0 {
		fmt.Println("all is well")
	}
}
