package standstill

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/pml"
)

// Watcher tells the user of RunLocal that no rank can move.
type Watcher struct {
	engines    []*pml.Engine
	goroutines []atomic.Uint64 // of each rank, by Go's number
	tell       func(text string)
	over       chan struct{}
	wg         sync.WaitGroup
}

var (
	// Look is the time between two looks at the ranks. Two looks in a row must find the same.
	Look = time.Second
	// Pause is the longest time between two looks when other goroutines were there.
	Pause = time.Minute
)

const (
	ranksNamed   = 64       // get a line each
	awaitedNamed = 3        // things of a rank are named
	mostStacks   = 32 << 20 // bytes: with longer ones nothing is said
)

// New starts looking at the ranks of these engines. A nil log writes to standard error.
func New(engines []*pml.Engine, log hclog.Logger) *Watcher {
	s := &Watcher{engines: engines, goroutines: make([]atomic.Uint64, len(engines)), over: make(chan struct{})}
	s.tell = func(text string) { fmt.Fprintln(os.Stderr, "mpi: RunLocal: "+text) }
	if log != nil {
		s.tell = func(text string) { log.Warn(text) }
	}
	s.wg.Go(s.watch)
	return s
}

// Enter notes that the calling goroutine is the one of a rank.
func (s *Watcher) Enter(rank int) { s.goroutines[rank].Store(goroutineID()) }

// Stop ends the looks.
func (s *Watcher) Stop() {
	close(s.over)
	s.wg.Wait()
}

func (s *Watcher) watch() {
	pause := Look
	timer := time.NewTimer(pause)
	defer timer.Stop()
	var before *pml.Standstill
	for {
		select {
		case <-s.over:
			return
		case <-timer.C:
		}
		var now *pml.Standstill
		var stacks []stack
		pml.StandsStill(s.engines, func(found *pml.Standstill) {
			if now = found; now.SameAs(before) {
				stacks = allWait(now.Asleep)
			}
		})
		switch {
		case stacks != nil:
			s.tell(s.text(now, stacks))
			return
		case now == nil || !now.SameAs(before):
			pause = Look
		default:
			pause = min(2*pause, Pause) // a look at all goroutines stops them
		}
		before = now
		timer.Reset(pause)
	}
}

// text says which rank waits for what.
func (s *Watcher) text(found *pml.Standstill, stacks []stack) string {
	var b strings.Builder
	b.WriteString("no rank can move: all wait for each other, and no other goroutine could call the library. " +
		"Only a timer or a signal could end this. Ranks are numbered as in world.")
	for rank, awaited := range found.Awaited {
		if rank == ranksNamed {
			fmt.Fprintf(&b, "\n  and %d more ranks", len(s.engines)-rank)
			break
		}
		fmt.Fprintf(&b, "\n  rank %d: ", rank)
		i := slices.IndexFunc(stacks, func(g stack) bool { return g.id == s.goroutines[rank].Load() })
		if i < 0 {
			b.WriteString("has returned")
			continue
		}
		call, at := stacks[i].call()
		fmt.Fprintf(&b, "%s at %s waits for %s", call, at, describeAll(awaited))
	}
	return b.String()
}

func describeAll(awaited []pml.Awaited) string {
	var all []string
	for _, a := range awaited {
		if d := describeAwaited(a); !slices.Contains(all, d) {
			all = append(all, d)
		}
	}
	if more := len(all) - awaitedNamed; more > 0 {
		all = append(all[:awaitedNamed], fmt.Sprintf("%d more", more))
	}
	return strings.Join(all, "; ")
}

func describeAwaited(a pml.Awaited) string {
	rank, tag, on := fmt.Sprintf("rank %d", a.Rank), fmt.Sprintf("tag %d", a.Tag), "another communicator"
	if a.Rank == pml.AnySource {
		rank = "any rank"
	}
	if a.Tag == pml.AnyTag {
		tag = "any tag"
	}
	if a.Ctx < agree.ContextsEach {
		on = "world"
	}
	switch {
	case a.What == pml.AwaitsWord || a.InRound || a.Ctx%agree.ContextsEach == agree.CtxCollective:
		return rank + " in that call"
	case a.What == pml.AwaitsMatch:
		return fmt.Sprintf("%s to receive a message, %s, on %s", rank, tag, on)
	}
	return fmt.Sprintf("a message from %s, %s, on %s", rank, tag, on)
}

