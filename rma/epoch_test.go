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

	asked    map[int32]bool // ranks whose Lock has not returned
	askedAll bool           // LockAll has not
	starting bool           // Start has not
}

// self is this rank in the tests.
const self = 1

// allows has a column for each access epoch, in the order of the constants, and one for the time in which there is an
// exposure epoch. "y": the call is allowed, "-": it is not, "g": for ranks of the group, "l": for ranks that are
// locked, "f": for the others, "p": the call needs the exposure epoch. In addition a Lock or LockAll that has not
// returned allows none of "l" and "y" that need its lock, and a rank's own memory is not both locked and exposed.
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

	"Lock returns": {"y y y y y y", "y"}, "Lock fails": {"y y y y y y", "y"},
	"Start returns": {"y y y y y y", "y"}, "Start fails": {"y y y y y y", "y"},
	"LockAll returns": {"y y y y y y", "y"}, "LockAll fails": {"y y y y y y", "y"},
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
	"UnlockAll": "call LockAll first", "Flush": "call Lock or LockAll first", "FlushAll": "call Lock or LockAll first",
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
	case m.askedAll && cell == "y" && slices.Contains([]string{"Operation", "UnlockAll", "Flush", "FlushAll"}, c.name):
		return false, []string{"LockAll has not returned yet; wait for it first"}
	case m.starting && (cell == "g" || c.name == "Complete"):
		return false, []string{"Start has not returned yet; wait for it first"}
	case m.asked[c.rank] && (cell == "l" || cell == "f"):
		return false, []string{fmt.Sprintf("Lock of rank %d has not returned yet; wait for it first", c.rank)}
	case c.name == "Lock" && c.rank == self && m.posted != nil && cell != "-":
		return false, []string{"Post has exposed this rank's own memory to " + list(m.posted), "call Wait first"}
	case row.posted == "p" && m.posted == nil:
		return false, []string{"Post has opened no epoch", opens[c.name]}
	case row.posted == "-" && m.posted != nil:
		if cell == "-" && c.name != "Post" { // either refusal is right
			return false, nil
		}
		return false, []string{"Post has opened an epoch for " + list(m.posted), "call Wait first"}
	case c.name == "Post" && m.locks[self] != Unlocked:
		return false, []string{fmt.Sprintf("%v of its own memory", m.locks[self]), "call Unlock first"}
	case cell == "f" && has != Unlocked:
		return false, []string{fmt.Sprintf("%v of rank %d", has, c.rank), "call Unlock first"}
	case cell == "l" && has == Unlocked && c.name == "Unlock":
		return false, []string{fmt.Sprintf("no epoch at rank %d, but one at", c.rank),
			list(slices.Sorted(maps.Keys(m.locks))), "call Unlock for each rank of a Lock"}
	case cell == "l" && has == Unlocked:
		return false, []string{fmt.Sprintf("rank %d", c.rank), says[m.access].open,
			list(slices.Sorted(maps.Keys(m.locks))),
			"call Lock for this rank too"}
	case cell == "g" && !slices.Contains(m.group, c.rank):
		return false, []string{fmt.Sprintf("rank %d", c.rank), "Start", list(m.group), "call Complete first"}
	case cell == "-":
		open, due := says[m.access].open, says[m.access].due
		if m.askedAll {
			open, due = "LockAll has not returned yet", "wait for it first"
		} else if m.starting {
			open, due = "Start has not returned yet", "wait for it first"
		} else if due == "" {
			due = opens[c.name]
		}
		return false, []string{open, due}
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
		m.access, m.group, m.starting = accessStarted, group, true
	case "Start fails":
		if m.starting {
			m.access, m.group, m.starting = accessNone, nil, false
		}
	case "Start returns":
		m.starting = false
	case "Complete", "UnlockAll":
		m.access, m.group = accessNone, nil
	case "Post":
		m.posted = group
	case "Posted":
		m.posted = nil
	case "Lock":
		m.access, m.locks[c.rank], m.asked[c.rank] = accessLocked, c.mode, true
	case "Lock fails", "Unlock":
		if c.name == "Unlock" || m.asked[c.rank] {
			delete(m.asked, c.rank)
			if delete(m.locks, c.rank); len(m.locks) == 0 {
				m.access = accessNone
			}
		}
	case "Lock returns":
		delete(m.asked, c.rank)
	case "LockAll":
		m.access, m.askedAll = accessAll, true
	case "LockAll fails":
		if m.askedAll {
			m.access, m.askedAll = accessNone, false
		}
	case "LockAll returns":
		m.askedAll = false
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
	case "Lock returns", "Lock fails":
		if _, h := e.find(c.rank); h.asked {
			e.LockReturns(c.rank, c.name == "Lock returns")
		}
		return nil, nil
	case "Start returns", "Start fails":
		if e.starting {
			e.StartReturns(c.name == "Start returns")
		}
		return nil, nil
	case "LockAll returns", "LockAll fails":
		if e.askedAll {
			e.LockAllReturns(c.name == "LockAll returns")
		}
		return nil, nil
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
	return fmt.Sprintf("access %d, group %v, locks %v, posted %v %v, asked %v %v %v", m.access, m.group, m.locks,
		m.posted != nil, m.posted, m.asked, m.askedAll, m.starting)
}

