package rma

import (
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
	access access
	group  []int32        // of Start, sorted. Invariant: not nil ⇒ access is accessStarted
	locks  map[int32]Mode // Invariant: not empty ⇔ access is accessLocked
	posted []int32        // of Post, sorted; nil: there is no exposure epoch
}

// All reports whether operations at all ranks are allowed, and nothing is to be noted of one.
func (e *Epochs) All() bool { return e.access == accessAll || e.access == accessFenced }

// Operation notes an operation at a rank of the window.
func (e *Epochs) Operation(rank int32) error {
	switch e.access {
	case accessAll, accessFenced:
		return nil
	case accessFence:
		e.access = accessFenced
		return nil
	case accessStarted:
		if _, in := slices.BinarySearch(e.group, rank); !in {
			return fmt.Errorf("rank %d is not in the group of Start, which has %s; call Complete first", rank,
				list(e.group))
		}
		return nil
	case accessLocked:
		if e.locks[rank] == Unlocked {
			return fmt.Errorf("rank %d is not locked; %s", rank, e.open("Lock"))
		}
		return nil
	}
	return fmt.Errorf("%s", e.open("Fence, Start, Lock or LockAll"))
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
		return fmt.Sprintf("Start has opened an epoch for %s; call Complete first", list(e.group))
	case accessLocked:
		var ranks []int32
		for r := range e.locks {
			ranks = append(ranks, r)
		}
		slices.Sort(ranks)
		if opener != "Lock" {
			opener = "Unlock"
		}
		return fmt.Sprintf("Lock has opened an epoch at %s; call %s first", list(ranks), opener)
	case accessAll:
		return "LockAll has opened an epoch; call UnlockAll first"
	}
	return fmt.Sprintf("no epoch is open; call %s first", opener)
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
	e.access, e.group = accessStarted, sorted(group)
	return nil
}

// Complete ends the epoch of Start, and returns its group.
func (e *Epochs) Complete() (group []int32, err error) {
	if e.access != accessStarted {
		return nil, fmt.Errorf("Start has opened no epoch; %s", e.open("Start"))
	}
	group, e.access, e.group = e.group, accessNone, nil
	return group, nil
}

// Post opens an exposure epoch for the ranks of a group; §12.5.2. Memory that is locked must not be exposed (§12.5.3),
// and LockAll locks the caller's own memory too.
func (e *Epochs) Post(group []int32) error {
	switch {
	case e.posted != nil:
		return fmt.Errorf("Post has opened an epoch for %s already; call Wait first", list(e.posted))
	case e.access == accessFenced || e.access == accessAll:
		return fmt.Errorf("%s", e.open(""))
	}
	e.posted = sorted(group)
	return nil
}

// Posted is the group of Post.
func (e *Epochs) Posted() (group []int32, err error) {
	if e.posted == nil {
		return nil, fmt.Errorf("Post has opened no epoch; call Post first")
	}
	return e.posted, nil
}

// Remain says which ranks of the group of Post have not called Complete yet.
func (e *Epochs) Remain(group []int32) { e.posted = group }

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
	} else if has := e.locks[rank]; has != Unlocked {
		return fmt.Errorf("the caller has %v of rank %d already; call Unlock first", has, rank)
	}
	if e.locks == nil {
		e.locks = map[int32]Mode{}
	}
	e.access = accessLocked
	e.locks[rank] = m
	return nil
}

// Unlock ends the epoch of Lock at a rank, and returns the lock's mode.
func (e *Epochs) Unlock(rank int32) (Mode, error) {
	m := e.locks[rank]
	if m == Unlocked {
		return m, fmt.Errorf("Lock has opened no epoch at rank %d; %s", rank, e.open("Lock"))
	}
	if delete(e.locks, rank); len(e.locks) == 0 {
		e.access = accessNone
	}
	return m, nil
}

// LockAll opens an access epoch at all ranks; §12.5.3.
func (e *Epochs) LockAll() error {
	if err := e.idle(); err != nil {
		return err
	}
	if e.posted != nil { // see Post
		return fmt.Errorf("Post has opened an epoch for %s; call Wait first", list(e.posted))
	}
	e.access = accessAll
	return nil
}

// LockedAll reports whether LockAll has opened the access epoch.
func (e *Epochs) LockedAll() bool { return e.access == accessAll }

// UnlockAll ends the epoch of LockAll.
func (e *Epochs) UnlockAll() error {
	if e.access != accessAll {
		return fmt.Errorf("LockAll has opened no epoch; %s", e.open("LockAll"))
	}
	e.access = accessNone
	return nil
}

// Flush reports why operations at a rank cannot be flushed, which is for epochs of Lock and LockAll; §12.5.4.
func (e *Epochs) Flush(rank int32) error {
	if e.access == accessAll || e.locks[rank] != Unlocked {
		return nil
	}
	return fmt.Errorf("neither Lock nor LockAll has opened an epoch at rank %d; %s", rank, e.open("Lock"))
}

// FlushAll is Flush of all ranks at which an epoch is open.
func (e *Epochs) FlushAll() error {
	if e.access == accessAll || e.access == accessLocked {
		return nil
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

func sorted(group []int32) []int32 {
	g := make([]int32, len(group)) // not nil
	copy(g, group)
	slices.Sort(g)
	return g
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
