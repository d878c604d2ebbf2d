package mpi_test

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/checkpoint"
	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/internal/testkit/deaths"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/transport"
)

// The programs of TestRandomDeaths, whose ranks are processes here. They die by SIGKILL, at the same moments as there,
// or when the test kills them, which is at any time. The test has the ledger. In most programs dead ranks are replaced,
// also while others die, and all ranks go on from a checkpoint.

func init() { mpi.AddRole("mortal", playMortal) }

const mortalSeed = "GORUN_TEST_MORTAL" // the seed, and the transport

// playMortal is a rank of a program.
func playMortal() (err error) {
	m, err := deaths.Join(false)
	if err != nil {
		return err
	}
	seed, beneath, _ := strings.Cut(os.Getenv(mortalSeed), " ")
	number, err := strconv.ParseUint(seed, 10, 64)
	if err != nil {
		return err
	}
	p, isNew := randomMortals(number, beneath), os.Getenv("PMI_SPAWNED") == "1"
	l := &told{m: m, rank: -1}
	left := &atomic.Int64{}
	left.Store(math.MaxInt64)
	die := func() {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		proc.AwaitEnd()
	}
	w, err := mpi.Init(func(o *join.Options) {
		o.Environ = append(os.Environ(), p.env...)
		o.Wrap = func(_ int, d transport.Device) transport.Device {
			d = newMortal(d, left)
			d.(*mortal).dies = func() {
				l.dies(0)
				die()
			}
			return d
		}
	})
	if err != nil {
		return err // it was started in vain
	}
	l.rank = w.Rank()
	defer func() {
		if wrong := recover(); wrong != nil {
			err = fmt.Errorf("%v", wrong)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "wrong:", err)
			mpi.Abort(1)
		}
	}()
	if isNew {
		p.fates = map[int]fate{}
	}
	if p.replaces() { // where new ranks have others
		p.numbers = 0
	}
	r := &processRank{mortalRank: p.rankBy(l, w, die, left), told: l, cells: make([]int64, 500)}
	if p.replaces() {
		r.again = &again{replace: r.replace, save: r.save}
	}
	x, turn := r.groups[0], 0
	if !isNew { // no rank is killed before all have said their places
		r.link(x)
	}
	replaced, err := strconv.Atoi(l.ask("place", r.me))
	if err != nil {
		return err
	}
	if isNew {
		r.turn, turn, x.key = replaced, replaced+1, whole(replaced)
		r.link(x)
	}
	if r.again != nil {
		r.newStore()
		r.restore(x)
	}
	r.play(turn)
	r.end()
	return mpi.Finalize()
}

// replaces reports whether dead ranks are replaced.
func (p *mortals) replaces() bool { return p.seed%4 > 0 }

// told is the ledger as a process has it: the test keeps it, and knows which process asks.
type told struct {
	m    *deaths.Member
	rank int
}

func (t *told) ask(words ...any) string {
	for i, w := range words {
		words[i] = url.QueryEscape(fmt.Sprint(w))
	}
	reply, err := t.m.Ask(words...)
	if err != nil {
		panic(err)
	}
	return reply
}

func (t *told) does(_ int, what string)               { t.ask("does", what) }
func (t *told) dies(int)                              { t.ask("dies") }
func (t *told) dying(rank int) bool                   { return rank != t.rank && t.ask("dying", rank) == "true" }
func (t *told) enters(_ int, key string)              { t.ask("enters", key) }
func (t *told) entered(rank int, key string) bool     { return t.ask("entered", rank, key) == "true" }
func (t *told) gives(_ int, key string, flags uint32) { t.ask("gives", key, flags) }
func (t *told) says(_ int, key, what string)          { t.ask("says", key, what) }
func (t *told) revokes(key string)                    { t.ask("revokes", key) }
func (t *told) revoked(key string) bool               { return t.ask("revoked", key) == "true" }

