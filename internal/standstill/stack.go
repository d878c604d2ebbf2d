package standstill

import (
	"bytes"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

const mostStacks = 32 << 20 // bytes: with longer ones nothing is said

// allWait looks at the stacks of all goroutines of the process, and returns them if each waits: asleep of them in calls
// of the library, which are those that the engines know of, and the others where only one of these can end the wait.
func allWait(asleep int) []stack {
	if all := stacks(); waiting(all, asleep) {
		return all
	}
	return nil
}

// waiting reports whether allWait returns these stacks, of which the first is the caller's.
func waiting(all []stack, asleep int) bool {
	for i := range all {
		switch g := &all[i]; {
		case i == 0:
		case g.asleep():
			asleep--
		case !g.waits() && !g.waitsInLibrary() && !g.serves():
			return false
		}
	}
	return asleep == 0 && len(all) > 0
}

// stack is a goroutine's, as package runtime prints it.
type stack struct {
	id      uint64
	state   string
	frames  []stackFrame // innermost first
	creates stackFrame   // the statement that made it, in the function that made it
}

type stackFrame struct{ function, args, at string }

// stacks are the stacks of all goroutines, the caller's first; nil: they are too long.
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
			function, _, _ = strings.Cut(function, " in goroutine ")
			g.creates = stackFrame{function: function, at: at}
			break
		}
		args := ""
		if open := strings.LastIndexByte(function, '('); open > 0 {
			function, args = function[:open], function[open+1:]
		}
		g.frames = append(g.frames, stackFrame{function, args, at})
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

// asleep reports whether it sleeps in a call of the library, and nothing has woken it. The locks of all engines are
// held.
func (g *stack) asleep() bool { return g.sleepsIn("/pml.(*waitFor).park", "/pml.(*waitFor).follow") }

// serves reports whether it waits for messages of other ranks, which it answers, and nothing has woken it. It is on its
// way when it waits for a lock.
func (g *stack) serves() bool { return g.sleepsIn("/pml.(*Engine).serveWait") }

// sleepsIn reports whether it sleeps in one of these functions of the library, and nothing has woken it.
func (g *stack) sleepsIn(functions ...string) bool {
	sleeps := false
	switch state, _, _ := strings.Cut(g.state, ","); state {
	case "chan receive", "select", "syscall": // not "sync.Mutex.Lock" or "GC assist wait", say, on the way back
	default:
		return false
	}
	for _, f := range g.frames {
		if strings.HasPrefix(f.function, library+"/pml.(*engineLock)") {
			return false
		}
		name, is := strings.CutPrefix(f.function, library)
		sleeps = sleeps || is && slices.Contains(functions, name)
	}
	return sleeps
}

