package mpi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"

	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/internal/coll"
	"github.com/gorun-mpi/mpi/internal/consensus"
	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
	"github.com/gorun-mpi/mpi/pml"
)

// Each Spawn makes a world of the ranks that call it and of those that it starts, with an engine of its own, next to
// the world that Init has made (docs/decisions/spawn.md). Programs see communicators that are made of it.

// SpawnOption is an option of Spawn.
type SpawnOption func(*spawning)

// SpawnRoot makes rank the root of a Spawn, instead of rank 0. All ranks give the same.
func SpawnRoot(rank int) SpawnOption { return func(s *spawning) { s.root = rank } }

// SpawnDir has the processes run in a folder, instead of the launcher's.
func SpawnDir(dir string) SpawnOption { return func(s *spawning) { s.dir = dir } }

// spawning is what the caller of Spawn has asked for.
type spawning struct {
	kind    agree.Creation // the call
	n       int
	command string
	args    []string
	root    int
	dir     string
	places  *join.Places // of Replace: where the processes stand
	origins []int        // of all places

	world *Comm // of both sides, once this rank has met them
}

func (s *spawning) error(class error, format string, args ...any) *Error {
	return mpierr.New(s.kind.String(), class, format, args...)
}

// Spawn starts n processes that run a command, and returns an intercommunicator: its local group is c's, its remote
// group the new ranks; §11.8.2 (MPI_Comm_spawn). Every rank of c calls it. The number, the command and its arguments
// count at the root alone, which is rank 0 (SpawnRoot). The command is looked up there as a shell would; "" is the
// program of the caller. The new ranks have a world of their own, and Parent there returns the other end. The worlds of
// the callers stay as they are.
//
// gorun and mpiexec.hydra start ranks; in a job of several pods without --respawn, under srun alone and elsewhere Spawn
// is ErrUnavailable. It is ErrSpawn at all ranks if a process cannot be started, ends before all are through Init, or
// does not call it within GORUN_TIMEOUT. gorun kills the processes then. After Spawn the new ranks belong to the job:
// when one dies, the job ends, unless gorun was given --enable-recovery. Then Spawn also ends alike at all ranks that
// live, whichever of them die during the call. Where it fails, the new ranks end: Init returns ErrUnavailable, and Main
// ends the process. Finalize waits for the ranks of both sides, unless they have freed all communicators with each
// other.
//
// Messages to the new ranks go by shared memory or TCP. What is made of the intercommunicator, such as by Merge, works
// as usual. It does not go together with the world in one call: WaitAll takes requests, and Intercomm and the methods
// of Group take communicators and groups, of one of the two.
func Spawn(c *Comm, n int, command string, args []string, opts ...SpawnOption) (*Comm, error) {
	const op = "Spawn"
	if h := c.hook(); h != nil {
		return h.creates(op, func(c *Comm) (*Comm, error) { return Spawn(c, n, command, args, opts...) })
	}
	if err := c.intra(op); err != nil {
		return nil, err
	}
	s := &spawning{kind: agree.MakeSpawn, n: n, command: command, args: slices.Clone(args)}
	for _, o := range opts {
		o(s)
	}
	var made handover
	err := c.group.Create(c.ctx, agree.MakeSpawn, func(_ uint64, tag int32) error {
		m := c.group.Exchange(agree.MakeSpawn)
		if no := c.group.CompareCreation(agree.MakeSpawn, tag); no != nil {
			return m.Failed(no)
		}
		if c.survives() {
			d, err := s.outlive(c, m)
			if err == nil {
				made.give(d)
			}
			return err
		}
		d, no := s.run(c, m)
		if no != nil {
			return m.Failed(no)
		}
		made.give(d)
		return nil
	})
	return made.take(c, agree.MakeSpawn, err)
}

// survives reports whether the launcher of this process has said that the job goes on without ranks that fail.
func (c *Comm) survives() bool {
	return ofThisProcess(c.group.Engine) && process.member.Load().Survives()
}

