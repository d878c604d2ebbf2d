package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// software is what the lines of figures say over the software GPU.
const software = "SOFTWARE DEVICE"

// report is the object that is written.
type report struct {
	Time     string            `json:"time"`
	Software bool              `json:"software_device"` // no GPU: the figures mean nothing
	Facts    map[string]string `json:"facts"`
	Answers  []string          `json:"answers"`           // of the driver to the questions that an H100 was asked
	Differs  []string          `json:"differs,omitempty"` // attributes with other values than the H100's
	Parts    []part            `json:"parts"`
	Figures  []figure          `json:"figures"`
	Result   string            `json:"result"`
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
	for _, p := range r.Parts {
		if !p.Passed {
			return failed
		}
	}
	return code
}

// sum is the last line of the text.
func (r *report) sum() string {
	bad, miss := 0, 0
	for _, p := range r.Parts {
		if !p.Passed {
			bad++
		}
	}
	lost := 0
	for _, f := range r.Figures {
		if f.Why != "" {
			lost++
		}
		if f.Met != nil && !*f.Met {
			miss++
		}
	}
	text := fmt.Sprintf("%d of %d parts passed; %d of %d figures were measured; %d goals are missed", len(r.Parts)-bad,
		len(r.Parts), len(r.Figures)-lost, len(r.Figures), miss)
	if r.Software {
		text += "; " + software + ": the figures say nothing about a GPU"
	}
	return text
}

func (r *report) write(path string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o666)
}
