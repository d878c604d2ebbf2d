package meminfo

import (
	"fmt"
	"math"
	"syscall"
)

// unchecked is how many bytes are allocated without a look: a program that has no room for them ends soon anyway.
const unchecked = 16 << 20

// Check reports why n bytes must not be allocated by make: they are more than this process may still have, or the
// system refuses them.
func Check(n int) error {
	if n <= unchecked {
		return nil
	}
	if free, why := Left(); int64(n) > free {
		return fmt.Errorf("only %d bytes are available (%s)", free, why)
	}
	// What Go maps besides: a whole number of arenas, and what it keeps of them.
	const more = 128 << 20
	if n > math.MaxInt/2-more {
		return syscall.ENOMEM
	}
	mem, err := syscall.Mmap(-1, 0, n+n/16+more, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("the system refuses them (%w); see ulimit -v and vm.overcommit_memory", err)
	}
	return syscall.Munmap(mem)
}
