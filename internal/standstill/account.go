package standstill

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"

	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/internal/coll"
	"github.com/gorun-mpi/mpi/internal/waits"
	"github.com/gorun-mpi/mpi/pml"
)

// Names says what a rank calls the communicator of a context, and how many collective calls it has made there.
type Names func(context uint32) (name string, calls uint32)

// World is an engine of this process, of whose ranks an account may tell.
type World struct {
	Engine *pml.Engine
	Names  Names
	Name   string // all of its ranks have it; "": it is the world of Init
	Ranks  []int  // what the launcher calls the ranks, by their numbers in the engine; nil: it has those numbers
}

// Account is what the rank of a process says of itself: it is all that this process does. dump is a folder for the
// stacks of its goroutines; "": they are not wanted.
//
// The rank stands if each of its goroutines waits in a call on the last one of the worlds for another rank of that. A
// goroutine that waits for a spawned rank sleeps in a call on another engine: then more goroutines sleep than the one
// of that world knows of. What the rank waits for in the other worlds is in the account only.
func Account(worlds []World, rank int, level waits.Level, dump string) waits.Account {
	last := &worlds[len(worlds)-1]
	e := last.Engine
	if level == waits.Glance {
		s := e.Glance()
		return waits.Account{Moved: s.Moved, Sent: s.Sent, Taken: s.Taken, World: last.Name,
			Stands: s.Quiet && (s.Asleep > 0 || s.Returned)}
	}
	var seen []sight
	answering := 0                             // goroutines that sleep in other worlds, where no caller does
	for _, o := range worlds[:len(worlds)-1] { // the stacks are a moment later: what does not fit is left out
		o.Engine.Snapshot(func(s *pml.Snapshot) {
			if seen = append(seen, sight{s, o.Names, o.Ranks}); len(s.Sleepers) == 0 {
				answering += s.Asleep
			}
		})
	}
	var found *pml.Snapshot
	var all []stack
	e.Snapshot(func(s *pml.Snapshot) { found, all = s, stacks() })
	var a waits.Account
	if level == waits.Full {
		a = account(append([]sight{{found, last.Names, last.Ranks}}, seen...), -1, all)
	}
	a.World = last.Name
	a.Moved, a.Sent, a.Taken = found.Moved, found.Sent, found.Taken
	a.Stands = found.Quiet && waiting(all, found.Asleep+answering)
	if dump != "" {
		a.Dump = writeDump(dump, rank)
	}
	return a
}

// writeDump writes the stacks of all goroutines, and returns where they are.
func writeDump(folder string, rank int) string {
	path := filepath.Join(folder, fmt.Sprintf("rank.%d.goroutines", rank))
	err := os.MkdirAll(folder, 0o777)
	if err == nil {
		var f *os.File
		if f, err = os.Create(path); err == nil {
			err = pprof.Lookup("goroutine").WriteTo(f, 2)
			if e := f.Close(); err == nil {
				err = e
			}
		}
	}
	if err != nil {
		return "not written: " + err.Error()
	}
	return path
}

// sight is what an engine has shown.
type sight struct {
	*pml.Snapshot
	names Names
	ranks []int // of World
}

// rank is what the launcher calls a rank, or a wildcard.
func (s *sight) rank(number int32) int {
	if number >= 0 && int(number) < len(s.ranks) {
		return s.ranks[number]
	}
	return int(number)
}

// sleeper is one in a call on an engine.
type sleeper struct {
	pml.Sleeper
	of *sight
}

// account makes an account of what callers wait for. own is the index of the goroutine of the rank; -1: all goroutines
// of the process are the rank's. The stacks are of the moment of the first sight.
func account(seen []sight, own int, all []stack) (a waits.Account) {
	var left []sleeper
	for i := range seen {
		for _, by := range seen[i].Sleepers {
			left = append(left, sleeper{by, &seen[i]})
		}
	}
	found := make([]*sleeper, len(all)) // by goroutine; others sleep in calls on other engines
	for i := range all {
		if op, _ := all[i].call(); op == "" {
			continue
		}
		if k := slices.IndexFunc(left, func(by sleeper) bool { return all[i].has(by.IDs) }); k >= 0 {
			by := left[k]
			found[i], left = &by, slices.Delete(left, k, k+1)
		}
	}
	left = slices.DeleteFunc(left, func(by sleeper) bool { return by.of != &seen[0] })
	var main *stack
	for i := range all {
		g := &all[i]
		if own < 0 && g.id == 1 || i == own {
			main = g
		}
		op, at := g.call()
		if op == "" || i == 0 && own < 0 {
			continue
		}
		by := found[i]
		if by == nil && len(left) == 1 && g.asleep() && (own < 0 || i == own) {
			by, left = &left[0], nil
		}
		switch {
		case by != nil:
			a.Calls = append(a.Calls, call(op, at, by))
		case own < 0 || i == own:
			a.Calls = append(a.Calls, waits.Call{Op: op, At: at})
		}
	}
	for i := range left {
		a.Calls = append(a.Calls, call("", "", &left[i]))
	}
	for i := range seen {
		a.Unasked, a.Holds = append(a.Unasked, seen[i].unasked()...), append(a.Holds, seen[i].held()...)
	}
	if len(a.Calls) > 0 {
		return a
	}
	if a.Note = "does nothing that can be seen"; main != nil {
		a.Note = main.where()
	}
	return a
}

