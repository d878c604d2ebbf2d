package transport

import "sync/atomic"

// Wake is how a sleeper hears of an arrival that Arm has asked for. Package eventset sleeps; a device only shows. It has
// descriptors, or Notify, or both.
type Wake struct {
	// FD is readable after Arm(Urgent) or Arm(Any) while there is something, and, where the device can tell, for a packet
	// with wire.Wake whether armed or not. ThreadFD is readable after Arm(Thread) while there is something; it may be FD.
	// They are the device's, which closes them. -1: none.
	FD, ThreadFD int
	// Clear is called after a sleep: what made FD, or for a thread ThreadFD, readable has been noticed. Any goroutine may
	// call it. nil: the next Poll or Arm does that.
	Clear func(thread bool)
	// Word is Asleep from Arm(Futex) on, until an arrival or the sleeper's end changes it to 0 and wakes the futex.
	Word   *atomic.Uint32
	Asleep uint32
	// Notify is called once, before the first Arm, with a function that ends a sleep: that of a thread or that of a
	// goroutine. The device calls it for what no descriptor shows, from any goroutine. nil: there is no such thing.
	Notify func(wake func(thread bool))
}

// Presence is about a link whose device knows whether the peer looks at its rings just now. Where it does, a stream that
// both sides copy at once is the fast way for large messages; where it does not, a Get is.
type Presence struct {
	Polls func() bool // the peer polls
	Waits func() bool // it polls, or sleeps in a call of the library and is woken by what is urgent
}

// Memory is about a device whose peers can reach memory directly. Any goroutine may call its functions.
type Memory struct {
	// Alloc returns zeroed memory off the Go heap. The error says how much was asked and what was in the way.
	Alloc func(bytes int) ([]byte, error)
	// Free returns what Alloc gave. The caller has made sure that no operation uses it.
	Free func(mem []byte) error
	// Import makes memory that another device has allocated, and that stays where it is until Forget, as good as that of
	// Alloc. After an error messages there are what those in ordinary memory are. nil: the device has no use for it.
	Import func(mem []byte) error
	// Forget ends it. Without Import before it does nothing.
	Forget func(mem []byte)
}

// Introducer is about a device that tells each peer to which it connects what that peer would have to look up to connect
// back. Any goroutine may call its functions.
type Introducer struct {
	// Introduce is called once, before the first Connect: card is what this rank publishes, at most 1 KiB.
	Introduce func(card []byte)
	// Card is what peer has introduced itself with, or nil. It belongs to the device.
	Card func(peer int) []byte
}
