// Recovery measures how soon ranks hear of a death, and the calls of docs/recovery.md.
//
//	gorun --enable-recovery -n N ./benchmarks/recovery OPERATION [-i N] [-x N] [--json]
//
// OPERATION is one of
//
//	kill     from kill -9 of a rank until a receive from it has ended with ErrPeerFailed at every other rank
//	revoke   from Revoke at rank 0 until a receive has ended with ErrRevoked at every other rank
//	agree    Agree, from when all ranks have called it until it has returned at all
//	shrink   Shrink likewise
//	replace  from kill -9 of a rank until Replace has returned at every other rank, and the new one has its world
//
// The program prints the median, the least and the greatest time of -i rounds (11), after -x rounds (3) that it does
// not count. kill needs a rank to kill for each round, and prints the number of ranks in a round: with -n 21 seven
// ranks and one that dies. The ranks that die later, or have died, take no part. replace needs gorun --respawn N, for a
// rank in each round. In kill, revoke and replace all ranks sleep in their receives before the clock is read.
//
// The clock is the host's (CLOCK_MONOTONIC): all ranks must be on one host.
//
// Owns: the rounds, the death.
// May call: mpi, benchmarks/harness, benchmarks/internal/bench.
// Never: reach into the runtime.
package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
)

var program = harness.Program{
	Name: "recovery", Title: "OSU MPI Recovery Test", Operand: "OPERATION", MinRanks: 2, Takes: "ix",
	About: "Measures how soon ranks hear of a death, and Revoke, Agree, Shrink and Replace: " +
		strings.Join(names(), ", ") + ". kill needs gorun --enable-recovery, and replace gorun --respawn N.",
	Counts:   "rounds measured",
	Defaults: harness.Options{Small: harness.Rounds{Iterations: 11, Warmup: 3}},
	Check: func(o harness.Options) error {
		_, err := choose(o.Operand)
		return err
	},
}

const (
	readyTag  = 1
	turnTag   = 2
	waitTag   = 3 // of what no rank sends
	reportTag = 4
	createTag = 5

	// asleep is how long the ranks need at most, after they have said that they are ready, until they sleep in a
	// receive.
	asleep = 10 * time.Millisecond
)

func main() { bench.Main(program, run) }

// operation is what is measured. Every rank calls round for each round, and returns its part.
type operation struct {
	name, title string
	kills       bool // a rank in each round
	renews      bool // the rank that dies has a place in the next round
	round       func(m *member, i int) (span, error)
}

var operations = []operation{
	{"kill", "Failure Notice", true, false, (*member).kill},
	{"revoke", "Revoke", false, false, (*member).revoke},
	{"agree", "Agree", false, false, (*member).agree},
	{"shrink", "Shrink", false, false, (*member).shrink},
	{"replace", "Replace", true, true, (*member).replace},
}

func names() (list []string) {
	for _, o := range operations {
		list = append(list, o.name)
	}
	return list
}

func choose(name string) (operation, error) {
	i := slices.IndexFunc(operations, func(o operation) bool { return o.name == name })
	switch {
	case i >= 0:
		return operations[i], nil
	case name == "":
		return operation{}, fmt.Errorf("which operation? There are %s", strings.Join(names(), ", "))
	}
	return operation{}, fmt.Errorf("there is no operation %q; there are %s", name, strings.Join(names(), ", "))
}

func run(j *bench.Job) error {
	o, err := choose(j.Options.Operand)
	if err != nil {
		return err
	}
	m, err := newMember(j, o)
	if m == nil || err != nil {
		return err
	}
	j.Program.Name, j.Program.Title = o.name, "OSU MPI "+o.title+" Test"
	table := j.Program.Table(j.Output, "", "Ranks", harness.Column{Head: "Median(us)"}, harness.Column{Head: "Min(us)"},
		harness.Column{Head: "Max(us)"}, harness.Column{Head: "Rounds", Width: 12})
	in := m.lives // a round
	if o.kills && !o.renews {
		in++
	}
	return table.Run([]int64{int64(in)}, func(int64) ([]any, error) {
		var took []int64
		rounds := j.Options.Small
		for i := m.first; i < rounds.Warmup+rounds.Iterations; i++ {
			s, err := m.part, error(nil)
			if s == (span{}) {
				s, err = o.round(m, i)
			}
			m.part = span{}
			if err != nil {
				return nil, fmt.Errorf("round %d: %w", i, err)
			}
			ns, err := m.collect(s)
			if err != nil {
				return nil, err
			}
			if i >= rounds.Warmup {
				took = append(took, ns)
			}
		}
		us := func(ns int64) float64 { return float64(ns) / 1e3 }
		s := harness.Summarize(took)
		return []any{us(s.P50), us(s.Min), us(s.Max), s.Count}, nil
	})
}

