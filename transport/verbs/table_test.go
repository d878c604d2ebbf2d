//go:build verbs && linux && cgo

package verbs

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
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
				before := slices.Clone(tab.all)
				with := tab.with(s)
				if !slices.Equal(before, tab.all) {
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

// A device gives the numbers of destroyed queue pairs anew: the table finds the session that has them now, also when it
// has grown. It may be asked while queue pairs are destroyed.
func TestNumbersAreGivenAnew(t *testing.T) {
	tab := &table{}
	numbers := func(qpn, serve uint32) *session {
		s := &session{queuePairs: queuePairs{qpn: qpn, serveQPN: serve, serve: 1}}
		tab = tab.with(s)
		return s
	}
	old := numbers(10, 11)
	done := make(chan struct{})
	go func() {
		defer close(done)
		old.qp, old.serve = 0, 0 // as destroy does
	}()
	if tab.find(10) != old || tab.find(11) != old {
		t.Error("a session is not found while its queue pairs are being destroyed")
	}
	<-done
	a, b := numbers(11, 12), numbers(9, 10)
	for i := range 100 {
		if tab.find(11) != a || tab.find(12) != a || tab.find(9) != b || tab.find(10) != b {
			t.Fatalf("with %d more, numbers that were given anew lead to another session", i)
		}
		numbers(uint32(1000+2*i), uint32(1001+2*i))
	}
}

// A session costs the table the same however many there are, and Poll finds sessions meanwhile.
func TestTableGrows(t *testing.T) {
	const n, limit = 20000, 512 // bytes
	number := func(i int) uint32 { return uint32(i) << 8 & 0xffffff }
	all := make([]session, n)
	var newest atomic.Pointer[table]
	newest.Store(new(table))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			tab := newest.Load()
			if k := len(tab.all); k > 0 {
				s := tab.all[i%k]
				if s != &all[i%k] || tab.find(s.qpn) != s || tab.find(s.qpn+1) != nil {
					t.Errorf("of %d sessions, that of index %d is not found", k, i%k)
					return
				}
			}
		}
	}()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range all {
		all[i].qpn = number(i)
		newest.Store(newest.Load().with(&all[i]))
	}
	runtime.ReadMemStats(&after)
	close(stop)
	<-stopped
	if each := (after.TotalAlloc - before.TotalAlloc) / n; each > limit {
		t.Errorf("%d bytes have been allocated for each of %d sessions, %d are allowed", each, n, limit)
	}
	for i := range all {
		if tab := newest.Load(); tab.find(number(i)) != &all[i] || all[i].index != uint32(i) {
			t.Fatalf("session %d has index %d, or is not found", i, all[i].index)
		}
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
