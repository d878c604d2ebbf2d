package rma

import (
	"cmp"
	"fmt"
	"slices"
)

// Mode is the kind of lock that a rank holds at another one; §12.5.3.
type Mode uint8

const (
	Unlocked Mode = iota
	Shared
	Exclusive
)

func (m Mode) String() string { return [...]string{"no lock", "a shared lock", "an exclusive lock"}[m] }

// access is the kind of the access epoch that a rank has opened.
type access uint8

const (
	accessNone    access = iota
	accessFence          // since a Fence: no operation has been made in it
	accessFenced         // since a Fence, with operations: the next synchronization is another Fence
	accessStarted        // Start to Complete, for the ranks of a group
	accessLocked         // Lock to Unlock, for each rank that is locked
	accessAll            // LockAll to UnlockAll
)

// Epochs are the epochs of a window at one rank; §12.5. The access epoch allows operations at other ranks, and the
// exposure epoch allows theirs at this rank. A method that returns an error has changed nothing. The error says which
// epoch is open, and which call is due.
type Epochs struct {
	Self int32 // this rank, whose own memory must not be locked by it while it is exposed (§12.5.3)

	access access
	group  []int32 // of Start, sorted. Invariant: not nil ⇒ access is accessStarted
	locks  []held  // sorted by rank. Invariant: not empty ⇔ access is accessLocked
	posted []int32 // of Post, sorted; nil: there is no exposure epoch

	// A Lock or LockAll that has not returned yet does not have its locks (held.asked), and a Start waits for the ranks
	// of its group. Other goroutines call methods meanwhile.
	askedAll bool // Invariant: access is accessAll
	starting bool // Invariant: access is accessStarted
	waiting  bool // a Wait has the group of Post (Waits). Invariant: posted is not nil

	spare [][]int32 // what Recycle has been given
}

// held is a lock of another rank.
type held struct {
	rank  int32
	mode  Mode
	asked bool // its Lock has not returned
}

// find returns the place of a rank's lock in locks, and the lock; a lock of no mode: the rank has none.
func (e *Epochs) find(rank int32) (at int, has held) {
	at, found := slices.BinarySearchFunc(e.locks, rank, func(h held, rank int32) int {
		return cmp.Compare(h.rank, rank)
	})
	if found {
		has = e.locks[at]
	}
	return at, has
}

func (e *Epochs) mode(rank int32) Mode {
	_, has := e.find(rank)
	return has.mode
}

// All reports whether operations at all ranks are allowed, and nothing is to be noted of one.
func (e *Epochs) All() bool { return e.LockedAll() || e.access == accessFenced }

// None reports whether no epoch is open, of access or exposure: also none of a Fence.
func (e *Epochs) None() bool { return e.access == accessNone && e.posted == nil }

// Operation notes an operation at a rank of the window.
func (e *Epochs) Operation(rank int32) error {
	switch e.access {
	case accessFenced:
		return nil
	case accessAll:
		return e.returned(rank)
	case accessFence:
		e.access = accessFenced
		return nil
	case accessStarted:
		if e.starting {
			return fmt.Errorf("%s", e.open(""))
		}
		if _, in := slices.BinarySearch(e.group, rank); !in {
			return fmt.Errorf("rank %d is not in the group of Start, which has %s; call Complete first", rank,
				list(e.group))
		}
		return nil
	case accessLocked:
		if e.mode(rank) == Unlocked {
			return fmt.Errorf("rank %d is not locked; %s", rank, e.open("Lock"))
		}
		return e.returned(rank)
	}
	return fmt.Errorf("%s", e.open("Fence, Start, Lock or LockAll"))
}

// returned reports that the Lock of a rank, or LockAll, has not returned.
func (e *Epochs) returned(rank int32) error {
	switch {
	case e.askedAll:
		return fmt.Errorf("LockAll has not returned yet; wait for it first")
	}
	if _, has := e.find(rank); has.asked {
		return fmt.Errorf("Lock of rank %d has not returned yet; wait for it first", rank)
	}
	return nil
}

// open says which access epoch is open, and which call is due: opener, which opens the epoch that the caller needs, or
// the call that ends the open epoch first.
func (e *Epochs) open(opener string) string {
	switch e.access {
	case accessFence:
		return fmt.Sprintf("a Fence has opened an epoch; call %s first", opener)
	case accessFenced:
		return "a Fence has opened an epoch, and there have been operations since; call Fence again first"
	case accessStarted:
		if e.starting {
			return "Start has not returned yet; wait for it first"
		}
		return fmt.Sprintf("Start has opened an epoch for %s; call Complete first", list(e.group))
	case accessLocked:
		if opener == "Lock" {
			return fmt.Sprintf("Lock has opened an epoch at %s; call Lock for this rank too", list(e.lockedRanks()))
		}
		return fmt.Sprintf("Lock has opened an epoch at %s; call Unlock first", list(e.lockedRanks()))
	case accessAll:
		if e.askedAll {
			return "LockAll has not returned yet; wait for it first"
		}
		return "LockAll has opened an epoch; call UnlockAll first"
	}
	return fmt.Sprintf("no epoch is open; call %s first", opener)
}

