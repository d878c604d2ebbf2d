package harness

import (
	"fmt"
	"strings"
)

// Accelerator says which buffers are in the memory of a device.
type Accelerator struct {
	Kind string // "cuda"; "": all buffers are of the host
	// Ranks has D for each of the two ranks whose buffers are of a device, and H for the other; "": all ranks have D.
	Ranks string
}

// Has reports whether the buffers of a rank are of a device.
func (a Accelerator) Has(rank int) bool {
	return a.Kind != "" && (a.Ranks == "" || rank < len(a.Ranks) && a.Ranks[rank] == 'D')
}

func (a *Accelerator) parse(kind string) error {
	switch kind {
	case "cuda":
		a.Kind = kind
		return nil
	case "managed":
		return fmt.Errorf("managed memory cannot be sent, since it moves between host and device by itself; use cuda")
	}
	return fmt.Errorf("wanted cuda, got %q", kind)
}

// places are the words that say whose buffers a device has.
var places = map[string]bool{"D": true, "H": true}

// place reads two of them.
func (a *Accelerator) place(words []string) error {
	if len(words) != 2 || !places[words[0]] || !places[words[1]] {
		return fmt.Errorf("%q: wanted D D, D H or H D: D for a rank with buffers in the memory of a device, H for one with "+
			"buffers in the memory of the host", strings.Join(words, " "))
	}
	a.Ranks = words[0] + words[1]
	if a.Ranks == "HH" {
		return fmt.Errorf("H H: no buffer is of a device; leave out -d %s", a.Kind)
	}
	return nil
}

// title is a program's title with the accelerator in it, as OSU's programs have it.
func (a Accelerator) title(title string) string {
	if a.Kind == "" {
		return title
	}
	return strings.Replace(title, "OSU MPI ", "OSU MPI-"+strings.ToUpper(a.Kind)+" ", 1)
}

// describe adds OSU's line about the buffers of two ranks to a table.
func (a Accelerator) describe(t *Table) {
	if a.Kind == "" || !t.program.Places {
		return
	}
	name := map[bool]string{true: "DEVICE (D)", false: "HOST (H)"}
	t.Under("Send Buffer on %s and Receive Buffer on %s", name[a.Has(0)], name[a.Has(1)])
}
