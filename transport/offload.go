package transport

// The second and third level of ability (DESIGN: three levels). Both are
// asked for once, when the engine is made, by type assertion on the Device.

// TagOffload is a Device that holds part of the posted-receive list itself and
// may run the rendezvous of a match by itself (verbs with a tag-matching
// shared receive queue). The engine keeps a shadow of every posted receive in
// tagmatch and is the only one to decide what is handed down, in post order:
// a receive may be in the device only if every older receive that could match
// the same message is. Completions come through Poll as packets whose Event is
// Offloaded*, with the cookie in Header.ID, in the order the device saw them.
type TagOffload interface {
	Device
	// OffloadPost hands down a receive. tag and mask are over the 64 bits (Ctx, source, Tag) packed by the
	// engine. False: the list is full, the receive stays with software.
	OffloadPost(tag, mask uint64, buf []byte, cookie uint64) bool
	// OffloadCancel asks for a receive back; OffloadCancelled or OffloadMatched says who won.
	OffloadCancel(cookie uint64) bool
	// OffloadSync tells the device how many of its unexpected messages the engine has seen, so that
	// a receive that was posted meanwhile cannot be overtaken.
	OffloadSync(unexpected uint64)
}

// Further events of a TagOffload device.
const (
	OffloadMatched   Event = iota + 16 // the device matched the receive; the payload is on its way
	OffloadDone                        // the payload has arrived; Header.Tag, Header.Len and Peer describe it
	OffloadCancelled                   // the receive is back with the engine
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
