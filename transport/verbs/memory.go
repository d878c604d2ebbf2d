//go:build verbs && linux && cgo

package verbs

import (
	"fmt"
	"runtime"
	"sort"
	"sync"
	"time"
)

// slab is memory off the Go heap, known to the device from beginning to end, cut into pieces of one size.
type slab struct {
	mem   []byte
	size  int // of a piece
	count int
	reg   region
}

func (d *Device) slab(count, size int) (s slab, err error) {
	s = slab{mem: pages(count * size), size: size, count: count}
	if s.mem == nil {
		return slab{}, fmt.Errorf("mapping %d KiB: out of memory", count*size>>10)
	}
	if s.reg, err = d.hca.register(addressOf(s.mem), len(s.mem), localWrite); err != nil {
		unmap(s.mem)
		return slab{}, fmt.Errorf("registering %d KiB: %w", len(s.mem)>>10, err)
	}
	return s, nil
}

func (s *slab) drop(h *hca) {
	if s.mem != nil {
		h.deregister(s.reg)
		unmap(s.mem)
		s.mem = nil
	}
}

func (s *slab) piece(i uint32) []byte {
	at := int(i) * s.size
	return s.mem[at : at+s.size : at+s.size]
}

// memory is what the device knows beside the slabs: what Alloc gave, and Go memory for the time of one transfer. It
// belongs to the engine's lock.
type memory struct {
	mu    sync.Mutex   // guards alloc
	alloc []allocation // in the order of their addresses

	shown  map[uint32]*exposure // Go memory that a peer may read, by its key
	spare  []*exposure
	cache  keeper // nil: a registration ends with its operation
	failed bool   // a registration has failed, and that was said
}

// allocation is memory that Alloc gave, or another transport's that Adopt was told of.
type allocation struct {
	mem  []byte
	ours bool
	reg  region
}

// exposure is Go memory that the device may use for one transfer: pinned before, and unpinned after.
type exposure struct {
	pin   runtime.Pinner
	reg   region
	shows int // times that it was shown to a peer: more than once only if it is kept
	entry
}

// useCache keeps up to n registrations of Go memory from now on.
func (d *Device) useCache(n int) {
	if n <= 0 {
		return
	}
	if !heapIsKnown() {
		d.opt.Log("no registrations are kept: this version of Go does not say what its heap is", "go", runtime.Version())
		return
	}
	d.memory.cache = newCache(d.hca, n)
}

// register is the device's, which is made room for if need be.
func (d *Device) register(addr uint64, bytes, access int) (region, error) {
	reg, err := d.hca.register(addr, bytes, access)
	if err != nil && d.memory.cache != nil && d.memory.cache.shrink() {
		return d.hca.register(addr, bytes, access)
	}
	return reg, err
}

// known returns the registration of memory that has one for good.
func (m *memory) known(b []byte) (region, bool) {
	at := addressOf(b)
	m.mu.Lock()
	defer m.mu.Unlock()
	i := sort.Search(len(m.alloc), func(i int) bool { return addressOf(m.alloc[i].mem) > at }) - 1
	if i < 0 {
		return region{}, false
	}
	a := &m.alloc[i]
	if off := at - addressOf(a.mem); off+uint64(len(b)) > uint64(len(a.mem)) {
		return region{}, false
	}
	return a.reg, true
}

// expose registers b, which is Go's, until conceal.
func (d *Device) expose(b []byte, access int) (*exposure, error) {
	if d.memory.cache == nil {
		return d.exposeOnce(b, access)
	}
	if x := d.memory.cache.take(b, access); x != nil {
		return x, nil
	}
	x, err := d.exposeOnce(b, access)
	if err == nil {
		d.memory.cache.keep(x, b, access)
	}
	return x, err
}

