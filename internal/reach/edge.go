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

// Edge is the stream to an agent. Its end in either direction ends the agent, and with it the ranks.
type Edge struct {
	io.Reader        // what the agent says, and the end of the stream
	io.Writer        // says something to the agent
	Copied    bool   // gorun was sent to the host, which had none of this build
	end       func() // of the stream, and of what is there for it
	why       func() string
	once      sync.Once
}

// Close ends the stream. A process that holds it has a moment to end by itself.
func (e *Edge) Close() { e.once.Do(e.end) }

// Explain has f be Why.
func (e *Edge) Explain(f func() string) { e.why = f }

// Why says how what holds the stream has ended and what it said last, if it ends soon.
func (e *Edge) Why() string { return e.why() }
