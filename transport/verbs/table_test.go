//go:build verbs && linux && cgo

package verbs

import (
	"math/rand/v2"
	"testing"
)

// The table finds what a map would, and nothing else, however its entries collide.
func TestTable(t *testing.T) {
	if s := new(table).find(7); s != nil {
		t.Errorf("an empty table has %+v", s)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	numbers := map[string]func(i int) uint32{
		"in turn":     func(i int) uint32 { return uint32(i) },
		"random":      func(int) uint32 { return rng.Uint32() >> 8 },
		"every 256th": func(i int) uint32 { return uint32(i) << 8 & 0xffffff }, // as the software HCA counts
		"colliding":   colliding(),
	}
	for name, number := range numbers {
		t.Run(name, func(t *testing.T) {
			tab, model := &table{}, map[uint32]*session{}
			for i := range 600 {
				s := &session{queuePairs: queuePairs{qpn: number(i)}}
				if model[s.qpn] != nil {
					continue
				}
				before := *tab
				with := tab.with(s)
				if len(before.all) != len(tab.all) || before.find(s.qpn) != nil {
					t.Fatal("the old table has changed, which Poll reads just now")
				}
				tab, model[s.qpn] = with, s
				if int(s.index) != len(model)-1 || tab.all[s.index] != s {
					t.Fatalf("session %d has index %d", len(model)-1, s.index)
				}
				if i%50 != 0 && i > 20 {
					continue
				}
				for qpn, want := range model {
					if got := tab.find(qpn); got != want {
						t.Fatalf("%#x: %p, want %p of %d", qpn, got, want, len(model))
					}
				}
				for range 100 {
					if qpn := rng.Uint32(); tab.find(qpn) != model[qpn] {
						t.Fatalf("%#x is found and was never put in", qpn)
					}
				}
			}
		})
	}
}

// colliding gives numbers that all begin to be looked for in the same place of a table of 2,048 and of all smaller
// ones.
func colliding() func(int) uint32 {
	next := uint32(0)
	return func(int) uint32 {
		for next++; next*0x9e3779b1>>7&2047 != 5; next++ {
		}
		return next
	}
}

// What C wrote ends at the first zero.
func TestText(t *testing.T) {
	d := newDevice(t, 0, 1)
	defer d.Close()
	caps, err := d.hca.query()
	if err != nil {
		t.Fatal(err)
	}
	if name := goString(caps.name[:]); name != d.at.device {
		t.Errorf("the device %q says that it is %q", d.at.device, name)
	}
	for status, want := range map[uint32]string{0: "success", 12: "transport retry counter exceeded"} {
		if got := statusText(status); got != want {
			t.Errorf("status %d is %q, want %q", status, got, want)
		}
	}
	if eventText(eventDeviceFatal) == eventText(eventPortError) {
		t.Error("the end of a device has the same name as that of a port")
	}
	if statusText(1<<31) == "" || eventText(1<<31) == "" {
		t.Error("an unknown number has no name at all")
	}
}
