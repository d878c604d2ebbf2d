package harness

import "encoding/binary"

// Fill writes the pattern of one message: it differs from one eight bytes to the next, between rounds and between
// senders, so that a byte that is late, early, lost or of another message shows.
func Fill(buf []byte, round, sender int) {
	x := seed(round, sender, len(buf))
	for len(buf) >= 8 {
		x = next(x)
		binary.LittleEndian.PutUint64(buf, x^x>>29)
		buf = buf[8:]
	}
	x = next(x)
	for i := range buf {
		buf[i] = byte(x >> (56 - 8*i))
	}
}

// Check reports whether buf holds the pattern that Fill wrote with the same numbers.
func Check(buf []byte, round, sender int) bool {
	x := seed(round, sender, len(buf))
	for len(buf) >= 8 {
		x = next(x)
		if binary.LittleEndian.Uint64(buf) != x^x>>29 {
			return false
		}
		buf = buf[8:]
	}
	x = next(x)
	for i := range buf {
		if buf[i] != byte(x>>(56-8*i)) {
			return false
		}
	}
	return true
}

// Touch writes to every page of a buffer, so that no page fault falls into a measurement.
func Touch(buf []byte) {
	for i := 0; i < len(buf); i += 4096 {
		buf[i] = 1
	}
}

func seed(round, sender, length int) uint64 {
	return uint64(round)*0x9e3779b97f4a7c15 ^ uint64(sender)*0xbf58476d1ce4e5b9 ^ uint64(length)
}

// next is a linear congruential step (Knuth's MMIX constants).
func next(x uint64) uint64 { return x*6364136223846793005 + 1442695040888963407 }
