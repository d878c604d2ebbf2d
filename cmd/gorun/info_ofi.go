package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/gorun-mpi/mpi/transport/ofi"
)

// ofiFacts is what libfabric says of itself and of this host.
type ofiFacts struct {
	ofi.Info
	Error string `json:"error,omitempty"` // why it cannot be used; the program may be built without it
}

func askOFI() (f ofiFacts) {
	var err error
	if f.Info, err = ofi.Query(os.Getenv("GORUN_OFI_LIB")); err != nil {
		f.Error = err.Error()
	}
	return f
}

func (f ofiFacts) print(w io.Writer, cols int) {
	rows := [][2]string{{"libfabric", "none: " + f.Error}}
	if f.Error == "" {
		rows = [][2]string{
			{"libfabric", fmt.Sprintf("%s (tested: %s), %s", f.Version, f.Tested, f.Path)},
			{"providers", strings.Join(f.Providers, ", ")},
			{"domains", strings.Join(f.Domains, ", ")},
		}
	}
	printTitled(w, cols, rows)
}