// allWait looks at the stacks of all goroutines of the process, and returns them if each waits: asleep of them in calls
// of the library, which are those that the engines know of, and the others where only one of these can end the wait.
func allWait(asleep int) []stack {
	all := stacks()
	for i, g := range all {
		switch {
		case i == 0: // the caller
		case g.asleep():
			asleep--
		case !g.waits():
			return nil
		}
	}
	if asleep != 0 {
		return nil
	}
	return all
}

// stack is a goroutine's, as package runtime prints it.
type stack struct {
	id      uint64
	state   string
	frames  []stackFrame // innermost first
	creator string
}

type stackFrame struct{ function, at string }

// stacks are those of all goroutines, that of the caller first; nil: they are too long.
func stacks() (all []stack) {
	buf := make([]byte, 64<<10)
	n := runtime.Stack(buf, true)
	for ; n == len(buf); n = runtime.Stack(buf, true) {
		if len(buf) >= mostStacks {
			return nil
		}
		buf = make([]byte, 4*len(buf))
	}
	for part := range strings.SplitSeq(string(buf[:n]), "\n\n") {
		all = append(all, parseStack(part))
	}
	return all
}

func parseStack(text string) (g stack) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	head, rest, _ := strings.Cut(strings.TrimPrefix(lines[0], "goroutine "), " ")
	g.id, _ = strconv.ParseUint(head, 10, 64)
	g.state = strings.Trim(rest, "[]:")
	for i := 1; i+1 < len(lines); i += 2 {
		at, _, _ := strings.Cut(strings.TrimSpace(lines[i+1]), " ")
		function, is := strings.CutPrefix(lines[i], "created by ")
		if is {
			g.creator, _, _ = strings.Cut(function, " in goroutine ")
			break
		}
		if open := strings.LastIndexByte(function, '('); open > 0 {
			function = function[:open]
		}
		g.frames = append(g.frames, stackFrame{function, at})
	}
	return g
}

// goroutineID is Go's number of the calling goroutine.
func goroutineID() uint64 {
	var buf [64]byte
	_, rest, _ := bytes.Cut(buf[:runtime.Stack(buf[:], false)], []byte("goroutine "))
	id, _, _ := bytes.Cut(rest, []byte(" "))
	n, _ := strconv.ParseUint(string(id), 10, 64)
	return n
}

const library = "github.com/gorun-mpi/mpi"

// asleep reports whether it sleeps in a call of the library. The Watcher holds the locks of all engines.
func (g *stack) asleep() bool {
	sleeps := false
	for _, f := range g.frames {
		if strings.HasPrefix(f.function, library+"/pml.(*engineLock)") {
			return false
		}
		sleeps = sleeps || f.function == library+"/pml.(*waitFor).park" || f.function == library+"/pml.(*waitFor).follow"
	}
	return sleeps
}

// waits reports whether it is outside the library, and goes on only when another goroutine of which that is known does.
func (g *stack) waits() bool {
	if g.creator == library+".RunLocal" || g.creator == library+"/pml.New" {
		return true // the watcher of an engine that rests does too
	}
	for i, f := range g.frames {
		if f.function == "sync.(*WaitGroup).Wait" && g.calledBy(i, library+".RunLocal") {
			return true
		}
	}
	system := func(f stackFrame) bool { return strings.HasPrefix(f.function, "runtime.") }
	inner := slices.IndexFunc(g.frames, func(f stackFrame) bool { return !system(f) })
	if inner < 0 || !slices.ContainsFunc(g.frames, func(f stackFrame) bool {
		return !system(f) && !strings.HasPrefix(f.function, "os/signal.")
	}) {
		return true
	}
	// A test waits for one that it has started, or that has to end before it.
	return strings.HasPrefix(g.frames[inner].function, "testing.") && strings.HasPrefix(g.state, "chan receive")
}

func (g *stack) calledBy(i int, function string) bool {
	return i+1 < len(g.frames) && g.frames[i+1].function == function
}

// call is the call of the library that the goroutine is in, and where it has been called.
func (g *stack) call() (name, at string) {
	for _, f := range g.frames {
		function, is := strings.CutPrefix(f.function, library+".")
		if is = is && !strings.Contains(f.at, "_test.go:"); is {
			name = function
		} else if name != "" {
			name = strings.NewReplacer("(*", "", ")", "", "[...]", "").Replace(name)
			return name, filepath.Base(f.at)
		}
	}
	return "a call", "a place that is not known"
}
