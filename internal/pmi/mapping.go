package pmi

import (
	"fmt"
	"strings"
)

// Mapping is the PMI_process_mapping of a job whose ranks are laid out host by host, perHost[i] on host i: blocks of
// (first host, hosts, ranks on each). Hosts without a rank are not counted. It is "" when PMI-1 cannot carry it; the
// launcher then has no mapping.
func Mapping(perHost []int) string {
	var blocks strings.Builder
	host := 0
	for i := 0; i < len(perHost); {
		n, alike := perHost[i], 0
		for ; i < len(perHost) && (perHost[i] == n || perHost[i] == 0); i++ {
			if perHost[i] != 0 {
				alike++
			}
		}
		if n != 0 {
			fmt.Fprintf(&blocks, ",(%d,%d,%d)", host, alike, n)
			host += alike
		}
	}
	if host == 0 || blocks.Len()+len("(vector)") > valMax {
		return ""
	}
	return "(vector" + blocks.String() + ")"
}
