package mpi

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/internal/mpierr"
)

// With GORUN_COLL_CHECK ranks first tell each other what they call: up a binomial tree to rank 0, and down again
// whether that goes together. A call that does not is an error at all ranks, which names two that differ, and leaves
// nothing under way. So is a call that cannot be made at some rank, for what its caller gives. What each rank has for
// each other one, in Gatherv, Scatterv and Alltoallv, is compared at rank 0.

// planned is plan of a call that is made in way w. It notes the type of the elements if that is compared.
func planned[T any](c *Comm, w way, key planKey, in, out []int64) *collPlan {
	key.unattended = w != blocking // with a context its caller waits, and other ranks' may have none
	p := c.plan(&key, in, out)
	if c.setup.Check {
		p.typeName = reflect.TypeFor[T]().String()
	}
	return p
}

// comparison is how the ranks of a call compare it.
type comparison struct{ *agree.Exchange }

// claim is what ranks must call alike, in words, and the error of a rank that does not.
type claim struct {
	text  string
	class error
	open  bool // a rank may have nothing to say: ""
}

// operatorName is what an operator of this package is called; "" of another one.
func operatorName[T any](op Op[T]) string {
	name := runtime.FuncForPC(reflect.ValueOf(op).Pointer()).Name()
	name, ours := strings.CutPrefix(name, reflect.TypeFor[Comm]().PkgPath()+".")
	if name, generic := strings.CutSuffix(name, "[...]"); ours && generic {
		return name
	}
	return ""
}

// claims are those of a call, the first one first.
func (p *collPlan) claims(w way) []claim {
	if p.claimed != nil {
		return slices.Clone(p.claimed)
	}
	o, root := p.operation, ""
	switch o {
	case collectives.Bcast, collectives.Gather, collectives.Gatherv, collectives.Scatter, collectives.Scatterv,
		collectives.Reduce:
		root = fmt.Sprintf("root %d", p.root)
	}
	count := fmt.Sprintf("%d elements for each block", p.count)
	switch o {
	case collectives.Gatherv, collectives.Scatterv, collectives.Alltoallv, collectives.Alltoallw,
		collectives.NeighborAllgather, collectives.NeighborAllgatherv, collectives.NeighborAlltoall,
		collectives.NeighborAlltoallv, collectives.NeighborAlltoallw:
		count = ""
	case collectives.Allgatherv:
		count = fmt.Sprintf("counts %v", p.params.OutCounts)
	case collectives.ReduceScatter:
		count = fmt.Sprintf("counts %v", p.params.InCounts)
	}
	order, place, algorithm := "", "", p.algorithm.Name
	if w == blocking {
		algorithm = p.ways.named(algorithm)
	}
	if !p.commutative {
		order = "Ordered"
	}
	if p.inPlace && (o == collectives.Alltoall || o == collectives.Alltoallv || o == collectives.Alltoallw) {
		place = "no send buffer"
	}
	return []claim{{text: w.call(o), class: ErrComm}, {text: root, class: ErrRoot}, {text: p.typeName, class: ErrType},
		{text: count, class: ErrCount}, {text: order, class: ErrOp}, {text: p.operatorName, class: ErrOp, open: true},
		{text: place, class: ErrBuffer},
		// It follows from the others, and from settings.
		{text: "the algorithm " + algorithm + " (GORUN_COLL)", class: ErrComm}}
}

// row is how many elements a rank has for others, and expects of them, where the ranks' lengths differ.
type row struct{ gives, takes []int64 }

// mostCompared is of how many ranks the rows of Alltoallv are compared: rank 0 has all of them.
const mostCompared = 128

// row is that of this rank: of Gatherv and Scatterv only the root has a number for each rank.
func (p *collPlan) row() (r row, has bool) {
	in, out := p.params.InCounts, p.params.OutCounts
	switch p.operation {
	case collectives.Gatherv:
		return row{[]int64{p.count}, out}, true
	case collectives.Scatterv:
		return row{in, []int64{p.count}}, true
	case collectives.Alltoallv, collectives.Alltoallw:
		return row{in, out}, p.params.Size <= mostCompared
	}
	return row{}, false
}

