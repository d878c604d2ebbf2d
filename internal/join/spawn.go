package join

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/gorun-mpi/mpi/internal/bootstrap"
	"github.com/gorun-mpi/mpi/internal/bootstrap/rank0"
	"github.com/gorun-mpi/mpi/internal/pmi"
	"github.com/gorun-mpi/mpi/transport/tcp"
)

// Port is where ranks that are there and ranks that they spawn meet: a world of both, with numbers of its own, which
// has rank 0 of it for a launcher (docs/decisions/spawn.md). Its parents come first: the root of the spawn, then the
// others in their order.
type Port struct {
	Parents int     // how many there are
	Root    int     // the root's place among them
	Size    int     // of the world
	Places  *Places // of ranks that have died, which the spawned ranks take; nil: they take none
	// Origins are the ranks of the first world in whose places stand the ranks of a communicator of the world's size, in
	// its order, where the spawned ranks take places. nil: they are not known.
	Origins []int

	name    string
	key     []byte
	address []byte       // of tcp.Listen, at the root
	ln      net.Listener // at the root, until it has joined
	// met, at the root when the ranks have been spawned, waits until the launcher has heard that all have met, or why not.
	met func(context.Context) error
}

const (
	portVersion = 1
	portKeySize = 32
	portFixed   = 1 + 3*4 + portKeySize + 1
	// spawnPortKey is under what spawned ranks find the port, encoded.
	spawnPortKey = "gorun-spawn-port"
)

// Number is the number in the world of the parent at a place among the parents.
func (p *Port) Number(place int) int {
	switch {
	case place == p.Root:
		return 0
	case place < p.Root:
		return place + 1
	}
	return place
}

// Name is the name of the world, which no other one has.
func (p *Port) Name() string { return p.name }

// Encode is what the other ranks need to know of p. It is a secret of theirs.
func (p *Port) Encode() []byte {
	b := []byte{portVersion}
	for _, v := range []int{p.Parents, p.Root, p.Size} {
		b = binary.BigEndian.AppendUint32(b, uint32(v))
	}
	b = append(append(b, p.key...), byte(len(p.name)))
	return append(append(b, p.name...), p.address...)
}

// ParsePort reads what Encode has written. b is hostile until then.
func ParsePort(b []byte) (*Port, error) {
	if len(b) < portFixed || b[0] != portVersion {
		return nil, fmt.Errorf("%d bytes that are no port of version %d: build all programs from the same release", len(b),
			portVersion)
	}
	number := func(i int) int { return int(binary.BigEndian.Uint32(b[1+4*i:])) }
	p := &Port{Parents: number(0), Root: number(1), Size: number(2), key: b[13 : 13+portKeySize]}
	named := portFixed + int(b[portFixed-1])
	const most = 1 << 24
	if named > len(b) || p.Parents < 1 || p.Root >= p.Parents || p.Size <= p.Parents || p.Size > most {
		return nil, fmt.Errorf("a port of %d ranks, %d of which are parents, rank %d the root", p.Size, p.Parents, p.Root)
	}
	p.name, p.address = string(b[portFixed:named]), b[named:]
	return p, nil
}

// Open opens a port for parents that spawn ranks. This rank is the root.
func (m *Member) Open(parents, root, spawned int) (*Port, error) {
	o, err := (&deviceConfig{set: m.config.set}).tcpOptions()
	if err != nil {
		return nil, err
	}
	p := &Port{Parents: parents, Root: root, Size: parents + spawned, key: make([]byte, portKeySize)}
	if p.ln, p.address, err = tcp.Listen(o.Interfaces, o.Ports); err != nil {
		return nil, err
	}
	rand.Read(p.key)
	name := make([]byte, 8)
	rand.Read(name)
	p.name = "gorun_spawn_" + hex.EncodeToString(name)
	return p, nil
}

// Close ends what Open has begun, unless this rank has joined.
func (p *Port) Close() {
	if p != nil && p.ln != nil {
		p.ln.Close()
		p.ln = nil
	}
}

// ErrNoSpawn is wrapped in the errors of CanSpawn and Spawn where the launcher starts no ranks later.
var ErrNoSpawn = pmi.ErrNoSpawn

// MaxSpawned is how many ranks a port has at most for those that are spawned.
const MaxSpawned = pmi.MaxSpawned

// spawner is a client whose launcher may start processes.
type spawner interface {
	CanSpawn() error
	Spawn(ctx context.Context, q pmi.Spawn) (met func(context.Context) error, err error)
}

// CanSpawn is why the launcher of this rank does not start other ranks, or nil.
func (m *Member) CanSpawn() error {
	const do = "start the program by gorun -n N, or by mpiexec.hydra"
	if m.client == nil {
		return errors.New("this process has no launcher that could start others: " + do)
	}
	client, ok := m.client.(spawner)
	if !ok {
		return fmt.Errorf("%w (launcher: %s): %s", pmi.ErrNoSpawn, m.client.Launcher(), do)
	}
	if err := client.CanSpawn(); err != nil {
		return fmt.Errorf("%w: %s", err, do)
	}
	return nil
}

