package tune

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/coll"
	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/pml"
)

// Job is what the ranks of a job measure: collective calls, or messages of two ranks (Eager).
type Job struct {
	Eager bool
	Time  time.Duration // for all
	Step  int64         // the factor from one size of collective calls to the next
}

// Report is a line of JSON that rank 0 prints: the first has Transport, Via, CPUs and Cells; the others have a cell, or
// the points.
type Report struct {
	Transport string  `json:"transport,omitempty"`
	Via       string  `json:"over,omitempty"`
	CPUs      string  `json:"cpus,omitempty"`
	Cells     int     `json:"cells,omitempty"` // of the first pass
	Pass      int     `json:"pass,omitempty"`  // of the cell: 1 or 2
	Left      int     `json:"left,omitempty"`  // cells of the pass that come after it
	Cell      *Cell   `json:"cell,omitempty"`
	Points    []Point `json:"points,omitempty"`
}

// Run measures as one rank of its job.
func Run(j Job, out io.Writer) error {
	m, err := join.Job(join.Options{NewRequest: func() *pml.Request { return new(pml.Request) }})
	if err != nil {
		return err
	}
	defer m.Close(errors.New("all is measured"))
	if m.Size < 2 {
		return errors.New("gorun tune starts its ranks itself: this process was started in another way")
	}
	s := &sweep{rank: m.Rank, size: m.Size, engine: m.Engine, out: io.Discard}
	if m.Rank == 0 {
		s.out = out
	}
	cpus, err := s.meet(m)
	if err != nil {
		return err
	}
	cells := s.cells(j)
	head := Report{Transport: m.Engine.Transport(), Via: s.control.Via().String(), CPUs: cpus.String(),
		Cells: len(cells)}
	s.groups, err = newGroups(m, head.Via, head.CPUs)
	if err == nil {
		err = s.report(head)
	}
	if err != nil {
		return err
	}
	if j.Eager {
		err = s.messages(j.Time)
	} else {
		err = s.calls(cells, j.Time)
	}
	if err != nil {
		return err
	}
	m.Engine.Return()
	return m.Leave()
}

// sweep is the measuring of one rank.
type sweep struct {
	rank, size int
	groups     []*coll.Group
	control    *coll.Group // for barriers, and for what rank 0 decides
	engine     *pml.Engine
	roomy      bool // the ranks have boards, and do not outnumber the CPUs
	send, recv []byte
	out        io.Writer // of rank 0
}

// meet makes the control group, and says what its ranks have agreed on at its board.
func (s *sweep) meet(m *join.Member) (cpus collectives.CPUs, err error) {
	if s.control, err = newControl(m); err != nil {
		return cpus, err
	}
	for range warmUps {
		if err := s.barrier(); err != nil {
			return cpus, err
		}
	}
	switch {
	case s.control.Roomy():
		cpus, s.roomy = collectives.Roomy, true
	case s.control.Board.On != nil:
		cpus = collectives.Crowded
	}
	return cpus, nil
}

func (s *sweep) report(r Report) error { return json.NewEncoder(s.out).Encode(r) }

func (s *sweep) barrier() error {
	c := newCall(collectives.Barrier, 0, s.rank, s.size, nil, nil)
	return c.perform(s.control)
}

// decide makes values of rank 0 those of all ranks.
func (s *sweep) decide(values []float64) error {
	b := bytesOf(values)
	c := newCall(collectives.Bcast, int64(len(b)), s.rank, s.size, nil, b)
	return c.perform(s.control)
}

// means makes values of rank 0 the means over the ranks.
func (s *sweep) means(values []float64) error {
	sums := make([]float64, len(values))
	b := bytesOf(values)
	c := newCall(collectives.Reduce, int64(len(b)), s.rank, s.size, b, bytesOf(sums))
	if err := c.perform(s.control); err != nil {
		return err
	}
	for i := range values {
		values[i] = max(sums[i]/float64(s.size), 1e-9)
	}
	return nil
}

// firstPart is the part of the time that the first pass has.
const firstPart = 0.7

// cellKey is an operation and a size.
type cellKey struct {
	o collectives.Operation
	n int64
}

// cells are what a job measures in its first pass.
func (s *sweep) cells(j Job) (all []cellKey) {
	if j.Eager {
		return nil
	}
	for _, o := range operations {
		for _, n := range sizes(o, s.size, j.Step) {
			all = append(all, cellKey{o, n})
		}
	}
	return all
}

