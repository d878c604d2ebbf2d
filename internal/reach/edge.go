package reach

import (
	"context"
	"io"
	"sync"
)

// hello is the line with which an agent begins. What a login shell prints before is passed over.
const hello = "gorun-agent 1"

// Hello is what an agent says first.
func Hello(w io.Writer) error {
	_, err := io.WriteString(w, "\n"+hello+"\n")
	return err
}

// Reach is a way to have an agent on a host.
type Reach interface {
	// Open starts an agent. It returns when that has said hello.
	Open(ctx context.Context, host string) (*Edge, error)
}

// Error is why there is no agent.
type Error struct {
	Err error
	// Final: to try again is in vain. Unnamed: the name of the host is not known, so that it is in vain unless hosts
	// are still coming up.
	Final, Unnamed bool
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Edge is the stream to an agent. Its end in either direction ends the agent, and with it the ranks.
type Edge struct {
	io.Reader        // what the agent says, and the end of the stream
	io.Writer        // says something to the agent
	end       func() // of the stream, and of what is there for it
	why       func() string
	once      sync.Once
}

// Close ends the stream. A process that holds it has a moment to end by itself.
func (e *Edge) Close() { e.once.Do(e.end) }

// Why says how what holds the stream has ended and what it said last, if it ends soon.
func (e *Edge) Why() string { return e.why() }