// Spawn has the launcher start the processes of p that are no parents. It returns when they have joined their job,
// under gorun, or have been started. They end if they do not meet their parents then, which JoinPort waits for.
func (m *Member) Spawn(p *Port, command string, args []string, dir string) error {
	if err := m.CanSpawn(); err != nil {
		return err
	}
	if command == "" && m.client.Launcher() != pmi.Gorun {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		command = self
	}
	q := pmi.Spawn{Ranks: p.Size - p.Parents, Command: command, Args: args, Dir: dir, Limit: m.config.set.Timeout,
		Meet: true}
	if err := q.Keep(spawnPortKey, p.Encode()); err != nil {
		return err
	}
	if p.Places != nil {
		if err := q.Keep(pmi.PlacesKey, p.Places.encode()); err != nil {
			return err
		}
		if err := p.keepOrigins(&q, p.Places.Ranks); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeoutCause(m.ctx, 2*q.Limit+answerIn, errors.New("the launcher does not answer"))
	defer cancel()
	var err error
	p.met, err = m.client.(spawner).Spawn(ctx, q)
	return err
}

// answerIn is how long the launcher may take for its answer beyond twice the time of the start: in one of these it may
// wait for the ends of ranks, in half of one for a host, and half of one is left to the processes at least.
const answerIn = 30 * time.Second

// Invited returns the port at which this rank meets its parents; nil: none have spawned it.
func (m *Member) Invited() (*Port, error) {
	if m.client == nil || os.Getenv(pmi.EnvSpawned) != "1" {
		return nil, nil
	}
	ctx, cancel := m.joining()
	defer cancel()
	b, err := m.client.Get(ctx, 0, spawnPortKey)
	if errors.Is(err, pmi.ErrNoKey) {
		return nil, nil // by another library, or by a launcher that has left its variable
	}
	if err != nil {
		return nil, err
	}
	p, err := ParsePort(b)
	if err == nil && p.Size != p.Parents+m.Size {
		err = fmt.Errorf("%d ranks were spawned, and this job has %d", p.Size-p.Parents, m.Size)
	}
	if err == nil {
		err = m.findPlaces(ctx, p)
	}
	if err == nil {
		err = m.findOrigins(ctx, p)
	}
	return p, err
}

// JoinPort makes this rank one of the world of p, with that number. It returns when all ranks have done so, or when
// until ends. gorun hears of that by a barrier of the spawned ranks: when one of them fails before, it ends the others,
// and tells the root.
func (m *Member) JoinPort(until context.Context, p *Port, number int) (*Member, error) {
	c := m.config.withLauncher("", 0)
	c.late, c.tuned = true, nil
	var err error
	if c.choice, err = parseChoice(c.set); err != nil { // without tuned lines, which the other side need not have
		return nil, err
	}
	b := newMember(c, number, p.Size)
	b.tracer = m.client.LauncherPID()
	inTime := context.AfterFunc(until, b.stop)
	ctx, cancel := b.joining()
	defer cancel()
	ctx, met := p.await(ctx)
	if b.client, err = p.reach(ctx, c, number); err == nil {
		if err = b.connect(ctx, c); err != nil {
			b.client.Close()
		}
	}
	if err != nil {
		b.stop()
		return nil, cmp.Or(met(false), err)
	}
	if err = met(true); err == nil && number >= p.Parents && m.client.Launcher() == pmi.Gorun {
		err = m.client.Fence(ctx)
	}
	if !inTime() && err == nil {
		err = context.Cause(until)
	}
	if err != nil {
		b.Close(err)
		return nil, err
	}
	if number != 0 {
		go b.followRoot()
	}
	return b, nil
}

// await returns a context that ends when the launcher says that the ranks do not meet. met returns why; with wait, it
// waits until the launcher has said something.
func (p *Port) await(ctx context.Context) (until context.Context, met func(wait bool) error) {
	if p.met == nil { // of another rank than the root
		return ctx, func(bool) error { return nil }
	}
	until, stop := context.WithCancelCause(ctx)
	said := make(chan error, 1)
	go func() {
		err := p.met(ctx)
		said <- err
		if err != nil {
			stop(err)
		}
	}()
	return until, func(wait bool) error {
		if !wait && context.Cause(until) == context.Cause(ctx) {
			return nil
		}
		return <-said
	}
}

// reach joins as a rank of the server of rank 0.
func (p *Port) reach(ctx context.Context, c config, number int) (bootstrap.Client, error) {
	j := rank0.Job{Rank: number, Size: p.Size, Name: p.name, Launcher: "spawn", Key: p.key,
		PeerTimeout: c.set.PeerTimeout, Survive: true, Warn: c.Log.Warn}
	if p.ln != nil {
		ln := p.ln
		p.ln = nil
		return asClient(rank0.Lead(ctx, ln, j))
	}
	o, err := (&deviceConfig{set: c.set}).tcpOptions()
	if err != nil {
		return nil, err
	}
	to, err := tcp.Reach(p.address, o.Interfaces)
	if err != nil {
		return nil, err
	}
	var addrs []string
	for _, a := range to {
		addrs = append(addrs, a.String())
	}
	return asClient(rank0.FollowAny(ctx, addrs, j))
}

func asClient(m *rank0.Member, err error) (bootstrap.Client, error) {
	if err != nil {
		return nil, err // and no nil *rank0.Member
	}
	return m, nil
}

// followRoot has the engine find out which ranks have ended, when rank 0's server is gone: then only a link tells of
// its peer's end.
func (m *Member) followRoot() {
	select {
	case <-m.client.Lost():
		for rank := range m.Size {
			if rank != m.Rank {
				m.Engine.EnsureLink(rank)
			}
		}
	case <-m.ctx.Done():
	}
}