// calls measures all cells, and once more the algorithms that have won in theirs.
func (s *sweep) calls(cells []cellKey, all time.Duration) error {
	end := time.Now().Add(all)
	firstEnd := end.Add(-time.Duration((1 - firstPart) * float64(all)))
	longest := int64(8)
	for _, c := range cells {
		longest = max(longest, buffer(c.o, s.size, c.n))
	}
	s.send, s.recv = make([]byte, longest), make([]byte, longest)
	for i := 0; i < len(s.send); i += 512 { // so that no page of them is touched first while the clock runs
		s.send[i], s.recv[i] = 1, 1
	}
	winners := make([]float64, len(cells)) // the place of the algorithm, or -1; rank 0 fills it in
	for i, c := range cells {
		winners[i] = -1
		places, chosen := candidates(s.groups, &s.call(c).key, s.roomy)
		cell, err := s.measure(c, chosen, places, share(firstEnd, len(cells)-i))
		if err != nil {
			return err
		}
		if cell == nil {
			continue
		}
		if err := s.report(Report{Pass: 1, Left: len(cells) - i - 1, Cell: cell}); err != nil {
			return err
		}
		if g, ok := cell.best(); ok {
			a, err := collectives.Find(c.o, g.To)
			if err != nil {
				return err
			}
			winners[i] = float64(slices.Index(collectives.Algorithms(c.o), a))
		}
	}
	if err := s.decide(winners); err != nil {
		return err
	}
	left := 0
	for _, w := range winners {
		if w >= 0 {
			left++
		}
	}
	for i, c := range cells {
		if winners[i] < 0 {
			continue
		}
		_, chosen := candidates(s.groups, &s.call(c).key, s.roomy)
		cell, err := s.measure(c, chosen, []int{int(winners[i])}, share(end, left))
		left--
		if err != nil {
			return err
		}
		if cell != nil {
			if err := s.report(Report{Pass: 2, Left: left, Cell: cell}); err != nil {
				return err
			}
		}
	}
	return s.barrier()
}

// share is an equal part of the time that is left; at most 0: there is none.
func share(end time.Time, parts int) time.Duration {
	return time.Until(end) / time.Duration(max(1, parts))
}

func (s *sweep) call(k cellKey) *call {
	c := newCall(k.o, k.n, s.rank, s.size, s.send, s.recv)
	return &c
}

const (
	warmUps     = coll.BoardSetup + 1 // calls by which the board is made and memory is touched
	leastRounds = 5
	mostRounds  = 25
	mostCalls   = 500 // of one algorithm in one round
	tooSlow     = 6   // times the table's time: such an algorithm is not measured further
)

// measure measures the table's choice twice and the algorithms at places, by turns. nil: another rank prints, or there
// is no time for the cell. budget is rank 0's.
func (s *sweep) measure(k cellKey, chosen string, places []int, budget time.Duration) (*Cell, error) {
	c := s.call(k)
	began := time.Now()
	runs := []*coll.Group{s.groups[0], s.groups[1]}
	cell := &Cell{Operation: k.o.String(), Bytes: k.n, Chosen: chosen,
		Runs: []Times{{Algorithm: chosen}, {Algorithm: chosen}}}
	for _, p := range places {
		runs = append(runs, s.groups[tables+p])
		cell.Runs = append(cell.Runs, Times{Algorithm: collectives.Algorithms(k.o)[p].Name})
	}
	// What rank 0 decides: the rounds, and the calls of each run in a round. No rounds: there is no time.
	decided := make([]float64, 1+len(runs))
	if s.rank == 0 && budget > 0 {
		decided[0] = 1
	}
	if err := s.decide(decided[:1]); err != nil || decided[0] == 0 {
		return nil, err
	}
	runtime.GC() // rather than while the clock runs
	took := make([]float64, len(runs))
	for i, g := range runs {
		for range warmUps {
			t, err := s.time(c, g, 1)
			if err != nil {
				return nil, err
			}
			took[i] = t
		}
	}
	if s.rank == 0 {
		divide(decided, took, (budget - time.Since(began)).Seconds())
	}
	if err := s.decide(decided); err != nil {
		return nil, err
	}
	rounds := int(decided[0])
	times := make([]float64, len(runs)*rounds)
	for r := range rounds {
		for turn := range runs {
			i := (turn + r) % len(runs)
			took, err := s.time(c, runs[i], int(decided[1+i]))
			if err != nil {
				return nil, err
			}
			times[i*rounds+r] = took
		}
	}
	if err := s.means(times); err != nil || s.rank != 0 {
		return nil, err
	}
	for i := range cell.Runs {
		cell.Runs[i].Rounds = times[i*rounds : (i+1)*rounds]
	}
	kept := cell.Runs[:0]
	for i, run := range cell.Runs {
		if decided[1+i] > 0 {
			kept = append(kept, run)
		}
	}
	cell.Runs = kept
	return cell, nil
}

