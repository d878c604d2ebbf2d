package checkpoint

import (
	"bytes"
	"encoding/binary"
)

// header stands before the slices in every copy, in memory, in a message and in a file.
type header struct {
	Lineage uint64 // of which row of checkpoints: a job that begins without one begins a row
	Number  uint64 // in the row, from 1; no attempt of Save uses a number again
	Before  uint64 // the number of the last checkpoint that all ranks had when this one was begun; 0: there was none
	Step    int64  // what the program called it
	Owner   uint32 // the rank whose slices these are
	Size    uint32 // the number of ranks
	Length  uint64 // of the slices, in bytes
}

// headerSize is the length of the mark and of a header.
const headerSize = 8 + 48

var mark = [8]byte{'g', 'o', 'c', 'k', 'p', 't', '0', '1'}

func (h header) put(b []byte) {
	copy(b, mark[:])
	for i, v := range []uint64{h.Lineage, h.Number, h.Before, uint64(h.Step),
		uint64(h.Owner)<<32 | uint64(h.Size), h.Length} {
		binary.LittleEndian.PutUint64(b[8+8*i:], v)
	}
}

// headerOf reads the header of a copy. It reports whether there is one and the slices behind it have its length.
func headerOf(b []byte) (h header, ok bool) {
	if len(b) < headerSize || !bytes.Equal(b[:8], mark[:]) {
		return h, false
	}
	at := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8+8*i:]) }
	h = header{Lineage: at(0), Number: at(1), Before: at(2), Step: int64(at(3)),
		Owner: uint32(at(4) >> 32), Size: uint32(at(4)), Length: at(5)}
	return h, h.Length == uint64(len(b)-headerSize)
}

// copies are the two newest copies of one rank's slices.
type copies struct {
	slots [2]slot
}

// slot has one copy. While a copy is being written or received the slot is not whole, and no other rank hears of it.
type slot struct {
	header        // holds while whole
	whole  bool   //
	data   []byte // the header and the slices
}

// begin gives the slot for a new copy of length bytes, which is not the one with the checkpoint keep.
func (c *copies) begin(keep header, length uint64) *slot {
	s := &c.slots[0]
	if s.whole && s.Lineage == keep.Lineage && s.Number == keep.Number {
		s = &c.slots[1]
	}
	s.whole = false
	if uint64(len(s.data)) != headerSize+length {
		s.data = make([]byte, headerSize+length)
	}
	clear(s.data[:headerSize])
	return s
}

// end makes the slot whole if it has the copy that was expected, and reports whether it does.
func (s *slot) end(want header) bool {
	h, ok := headerOf(s.data)
	s.header, s.whole = h, ok && h == want
	return s.whole
}

// find gives the whole slot of a checkpoint, or nil.
func (c *copies) find(lineage, number uint64) *slot {
	for i := range c.slots {
		if s := &c.slots[i]; s.whole && s.Lineage == lineage && s.Number == number {
			return s
		}
	}
	return nil
}
