package main

import (
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/transport/ucx"
)

// gorun info says which libucp there is and what it can use, or why there is none.
func TestInfoUCX(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		f    ucxFacts
		want string
	}{
		{ucxFacts{Info: ucx.Info{Path: "/lib/libucp.so.0", Version: "1.13.1", Tested: ucx.Tested,
			Transports: []string{"posix", "tcp"}, Devices: []string{"memory", "eth0"}}},
			"UCX               1.13.1 (tested: 1.13 and later 1.x), /lib/libucp.so.0\n" +
				"for UCX_TLS       posix, tcp\nUCX_NET_DEVICES   memory, eth0\n\n"},
		{ucxFacts{Error: "it is too old"}, "UCX               none: it is too old\n\n"},
	} {
		var b strings.Builder
		if c.f.print(&b, 100); b.String() != c.want {
			t.Errorf("%q, want %q", b.String(), c.want)
		}
	}
}
