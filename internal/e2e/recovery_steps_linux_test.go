package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/pmi"
	"github.com/gorun-mpi/mpi/internal/testkit/deaths"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// A job goes through turns. In each, all ranks call Replace after some have died, or Spawn, and a process dies at a
// step of the call: a rank that calls it, or one that it starts. The others end the call, call Replace until they are
// whole, and begin the next turn. The test watches them (testkit/deaths): it says when a turn begins and compares what
// the call has returned.

func init() {
	roles["steps"] = func() error {
		err := stepThroughCall()
		if err != nil && !errors.Is(err, errNotMet) {
			fmt.Fprintln(os.Stderr, "wrong:", err)
			mpi.Abort(1)
		}
		return err
	}
}

// errNotMet is of a process that was started in vain.
var errNotMet = errors.New("this process was started in vain")

const (
	stepRanks = 4
	stepRoot  = 1 // of Spawn
)

// stepped is a rank of such a job.
type stepped struct {
	watched *deaths.Member
	call    string // "Replace" or "Spawn"
	falls   []int  // the places that die before each Replace
	tries   int    // of Replace after the call
	c       *mpi.Comm
	place   int
}

// stepThroughCall: os.Args has the call, the places that die before it, and how often Replace may fail behind it.
func stepThroughCall() error {
	m, err := deaths.Join(true)
	if err != nil {
		return err
	}
	s := &stepped{watched: m, call: os.Args[1], tries: mustAtoi(os.Args[3])}
	if s.falls, err = numbers(os.Args[2]); err != nil {
		return err
	}
	started := "first"
	if isNew() {
		started = "new"
	}
	if _, err := m.Ask("here", started, os.Getenv(pmi.EnvRank)); err != nil {
		return err
	}
	if s.c, err = mpi.Init(deaths.ShowPackets()); err != nil {
		if isNew() && s.call == "Spawn" { // Main ends so too
			fmt.Fprintln(os.Stderr, err)
			return nil
		}
		if isNew() {
			return fmt.Errorf("%w: %w", errNotMet, err)
		}
		return err
	}
	if isNew() {
		if _, err := m.Ask("spare"); err != nil {
			return err
		}
	}
	if mpi.Parent() != nil {
		err = leaveInter(mpi.Parent())
	} else {
		s.place = s.c.Rank()
		err = s.turns()
	}
	if err != nil {
		return err
	}
	return mpi.Finalize()
}

// leaveInter has both sides of a Spawn meet, of which a rank may have died, and part.
func leaveInter(inter *mpi.Comm) error {
	if err := mpi.Barrier(inter); err != nil {
		if !hasFailed(err) {
			return err
		}
		if err := inter.Revoke(); err != nil {
			return err
		}
	}
	return inter.Free()
}

func hasFailed(err error) bool {
	return errors.Is(err, mpi.ErrPeerFailed) || errors.Is(err, mpi.ErrRevoked)
}

func (s *stepped) turns() error {
	for {
		well, err := s.together()
		if err != nil {
			return err
		}
		if well {
			if reply, err := s.watched.Ask("turn", s.place); err != nil || reply == "end" {
				return err
			}
			switch s.call {
			case "Spawn":
				err = s.spawn()
			default:
				if err = fall(s.c, s.falls); err == nil {
					well, err = s.replace()
				}
			}
			if err != nil {
				return err
			}
			if well {
				continue
			}
		}
		for tries := s.tries; ; tries-- {
			d, err := s.c.Replace()
			if err == nil {
				s.c = d
				break
			}
			if tries == 0 || accepted(err) != nil {
				return fmt.Errorf("the Replace behind the call: %w", err)
			}
		}
	}
}

// together reports whether all ranks live.
func (s *stepped) together() (bool, error) {
	flags := uint32(1)
	if err := whole(s.c, stepRanks, s.place); err != nil {
		if !hasFailed(err) {
			return false, err
		}
		if err := s.c.Revoke(); err != nil {
			return false, err
		}
		flags = 0
	}
	agreed, err := s.c.Agree(flags)
	if err != nil && !errors.Is(err, mpi.ErrPeerFailed) {
		return false, err
	}
	return err == nil && agreed == 1, nil
}

