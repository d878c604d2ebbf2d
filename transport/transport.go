package transport

import (
	"context"
	"errors"

	"github.com/gorun-mpi/mpi/internal/wire"
)

// Device is one rank's end of a transport. All methods but Interrupt, Ring
// and Address are called with the engine's lock held, so one at a time;
// Connect and Park are the exceptions: they may block and are called without it.
type Device interface {
	// Name is what users type in GORUN_TRANSPORTS and read in logs.
	Name() string
	// Address is what a peer's Connect needs. It is published before anybody connects.
	Address() []byte
	// Connect opens a way to send to peer. Links are one-way: the peer makes its own when it answers.
	// Called at most once at a time per peer. The error says what was tried.
	Connect(ctx context.Context, peer int, address []byte) (Link, error)
	// Poll fills pkts with what has arrived and returns how many; 0 at once if nothing has.
	// It returns the previous call's payloads to the transport. Its cost does not grow with the number of peers.
	Poll(pkts []Packet) int

	// Arm asks that from now on an arrival (of packets with wire.Urgent only, if level is Urgent) ends Park(hold).
	// It returns false, and is not armed, if there is something to poll already. A packet with wire.Wake ends
	// Park(false) whether armed or not.
	Arm(level Level, hold bool) bool
	// Disarm ends Arm: nobody needs to be woken, somebody polls.
	Disarm()
	// Park sleeps until an armed arrival or Interrupt. It may return early for no reason.
	// hold: the calling thread may be put to sleep, which wakes fastest; otherwise only the goroutine is.
	// At most one Park with hold and one without are under way at a time. Park(true) returns at once if the device
	// is not armed; Park(false) sleeps until somebody arms and something arrives.
	Park(hold bool)
	// Interrupt ends the Parks that are under way; one that is between Arm and Park(true), or that will call
	// Park(false), returns at once. Any goroutine may call it at any time until Close.
	Interrupt()

	// Close frees everything. Links are dead afterwards.
	Close() error
}

// Level says what is worth waking for.
type Level uint8

const (
	// Any: a goroutine waits, every arrival counts.
	Any Level = iota
	// Urgent: the rank computes with operations under way; only peers that wait for an answer count.
	Urgent
)

// Link sends packets to one peer, in order.
type Link interface {
	// Caps are fixed when the link is made.
	Caps() *Caps
	// TrySend takes a packet, or returns false and has taken nothing: no room now, try after the next Poll.
	// h and payload are copied before it returns. A link whose peer is gone takes packets and drops them;
	// Poll reports it with Down.
	TrySend(h *wire.Header, payload []byte) bool
}

// Caps are the facts of a link, read when it is made and never per message.
type Caps struct {
	EagerMax int    // bytes; a longer message is cheaper by rendezvous
	WaitMax  int    // the same where the sender's caller waits, so that no other message is under way; 0: EagerMax
	FragMax  int    // bytes; the longest payload TrySend takes. It may become less, never more: read it for each fragment
	Get      bool   // the link is a Getter that works
	WhyNot   string // if !Get: why, for people
	GetMax   int    // bytes that one TryGet or TryPut should move; 0: the engine's choice. More where it costs the caller nothing
	// TellsRoom: after a refusal Poll reports with Room that there is room again, and an armed Park ends for it. Where
	// it is not set, whoever has been refused must try again.
	TellsRoom bool
	LendMax   int // bytes; the longest payload TryLend takes, if the link is a Lender
	// Hosted: the device is software, whose threads move the data on processors of this host. Whoever polls it without
	// end keeps them from doing so, and should give its processor away when there is nothing.
	Hosted bool
}

// Getter is a Link that can read the peer's memory without the peer's help (RDMA READ, process_vm_readv).
type Getter interface {
	Link
	// Register makes buf readable by the peer until Deregister; ok=false: it cannot be, use a stream.
	Register(buf []byte) (addr, key uint64, ok bool)
	Deregister(addr, key uint64)
	// TryGet reads len(dst) bytes at the peer's addr. See GetState. dst belongs to the link until then.
	TryGet(dst []byte, addr, key uint64, cookie uint64) (GetState, error)
}

// Putter is a Getter that can also write the peer's memory (RDMA WRITE, process_vm_writev), at an address that the
// peer has registered on its link to us.
type Putter interface {
	Getter
	// TryPut writes src to the peer's addr. As TryGet; src belongs to the link until it is done.
	TryPut(src []byte, addr, key uint64, cookie uint64) (GetState, error)
}

// Atomics is a Putter that can also change eight bytes of the peer's memory in one step, and tell the peer that something
// has been written. For one-sided operations; the engine does not use it yet.
type Atomics interface {
	Putter
	// TryFetchAdd adds to the integer of eight bytes, in the peer's byte order, at the peer's addr, a multiple of 8. As
	// TryGet, but never GetDone; what was there before is in Header.Key of the packet Got. In one step with respect to
	// operations of this kind; to the peer's own CPU only where the device can that.
	TryFetchAdd(add uint64, addr, key uint64, cookie uint64) (GetState, error)
	// TryCompareSwap likewise sets them to swap if they are compare.
	TryCompareSwap(compare, swap uint64, addr, key uint64, cookie uint64) (GetState, error)
	// TryPutNote is TryPut, also of nothing, and when all of src is there the peer's Poll reports Noted with note.
	TryPutNote(src []byte, addr, key uint64, note uint32, cookie uint64) (GetState, error)
}