// lockedRanks are the ranks for which Lock has been called.
func (e *Epochs) lockedRanks() (all []int32) {
	for _, h := range e.locks {
		all = append(all, h.rank)
	}
	return all
}

// idle reports why an epoch of another kind cannot begin.
func (e *Epochs) idle() error {
	if e.access == accessNone || e.access == accessFence {
		return nil
	}
	return fmt.Errorf("%s", e.open(""))
}

// Fence ends the epochs of the Fence before, and begins others; §12.5.1.
func (e *Epochs) Fence() error {
	if e.access != accessFenced {
		if err := e.idle(); err != nil {
			return err
		}
	}
	if e.posted != nil {
		return fmt.Errorf("Post has opened an epoch for %s; call Wait first", list(e.posted))
	}
	e.access = accessFence
	return nil
}

// Start opens an access epoch for the ranks of a group; §12.5.2.
func (e *Epochs) Start(group []int32) error {
	if err := e.idle(); err != nil {
		return err
	}
	e.access, e.group, e.starting = accessStarted, e.sorted(group), true
	return nil
}

// StartReturns is called when Start is about to return. has: each rank of the group has called Post; otherwise there is
// no epoch.
func (e *Epochs) StartReturns(has bool) {
	if e.starting = false; !has && e.access == accessStarted {
		e.access, e.group = accessNone, nil
	}
}

// Complete ends the epoch of Start, and returns its group.
func (e *Epochs) Complete() (group []int32, err error) {
	if e.access != accessStarted {
		return nil, fmt.Errorf("Start has opened no epoch; %s", e.open("Start"))
	}
	if e.starting {
		return nil, fmt.Errorf("%s", e.open(""))
	}
	group, e.access, e.group = e.group, accessNone, nil
	return group, nil
}

// Post opens an exposure epoch for the ranks of a group; §12.5.2. LockAll locks the caller's own memory too.
func (e *Epochs) Post(group []int32) error {
	switch {
	case e.posted != nil:
		return fmt.Errorf("Post has opened an epoch for %s already; call Wait first", list(e.posted))
	case e.access == accessFenced || e.access == accessAll:
		return fmt.Errorf("%s", e.open(""))
	case e.mode(e.Self) != Unlocked:
		return fmt.Errorf("the caller has %v of its own memory, which Post would expose; call Unlock first",
			e.mode(e.Self))
	}
	e.posted = e.sorted(group)
	return nil
}

// Posted is the group of Post.
func (e *Epochs) Posted() (group []int32, err error) {
	if e.posted == nil {
		return nil, fmt.Errorf("Post has opened no epoch; call Post first")
	}
	return e.posted, nil
}

// Waits is Posted for a Wait, or a Test, that has the group to itself until it calls Remain: another one at that time
// would wait for what this one has taken.
func (e *Epochs) Waits() (group []int32, err error) {
	if e.waiting {
		return nil, fmt.Errorf("Wait has not returned yet; wait for it first")
	}
	group, err = e.Posted()
	e.waiting = err == nil
	return group, err
}

// Remain says which ranks of the group of Post have not called Complete yet.
func (e *Epochs) Remain(group []int32) { e.posted, e.waiting = group, false }

// Waited ends the epoch of Post.
func (e *Epochs) Waited() { e.posted = nil }

// Lock opens an access epoch at a rank; §12.5.3.
func (e *Epochs) Lock(rank int32, m Mode) error {
	if m != Shared && m != Exclusive {
		return fmt.Errorf("%d is no kind of lock; use Shared or Exclusive", m)
	}
	if e.access != accessLocked {
		if err := e.idle(); err != nil {
			return err
		}
	} else if err := e.returned(rank); err != nil {
		return err
	} else if has := e.mode(rank); has != Unlocked {
		return fmt.Errorf("the caller has %v of rank %d already; call Unlock first", has, rank)
	}
	if rank == e.Self && e.posted != nil {
		return fmt.Errorf("Post has exposed this rank's own memory to %s; call Wait first", list(e.posted))
	}
	at, _ := e.find(rank)
	e.access, e.locks = accessLocked, slices.Insert(e.locks, at, held{rank, m, true})
	return nil
}

// LockReturns is called when the Lock of a rank is about to return. has: with the lock; otherwise there is no epoch.
func (e *Epochs) LockReturns(rank int32, has bool) {
	at, h := e.find(rank)
	switch {
	case h.mode == Unlocked:
	case has:
		e.locks[at].asked = false
	default:
		e.unlocked(at)
	}
}

func (e *Epochs) unlocked(at int) {
	if e.locks = slices.Delete(e.locks, at, at+1); len(e.locks) == 0 && e.access == accessLocked {
		e.access = accessNone
	}
}