// replace reports whether Replace has made a communicator.
func (s *stepped) replace() (bool, error) {
	if _, err := s.watched.Ask("arm", s.place); err != nil {
		return false, err
	}
	d, err := s.c.Replace()
	if err := s.result(d, err); err != nil {
		return false, err
	}
	if err != nil {
		return false, accepted(err)
	}
	s.c = d
	return true, nil
}

func (s *stepped) spawn() error {
	if _, err := s.watched.Ask("arm", s.place); err != nil {
		return err
	}
	inter, err := mpi.Spawn(s.c, 2, "", os.Args[1:], mpi.SpawnRoot(stepRoot))
	if err := s.result(inter, err); err != nil {
		return err
	}
	if errors.Is(err, mpi.ErrRevoked) { // by a rank that has ended the call before
		return nil
	}
	if err != nil {
		return accepted(err)
	}
	return leaveInter(inter)
}

// accepted is nil for an error that a call may have in which a process dies.
func accepted(err error) error {
	if errors.Is(err, mpi.ErrPeerFailed) || errors.Is(err, mpi.ErrSpawn) {
		return nil
	}
	return err
}

// result says what a call has returned.
func (s *stepped) result(made *mpi.Comm, err error) error {
	what := "communicator"
	switch {
	case (made == nil) != (err != nil):
		return fmt.Errorf("%s returns %v and %w", s.call, made, err)
	case errors.Is(err, mpi.ErrPeerFailed), s.call == "Spawn" && errors.Is(err, mpi.ErrRevoked):
		what = "ErrPeerFailed"
	case errors.Is(err, mpi.ErrSpawn):
		what = "ErrSpawn"
	case err != nil:
		what = err.Error()
	}
	_, failed := s.watched.Ask("spare", what)
	return failed
}

// walk is such a job, as the test sees it.
type walk struct {
	t       *testing.T
	w       *deaths.Watcher
	rnd     *rand.Rand
	call    string
	started bool // the victim is one that the call starts
	place   int  // of the victim, among the ranks or among the processes that are started
	kill    killing
	falls   []int
	every   int // steps from one turn to the next; 0: they are random ones
	most    int // turns

	places  map[*deaths.Process]int // in the communicator
	results map[*deaths.Process]string
	asked   int // how often ranks have asked for a turn
	turn    int
	calm    int             // steps of a call in which none dies
	step    int             // at which one dies in this turn; 0: none does
	victim  *deaths.Process // in this turn, once it is armed
	spared  bool            // it has outlived the call
	over    bool
	began   chan struct{} // a turn has begun
}

// killing is what dies when a process makes a step.
type killing string

const (
	killsOne   killing = "it alone"
	killsTwo   killing = "and another rank"
	killsHost  killing = "and all ranks of its host"
	killsAgent killing = "its agent"
)

func (k *walk) String() string {
	what := "rank"
	if k.started {
		what = "new process"
	}
	return fmt.Sprintf("%s, turn %d, step %d of %d of %s %d, when these die: %s", k.call, k.turn, k.step, k.calm, what,
		k.place, k.kill)
}

// answer is what a process is told.
func (k *walk) answer(p *deaths.Process, words []string) string {
	switch words[0] {
	case "here": // before Init
		if words[1] == "new" && k.started && words[2] == fmt.Sprint(k.place) {
			k.arm(p)
		}
	case "turn":
		k.places[p] = mustAtoi(words[1])
		turn := k.asked/stepRanks + 1
		if k.asked++; k.asked%stepRanks == 1 {
			k.next()
		}
		k.w.Await(patience, func() bool { return k.turn >= turn })
		if k.over {
			return "end"
		}
		return "go"
	case "arm":
		if !k.started && words[1] == fmt.Sprint(k.place) {
			k.arm(p)
		}
	case "spare":
		steps := p.Spare()
		if len(words) > 1 {
			k.results[p] = strings.Join(words[1:], " ")
		}
		if p == k.victim {
			k.spared = true
			if k.turn == 1 {
				k.calm = steps
			}
		}
	}
	return "ok"
}

