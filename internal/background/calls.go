package background

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorun-mpi/mpi/internal/mpierr"
)

// Process are the calls of a rank, on all communicators, that go on without their callers.
type Process struct {
	Calls Calls
	Open  OpenCalls // those that a context may end
}

// Calls are the calls on a communicator that go on without their callers: if the context ends, or since they have
// returned a request.
type Calls struct {
	mu    sync.Mutex // guards what follows
	n     int
	begun uint64 // ever
	then  func() // what is to be done when n is 0; nil: nothing
}

// Begin counts a call that begins.
func (l *Calls) Begin() {
	l.mu.Lock()
	l.n++
	l.begun++
	l.mu.Unlock()
}

// End returns what is to be done now, or nil.
func (l *Calls) End() (then func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n--; l.n == 0 {
		then, l.then = l.then, nil
	}
	return then
}

// over is end, and does it.
func (l *Calls) over() {
	if then := l.End(); then != nil {
		then()
	}
}

// WhenOver does f when none goes on: now or later.
func (l *Calls) WhenOver(f func()) {
	l.mu.Lock()
	if l.n > 0 {
		l.then, f = f, nil
	}
	l.mu.Unlock()
	if f != nil {
		f()
	}
}

// wait returns when none goes on. It returns how many had begun before, ever.
func (l *Calls) wait() (begun uint64) {
	l.mu.Lock()
	begun = l.begun
	l.mu.Unlock()
	over := make(chan struct{})
	l.WhenOver(func() { close(over) })
	<-over
	return begun
}

// Run runs, on a goroutine of the library, what other ranks of a communicator count on: op is the call, comm
// its name, and left counts the calls on it.
func (p *Process) Run(left *Calls, op, comm string, run func() error) (done <-chan error) {
	ended := make(chan error, 1)
	left.Begin()
	p.Calls.Begin()
	p.Open.Begin(ended, op, comm)
	go func() {
		err := error(mpierr.New("", mpierr.ErrOp, Goexit))
		defer func() {
			p.Open.End(ended, err)
			left.over()
			p.Calls.over()
			ended <- err
		}()
		err = run()
	}()
	return ended
}

// Goexit is the error of an operator, or another function of a caller, that ends the goroutine.
const Goexit = "the operator has ended its goroutine (runtime.Goexit, as by t.FailNow); it must return"

// Grace is how long a rank waits for its calls that go on without their callers, once no rank makes a call any
// more: only what is under way can complete them.
var Grace = time.Minute

// OpenCalls are the calls of a rank, on all communicators, that a context may end: how to name those that go on without
// their callers.
type OpenCalls struct {
	mu     sync.Mutex
	names  map[any]string
	last   bool     // no rank makes a call any more
	failed []string // of names, since then
}

// Begin: key is the call's own. No op: its caller has had its error, and it goes on only in case that others count on
// it.
func (u *OpenCalls) Begin(key any, op, comm string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.names == nil {
		u.names = map[any]string{}
	}
	if u.names[key] = ""; op != "" {
		u.names[key] = fmt.Sprintf("%s of %s", op, comm)
	}
}

// End ends a call: err is its error.
func (u *OpenCalls) End(key any, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.last && err != nil && u.names[key] != "" {
		u.failed = append(u.failed, u.names[key])
	}
	delete(u.names, key)
}

func (u *OpenCalls) none() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.names) == 0
}

// noMore: no rank makes a call any more.
func (u *OpenCalls) noMore() {
	u.mu.Lock()
	u.last = true
	u.mu.Unlock()
}

// hopeless are those that have failed since noMore, and what is under way.
func (u *OpenCalls) hopeless() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := slices.Clone(u.failed)
	for _, name := range u.names {
		if name != "" {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// Finish waits for what goes on without a caller, and returns how many operations of callers are under way. If calls
// do, it says so by last, and what that returns is closed when all ranks are so far: what goes on then, and does not
// end soon, other ranks have never called.
// flush ends them, and returns how many operations of callers are under way.
func (p *Process) Finish(flush func() int, last func() <-chan struct{}) (open int, err error) {
	u := &p.Open
	ended := func() int {
		for begun := p.Calls.wait(); ; {
			open, before := flush(), begun
			if begun = p.Calls.wait(); open == 0 || begun == before {
				return open
			} // else the operations may be of a call that the library has begun meanwhile, for another rank
		}
	}
	if u.none() {
		return ended(), nil
	}
	over := make(chan int, 1)
	go func() { over <- ended() }()
	select {
	case open = <-over:
		return open, nil
	case <-last():
	}
	if u.noMore(); len(u.hopeless()) == 0 {
		return 0, nil
	}
	soon := time.NewTimer(Grace)
	defer soon.Stop()
	select {
	case open = <-over:
	case <-soon.C:
	}
	left := u.hopeless()
	if len(left) == 0 {
		return open, nil
	}
	return 0, errors.New("a context has ended this rank's " + strings.Join(left, ", ") +
		", which other ranks have not called up to their end; every rank of the communicator makes the call")
}