// Unlock ends the epoch of Lock at a rank, and returns the lock's mode.
func (e *Epochs) Unlock(rank int32) (Mode, error) {
	at, h := e.find(rank)
	if h.mode == Unlocked {
		if e.access == accessLocked {
			return h.mode, fmt.Errorf("Lock has opened no epoch at rank %d, but one at %s; call Unlock for each rank "+
				"of a Lock", rank, list(e.lockedRanks()))
		}
		return h.mode, fmt.Errorf("Lock has opened no epoch at rank %d; %s", rank, e.open("Lock"))
	}
	if err := e.returned(rank); err != nil {
		return Unlocked, err
	}
	e.unlocked(at)
	return h.mode, nil
}

// Locked are the ranks of which Lock has got the lock.
func (e *Epochs) Locked() (all []int) {
	for _, h := range e.locks {
		if !h.asked {
			all = append(all, int(h.rank))
		}
	}
	return all
}

// LockAll opens an access epoch at all ranks; §12.5.3.
func (e *Epochs) LockAll() error {
	if err := e.idle(); err != nil {
		return err
	}
	if e.posted != nil { // see Post
		return fmt.Errorf("Post has opened an epoch for %s; call Wait first", list(e.posted))
	}
	e.access, e.askedAll = accessAll, true
	return nil
}

// LockAllReturns is called when LockAll is about to return. has: with the locks; otherwise there is no epoch.
func (e *Epochs) LockAllReturns(has bool) {
	if e.askedAll = false; !has && e.access == accessAll {
		e.access = accessNone
	}
}

// LockedAll reports whether LockAll has opened the access epoch, and has returned.
func (e *Epochs) LockedAll() bool { return e.access == accessAll && !e.askedAll }

// LocksAll reports whether LockAll has been called: it has all locks, or is to get them.
func (e *Epochs) LocksAll() bool { return e.access == accessAll }

// UnlockAll ends the epoch of LockAll.
func (e *Epochs) UnlockAll() error {
	if e.access != accessAll {
		return fmt.Errorf("LockAll has opened no epoch; %s", e.open("LockAll"))
	}
	if e.askedAll {
		return e.returned(0)
	}
	e.access = accessNone
	return nil
}

// Flush reports why operations at a rank cannot be flushed, which is for epochs of Lock and LockAll; §12.5.4.
func (e *Epochs) Flush(rank int32) error {
	switch {
	case e.access == accessAll || e.mode(rank) != Unlocked:
		return e.returned(rank)
	case e.access == accessLocked:
		return fmt.Errorf("rank %d is not locked; %s", rank, e.open("Lock"))
	}
	return fmt.Errorf("neither Lock nor LockAll has opened an epoch at rank %d; %s", rank, e.open("Lock or LockAll"))
}

// FlushAll is Flush of all ranks at which an epoch is open.
func (e *Epochs) FlushAll() error {
	switch e.access {
	case accessLocked:
		return nil
	case accessAll:
		return e.returned(0)
	}
	return fmt.Errorf("neither Lock nor LockAll has opened an epoch; %s", e.open("Lock or LockAll"))
}

// Free reports why the window cannot be freed; §12.2.5.
func (e *Epochs) Free() error {
	switch {
	case e.posted != nil:
		return fmt.Errorf("Post has opened an epoch for %s; call Wait first", list(e.posted))
	case e.access == accessFenced:
		return nil // Free waits for the operations
	}
	return e.idle()
}

// sorted returns a sorted copy of a group, which is not nil.
func (e *Epochs) sorted(group []int32) []int32 {
	var g []int32
	if last := len(e.spare) - 1; last >= 0 {
		g, e.spare = append(e.spare[last], group...), e.spare[:last]
	} else {
		g = make([]int32, len(group))
		copy(g, group)
	}
	if len(g) > 1 {
		slices.Sort(g)
	}
	return g
}

// Recycle gives back a group of Complete, or of Posted after Waited, that is not used any more.
func (e *Epochs) Recycle(group []int32) {
	const most = 2 // of Start and of Post
	if len(e.spare) < most {
		e.spare = append(e.spare, group[:0])
	}
}

// list names ranks.
func list(ranks []int32) string {
	const most = 8
	switch n := len(ranks); {
	case n == 0:
		return "no rank"
	case n == 1:
		return fmt.Sprintf("rank %d", ranks[0])
	case n > most:
		return fmt.Sprintf("%d ranks from %d to %d", n, ranks[0], ranks[n-1])
	}
	text := "ranks"
	for i, r := range ranks {
		switch {
		case i == len(ranks)-1:
			text += fmt.Sprintf(" and %d", r)
		case i == 0:
			text += fmt.Sprintf(" %d", r)
		default:
			text += fmt.Sprintf(", %d", r)
		}
	}
	return text
}
