package coll

import (
	"sync/atomic"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/agree"
)

// Every rank of a communicator makes the same collective calls in the same order. Each rank counts them: the number of
// a call is in the tag of all its messages, on context CtxCollective. So any number of calls is in flight, and none
// takes the messages of another. The operation is in the tag too: ranks whose orders differ wait, and never take a
// message of another operation.

// FirstTag is the lowest number by which a call is known on boards, and to ranks that compare calls. Its messages have
// other tags: see planCache.next.
const FirstTag = 1 << 30

// Numbers is how many numbers blocking and nonblocking calls have before they begin again.
const Numbers = FirstTag / 2

// Way is how a call of an operation is made.
type Way uint8

const (
	Blocking    Way = iota
	Nonblocking     // I…, which returns a request
	Persistent      // …Init, which returns one that can be started again and again
)

// CallNames are the public names of the operations.
var CallNames = func() (names [Persistent + 1][collectives.Operations]string) {
	for w := range names {
		for o := range names[w] {
			names[w][o] = Way(w).Named(collectives.Operation(o).Facts().Call)
		}
	}
	return names
}()

// Call returns the name of a call.
func (w Way) Call(o collectives.Operation) string { return CallNames[w][o] }

// Named returns the name of a call that is called name if it is blocking.
func (w Way) Named(name string) string {
	switch w {
	case Nonblocking:
		return "I" + string(name[0]|0x20) + name[1:]
	case Persistent:
		return name + "Init"
	}
	return name
}

// The kind of a message is in its tag above the number of the call: the operation and 1, and so much more of persistent
// calls. Kind 0 has the tags of internal/agree.
const (
	persistentKind = int32(collectives.Operations)
	exchangeKind   = 2*persistentKind + 1 // the ranks compare their calls, or make a board
)

// kindTag is the tag of messages of a call.
func kindTag(kind int32, number uint32) int32 {
	return kind<<agree.NumberBits | int32(number%(1<<agree.NumberBits))
}

// CallOf returns the name and the number, from 1 on, of the call whose message has a tag. The name is "" where the
// ranks compare calls, or make a board; the number is 0 where they make a communicator.
func CallOf(tag int32) (name string, number uint32) {
	kind, number := tag>>agree.NumberBits, uint32(tag)%(1<<agree.NumberBits)+1
	switch {
	case kind < 1 || kind > exchangeKind:
		return "", 0
	case kind == exchangeKind:
		return "", number
	case kind > persistentKind:
		return Persistent.Call(collectives.Operation(kind - 1 - persistentKind)), number
	}
	return Blocking.Call(collectives.Operation(kind - 1)), number
}

// exchangeTag is the tag of messages by which the ranks of a call compare it, in whichever way each of them makes it.
func exchangeTag(tag int32) int32 { return kindTag(exchangeKind, uint32(tag)) }

// callnumbers counts the collective calls of a rank on a communicator.
type callNumbers struct {
	count  atomic.Uint32
	parent *callNumbers // counts instead; nil: there is none
}

// next gives p's call its number. A call that is a mistake takes one too (Group.Mistaken), whichever call it is at each
// rank, so that the ranks count alike afterwards.
func (n *callNumbers) next(p *Plan, w Way) {
	p.tag = n.nextTag(w)
	kind := 1 + int32(p.Operation)
	if w == Persistent {
		kind += persistentKind
	}
	p.messageTag = kindTag(kind, uint32(p.tag))
}

// nextTag returns the number of the next call. A persistent request may live until numbers begin again: its tag is of
// another kind.
func (n *callNumbers) nextTag(w Way) int32 {
	if n.parent != nil {
		n = n.parent
	}
	tag := int32(FirstTag + (n.count.Add(1)-1)%Numbers)
	if w == Persistent {
		tag += Numbers
	}
	return tag
}

// context is that of messages of collective calls.
func (g *Group) context() uint32 { return g.Context + agree.CtxCollective }
