package coll

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/internal/mpierr"
)

// With GORUN_COLL_CHECK the ranks first exchange what they call: it goes up a binomial tree to rank 0, and the verdict
// comes down. If two ranks differ, the call is an error at all ranks, which names the two, and leaves nothing under
// way. So is a call that some rank cannot make because of its caller's arguments. Rank 0 compares the counts that each
// rank has for each other one, in Gatherv, Scatterv and Alltoallv.

// comparison is the exchange in which the ranks of a call compare it.
type comparison struct{ *agree.Exchange }

// attribute is a part of a call that is the same at all ranks, in words, and the error of a rank that differs.
type attribute struct {
	text     string
	class    error
	optional bool // a rank may have nothing to say: ""
}

// describe returns the attributes of a call, its name first.
func (p *Plan) describe(w Way) []attribute {
	if p.attributes != nil {
		return slices.Clone(p.attributes)
	}
	o, root := p.Operation, ""
	switch o {
	case collectives.Bcast, collectives.Gather, collectives.Gatherv, collectives.Scatter, collectives.Scatterv,
		collectives.Reduce:
		root = fmt.Sprintf("root %d", p.Root)
	}
	count := fmt.Sprintf("%d elements for each block", p.Count)
	switch o {
	case collectives.Gatherv, collectives.Scatterv, collectives.Alltoallv, collectives.Alltoallw,
		collectives.NeighborAllgather, collectives.NeighborAllgatherv, collectives.NeighborAlltoall,
		collectives.NeighborAlltoallv, collectives.NeighborAlltoallw, collectives.InterAllgather,
		collectives.InterAllgatherv, collectives.InterAlltoall, collectives.InterAlltoallv, collectives.InterAlltoallw:
		count = ""
	case collectives.InterReduceScatter, collectives.InterReduceScatterBlock:
		count = fmt.Sprintf("%d elements in send", p.Count)
	case collectives.Allgatherv:
		count = fmt.Sprintf("counts %v", p.params.OutCounts)
	case collectives.ReduceScatter:
		count = fmt.Sprintf("counts %v", p.params.InCounts)
	}
	order, place := "", ""
	if !p.Commutative {
		order = "Ordered"
	}
	if p.InPlace && (o == collectives.Alltoall || o == collectives.Alltoallv || o == collectives.Alltoallw) {
		place = "no send buffer"
	}
	return []attribute{{text: w.Call(o), class: mpierr.ErrComm}, {text: root, class: mpierr.ErrRoot},
		{text: p.TypeName, class: mpierr.ErrType}, {text: count, class: mpierr.ErrCount},
		{text: order, class: mpierr.ErrOp},
		{text: p.OperatorName, class: mpierr.ErrOp, optional: true}, {text: place, class: mpierr.ErrBuffer},
		// The algorithm follows from the others, and from settings.
		{text: "the algorithm " + p.names(w) + " (GORUN_COLL)", class: mpierr.ErrComm}}
}

// row has the numbers of elements that a rank has for others and expects of them, where the ranks' lengths differ.
type row struct{ gives, takes []int64 }

// mostCompared is the number of ranks up to which rows of Alltoallv are compared: rank 0 has all of them.
const mostCompared = 128

// row returns the row of this rank: of Gatherv and Scatterv only the root has a number for each rank.
func (p *Plan) row() (r row, has bool) {
	in, out := p.params.InCounts, p.params.OutCounts
	if p.attributes != nil { // only some ranks of both groups know the root
		return row{}, false
	}
	switch p.Operation {
	case collectives.Gatherv:
		return row{[]int64{p.Count}, out}, true
	case collectives.Scatterv:
		return row{in, []int64{p.Count}}, true
	case collectives.Alltoallv, collectives.Alltoallw, collectives.InterAllgather, collectives.InterAllgatherv,
		collectives.InterAlltoall, collectives.InterAlltoallv, collectives.InterAlltoallw:
		return row{in, out}, p.params.Size <= mostCompared
	}
	return row{}, false
}

// between returns how many elements rank i gives to rank j, or takes from it, if it has a number for that.
func between(counts []int64, root, i, j int) (n int64, ok bool) {
	switch {
	case len(counts) == 1 && j == root:
		return counts[0], true
	case len(counts) > 1 && j < len(counts):
		return counts[j], true
	}
	return 0, false
}

// compareRows finds two ranks one of which takes what the other one does not give.
func (m comparison) compareRows(p *Plan, rows map[int]row) *agree.Veto {
	for i := range m.Group.Size {
		for j := range m.Group.Size {
			if (p.Operation == collectives.Gatherv || p.Operation == collectives.Scatterv) &&
				i != p.Root && j != p.Root {
				continue
			}
			gives, sends := between(rows[i].gives, p.Root, i, j)
			takes, receives := between(rows[j].takes, p.Root, j, i)
			if sends && receives && gives != takes {
				return &agree.Veto{Class: mpierr.ErrCount,
					Text: fmt.Sprintf("rank %d calls %v with %d elements for rank %d, which calls "+
						"it with %d from rank %[1]d; the two must be equal", m.Name(i),
						strings.TrimPrefix(p.Operation.String(), "inter_"), gives, m.Name(j), takes)}
			}
		}
	}
	return nil
}

