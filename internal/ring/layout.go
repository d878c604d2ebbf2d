package ring

import "fmt"

// A ring's memory, in order of addresses. All offsets follow from the Geometry.
//
//	┌────────────────────┐ 0
//	│ Control  (128 B)   │  a line that the consumer writes and the producer reads, and one the other way round
//	├────────────────────┤ 128
//	│ Slot 0   (128 B)   │  word 0 publishes the slot:
//	│ Slot 1             │     63 ........ 32 31 ......... 0
//	│ ...                │    │ sequence     │ meta          │   sequence = low 32 bits of (index + 1), so
//	│ Slot Slots-1       │    └──────────────┴───────────────┘   a slot of the lap before never looks new
//	├────────────────────┤ page-aligned
//	│ Small area         │  payloads that do not fit in a slot
//	├────────────────────┤ page-aligned
//	│ Bulk area          │  fragments of large messages; memory is committed on first use
//	└────────────────────┘
//
// A slot's words 1…15 and the part of an area it points to belong to the
// producer until it has stored word 0, then to the consumer until it has
// stored a Control.head beyond the slot, then to the producer again.

// Geometry fixes a ring's layout. Both sides must use the same.
type Geometry struct {
	Slots int // power of two, 8 … 65536
	Small int // bytes, a multiple of the page size, at least 4096
	Bulk  int // bytes, likewise, or 0
}

const (
	// SlotSize is two cache lines: x86 reads lines in pairs, and a message of 48 B touches one only.
	SlotSize = 128
	// SlotWords of 8 bytes.
	SlotWords = SlotSize / 8
	// ControlSize is a pair of lines of its own, against false sharing.
	ControlSize = 128
	// Align is the alignment of payloads in the areas.
	Align = 64
	page  = 4096
)

// gap bytes behind a payload of at most gapUpTo stay free in a small area that is large enough, except in a burst. The
// processor of the reader prefetches the lines behind the ones it reads. It would take the lines of the next payload
// from the writer, which writes them next or has begun to; in a burst it finds what is already there.
const (
	gap     = 1600
	gapUpTo = 2048
	gapFrom = 128 << 10
)

func (g Geometry) gap() int {
	if g.Small < gapFrom {
		return 0
	}
	return gap
}

// span is what a payload of n bytes takes of an area; with the ring's gap, at most.
func span(n, gap int) int {
	if n <= gapUpTo {
		n += gap
	}
	return (n + Align - 1) &^ (Align - 1)
}

// Check returns an error for a Geometry that cannot be. g may come from another process.
func (g Geometry) Check() error {
	switch {
	case g.Slots < 8 || g.Slots > 1<<16 || g.Slots&(g.Slots-1) != 0:
		return fmt.Errorf("ring: %d slots; a power of two from 8 to 65536 is needed", g.Slots)
	case g.Small < page || g.Small > 1<<26 || g.Small%page != 0:
		return fmt.Errorf("ring: small area of %d bytes; a multiple of 4096 up to 64 MiB is needed", g.Small)
	case g.Bulk < 0 || g.Bulk > 1<<28 || g.Bulk%page != 0:
		return fmt.Errorf("ring: bulk area of %d bytes; a multiple of 4096 up to 256 MiB is needed", g.Bulk)
	}
	return nil
}

// SmallAt is the offset of the small area.
func (g Geometry) SmallAt() int { return (ControlSize + g.Slots*SlotSize + page - 1) &^ (page - 1) }

// BulkAt is the offset of the bulk area.
func (g Geometry) BulkAt() int { return g.SmallAt() + g.Small }

// Size returns the size of the whole ring in bytes.
func (g Geometry) Size() int { return g.BulkAt() + g.Bulk }
