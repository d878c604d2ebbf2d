package door

import (
	"reflect"

	"github.com/gorun-mpi/mpi/accel"
)

// Op is a call of package gpu, as its errors name it.
type Op uint8

// The calls that send or receive a message.
const (
	Send Op = iota
	Ssend
	Isend
	Issend
	SendInit
	SsendInit
	Recv
	Irecv
	RecvInit
	Sendrecv
	Mrecv
	Imrecv
	SendLayout
	IsendLayout
	RecvLayout
	IrecvLayout
)

func (o Op) String() string {
	return "gpu." + [...]string{"Send", "Ssend", "Isend", "Issend", "SendInit", "SsendInit", "Recv", "Irecv", "RecvInit",
		"Sendrecv", "Mrecv", "Imrecv", "SendLayout", "IsendLayout", "RecvLayout", "IrecvLayout"}[o]
}

// WinSpec is what a rank has in a window over device memory.
type WinSpec struct {
	Type  reflect.Type // of an element
	Count int
	Mem   accel.Buffer // no bytes: the elements have none
	Tell  []byte       // what the other ranks are told
	// Quiesce is called once, before the end of the window. It returns when no copy of this rank is under way, and none
	// can reach the memory of other ranks any more.
	Quiesce func() error
	// Release is called once, when no message touches Mem any more. If the context of WinCreate ends while the window is
	// made, that may be never.
	Release func()
}

// Kept is what package gpu does for a persistent request.
type Kept struct {
	Begin func() error // before each start, which returns its error
	// End gets the result of a start as the function of Collect does, also where there was none after Begin.
	End  func(bytes int64, err error) error
	Free func() // after the last End, when the request is freed
}

// Mpi is what package mpi does for package gpu. A comm is a *mpi.Comm, which may be nil, a message a *mpi.Message, and
// a request a *mpi.Request. The elements of a buffer are of type t. Each method checks the arguments as the call of
// package mpi does that has the name of op; the caller has checked the buffer.
type Mpi interface {
	// Type reports why elements of type t cannot be sent.
	Type(t reflect.Type) error
	// Layout calls visit with the runs of bytes that an mpi.Layout names in so many bytes of elements of type t, in the
	// order of a message. Where they are written none is named twice. The error is a *mpi.Error.
	Layout(layout any, t reflect.Type, bytes int64, write bool, visit func(at, n int64)) error
	// Send starts to send b, or makes a persistent request for that.
	Send(comm any, op Op, t reflect.Type, b accel.Buffer, dest, tag int) (request any, err error)
	// Recv starts to receive into b, or makes a persistent request for that.
	Recv(comm any, op Op, t reflect.Type, b accel.Buffer, source, tag int) (request any, err error)
	// Exchange starts a Sendrecv: a request to send and one to receive, which the caller completes both. One is nil where
	// the other has failed before a message has begun.
	Exchange(comm any, t, u reflect.Type, send accel.Buffer, dest, stag int, recv accel.Buffer, source, rtag int) (
		sent, received any, err error)
	// Mrecv starts to receive into b the message that a matched probe has taken.
	Mrecv(message any, op Op, t reflect.Type, b accel.Buffer) (request any, err error)

	// CollectiveBegins calls the hooks of comm before a collective call that gives so many bytes; root: mpi.Undefined if
	// it has none. It returns the *mpi.Comm without hooks, and what CollectiveEnds or CollectiveStarts is given when
	// the call is over; nil: there are no hooks.
	CollectiveBegins(comm any, op string, root int, bytes int64) (plain, seen any)
	// CollectiveEnds calls the hooks after the call, which has got err.
	CollectiveEnds(seen any, err error)
	// CollectiveStarts is CollectiveEnds of a call that has returned a request. It returns what the program gets.
	CollectiveStarts(seen, request any) any
	// Mistaken returns err, the error of a collective call that package gpu does not make because of this rank's buffers,
	// or what is wrong with comm. The other ranks hear of it before if calls are compared.
	Mistaken(comm any, op string, nonblocking bool, err error) error
	// Unable returns the *mpi.Comm with which a rank makes a collective call on comm for which its device has failed with
	// err. The call fails with err here, and at ranks that need this one's elements. nil: Mistaken is to be called, since
	// calls are compared or comm cannot be used.
	Unable(comm any, op string, err error) any
	// MovesHostOnly reports whether the messages of a comm, or a message, go over a library that matches them by itself.
	// The methods that take a buffer then start nothing that can succeed, unless the buffer has no bytes.
	MovesHostOnly(commOrMessage any) bool
	// Collect has f called with the status's bytes and the error of the request, or nil, when its result is collected;
	// the caller that collects gets the error that f returns. f may take long.
	Collect(request any, f func(bytes int64, err error) error)
	// Keep has a persistent request, which was not started yet, call the functions of k.
	Keep(request any, k Kept)
	// WinCreate makes a window over device memory: a *mpi.Win[struct{}], whose calls that move elements are not used. It
	// is a collective call, in which bad, unless it is nil, is the mistake of this rank. told is what all ranks tell, each
	// as many bytes as this one.
	WinCreate(comm any, s WinSpec, bad error) (win any, told []byte, err error)
	// WinCheck makes the checks of an operation with n elements at a rank, and notes it.
	WinCheck(win any, op string, rank int, at int64, n int) error
	// WinPut is WinCheck, and asks the rank to receive the elements: those of host, or of b if that has bytes.
	WinPut(win any, op string, rank int, at int64, n int, host []byte, b accel.Buffer) error
	// WinGet is WinPut the other way.
	WinGet(win any, op string, rank int, at int64, n int, host []byte, b accel.Buffer) error

	// Host is the number of the host of a rank of comm.
	Host(comm any, rank int) int
	// Forget returns when no rank that messages of this process went to has m, memory of d, open any more. It is a
	// *mpi.Error, at once, if requests use the memory.
	Forget(d accel.Driver, m accel.Memory) error
}

var opened Mpi

// Open is for the init function of package mpi.
func Open(m Mpi) { opened = m }

// Through is what package mpi has opened: a package that imports mpi has it from its own init on.
func Through() Mpi { return opened }