func (d *Device) exposeOnce(b []byte, access int) (*exposure, error) {
	var x *exposure
	if n := len(d.memory.spare); n > 0 {
		x = d.memory.spare[n-1]
		d.memory.spare = d.memory.spare[:n-1]
	} else {
		x = new(exposure)
	}
	x.pin.Pin(&b[0])
	var err error
	if x.reg, err = d.register(addressOf(b), len(b), access); err != nil {
		x.pin.Unpin()
		d.memory.spare = append(d.memory.spare, x)
		if !d.memory.failed {
			d.memory.failed = true
			d.opt.Log("a message is copied because its memory could not be registered; further ones may be, which will not be said",
				"bytes", len(b), "error", explainMemlock(err))
		}
		return nil, err
	}
	d.stats.Registered++
	return x, nil
}

// conceal ends that. The device has no request left that names the memory.
func (d *Device) conceal(x *exposure) {
	if x.uses > 0 {
		d.memory.cache.give(x)
		return
	}
	d.hca.deregister(x.reg)
	x.pin.Unpin()
	*x = exposure{pin: x.pin}
	d.memory.spare = append(d.memory.spare, x)
}

// concealTagged is for Close: the queue pairs are destroyed, so that nothing comes into the receives that are still in the
// device's list.
func (d *Device) concealTagged() {
	for i := range d.tags.all {
		if e := &d.tags.all[i]; e.exposed != nil {
			d.conceal(e.exposed)
			e.exposed = nil
		}
	}
}

// show has peers know an exposure by its key.
func (m *memory) show(x *exposure) {
	if m.shown == nil {
		m.shown = map[uint32]*exposure{}
	}
	m.shown[x.reg.rkey] = x
	x.shows++
}

// hide ends one showing. unsure: peers may not have done with the memory, so that its key must not live on.
func (d *Device) hide(key uint32, unsure bool) {
	x := d.memory.shown[key]
	if x == nil {
		return
	}
	if x.shows--; x.shows == 0 {
		delete(d.memory.shown, key)
	}
	if x.uses > 0 && unsure {
		d.memory.cache.forget(x)
		return
	}
	d.conceal(x)
}

func (m *memory) drop(h *hca) {
	for _, x := range m.shown {
		if !x.kept {
			h.deregister(x.reg)
			x.pin.Unpin()
		}
	}
	m.shown = nil
	if m.cache != nil {
		m.cache.drop()
	}
	for _, a := range m.alloc {
		h.deregister(a.reg)
		if a.ours {
			unmap(a.mem)
		}
	}
	m.alloc = nil
}

const everything = localWrite | remoteWrite | remoteRead | remoteAtomic

// Alloc is transport.Memory's: registered once, for as long as it lives.
func (d *Device) Alloc(bytes int) ([]byte, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("verbs: %d bytes were asked for", bytes)
	}
	mem := pages(bytes)
	if mem == nil {
		return nil, fmt.Errorf("verbs: %d bytes were asked for: out of memory", bytes)
	}
	if err := d.adopt(mem, true); err != nil {
		unmap(mem)
		return nil, fmt.Errorf("verbs: %d bytes were asked for: registering them: %w", bytes, explainMemlock(err))
	}
	return mem, nil
}

func (d *Device) adopt(mem []byte, ours bool) error {
	reg, err := d.register(addressOf(mem), len(mem), everything)
	if err != nil {
		return err
	}
	d.memory.mu.Lock()
	defer d.memory.mu.Unlock()
	i := sort.Search(len(d.memory.alloc), func(i int) bool { return addressOf(d.memory.alloc[i].mem) > addressOf(mem) })
	d.memory.alloc = append(d.memory.alloc, allocation{})
	copy(d.memory.alloc[i+1:], d.memory.alloc[i:])
	d.memory.alloc[i] = allocation{mem, ours, reg}
	return nil
}

// Free is transport.Memory's.
func (d *Device) Free(mem []byte) error {
	if !d.release(mem, true) {
		return fmt.Errorf("verbs: %d bytes at %#x are not what Alloc gave", len(mem), addressOf(mem))
	}
	unmap(mem)
	return nil
}

