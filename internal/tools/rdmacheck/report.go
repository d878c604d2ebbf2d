package main

import (
	"fmt"
	"strings"

	"github.com/gorun-mpi/mpi/internal/tools/partrun"
	"github.com/gorun-mpi/mpi/internal/topology"
)

// software is what the lines of figures say where no adapter is.
const software = "SOFTWARE DEVICE"

// report is the object that is written.
type report struct {
	*partrun.Report
	Devices []topology.Device `json:"devices"`
	DevInfo string            `json:"ibv_devinfo"` // what ibv_devinfo -v has printed
	Info    string            `json:"gorun_info"`  // likewise gorun info
	Figures []figure          `json:"figures"`
}

// figure is one line of the table of figures.
type figure struct {
	Name     string  `json:"name"`
	Value    float64 `json:"value"`
	Unit     string  `json:"unit"`
	Beside   string  `json:"beside"` // the program of perftest that it is compared with
	Other    float64 `json:"other,omitempty"`
	NoOther  string  `json:"no_other,omitempty"` // why there is nothing to compare with
	Software bool    `json:"software_device,omitempty"`
	Why      string  `json:"why,omitempty"` // it was not measured
}

// line is the text of a figure.
func (f figure) line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-44s", f.Name)
	if f.Why != "" {
		fmt.Fprintf(&b, " not measured: %s", f.Why)
	} else {
		fmt.Fprintf(&b, " %10.2f %-5s", f.Value, f.Unit)
	}
	if f.Other > 0 {
		fmt.Fprintf(&b, " (%s %.2f, ratio %.2f)", f.Beside, f.Other, f.Value/f.Other)
	} else {
		fmt.Fprintf(&b, " (%s: %s)", f.Beside, f.NoOther)
	}
	if f.Software {
		b.WriteString("; " + software)
	}
	return b.String()
}

// measured counts the figures that were measured.
func (r *report) measured() (n int) {
	for _, f := range r.Figures {
		if f.Why == "" {
			n++
		}
	}
	return n
}

// code is the exit code.
func (r *report) code() int {
	if len(r.Failed()) > 0 || r.measured() < len(r.Figures) {
		return failed
	}
	return 0
}

// sum is the end of the text.
func (r *report) sum() string { return r.Sum(len(r.Figures), r.measured()) }
