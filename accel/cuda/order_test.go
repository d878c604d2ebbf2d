//go:build cuda && linux && cgo

package cuda

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// orderFailure has the nth call of a name fail from now on; 0: none. It returns how many calls of the name that was
// ordered before there have been since.
func orderFailure(call string, nth int) (seen uint64) {
	mem := must(mapped(4096))
	defer unix.Munmap(mem)
	name := mem[8:]
	copy(name, call)
	_ = userCall(-1, "softcuda_fail", address(name), uint64(nth), address(mem)) // returns nothing
	return binary.NativeEndian.Uint64(mem)
}
