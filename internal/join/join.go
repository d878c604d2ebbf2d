package join

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/bootstrap"
	"github.com/gorun-mpi/mpi/internal/bootstrap/detect"
	"github.com/gorun-mpi/mpi/internal/place"
	"github.com/gorun-mpi/mpi/internal/pmi"
	"github.com/gorun-mpi/mpi/internal/settings"
	"github.com/gorun-mpi/mpi/internal/sysmon"
	"github.com/gorun-mpi/mpi/internal/tuned"
	"github.com/gorun-mpi/mpi/internal/waitpolicy"
	"github.com/gorun-mpi/mpi/pml"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/loop"
)

// Options are what the caller of Init or RunLocal has chosen.
type Options struct {
	Environ    []string            // GORUN_* settings, as os.Environ gives them; nil: those of this process
	Log        hclog.Logger        // nil: standard error, at the level of GORUN_LOG
	NewRequest func() *pml.Request // makes the requests that callers hold
	// Wrap lets tests put something between an engine and its device, or another device in its place. nil: nothing.
	Wrap func(rank int, d transport.Device) transport.Device
	// Host lets tests say where each rank of RunLocal is, by any numbers. nil: all are on one host.
	Host func(rank int) int
	// Hooks are of package mpi, which calls them: a *mpi.Hooks, or nil.
	Hooks any
}

// Observers returns the settings, of which Report, CPUProfile and Labels are for package mpi. [Job] and [Local] report
// what is wrong with them.
func Observers(o Options) settings.Values {
	if o.Environ == nil {
		o.Environ = os.Environ()
	}
	set, _, _ := settings.Load(o.Environ)
	return set
}

// config is Options without a nil in Environ and Log, and the settings.
type config struct {
	Options
	set    settings.Values
	choice collectives.Choice
	tuned  *tuned.File // its lines are in choice; nil: this rank has no tuned file, as in RunLocal
	late   bool        // of a world with spawned ranks (spawn.go)
}

// Collectives is how collective calls are made. It is the same at all ranks, if their settings are.
type Collectives struct {
	Choice collectives.Choice
	Check  bool // ranks compare what they call
	// Hosts says which ranks of the world share a host. SharedMemory says that such ranks use it, if they can.
	Hosts        collectives.Hosts
	SharedMemory bool
}

// collectives is what the settings say. local: of RunLocal.
func (c config) collectives(local bool) Collectives {
	return Collectives{Choice: c.choice, Check: c.set.CollCheck == "1" || c.set.CollCheck == "auto" && local,
		SharedMemory: local || c.set.Transports == nil || slices.Contains(c.set.Transports, "shm")}
}

// loadOptions reads the settings, and warns of variables that have no effect.
func loadOptions(o Options) (config, error) {
	if o.Environ == nil {
		o.Environ = os.Environ()
	}
	set, wrong, err := settings.Load(o.Environ)
	if err != nil {
		return config{}, err
	}
	if o.Log == nil {
		o.Log = hclog.New(&hclog.LoggerOptions{Name: "mpi", Level: hclog.LevelFromString(set.Log), Output: os.Stderr})
	}
	if set.Job == "" && firstOfHost(o.Environ) { // else gorun has warned already
		for _, w := range wrong {
			warnings().Warn(w.String())
		}
	}
	choice, err := parseChoice(set)
	return config{Options: o, set: set, choice: choice}, err
}

// warnings is the log of what a user has to know whatever the level of the log.
func warnings() hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Name: "mpi", Level: hclog.Warn, Output: os.Stderr, DisableTime: true})
}

// firstOfHost reports whether this is the rank of its host that warns for all of them.
func firstOfHost(environ []string) bool {
	r := lookup(environ, "MPI_LOCALRANKID", pmi.EnvRank)
	return r == "" || r == "0"
}

// lookup returns the value of the first of the names that environ has, or "".
func lookup(environ []string, names ...string) string {
	for _, n := range names {
		for _, kv := range environ {
			if len(kv) > len(n) && kv[len(n)] == '=' && kv[:len(n)] == n {
				return kv[len(n)+1:]
			}
		}
	}
	return ""
}

// localRank is the number of a rank among the ranks of its host, as its launcher says; else its number in the job.
func (c config) localRank(rank int) int {
	n, err := strconv.Atoi(lookup(c.Environ, pmi.EnvLocalRank, "MPI_LOCALRANKID", "SLURM_LOCALID",
		"OMPI_COMM_WORLD_LOCAL_RANK"))
	if err != nil || n < 0 {
		return rank
	}
	return n
}

