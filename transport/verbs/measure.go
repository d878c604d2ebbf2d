//go:build verbs && linux && cgo

package verbs

import (
	"time"

	"github.com/gorun-mpi/mpi/transport"
)

const (
	// registerLeast and registerMost are the bounds of a measured RegisterFrom.
	registerLeast = 32 << 10
	registerMost  = 4 << 20
	// measureShort and measureLong are the two lengths that are measured.
	measureShort = 32 << 10
	measureLong  = 512 << 10
	// frameCost is what a frame of a stream costs at each end in addition to its copy: to post it, its part of a
	// completion, the engine's work. Measuring it needs a peer. It is rather more.
	frameCost = 300 * time.Nanosecond
	// measureFor is how long further rounds begin, of measureRounds at most. There are two at least: the first one runs
	// code that has not run before. The best one counts. A round takes 0.2 ms where registering takes 50 µs.
	measureFor    = time.Millisecond
	measureRounds = 5
)

// measure finds from which length on it is cheaper to register a message at both ends than to send it as a stream,
// which copies it at both ends, into and out of buffers that are cold. The device copies nothing meanwhile, so that
// only the CPU's time counts. Both are straight lines over the length: two lengths say it all, and opening a device is
// not held up by more than measureFor, or two rounds if they take longer. The send buffers are not in use yet.
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
			x, err := d.registerNew(transport.HostMem(src[:n]), remoteRead)
			if err != nil {
				return registerMost
			}
			d.deregister(x)
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
	d.opt.Debug("verbs: what registering costs", "register-from", from, "register-32KiB", register[0],
		"register-512KiB", register[1],
		"stream-32KiB", stream[0], "stream-512KiB", stream[1], "took", time.Since(began))
	return from
}

// crossing is the power of two from which on registering is cheaper, if it and a stream take so long for the two
// lengths.
func crossing(register, stream [2]time.Duration) int {
	const distance = measureLong - measureShort
	perByte := float64(stream[1]-stream[0]-register[1]+register[0]) / distance // how much faster a stream's cost grows
	dearer := float64(register[0] - stream[0])                                 // registering, for the short one
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
