//go:build ucx && linux && cgo

package ucx

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/transport/tcp"
)

// links are the TCP connections of UCX to other hosts. A host that has lost its power leaves unanswered what the kernel
// sends to it, and UCX waits for as long as the kernel sends again: for a quarter of an hour.
type links struct {
	set     int // UCX's descriptor, a set of epoll
	timeout time.Duration
	once    sync.Once
	end     context.CancelFunc
	ctx     context.Context
	wg      sync.WaitGroup

	mu     sync.Mutex
	asking map[int]tcp.Silence // guarded by mu; by descriptor
}

func (l *links) init(set int, timeout time.Duration) {
	l.set, l.timeout, l.asking = set, timeout, map[int]tcp.Silence{}
	l.ctx, l.end = context.WithCancel(context.Background())
}

// watch calls found when silent has something to return, now and then, until stop.
func (l *links) watch(found func()) {
	l.once.Do(func() {
		l.wg.Go(func() {
			tick := time.NewTicker(tcp.LookEvery(l.timeout))
			defer tick.Stop()
			for {
				select {
				case <-l.ctx.Done():
					return
				case <-tick.C:
				}
				if len(l.silent()) > 0 {
					found()
				}
			}
		})
	})
}

func (l *links) stop() {
	l.end()
	l.wg.Wait()
}

// silent returns the descriptors of the connections whose other end has not answered for the timeout.
func (l *links) silent() (fds []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.asking
	l.asking = map[int]tcp.Silence{}
	for _, fd := range socketsIn(l.set) {
		s := before[fd]
		if s.Look(fd) >= l.timeout {
			fds = append(fds, fd)
		}
		l.asking[fd] = s
	}
	return fds
}

// cut shuts down the silent connections, which makes UCX end what uses them. Its caller is that of Poll: no step of UCX
// closes a descriptor meanwhile.
func (l *links) cut() (n int) {
	fds := l.silent()
	for _, fd := range fds {
		unix.Shutdown(fd, unix.SHUT_RDWR)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, fd := range fds {
		delete(l.asking, fd) // UCX closes it soon
	}
	return len(fds)
}

// socketsIn returns the TCP sockets in a set of epoll and in the sets within it: UCX has one of each interface.
func socketsIn(set int) (fds []int) {
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", set))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(info)) {
		var fd int
		if n, _ := fmt.Sscanf(line, "tfd: %d", &fd); n != 1 {
			continue
		}
		if _, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			fds = append(fds, fd)
		} else {
			fds = append(fds, socketsIn(fd)...)
		}
	}
	return fds
}
