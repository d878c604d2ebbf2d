package consensus

import "math/bits"

// Set is a set of ranks. The zero Set is empty.
type Set []uint64

// Has reports whether a rank is in s.
func (s Set) Has(rank int) bool {
	i := rank / 64
	return i < len(s) && s[i]>>(rank%64)&1 != 0
}

// Add adds a rank, and reports whether it is new.
func (s *Set) Add(rank int) bool {
	if s.Has(rank) {
		return false
	}
	for len(*s) <= rank/64 {
		*s = append(*s, 0)
	}
	(*s)[rank/64] |= 1 << (rank % 64)
	return true
}

// Len returns the number of ranks in s.
func (s Set) Len() (n int) {
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// Within reports whether all ranks of s are in t.
func (s Set) Within(t Set) bool {
	for i, w := range s {
		if i < len(t) {
			w &^= t[i]
		}
		if w != 0 {
			return false
		}
	}
	return true
}

// All calls yield with each rank of s, the lowest first, until it returns false.
func (s Set) All(yield func(rank int) bool) {
	for i, w := range s {
		for ; w != 0; w &= w - 1 {
			if !yield(i*64 + bits.TrailingZeros64(w)) {
				return
			}
		}
	}
}

// Clone returns a copy of s, without the words at its end that are zero.
func (s Set) Clone() Set {
	for len(s) > 0 && s[len(s)-1] == 0 {
		s = s[:len(s)-1]
	}
	return append(Set(nil), s...)
}

// both returns the ranks that are in s and in t.
func both(s, t Set) Set {
	common := make(Set, min(len(s), len(t)))
	for i := range common {
		common[i] = s[i] & t[i]
	}
	return common.Clone()
}
