package harness

// Fill writes the pattern of one message: it differs in every byte's neighbours, between rounds and between the two
// directions, so that a byte that is late, early, lost or of another message shows.
func Fill(buf []byte, round, sender int) {
	x := seed(round, sender, len(buf))
	for i := range buf {
		x = next(x)
		buf[i] = byte(x >> 56)
	}
}

// Check reports whether buf holds the pattern that Fill wrote with the same numbers.
func Check(buf []byte, round, sender int) bool {
	x := seed(round, sender, len(buf))
	for i := range buf {
		x = next(x)
		if buf[i] != byte(x>>56) {
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

// next is a linear congruential step (Knuth's MMIX constants); its high byte is used.
func next(x uint64) uint64 { return x*6364136223846793005 + 1442695040888963407 }
