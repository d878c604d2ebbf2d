package proc

import (
	"bytes"
	"sync"
)

// Buffer is what a stream of a process has delivered so far: it may be read while the process runs.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write adds to it.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String returns all of it.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