// GetState is what became of a TryGet or TryPut.
type GetState uint8

const (
	GetDone    GetState = iota // the bytes are there
	GetStarted                 // a packet with Event Got and the cookie in Header.ID will say so
	GetFull                    // nothing was started, try after the next Poll
)

// Presence is a Link that knows whether its peer is looking at the ring just now. Where it is, a stream copied by
// both sides at once is the fast way for large messages; where it is not, Get is.
type Presence interface {
	PeerPolls() bool
	// PeerWaits: it looks, or sleeps in a call of the library and is woken by what is urgent.
	PeerWaits() bool
}

// Lender is a Link that can send a payload without copying it.
type Lender interface {
	Link
	// TryLend is TrySend, but payload may be read after it has returned, until the peer has got all of it. The caller
	// leaves it alone until an answer of the peer shows that. Only for Data; at most Caps.LendMax bytes.
	TryLend(h *wire.Header, payload []byte) bool
}

// Placer is a Link whose peer's fragments can be put where they belong, without a copy.
type Placer interface {
	Link
	// Place announces Data packets from this peer with Key key and Tag gen: what they carry is written to dst at
	// their Addr, which must lie within from … len(dst), and Poll reports it with Placed, piece by piece and in
	// order. dst belongs to the link until Displace. One that does not fit is a packet as ever.
	Place(key uint64, gen int32, dst []byte, from int64)
	// Displace ends it: from now on nothing is written to that dst. Without Place before it does nothing.
	Displace(key uint64)
}

// Joint is a Device whose sleep can be joined with that of others.
type Joint interface {
	Device
	// Descriptor is readable when what Arm(level, false) has asked for is there; it is for a set of such descriptors
	// that somebody waits for. It is the device's, and closed by its Close.
	Descriptor() int
	// Clear is called after a sleep: what made the descriptor readable has been noticed. Any goroutine may call it.
	Clear()
}

// Guarded is a Device that strangers can reach.
type Guarded interface {
	// Refused is how many connections were closed because the other end did not prove to belong to the job, was too
	// late, or spoke nonsense. Any goroutine may call it.
	Refused() uint64
}

// Several is a Device made of others, each with a name of its own.
type Several interface {
	// Via is the name of that by which peer was connected, or "". Any goroutine may call it.
	Via(peer int) string
}

// Memory is a Device whose memory peers can reach directly.
type Memory interface {
	// Alloc returns zeroed memory off the Go heap. The error says how much was asked and what was in the way.
	Alloc(bytes int) ([]byte, error)
	// Free returns what Alloc gave. The caller has made sure that nobody uses it.
	Free(mem []byte) error
}

// Adopter is a Device that peers let reach memory which another device has allocated.
type Adopter interface {
	// Adopt makes mem, which stays where it is until Forget, reachable without further ado. If it cannot, messages
	// there are what those in ordinary memory are. Any goroutine may call it.
	Adopt(mem []byte) error
	// Forget ends it. Without Adopt before it does nothing.
	Forget(mem []byte)
}

// Introducer is a Device that tells each peer it connects to what that peer would have to look up to connect back.
type Introducer interface {
	// Introduce is called once, before the first Connect: card is what this rank publishes, at most 1 KiB.
	Introduce(card []byte)
	// Card is what peer has introduced itself with, or nil. It belongs to the device.
	Card(peer int) []byte
}

// Event says what a Packet means.
type Event uint8

const (
	// Arrived: Header and Payload from Peer.
	Arrived Event = iota
	// Got: the TryGet with cookie Header.ID is done, or failed with Err.
	Got
	// Down: Peer is gone; Err says how it was noticed. Nothing more comes from it.
	Down
	// Room: the link to Peer has refused something (Caps.TellsRoom), and has room again.
	Room
	// Noted: Peer has written into this rank's memory (Atomics.TryPutNote), and says Header.Ctx.
	Noted
	// Placed: Header.Len bytes of a Data packet with this Key and Tag are at Header.Addr of what Place was given.
	Placed
)

// Packet is filled by Poll. The caller owns it; the transport owns what Payload points to, until the next Poll.
type Packet struct {
	Event   Event
	Peer    int32 // rank in the world
	Counted bool  // Arrived, from a TagOffload: OffloadSeen when it has been dealt with
	Header  wire.Header
	Payload []byte
	Err     error
	Cookie  uint64 // of a TagOffload's events: that of OffloadPost
}

// ErrUnavailable: this transport cannot be used here. Wrapped with the reason.
var ErrUnavailable = errors.New("transport unavailable")

// ErrPeerGone: the peer's process has ended or its link has broken.
var ErrPeerGone = errors.New("peer is gone")

// ErrTimeout: the peer did not answer in time when it was connected to.
var ErrTimeout = errors.New("no answer in time")

// ErrNoMemory: there is no room for a transport's own buffers.
var ErrNoMemory = errors.New("no memory")
