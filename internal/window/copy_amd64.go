//go:build !race

package window

import "golang.org/x/sys/cpu"

// copyString is set if the processor copies long strings by whole lines of the cache (ERMS).
var copyString = cpu.X86.HasERMS

// moveString copies src to dst, which is as long, by REP MOVSB. The processor then need not read the lines of dst
// before it writes them, and they go to its caches.
//
//go:noescape
func moveString(dst, src []byte)
