package frames

import (
	"encoding/binary"
	"fmt"
)

// Kind says what the body of a frame is, and which way it goes: down from gorun to an agent, or up.
type Kind uint8

const (
	File       Kind = iota + 1 // down: the next piece of a program that gorun has built; empty: its end
	Start                      // down: the job and the ranks of this host
	Order                      // down: a signal, a phase of the end
	Stdin                      // down: a piece of the standard input
	StdinEnd                   // down: there is no more
	Released                   // down: the end of a fence
	Answer                     // down: of PMI-1, to the oldest question
	Call                       // down: a rank calls another, which is to make a connection to it
	Agent                      // down: start one more agent on this host, which dials
	OutputRoom                 // down: so many bytes of output more may be sent, u32
	Started                    // up: a rank runs
	AllStarted                 // up: no more ranks are started
	Exited                     // up: a rank has ended
	Aborted                    // up: a rank has called Abort
	Failed                     // up: a rank could not be started, or a host below is lost
	Refused                    // up: a host below could not be reached from there
	Stdout                     // up: output, up to the end of a line
	Stderr                     // up
	StdoutPart                 // up: output whose line goes on in the next frame
	StderrPart                 // up
	StdinRoom                  // up: so many bytes of input more may be sent, u32
	Put                        // up: keys and values that the ranks of a fence have put
	Fence                      // up: all ranks below are in the fence
	Question                   // up: a request of PMI-1
	Finished                   // up: all is done, and all output sent
	Host                       // up: what host an agent is on
	State                      // up: what a rank says that it does
	Ping                       // both: say that you are there
	Pong                       // both
	kinds
)

func (k Kind) String() string {
	names := [kinds]string{"", "file", "start", "order", "stdin", "stdin end", "released", "answer", "call", "agent",
		"output room", "started", "all started", "exited", "aborted", "failed", "refused", "stdout", "stderr", "stdout part",
		"stderr part", "stdin room", "put", "fence", "question",
		"finished", "host", "state", "ping", "pong"}
	if k > 0 && k < kinds {
		return names[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Piece is the longest body of a file, stdin, stdout or stderr frame.
const Piece = 32 << 10

// limit is the longest body of a kind.
func (k Kind) limit() int {
	switch k {
	case Start:
		return 16 << 20 // it holds an environment, and a line for each rank
	case Put:
		return 8 << 20 // what all ranks below have put, if it fits
	case Answer:
		return 1 << 20
	case File, Stdin, Stdout, Stderr, StdoutPart, StderrPart:
		return Piece
	case OutputRoom, StdinRoom:
		return 4
	case StdinEnd, Released, AllStarted, Fence, Ping, Pong:
		return 0
	}
	return 64 << 10
}

// Down reports whether gorun may send it to an agent.
func (k Kind) Down() bool { return k <= OutputRoom || k >= Ping }

// Up reports whether an agent may send it to gorun.
func (k Kind) Up() bool { return k > OutputRoom }

// Frame is one of them. Its body belongs to the receiver.
type Frame struct {
	Kind Kind
	Body []byte
}

const headerSize = 5

// Append adds a frame to b. It panics if the body is too long: the sender has to cut it.
func Append(b []byte, f Frame) []byte {
	if len(f.Body) > f.Kind.limit() {
		panic(fmt.Sprintf("frames: a %v frame of %d bytes", f.Kind, len(f.Body)))
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(f.Body)))
	return append(append(b, byte(f.Kind)), f.Body...)
}

// Next takes the frame apart that b begins with. n is how many bytes it has; 0: it has not all come, and it needs need
// bytes. What Next returns refers to b.
func Next(b []byte) (f Frame, n, need int, err error) {
	if len(b) < headerSize {
		return Frame{}, 0, headerSize, nil
	}
	size, kind := binary.LittleEndian.Uint32(b), Kind(b[4])
	switch {
	case kind == 0 || kind >= kinds:
		return Frame{}, 0, 0, fmt.Errorf("a frame of the unknown kind %d", kind)
	case int64(size) > int64(kind.limit()):
		return Frame{}, 0, 0, fmt.Errorf("a %v frame of %d bytes, which may have %d", kind, size, kind.limit())
	}
	if need = headerSize + int(size); len(b) < need {
		return Frame{}, 0, need, nil
	}
	return Frame{kind, b[headerSize:need]}, need, need, nil
}

// Room is the body of a frame that opens a window.
func Room(n int) []byte { return binary.LittleEndian.AppendUint32(nil, uint32(n)) }

// RoomOf reads it.
func RoomOf(b []byte) (int, error) {
	if len(b) != 4 {
		return 0, fmt.Errorf("%d bytes of room", len(b))
	}
	return int(binary.LittleEndian.Uint32(b)), nil
}
