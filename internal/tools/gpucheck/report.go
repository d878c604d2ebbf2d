package main

import (
	"fmt"
	"strings"

	"github.com/gorun-mpi/mpi/internal/tools/partrun"
)

// software is what the lines of figures say over the software GPU.
const software = "SOFTWARE DEVICE"

// report is the object that is written.
type report struct {
	*partrun.Report
	Software bool     `json:"software_device"`   // no GPU: the figures mean nothing
	Answers  []string `json:"answers"`           // of the driver to the questions that an H100 was asked
	Differs  []string `json:"differs,omitempty"` // attributes with other values than the H100's
	Figures  []figure `json:"figures"`
}

// figure is one line of the table of figures.
type figure struct {
	Name     string  `json:"name"`
	Value    float64 `json:"value"`
	Unit     string  `json:"unit"`
	Beside   string  `json:"beside,omitempty"` // what it is compared with
	Other    float64 `json:"other,omitempty"`  // the value of that
	Goal     string  `json:"goal"`
	Met      *bool   `json:"met,omitempty"` // nil: there is no verdict
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
	}
	if f.Goal != "" {
		fmt.Fprintf(&b, "; goal %s", f.Goal)
	}
	switch {
	case f.Software:
		fmt.Fprintf(&b, "; %s, no verdict", software)
	case f.Met != nil && *f.Met:
		b.WriteString(": met")
	case f.Met != nil:
		b.WriteString(": missed")
	}
	return b.String()
}

// code is the exit code.
func (r *report) code() int {
	code := 0
	for _, f := range r.Figures {
		switch {
		case f.Why != "":
			return failed
		case f.Met != nil && !*f.Met:
			code = missed
		}
	}
	if len(r.Failed()) > 0 {
		return failed
	}
	return code
}

// sum is the end of the text.
func (r *report) sum() string {
	measured, miss := 0, 0
	for _, f := range r.Figures {
		if f.Why == "" {
			measured++
		}
		if f.Met != nil && !*f.Met {
			miss++
		}
	}
	text := fmt.Sprintf("%s; %d goals are missed", r.Sum(len(r.Figures), measured), miss)
	if r.Software {
		text += "; " + software + ": the figures say nothing about a GPU"
	}
	return text
}
