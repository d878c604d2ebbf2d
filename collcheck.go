package mpi

import (
	"fmt"
	"reflect"

	"github.com/gorun-mpi/mpi/collectives"
)

// With GORUN_COLL_CHECK ranks first tell each other what they call: up a binomial tree to rank 0, and down again
// whether that goes together. A call that does not is an error at all ranks, which names two that differ, and leaves
// nothing under way.

// begun is begin, which notes the type of the elements if that is compared.
func begun[T any](c *Comm, key planKey, in, out []int64) *collPlan {
	p := c.begin(&key, in, out)
	if c.setup.Check {
		p.typeName = reflect.TypeFor[T]().String()
	}
	return p
}

// claim is what ranks must call alike, in words, and the error of a rank that does not.
type claim struct {
	text  string
	class error
}

// claims are those of a call, the first one first.
func (p *collPlan) claims() []claim {
	o, root := p.operation, ""
	switch o {
	case collectives.Bcast, collectives.Gather, collectives.Gatherv, collectives.Scatter, collectives.Scatterv,
		collectives.Reduce:
		root = fmt.Sprintf("root %d", p.root)
	}
	count := fmt.Sprintf("%d elements for each block", p.count)
	switch o {
	case collectives.Gatherv, collectives.Scatterv, collectives.Alltoallv:
		count = ""
	case collectives.Allgatherv:
		count = fmt.Sprintf("counts %v", p.params.OutCounts)
	case collectives.ReduceScatter:
		count = fmt.Sprintf("counts %v", p.params.InCounts)
	}
	order := ""
	if !p.commutative {
		order = "Ordered"
	}
	return []claim{{o.String(), ErrComm}, {root, ErrRoot}, {p.typeName, ErrType}, {count, ErrCount}, {order, ErrOp}}
}

// compare reports that the ranks of a call do not call the same. If a rank has failed the call is made all the same,
// with p.failed: other ranks may not have heard of it, and count on this one.
func (c *Comm) compare(p *collPlan) error {
	m := c.meet(makeDup)
	m.tag = p.tag
	claims := p.claims()
	var no *refusal
	var children []int
	for child := range m.children() {
		b, err := m.receive(child)
		if err != nil {
			no = m.met(err)
			continue
		}
		children = append(children, child)
		if its := m.differs(claims, child, b); no == nil {
			no = its
		}
	}
	if m.me != 0 {
		no = m.ask(claims, no)
	}
	m.tell(children, 0, no, nil)
	switch {
	case no == nil:
		return nil
	case no.cause != nil:
		p.failed = no.cause
	case no.maybeMade():
		p.failed = opError("", no.class, "%s", no.text)
	default:
		return opError("", no.class, "%s", no.text)
	}
	return nil
}

// differs compares what a child calls with what this rank does.
func (m *meeting) differs(claims []claim, child int, b []byte) *refusal {
	d := decoder{b: b}
	if no := d.refusal(); no != nil {
		return no
	}
	for i, mine := range claims {
		its := string(d.bytes())
		if d.bad {
			break
		}
		if its != mine.text {
			return &refusal{class: mine.class, text: fmt.Sprintf("rank %d calls %s%s and rank %d calls %s%s; all ranks make the "+
				"same collective calls in the same order", m.name(m.me), claims[0].text, with(i, mine.text), m.name(child),
				// the claims before this one are the same
				first(i, claims[0].text, its), with(i, its))}
		}
	}
	if !d.over() {
		return m.nonsense(child)
	}
	return nil
}

func first(i int, mine, its string) string {
	if i == 0 {
		return its
	}
	return mine
}

func with(i int, text string) string {
	switch {
	case i == 0:
		return ""
	case text == "":
		return " without that"
	}
	return " with " + text
}

// ask says to the parent what the ranks from this one on call, and returns what rank 0 has found.
func (m *meeting) ask(claims []claim, no *refusal) *refusal {
	b := no.append(nil)
	for _, c := range claims {
		b = appendBytes(b, c.text)
	}
	parent := m.me & (m.me - 1)
	err := m.send(parent, b)
	if err == nil {
		b, err = m.receive(parent)
	}
	if err != nil {
		return m.met(err)
	}
	d := decoder{b: b}
	d.int()
	heard := d.refusal()
	if !d.over() {
		return m.nonsense(parent)
	}
	if heard != nil && no != nil && no.cause != nil {
		heard.cause = no.cause // this rank knows best
	}
	return heard
}