// outlive is run in a job that goes on without ranks that fail: it ends alike at all ranks that live. They make a
// communicator for it. A rank that has it takes part in all that follows, and the others wait for no other one.
func (s *spawning) outlive(c *Comm, m *agree.Exchange) (*Comm, error) {
	id, no := m.Number(c.group.Next, nil, nil, nil)
	if no != nil {
		return nil, m.Failed(no)
	}
	c.group.Next = id + 1
	state := &commState{self: c.self}
	c.group.Derive(&state.group, c.group.Members(), id)
	state.group.SetName(c.Name()) // errors name what the caller knows
	among := newComm(state, c.ctx)
	defer among.free()
	if no = m.Vote(id, nil); no != nil {
		return nil, m.Failed(no)
	}
	among.publish()
	d, err := s.runAlike(among, among.group.Exchange(s.kind))
	if err == nil {
		d.group.SetName(c.nameOf(s.kind))
	}
	return d, err
}

// runAlike is run, with the same result at all ranks of c that live: they agree on whether all have met. c is for this
// alone.
func (s *spawning) runAlike(c *Comm, m *agree.Exchange) (*Comm, error) {
	d, no := s.run(c, m)
	if no != nil && no.Alone { // others may be in a round without this rank
		c.group.Group.Revoke()
	}
	all, err := c.group.Agree(consensus.Value{Flags: flagsOf(no)})
	switch {
	case err != nil:
	case all.Flags == wasRefused:
		if !errors.Is(no.Cause, no.Class) {
			no.Cause = nil
		}
		err = m.Failed(no)
	case all.Flags != hasMet:
		again := "call Replace again"
		if s.places == nil {
			again = "call Spawn on a communicator of the ranks that live, which Shrink makes"
		}
		err = mpierr.New("", ErrPeerFailed, "a rank has failed before all had met the ranks that were started; %s",
			again)
	default:
		_, err = s.world.group.Agree(consensus.Value{}) // the ranks that were started wait for this: awaitParents
	}
	if err != nil {
		process.bridges.drop(s.world)
		return nil, err
	}
	return d, nil
}

// What a rank gives to the agreement of runAlike: one of these flags, or none where it knows of a failure.
const (
	hasMet     = 1 << iota // it has met the ranks that were started
	wasRefused             // the verdict, which all ranks have heard, is that no ranks are started or met
)

func flagsOf(no *agree.Veto) uint32 {
	switch {
	case no == nil:
		return hasMet
	case no.Alone || no.Class == ErrPeerFailed || no.Class == ErrRevoked || no.Class == ErrTimeout:
		return 0
	}
	return wasRefused
}

// run has four rounds: all ranks give the same root, and it can spawn; it tells them where to meet the processes that
// it has had started; it has met them, or knows why no rank does; and all have met them.
func (s *spawning) run(c *Comm, m *agree.Exchange) (d *Comm, no *agree.Veto) {
	_, no = m.Round(0, agree.AppendInts(nil, int64(s.root)), m.Refuse(s.check(c)), nil)
	if no != nil {
		return nil, no
	}
	var port *join.Port
	var told portPayload
	if c.group.Rank == s.root {
		var err *Error
		if port, err = s.start(c); err == nil {
			told.port = port.Encode()
		}
		no = m.Refuse(err)
	}
	defer func() { port.Close() }()
	if _, no = m.Round(0, nil, no, &told); no != nil {
		return nil, no
	}
	d, own := s.meet(c, m, port, told.port)
	if c.group.Rank == s.root {
		no = own
	}
	if _, no = m.Round(0, nil, no, nil); no == nil {
		_, no = m.Round(0, nil, own, nil)
	}
	if no != nil {
		process.bridges.drop(s.world)
		return nil, no
	}
	return d, nil
}

