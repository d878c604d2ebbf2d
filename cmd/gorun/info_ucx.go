package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/gorun-mpi/mpi/transport/ucx"
)

// ucxFacts is what libucp says of itself and of this host.
type ucxFacts struct {
	ucx.Info
	Error string `json:"error,omitempty"` // why it cannot be used; the program may be built without it
}

func askUCX() (f ucxFacts) {
	var err error
	if f.Info, err = ucx.Query(os.Getenv("GORUN_UCX_LIB")); err != nil {
		f.Error = err.Error()
	}
	return f
}

func (f ucxFacts) print(w io.Writer, cols int) {
	rows := [][2]string{{"UCX", "none: " + f.Error}}
	if f.Error == "" {
		rows = [][2]string{
			{"UCX", fmt.Sprintf("%s (tested: %s), %s", f.Version, f.Tested, f.Path)},
			{"for UCX_TLS", strings.Join(f.Transports, ", ")},
			{"UCX_NET_DEVICES", strings.Join(f.Devices, ", ")},
		}
	}
	printTitled(w, cols, rows)
}

// printTitled prints titles and texts, and an empty line.
func printTitled(w io.Writer, cols int, rows [][2]string) {
	const title = 18
	for _, row := range rows {
		fmt.Fprintf(w, "%-*s%s\n", title, row[0],
			strings.TrimLeft(wrap(row[1], max(cols-title, 30), strings.Repeat(" ", title)), " "))
	}
	fmt.Fprintln(w)
}