// waits reports whether it is outside the library, and goes on only when another goroutine of which that is known does.
func (g *stack) waits() bool {
	if g.runs() {
		return false
	}
	if made := g.creates.function; made == library+".RunLocal" || made == library+"/pml.New" {
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

// waitsInLibrary reports whether it is one of the library's, which does nothing until something comes from outside of
// the process, be it memory that a peer on this host shares, or waits in Init or Finalize for the other ranks.
func (g *stack) waitsInLibrary() bool {
	began := g.beganInLibrary()
	if slices.Contains(looks, began) {
		return true
	}
	if g.runs() {
		return false
	}
	for _, f := range g.frames {
		switch f.function { // not (*Client).result: processes that Spawn starts have all the time that they need
		case library + "/internal/pmi.(*Client).reply", library + "/internal/pmi.(*serverConn).next",
			library + "/transport/shm.(*segments).receive":
			return true
		}
	}
	if slices.ContainsFunc(g.frames, stackFrame.isUsers) {
		return false
	}
	return slices.Contains(idle, began)
}

// beganInLibrary is the outermost function of the library on the stack, without the library's path.
func (g *stack) beganInLibrary() string {
	for _, f := range slices.Backward(g.frames) {
		if name, is := strings.CutPrefix(f.function, library); is {
			return name
		}
	}
	return ""
}

// looks are timers of the library, which look now and then whether something has come that they have not heard of. If
// it has, the rank moves, and the next look at it says so. On a busy machine such a goroutine nearly always waits for
// its turn.
var looks = []string{"/internal/eventset.(*Check).look-fm", "/internal/eventset.(*Check).look"}

// idle are the library's goroutines that do nothing until a packet, the launcher or a stranger comes. Others connect,
// or make a connection again.
var idle = []string{
	"/internal/auth.(*Acceptor).accept", "/internal/auth.(*Acceptor).logNotices",
	"/internal/bootstrap/rank0.(*Member).watch", "/internal/join.(*Member).Answer.func1",
	"/internal/join.(*Member).followDeaths", "/internal/join.(*Member).followRoot", "/internal/pmi.(*Client).read",
	"/internal/pmi.(*serverConn).write", "/transport/shm.(*contacts).open.func1", "/transport/shm.(*link).watch",
	"/transport/tcp.(*Device).watch", "/transport/verbs.(*controlPlane).loop",
	"/transport/verbs.(*Device).watch.func1", "/transport/verbs.(*Device).watchDevice.func1",
	"/transport/verbs.(*Device).watchTails", ".watchLauncher", ".endAlone",
}

// isLibrarys reports whether it is of a package of the library that no user writes. A test is a user.
func (f stackFrame) isLibrarys() bool {
	rest, ok := strings.CutPrefix(f.function, library+"/")
	return ok && !strings.HasPrefix(rest, "examples/") && !strings.HasPrefix(rest, "benchmarks/") &&
		!strings.Contains(f.at, "_test.go:")
}

// isUsers reports whether it is of neither the library nor Go.
func (f stackFrame) isUsers() bool {
	called := strings.HasPrefix(f.function, library+".") && !strings.Contains(f.at, "_test.go:")
	return !called && !f.isLibrarys() && !standard(f.function)
}

// standard reports whether a function is of a package of Go that the library uses.
func standard(function string) bool {
	for _, name := range []string{"runtime", "internal", "net", "sync", "os", "syscall", "time", "io", "bufio", "context",
		"crypto", "golang.org/x"} {
		if rest, ok := strings.CutPrefix(function, name); ok && (rest[0] == '.' || rest[0] == '/') {
			return true
		}
	}
	return false
}

// runs reports whether it can go on.
func (g *stack) runs() bool {
	return strings.HasPrefix(g.state, "running") || strings.HasPrefix(g.state, "runnable")
}

// call is the call of the library that the goroutine is in, and where it has been called; "": it is in none.
func (g *stack) call() (name, at string) {
	for _, f := range g.frames {
		function, is := strings.CutPrefix(f.function, library+".")
		is = is && !strings.Contains(f.at, "_test.go:")
		switch {
		case is && function == "Main" && name != "": // that calls Finalize
		case is:
			name, at = function, g.creates.at // of go mpi.Recv(...)
		case name != "" && f.isLibrarys(): // package gpu, which calls mpi, or a part of the library that mpi calls back
		case name != "":
			return plainName(name), filepath.Base(f.at)
		case f.isUsers():
			return "", "" // of the user, which the library calls
		}
	}
	if made := g.creates; name == "" || made.isLibrarys() || strings.HasPrefix(made.function, library+".") &&
		!strings.Contains(made.at, "_test.go:") {
		return "", ""
	}
	return plainName(name), filepath.Base(at)
}

// plainName is a function's name without what only the compiler knows.
func plainName(name string) string {
	name, _, _ = strings.Cut(strings.NewReplacer("(*", "", ")", "", "[...]", "").Replace(name), ".func")
	return name
}

// where is what the goroutine does that is in no call of the library, and at which line of the user's.
func (g *stack) where() string {
	what, _, _ := strings.Cut(g.state, ",")
	switch {
	case what == "sleep":
		what = "sleeps"
	case g.runs():
		what = "computes"
	case what == "IO wait" || what == "syscall":
		what = "is in a call of the system (reads, writes or waits)"
	case strings.HasPrefix(what, "chan ") || what == "select":
		what = "waits for a channel (" + what + ")"
	default:
		what = "waits for another goroutine (" + what + ")"
	}
	for _, f := range g.frames {
		if f.isUsers() {
			return what + ", in no call of mpi, at " + filepath.Base(f.at)
		}
	}
	return what + ", in no call of mpi"
}
