package mpi

import (
	"runtime/trace"

	"github.com/gorun-mpi/mpi/internal/report"
)

// Hooks are functions of the program that see each communicating call of a rank, as a tool of the PMPI interface does;
// §15.2. The goroutine that makes the call calls them. They run for several goroutines at the same time, and for all
// ranks of RunLocal. A hook that is nil is not called.
//
// A Call is the library's: a hook must not keep it. A hook may make calls on Call.Comm, which no hook sees.
type Hooks struct {
	Before func(*Call) // the call has not begun
	After  func(*Call) // the call is over, and its caller has not got the result yet
}

// WithHooks has h called around each communicating call of the rank: messages, probes, waits, collective calls, calls
// with a window, calls that make a communicator, and Finalize. Hooks see a call that is made of others, such as
// BcastValue, as those others, and see no call that does not communicate.
func WithHooks(h Hooks) Option { return func(o *options) { o.Hooks = &h } }

// around returns hooks that call inner's between h's, which may be nil: what inner measures does not include the
// hooks of h.
func (h *Hooks) around(inner *Hooks) *Hooks {
	if h == nil {
		return inner
	}
	return &Hooks{
		Before: func(k *Call) {
			if h.Before != nil {
				h.Before(k)
			}
			inner.Before(k)
		},
		After: func(k *Call) {
			inner.After(k)
			if h.After != nil {
				h.After(k)
			}
		},
	}
}

// CallKind is what a call does.
type CallKind uint8

// The kinds of calls. A nonblocking call has the kind of its blocking form, and so has Start.
const (
	CallOther      CallKind = iota // Cancel, Finalize
	CallSend                       // sends Bytes to Peer
	CallRecv                       // receives Bytes from Peer
	CallSendrecv                   // receives Bytes from Peer, and sends SentBytes to Dest
	CallProbe                      // looks for a message of Peer
	CallWait                       // waits for requests, or tests them
	CallCollective                 // gives Bytes; Peer is the root
	CallPut                        // writes, or updates, Bytes at Peer
	CallGet                        // reads Bytes of Peer
	CallSync                       // opens or ends an epoch of a window, or flushes operations
	CallCreate                     // makes a communicator or a window, or frees one
	CallPrepare                    // makes a persistent request, and moves nothing
)

var callKinds = [...]string{CallOther: "other", CallSend: "send", CallRecv: "recv", CallSendrecv: "sendrecv",
	CallProbe: "probe", CallWait: "wait", CallCollective: "collective", CallPut: "put", CallGet: "get",
	CallSync: "sync", CallCreate: "create", CallPrepare: "prepare"}

// String is a word for the kind.
func (k CallKind) String() string {
	if int(k) < len(callKinds) {
		return callKinds[k]
	}
	return "unknown"
}

// Call is a call that hooks see.
type Call struct {
	Op   string   // as in errors: "Send", "Iallreduce", "gpu.Isend"
	Kind CallKind // what it does
	Rank int      // of the caller, in the world

	Comm    *Comm  // on which the call is, without hooks; nil: the call has none
	Context uint32 // the communicator's number, which all its ranks have; a number is used again after Free

	Peer  int // dest, source, root or rank, as the caller named it; After a receive, the source. Undefined: none
	World int // Peer's rank in the world, where Peer is a rank; else Peer
	Tag   int // After a receive, the message's. Undefined: none
	// Bytes is the length of a message: of a receive, the room Before, and the message's length After. Of a collective
	// call it is what the rank gives, or what it gets if it gives nothing in a buffer of its own.
	Bytes int64

	// What CallSendrecv sends.
	Dest, DestWorld, DestTag int
	SentBytes                int64

	Request *Request    // which the call has returned (After), or is about
	Done    []Completed // After a wait or a test: the requests that it has completed
	Err     error       // After: what the caller gets
	Data    any         // what Before has left for After

	kept
	at   *hooked
	keep bool // its request is persistent

	began  int64         // the reporter's
	region *trace.Region // the marker's
}

// kept is what a Call keeps between two calls: memory of lists, which have no elements then, as Done.
type kept struct {
	own    bool             // it is hookState.own, in use
	plain  []*Request       // of a set
	stands []*standIn       // what stands for these; nil: the program has the plain one
	moved  []report.Message // the reporter's
	spare  []*standIn       // at most mostSpare; not in use, and they stay here
}

// Completed is a request whose result a wait or a test returns.
type Completed struct {
	Request *Request
	Op      string   // that made or started it
	Kind    CallKind // of Op
	Comm    *Comm
	Context uint32

	Peer, World, Tag int
	Bytes            int64 // of a receive: that have come
	Cancelled        bool  // nothing has moved
	Err              error
}