// time returns how long a call takes, in seconds, in n calls with a barrier after each: so it has the time until the
// last rank has ended the call.
func (s *sweep) time(c *call, g *coll.Group, n int) (float64, error) {
	if n == 0 {
		return 0, nil
	}
	if err := s.barrier(); err != nil {
		return 0, err
	}
	start := time.Now()
	for range n {
		if err := c.perform(g); err != nil {
			return 0, err
		}
		if c.key.Operation == collectives.Barrier {
			continue
		}
		if err := s.barrier(); err != nil {
			return 0, err
		}
	}
	return time.Since(start).Seconds() / float64(n), nil
}

// divide divides a time, in seconds, among rounds and the calls of each run. took is how long a call of each run took.
func divide(decided, took []float64, budget float64) {
	table := min(took[0], took[1])
	round, runs := 0.0, 0
	for i, t := range took {
		if i < tables || t <= tooSlow*table {
			round += t
			runs++
			decided[1+i] = 1
		}
	}
	decided[0] = float64(min(max(int(budget/round), leastRounds), mostRounds))
	each := budget / decided[0] / float64(runs)
	for i, t := range took {
		if decided[1+i] > 0 {
			decided[1+i] = float64(min(max(int(each/max(t, 1e-9)), 1), mostCalls))
		}
	}
}

const (
	leastMessage = 1 << 10
	mostMessage  = 64 << 10
	window       = 32
)

// messages measures, at two ranks, the time of a message there and back and of one of a window.
func (s *sweep) messages(all time.Duration) error {
	if s.size != 2 {
		return fmt.Errorf("the eager limit is measured with 2 ranks, not %d", s.size)
	}
	s.send, s.recv = make([]byte, mostMessage), make([]byte, window*mostMessage)
	end := time.Now().Add(all)
	left := 0
	for n := leastMessage; n <= mostMessage; n *= 2 {
		left += 2
	}
	var points []Point
	for n := leastMessage; n <= mostMessage; n *= 2 {
		for _, kind := range []struct {
			what string
			per  int // messages of a turn, for the time of one
			turn func(n int) error
		}{{"latency", 2, s.pingPong}, {"window", window, s.window}} {
			took, err := s.repeat(share(end, left), func() error { return kind.turn(n) })
			if err != nil {
				return err
			}
			points = append(points, Point{kind.what, int64(n), max(took/float64(kind.per), 1e-9)})
			left--
		}
	}
	return s.report(Report{Points: points})
}

// repeat returns the time of a turn, in seconds: the median of some rounds of turns.
func (s *sweep) repeat(budget time.Duration, turn func() error) (float64, error) {
	const warm, rounds, most = 10, 5, 20000
	start := time.Now()
	for range warm {
		if err := turn(); err != nil {
			return 0, err
		}
	}
	one := time.Since(start).Seconds() / warm
	turns := []float64{float64(min(max(int(budget.Seconds()/rounds/max(one, 1e-9)), warm), most))}
	if err := s.decide(turns); err != nil {
		return 0, err
	}
	var took []float64
	for range rounds {
		if err := s.barrier(); err != nil {
			return 0, err
		}
		start := time.Now()
		for range int(turns[0]) {
			if err := turn(); err != nil {
				return 0, err
			}
		}
		took = append(took, time.Since(start).Seconds()/turns[0])
	}
	return medianOf(took), nil
}

// The context and the tag of messages of ranks 0 and 1, which send no others in it.
const (
	messageContext = 0
	messageTag     = 1
)

func (s *sweep) pingPong(n int) error {
	peer := 1 - s.rank
	out := func() error { return s.engine.Send(nil, messageContext, peer, messageTag, s.send[:n], pml.Standard) }
	in := func() error {
		_, err := s.engine.Recv(nil, messageContext, peer, messageTag, s.recv[:n])
		return err
	}
	first, then := out, in
	if s.rank == 1 {
		first, then = in, out
	}
	if err := first(); err != nil {
		return err
	}
	return then()
}

// window sends a number of messages at once from rank 0, and waits for an answer without bytes.
func (s *sweep) window(n int) error {
	var requests [window]*pml.Request
	for i := range requests {
		if s.rank == 0 {
			requests[i] = s.engine.Isend(nil, messageContext, 1, messageTag, s.send[:n], pml.Standard)
		} else {
			requests[i] = s.engine.Irecv(nil, messageContext, 0, messageTag, s.recv[i*n:(i+1)*n])
		}
	}
	for _, r := range requests {
		if _, err := r.Wait(); err != nil {
			return err
		}
	}
	if s.rank == 1 {
		return s.engine.Send(nil, messageContext, 0, messageTag, nil, pml.Standard)
	}
	_, err := s.engine.Recv(nil, messageContext, 1, messageTag, nil)
	return err
}