// processRank is a rank in a process.
type processRank struct {
	*mortalRank
	told  *told
	store *checkpoint.Store
	cells []int64 // of which the store has checkpoints
	saved int64   // the last step that Save has told this rank of; 0: none
	then  int     // how many processes had died by then
}

// whole is the key of the communicator that Replace has made in a turn.
func whole(turn int) string { return fmt.Sprintf("whole since turn %d", turn) }

// died is how many processes have died so far.
func (r *processRank) died() int {
	n, err := strconv.Atoi(r.told.ask("died"))
	r.well(err)
	return n
}

// link makes a link to each other rank: one that is being made when its rank dies ends by its own timeout.
func (r *processRank) link(x *circle) {
	for other := range x.members {
		r.does(x, "a link to %d", other)
		_, err := mpi.Sendrecv(x.comm, []byte{1}, other, 1, make([]byte, 1), other, 1)
		if errors.Is(err, mpi.ErrTimeout) && r.anyDies(x.members) {
			err = mpi.ErrPeerFailed
		}
		if !r.judge(x, err, x.members...) {
			r.revoke(x)
			return
		}
	}
	if r.does(x, "the Barrier behind the links"); !r.judge(x, mpi.Barrier(x.comm), x.members...) {
		r.revoke(x)
	}
}

// replace calls Replace until it succeeds.
func (r *processRank) replace(x *circle) *circle {
	r.told.ask("replacing", r.turn)
	for tries := 0; ; tries++ {
		r.does(x, "Replace, time %d", tries)
		c, err := x.comm.Replace()
		key := fmt.Sprintf("turn %d, whether Replace is well at time %d", r.turn, tries)
		r.ledger.says(r.me, key, fmt.Sprint(err == nil))
		if err == nil {
			r.check(c.Size() == r.ranks && c.Rank() == r.me, "rank %d of %d has become rank %d of %d", r.me, r.ranks,
				c.Rank(), c.Size())
			x = &circle{comm: c, key: whole(r.turn), members: x.members}
			r.base = c.Group()
			break
		}
		r.check(errors.Is(err, mpi.ErrPeerFailed) || errors.Is(err, mpi.ErrSpawn), "%v", err)
		r.check(tries < r.died(), "it fails more often than processes have died: %v", err)
	}
	r.link(x)
	r.restore(x)
	return x
}

// cell is what a rank has at a step.
func (r *processRank) cell(i int, step int64) int64 {
	return int64(r.seed&0xffff)<<32 + step<<20 + int64(r.me)<<12 + int64(i)
}

func (r *processRank) newStore() {
	r.store, r.saved = checkpoint.New(), 0
	r.well(checkpoint.Add(r.store, r.cells))
}

// restore is a collective call of all ranks of x, some of which are new.
func (r *processRank) restore(x *circle) {
	if x.broken {
		return
	}
	r.does(x, "Restore")
	step, found, err := r.store.Restore(x.comm)
	if errors.Is(err, checkpoint.ErrLost) {
		r.check(r.died()-r.then > 1, "%v", err) // a rank and its partner
		r.newStore()
		r.restore(x)
		return
	}
	if !r.judge(x, err, x.members...) {
		r.revoke(x)
		return
	}
	r.ledger.says(r.me, "what Restore finds on "+x.key, fmt.Sprint(step, found))
	if r.died()-r.then < 2 {
		r.check(found == (step > 0) && step >= r.saved, "it finds %d (%v), and this rank has saved %d", step, found,
			r.saved)
	}
	if !found {
		return
	}
	for i, v := range r.cells {
		r.check(v == r.cell(i, step), "number %d is %#x, want %#x of step %d", i, v, r.cell(i, step), step)
	}
}

// save is a collective call of all ranks of x, which have just agreed that all is well.
func (r *processRank) save(x *circle) {
	step := int64(r.turn + 1)
	for i := range r.cells {
		r.cells[i] = r.cell(i, step)
	}
	r.does(x, "Save of step %d", step)
	died, err := r.died(), r.store.Save(step)
	if errors.Is(err, checkpoint.ErrIncomplete) && r.anyDies(x.members) {
		err = mpi.ErrPeerFailed // at another rank
	}
	if !r.judge(x, err, x.members...) {
		r.revoke(x)
		return
	}
	r.saved, r.then = step, died
}

