package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/gorun-mpi/mpi/internal/topology"
)

// software is what the lines of figures say where no adapter is.
const software = "SOFTWARE DEVICE"

// report is the object that is written.
type report struct {
	Time    string            `json:"time"`
	Facts   map[string]string `json:"facts"`
	Devices []topology.Device `json:"devices"`
	DevInfo string            `json:"ibv_devinfo"` // what ibv_devinfo -v has printed
	Info    string            `json:"gorun_info"`  // likewise gorun info
	Parts   []part            `json:"parts"`
	Figures []figure          `json:"figures"`
	Result  string            `json:"result"`
}

// part is one thing that was run.
type part struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	Passed  bool    `json:"passed"`
	Why     string  `json:"why,omitempty"` // not
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

// bad returns how many parts have failed and how many figures were not measured.
func (r *report) bad() (parts, figures int) {
	for _, p := range r.Parts {
		if !p.Passed {
			parts++
		}
	}
	for _, f := range r.Figures {
		if f.Why != "" {
			figures++
		}
	}
	return parts, figures
}

// code is the exit code.
func (r *report) code() int {
	if parts, figures := r.bad(); parts+figures > 0 {
		return failed
	}
	return 0
}

// sum is the end of the text: what has failed, and the counts.
func (r *report) sum() string {
	var b strings.Builder
	for _, p := range r.Parts {
		if !p.Passed {
			fmt.Fprintf(&b, "FAILED: %s\n", p.Name)
		}
	}
	parts, figures := r.bad()
	fmt.Fprintf(&b, "%d of %d parts passed; %d of %d figures were measured", len(r.Parts)-parts, len(r.Parts),
		len(r.Figures)-figures, len(r.Figures))
	return b.String()
}

func (r *report) write(path string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o666)
}