// newEngine adds to cfg what is the same for every engine.
func (c config) newEngine(cfg pml.Config) (*pml.Engine, error) {
	cfg.Self = loop.New(1)[0]
	cfg.EagerMax, cfg.UnexpectedMax = int(c.set.EagerMax), c.set.UnexpectedMax
	cfg.ConnectTimeout = c.set.Timeout
	cfg.NewRequest = c.NewRequest
	if c.Log.IsDebug() {
		cfg.Debug = c.Log.With("rank", cfg.Rank).Debug
	}
	if c.Log.IsInfo() {
		cfg.Info = c.Log.With("rank", cfg.Rank).Info
	}
	return pml.New(cfg)
}

// Member is this process as a rank of its job.
type Member struct {
	Engine     *pml.Engine
	Rank, Size int
	Collectives
	client bootstrap.Client // nil in a world of one
	device transport.Device // to the other ranks; nil if there are none
	near   error            // why the device reaches ranks of this host only; nil: see opened
	config config
	tracer int             // a process from which the ranks of this host descend; 0: the client knows
	ctx    context.Context // ends with Close
	stop   context.CancelFunc
	fence  func() error // waits for all other ranks, once
}

// newMember is a member that has not joined.
func newMember(c config, rank, size int) *Member {
	m := &Member{Rank: rank, Size: size, Collectives: c.collectives(false), config: c}
	m.ctx, m.stop = context.WithCancel(context.Background())
	m.fence = sync.OnceValue(func() error {
		if m.client == nil {
			return nil
		}
		return m.client.Fence(m.ctx)
	})
	return m
}

// joining is the context of a step in which other ranks take part.
func (m *Member) joining() (context.Context, context.CancelFunc) {
	patience := m.config.set.Timeout
	return context.WithTimeoutCause(m.ctx, patience, fmt.Errorf("not within %v (GORUN_TIMEOUT): %w", patience,
		context.DeadlineExceeded))
}

// Job joins the job that the launcher describes, or makes a world of one rank if nothing describes a job. The error
// wraps transport.ErrNoMemory if a transport had no room for its buffers.
func Job(o Options) (*Member, error) {
	c, err := loadOptions(o)
	if err == nil {
		err = check(c.set)
	}
	if err == nil {
		c.tuned, err = findTuned(c.set, &c.choice)
	}
	if err != nil {
		return nil, err
	}
	m := newMember(c, 0, 1)
	m.Hosts = oneHost(1)
	if err := m.join(c); err != nil {
		m.stop()
		return nil, err
	}
	return m, nil
}

func (m *Member) join(c config) (err error) {
	ctx, cancel := m.joining()
	defer cancel()
	m.client, err = detect.Join(ctx, detect.Options{Env: os.Getenv, PeerTimeout: c.set.PeerTimeout,
		Ports: c.set.TCPPorts, Debug: c.Log.Debug, Warn: c.Log.Warn})
	if err != nil {
		return err
	}
	if m.client == nil {
		m.Engine, err = c.newEngine(pml.Config{Size: 1, Wait: waitpolicy.For(c.set.Spin, 1, 1)})
		return err
	}
	m.Rank, m.Size = m.client.Rank(), m.client.Size()
	if err := m.connect(ctx, c.withLauncher(m.client.Launcher(), m.client.LocalSize())); err != nil {
		m.client.Close()
		return err
	}
	return nil
}

// withLauncher takes what is said of the ranks of this host from the launcher of this job. What the settings say is
// gorun's: another launcher that surrounds gorun, or is surrounded by it, has not said it.
func (c config) withLauncher(launcher string, local int) config {
	if launcher != pmi.Gorun {
		c.set.CPUs, c.set.LocalSize = 0, local
	}
	return c
}