// check is what is wrong with the caller's arguments, or with its place.
func (s *spawning) check(c *Comm) *Error {
	switch n := c.group.Size; {
	case s.root < 0 || s.root >= n:
		return s.error(ErrRoot, "the root is %d; the communicator has %s", s.root, c.ranksText())
	case c.group.Rank != s.root:
		return nil
	case s.n < 1:
		return s.error(ErrCount, "the number of ranks to start is %d; start 1 at least", s.n)
	case s.n > join.MaxSpawned:
		return s.error(ErrCount, "the number of ranks to start is %d; one call starts %d at most", s.n, join.MaxSpawned)
	}
	if !ofThisProcess(c.group.Engine) {
		return s.error(ErrUnavailable, "the ranks of RunLocal are goroutines, which have no launcher; start the program "+
			"by gorun -n N")
	}
	if err := process.member.Load().CanSpawn(); err != nil {
		return s.error(ErrUnavailable, "%w", err)
	}
	return s.find()
}

// find makes paths of the command and the folder that do not depend on this process.
func (s *spawning) find() *Error {
	var err error
	if s.dir != "" {
		s.dir, err = filepath.Abs(s.dir)
	}
	if err == nil && s.command != "" {
		name := s.command
		if s.command, err = exec.LookPath(name); err == nil {
			s.command, err = filepath.Abs(s.command)
		}
		if err != nil {
			for cause := err; cause != nil; cause = errors.Unwrap(cause) {
				err = cause // without the names of the program
			}
			return s.error(ErrSpawn, "the program %q cannot be started: %w; give the path of a program, or \"\" for the "+
				"program of the caller", name, err)
		}
	}
	if err != nil {
		return s.error(ErrSpawn, "%w", err)
	}
	return nil
}

// start has the launcher start the processes.
func (s *spawning) start(c *Comm) (*join.Port, *Error) {
	m := process.member.Load()
	p, err := m.Open(c.group.Size, s.root, s.n)
	if err != nil {
		return nil, s.error(ErrUnavailable, "%w", err)
	}
	p.Places, p.Origins = s.places, s.origins
	if err := m.Spawn(p, s.command, s.args, s.dir); err != nil {
		p.Close()
		if errors.Is(err, join.ErrNoSpawn) {
			return nil, s.error(ErrUnavailable, "%w", err)
		}
		return nil, s.error(ErrSpawn, "starting %s: %w", cmp.Or(s.command, "the program of this rank again"), err)
	}
	return p, nil
}

