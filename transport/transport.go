package transport

import (
	"context"
	"errors"
	"fmt"

	"github.com/gorun-mpi/mpi/internal/wire"
)

// Device is one rank's end of a transport. Connect may block and is called without the engine's lock. The functions in
// Facts say what guards them. All other methods are called with the lock held, so one at a time.
type Device interface {
	// Name is the name in GORUN_TRANSPORTS and in logs.
	Name() string
	// Address is what a peer's Connect needs. It is published before the first Connect.
	Address() []byte
	// Facts are what else the device can do. They are fixed when it is opened.
	Facts() *Facts
	// Connect opens a link to peer. Links are one-way: the peer opens its own when it answers.
	// It is called at most once at a time per peer. The error says what was tried.
	Connect(ctx context.Context, peer int, address []byte) (Link, error)
	// Poll fills pkts with what has arrived and returns how many; 0 at once if nothing has. The previous call's
	// payloads are the transport's again. Its cost does not grow with the number of peers. It does not end Arm: another
	// sleeper may rely on that, and what a Poll leaves is shown to it like what comes later.
	Poll(pkts []Packet) int
	// Arm makes Facts.Wake show an arrival from now on, as level says. It ends an earlier Arm.
	// False: the device is not armed, since there is something to poll already.
	Arm(level Level) bool
	// Disarm ends Arm, because the caller polls.
	Disarm()
	// Close frees everything. Links take and drop packets afterwards.
	Close() error
}

// Link sends packets to one peer, in order.
type Link interface {
	// Caps are fixed when the link is made, but for FragMax.
	Caps() *Caps
	// TrySend takes a packet, or returns false and has taken nothing: there is no room now. When there is, Poll reports
	// Room, once for any number of refusals before, and an armed sleep of any level ends for it; not before that need
	// the caller try again, and if it does it may find room. A refusal because the peer does not poll ends the peer's
	// sleep of level Urgent: nothing urgent comes otherwise. h and payload are copied before it returns. A link whose
	// peer is gone takes packets and drops them; Poll reports that end with Down.
	TrySend(h *wire.Header, payload []byte) bool
}

// Facts of a device. A nil field is an ability that it does not have.
type Facts struct {
	Wake       []Wake // how an arrival is shown to a sleeper; several of a device that is made of several
	Memory     *Memory
	Boards     *Boards
	Introducer *Introducer
	Offload    *Offload                      // the device can match tags, of messages that come as Caps.Offload says
	Tagged     Tagged                        // the device does all matching by itself, and makes no links
	Glances    bool                          // it ends sleeps again and again, to have one Poll find what it cannot show
	Via        func(peer int) string         // of a device made of several: which of them has connected peer, or ""
	Short      func() (Short, []byte, Found) // the next message, where that is had with less than Poll; see short.go
	Refused    func() uint64                 // connections that did not authenticate; any goroutine may call it
	// ConnectNow is Connect for a peer that can be reached without waiting for any other process, and otherwise returns
	// nil: Connect knows why not. It is called with the lock held.
	ConnectNow func(peer int, address []byte) Link
	// OwnRMA reaches this rank's own memory through the device, so that the device makes this rank's atomics too; nil:
	// it cannot now. Its Room and RMADone have this rank as Peer. It is never Down: its operations fail then. It is
	// called with the lock held.
	OwnRMA func() *RMA
}

// Caps are the facts of a link, read when it is made and never per message. A nil field is an ability that it lacks.
type Caps struct {
	EagerMax int // bytes; a longer message is cheaper by rendezvous
	// EagerSure, in bytes, is for a sender that waits: one of at most so many bytes is cheaper eager, a longer one not
	// everywhere, so both are measured. Where the sender does not wait, a longer one is announced if it follows others.
	// 0: EagerMax.
	EagerSure int
	FragMax   int // bytes; the longest payload that TrySend takes. It may shrink and never grows: read it per fragment
	// Cut ends the connection with the peer, both ways; Down follows, as if it had broken. nil only of a link by which
	// neither end touches the other's memory, nor lends any: one without RMA and ZeroCopy.
	Cut      func()
	SameHost bool // the peer is on this host, and uses its devices
	Hosted   bool // the device is software on this host: a caller that polls without end takes its processor from it
	RMA      *RMA
	WhyNoRMA string // if RMA is nil: the reason, for logs
	Presence *Presence
	ZeroCopy *ZeroCopy
	// Offload: all messages of this peer come through Facts.Offload, which can match them. It is so at both ends, or at
	// neither.
	Offload bool
}

