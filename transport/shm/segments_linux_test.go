package shm

import (
	"context"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/auth"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// mappings is how many segments of peers are mapped here.
func (s *segments) mappings() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.peers)
}

// allocMany allocates more segments than the socket of a link that is narrow holds messages.
func allocMany(t *testing.T, d *end) (all [][]byte) {
	t.Helper()
	n := 1000
	if testing.Short() {
		n = 250
	}
	for range n {
		mem, err := d.alloc(4096)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, mem)
	}
	return all
}

// narrow makes the socket over which a link announces segments hold few messages.
func (l *link) narrow(t *testing.T) {
	t.Helper()
	proc.Eventually(t, "the connection for segments", func() bool { return l.segmentConn() != nil })
	if err := l.segmentConn().SetWriteBuffer(32 << 10); err != nil {
		t.Fatal(err)
	}
}

// unread is how many bytes of the kernel's hold what the peer has not read of this link's socket.
func (l *link) unread(t *testing.T) (bytes int) {
	t.Helper()
	raw, err := l.segmentConn().SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { bytes, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

// Two ranks free what they share at the same time: neither waits for the other, and all of it is unmapped.
func TestFreeAtOnce(t *testing.T) {
	watchdog(t)
	a, b := open(t, Options{Rank: 0, Size: 2}), open(t, Options{Rank: 1, Size: 2})
	var all [2][][]byte
	for i, l := range []*link{a.link(b), b.link(a)} {
		l.narrow(t)
		all[i] = allocMany(t, []*end{a, b}[i])
		for _, mem := range all[i] {
			proc.Eventually(t, "the announcement", func() bool {
				_, key, _ := l.register(transport.HostMem(mem), transport.Readable)
				return key != 0
			})
		}
	}
	for _, d := range []*end{a, b} {
		proc.Eventually(t, "all mappings", func() bool { return d.segments.mappings() == len(all[0]) })
	}
	var wg sync.WaitGroup
	for i, d := range []*end{a, b} {
		wg.Go(func() {
			for _, mem := range all[i] {
				if err := d.free(mem); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, d := range []*end{a, b} {
		proc.Eventually(t, "the end of all mappings", func() bool { return d.segments.mappings() == 0 })
	}
}

// A peer that does not read, because it is stopped, holds up neither register, which the engine calls with its lock
// held, nor free, nor Close.
func TestSegmentsAndStoppedPeer(t *testing.T) {
	watchdog(t)
	release, box := make(chan struct{}), memfd(t, inboxSize, unix.F_SEAL_SHRINK)
	rung, _ := doorbell(t)
	address := liar(t, func(s *auth.Session, p *packetConn) {
		p.out = []int{box, rung, rung}
		s.Answer(make([]byte, welcomeSize))
		<-release
	})
	defer close(release)
	d := open(t, Options{Rank: 0, Size: 2})
	tl, err := d.Connect(context.Background(), 1, address)
	if err != nil {
		t.Fatal(err)
	}
	l, keys := tl.(*link), 0
	l.narrow(t)
	all := allocMany(t, d)
	for _, mem := range all {
		_, key, ok := l.register(transport.HostMem(mem), transport.Readable)
		if !ok {
			t.Fatal("memory that process_vm_readv reaches is not registered")
		}
		if key != 0 {
			keys++
		}
	}
	if keys == 0 || keys == len(all) {
		t.Errorf("%d of %d segments were announced; some fit into the socket, and not all", keys, len(all))
	}
	for _, mem := range all {
		if err := d.free(mem); err != nil {
			t.Error(err)
		}
	}
	d.Close()
}

// A rank without a free descriptor cannot map the segment that a peer announces. Nothing else happens: the peer lives,
// and what it announces later is mapped.
func TestNoDescriptorForSegment(t *testing.T) {
	watchdog(t)
	a, b := open(t, Options{Rank: 0, Size: 2}), open(t, Options{Rank: 1, Size: 2})
	ab, ba := a.link(b), b.link(a)
	share := func() (addr, key uint64) {
		mem, err := a.alloc(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		mem[0] = 7
		addr, key, _ = ab.register(transport.HostMem(mem), transport.Readable)
		if key == 0 {
			t.Fatal("it is not announced")
		}
		return addr, key
	}
	ab.narrow(t) // and so there is a connection
	full := withoutDescriptors(t)
	addr, key := share()
	proc.Eventually(t, "rank 1 to have read the announcement", func() bool { return ab.unread(t) == 0 })
	full()
	b.drain()
	if len(b.in) != 0 {
		t.Fatalf("rank 0 lives, and rank 1 has polled %+v", b.in)
	}
	if b.segments.copyFrom(0, key, make([]byte, 1), addr) {
		t.Fatal("the segment is mapped: there was a descriptor after all")
	}
	dst := make([]byte, 1)
	if _, err := ba.get(transport.HostMem(dst), addr, key, 0); err != nil || dst[0] != 7 {
		t.Errorf("the memory is read without a mapping: %v, %v", dst, err)
	}
	addr, key = share()
	proc.Eventually(t, "the next segment's mapping", func() bool { return b.segments.copyFrom(0, key, dst, addr) })
	send(t, ab, wire.Header{Kind: wire.Eager, Tag: 1}, nil, func() { b.poll() })
}

// withoutDescriptors makes the next descriptors of this process an error, until the function that it returns is called.
// It has one left, for the sender's memory.
func withoutDescriptors(t *testing.T) (end func()) {
	t.Helper()
	var old unix.Rlimit
	next, err := unix.Dup(0)
	if err == nil {
		err = unix.Getrlimit(unix.RLIMIT_NOFILE, &old)
	}
	if err == nil {
		unix.Close(next)
		err = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(next) + 1, Max: old.Max})
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() { unix.Setrlimit(unix.RLIMIT_NOFILE, &old) }
}
