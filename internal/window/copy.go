package window

// CopyLeast is the length from which on CopyLong is faster than Go's copy: then not all of both sides fits into the
// caches of one processor.
const CopyLeast = 512 << 10

// stringPiece is how much moveString copies at a time: the garbage collector cannot stop the goroutine meanwhile.
const stringPiece = 1 << 20

// CopyLong copies src to dst, which is as long, and reports whether it has: short elements are for Go's copy.
func CopyLong(dst, src []byte) bool {
	if len(src) < CopyLeast || !copyString {
		return false
	}
	for len(src) > stringPiece {
		moveString(dst[:stringPiece], src[:stringPiece])
		dst, src = dst[stringPiece:], src[stringPiece:]
	}
	moveString(dst[:len(src)], src)
	return true
}
