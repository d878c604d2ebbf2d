package transporttest

import (
	"strings"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/transport"
)

// Ability is what some devices and links can do and others cannot, as they say in Facts and Caps. Abilities are added
// up.
type Ability uint32

const (
	Get        Ability = 1 << iota // Caps.RMA
	Put                            // RMA.Put
	PutNote                        // RMA.PutNote
	Atomics                        // RMA.FetchAdd and RMA.CompareSwap
	ZeroCopy                       // Caps.ZeroCopy
	Presence                       // Caps.Presence
	Offload                        // Facts.Offload and Caps.Offload
	Memory                         // Facts.Memory
	Import                         // Memory.Import
	Introducer                     // Facts.Introducer
	Refused                        // Facts.Refused
	Via                            // Facts.Via
	Short                          // Facts.Short
	ConnectNow                     // Facts.ConnectNow
	Boards                         // Facts.Boards
)

// Further abilities that a rule can call for.
const (
	third       Ability = 1 << (iota + 27) // there is Pair.Third
	keysChecked                            // a promise: a wrong key is an error
	steady                                 // no misfortunes happen
	allocations                            // they can be counted
	processTime                            // what this process uses is known
)

var abilityNames = []string{"Get", "Put", "PutNote", "Atomics", "ZeroCopy", "Presence", "Offload",
	"Memory", "Import", "Introducer", "Refused", "Via", "Short", "ConnectNow",
	"Boards"}

func (a Ability) String() string {
	var names []string
	for i, name := range abilityNames {
		if a&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return "{" + strings.Join(names, ", ") + "}"
}

// given is a if the device has it.
func (a Ability) given(has bool) Ability {
	if has {
		return a
	}
	return 0
}

// abilitiesOf returns the abilities of a device and its link.
func abilitiesOf(f *transport.Facts, c *transport.Caps) Ability {
	a := ZeroCopy.given(c.ZeroCopy != nil) | Presence.given(c.Presence != nil) |
		Offload.given(f.Offload != nil && c.Offload) | Introducer.given(f.Introducer != nil) |
		Refused.given(f.Refused != nil) | Via.given(f.Via != nil) |
		Short.given(f.Short != nil) | ConnectNow.given(f.ConnectNow != nil) | Boards.given(f.Boards != nil)
	if r := c.RMA; r != nil {
		a |= Get | Put.given(r.Put != nil) | PutNote.given(r.PutNote != nil) |
			Atomics.given(r.FetchAdd != nil && r.CompareSwap != nil)
	}
	if m := f.Memory; m != nil {
		a |= Memory.given(m.Alloc != nil) | Import.given(m.Import != nil)
	}
	return a
}

// circumstances are what this process and the options add to the abilities.
func (s *suite) circumstances() Ability {
	_, known := cpuTime()
	return keysChecked.given(s.checksKeys || s.badKeysEnd && !s.unreliable) | steady.given(!s.unreliable) |
		allocations.given(!s.unreliable && !proc.Race) | processTime.given(!s.unreliable && known)
}
