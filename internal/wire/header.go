package wire

import (
	"encoding/binary"
	"fmt"
)

// Kind says what a packet is. The zero Kind is never sent, so that zeroed
// memory is not a message.
type Kind uint8

const (
	_ Kind = iota
	// Eager is a whole message; the payload follows. Ctx, Tag.
	Eager
	// EagerSync is Eager whose sender waits for Matched. Ctx, Tag, ID.
	EagerSync
	// Matched says that the synchronous eager message ID has been matched. ID.
	Matched
	// RTS is a request to send; the payload stays with the sender. Ctx, Tag, ID, Len, Addr, Key.
	RTS
	// CTS is a clear to send: the receiver asks for a stream. ID (sender's), Key (receiver's), Addr (offset), Len
	// (bytes requested), Tag (number of the stream).
	CTS
	// Data is one fragment of a stream. Key (receiver's), Addr (offset in the message), Tag (number of the stream).
	Data
	// FIN says that the receiver has what it wants; the sender may reuse its buffer. ID. Not sent after a stream whose
	// RTS had NoFIN.
	FIN
	// Credit says that the receiver has released unexpected-message room. Len (bytes), Addr (bytes beyond what it has
	// granted before, for envelopes), Key (likewise, for messages of any kind).
	Credit
	// Cancel asks to take back the message ID if it is not matched. ID.
	Cancel
	// CancelReply answers Cancel. ID; Len is 1 if the message was taken back, 0 if it had been matched.
	CancelReply
	// PutReq asks the sender to write the last Len bytes of message ID to the receiver's Addr (registration key in
	// Ctx). Key (receiver's).
	PutReq
	// PutDone says that the sender has written (Len as asked), or cannot (Len 0). Key (receiver's).
	PutDone
	// CreditReq says that the sender has messages and no credit for their envelopes. Len (bytes of credit that it has
	// got, Addr and Key included).
	CreditReq
	// Watch says that the sender waits for the receiver, which is to say when it has returned.
	Watch
	// Returned says that the sender makes no call any more, and has nothing under way. It comes behind all that the
	// sender has sent.
	Returned
	// Blocked says that the sender now waits in a call for the message ID, which it has announced without the flag
	// Blocking and which may have that flag: the flags are Blocking, and NoCredit if the RTS would have been one with
	// that. ID.
	Blocked
	// Batch is several short messages of kind Eager in the order of their sending, of which each has its Ctx and Tag:
	// see batch.go.
	Batch
	// Ask is CTS for a part of a message, of one that goes into device memory: the receiver may ask for more, and FIN
	// ends the message whatever the RTS has said. Fields as in CTS. An Ask with the number of the last one that asks for
	// what follows is for more of that stream. Ctx is 0, or more by 1 than the offset in the receiver's pinned memory
	// where the sender may put the part: then it says Filled. The payload is the handle of that memory, the first time.
	Ask
	// Broken says that the rest of a stream will not come: the sender cannot read its own memory. Key (receiver's).
	Broken
	// HandleReq asks where message ID is, whose RTS had Device. ID (sender's), Key (receiver's), Len: 1 if an adapter of
	// another host is to read it, else 0. For a sender in the same process Addr (which driver).
	HandleReq
	// Handle answers HandleReq. Key (receiver's); Tag is 1 if the message can be reached, else 0 and nothing follows:
	// ID (number of the allocation between these two), Len (its bytes), Addr (where the message begins in it). The
	// payload is the driver's handle of the allocation, the first time that the number is used. Tag is 3 if an adapter
	// may read the message: Addr (its address), ID (registration key).
	Handle
	// Unmap asks the receiver to close allocation ID. Unmapped says that it has. ID.
	Unmap
	Unmapped
	// Filled is Data whose payload the sender has put where Ask has said. Fields as in Data; Len.
	Filled
	// AskParts asks the receiver of a stream, of which nothing has been sent, to ask for parts by Ask, or again by CTS:
	// the message is in device memory of its host. Key (receiver's).
	AskParts
	kindEnd
)

var kindNames = [kindEnd]string{"none", "eager", "eager-sync", "matched", "rts", "cts", "data", "fin", "credit",
	"cancel", "cancel-reply", "put-req", "put-done", "credit-req", "watch", "returned", "blocked", "batch", "ask",
	"broken", "handle-req", "handle", "unmap", "unmapped", "filled", "ask-parts"}

