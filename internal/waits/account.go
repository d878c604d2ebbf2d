package waits

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
)

// Level is how much a question asks for.
type Level int

const (
	Glance Level = iota // whether the calls of the library can go on by themselves; it stops no goroutine
	Stacks              // whether any goroutine can
	Full                // the table's lines too
)

// Account is what a rank says of itself.
type Account struct {
	Stands bool   `json:",omitempty"` // it goes on only when another rank does something
	Moved  uint64 `json:",omitempty"` // grows with each message and each operation that completes
	Sent   uint64 `json:",omitempty"` // messages
	Taken  uint64 `json:",omitempty"` // messages
	World  string `json:",omitempty"` // in which all of this is; "": the one that the launcher has started

	Calls   []Call    `json:",omitempty"` // that goroutines are in
	Holds   []Hold    `json:",omitempty"`
	Unasked []Unasked `json:",omitempty"`
	Note    string    `json:",omitempty"` // what a rank does that is in no call, or why a rank gives no account
	Dump    string    `json:",omitempty"` // the file that has its goroutines, or why there is none
}

// Call is a call of the library that a goroutine is in.
type Call struct {
	Op     string        // as the user writes it; "": not known
	At     string        `json:",omitempty"` // the user's line of code: solve.go:42
	For    time.Duration `json:",omitempty"` // for how long it has waited at least; 0: not known
	Number uint32        `json:",omitempty"` // of a collective call on Comm, from 1 on
	Comm   string        `json:",omitempty"` // of a collective call
	Waits  []Wait        `json:",omitempty"`
	More   int           `json:",omitempty"` // things that it waits for and that are not in Waits
	Window uint32        `json:",omitempty"` // the number of the window whose locks it waits for; 0: it waits for none
}

// Kind says what another rank does to end a wait.
type Kind int

const (
	Message Kind = iota // it sends
	Match               // it receives
	Step                // it makes the same collective call, or answers
	Lock                // nothing: the ranks that have its lock let that go
	kinds
)

// Wait is one thing that a call waits for.
type Wait struct {
	Kind  Kind   `json:",omitempty"`
	Peer  int    // rank in the world; Any
	Tag   int    `json:",omitempty"` // or Any; of Message and Match
	Bytes int64  `json:",omitempty"` // of the message, or room for it; of Message and Match
	Comm  string `json:",omitempty"` // of Message and Match; of Lock, the window
}

// Hold are the locks of a window that a rank has.
type Hold struct {
	Window uint32   // its number, which a window of other ranks may have too
	Ranks  [][2]int // of the world, whose locks they are: the first and the last one of each run
}

// Unasked are messages that have come and that no receive has asked for.
type Unasked struct {
	From  int
	Count int
	Tags  []int // the first that differ
	Comm  string
}

// Any is a wildcard: any rank, any tag.
const Any = -1

const (
	// Most is how many bytes an account takes.
	Most       = 8 << 10
	mostCalls  = 8
	mostWaits  = 40
	mostTags   = 4
	mostText   = 160
	mostMillis = 1 << 40
)

// Encode returns the account as it travels. What does not fit is left out.
func (a Account) Encode() []byte {
	a.trim()
	for {
		b, err := json.Marshal(a)
		switch {
		case err == nil && len(b) <= Most:
			return b
		case len(a.Unasked) > 0:
			a.Unasked = nil
		case len(a.Holds) > 0:
			a.Holds = nil
		case len(a.Calls) > 1:
			a.Calls = a.Calls[:1]
		default:
			b, _ = json.Marshal(Account{Note: "its account is too long"})
			return b
		}
	}
}

func (a *Account) trim() {
	a.Note, a.Dump, a.World = text(a.Note), text(a.Dump), text(a.World)
	a.Calls, a.Unasked = first(a.Calls, mostCalls), first(a.Unasked, mostCalls)
	for i := range a.Calls {
		c := &a.Calls[i]
		c.Op, c.At, c.Comm = text(c.Op), text(c.At), text(c.Comm)
		c.More += max(0, len(c.Waits)-mostWaits)
		c.Waits = first(c.Waits, mostWaits)
		for k := range c.Waits {
			c.Waits[k].Comm = text(c.Waits[k].Comm)
		}
	}
	a.Holds = first(a.Holds, mostCalls)
	for i := range a.Holds {
		a.Holds[i].Ranks = first(a.Holds[i].Ranks, mostWaits)
	}
	for i := range a.Unasked {
		u := &a.Unasked[i]
		u.Comm, u.Tags = text(u.Comm), first(u.Tags, mostTags)
	}
}

func first[T any](s []T, n int) []T { return s[:min(n, len(s))] }

// text makes s fit for a part of one line of a terminal.
func text(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
	if len(s) > mostText {
		s = strings.ToValidUTF8(s[:mostText], "") + "..."
	}
	return s
}

// Decode reads the account of a rank of a job of so many.
func Decode(b []byte, world int) (a Account, err error) {
	if len(b) > Most {
		return Account{}, fmt.Errorf("an account of %d bytes, which may have %d", len(b), Most)
	}
	if err := json.Unmarshal(b, &a); err != nil {
		return Account{}, fmt.Errorf("an account that makes no sense: %w", err)
	}
	a.trim()
	for i := range a.Calls {
		c := &a.Calls[i]
		if c.For < 0 || c.For.Milliseconds() > mostMillis || c.More < 0 || c.More > 1<<30 {
			return Account{}, fmt.Errorf("a call for %v, and %d more waits", c.For, c.More)
		}
		for _, w := range c.Waits {
			if w.Kind < 0 || w.Kind >= kinds || w.Peer < Any || w.Peer >= world || w.Tag < Any || w.Bytes < 0 {
				return Account{}, fmt.Errorf("a wait of kind %d for rank %d, tag %d, %d bytes", w.Kind, w.Peer, w.Tag, w.Bytes)
			}
		}
	}
	for _, h := range a.Holds {
		for _, run := range h.Ranks {
			if run[0] < 0 || run[0] > run[1] || run[1] >= world {
				return Account{}, fmt.Errorf("locks of the ranks from %d to %d", run[0], run[1])
			}
		}
	}
	for _, u := range a.Unasked {
		if u.From < 0 || u.From >= world || u.Count < 1 {
			return Account{}, fmt.Errorf("%d messages of rank %d", u.Count, u.From)
		}
	}
	return a, nil
}