// connect opens the device, makes the engine and publishes its address. It returns when all ranks have done so.
func (m *Member) connect(ctx context.Context, c config) error {
	local, known := localRanks(c, m.Size)
	if m.Size > 1 {
		var err error
		if m.device, err = m.openDevice(c, local, known); err != nil {
			return fmt.Errorf("no transport to the other ranks (%d) works: %w", m.Size-1, err)
		}
	}
	cpus := usableCPUs(c.set.CPUs)
	policy := waitpolicy.For(c.set.Spin, local, cpus)
	c.Log.Debug("what this rank does while it waits", "rank", m.Rank, "policy", policy, "ranks here", local, "CPUs", cpus)
	if !policy.YieldCPU && runtime.NumCPU() == 1 { // it spins there
		if err := sysmon.Batch(); err != nil {
			c.Log.Debug("Go's monitor thread takes part of the only CPU", "rank", m.Rank, "error", err)
		}
	}
	if f := c.tuned; f != nil {
		c.Log.Debug("algorithms and the eager limit are tuned", "rank", m.Rank, "file", tunedName(f), "lines",
			len(f.Collectives))
		if m.Rank == 0 {
			c.warnElsewhere()
		}
		if m.device != nil && local == m.Size && known && m.device.Name() == f.Host.Transport && c.set.EagerMax == 0 {
			c.set.EagerMax = f.EagerMax
		}
	}
	var err error
	m.Engine, err = c.newEngine(pml.Config{Rank: m.Rank, Size: m.Size, Net: m.device, Wait: policy,
		Lookup: func(ctx context.Context, peer int) ([]byte, error) {
			return m.client.Get(ctx, peer, addressKey(peer))
		},
		Known: func(peer int) []byte { return m.client.Known(addressKey(peer)) }})
	if err != nil {
		if m.device != nil {
			m.device.Close()
		}
		return err
	}
	if err := m.publish(ctx, c.tuned, c.Log.With("rank", m.Rank).Debug); err != nil {
		m.Engine.Close(err)
		return fmt.Errorf("joining the other ranks: %w", err)
	}
	if client, ok := m.client.(deathSource); ok {
		go m.followDeaths(client)
	}
	return nil
}

func (m *Member) openDevice(c config, local int, known bool) (transport.Device, error) {
	log := c.Log.With("rank", m.Rank)
	o, err := openTransport(deviceConfig{rank: m.Rank, size: m.Size, localRank: c.localRank(m.Rank),
		local: local, known: known, late: c.late, job: m.client.Name(),
		tracer: cmp.Or(m.tracer, m.client.LauncherPID()),
		secret: func() ([]byte, error) { return m.secret(c.set.Timeout) }, call: m.call,
		log: log.Warn, info: log.Info, debug: log.Debug, set: c.set})
	if err != nil {
		return nil, err
	}
	m.near = o.near
	if c.Wrap != nil {
		return c.Wrap(m.Rank, o.Device), nil
	}
	return o.Device, nil
}

// publish puts what the other ranks need to connect to this one where they find it, and waits until all have done so.
// It also finds out which ranks share a host, and whether their tuned files agree.
func (m *Member) publish(ctx context.Context, tuned *tuned.File, debug func(msg string, args ...any)) error {
	order, err := m.mapping(ctx, debug)
	switch {
	case err != nil:
	case order != nil:
		err = m.setHosts(order)
	default:
		err = m.client.Put(ctx, hostKey(m.Rank), kernelHost())
	}
	if err == nil {
		err = m.shareSecret(ctx)
	}
	if err == nil {
		err = m.client.Put(ctx, addressKey(m.Rank), m.Engine.Address())
	}
	if err == nil {
		err = m.putTuned(ctx, tuned)
	}
	if err == nil {
		err = m.client.FenceAhead(ctx, addressKey(m.Rank))
	}
	if err == nil {
		err = m.compareTuned(ctx, tuned)
	}
	if err == nil && order == nil {
		if order, err = m.agree(ctx); err == nil {
			err = m.setHosts(order)
		}
	}
	return err
}

// setHosts sets which ranks share a host. A rank that cannot reach other hosts does not join a job that has some.
func (m *Member) setHosts(order place.Order) error {
	m.Hosts = collectives.HostsOf(m.Size, order.HostOf)
	if m.near != nil && m.Hosts.Len() > 1 {
		return fmt.Errorf("no transport to ranks on other hosts works: %w", m.near)
	}
	return nil
}

func addressKey(rank int) string { return "gorun-" + strconv.Itoa(rank) }

// localRanks is how many ranks are on this host, and whether the launcher has said so.
func localRanks(c config, size int) (local int, known bool) {
	if c.set.LocalSize > 0 {
		return c.set.LocalSize, true
	}
	return size, false
}

// secretKey is where rank 0 publishes a secret if the launcher has none for the job. A process that can read it there
// could start ranks of the job as well.
const secretKey = "gorun-secret"

// shareSecret makes the job's secret if a transport needs one and the launcher gives none.
func (m *Member) shareSecret(ctx context.Context) error {
	if m.device == nil || m.device.Facts().Refused == nil || m.client.Secret() != nil || m.Rank != 0 {
		return nil
	}
	secret := make([]byte, 32)
	rand.Read(secret)
	return m.client.Put(ctx, secretKey, secret)
}

