package pml

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gorun-mpi/mpi/internal/eventset"
	"github.com/gorun-mpi/mpi/internal/waitpolicy"
	"github.com/gorun-mpi/mpi/transport"
)

// Config of an Engine.
type Config struct {
	Rank, Size int
	Net        transport.Device // to the other ranks; may be nil if Size is 1
	Self       transport.Device // to this rank; may be nil if Net does that by itself (transport.Tagged)
	// Lookup returns what a peer's engine gives as its Address. It may block until ctx ends.
	Lookup func(ctx context.Context, peer int) ([]byte, error)
	// Known is Lookup where that need not ask another process, and otherwise returns nil. It may itself be nil.
	Known func(peer int) []byte

	EagerMax       int               // bytes; 0: what the link prefers
	UnexpectedMax  int64             // bytes that unmatched messages of all senders may take here
	Wait           waitpolicy.Policy // what callers do while they wait and find nothing
	ConnectTimeout time.Duration

	Offload OffloadMode // whether a device that can match tags does

	Debug      func(msg string, args ...any) // nil: silent
	Info       func(msg string, args ...any) // nil: silent
	NewRequest func() *Request               // makes the requests that callers hold; nil: new(Request)
}

// OffloadMode is about devices that can match tags (transport.Offload).
type OffloadMode uint8

const (
	OffloadAuto OffloadMode = iota // where there is one
	OffloadOff                     // software matches everything
)

// Engine is one rank's messaging. Its methods may be called by any goroutine.
type Engine struct {
	engineLock // guards everything below

	cfg    Config
	dev    transport.Device // polled: Net, or Self in a world of one
	sleep  *eventset.Set    // where this rank sleeps until dev has something
	pkts   [16]transport.Packet
	path   path     // how messages are matched and moved
	links  linkPath // path, if direct; without peers, if not
	direct bool     // path is links: short messages go there without a dynamic call but the link's

	load      load
	requests  requests
	schedules schedules
	windows   windows
	probers   probers
	boards    boards
	dropped   dropped // contexts that have ended
	wait      waitState
	parked    sema // that of what the leader waits for while it sleeps in the device: see complete
	pace      pace

	server   server // what is to be started yet
	recovery recovery

	flushing   sync.Mutex // held by Flush: of those who lead there is one that takes long
	flushLeads bool       // Flush leads: the end of a send that no caller collects may be what it waits for

	stats  Stats
	closed error // why calls are refused; nil while open
	// refuses: closed is not nil, or a context is revoked. Requests that start need a look.
	refuses bool
	gone    bool // and the devices are not used any more
	wg      sync.WaitGroup
	stop    context.CancelFunc
	ctx     context.Context
}

// New makes an engine. Nothing is connected yet. The error is that the system refuses what is needed to sleep; the
// devices are the caller's then.
func New(cfg Config) (*Engine, error) {
	if cfg.ConnectTimeout <= 0 {
		cfg.ConnectTimeout = time.Minute
	}
	if cfg.NewRequest == nil {
		cfg.NewRequest = func() *Request { return new(Request) }
	}
	e := &Engine{cfg: cfg, dev: cfg.Net, pace: newPace(cfg.Wait)}
	if e.dev == nil {
		e.dev = cfg.Self
	}
	e.pace.glances = e.dev.Facts().Glances
	e.requests.handles.init()
	e.requests.fresh = func() *Request {
		r := cfg.NewRequest()
		r.recv.Owner, r.e = r, e
		return r
	}
	var err error
	if e.sleep, err = eventset.New(e.dev); err != nil {
		return nil, err
	}
	e.links.init(e)
	e.schedules.init(e)
	e.path, e.direct = &e.links, true
	if cfg.Net != nil {
		if dev := cfg.Net.Facts().Tagged; dev != nil {
			e.path, e.direct = newTaggedPath(e, dev), false
		}
		if in := cfg.Net.Facts().Introducer; in != nil {
			in.Introduce(e.Address())
		}
	}
	if e.direct && e.links.offload.dev == nil {
		e.links.shorts.next = e.dev.Facts().Short
	}
	e.ctx, e.stop = context.WithCancel(context.Background())
	e.wg.Add(1)
	go e.watch()
	return e, nil
}

// Address is what the other ranks' Lookup must return for this one.
func (e *Engine) Address() []byte { return e.path.address() }

// Close ends the engine: requests that are under way fail with err. The devices are closed too; what they still do with
// a request's buffer ends with that, and the request then.
func (e *Engine) Close(err error) error {
	e.lock()
	if e.gone {
		e.unlock()
		return nil
	}
	if e.closed == nil {
		e.fail(err)
	}
	e.gone = true
	e.links.vigil.end()
	e.unlock()
	e.stop()
	e.sleep.Close()
	e.wg.Wait()
	e.lock()
	e.links.transfers.accel.finish() // before the peers hear of the end: a copy may read their memory
	e.unlock()
	var errs [2]error
	for i, d := range []transport.Device{e.cfg.Net, e.cfg.Self} {
		if d != nil {
			errs[i] = d.Close()
		}
	}
	e.lock()
	e.path.finish()
	e.schedules.advance()
	e.windows.tell(e)
	e.unlock()
	return errors.Join(errs[:]...)
}

