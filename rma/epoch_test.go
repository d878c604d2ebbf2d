package rma

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// epochsModel is a window at one rank as MPI 4.1, §12.5, has it: the name of the access epoch, the ranks of each epoch,
// and a table of the calls that each epoch allows.
type epochsModel struct {
	access access
	group  []int32 // of accessStarted
	locks  map[int32]Mode
	posted []int32 // nil: there is no exposure epoch
}

// allows has a column for each access epoch, in the order of the constants, and one for the time in which there is an
// exposure epoch. "y": the call is allowed, "-": it is not, "g": for ranks of the group, "l": for ranks that are
// locked, "f": for the others, "p": the call needs the exposure epoch.
var allows = map[string]struct{ access, posted string }{
	// access epoch: none, Fence, Fence with operations, Start, Lock, LockAll
	"Operation": {"- y y g l y", "y"},
	"Fence":     {"y y y - - -", "-"}, // §12.5.1
	"Start":     {"y y - - - -", "y"}, // §12.5.2
	"Complete":  {"- - - y - -", "y"},
	"Post":      {"y y - y y -", "-"},
	"Posted":    {"y y y y y y", "p"},
	"Lock":      {"y y - - f -", "y"}, // §12.5.3
	"Unlock":    {"- - - - l -", "y"},
	"LockAll":   {"y y - - - -", "-"}, // it locks the caller's own memory too, which must not be exposed then
	"UnlockAll": {"- - - - - y", "y"},
	"Flush":     {"- - - - l y", "y"}, // §12.5.4
	"FlushAll":  {"- - - - y y", "y"},
	"Free":      {"y y y - - -", "-"}, // §12.2.5
}

// says has the words of a refusal: the open epoch's, and the call that ends it.
var says = [...]struct{ open, due string }{
	{"no epoch is open", ""},
	{"a Fence has opened an epoch", ""},
	{"operations since", "call Fence again first"},
	{"Start", "call Complete first"},
	{"Lock has opened an epoch at", "call Unlock first"},
	{"LockAll has opened an epoch", "call UnlockAll first"},
}

// opens has the calls of which one is due where no other epoch is in the way.
var opens = map[string]string{
	"Operation": "call Fence, Start, Lock or LockAll first", "Complete": "call Start first",
	"Unlock":    "call Lock first",
	"UnlockAll": "call LockAll first", "Flush": "call Lock first", "FlushAll": "call Lock or LockAll first",
	"Posted": "call Post first",
}

// epochsCall is a call with its arguments.
type epochsCall struct {
	name  string
	rank  int32
	group []int32
	mode  Mode
}

// allowed reports whether a call is. The words are what its refusal must have in it.
func (m *epochsModel) allowed(c epochsCall) (ok bool, words []string) {
	row := allows[c.name]
	cell := strings.Fields(row.access)[m.access]
	switch has := m.locks[c.rank]; {
	case c.name == "Lock" && c.mode != Shared && c.mode != Exclusive:
		return false, []string{fmt.Sprintf("%d is no kind of lock", c.mode), "use Shared or Exclusive"}
	case row.posted == "p" && m.posted == nil:
		return false, []string{"Post has opened no epoch", opens[c.name]}
	case row.posted == "-" && m.posted != nil:
		if cell == "-" && c.name != "Post" { // either refusal is right
			return false, nil
		}
		return false, []string{"Post has opened an epoch for " + list(m.posted), "call Wait first"}
	case cell == "f" && has != Unlocked:
		return false, []string{fmt.Sprintf("%v of rank %d", has, c.rank), "call Unlock first"}
	case cell == "l" && has == Unlocked:
		return false, []string{fmt.Sprintf("rank %d", c.rank), says[m.access].open,
			list(slices.Sorted(maps.Keys(m.locks))),
			"call Lock first"}
	case cell == "g" && !slices.Contains(m.group, c.rank):
		return false, []string{fmt.Sprintf("rank %d", c.rank), "Start", list(m.group), "call Complete first"}
	case cell == "-":
		due := says[m.access].due
		if c.name == "Flush" && m.access == accessLocked {
			due = "call Lock first"
		} else if due == "" {
			due = opens[c.name]
		}
		return false, []string{says[m.access].open, due}
	}
	return true, nil
}

