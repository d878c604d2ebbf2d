//go:build verbs && linux && cgo

package verbs

import (
	"sync"

	"github.com/gorun-mpi/mpi/transport"
)

const (
	// registerAtOnce is the longest memory that the caller registers under the engine's lock: 256 pages. A goroutine
	// registers what is longer, and ends those registrations that let no peer write, so that other messages go on
	// meanwhile. For less the way to the goroutine and back costs as much as the registration.
	registerAtOnce = 1 << 20
	// registerPiece is how much of a long READ or WRITE is registered at once. While a piece moves, the next ones are
	// registered, up to piecesAhead of them.
	registerPiece = 4 << 20
	piecesAhead   = 4
	// registrars is how many goroutines register at the same time: each holds a thread while the kernel is at it.
	registrars = 4
)

// registrar has goroutines register long memory, end such registrations and destroy queue pairs: a device takes long
// for each. A goroutine ends when there is nothing to do. Any goroutine may call its methods.
type registrar struct {
	dev  *hca
	make func(addr uint64, bytes, rights int) (region, error)
	tell func() // there is something for done

	mu      sync.Mutex // guards what follows
	jobs    []*registerJob
	ends    []toEnd // They come before jobs: they make room
	ending  int     // calls of the device that are under way, for ends and for endBy
	ended   sync.Cond
	over    []*registerJob // for done
	workers int
	closed  bool
	wg      sync.WaitGroup
}

// toEnd is a registration that is to end, or a queue pair that is to be destroyed. It belongs to the registrar.
type toEnd struct {
	region
	pair queuePair // 0: it is a registration
}

// registerJob is memory that is to be registered. It is pinned. From start to done it belongs to the registrar.
type registerJob struct {
	x      *registration
	mem    transport.Mem
	rights int
	shared bool // by several operations, so that the cache cannot count its uses
	err    error
	then   func(x *registration, err error) // is called in Poll
}

func (r *registrar) init(dev *hca, makeRegion func(addr uint64, bytes, rights int) (region, error), tell func()) {
	r.dev, r.make, r.tell = dev, makeRegion, tell
	r.ended.L = &r.mu
}

func (r *registrar) start(j *registerJob) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.jobs = append(r.jobs, j)
	r.another()
}

// end ends a registration. No operation of this rank uses it. A goroutine ends it soon for long memory, unless a peer
// may write by the key: then nothing may be written when end has returned.
func (r *registrar) end(x region) {
	if x.bytes > registerAtOnce && x.rights&remoteWrite == 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.closed {
			r.ends = append(r.ends, toEnd{region: x})
			r.another()
			return
		}
	}
	r.dev.deregister(x)
}

// endBy returns what ends a registration, also one by which a peer may write. The caller, who holds no lock, calls it
// once. The device is not closed.
func (r *registrar) endBy(x *registration) func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ending++
	return func() {
		r.dev.deregister(x.region)
		x.pin.Unpin()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.endedOne()
	}
}

// destroy has a goroutine destroy a queue pair, of which this rank has no request to hear of. The caller may hold
// Device.mu: for a device it takes milliseconds.
func (r *registrar) destroy(q queuePair) {
	r.mu.Lock()
	closed := r.closed
	if !closed {
		r.ends = append(r.ends, toEnd{pair: q})
		r.another()
	}
	r.mu.Unlock()
	if closed {
		q.destroy()
	}
}

// another starts a goroutine if there may be one more. mu is held.
func (r *registrar) another() {
	if r.workers < registrars {
		r.workers++
		r.wg.Go(r.work)
	}
}

func (r *registrar) work() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		switch {
		case len(r.ends) > 0:
			r.endOne()
		case len(r.jobs) > 0:
			j := r.jobs[0]
			r.jobs[0] = nil
			r.jobs = r.jobs[1:]
			r.do(j)
		default:
			r.workers--
			return
		}
	}
}

// do registers the memory of j. mu is held, but meanwhile it is not.
func (r *registrar) do(j *registerJob) {
	if j.err = errClosed; !r.closed {
		r.mu.Unlock()
		j.x.region, j.err = r.make(j.mem.Number(), j.mem.Len, j.rights)
		r.mu.Lock()
	}
	r.over = append(r.over, j)
	r.tell()
}

// endOne ends what is next. mu is held, but meanwhile it is not.
func (r *registrar) endOne() {
	x := r.ends[len(r.ends)-1]
	r.ends = r.ends[:len(r.ends)-1]
	r.ending++
	r.mu.Unlock()
	if x.pair != 0 {
		x.pair.destroy()
	} else {
		r.dev.deregister(x.region)
	}
	r.mu.Lock()
	r.endedOne()
}

// endedOne notes that what a goroutine was at has ended. mu is held.
func (r *registrar) endedOne() {
	if r.ending--; r.ending == 0 {
		r.ended.Broadcast()
	}
}

// settle ends what is to end, and reports whether that was something: there is more room for registrations and queue
// pairs.
func (r *registrar) settle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	some := len(r.ends)+r.ending > 0
	for len(r.ends) > 0 {
		r.endOne()
	}
	for r.ending > 0 {
		r.ended.Wait()
	}
	return some
}

// done returns the jobs that are over.
func (r *registrar) done() []*registerJob {
	r.mu.Lock()
	defer r.mu.Unlock()
	over := r.over
	r.over = nil
	return over
}

// close waits for the goroutines. What has not been begun is not registered. The caller calls done once more.
func (r *registrar) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.wg.Wait()
	r.settle()
}