// EnsureLink makes sure that there is a link to a rank that is said to have ended. If that is so the link fails, and
// with it what waits for the rank.
func (e *Engine) EnsureLink(rank int) {
	e.lock()
	defer e.unlock()
	if l, ok := e.path.(*linkPath); ok && e.closed == nil {
		p := l.peer(int32(rank))
		p.end.sought = true
		p.ensureConnected()
	}
	e.startServer()
}

// Fail makes every call that is under way or comes later return err; one whose buffer the device or a peer may touch
// does so when that is over.
func (e *Engine) Fail(err error) { FailAll([]*Engine{e}, err) }

// FailAll is Fail for ranks of one process. It holds the locks of all, always in one order: no rank hears that another
// has cut their link before its own calls have ended with err.
func FailAll(ranks []*Engine, err error) {
	for _, e := range ranks {
		e.lock()
	}
	for _, e := range ranks {
		if e.closed == nil {
			e.fail(err)
		}
	}
	for _, e := range ranks {
		e.unlock()
		e.sleep.Interrupt()
	}
}

// fail ends the engine with an error. The caller holds the lock.
func (e *Engine) fail(err error) {
	e.closed, e.refuses = err, true
	e.boards.failed(int32(e.cfg.Rank), err) // before the peers are given up, which have not failed
	e.path.fail(err)
	e.probers.end(e, everyProbe, err)
	e.schedules.fail()
	e.windows.tell(e)
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
	return e.load.outstanding
}

// DropContext ends a communicator: its unmatched messages are dropped, and so are those that come later; its posted
// receives fail with err.
func (e *Engine) DropContext(ctx uint32, err error) {
	e.lock()
	defer e.unlock()
	e.dropped.add(ctx)
	e.path.drop(ctx, err)
	e.probers.end(e, func(r *Request) bool { return r.recv.Ctx == ctx }, err)
	e.exitCall()
}

// Dropped reports whether messages with that context are dropped when they come.
func (e *Engine) Dropped(ctx uint32) bool {
	e.lock()
	defer e.unlock()
	return e.dropped.has(ctx)
}

// ReuseContexts ends what DropContext has begun for n contexts below reusable: another communicator may have them. The
// caller knows that no message of the earlier one is under way to this rank.
func (e *Engine) ReuseContexts(first, n uint32) {
	e.lock()
	defer e.unlock()
	for ctx := first; ctx < first+n; ctx++ {
		e.dropped.remove(ctx)
	}
}

// Size is the number of ranks in the world.
func (e *Engine) Size() int { return e.cfg.Size }

// Contacts are the ranks that this one may have sent to. ordered: a message that is sent to one of them now arrives
// after all that were sent before, whatever their contexts.
func (e *Engine) Contacts() (ranks []int32, ordered bool) {
	if !e.direct {
		return nil, false
	}
	e.lock()
	defer e.unlock()
	for rank, p := range e.links.peers {
		if p != nil {
			ranks = append(ranks, int32(rank))
		}
	}
	return ranks, true
}

// Draining reports whether a device that matches tags may still hold a receive that has been asked back, such as a
// receive of a dropped context.
func (e *Engine) Draining() bool {
	e.lock()
	defer e.unlock()
	return e.links.offload.asking()
}

// Flush waits until what no caller will collect is sent (buffered sends, control packets that found a link full) or
// over (operations of rounds whose caller's context has ended), and returns how many operations of callers are under
// way; if there are any it does not wait.
func (e *Engine) Flush() int {
	e.flushing.Lock()
	defer e.flushing.Unlock()
	e.lock()
	defer e.unlock()
	defer e.exitCall()
	w := waitFor{e: e, flush: true}
	w.sleeps() // also if there is nothing to wait for: a rank that ends may have left out what another one waits for
	for !w.ready() {
		e.flushLeads = e.wait.leader == noLeader
		led := w.tryLead()
		e.flushLeads = false
		if !led {
			e.pause(stepOffer) // to a caller that leads and whose operation is done; it does not take long
		}
	}
	if e.closed != nil {
		return 0
	}
	return e.load.open()
}

// Transport is the name of the device by which this rank reaches others; of several, shm+tcp.
func (e *Engine) Transport() string {
	if e.cfg.Net == nil {
		return e.cfg.Self.Name()
	}
	return e.cfg.Net.Name()
}

// TransportTo returns the name of the transport that has connected a rank; "": it is not connected, or was not.
func (e *Engine) TransportTo(rank int) string {
	dev := e.dev
	if rank == e.cfg.Rank && e.cfg.Self != nil {
		dev = e.cfg.Self
	}
	if via := dev.Facts().Via; via != nil {
		return via(rank)
	}
	return dev.Name()
}

// Stats returns the counters.
func (e *Engine) Stats() Stats {
	e.lock()
	s := e.path.count(e.stats)
	e.unlock()
	if e.cfg.Net != nil {
		if refused := e.cfg.Net.Facts().Refused; refused != nil {
			s.Refused = refused()
		}
	}
	return s
}