// end ends the program, with all ranks that live. No other rank dies any more.
func (r *processRank) end() {
	r.left.Store(math.MaxInt64)
	r.told.ask("calm")
	r.turn = max(r.turn, turns)
	for tries := 0; ; tries++ {
		r.turn++
		x, flags := r.groups[0], uint32(1)
		if x.broken {
			flags = 0
		}
		if flags, ok := r.agree(x, flags); ok && flags&1 == 1 {
			break
		}
		r.check(tries <= r.died(), "%d processes have died, and this does not end", r.died())
		for len(r.groups) > 1 {
			r.free(1)
		}
		if r.again != nil {
			r.groups[0] = r.replace(x)
			continue
		}
		r.groups[0] = r.shrink(x, fmt.Sprintf("turn %d", r.turn))
		r.drop(x)
	}
	r.part()
}

// processes is a program as the test sees it.
type processes struct {
	*mortals
	w     *deaths.Watcher
	ranks map[*deaths.Process]int // that have said which rank they are
	now   map[int]*deaths.Process // which process a rank is
	dead  map[int]bool            // processes, by their numbers
	turn  int                     // of the last Replace
	made  map[int]bool            // turns of Replace
	kills int                     // that are still to come
	calm  bool
	began chan struct{} // closed when all ranks have come
}

func (s *processes) answer(p *deaths.Process, words []string) string {
	for i := range words {
		words[i], _ = url.QueryUnescape(words[i])
	}
	b, rank := s.book, s.ranks[p]
	number := func(i int) int {
		n, _ := strconv.Atoi(words[i])
		return n
	}
	switch words[0] {
	case "place":
		rank = number(1)
		s.ranks[p], s.now[rank] = rank, p
		b.revives(rank)
		if len(s.ranks) == s.mortals.ranks {
			close(s.began)
		}
		return fmt.Sprint(s.turn)
	case "replacing":
		s.turn = number(1)
		s.made[s.turn] = true
	case "calm":
		s.calm = true
	case "died":
		return fmt.Sprint(len(s.dead))
	case "does":
		b.does(rank, words[1])
	case "dies":
		s.dies(p)
	case "dying":
		return fmt.Sprint(b.dying(number(1)))
	case "enters":
		b.enters(rank, words[1])
	case "entered":
		return fmt.Sprint(b.entered(number(1), words[2]))
	case "gives":
		flags, _ := strconv.ParseUint(words[2], 10, 32)
		b.gives(p.PID, words[1], uint32(flags))
	case "says":
		b.says(p.PID, words[1], words[2])
	case "revokes":
		b.revokes(words[1])
	case "revoked":
		return fmt.Sprint(b.revoked(words[1]))
	}
	return "ok"
}

// dies: a process is about to die.
func (s *processes) dies(p *deaths.Process) {
	s.dead[p.PID] = true
	if rank, known := s.ranks[p]; known && s.now[rank] == p {
		s.book.dies(rank)
	}
}

// kill kills any process, unless the program is at its end.
func (s *processes) kill(dice *rand.Rand) {
	all := s.w.Living()
	if s.calm || s.kills == 0 || len(all) < 3 { // with the last two, all could be dead of which a new one is to learn
		return
	}
	s.kills--
	p := all[dice.IntN(len(all))]
	s.dies(p)
	p.Kill()
}

// revives: a process has taken the place of a dead rank.
func (b *book) revives(rank int) { write(b, b.dead, rank, false) }