// next begins a turn, when nothing is left of the one before.
func (k *walk) next() {
	if !k.w.Await(patience/2, func() bool { return len(k.w.Living()) == stepRanks }) {
		var left []string
		for _, p := range k.w.Living() {
			left = append(left, fmt.Sprint(p.PID))
		}
		k.t.Errorf("%v: of %d processes these live: %v", k, stepRanks, left)
	}
	k.judge()
	k.turn++
	k.victim, k.spared, k.results = nil, false, map[*deaths.Process]string{}
	switch {
	case k.turn == 1:
	case k.every > 0:
		k.step += k.every
	default:
		k.step = 1 + k.rnd.IntN(max(1, k.calm))
	}
	if k.turn > k.most || k.t.Failed() {
		k.over = true
	}
	k.began <- struct{}{}
}

// judge looks at a turn that is over.
func (k *walk) judge() {
	if k.turn == 0 {
		return
	}
	all := map[string]int{}
	for _, p := range k.w.Living() {
		if result := k.results[p]; result != "" {
			all[result]++
		}
	}
	alike := len(all) == 1
	for result := range all {
		alike = alike && slices.Contains([]string{"communicator", "ErrPeerFailed", "ErrSpawn"}, result)
	}
	if !alike || k.step == 0 && all["communicator"] == 0 {
		k.t.Errorf("%v: results: %v", k, all)
	}
	if k.victim == nil {
		k.t.Errorf("%v: there was no such process", k)
	}
	if k.every > 0 && k.step > k.calm && k.spared {
		k.over = true
	}
}

func (k *walk) arm(p *deaths.Process) {
	if k.victim != nil { // only the first call of a turn is stepped through
		return
	}
	k.victim = p
	p.Arm(k.step, func() {
		switch k.kill {
		case killsOne:
			p.Kill()
		case killsTwo:
			p.Kill()
			for _, other := range k.w.Living() {
				if place, known := k.places[other]; known && place == k.second() {
					other.Kill()
				}
			}
		case killsHost:
			for _, other := range k.w.Living() {
				if parentOf(other) == parentOf(p) {
					other.Kill()
				}
			}
		case killsAgent:
			syscall.Kill(parentOf(p), syscall.SIGKILL)
		}
	})
}

// second is the place of the rank that dies with the victim.
func (k *walk) second() int {
	if k.started {
		return 0
	}
	return (k.place + stepRanks/2) % stepRanks
}

func parentOf(p *deaths.Process) int {
	info, _ := proc.Lookup(p.PID)
	return info.Parent
}

// run runs the job to its end, which no turn delays for too long.
func (k *walk) run(env, flags []string) {
	k.t.Helper()
	k.places, k.began = map[*deaths.Process]int{}, make(chan struct{}, 1<<16)
	k.w = deaths.Watch(k.t, k.answer)
	var fallen []string
	for _, f := range k.falls {
		fallen = append(fallen, fmt.Sprint(f))
	}
	tries := 0
	if k.kill == killsHost || k.kill == killsAgent { // the ranks of a host do not die at once
		tries = 3
	}
	j := start(k.t, spec{n: stepRanks, role: "steps", endless: true,
		args:  []string{k.call, strings.Join(fallen, ","), fmt.Sprint(tries)},
		env:   append([]string{k.w.Env(), "GORUN_TIMEOUT=60s"}, env...),
		flags: append([]string{"--respawn", "1000000"}, flags...)})
	ended := make(chan struct{})
	go func() {
		j.end()
		close(ended)
	}()
	for over := false; !over; {
		select {
		case <-k.began:
		case <-ended:
			over = true
		case <-time.After(2 * patience): // some calls in it end by GORUN_TIMEOUT
			k.t.Errorf("a turn does not end; goroutines of its ranks below")
			j.dump()
		}
	}
	code := j.cmd.ProcessState.ExitCode()
	if code != 0 && code != 137 {
		k.t.Errorf("exit code %d", code)
	}
	j.wait(code)
	k.w.Do(func() {
		if !k.over || k.t.Failed() {
			k.t.Errorf("the job has ended; %v", k)
		}
		k.t.Logf("%d turns, %d steps", k.turn, k.calm)
	})
}