// secret is the job's. It is asked for when all ranks have published.
func (m *Member) secret(patience time.Duration) ([]byte, error) {
	if s := m.client.Secret(); s != nil {
		return s, nil
	}
	ctx, cancel := context.WithTimeout(m.ctx, patience)
	defer cancel()
	return m.client.Get(ctx, 0, secretKey)
}

// Memory is the device's, or nil if its peers cannot reach memory of this rank.
func (m *Member) Memory() *transport.Memory {
	if m.device == nil {
		return nil
	}
	return m.device.Facts().Memory
}

// call has another rank make a connection to this one, which has tried in vain. The error wraps transport.ErrPeerGone
// if the other rank has ended.
func (m *Member) call(ctx context.Context, rank int) error {
	client, ok := m.client.(deathSource)
	if !ok {
		return errors.ErrUnsupported
	}
	err := client.Call(ctx, rank)
	if errors.Is(err, pmi.ErrEnded) {
		return transport.Gone("%w", err)
	}
	return err
}

// deathSource is a client of a launcher that tells ranks of each other: that they have ended, in a job that goes on
// without them, or want a connection.
type deathSource interface {
	Notices() <-chan struct{}
	Gone() []int
	Call(ctx context.Context, rank int) error
}

// followDeaths has the engine make a connection to each rank that the launcher tells of, until the member is closed.
// The attempt fails where the rank has ended.
func (m *Member) followDeaths(client deathSource) {
	for {
		select {
		case <-m.ctx.Done():
			return
		case <-client.Notices():
		}
		for _, rank := range client.Gone() {
			m.Engine.EnsureLink(rank)
		}
	}
}

// Answer has answer called with what the launcher asks this rank, on a goroutine of its own, until the member is
// closed: how much it wants to know, and a folder for the stacks of the goroutines. Launchers but gorun ask nothing.
func (m *Member) Answer(answer func(level int, dump string) []byte) {
	client, ok := m.client.(interface {
		Questions() <-chan pmi.Question
		Answer(id int, text []byte) error
	})
	if !ok {
		return
	}
	go func() {
		for {
			select {
			case <-m.ctx.Done():
				return
			case q := <-client.Questions():
				client.Answer(q.ID, answer(q.Level, q.Dump))
			}
		}
	}()
}

// Alone reports whether this process is a world of one without a launcher.
func (m *Member) Alone() bool { return m.client == nil }

// Lost is closed when the launcher is gone, or its connection ends for another reason. nil: there is no launcher.
func (m *Member) Lost() <-chan struct{} {
	if m.client == nil {
		return nil
	}
	return m.client.Lost()
}

// Survives reports whether the launcher has said that the job goes on without ranks that fail.
func (m *Member) Survives() bool {
	client, ok := m.client.(interface{ Survives() bool })
	return ok && client.Survives()
}

// Resign leaves the job, whose other ranks do not wait for this one: it was started in vain, and has not failed.
func (m *Member) Resign() {
	if m.client != nil {
		m.client.Finalize(m.ctx)
	}
}

// Abort asks the launcher to end all ranks with an exit code.
func (m *Member) Abort(code int, why string) {
	if m.client != nil {
		m.client.Abort(code, why)
	}
}

// PeerFailed says to a launcher that looks for the rank whose end was the first that this rank has heard of an end.
func (m *Member) PeerFailed() {
	if client, ok := m.client.(interface{ PeerFailed() error }); ok {
		client.PeerFailed()
	}
}

// AbortText is how many bytes the launcher prints of why a rank calls Abort; 0: it prints nothing of that.
func (m *Member) AbortText() int {
	if m.client == nil || m.client.Launcher() != pmi.Gorun {
		return 0
	}
	return pmi.MaxMessage
}

// AtEnd is closed when all ranks have called it or Leave, or that cannot be known any more.
func (m *Member) AtEnd() <-chan struct{} {
	all := make(chan struct{})
	go func() {
		m.fence()
		close(all)
	}()
	return all
}

// Leave returns when all ranks have called it, however long they work before. It fails when the launcher is gone, which
// ends the job when a rank dies. A world with spawned ranks has no launcher, and the rank that serves it may have died:
// its ranks have agreed before that all leave.
func (m *Member) Leave() error {
	err := m.fence()
	if err == nil && m.client != nil {
		err = m.client.Finalize(m.ctx)
	}
	if m.config.late && errors.Is(err, pmi.ErrLost) {
		return nil
	}
	return err
}

// Close frees everything; calls on the engine fail with cause afterwards.
func (m *Member) Close(cause error) error {
	m.stop()
	err := m.Engine.Close(cause)
	if m.client != nil {
		m.client.Close()
	}
	return err
}
