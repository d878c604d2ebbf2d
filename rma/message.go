package rma

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Kind is what a request asks a rank to do with its memory of a window.
type Kind uint8

const (
	_        Kind = iota
	Info          // answer with Region
	Put           // write the elements that follow
	PutAlone      // write the elements of another message, which comes with tag Slot
	Get           // send the elements in a message of their own with tag Slot
	Update        // combine the elements that follow with those of the window
	Fetch         // Update, and answer with the elements as they were
	Swap          // set an element to the second of two that follow if it is the first; answer with what it was
	Lock          // answer when the rank that asks has the lock, of Mode
	Unlock        // answer as to Flush, and let the lock go
	Flush         // answer when all earlier requests of the rank are done
	Abandon       // the rank makes no call any more, and has the lock
	kindEnd
)

var kindNames = [kindEnd]string{"none", "info", "put", "put-alone", "get", "update", "fetch", "swap", "lock", "unlock",
	"flush", "abandon"}

func (k Kind) String() string {
	if k < kindEnd {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Request is a message to the rank whose memory it is about.
//
//	 byte 0      1       2       4               8                     16                    24
//	┌───────┬───────┬───────────┬───────────────┬─────────────────────┬─────────────────────┬─────────
//	│ Kind  │ Op    │   Runs    │     Slot      │         At          │          N          │ elements
//	└───────┴───────┴───────────┴───────────────┴─────────────────────┴─────────────────────┴─────────
//
// All integers are little-endian. The two highest bits of byte 0 are Then.
type Request struct {
	Kind Kind
	Op   uint8 // of Update and Fetch, the operator; of Lock, the Mode, and LockFirst; of Unlock, 0 or UnlockUnused
	Slot int32 // the tag of the answer, if there is one, or of PutAlone's elements; 0 or more
	At   int64 // the first element; 0 or more
	N    int64 // how many; 0 or more
	// Runs is the length of a table, which comes before the elements: they are not all N, but what the table names in
	// these. 0: no table. Only Put, Update, Fetch and Get have one. The answer to such a Get is an Answer with the
	// elements.
	Runs uint16
	// Then is Flush or Unlock: the rank does that when it has handled the request, and answers it. 0: neither. Only Put
	// and Update have one.
	Then Kind
}

// The bits of byte 0 for Then.
const (
	thenFlush  = 1 << 6
	thenUnlock = 1 << 7
	thenBits   = thenFlush | thenUnlock
)

// LockFirst is added to a Mode: see Asked.First.
const LockFirst = 1 << 7

// UnlockUnused is for a lock that has come too late, whose rank has made no operation with it: what a Flush is to be
// told of other operations waits for that.
const UnlockUnused = 1

// RequestSize is the length of a request without its elements, and AnswerSize the length of an answer without its.
const (
	RequestSize = 24
	AnswerSize  = 8
)

// A rank keeps these limits towards each other rank, and can then have as much under way as it likes. A rank that
// exceeds them twice over is none of ours.
const (
	// MovesMost is how many requests of PutAlone and Get of a rank are under way: of PutAlone until a later Flush has
	// been answered, and of Get until that or until the elements have come.
	MovesMost = 4096
	// AsksMost is how many requests of a rank have not been answered, Lock and the others each.
	AsksMost = 1024
)

// Append writes the request.
func (r *Request) Append(b []byte) []byte {
	kind := byte(r.Kind)
	switch r.Then {
	case Flush:
		kind |= thenFlush
	case Unlock:
		kind |= thenUnlock
	}
	b = append(b, kind, r.Op)
	b = binary.LittleEndian.AppendUint16(b, r.Runs)
	b = binary.LittleEndian.AppendUint32(b, uint32(r.Slot))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.At))
	return binary.LittleEndian.AppendUint64(b, uint64(r.N))
}

// Decode reads a request and returns its elements, with the table before them. The error names the first field that
// cannot be right.
func (r *Request) Decode(b []byte) (elements []byte, err error) {
	if len(b) < RequestSize {
		return nil, fmt.Errorf("rma: a request of %d bytes, at least %d are needed", len(b), RequestSize)
	}
	le := binary.LittleEndian
	*r = Request{Kind: Kind(b[0] &^ thenBits), Op: b[1], Slot: int32(le.Uint32(b[4:])), At: int64(le.Uint64(b[8:])),
		N: int64(le.Uint64(b[16:])), Runs: le.Uint16(b[2:])}
	switch b[0] & thenBits {
	case thenFlush:
		r.Then = Flush
	case thenUnlock:
		r.Then = Unlock
	}
	switch {
	case r.Kind == 0 || r.Kind >= kindEnd || b[0]&thenBits == thenBits:
		return nil, fmt.Errorf("rma: a request of kind %d", b[0])
	case r.Then != 0 && r.Kind != Put && r.Kind != Update:
		return nil, fmt.Errorf("rma: a %v request is to be answered as %v is; only put and update are", r.Kind, r.Then)
	case r.Runs > 0 && r.Kind != Put && r.Kind != Get && r.Kind != Update && r.Kind != Fetch:
		return nil, fmt.Errorf("rma: a %v request has a table of runs, of %d bytes", r.Kind, r.Runs)
	case int(r.Runs) > len(b)-RequestSize:
		return nil, fmt.Errorf("rma: a %v request has a table of %d bytes, and %d follow", r.Kind, r.Runs,
			len(b)-RequestSize)
	case r.Slot < 0 || r.At < 0 || r.N < 0:
		return nil, fmt.Errorf("rma: a %v request of %d elements from element %d on, with tag %d", r.Kind, r.N, r.At,
			r.Slot)
	}
	return b[RequestSize:], nil
}

