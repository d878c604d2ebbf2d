package shm

import (
	"net"
	"sync"
	"time"
)

// life is what ends with a device: its goroutines, and the connections that they wait at.
type life struct {
	mu     sync.Mutex // guards what follows, and the device's fields below its life; set-up and faults only
	closed bool
	conns  map[*net.UnixConn]struct{}
	ending chan struct{} // closed with the device
	wg     sync.WaitGroup
}

// keep records an open connection. It reports whether the device is open: if it is closing, keep closes the connection.
func (l *life) keep(c *net.UnixConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		c.Close()
		return false
	}
	l.conns[c] = struct{}{}
	return true
}

func (l *life) drop(c *net.UnixConn) {
	c.Close()
	l.mu.Lock()
	delete(l.conns, c)
	l.mu.Unlock()
}

// start runs f in a goroutine that Close waits for. It reports whether the device is open: if not, f does not run.
func (l *life) start(f func()) bool {
	if !l.enter() {
		return false
	}
	go func() {
		defer l.wg.Done()
		f()
	}()
	return true
}

// enter keeps Close waiting for wg.Done. It reports whether the device is open: if not, Close does not wait.
func (l *life) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.wg.Add(1)
	}
	return !l.closed
}

// pause waits for t. It reports whether the device is still open.
func (l *life) pause(t time.Duration) bool {
	select {
	case <-time.After(t):
		return true
	case <-l.ending:
		return false
	}
}