func appendRows(b []byte, rows map[int]row) []byte {
	b = agree.AppendInts(b, int64(len(rows)))
	for rank, r := range rows {
		b = agree.AppendInts(b, int64(rank))
		for _, counts := range [][]int64{r.gives, r.takes} {
			b = agree.AppendInts(agree.AppendInts(b, int64(len(counts))), counts...)
		}
	}
	return b
}

// readRows adds the rows that a child has sent.
func readRows(d *agree.Decoder, all map[int]row, size int) {
	for range d.Count() {
		rank := int(d.Within(0, int64(size)-1))
		var r row
		for _, counts := range []*[]int64{&r.gives, &r.takes} {
			for range d.Count() {
				*counts = append(*counts, d.Int())
			}
		}
		all[rank] = r
	}
}

// mistakes are what a caller can do wrong with a communicator that is usable, and failures: of a device that has a
// caller's buffer, and of the host to have pinned memory for it.
var (
	mistakes = slices.Concat(failures, []error{mpierr.ErrRoot, mpierr.ErrCount, mpierr.ErrType, mpierr.ErrOp,
		mpierr.ErrBuffer})
	failures = []error{mpierr.ErrDevice, mpierr.ErrNoMemory}
)

// Mistaken returns err, after it has told the other ranks of a call that this one cannot make it, if that is compared.
func (g *Group) Mistaken(ctx context.Context, w Way, err error) error {
	var mistake *mpierr.Error
	if !errors.As(err, &mistake) || !slices.Contains(mistakes, mistake.Class) || !g.Setup.Check ||
		g.Size == 1 && g.Both == nil {
		return err
	}
	rank := g.Rank
	if g.inter != nil {
		g, rank = g.inter.both, int(g.WorldRank)
	}
	tag := g.numbers.nextTag(w)
	report := func() error {
		what := "calls it wrongly"
		if slices.Contains(failures, mistake.Class) {
			what = "cannot call it"
		}
		text := fmt.Sprintf("rank %d %s: %v", rank, what, mistake.Err)
		g.compare(tag, nil, nil, &agree.Veto{Class: mistake.Class, Text: text})
		return nil
	}
	if w == Blocking {
		g.RunDetached(ctx, "", report)
		return err
	}
	g.InBackground("", report) // Finalize waits for it, as long as other ranks may make the call
	return err
}

// compareCalls returns why a call is refused: the ranks do not call the same, or one of them has failed. No rank makes
// it then. alone is the error of a rank that does not know, since the rank that would have told it has failed: others
// may make the call, and count on this one.
func (p *Plan) compareCalls(w Way) (refused, alone error) {
	no := p.group.compare(p.tag, p, p.describe(w), nil)
	if no == nil && p.Operation.Neighborhood() {
		no = p.compareEdges()
	}
	if no == nil {
		return nil, nil
	}
	err := no.Cause
	if err == nil {
		err = mpierr.New("", no.Class, "%s", no.Text)
	}
	if no.Alone {
		return nil, err
	}
	return err, nil
}

// continueAlone makes the call in the background as a rank that has given up: other ranks may count on it, or not make
// the call.
func (p *Plan) continueAlone(a *collectives.Algorithm, why error) {
	q := newPlan(p.group, &p.Key, p.params.InCounts, p.params.OutCounts)
	q.tag, q.messageTag, q.failed, q.alone, q.hollow = p.tag, p.messageTag, why, why, true
	p.group.InBackground("", func() error { return q.runByMessages(a) })
}

// CompareCreation compares a call that makes a communicator: another rank may make another collective call. It does not
// compare Merge, whose ranks agree in their groups: a rank that hears nothing in the comparison, since the rank that
// would have told it has failed, would leave the ranks of its own group that wait for it.
func (g *Group) CompareCreation(kind agree.Creation, tag int32) *agree.Veto {
	if !g.Setup.Check || g.Size == 1 || g.Both != nil {
		return nil
	}
	return g.compare(tag, nil, []attribute{{text: kind.String(), class: mpierr.ErrComm}}, nil)
}