// meet joins the world of both sides. port is nil at ranks that have been told of it. It gives up when another rank of
// c has failed, which may never come.
func (s *spawning) meet(c *Comm, m *agree.Exchange, port *join.Port, told []byte) (*Comm, *agree.Veto) {
	err := error(nil)
	if port == nil {
		port, err = join.ParsePort(told)
	}
	if err == nil && (port.Parents != c.group.Size || port.Root != s.root ||
		s.places != nil && port.Size-port.Parents != len(s.places.Ranks)) {
		err = fmt.Errorf("the root has told of %d of %d ranks with root %d", port.Parents, port.Size, port.Root)
	}
	if err != nil {
		return nil, m.Refuse(s.error(ErrAborted, "%w", err))
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	over := make(chan struct{})
	go func() {
		cancel(c.group.AwaitLoss(ctx))
		close(over)
	}()
	s.world, err = bridgeBy(ctx, port, port.Number(c.group.Rank), c.self)
	lost := context.Cause(ctx)
	cancel(nil)
	<-over // Finalize would count the probe
	if err != nil {
		class := ErrSpawn
		if s.places != nil { // most likely a rank has died, of which AwaitLoss has not heard yet
			class = ErrPeerFailed
		}
		no := m.Refuse(s.error(class, "the ranks that were started do not meet this one: %w", err))
		if lost != nil {
			no = m.Met(lost)
		}
		no.Cause = nil // all report what the first one has met: what others meet follows from it
		return nil, no
	}
	if s.places != nil {
		port.Places, port.Origins = s.places, s.origins
		return inPlaces(s.world, port, c.ctx), nil
	}
	d := newComm(interOf(s.world, parentsOf(port), childrenOf(port)), c.ctx)
	d.group.SetName(c.nameOf(s.kind))
	return d, nil
}

// portPayload is how the root of a Spawn tells the others of its port.
type portPayload struct{ port []byte }

func (p *portPayload) Take(_ int, d *agree.Decoder) *agree.Veto {
	if b := d.Bytes(); len(b) > 0 {
		p.port = b
	}
	return nil
}

func (p *portPayload) Up() []byte                   { return agree.AppendBytes(nil, p.port) }
func (p *portPayload) Decide() *agree.Veto          { return nil }
func (p *portPayload) Down(int) []byte              { return p.Up() }
func (p *portPayload) ReadVerdict(d *agree.Decoder) { p.port = d.Bytes() }

// Parent returns the intercommunicator whose remote group is the ranks that have started this process by Spawn; §11.8.2
// (MPI_Comm_get_parent). Its local group is the world. Parent returns nil before Init, and if no rank has started the
// process.
func Parent() *Comm { return process.parent.Load() }

// meetParents makes Parent, if this rank was spawned, or the communicator in which it takes a place. m has just joined.
func meetParents(m *join.Member, self *selfComm) (*Comm, error) {
	port, err := m.Invited()
	if port == nil || err != nil {
		return nil, err
	}
	w, err := bridgeBy(context.Background(), port, port.Parents+m.Rank, self)
	if err != nil {
		return nil, fmt.Errorf("this rank was spawned, and does not meet its parents: %w", err)
	}
	if port.Places != nil {
		return takePlace(w, port)
	}
	if m.Survives() {
		switch err := awaitParents(w, port); {
		case errors.Is(err, errGivenUp):
			return nil, fmt.Errorf("%w: %w", errInVain, err)
		case err != nil:
			return nil, err
		}
	}
	d := newComm(interOf(w, childrenOf(port), parentsOf(port)), nil)
	d.group.SetName("parent")
	d.publish()
	return d, nil
}

var (
	errInVain  = errors.New("this rank was spawned in vain") // by a Spawn that has failed at all ranks
	errGivenUp = errors.New("the ranks that have started it have given up, or have failed")
)

// awaitParents is the part in runAlike of a rank that was started. It fails if no rank that has started it is left.
func awaitParents(w *Comm, p *join.Port) error {
	all, err := w.group.Agree(consensus.Value{})
	left := p.Parents
	for number := range all.Dead.All {
		if number < p.Parents {
			left--
		}
	}
	if err == nil && left == 0 {
		err = errGivenUp
	}
	if err != nil {
		process.bridges.drop(w)
	}
	return err
}

// parentsOf are the ranks that have called Spawn, in their order, and childrenOf the ranks that it has started, in the
// world of both.
func parentsOf(p *join.Port) *ranks.Set {
	var b ranks.Builder
	for place := range p.Parents {
		b.AddRank(int32(p.Number(place)))
	}
	return b.Done()
}

func childrenOf(p *join.Port) *ranks.Set {
	return ranks.Of(ranks.Strided(int32(p.Parents), 1, int32(p.Size-p.Parents)))
}

// interOf makes the first communicator of a world of both sides.
func interOf(w *Comm, local, remote *ranks.Set) *commState {
	s := &commState{self: w.self}
	w.group.Derive(&s.group, local, w.group.Numbers.Reserve(1)) // nothing else has been made of it
	s.group.Join(local, remote)
	return s
}

// bridges are the worlds that this process is in apart from the world of Init.
type bridges struct {
	mu   sync.Mutex
	all  []membership // guarded by mu
	kept bool         // guarded by mu; Finalize has begun, which leaves them
}

// membership is a world that this process is in.
type membership struct {
	name    string // of the world
	member  *join.Member
	world   *Comm
	origins []int  // by number, of the world of a Replace; nil: not known; guarded by bridges.mu, and never changes then
	leaving bool   // this rank has no communicator in it; guarded by bridges.mu
	agree   func() // waits until all living ranks leave it, once
}

// bridgeBy joins the world of both sides of a spawn, unless until ends before. self is this process's.
func bridgeBy(until context.Context, p *join.Port, number int, self *selfComm) (*Comm, error) {
	m, err := process.member.Load().JoinPort(until, p, number)
	if err != nil {
		return nil, err
	}
	w := worldOf(m.Engine, m.Rank, m.Size, coll.NewSetup(m.Engine, coll.Settings(m.Collectives)))
	w.self = self
	b := &process.bridges
	b.mu.Lock()
	defer b.mu.Unlock()
	if process.finalized.Load() {
		err = errors.New("this rank has called Finalize meanwhile")
		m.Close(err)
		return nil, err
	}
	b.all = append(b.all, membership{member: m, world: w, name: p.Name(), agree: sync.OnceFunc(func() {
		w.group.Agree(consensus.Value{})
	})})
	return w, nil
}

// keep leaves all worlds to Finalize, until that has ended with an error.
func (b *bridges) keep(on bool) {
	b.mu.Lock()
	b.kept = on
	b.mu.Unlock()
}

// take is the membership of a world that the caller leaves. nil: this rank is not in it, or Finalize leaves it.
func (b *bridges) take(w *Comm) *join.Member {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.all, func(j membership) bool { return j.world == w })
	if i < 0 || b.kept {
		return nil
	}
	m := b.all[i].member
	b.all = slices.Delete(b.all, i, i+1)
	return m
}

