package mpi

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// leftGrace is how long a rank waits for its calls that go on without their callers, once no rank makes a call any
// more: only what is under way can complete them.
var leftGrace = time.Minute

// unended are the calls of a rank, on all communicators, that a context may end: how to name those that go on without
// their callers.
type unended struct {
	mu     sync.Mutex
	names  map[any]string
	last   bool     // no rank makes a call any more
	failed []string // of names, since then
}

// begin: key is the call's own. No op: its caller has had its error, and it goes on only in case that others count on
// it.
func (u *unended) begin(key any, op, comm string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.names == nil {
		u.names = map[any]string{}
	}
	if u.names[key] = ""; op != "" {
		u.names[key] = fmt.Sprintf("%s of %s", op, comm)
	}
}

func (u *unended) end(key any, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.last && err != nil && u.names[key] != "" {
		u.failed = append(u.failed, u.names[key])
	}
	delete(u.names, key)
}

func (u *unended) none() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.names) == 0
}

// noMore: no rank makes a call any more.
func (u *unended) noMore() {
	u.mu.Lock()
	u.last = true
	u.mu.Unlock()
}

// hopeless are those that have failed since noMore, and what is under way.
func (u *unended) hopeless() []string {
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

// finish waits for what goes on without a caller, and returns how many operations of callers are under way. If calls
// do, it says so by last, and what that returns is closed when all ranks are so far: what goes on then, and does not
// end soon, other ranks have never called.
func (c *Comm) finish(last func() <-chan struct{}) (open int, err error) {
	u := &c.setup.unended
	if u.none() {
		return c.flush(), nil
	}
	over := make(chan int, 1)
	go func() { over <- c.flush() }()
	select {
	case open = <-over:
		return open, nil
	case <-last():
	}
	if u.noMore(); len(u.hopeless()) == 0 {
		return 0, nil
	}
	soon := time.NewTimer(leftGrace)
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

func (c *Comm) flush() int {
	c.setup.left.wait()
	return c.eng.Flush()
}