// Region is the answer to Info: the memory of a rank.
//
//	 byte 0                     8                     16                    24      25
//	┌─────────────────────┬─────────────────────┬─────────────────────┬───────┬────────┐
//	│        Count        │        Addr         │         Key         │ flags │  zero  │
//	└─────────────────────┴─────────────────────┴─────────────────────┴───────┴────────┘
type Region struct {
	Count         int64  // elements; 0 or more
	Addr, Key     uint64 // by which a link reaches them; only the link knows what they mean
	Reads, Writes bool   // what the link may do: the lowest bits of flags
	Steps         bool   // likewise, atomic steps
	ByDevice      bool   // likewise: all atomic steps there are the device's
	Notes         uint16 // by which the link names the window in a note, up to MostNotes; 0: it has no notes
}

// MostNotes bounds Region.Notes, which are bits of flags from notesFrom on.
const (
	MostNotes = 1<<10 - 1
	notesFrom = 16
)

// RegionSize is the length of a Region.
const RegionSize = 32

// Append writes m.
func (m *Region) Append(b []byte) []byte {
	flags := uint64(0)
	for i, set := range []bool{m.Reads, m.Writes, m.Steps, m.ByDevice} {
		if set {
			flags |= 1 << i
		}
	}
	flags |= uint64(m.Notes) << notesFrom
	for _, v := range []uint64{uint64(m.Count), m.Addr, m.Key, flags} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// Decode reads a Region.
func (m *Region) Decode(b []byte) error {
	if len(b) != RegionSize {
		return fmt.Errorf("rma: %d bytes about memory, and not %d", len(b), RegionSize)
	}
	le := binary.LittleEndian
	flags := le.Uint64(b[24:])
	*m = Region{int64(le.Uint64(b)), le.Uint64(b[8:]), le.Uint64(b[16:]), flags&1 != 0, flags&2 != 0, flags&4 != 0,
		flags&8 != 0, uint16(flags >> notesFrom)}
	if m.Count < 0 || flags>>notesFrom > MostNotes || flags&(1<<notesFrom-1) > 15 {
		return fmt.Errorf("rma: memory of %d elements, with flags %#x", m.Count, flags)
	}
	return nil
}

// Answer is the message to a rank that has asked. Elements follow if it is Done.
//
//	 byte 0      1       2       4               8                     16
//	┌───────┬───────┬───────────┬───────────────┬─────────────────────┬─────────────────────┐
//	│Result │ Kind  │   zero    │     Rank      │         At          │          N          │
//	└───────┴───────┴───────────┴───────────────┴─────────────────────┴─────────────────────┘
//
// At and N are there if it is Outside. If it is DeviceFailed the text of the error follows.
type Answer struct {
	Result Result
	Kind   Kind  // of Outside: the request, which may be an earlier one
	Rank   int32 // of PeerFailed, Returned and HalfDone: which rank of the world
	At, N  int64 // of Outside: the elements of the request
}

// Result is the first byte of an answer.
type Result uint8

const (
	Done         Result = iota
	Outside             // the elements are outside the window
	Senseless           // the request cannot be
	PeerFailed          // a rank has failed that had the lock
	Returned            // a rank has returned that had the lock
	HalfDone            // a rank has failed that was updating elements, and the request would update some
	DeviceFailed        // a device has failed to read or write elements of an earlier request
	Freed               // the rank serves the window no more
	resultEnd
)

// Append writes the answer without its elements.
func (a *Answer) Append(b []byte) []byte {
	b = append(b, byte(a.Result), byte(a.Kind), 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(a.Rank))
	if a.Result == Outside {
		b = binary.LittleEndian.AppendUint64(b, uint64(a.At))
		b = binary.LittleEndian.AppendUint64(b, uint64(a.N))
	}
	return b
}

// Decode reads an answer and returns its elements, or the text of DeviceFailed, which may be any bytes.
func (a *Answer) Decode(b []byte) (elements []byte, err error) {
	le := binary.LittleEndian
	size := AnswerSize
	if len(b) > 0 && Result(b[0]) == Outside {
		size += 16
	}
	if len(b) < size {
		return nil, fmt.Errorf("rma: an answer of %d bytes, at least %d are needed", len(b), size)
	}
	*a = Answer{Result: Result(b[0]), Kind: Kind(b[1]), Rank: int32(le.Uint32(b[4:]))}
	if a.Result == Outside {
		a.At, a.N = int64(le.Uint64(b[8:])), int64(le.Uint64(b[16:]))
	}
	switch elements = b[size:]; {
	case b[2]|b[3] != 0 || a.Result >= resultEnd || a.Kind >= kindEnd || a.Rank < 0 || a.At < 0 || a.N < 0:
		return nil, fmt.Errorf("rma: an answer of result %d to a %v request, rank %d, element %d, %d elements",
			a.Result, a.Kind, a.Rank, a.At, a.N)
	case a.Result != Done && a.Result != DeviceFailed && len(elements) > 0:
		return nil, fmt.Errorf("rma: an answer of result %d has %d bytes of elements", a.Result, len(elements))
	}
	return elements, nil
}

// Within reports whether n elements from element at on are among count, and take bytes that fit an int.
func Within(at, n, count int64, elem int) bool {
	return at >= 0 && n >= 0 && at <= count && n <= count-at && (elem == 0 || count <= math.MaxInt/int64(elem))
}