// Level of Arm: which arrivals are shown, and to which sleeper.
type Level uint8

const (
	Urgent Level = iota // Wake.FD shows packets that a peer waits for (wire.Urgent): the rank computes
	Any                 // Wake.FD shows every arrival: a goroutine sleeps
	Thread              // Wake.ThreadFD shows every arrival: a thread sleeps
	Futex               // Wake.Word changes at every arrival: a thread sleeps on it. Only where there is a Word
)

// Event says what a packet means, and which of its fields are set in addition to Event and Peer. The other fields are
// undefined.
type Event uint8

const (
	Arrived   Event = iota // Header, Payload: a packet of Peer
	Unmatched              // as Arrived, left to software by a device that matches tags: see Offload.Seen
	Down                   // Err: Peer is gone, and nothing that it does reaches this rank's memory; see below
	Room                   // the link to Peer has refused something, and has room again, perhaps for less than that
	RMADone                // Cookie, Err: a Get, Put, atomic or Prepare has ended; Value: the integer before an atomic
	Noted                  // Value: the note of a PutNote of Peer, whose bytes are there
	Placed                 // Header.Len bytes of stream (Header.Key, Header.Tag) are at Header.Addr of its destination

	OffloadMatched // Cookie, Header.Tag: the receive has got a message of Peer, whose payload OffloadDone announces
	OffloadDone    // Cookie, Header, Err: see Offload
	OffloadBack    // Cookie: the receive is the engine's again; it has not been matched. Peer: that of the receive

	Reached // Cookie: what Board.Expect has asked for is so. Peer: this rank

	TaggedDone    // Cookie, Header.Tag, Header.Len, Err: an operation of a Tagged device has ended; its cookie is free
	TaggedGivenUp // Cookie, Err: it counts as ended, and its cookie is free after TaggedDone, which may never come
)

// After Down neither the peer nor the link to it touches this rank's memory: what was registered or lent is this rank's
// alone. Nothing more comes of the peer but the ends of operations, which keep their buffers until then: RMADone,
// OffloadDone and OffloadBack.

// Packet is filled by Poll. The caller owns it. The transport owns what Payload points to, which is valid until the
// next Poll.
type Packet struct {
	Event   Event
	Peer    int32 // rank in the world
	Header  wire.Header
	Payload []byte
	Err     error
	Cookie  uint64 // of the operation that the event is about
	Value   uint64
}

var (
	// ErrUnavailable means that this transport cannot be used here. It is wrapped with the reason.
	ErrUnavailable = errors.New("transport unavailable")
	// ErrPeerGone means that the peer's process has ended or its link has broken.
	ErrPeerGone = errors.New("peer is gone")
	// ErrTimeout means that the peer did not answer in time when it was connected to.
	ErrTimeout = errors.New("no answer in time")
	// ErrCancelled means that an operation of a Tagged device has ended by Cancel.
	ErrCancelled = errors.New("cancelled")
	// ErrNoMemory means that there is no room for a transport's own buffers.
	ErrNoMemory = errors.New("no memory")
)

// Gone returns an ErrPeerGone whose own words say what has happened to the peer, as fmt.Errorf has them.
func Gone(format string, args ...any) error { return &goneError{fmt.Errorf(format, args...)} }

type goneError struct{ error }

func (e *goneError) Is(target error) bool { return target == ErrPeerGone }
func (e *goneError) Unwrap() error        { return e.error }
