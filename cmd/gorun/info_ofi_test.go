package main

import (
	"bytes"
	"testing"

	"github.com/gorun-mpi/mpi/transport/ofi"
)

func TestInfoOFI(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		f    ofiFacts
		want string
	}{
		{ofiFacts{Info: ofi.Info{Path: "/lib/libfabric.so.1", Version: "1.17", Tested: ofi.Tested,
			Providers: []string{"efa", "tcp;ofi_rxm"}, Domains: []string{"rdmap0s6"}}},
			"libfabric         1.17 (tested: 1.17 and later), /lib/libfabric.so.1\n" +
				"providers         efa, tcp;ofi_rxm\ndomains           rdmap0s6\n\n"},
		{ofiFacts{Error: "it is too old"}, "libfabric         none: it is too old\n\n"},
	} {
		var b bytes.Buffer
		if c.f.print(&b, 100); b.String() != c.want {
			t.Errorf("%q, want %q", b.String(), c.want)
		}
	}
}