// A process that dies at any step of Replace or of Spawn, one that calls it or one that it starts, leaves the others
// with the same result of the call. Replace makes them whole then, and no process is left that was started in vain.
// Steps are all that a process sends and receives: lines of PMI-1 to gorun and to the root, packets, the words by which
// connections are made. With GORUN_TEST_SOAK each step is the last of some process, else some steps are.
func TestDeathAtStepsOfReplaceAndSpawn(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: minutes; TestDeathInReplace and TestParentThatDiesInSpawn kill at chosen moments")
	}
	t.Parallel()
	_, seed := soak(t)
	rnd := rand.New(rand.NewPCG(seed, 6))
	type victim struct {
		started bool
		place   int
	}
	first, second := victim{started: true}, victim{started: true, place: 1}
	for call, victims := range map[string][]victim{
		// The root of an agreement, which has the others started too, and a leaf.
		"Replace": {{place: 0}, {place: 3}, first, second},
		"Spawn":   {{place: 0}, {place: stepRoot}, {place: 3}, first, second},
	} {
		for _, where := range []string{"shm", "tcp", "hosts"} {
			env, flags := []string{"GORUN_TRANSPORTS=" + where}, []string(nil)
			if where == "hosts" {
				env, flags = nil, []string{"--launcher", "exec", "-H", "a:2,b:2"}
			}
			for _, v := range victims {
				for _, kill := range []killing{killsOne, killsTwo} {
					k := &walk{call: call, started: v.started, place: v.place, kill: kill, falls: []int{1, 2}, most: 16,
						rnd: rand.New(rand.NewPCG(seed, rnd.Uint64()))}
					if kill == killsTwo && !v.started { // one who dies in the call has not died before, and one lives on
						k.falls = []int{1 + min(v.place, 1)}
					}
					switch {
					case os.Getenv(soakVar) != "":
						k.every, k.most = 1, 1<<20
					case testing.Short() && rnd.IntN(6) > 0:
						continue
					case testing.Short():
						k.most = 4
					}
					t.Run(fmt.Sprintf("%s %s %v %d %s", call, where, v.started, v.place, kill), func(t *testing.T) {
						t.Parallel()
						k.t = t
						k.run(env, flags)
					})
				}
			}
		}
	}
}

// So does a host all of whose ranks die at a step of one of them, and an agent. A host is a PID namespace here, which
// ends with its agent.
func TestDeathOfAHostAtStepsOfReplace(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: minutes; TestDeathInReplace and TestParentThatDiesInSpawn kill at chosen moments")
	}
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("PID namespaces need root")
	}
	shell := filepath.Join(t.TempDir(), "shell")
	script := "#!/bin/sh\nshift\nexec unshare --pid --fork --kill-child --mount-proc \"$@\"\n"
	if err := os.WriteFile(shell, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	_, seed := soak(t)
	rnd := rand.New(rand.NewPCG(seed, 7))
	for _, kill := range []killing{killsHost, killsAgent} {
		for _, started := range []bool{false, true} {
			k := &walk{call: "Replace", started: started, place: 3, kill: kill, falls: []int{1},
				rnd: rand.New(rand.NewPCG(seed, rnd.Uint64())), most: 12}
			if started {
				k.place, k.falls = 0, []int{1, 2}
			}
			if testing.Short() {
				k.most = 3
			}
			times := 1
			if kill == killsAgent { // which is gone for good
				times, k.most = k.most, 2
			}
			t.Run(fmt.Sprint(kill, " ", started), func(t *testing.T) {
				t.Parallel()
				for i := 0; i < times && !t.Failed(); i++ {
					again := *k
					again.t = t
					again.run(nil, []string{"--launcher", "exec", "--launch-agent", shell, "-H", "a:2,b:2"})
				}
			})
		}
	}
}