func runProcesses(t *testing.T, seed uint64, transports string) {
	dice := rand.New(rand.NewPCG(seed, 3))
	s := &processes{mortals: randomMortals(seed, transports), ranks: map[*deaths.Process]int{},
		now: map[int]*deaths.Process{}, dead: map[int]bool{}, made: map[int]bool{},
		kills: dice.IntN(4), began: make(chan struct{})}
	if !s.replaces() {
		s.kills = max(0, min(s.kills, s.mortals.ranks-1-len(s.fates)))
	}
	s.w = deaths.Watch(t, s.answer)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(proc.Gorun(t), "-n", strconv.Itoa(s.mortals.ranks), "--respawn", "1000", self)
	cmd.Env = append(os.Environ(), proc.RoleVar+"=mortal", fmt.Sprintf("%s=%d %s", mortalSeed, seed, transports),
		s.w.Env(), "GORUN_TRANSPORTS="+transports, "GORUN_TIMEOUT=15s", "GORACE=atexit_sleep_ms=0")
	var out proc.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Minute // a process that keeps the pipes is a failure and no hang
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer cmd.Process.Kill()
	hang := time.After(90 * time.Second)
	next := (<-chan time.Time)(nil)
	for began := s.began; ; {
		select {
		case <-began:
			began = nil
			next = time.After(time.Duration(dice.IntN(100_000)) * time.Microsecond)
		case <-next:
			s.w.Do(func() { s.kill(dice) })
			next = time.After(time.Duration(dice.IntN(200_000)) * time.Microsecond)
		case <-hang:
			t.Errorf("it does not end; goroutines of its ranks below")
			s.w.Do(func() {
				for _, p := range s.w.Living() {
					syscall.Kill(p.PID, syscall.SIGQUIT)
				}
			})
			hang = nil
			time.AfterFunc(20*time.Second, func() { cmd.Process.Kill() })
		case err = <-ended:
			s.judge(t, cmd, err, out.String())
			return
		}
	}
}

// judge looks at a program that has ended.
func (s *processes) judge(t *testing.T, cmd *exec.Cmd, err error, out string) {
	t.Helper()
	s.w.Do(func() {
		if code := cmd.ProcessState.ExitCode(); code != 0 && (code != 137 || len(s.dead) == 0) ||
			errors.Is(err, exec.ErrWaitDelay) || strings.Contains(out, "wrong:") {
			t.Errorf("the job ends with %v", err)
		}
		if err := s.book.verdict(func(pid int) bool { return s.dead[pid] }); err != nil {
			t.Error(err)
		}
		mark := []byte(s.w.Env())
		left := proc.List(func(p proc.Info) bool {
			return slices.ContainsFunc(p.Env(), func(kv string) bool { return bytes.Equal([]byte(kv), mark) })
		})
		if len(left) > 0 {
			t.Errorf("the job has ended, and these live: %v", left)
		}
		t.Logf("%d of %d processes have died; ranks were replaced in %d turns", len(s.dead), len(s.ranks), len(s.made))
		if t.Failed() {
			t.Logf("%v\n%s", s, out)
		}
	})
}

// Random programs of processes that die: as TestRandomDeaths, and where dead ranks are replaced all of them are there
// at the end, and go on from the last checkpoint. GORUN_TEST_SEED repeats one, apart from the moments of its deaths;
// with GORUN_TEST_SOAK there are 2,000.
func TestRandomDeathsOfProcesses(t *testing.T) {
	for _, transports := range []string{"shm", "tcp"} {
		t.Run(transports, func(t *testing.T) {
			from, programs := uint64(crc32.ChecksumIEEE([]byte(t.Name()))), uint64(40)
			switch seed, is := givenSeed(); {
			case is:
				from, programs = seed, 1
			case os.Getenv("GORUN_TEST_SOAK") != "":
				programs = 1000
				from = rand.Uint64() >> 32
			case testing.Short() && proc.Race: // each process takes a second there, and 12 run without it
				programs = 4
			case testing.Short():
				programs = 12
			}
			for seed := from; seed < from+programs && !t.Failed(); seed++ {
				t.Run(fmt.Sprint(seed), func(t *testing.T) { runProcesses(t, seed, transports) })
			}
		})
	}
}