// drop leaves a world at once, in which not all ranks have met. nil: this rank has not.
func (b *bridges) drop(w *Comm) {
	if m := b.take(w); m != nil {
		m.Close(mpierr.New("", ErrPeerFailed, "not all ranks have met those that were started"))
	}
}

// freed is called when a communicator has been freed. If it was the last one of its world at this rank, the rank leaves
// that when the other ranks have none either. A rank that left before would have failed for those that still agree.
func (b *bridges) freed(c *commState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.all, func(j membership) bool { return j.member.Engine == c.group.Engine })
	if i < 0 || b.all[i].leaving || !c.group.Numbers.Idle() {
		return
	}
	b.all[i].leaving = true
	j := b.all[i]
	go func() {
		j.agree()
		if m := b.take(j.world); m != nil {
			j.makeNoCalls()
			j.leave()
			m.Close(agree.FreedError("communicator"))
		}
	}()
}

// origins is what setOrigins was given for the world of an engine, or nil.
func (b *bridges) origins(e *pml.Engine) []int {
	for _, j := range b.list() {
		if j.member.Engine == e {
			return j.origins
		}
	}
	return nil
}

func (b *bridges) setOrigins(w *Comm, origins []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.all {
		if b.all[i].world == w {
			b.all[i].origins = origins
		}
	}
}

// makeNoCalls tells other ranks that this one makes no call in a world any more.
func (j membership) makeNoCalls() {
	j.world.group.LeaveAll()
	j.member.Engine.Return()
}

// leave returns when all ranks have left a world. The rank that serves a world with spawned ranks may have died, so
// they agree on it: Replace would start a rank in the place of one that had gone before.
func (j membership) leave() error {
	if j.agree != nil {
		j.member.AtEnd() // others may wait for that until they agree
		j.agree()
	}
	j.world.group.Leave()
	return j.member.Leave()
}

// list is what there is.
func (b *bridges) list() []membership {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.all)
}

// ofThisProcess reports whether an engine is one of this process's rank, and not of a rank of RunLocal.
func ofThisProcess(e *pml.Engine) bool {
	if m := process.member.Load(); m != nil && m.Engine == e {
		return true
	}
	return slices.ContainsFunc(process.bridges.list(), func(j membership) bool { return j.member.Engine == e })
}
