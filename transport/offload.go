package transport

import "github.com/gorun-mpi/mpi/internal/wire"

// The second and third level of ability (DESIGN: three levels). Both are
// asked for once, when the engine is made, by type assertion on the Device.

// TagOffload is a Device that holds part of the posted-receive list itself and may run the rendezvous of a match by
// itself (verbs with a tag-matching shared receive queue). The engine keeps a shadow of every posted receive in tagmatch
// and is the only one to decide what is handed down, in post order: a receive may be in the device only if every older
// receive that could match the same message is.
//
// What the device cannot match it reports as Arrived, with Packet.Counted set. From then until the engine has dealt with
// that packet (OffloadSeen) nothing that is handed down is matched, so that no message overtakes another. If the engine
// finds that such a packet belongs to a receive that it has handed down, that one has not been matched and never will be.
//
// Packets about receives come through Poll among the others, in the order in which the device saw the messages, with
// the receive's Cookie.
type TagOffload interface {
	Device
	// OffloadLimits are fixed when the device is opened.
	OffloadLimits() OffloadLimits
	// OffloadPost hands down a receive: the next message whose PackTag, masked, is tag goes to buf, which is the
	// device's until OffloadDone or OffloadBack. tag has no bits outside of mask.
	OffloadPost(tag, mask uint64, buf []byte, cookie uint64) Offloading
	// OffloadCancel asks for a receive back; OffloadBack follows, or, if a message was faster, OffloadMatched and
	// OffloadDone as ever.
	OffloadCancel(cookie uint64)
	// OffloadSeen: one more packet with Counted set has been dealt with.
	OffloadSeen()
}

// OffloadLimits are the facts of a TagOffload device.
type OffloadLimits struct {
	Tags int // receives that it holds at most
	Min  int // bytes; a shorter buffer is not handed down: a message might not fit, or it is not worth it
}

// Offloading is what became of OffloadPost.
type Offloading uint8

const (
	Offloaded           Offloading = iota // the device has it
	OffloadFull                           // its list or its queue is full
	OffloadUnregistered                   // it cannot reach the buffer
)

// Offloader is a Link whose peer's messages all come through a device that can match them.
type Offloader interface {
	Link
	// Offload is that device; nil: they are matched by software.
	Offload() TagOffload
}

// Further events of a TagOffload device.
const (
	// OffloadMatched: the device has matched the receive with a message of Peer with Header.Tag; where the payload is,
	// OffloadDone will say.
	OffloadMatched Event = iota + 16
	// OffloadDone: what Header.Kind says. Eager: Header.Len bytes are in the buffer. EagerSync: as Eager, and the
	// sender, Header.ID, waits for Matched. FIN: all of a rendezvous, Header.Len bytes, is in the buffer, and the sender
	// has been told. RTS: the rendezvous is left to the engine; the header is that of the RTS. Or Err: Down follows.
	OffloadDone
	// OffloadBack: the receive is the engine's again; it has not been matched.
	OffloadBack
)

// PackTag is what a device matches by: context, source and tag in 64 bits. False: they do not fit, and such messages
// and receives are matched by software, all of them.
//
//	 63       48 47        31 30        0
//	┌───────────┬────────────┬───────────┐
//	│  context  │   source   │    tag    │
//	└───────────┴────────────┴───────────┘
func PackTag(ctx uint32, source, tag int32) (uint64, bool) {
	if ctx>>16 != 0 || uint32(source)>>17 != 0 || tag < 0 {
		return 0, false
	}
	return uint64(ctx)<<48 | uint64(source)<<31 | uint64(tag), true
}

// UnpackTag is the reverse of PackTag.
func UnpackTag(packed uint64) (ctx uint32, source, tag int32) {
	return uint32(packed >> 48), int32(packed >> 31 & (1<<17 - 1)), int32(packed & wire.MaxTag)
}

// Masks for receives: of all, and of all but the tag.
const (
	MaskExact  = ^uint64(0)
	MaskAnyTag = ^uint64(wire.MaxTag)
)

// Tagged is a Device under which a library does the whole matching (UCX tag
// API, libfabric). The engine maps (Ctx, source, Tag) to tag and mask and uses
// none of its own protocols. Completions come through Poll as TaggedDone with
// the cookie in Header.ID.
type Tagged interface {
	Device
	TaggedSend(peer int, tag uint64, buf []byte, synchronous bool, cookie uint64) bool
	TaggedReceive(tag, mask uint64, buf []byte, cookie uint64) bool
	TaggedProbe(tag, mask uint64, take bool) (message uint64, sender uint64, bytes int64, found bool)
	TaggedReceiveMessage(message uint64, buf []byte, cookie uint64) bool
	TaggedCancel(cookie uint64) bool
}

// TaggedDone: an operation of a Tagged device has ended; Err, if any, says how.
const TaggedDone Event = 32