// between is how many elements rank i gives to rank j, or takes from it.
func between(counts []int64, root, i, j int) (n int64, is bool) {
	switch {
	case len(counts) == 1 && j == root:
		return counts[0], true
	case len(counts) > 1 && j < len(counts):
		return counts[j], true
	}
	return 0, false
}

// unlike finds two ranks one of which takes what the other one does not give.
func (m comparison) unlike(p *collPlan, rows map[int]row) *agree.Veto {
	for i := range m.Group.Size {
		for j := range m.Group.Size {
			if (p.operation == collectives.Gatherv || p.operation == collectives.Scatterv) && i != p.root && j != p.root {
				continue
			}
			gives, is := between(rows[i].gives, p.root, i, j)
			takes, so := between(rows[j].takes, p.root, j, i)
			if is && so && gives != takes {
				return &agree.Veto{Class: ErrCount,
					Text: fmt.Sprintf("rank %d calls %v with %d elements for rank %d, which calls "+
						"it with %d from rank %[1]d; the two must be equal", m.Name(i), p.operation, gives, m.Name(j), takes)}
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

// readRows adds those that a child has sent.
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

// mistakes are what a caller can do wrong with a communicator that is usable.
var mistakes = []error{ErrRoot, ErrCount, ErrType, ErrOp, ErrBuffer}

// mistaken returns err, after it has told the other ranks of a call that this one cannot make it, if that is compared.
func (c *Comm) mistaken(w way, err error) error {
	var mine *Error
	if !errors.As(err, &mine) || !slices.Contains(mistakes, mine.Class) || !c.setup.Check ||
		c.group.Size == 1 && c.groups == nil {
		return err
	}
	rank := c.group.Rank
	if c.groups != nil {
		c, rank = c.bothGroups(), int(c.group.WorldRank)
	}
	tag := c.colls.nextTag(w)
	tell := func() error {
		text := fmt.Sprintf("rank %d calls it wrongly: %v", rank, mine.Err)
		c.compareAs(tag, nil, nil, &agree.Veto{Class: mine.Class, Text: text})
		return nil
	}
	if w == blocking {
		c.outliving("", tell)
		return err
	}
	c.group.InBackground("", tell) // Finalize waits for it, as long as other ranks may make the call
	return err
}

// compare says why a call is refused, which no rank makes: the ranks do not call the same, or one of them has failed.
// alone is that this rank does not know, since the one that would have told it has failed: others may make the call,
// and count on this one.
func (c *Comm) compare(p *collPlan, w way) (refused, alone error) {
	no := c.compareAs(p.tag, p, p.claims(w), nil)
	if no == nil && p.operation.Neighborhood() {
		no = c.compareEdges(p)
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

// goOnAlone makes a call in the background as a rank that has given up: other ranks may count on it, or not make the
// call.
func (c *Comm) goOnAlone(p *collPlan, why error) {
	q := newCollPlan(c, &p.planKey, p.params.InCounts, p.params.OutCounts)
	q.over, q.tag, q.messageTag, q.failed, q.alone = p.over, p.tag, p.messageTag, why, why
	c.group.InBackground("", func() error { return q.runByMessages(c) })
}

// compareCreation compares a call that makes a communicator: another rank may make another collective call. Merge is
// not compared. Its ranks meet in their groups. One that hears nothing, for the rank that would have told it in both
// groups has failed, would leave those in its own group that wait for it.
func (c *Comm) compareCreation(kind agree.Creation, tag int32) *agree.Veto {
	if !c.setup.Check || c.group.Size == 1 || c.groups != nil {
		return nil
	}
	return c.compareAs(tag, nil, []claim{{text: kind.String(), class: ErrComm}}, nil)
}

// compareAs returns what all ranks of a call hear of it. This rank claims to make it, by p if it is one that has a
// plan, or refuses.
func (c *Comm) compareAs(tag int32, p *collPlan, claims []claim, no *agree.Veto) *agree.Veto {
	m := comparison{c.group.Exchange(agree.MakeDup)}
	m.Tag = meetingTag(tag)
	rows := map[int]row{}
	if p != nil {
		if r, has := p.row(); has {
			rows[c.group.Rank] = r
		}
	}
	var children []int
	for child := range m.Children() {
		b, err := m.Receive(child)
		var its *agree.Veto
		if err != nil {
			its = m.Met(err)
		} else {
			children = append(children, child)
			its = m.differs(claims, child, b, rows)
		}
		if no == nil || its != nil && no.MaybeMade() { // a mistake goes first: then no rank makes the call
			no = its
		}
	}
	switch {
	case m.Me != 0:
		no = m.ask(claims, no, rows)
	case no == nil && len(rows) > 0:
		no = m.unlike(p, rows)
	case no == nil && p != nil && p.claimed != nil:
		no = rootless(claims)
	}
	m.Tell(children, 0, no, nil)
	if no != nil && c.groups != nil {
		no.Text += "; these are ranks of the world"
	}
	return no
}

// differs compares what a child calls with what this rank does, and adds the rows that it knows.
func (m comparison) differs(claims []claim, child int, b []byte, rows map[int]row) *agree.Veto {
	d := agree.Decoder{B: b}
	if no := d.Veto(); no != nil || claims == nil {
		return no
	}
	for i, mine := range claims {
		its := string(d.Bytes())
		if d.Bad {
			break
		}
		if mine.open && mine.text == "" {
			mine.text, claims[i].text = its, its // the ranks above are to hear it
		}
		if unknown := mine.open && its == ""; its != mine.text && !unknown {
			return &agree.Veto{Class: mine.class,
				Text: fmt.Sprintf("rank %d calls %s%s and rank %d calls %s%s; all ranks make the "+
					"same collective calls in the same order", m.Name(m.Me), claims[0].text, with(i, mine.text), m.Name(child),
					// the claims before this one are the same
					first(i, claims[0].text, its), with(i, its))}
		}
	}
	if readRows(&d, rows, m.Group.Size); !d.Over() {
		return m.Nonsense(child)
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
func (m comparison) ask(claims []claim, no *agree.Veto, rows map[int]row) *agree.Veto {
	b := no.Append(nil)
	for _, c := range claims {
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

// apartBlocks is apart of lists, which are looked at if calls are compared: that takes longer.
func (c *Comm) apartBlocks(op string, p *collPlan) (*collPlan, error) {
	if !c.setup.Check {
		return p, nil
	}
	type block struct {
		begin, end uintptr
		s          collectives.Space
	}
	var all []block
	for s, blocks := range p.spaces[:collectives.Tmp] {
		for _, b := range blocks {
			if len(b) > 0 {
				all = append(all, block{address(b), address(b) + uintptr(len(b)), collectives.Space(s)})
			}
		}
	}
	slices.SortFunc(all, func(a, b block) int { return cmp.Compare(a.begin, b.begin) })
	var ends [collectives.Tmp]uintptr // of what begins before
	for _, b := range all {
		if b.begin < ends[collectives.Out] || b.s == collectives.Out && b.begin < ends[collectives.In] {
			return nil, c.sharing(op, p)
		}
		ends[b.s] = max(ends[b.s], b.end)
	}
	return p, nil
}

// sharing gives back the plan of a call whose buffers share memory.
func (c *Comm) sharing(op string, p *collPlan) error {
	c.colls.give(p)
	return c.collError(op, ErrBuffer, "what is received shares memory with what is sent, or received from another rank; "+
		"in place send is nil, or recv at the root of a scatter")
}