// step makes a call that is allowed.
func (m *epochsModel) step(c epochsCall) {
	group := slices.Sorted(slices.Values(c.group))
	if group == nil {
		group = []int32{}
	}
	switch c.name {
	case "Operation":
		if m.access == accessFence {
			m.access = accessFenced
		}
	case "Fence":
		m.access = accessFence
	case "Start":
		m.access, m.group = accessStarted, group
	case "Complete", "UnlockAll":
		m.access, m.group = accessNone, nil
	case "Post":
		m.posted = group
	case "Posted":
		m.posted = nil
	case "Lock":
		m.access, m.locks[c.rank] = accessLocked, c.mode
	case "Unlock":
		if delete(m.locks, c.rank); len(m.locks) == 0 {
			m.access = accessNone
		}
	case "LockAll":
		m.access = accessAll
	}
}

// call makes a call of the code. got is its result, if it has one.
func (c epochsCall) call(e *Epochs) (got any, err error) {
	group := slices.Clone(c.group)
	defer func() { // the group is the caller's again
		for i := range group {
			group[i] = -7
		}
	}()
	switch c.name {
	case "Operation":
		return nil, e.Operation(c.rank)
	case "Fence":
		return nil, e.Fence()
	case "Start":
		return nil, e.Start(group)
	case "Complete":
		return e.Complete()
	case "Post":
		return nil, e.Post(group)
	case "Posted":
		if got, err = e.Posted(); err == nil {
			e.Waited()
		}
		return got, err
	case "Lock":
		return nil, e.Lock(c.rank, c.mode)
	case "Unlock":
		return e.Unlock(c.rank)
	case "LockAll":
		return nil, e.LockAll()
	case "UnlockAll":
		return nil, e.UnlockAll()
	case "Flush":
		return nil, e.Flush(c.rank)
	case "FlushAll":
		return nil, e.FlushAll()
	}
	return nil, e.Free()
}

// result is what a call that is allowed returns.
func (m *epochsModel) result(c epochsCall) any {
	switch c.name {
	case "Complete":
		return m.group
	case "Posted":
		return m.posted
	case "Unlock":
		return m.locks[c.rank]
	}
	return nil
}

func (m *epochsModel) String() string {
	return fmt.Sprintf("access %d, group %v, locks %v, posted %v %v", m.access, m.group, m.locks, m.posted != nil,
		m.posted)
}

func (e *Epochs) asModel() *epochsModel { return &epochsModel{e.access, e.group, e.locks, e.posted} }

func (m *epochsModel) clone() *epochsModel {
	c := *m
	c.group, c.locks, c.posted = slices.Clone(m.group), maps.Clone(m.locks), slices.Clone(m.posted)
	if c.locks == nil {
		c.locks = map[int32]Mode{}
	}
	return &c
}

// both makes a call of the code and of the model.
func both(t *testing.T, e *Epochs, m *epochsModel, c epochsCall) {
	t.Helper()
	before := m.String()
	ok, words := m.allowed(c)
	got, err := c.call(e)
	if ok != (err == nil) {
		t.Fatalf("%s: %+v is allowed: %v, got %v", before, c, ok, err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Fatalf("%s: the refusal of %+v is %q, want %q in it", before, c, err, w)
		}
	}
	if ok {
		want := m.result(c)
		if m.step(c); want != nil && !reflect.DeepEqual(got, want) {
			t.Fatalf("%s: %+v returns %v, want %v", before, c, got, want)
		}
	}
	if now := e.asModel().clone().String(); now != m.String() {
		t.Fatalf("%s: after %+v, of which the error is %v: %s, want %s", before, c, err, now, m)
	}
	lockedAll := m.access == accessAll
	if e.All() != (lockedAll || m.access == accessFenced) || e.LockedAll() != lockedAll {
		t.Fatalf("%s: All is %v and LockedAll %v", m, e.All(), e.LockedAll())
	}
}