// member is one rank.
type member struct {
	world *mpi.Comm
	lives int // ranks that are in every round, the lowest of the world
	pids  []int
	now   func() int64 // the host's clock, in nanoseconds
	word  []byte
	first int  // the round in which this rank was started
	part  span // its part of that round, if another rank has died in it
}

// process is where a rank is.
type process struct {
	PID    int
	Host   string // and namespace of PID
	Rounds int    // that it has seen
}

// newMember returns nil where the job does not fit the operation; rank 0 says why.
func newMember(j *bench.Job, o operation) (*member, error) {
	m := &member{world: j.World, lives: j.Ranks, word: make([]byte, 1)}
	if rounds := j.Options.Small; o.kills && !o.renews {
		deaths := rounds.Warmup + rounds.Iterations
		if m.lives -= deaths; m.lives < 1 {
			return nil, j.Refuse(fmt.Errorf("a rank dies in each of %d rounds and one must be left, and this job has %d; "+
				"start it with gorun --enable-recovery -n %d or more", deaths, j.Ranks, deaths+1))
		}
	}
	var err error
	if m.now, err = hostClock(); err != nil {
		return nil, err
	}
	began := m.now()
	all, err := m.meet(0)
	if err != nil {
		return nil, err
	}
	for rank, p := range all {
		if p.Host != all[0].Host {
			return nil, j.Refuse(fmt.Errorf("rank %d is not on the host of rank 0, which has another clock; start all "+
				"ranks on one host", rank))
		}
		if p.Rounds > 0 { // the others have begun, and this rank has the place of one that has died
			m.first, m.part = p.Rounds-1, span{Ended: began}
		}
		if o.kills && rank > 0 && p.PID == all[0].PID {
			return nil, j.Refuse(fmt.Errorf("ranks 0 and %d are one process, which cannot be killed for one of them", rank))
		}
	}
	return m, nil
}

// meet has the ranks tell each other where they are. rounds is how many this one has seen.
func (m *member) meet(rounds int) ([]process, error) {
	own, err := thisProcess()
	if err != nil {
		return nil, err
	}
	own.Rounds = rounds
	all, err := mpi.AllgatherObjects(m.world, own)
	m.pids = nil
	for _, p := range all {
		m.pids = append(m.pids, p.PID)
	}
	return all, err
}

func thisProcess() (process, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return process{}, err
	}
	pids, err := os.Readlink("/proc/self/ns/pid")
	return process{PID: os.Getpid(), Host: string(boot) + pids}, err
}

// hostClock returns what reads the clock that the processes of a host share.
func hostClock() (func() int64, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	start := time.Now()
	return func() int64 { return t.Nano() + int64(time.Since(start)) }, err
}

// span is a rank's part of a round: when it began, or 0 if that does not count, and when it heard.
type span struct{ Began, Ended int64 }

// collect brings the parts of the ranks that live to rank 0, which gets the time from when the last one began until the
// last one ended.
func (m *member) collect(own span) (ns int64, err error) {
	switch rank := m.world.Rank(); {
	case rank >= m.lives:
		return 0, nil
	case rank != 0:
		return 0, mpi.SendValue(m.world, own, 0, reportTag)
	}
	for other := 1; other < m.lives; other++ {
		s, _, err := mpi.RecvValue[span](m.world, other, reportTag)
		if err != nil {
			return 0, err
		}
		own.Began, own.Ended = max(own.Began, s.Began), max(own.Ended, s.Ended)
	}
	return own.Ended - own.Began, nil
}

