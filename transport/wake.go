package transport

import "sync/atomic"

// Wake is how a device shows a sleeper an arrival that Arm has asked for. Package eventset sleeps; a device only shows.
// It has descriptors, or Notify, or both.
type Wake struct {
	// FD is readable after Arm(Urgent) or Arm(Any) while there is something to poll. Where the device can see it, FD is
	// also readable for a packet with wire.Wake, armed or not. ThreadFD is readable after Arm(Thread) while there is
	// something; it may be FD. The device owns both and closes them. -1: none.
	FD, ThreadFD int
	// OnlyArmed: FD is looked at from Arm to Disarm only. Else each arrival takes the kernel time to show it to the
	// sets of the sleepers, also when the rank polls. To begin and to end the looking is a system call each. FD is
	// ThreadFD then, and there is no Word.
	OnlyArmed bool
	// Clear is called after a sleep: what made FD, or for a thread ThreadFD, readable has been noticed. Any goroutine
	// may call it. nil: the next Poll or Arm does that.
	Clear func(thread bool)
	// Word is Asleep from Arm(Futex) on, until an arrival or an interrupt changes it to 0 and wakes the futex.
	Word   *atomic.Uint32
	Asleep uint32
	// Notify is called once, before the first Arm, with a function that ends the sleep of a thread or of a goroutine.
	// The device calls this function, from any goroutine, for what no descriptor shows. nil: descriptors show
	// everything.
	Notify func(wake func(thread bool))
}

// Presence describes a link whose device knows whether the peer polls at this moment. If the peer polls, a stream,
// which both sides copy at once, is the fast way for large messages; otherwise a Get is.
type Presence struct {
	Polls func() bool // the peer polls
	Waits func() bool // it polls, or sleeps in a call of the library and is woken by what is urgent
}

// Memory describes a device whose peers can reach memory directly. Any goroutine may call its functions.
type Memory struct {
	// Alloc returns zeroed memory off the Go heap. The error says how much was asked and what was in the way.
	Alloc func(bytes int) ([]byte, error)
	// Free frees what Alloc has returned. The caller has made sure that no operation uses it.
	Free func(mem []byte) error
	// Import makes memory that another device has allocated as good as memory of Alloc; it is not freed before Forget.
	// After an error it is like ordinary memory. nil: the device has no use for it.
	Import func(mem []byte) error
	// Forget ends Import. Without an Import before it does nothing.
	Forget func(mem []byte)
}

// Introducer describes a device that sends each peer to which it connects this rank's business card, which the peer
// would otherwise have to look up to connect back. Any goroutine may call its functions.
type Introducer struct {
	// Introduce is called once, before the first Connect: card is what this rank publishes, at most 1 KiB.
	Introduce func(card []byte)
	// Card returns the card that peer has sent, or nil. It belongs to the device.
	Card func(peer int) []byte
}