// calls are all calls about a few ranks.
func calls(n int32) (all []epochsCall) {
	for name := range allows {
		switch name {
		case "Operation", "Unlock", "Flush":
			for r := range n {
				all = append(all, epochsCall{name: name, rank: r})
			}
		case "Lock":
			for r := range n {
				for mode := range Exclusive + 2 {
					all = append(all, epochsCall{name: name, rank: r, mode: mode})
				}
			}
		case "Start", "Post":
			for set := range 1 << n {
				var group []int32
				for r := n - 1; r >= 0; r-- { // not in order
					if set>>r&1 != 0 {
						group = append(group, r)
					}
				}
				all = append(all, epochsCall{name: name, group: group})
			}
		default:
			all = append(all, epochsCall{name: name})
		}
	}
	return all
}

// Every call in every state of a window, of which the calls are about three ranks; §12.5. A refusal names the open
// epoch and the call that is due, and changes nothing.
func TestEpochs(t *testing.T) {
	all := calls(3)
	start := &epochsModel{locks: map[int32]Mode{}}
	frontier, seen := []*epochsModel{start}, map[string]bool{start.String(): true}
	for ; len(frontier) > 0; frontier = frontier[1:] {
		for _, c := range all {
			m := frontier[0].clone()
			has := m.clone()
			both(t, &Epochs{has.access, has.group, has.locks, has.posted}, m, c)
			if s := m.String(); !seen[s] {
				seen[s] = true
				frontier = append(frontier, m)
			}
		}
	}
	// None, two of Fence, a group of 8, locks of 3³-1, all; each with no exposure epoch or a group of 8. An exposure
	// epoch excludes LockAll.
	if want := (1+2+8+26)*9 + 1; len(seen) != want {
		t.Errorf("the calls reach %d states, want %d", len(seen), want)
	}
}

// Long rows of random calls on one Epochs.
func TestEpochsRandom(t *testing.T) {
	all := calls(4)
	slices.SortFunc(all, func(a, b epochsCall) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 12))
		e, m := &Epochs{}, &epochsModel{locks: map[int32]Mode{}}
		for range 300 {
			both(t, e, m, all[rng.IntN(len(all))])
		}
	}
}

// Test takes the ranks that have called Complete off the group of Post. The epoch lasts until Waited, also when no rank
// remains; §12.5.2.
func TestRemain(t *testing.T) {
	e := &Epochs{}
	if err := e.Post([]int32{5, 2, 9}); err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]int32{{2, 5, 9}, {5, 9}, {9}, {}} {
		got, err := e.Posted()
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("the ranks that remain are %v, %v, want %v", got, err, want)
		}
		if err := e.Fence(); err == nil || !strings.Contains(err.Error(), "for "+list(want)+"; call Wait first") {
			t.Fatalf("Fence while %v remain: %v", want, err)
		}
		if len(got) > 0 {
			e.Remain(got[1:])
		}
	}
	if e.Waited(); e.Fence() != nil {
		t.Error("Fence after Wait is refused")
	}
}

func TestList(t *testing.T) {
	for want, ranks := range map[string][]int32{
		"no rank": {}, "rank 3": {3}, "ranks 3 and 4": {3, 4}, "ranks 1, 3 and 4": {1, 3, 4},
		"ranks 0, 1, 2, 3, 4, 5, 6 and 7": {0, 1, 2, 3, 4, 5, 6, 7}, "9 ranks from 0 to 9": {0, 1, 2, 3, 4, 5, 6, 7, 9},
	} {
		if got := list(ranks); got != want {
			t.Errorf("%v is %q, want %q", ranks, got, want)
		}
	}
}