// ready returns at rank 0 when all ranks of c have called it, and are asleep in what they do next.
func (m *member) ready(c *mpi.Comm) error {
	if c.Rank() != 0 {
		return mpi.Send(c, m.word, 0, readyTag)
	}
	for other := 1; other < c.Size(); other++ {
		if _, err := mpi.Recv(c, m.word, other, readyTag); err != nil {
			return err
		}
	}
	time.Sleep(asleep)
	return nil
}

// hears waits for a message that does not come, until that ends with an error of the class.
func (m *member) hears(c *mpi.Comm, from int, class error) (at int64, err error) {
	_, err = mpi.Recv(c, m.word, from, waitTag)
	at = m.now()
	if !errors.Is(err, class) {
		return at, fmt.Errorf("a receive from rank %d of %s has ended with %v, not with %v", from, c.Name(), err, class)
	}
	return at, nil
}

// kill is a round in which rank 0 kills the first of the other ranks that lives.
func (m *member) kill(i int) (s span, err error) {
	victim, rank := m.lives+i, m.world.Rank()
	switch {
	case rank == 0:
		err = mpi.Send(m.world, m.word, victim, turnTag)
	case rank == victim:
		_, err = mpi.Recv(m.world, m.word, 0, turnTag)
	case rank > victim:
		return s, nil
	}
	if err != nil {
		return s, err
	}
	members := make([]int, m.lives, m.lives+1)
	for r := range members {
		members[r] = r
	}
	g, err := m.world.Group().Incl(append(members, victim)...)
	if err != nil {
		return s, err
	}
	c, err := m.world.CreateGroup(g, createTag)
	if err != nil {
		return s, err
	}
	if err := m.ready(c); err != nil {
		return s, err
	}
	if rank == victim {
		_, err := m.hears(c, 0, mpi.ErrPeerFailed)
		return s, errors.Join(errors.New("rank 0 has not killed this rank"), err)
	}
	if rank == 0 {
		s.Began = m.now()
		if err := unix.Kill(m.pids[victim], unix.SIGKILL); err != nil {
			return s, err
		}
	}
	if s.Ended, err = m.hears(c, m.lives, mpi.ErrPeerFailed); err != nil {
		return s, err
	}
	return s, c.Free()
}

// revoke is a round in which rank 0 revokes a communicator.
func (m *member) revoke(int) (s span, err error) {
	c, err := m.world.Dup()
	if err != nil {
		return s, err
	}
	if err := m.ready(c); err != nil {
		return s, err
	}
	if m.world.Rank() == 0 {
		s.Began = m.now()
		err = c.Revoke()
	} else {
		s.Ended, err = m.hears(c, 0, mpi.ErrRevoked)
	}
	if err != nil {
		return s, err
	}
	return s, c.Free()
}

// agree is a round of one agreement.
func (m *member) agree(int) (s span, err error) {
	return m.timed(func() error {
		_, err := m.world.Agree(1)
		return err
	})
}

// shrink is a round that makes a communicator of all ranks.
func (m *member) shrink(int) (s span, err error) {
	var c *mpi.Comm
	if s, err = m.timed(func() (err error) { c, err = m.world.Shrink(); return err }); err != nil {
		return s, err
	}
	return s, c.Free()
}

// replace is a round in which rank 0 kills another one, and the others have it replaced. The new rank has its part of
// the round in newMember.
func (m *member) replace(i int) (s span, err error) {
	c := m.world
	victim := 1 + i%(c.Size()-1)
	if err := m.ready(c); err != nil {
		return s, err
	}
	if c.Rank() == victim {
		_, err := m.hears(c, 0, mpi.ErrPeerFailed)
		return s, errors.Join(errors.New("rank 0 has not killed this rank"), err)
	}
	if c.Rank() == 0 {
		s.Began = m.now()
		if err := unix.Kill(m.pids[victim], unix.SIGKILL); err != nil {
			return s, err
		}
	}
	if _, err := m.hears(c, victim, mpi.ErrPeerFailed); err != nil {
		return s, err
	}
	if m.world, err = c.Replace(); err != nil {
		return s, err
	}
	s.Ended = m.now()
	_, err = m.meet(i + 1)
	return s, err
}

// timed times a call that all ranks make at once.
func (m *member) timed(call func() error) (s span, err error) {
	if err := mpi.Barrier(m.world); err != nil {
		return s, err
	}
	s.Began = m.now()
	err = call()
	s.Ended = m.now()
	return s, err
}
