package transport

import "github.com/gorun-mpi/mpi/internal/wire"

// Offload describes a device that holds part of the posted-receive list itself, and that may run the rendezvous of a
// match by itself (verbs with a tag-matching shared receive queue). The engine keeps a shadow of every posted receive
// in tagmatch. It alone decides what is handed down, in post order: a receive may be in the device only if every older
// receive that could match the same message is.
//
// The device reports a message that it cannot match as Unmatched. A receive that is handed down after such a message
// has arrived is not matched before the engine has dealt with all of them (Seen), so that no message overtakes another.
// If the engine finds that such a packet belongs to a receive that it has handed down, the device has not matched that
// receive and never will.
//
// Events about receives come through Poll among the others, in the order in which the device saw the messages, with the
// receive's Cookie. If Err of OffloadDone is set, Down follows; otherwise Header.Kind says what has happened:
//
//	Eager      Header.Len bytes are in the buffer
//	EagerSync  as Eager, and the sender, Header.ID, waits for Matched
//	FIN        all of a rendezvous, Header.Len bytes, is in the buffer, and the sender has the FIN
//	RTS        the engine does the rendezvous; the header is the header of the RTS
type Offload struct {
	Tags int // receives that the device holds at most
	Min  int // bytes; a shorter buffer is not handed down: a message might not fit, or it is not worth it
	// Post hands down a receive: the next message whose PackTag, masked, equals tag goes to buf. buf is the device's
	// until OffloadDone or OffloadBack. tag has no bits outside of mask. A device that takes long to register buf does
	// not match the receive before, nor a later one that could match the same message: such a message is Unmatched.
	Post func(tag, mask uint64, buf Mem, cookie uint64) Posted
	// Cancel asks for a receive back. OffloadBack follows, or, if a message was faster, OffloadMatched and OffloadDone.
	// If the latest Poll has handed out its end already, which the engine may not have come to yet, it does nothing.
	Cancel func(cookie uint64)
	// Seen says that the engine has dealt with one more Unmatched packet.
	Seen func()
}

// Posted is what became of Offload.Post.
type Posted uint8

const (
	PostedDown     Posted = iota // the device has it
	PostedFull                   // its list or its queue is full
	PostedUnmapped               // it cannot reach the buffer
)

// PackTag is what a device matches by: context, source and tag in 64 bits. False: they do not fit, and software matches
// all such messages and receives.
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