func (e *Epochs) asModel() *epochsModel {
	locks, asked := map[int32]Mode{}, map[int32]bool{}
	for _, h := range e.locks {
		if locks[h.rank] = h.mode; h.asked {
			asked[h.rank] = true
		}
	}
	return &epochsModel{e.access, e.group, locks, e.posted, asked, e.askedAll, e.starting}
}

func (m *epochsModel) clone() *epochsModel {
	c := *m
	c.group, c.locks, c.posted = slices.Clone(m.group), maps.Clone(m.locks), slices.Clone(m.posted)
	c.asked = maps.Clone(m.asked)
	if c.locks == nil {
		c.locks = map[int32]Mode{}
	}
	if c.asked == nil {
		c.asked = map[int32]bool{}
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
	lockedAll := m.access == accessAll && !m.askedAll
	if e.All() != (lockedAll || m.access == accessFenced) || e.LockedAll() != lockedAll ||
		e.LocksAll() != (m.access == accessAll) {
		t.Fatalf("%s: All is %v, LockedAll %v and LocksAll %v", m, e.All(), e.LockedAll(), e.LocksAll())
	}
}

// calls are all calls about a few ranks.
func calls(n int32) (all []epochsCall) {
	for name := range allows {
		switch name {
		case "Operation", "Unlock", "Flush", "Lock returns", "Lock fails":
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
	start := (&epochsModel{}).clone()
	frontier, seen := []*epochsModel{start}, map[string]bool{start.String(): true}
	for ; len(frontier) > 0; frontier = frontier[1:] {
		for _, c := range all {
			m := frontier[0].clone()
			has := m.clone()
			var locks []held
			for _, rank := range slices.Sorted(maps.Keys(has.locks)) {
				locks = append(locks, held{rank, has.locks[rank], has.asked[rank]})
			}
			both(t, &Epochs{Self: self, access: has.access, group: has.group, locks: locks, posted: has.posted,
				askedAll: has.askedAll, starting: has.starting}, m, c)
			if s := m.String(); !seen[s] {
				seen[s] = true
				frontier = append(frontier, m)
			}
		}
	}
	// None, two of Fence, a group of 8 whose Start may have returned; each with no exposure epoch or a group of 8.
	// Locks, of which each may have returned, are 5³-1, or 5²-1 in the time of an exposure epoch, which excludes one
	// rank and LockAll.
	if want := (1+2+2*8)*9 + 124 + 24*8 + 2; len(seen) != want {
		t.Errorf("the calls reach %d states, want %d", len(seen), want)
	}
}

// Long rows of random calls on one Epochs.
func TestEpochsRandom(t *testing.T) {
	all := calls(4)
	slices.SortFunc(all, func(a, b epochsCall) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 12))
		e, m := &Epochs{Self: self}, (&epochsModel{}).clone()
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

// A second Wait is an error until the first one has said which ranks remain.
func TestWaits(t *testing.T) {
	e := &Epochs{}
	if _, err := e.Waits(); err == nil {
		t.Error("Wait without Post is allowed")
	}
	if err := e.Post([]int32{5, 2}); err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]int32{{2, 5}, {5}} {
		got, err := e.Waits()
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("the ranks that remain are %v, %v, want %v", got, err, want)
		}
		if _, err := e.Waits(); err == nil || !strings.HasPrefix(err.Error(), "Wait has not returned yet") {
			t.Fatalf("a second Wait: %v", err)
		}
		e.Remain(got[1:])
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
