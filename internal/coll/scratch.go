package coll

import (
	"slices"
	"sync"
)

// scratch is memory in which calls by messages combine, and which no call uses. All communicators of the process share
// it. A plan keeps short memory by itself.
type scratch struct {
	mu    sync.Mutex // guards what follows
	spare [][]byte   // each longer than scratchLeast, the latest last
	bytes int64      // of all; ≤ ScratchMost
}

const (
	scratchLeast = recentMost
	// ScratchMost is how many bytes of scratch a process keeps.
	ScratchMost = 64 << 20
)

// take returns n bytes with undefined contents.
func (s *scratch) take(n int) []byte {
	if n <= scratchLeast {
		return aligned(n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	best := -1
	for i, b := range s.spare {
		if cap(b) >= n && cap(b)/2 <= n && (best < 0 || cap(b) < cap(s.spare[best])) {
			best = i
		}
	}
	if best < 0 {
		return aligned(n)
	}
	b := s.spare[best]
	s.spare = slices.Delete(s.spare, best, best+1)
	s.bytes -= int64(cap(b))
	return b[:n]
}

// give takes memory back that take has returned.
func (s *scratch) give(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cap(b) > ScratchMost {
		return
	}
	s.spare = append(s.spare, b)
	for s.bytes += int64(cap(b)); s.bytes > ScratchMost; s.spare = slices.Delete(s.spare, 0, 1) {
		s.bytes -= int64(cap(s.spare[0]))
	}
}