// compare returns the verdict on a call, which all ranks hear. This rank makes the call, by p if the call has a plan,
// or refuses it with no.
func (g *Group) compare(tag int32, p *Plan, attributes []attribute, no *agree.Veto) *agree.Veto {
	m := comparison{g.Exchange(agree.MakeDup)}
	m.Tag = exchangeTag(tag)
	rows := map[int]row{}
	if p != nil {
		if r, has := p.row(); has {
			rows[g.Rank] = r
		}
	}
	var children []int
	for child := range m.Children() {
		b, err := m.Receive(child)
		var heard *agree.Veto
		if err != nil {
			heard = m.Met(err)
		} else {
			children = append(children, child)
			heard = m.differs(attributes, child, b, rows)
		}
		if no == nil || heard != nil && no.MaybeMade() { // a mistake goes first: then no rank makes the call
			no = heard
		}
	}
	switch {
	case m.Me != 0:
		no = m.ask(attributes, no, rows)
	case no == nil && len(rows) > 0:
		no = m.compareRows(p, rows)
	case no == nil && p != nil && p.attributes != nil:
		no = rootless(attributes)
	}
	m.Tell(children, 0, no, nil)
	if no != nil && g.Both != nil {
		no.Text += "; these are ranks of the world"
	}
	return no
}

// differs compares what a child calls with what this rank does, and adds the rows that it knows.
func (m comparison) differs(attributes []attribute, child int, b []byte, rows map[int]row) *agree.Veto {
	d := agree.Decoder{B: b}
	if no := d.Veto(); no != nil || attributes == nil {
		return no
	}
	for i, own := range attributes {
		peer := string(d.Bytes())
		if d.Bad {
			break
		}
		if own.optional && own.text == "" {
			own.text, attributes[i].text = peer, peer // the ranks above are to hear it
		}
		if unknown := own.optional && peer == ""; peer != own.text && !unknown {
			return &agree.Veto{Class: own.class,
				Text: fmt.Sprintf("rank %d calls %s%s and rank %d calls %s%s; all ranks make the "+
					"same collective calls in the same order", m.Name(m.Me), attributes[0].text, with(i, own.text),
					m.Name(child),
					// the attributes before this one are the same
					first(i, attributes[0].text, peer), with(i, peer))}
		}
	}
	if readRows(&d, rows, m.Group.Size); !d.Over() {
		return m.Nonsense(child)
	}
	return nil
}

func first(i int, own, peer string) string {
	if i == 0 {
		return peer
	}
	return own
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

// ask tells the parent what the ranks from this one on call, and returns the verdict of rank 0.
func (m comparison) ask(attributes []attribute, no *agree.Veto, rows map[int]row) *agree.Veto {
	b := no.Append(nil)
	for _, c := range attributes {
		b = agree.AppendBytes(b, c.text)
	}
	b = appendRows(b, rows)
	parent := m.Me & (m.Me - 1)
	if err := m.Lost(parent); err != nil {
		return m.Met(err) // rank 0 does not hear of this one
	}
	err := m.Send(parent, b)
	if err == nil {
		b, err = m.Receive(parent)
	}
	if err != nil {
		return m.Met(err).Unknown()
	}
	d := agree.Decoder{B: b}
	d.Int()
	heard := d.Veto()
	if !d.Over() {
		return m.Nonsense(parent)
	}
	if heard != nil && no != nil && no.Cause != nil {
		heard.Cause = no.Cause // this rank knows best
	}
	return heard
}

// compareEdges compares, along each edge, how much is sent with how much is expected. All ranks hear of a difference.
func (p *Plan) compareEdges() *agree.Veto {
	const size = 8 // of a count
	g := p.group
	sources, destinations := g.Topology.Neighbours(g.Rank)
	count := func(counts []int64, i int) int64 {
		if counts == nil {
			return p.Count
		}
		return counts[i]
	}
	gives, takes := aligned(size*len(destinations)), aligned(size*len(sources))
	for i := range destinations {
		binary.LittleEndian.PutUint64(gives[size*i:], uint64(count(p.params.InCounts, i)))
	}
	q := newPlan(g, &Key{Operation: collectives.NeighborAlltoall, Count: 1, ElemSize: size, Commutative: true}, nil,
		nil)
	q.messageTag = exchangeTag(p.tag)
	q.SetBuffer(collectives.In, gives)
	q.SetBuffer(collectives.Out, takes)
	m := g.Exchange(agree.MakeDup)
	m.Tag = q.messageTag
	var no *agree.Veto
	if err := q.runByMessages(q.algorithm); err != nil {
		no = m.Met(err)
	}
	for i, from := range sources {
		sent, due := int64(binary.LittleEndian.Uint64(takes[size*i:])), count(p.params.OutCounts, i)
		if no == nil && from >= 0 && sent != due {
			no = &agree.Veto{Class: mpierr.ErrCount,
				Text: fmt.Sprintf("rank %d calls %v with %d elements for rank %d, which calls it "+
					"with %d for its neighbour %d, rank %[1]d; the two must be equal", from, p.Operation, sent, g.Rank,
					due, i)}
		}
	}
	_, no = m.Round(0, nil, no, nil)
	return no
}
