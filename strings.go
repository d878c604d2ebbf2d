package mpi

import (
	"fmt"
	"strings"
)

// What a person reads of the library's values, in fmt.Println and in logs.

// String describes the communicator: "world (rank 2 of 8)".
func (c *Comm) String() string {
	switch {
	case c == nil || c.commState == nil:
		return "no communicator"
	case c.group.Local != nil:
		return fmt.Sprintf("%s (rank %d of %d, to a group of %d)", c.Name(), c.Rank(), c.Size(), c.group.Size)
	}
	return fmt.Sprintf("%s (rank %d of %d)", c.Name(), c.Rank(), c.Size())
}

// String describes the request by the call that returned it: "Irecv from 1, tag 7, on world". It says nothing of what
// has become of it. Do not call it after Wait.
func (r *Request) String() string {
	if r = r.withoutHooks(); r == nil || r.comm == nil {
		return "no request"
	}
	var b strings.Builder
	b.WriteString(r.op.String())
	if peer := int(r.peer); peer != Undefined {
		fmt.Fprintf(&b, " %s %s", r.op.way(), rankText(peer))
	}
	if tag := int(r.tag); tag != Undefined {
		fmt.Fprintf(&b, ", tag %s", tagText(tag))
	}
	if name := r.comm.Name(); name != "" {
		fmt.Fprintf(&b, ", on %s", name)
	}
	return b.String()
}

// way is the word between the call and its peer.
func (o opCode) way() string {
	if name := o.String(); strings.Contains(name, "ecv") || strings.HasPrefix(name, "RGet") {
		return "from"
	}
	return "to"
}

// String describes the status: "24 bytes from 1, tag 7".
func (s Status) String() string {
	text := fmt.Sprintf("%d bytes from %s, tag %s", s.Bytes, rankText(s.Source), tagText(s.Tag))
	if s.Cancelled {
		text = "cancelled: " + text
	}
	return text
}

// String describes the layout: "layout of float64: 32 bytes within 104, extent 112".
func (l Layout) String() string {
	switch {
	case l.is == nil:
		return "no layout"
	case l.is.err != nil:
		return "no layout: " + l.is.err.Error()
	}
	low, high := l.is.TrueBounds()
	return fmt.Sprintf("layout of %v: %d bytes within %d, extent %d", l.is.numbers, l.is.Size(), high-low, l.is.Extent())
}

func rankText(rank int) string {
	switch rank {
	case AnySource:
		return "any rank"
	case ProcNull:
		return "no process"
	}
	return fmt.Sprint(rank)
}

func tagText(tag int) string {
	if tag == AnyTag {
		return "any"
	}
	return fmt.Sprint(tag)
}