func (k Kind) String() string {
	if k < kindEnd {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Valid reports whether k is a kind that may appear on the wire.
func (k Kind) Valid() bool { return k > 0 && k < kindEnd }

// Flags of a packet.
const (
	// Urgent says that the sender of this packet waits for an answer, so it wakes a receiver that computes. A packet
	// without this flag waits for the receiver's next call of the library.
	Urgent uint8 = 1 << iota
	// Wake is Urgent that wakes even a rank that has nothing under way. It is for rare packets: it costs a system call.
	Wake
	// Readable says that the payload of an RTS may be read with RMA from Addr.
	Readable
	// NoFIN says that the sender of an RTS sees itself when its link has let go of a stream, for which it gets no FIN.
	NoFIN
	// Blocking says that the sender of an RTS waits in a blocking call, and the message is short enough to be eager. A
	// receiver that waits for something else fetches the message before it is matched.
	Blocking
	// NoCredit says that an RTS with Blocking would have been eager, if its sender had had the credit.
	NoCredit
	// Device says that the payload of an RTS is in device memory, which the receiver, or its adapter, may reach: see
	// HandleReq.
	Device
	// Unready says that the payload of an RTS with Device waits for a stream of its program. A receiver that must take
	// memory to ask for a part takes it when HandleReq has been answered.
	Unready
)

// MaxTag is the largest tag; MPI 4.1 §9.1.2 (MPI_TAG_UB) asks for at least 32767.
const MaxTag = 1<<31 - 1

// Header precedes every packet.
//
//	 byte 0      1       2       3       4               8              12
//	┌───────┬───────┬───────────────┬───────────────┬───────────────┬───────────────┐
//	│ Kind  │ Flags │    zero       │     Ctx       │     Tag       │     zero      │  16 bytes: Eager
//	├───────┴───────┴───────────────┴───────────────┼───────────────┴───────────────┤
//	│                     ID                        │             Len               │
//	├───────────────────────────────────────────────┼───────────────────────────────┤
//	│                     Addr                      │             Key               │  48 bytes: all others
//	└───────────────────────────────────────────────┴───────────────────────────────┘
//
// The sender's rank is not in the header: a link belongs to one peer, so a peer
// cannot forge it. All integers are little-endian.
type Header struct {
	Kind  Kind
	Flags uint8
	More  bool   // a hint for the link, which does not go over it: the packet is one of several in a row
	Ctx   uint32 // context: communicator and point-to-point or collective
	Tag   int32  // 0 … MaxTag
	ID    uint64 // the sender's request, opaque to the receiver, which returns it
	Len   uint64 // length of the whole message in bytes
	Addr  uint64 // address of the payload for a READ; offset of a Data fragment
	Key   uint64 // registration key of Addr; or the receiver's request in CTS and Data
}

// Sizes of the encoded header.
const (
	ShortSize = 16
	LongSize  = 48
)

// Short reports whether packets of kind k carry the 16-byte header only.
func (k Kind) Short() bool { return k == Eager }

// Size returns the encoded length of h.
func (h *Header) Size() int {
	if h.Kind.Short() {
		return ShortSize
	}
	return LongSize
}

// Encode writes h into b, which has at least h.Size() bytes, and returns the
// number written.
func (h *Header) Encode(b []byte) int {
	le := binary.LittleEndian
	le.PutUint32(b, uint32(h.Kind)|uint32(h.Flags)<<8)
	le.PutUint32(b[4:], h.Ctx)
	le.PutUint64(b[8:], uint64(uint32(h.Tag)))
	if h.Kind.Short() {
		return ShortSize
	}
	le.PutUint64(b[16:], h.ID)
	le.PutUint64(b[24:], h.Len)
	le.PutUint64(b[32:], h.Addr)
	le.PutUint64(b[40:], h.Key)
	return LongSize
}

// Decode reads a header from b and returns the number of bytes it took. 0 and
// nil: b is too short. The error names the first field that cannot be right;
// nothing else is read from b then.
func (h *Header) Decode(b []byte) (int, error) {
	if len(b) < ShortSize {
		return 0, nil
	}
	le := binary.LittleEndian
	w := le.Uint32(b)
	k := Kind(w)
	switch {
	case !k.Valid():
		return 0, fmt.Errorf("wire: unknown packet kind %d", uint8(k))
	case w>>16 != 0:
		return 0, fmt.Errorf("wire: %v packet has reserved bits %#x set", k, w>>16)
	}
	tag := le.Uint64(b[8:])
	if tag > MaxTag {
		return 0, fmt.Errorf("wire: %v packet has tag %#x, the largest is %#x", k, tag, uint64(MaxTag))
	}
	*h = Header{Kind: k, Flags: uint8(w >> 8), Ctx: le.Uint32(b[4:]), Tag: int32(tag)}
	if k.Short() {
		return ShortSize, nil
	}
	if len(b) < LongSize {
		return 0, nil
	}
	h.ID, h.Len = le.Uint64(b[16:]), le.Uint64(b[24:])
	h.Addr, h.Key = le.Uint64(b[32:]), le.Uint64(b[40:])
	return LongSize, nil
}