// release ends an adoption, and reports whether there was one.
func (d *Device) release(mem []byte, ours bool) bool {
	d.memory.mu.Lock()
	defer d.memory.mu.Unlock()
	for i, a := range d.memory.alloc {
		if len(mem) == len(a.mem) && addressOf(a.mem) == addressOf(mem) && a.ours == ours {
			d.hca.deregister(a.reg)
			d.memory.alloc = append(d.memory.alloc[:i], d.memory.alloc[i+1:]...)
			return true
		}
	}
	return false
}

// Adopt is transport.Adopter's.
func (d *Device) Adopt(mem []byte) error { return d.adopt(mem, false) }

// Forget is transport.Adopter's.
func (d *Device) Forget(mem []byte) { d.release(mem, false) }

const (
	// registerLeast and registerMost are the bounds of a measured RegisterFrom.
	registerLeast = 32 << 10
	registerMost  = 4 << 20
	// measureShort and measureLong are the two lengths that are measured.
	measureShort = 32 << 10
	measureLong  = 512 << 10
	// frameCost is what a frame of a stream costs at each end beside its copy, which needs a peer to be measured: to post
	// it, its part of a completion, the engine's work. It is rather more.
	frameCost = 300 * time.Nanosecond
	// measureFor is how long further rounds begin, of measureRounds at most. There are two at least: the first one runs
	// code that nobody has run yet. The best one counts. A round takes 0.2 ms where registering takes 50 µs.
	measureFor    = time.Millisecond
	measureRounds = 5
)

// measure finds from which length on it is cheaper to register a message at both ends than to send it as a stream, which
// copies it at both ends, into and out of buffers that are cold. The device copies nothing meanwhile, so that only the
// CPU's time counts. Both are straight lines over the length: two lengths say it all, and opening a device is not held up
// by more than measureFor, or two rounds if they take longer. Nobody uses the send buffers yet.
func (d *Device) measure() int {
	src := make([]byte, measureLong)
	for i := 0; i < measureLong; i += cacheLeast {
		src[i] = 1
	}
	var register, stream [2]time.Duration
	frame := 0
	began := time.Now()
	for round := 0; round < 2 || round < measureRounds && time.Since(began) < measureFor; round++ {
		for i, n := range [2]int{measureShort, measureLong} {
			start := time.Now()
			x, err := d.exposeOnce(src[:n], remoteRead)
			if err != nil {
				return registerMost
			}
			d.conceal(x)
			registered := time.Now()
			for at := 0; at < n; at += eagerMax {
				copy(d.send.piece(uint32(frame%d.send.count)), src[at:at+eagerMax])
				frame++
			}
			r, m := registered.Sub(start), time.Since(registered)+time.Duration(n/eagerMax)*frameCost
			if round == 0 || r < register[i] {
				register[i] = r
			}
			if round == 0 || m < stream[i] {
				stream[i] = m
			}
		}
	}
	from := crossing(register, stream)
	d.opt.Debug("verbs: what registering costs", "register-from", from, "register-32KiB", register[0], "register-512KiB", register[1],
		"stream-32KiB", stream[0], "stream-512KiB", stream[1], "took", time.Since(began))
	return from
}

// crossing is the power of two from which on registering is cheaper, if it and a stream take so long for the two lengths.
func crossing(register, stream [2]time.Duration) int {
	const apart = measureLong - measureShort
	perByte := float64(stream[1]-stream[0]-register[1]+register[0]) / apart // how much faster a stream's cost grows
	dearer := float64(register[0] - stream[0])                              // registering, for the short one
	if dearer <= 0 {
		return registerLeast
	}
	if perByte <= 0 {
		return registerMost
	}
	at := measureShort + dearer/perByte
	from := registerLeast
	for float64(from) < at && from < registerMost {
		from *= 2
	}
	return from
}
