package pml

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/gorun-mpi/mpi/eager"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/rendezvous"
	"github.com/gorun-mpi/mpi/tagmatch"
	"github.com/gorun-mpi/mpi/transport"
)

// Wildcards, as tagmatch has them.
const (
	AnySource = tagmatch.AnySource
	AnyTag    = tagmatch.AnyTag
)

// Config of an Engine.
type Config struct {
	Rank, Size int
	Net        transport.Device // to the other ranks; may be nil if Size is 1
	Self       transport.Device // to this rank
	// Lookup returns what a peer's engine gives as its Address. It may block until ctx ends.
	Lookup func(ctx context.Context, peer int) ([]byte, error)

	EagerMax       int           // bytes; 0: what the link prefers
	UnexpectedMax  int64         // bytes that unmatched messages of all senders may take here
	Spin           time.Duration // the longest a wait spins before it sleeps; 0: never, < 0: adaptive
	GiveWay        bool          // before sleeping, let other processes run for a while: ranks outnumber CPUs
	ConnectTimeout time.Duration

	Offload OffloadMode // whether a device that can match tags does

	Debug      func(msg string, args ...any) // nil: silent
	NewRequest func(*Engine) *Request        // makes the requests that callers hold; nil: new(Request)
}

// OffloadMode is about devices that can match tags (transport.TagOffload).
type OffloadMode uint8

const (
	OffloadAuto OffloadMode = iota // where there is one
	OffloadOff                     // software matches everything
)

// Engine is one rank's messaging. Its methods may be called by any goroutine.
type Engine struct {
	engineLock // guards everything below

	cfg     Config
	dev     transport.Device // polled and parked on: Net, or Self in a world of one
	table   *tagmatch.Table
	peers   []*peer // by rank; nil until first contact
	special int     // how many have failed, and how many send through a device that matches: receives need a look
	hdr     wire.Header
	pkts    [16]transport.Packet

	// What is under way.
	outstanding int // requests and probes that are not complete
	detached    int // those of them that nobody waits for
	todo        worklist
	transfers   transferTable
	chooser     rendezvous.Chooser
	probers     []*Request
	offload     *offload

	wait waitState
	pace pace

	selfPkts [4]transport.Packet

	free    *Request // of blocking calls
	handles requestQueue
	unexp   *unexpected // free records
	pool    eager.Pool
	grant   int64
	stats   Stats
	closed  error // why calls are refused; nil while open
	wg      sync.WaitGroup
	stop    context.CancelFunc
	ctx     context.Context
}

// New makes an engine. Nothing is connected yet.
func New(cfg Config) *Engine {
	if cfg.ConnectTimeout <= 0 {
		cfg.ConnectTimeout = time.Minute
	}
	if cfg.NewRequest == nil {
		cfg.NewRequest = func(*Engine) *Request { return new(Request) }
	}
	keep := cfg.UnexpectedMax / 8
	e := &Engine{cfg: cfg, dev: cfg.Net, table: tagmatch.New(), peers: make([]*peer, cfg.Size),
		pool: eager.Pool{Keep: int(keep)}, grant: eager.Grant(cfg.UnexpectedMax-keep, cfg.Size), offload: &offload{}}
	e.todo.wake = e.wakeLeader
	begun := time.Now()
	e.chooser.Now = func() int64 { return int64(time.Since(begun)) + 1 }
	if e.dev == nil {
		e.dev = cfg.Self
	}
	if dev, ok := cfg.Net.(transport.TagOffload); ok {
		e.offload.attach(dev)
	}
	if in, ok := cfg.Net.(transport.Introducer); ok {
		in.Introduce(e.Address())
	}
	e.pace = pace{fixed: cfg.Spin, crowded: cfg.GiveWay, oneProcessor: runtime.GOMAXPROCS(0) == 1, spin: firstSpin}
	e.ctx, e.stop = context.WithCancel(context.Background())
	e.wg.Add(1)
	go e.watch()
	return e
}

// Address is what the other ranks' Lookup must return for this one: the grant to each sender and the device's address.
func (e *Engine) Address() []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(e.grant))
	if e.cfg.Net != nil {
		b = append(b, e.cfg.Net.Address()...)
	}
	return b
}

func splitAddress(peer int, b []byte) (grant int64, device []byte, err error) {
	if len(b) < 8 {
		return 0, nil, fmt.Errorf("rank %d published %d bytes as its address, at least 8 are needed", peer, len(b))
	}
	grant = int64(binary.LittleEndian.Uint64(b))
	if grant < eager.MinGrant {
		return 0, nil, fmt.Errorf("rank %d grants %d bytes of unexpected messages, at least %d are needed", peer, grant, eager.MinGrant)
	}
	return grant, b[8:], nil
}

// Close ends the engine: requests that are under way fail with err. The devices are closed too.
func (e *Engine) Close(err error) error {
	e.lock()
	if e.closed != nil {
		e.unlock()
		return nil
	}
	e.fail(err)
	e.unlock()
	e.stop()
	e.dev.Interrupt()
	e.wg.Wait()
	if e.cfg.Net != nil {
		err = e.cfg.Net.Close()
	} else {
		err = nil
	}
	if e2 := e.cfg.Self.Close(); err == nil {
		err = e2
	}
	return err
}

// Fail makes every call that is under way or comes later return err.
func (e *Engine) Fail(err error) {
	e.lock()
	if e.closed == nil {
		e.fail(err)
	}
	e.unlock()
	e.dev.Interrupt()
}

// fail: the caller holds the lock.
func (e *Engine) fail(err error) {
	e.closed = err
	for _, p := range e.peers {
		if p != nil {
			e.failPeer(p, err)
		}
	}
	for _, r := range e.table.FailAll() {
		e.failReceive(r, err)
	}
	for _, r := range e.probers {
		e.complete(r, err)
	}
	e.probers = nil
}

// failPosted completes the posted receives that name source.
func (e *Engine) failPosted(source int32, err error) {
	for _, r := range e.table.FailSource(source) {
		e.failReceive(r, err)
	}
}

// Closed is why calls are refused; nil while they are not.
func (e *Engine) Closed() error {
	e.lock()
	defer e.unlock()
	return e.closed
}

// Pending is the number of operations that have not completed.
func (e *Engine) Pending() int {
	e.lock()
	defer e.unlock()
	return e.outstanding
}

// DropContext forgets a communicator: its unmatched messages are released, its posted receives fail with err.
func (e *Engine) DropContext(ctx uint32, err error) {
	e.lock()
	defer e.unlock()
	receives, messages := e.table.DropContext(ctx)
	for _, r := range receives {
		e.failReceive(r, err)
	}
	for _, m := range messages {
		u := m.Owner.(*unexpected)
		e.discard(u)
	}
	probers := e.probers
	e.probers = nil
	for _, r := range probers {
		if r.recv.Ctx == ctx {
			e.complete(r, err)
		} else {
			e.probers = append(e.probers, r)
		}
	}
	e.exitCall()
}

// Flush waits until what nobody will collect is sent (buffered sends, control packets that found a link full), and
// returns how many operations of callers are under way; if there are any it does not wait.
func (e *Engine) Flush() int {
	e.lock()
	defer e.unlock()
	defer e.exitCall()
	for e.closed == nil {
		open := e.outstanding - e.detached
		if open > 0 {
			return open
		}
		if e.detached == 0 && e.todo.pending == 0 && e.todo.stalled == 0 {
			return 0
		}
		e.pause()
	}
	return 0
}