// has reports whether a request is among the arguments of its calls.
func (g *stack) has(requests []string) bool {
	for _, f := range g.frames {
		if !strings.HasPrefix(f.function, library+"/pml.") {
			continue
		}
		for arg := range strings.FieldsFuncSeq(f.args, func(r rune) bool { return strings.ContainsRune("{}(), ?", r) }) {
			if slices.Contains(requests, arg) {
				return true
			}
		}
	}
	return false
}

// call is a call of the library, of a caller that sleeps.
func call(op, at string, by *sleeper) waits.Call {
	c := waits.Call{Op: op, At: at, For: by.For}
	for i := range by.Awaited {
		w := &by.Awaited[i]
		comm, calls := by.of.names(w.Ctx)
		if rank, is := lockOf(op, w); is {
			c.Window = w.Ctx / agree.ContextsEach
			c.Waits = append(c.Waits, waits.Wait{Kind: waits.Lock, Peer: by.of.rank(rank), Comm: comm})
			continue
		}
		inCall := w.InRound || w.What == pml.AwaitsWord || w.Ctx%agree.ContextsEach != agree.CtxMessages
		if !inCall {
			kind := waits.Message
			if w.What == pml.AwaitsMatch {
				kind = waits.Match
			}
			if comm == "" {
				comm = "a communicator that is being made"
			}
			c.Waits = append(c.Waits, waits.Wait{Kind: kind, Peer: by.of.rank(w.Rank), Tag: int(w.Tag), Bytes: w.Bytes,
				Comm: comm})
			continue
		}
		if w.What != pml.AwaitsMatch || c.Number == 0 {
			c.Waits = append(c.Waits, waits.Wait{Kind: waits.Step, Peer: by.of.rank(w.Rank)})
		}
		number, name := calls, ""
		if w.What != pml.AwaitsWord {
			name, number = coll.CallOf(w.Tag)
		}
		c.Comm, c.Number = comm, max(c.Number, number)
		if name != "" && !strings.HasPrefix(c.Op, name) && strings.Contains(c.Op, "Wait") && !strings.Contains(c.Op, " of ") {
			c.Op += " of I" + strings.ToLower(name[:1]) + name[1:]
		}
	}
	return c
}

// lockOf returns the rank whose lock op waits for, if it does. In memory that the ranks map, any rank may have it, and
// raises a word. Otherwise that rank is asked, and answers.
func lockOf(op string, w *pml.Awaited) (rank int32, is bool) {
	switch {
	case w.What == pml.AwaitsWord && w.Rank == pml.AnySource:
		return w.Owner, true
	case w.What == pml.AwaitsMessage && strings.HasPrefix(op, "Win.Lock"):
		return w.Rank, true
	}
	return 0, false
}

// held are the locks that a rank has.
func (s *sight) held() (all []waits.Hold) {
	for _, h := range s.Held {
		hold := waits.Hold{Window: h.Ctx / agree.ContextsEach}
		var ids []int
		for _, rank := range h.Ranks {
			ids = append(ids, s.rank(rank))
		}
		for _, rank := range slices.Sorted(slices.Values(ids)) {
			if last := len(hold.Ranks) - 1; last >= 0 && hold.Ranks[last][1] == rank-1 {
				hold.Ranks[last][1]++
				continue
			}
			hold.Ranks = append(hold.Ranks, [2]int{rank, rank})
		}
		all = append(all, hold)
	}
	return all
}

// unasked are the messages of callers that no receive has asked for, by sender and communicator.
func (s *sight) unasked() (all []waits.Unasked) {
	for _, m := range s.Unasked {
		comm, _ := s.names(m.Ctx)
		if m.Ctx%agree.ContextsEach != agree.CtxMessages || comm == "" {
			continue
		}
		from := s.rank(m.Source)
		i := slices.IndexFunc(all, func(u waits.Unasked) bool { return u.From == from && u.Comm == comm })
		if i < 0 {
			i = len(all)
			all = append(all, waits.Unasked{From: from, Comm: comm})
		}
		u := &all[i]
		if u.Count++; !slices.Contains(u.Tags, int(m.Tag)) {
			u.Tags = append(u.Tags, int(m.Tag))
		}
	}
	return all
}
