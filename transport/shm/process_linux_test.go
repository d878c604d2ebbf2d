package shm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/testkit/leak"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

func init() {
	roles["stream"] = streamForEver
	roles["no-readv"] = withoutReadv
	roles["file-limit"] = func() error { return withoutRoom(unix.RLIMIT_FSIZE, 256<<10, Options{Size: 2}) }
	roles["address-limit"] = func() error {
		// Go's heap grows by 64 MiB of address space at a time, and each of its threads takes 8 MiB and more. Go ends
		// the process where it cannot have that. So the threads, and room for what the test itself needs, are made
		// before.
		proc.Threads(16)
		runtime.KeepAlive(make([]byte, 32<<20))
		runtime.GC()
		used := uint64(proc.Self().Memory("VmSize"))
		return withoutRoom(unix.RLIMIT_AS, used+32<<20, Options{Size: 2, Bulk: 64 << 20})
	}
}

// streamForEver is rank 1 and sends to the device whose address it reads until it is killed.
func streamForEver() error {
	d, err := newDevice(Options{Rank: 1, Size: 2})
	if err != nil {
		return err
	}
	proc.Send(d.Address())
	address, err := proc.Recv()
	if err != nil {
		return err
	}
	l, err := d.Connect(context.Background(), 0, address)
	if err != nil {
		return err
	}
	out := make([]byte, 1<<20)
	addr, key, _ := l.Caps().RMA.Register(transport.HostMem(out), transport.Readable)
	h := wire.Header{Kind: wire.RTS, Flags: wire.Readable, Addr: addr, Key: key, Len: uint64(len(out))}
	l.TrySend(&h, nil)
	for i := uint64(0); ; {
		if l.TrySend(&wire.Header{Kind: wire.Data, Addr: i}, out[:10_000]) {
			i++
		}
	}
}

// A process is killed in the middle of a stream. Whole packets that it had sent are delivered in order, then it is
// reported down, once. Packets to it are dropped, a READ from it is an error, and nothing of it remains.
func TestKilledPeer(t *testing.T) {
	watchdog(t)
	files, mappings := held(t)
	t.Run("all", func(t *testing.T) {
		d := open(t, Options{Rank: 0, Size: 2})
		o := proc.Start(t, "stream")
		l, err := d.Connect(context.Background(), 1, o.Recv())
		if err != nil {
			t.Fatal(err)
		}
		o.Send(d.Address())
		d.until("the stream", func() bool { return len(d.in) > 1000 })
		rma, first := l.Caps().RMA, d.in[0].Header
		dst := make([]byte, 1<<20)
		if caps := l.Caps(); caps.RMA == nil {
			t.Errorf("the memory of a child cannot be read here: %s", caps.WhyNoRMA)
		} else if _, err := rma.Get(transport.HostMem(dst), first.Addr, first.Key, 0); err != nil {
			t.Error(err)
		}
		o.Kill()
		d.until("its end", func() bool { return len(d.downs()) > 0 })
		d.drain()
		last := d.in[len(d.in)-1]
		if last.Event != transport.Down || len(d.downs()) != 1 || !errors.Is(last.Err, transport.ErrPeerGone) {
			t.Errorf("down %v, last %+v", d.downs(), last)
		} else if last.Err.Error() != "its process has ended" {
			t.Errorf("%q", last.Err)
		}
		for i, p := range d.in[1 : len(d.in)-1] {
			if p.Header.Addr != uint64(i) || len(p.Payload) != 10_000 {
				t.Fatalf("packet %d is %d of %d bytes", i, p.Header.Addr, len(p.Payload))
			}
		}
		for range 10_000 {
			if !l.TrySend(&wire.Header{Kind: wire.Eager}, make([]byte, 1000)) {
				t.Fatal("a packet to the dead is refused: its sender would try for ever")
			}
		}
		if _, err := rma.Get(transport.HostMem(dst), first.Addr, first.Key, 0); err == nil {
			t.Error("memory of the dead is read")
		}
	})
	nothingLeft(t, files, mappings)
}

// runRole runs a role that does all of a test by itself and says "ok".
func runRole(t *testing.T, role string) {
	t.Helper()
	watchdog(t)
	printed, err := proc.Run(t, role)
	if t.Log(printed); err != nil || !strings.HasSuffix(printed, "ok\n") {
		t.Error(err)
	}
}

// process_vm_readv forbidden by seccomp: the link says so and why, and everything else works.
func TestReadForbidden(t *testing.T) { runRole(t, "no-readv") }

func withoutReadv() error {
	if err := proc.ForbidReadv(); err != nil {
		return err
	}
	a, err1 := newDevice(Options{Rank: 0, Size: 2})
	b, err2 := newDevice(Options{Rank: 1, Size: 2})
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	l, err := a.Connect(context.Background(), 1, b.Address())
	if err != nil {
		return err
	}
	c := l.Caps()
	if why := c.WhyNoRMA; c.RMA != nil || !strings.Contains(why, "process_vm_readv") ||
		!strings.Contains(why, "not permitted") {
		return fmt.Errorf("RMA is %v because of %q", c.RMA, why)
	}
	if err := streamOver(l, b); err != nil {
		return err
	}
	fmt.Println("ok")
	return errors.Join(a.Close(), b.Close())
}

// streamOver sends fragments of all sizes and checks what arrives, without ever going to sleep.
func streamOver(l transport.Link, b *Device) error {
	rng := rand.New(rand.NewPCG(1, 1))
	pattern := make([]byte, 1<<20) // FragMax may grow
	for i := range pattern {
		pattern[i] = byte(i)
	}
	var sent [][]byte
	pkts := make([]transport.Packet, 4)
	next := 0
	poll := func() error {
		for _, p := range pkts[:b.Poll(pkts)] {
			if p.Event != transport.Arrived || int(p.Header.Addr) != next || !bytes.Equal(p.Payload, sent[next]) {
				return fmt.Errorf("packet %d: %+v", next, p.Header)
			}
			sent[next] = nil
			next++
		}
		return nil
	}
	for i := range 3000 {
		f := pattern[i%256:][:1+rng.IntN(l.Caps().FragMax)]
		sent = append(sent, f)
		for limit := time.Now().Add(patience); !l.TrySend(&wire.Header{Kind: wire.Data, Addr: uint64(i)}, f); {
			f = f[:min(len(f), l.Caps().FragMax)]
			sent[i] = f
			if time.Now().After(limit) {
				return fmt.Errorf("no room for fragment %d of %d bytes; %d have been taken out", i, len(f), next)
			}
			if err := poll(); err != nil {
				return err
			}
		}
	}
	for next < len(sent) {
		if err := poll(); err != nil {
			return err
		}
	}
	return nil
}

// No room for shared memory is an error of New that says how much was needed, and never a signal.
func TestNoRoom(t *testing.T) {
	t.Run("file size", func(t *testing.T) { runRole(t, "file-limit") })
	t.Run("address space", func(t *testing.T) { runRole(t, "address-limit") })
}

func withoutRoom(resource int, limit uint64, opt Options) error {
	if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
		return err
	}
	files := leak.Files()
	d, err := newDevice(opt)
	var room *NoRoomError
	switch {
	case err == nil:
		d.Close()
		return errors.New("there is room, it should not fit")
	case !errors.As(err, &room) || room.Bytes <= 0 ||
		!errors.Is(err, transport.ErrUnavailable) || !errors.Is(err, transport.ErrNoMemory):
		return fmt.Errorf("not the error that says how much was needed: %w", err)
	case !strings.Contains(err.Error(), strconv.Itoa(room.Bytes)):
		return fmt.Errorf("%d bytes are not in the text: %w", room.Bytes, err)
	}
	if after := leak.Files(); after > files {
		return fmt.Errorf("%d descriptors after, %d before", after, files)
	}
	fmt.Println(err)
	fmt.Println("ok")
	return nil
}

// If there is no room for the bulk area of a ring when it is first used, fragments go through the small area, and
// FragMax shrinks to what fits there.
func TestNoRoomForBulk(t *testing.T) {
	watchdog(t)
	for _, local := range []int{2, 100} {
		a, b := open(t, Options{Rank: 0, Size: 2, Local: local}), open(t, Options{Rank: 1, Size: 2, Local: local})
		l := a.link(b)
		l.fd = memfd(t, 0, unix.F_SEAL_GROW) // which cannot be made larger
		if err := streamOver(l, b.Device); err != nil {
			t.Errorf("%d ranks: %v", local, err)
		}
		if l.bulk {
			t.Error("the bulk area is committed although there is no room for it")
		}
	}
}

// All descriptors and mappings are closed after Close, and while devices are open nothing has a name anywhere.
func TestNothingIsLeft(t *testing.T) {
	watchdog(t)
	files, mappings := held(t)
	named := true
	least := 3
	if testing.Short() {
		least = 1
	}
	for rounds := 0; rounds < least || named && rounds < 50; rounds++ { // in some round no other process makes names
		before := names(t)
		var ds []*Device
		for rank := range 5 {
			d, err := newDevice(Options{Rank: rank, Size: 5})
			if err != nil {
				t.Fatal(err)
			}
			ds = append(ds, d)
		}
		for _, d := range ds {
			mem, err := d.alloc(100_000)
			if err != nil {
				t.Fatal(err)
			}
			for rank, to := range ds {
				if to == d {
					continue
				}
				l, err := d.Connect(context.Background(), rank, to.Address())
				if err != nil {
					t.Fatal(err)
				}
				l.Caps().RMA.Register(transport.HostMem(mem), transport.Readable)
				l.TrySend(&wire.Header{Kind: wire.Data}, mem[:20_000])
			}
		}
		now := names(t)
		if named = named && !slices.Equal(now, before); named && rounds == 49 {
			t.Errorf("names have come: %v, there were %v", now, before)
		}
		for _, d := range ds {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
			if err := d.Close(); err != nil {
				t.Errorf("closed twice: %v", err)
			}
		}
	}
	nothingLeft(t, files, mappings)
}

// names are the files that a process of this user could have made for shared memory or sockets.
func names(t *testing.T) (all []string) {
	t.Helper()
	for _, pattern := range []string{"/dev/shm/*", "/tmp/*gorun*", "/run/*gorun*", "/var/run/*gorun*"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			st, err := os.Lstat(f)
			if err == nil && int(st.Sys().(*syscall.Stat_t).Uid) == os.Getuid() && strings.Contains(f, "gorun") {
				all = append(all, f)
			}
		}
	}
	return all
}

// There are more peers than a poll reads without a mark, and than the inbox has bits. Each peer's packets come in order
// and none is lost, while the receiver polls and arms.
func TestManyRings(t *testing.T) {
	watchdog(t)
	const peers = 20
	d := open(t, Options{Rank: 0, Size: peers + 1, Local: 100})
	// There are numbers without rings, so that those of rings that come by a socket share bits with those of claimed
	// ones.
	d.setRings(append(d.rings, make([]*inRing, maxRings-len(d.rings)+1)...))
	rng := rand.New(rand.NewPCG(4, 4))
	links := make([]*link, peers)
	for i := range links {
		links[i] = open(t, Options{Rank: i + 1, Size: peers + 1, Local: 100, bySocket: i >= peers/2}).link(d)
	}
	proc.Eventually(t, "the use of all rings by socket", func() bool {
		n := 0
		for _, r := range (*d.inUse.Load())[maxRings:] {
			if r != nil {
				n++
			}
		}
		return n == peers/2
	})
	sent, got := make([]int, peers), make([]int, peers)
	check := func() {
		for _, p := range d.in {
			i := int(p.Peer) - 1
			if p.Event != transport.Arrived || int(p.Header.Tag) != got[i] || len(p.Payload) != got[i]%200 {
				t.Fatalf("packet %d of rank %d: %+v", got[i], p.Peer, p)
			}
			got[i]++
		}
		d.in = d.in[:0]
	}
	for i, l := range links { // a ring that is not in use yet is none that Arm looks at
		send(t, l, wire.Header{Kind: wire.Eager}, nil, func() { d.poll() })
		sent[i]++
	}
	d.until("the first of each", func() bool { check(); return slices.Equal(got, sent) })
	packets := 40_000
	if testing.Short() {
		packets = 10_000
	}
	for range packets {
		i := rng.IntN(peers)
		if rng.IntN(20) < 10 {
			i = rng.IntN(3) // some send more
		}
		h := wire.Header{Kind: wire.Eager, Tag: int32(sent[i])}
		if links[i].TrySend(&h, make([]byte, sent[i]%200)) {
			sent[i]++
		}
		switch rng.IntN(8) {
		case 0:
			d.poll()
			check()
		case 1:
			if d.Arm(transport.Any + transport.Level(rng.IntN(3))) { // then all packets have been polled
				if slices.Compare(got, sent) != 0 {
					t.Fatalf("armed with packets in a ring: %v of %v", got, sent)
				}
				d.Disarm()
			}
		}
	}
	d.until("all packets", func() bool { check(); return slices.Equal(got, sent) })
	if len(d.polled) > maxPolled {
		t.Errorf("each poll reads %d rings", len(d.polled))
	}
}

// More peers than a poll reads without a mark send without end: each has its turn.
func TestManyFloods(t *testing.T) {
	watchdog(t)
	const peers = 100 // beyond one word of the doorbell bitmap
	d := open(t, Options{Rank: 0, Size: peers + 1, Local: 100})
	links := make([]*link, peers)
	for i := range links {
		links[i] = open(t, Options{Rank: i + 1, Size: peers + 1, Local: 100}).link(d)
	}
	got, each := make([]int, peers), 100
	if testing.Short() {
		each = 20
	}
	d.until("every peer's turn", func() bool {
		for _, p := range d.in {
			got[p.Peer-1]++
		}
		d.in = d.in[:0]
		for _, l := range links {
			for l.TrySend(&wire.Header{Kind: wire.Eager}, nil) {
			}
		}
		return slices.Min(got) > each
	})
}

// Memory of Alloc is mapped at the peer, which then needs no system call and no permission; when it is freed, the
// mapping ends and its number is never valid again.
func TestAllocMapped(t *testing.T) {
	watchdog(t)
	a, b := open(t, Options{Rank: 0, Size: 2, NoGet: true}), open(t, Options{Rank: 1, Size: 2, NoGet: true})
	ab, ba := a.link(b), b.link(a)
	share := func(fill byte) (mem []byte, addr, key uint64) {
		mem, err := a.alloc(50_000)
		if err != nil {
			t.Fatal(err)
		}
		for i := range mem {
			if mem[i] != 0 {
				t.Fatalf("byte %d of new memory is %d", i, mem[i])
			}
			mem[i] = fill
		}
		proc.Eventually(t, "a number for memory of Alloc", func() bool {
			addr, key, _ = ab.register(transport.HostMem(mem[1000:]), transport.Readable)
			return key != 0
		})
		return mem, addr, key
	}
	get := func(addr, key uint64, n int) ([]byte, error) {
		dst := make([]byte, n)
		_, err := ba.get(transport.HostMem(dst), addr, key, 0)
		return dst, err
	}
	mem, addr, key := share(7)
	b.until("the mapping", func() bool { _, err := get(addr, key, 1); return err == nil })
	if got, err := get(addr, key, 49_000); err != nil || !bytes.Equal(got, mem[1000:]) {
		t.Error("wrong contents", err)
	}
	mem[1000] = 8
	if got, err := get(addr, key, 1); err != nil || got[0] != 8 {
		t.Error("the peer sees a copy", got, err)
	}
	src := bytes.Repeat([]byte{9}, 100)
	_, err := ba.put(transport.HostMem(src), addr+48_900, key, 0)
	if err != nil || !bytes.Equal(mem[49_900:], src) || mem[49_899] != 7 {
		t.Error("what the peer writes is not here, or at a wrong address:", err)
	}
	for _, bad := range [][2]uint64{{addr - 1001, key}, {addr + 60_000, key}, {addr, key + 1}, {addr, 0},
		{^uint64(0) - 10, key}, {0, key}} {
		if _, err := get(bad[0], bad[1], 100); err == nil {
			t.Errorf("address %#x, number %d can be read, %#x and %d are right", bad[0], bad[1], addr, key)
		}
		if _, err := ba.put(transport.HostMem(src), bad[0], bad[1], 0); err == nil {
			t.Errorf("address %#x, number %d can be written, %#x and %d are right", bad[0], bad[1], addr, key)
		}
	}
	if _, err := get(addr, key, 60_000); err == nil {
		t.Error("more than there is can be read")
	}
	if addr, key, _ := ab.register(transport.HostMem(make([]byte, 100)), transport.Readable); key != 0 {
		t.Errorf("other memory at %#x has number %d", addr, key)
	}

	if err := a.free(mem); err != nil {
		t.Fatal(err)
	}
	b.until("the end of the mapping", func() bool { _, err := get(addr, key, 1); return err != nil })
	if err := a.free(mem); err == nil {
		t.Error("freed twice")
	}
	if err := a.free(make([]byte, 10)); err == nil {
		t.Error("memory that is not of Alloc is freed")
	}
	again, addr2, key2 := share(9)
	b.until("the second mapping", func() bool { _, err := get(addr2, key2, 1); return err == nil })
	if got, err := get(addr2, key2, 1); err != nil || got[0] != 9 {
		t.Error(got, err)
	}
	if _, err := get(addr2, key, 1); err == nil {
		t.Errorf("the number %d of freed memory is valid", key)
	}
	_ = again
	if n := len(b.segments.peers); n != 1 {
		t.Errorf("%d segments are mapped, 1 is in use", n)
	}
}

// GetSome reads what Get would, up to the first that cannot be read, whose end or beginning counts for nothing; and
// nothing once the access is withdrawn or the peer is known to be gone.
func TestGetSome(t *testing.T) {
	watchdog(t)
	a, b := open(t, Options{Rank: 0, Size: 2}), open(t, Options{Rank: 1, Size: 2})
	l := a.link(b)
	if l.Caps().RMA == nil {
		t.Fatalf("this process may not read itself: %s", l.Caps().WhyNoRMA)
	}
	from := make([]byte, 100_000)
	for i := range from {
		from[i] = byte(i * 7)
	}
	page, err := unix.Mmap(-1, 0, 8192, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(page)
	if err := unix.Mprotect(page[4096:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	edge := addressOf(page) + 4000 // of which 96 bytes can be read
	for _, c := range []struct {
		what  string
		sizes []int
		bad   int // its end cannot be read, or with key its memory is said to be mapped
		key   uint64
		want  int
	}{
		{"one", []int{1}, -1, 0, 1},
		{"three", []int{10_000, 1, 50_000}, -1, 0, 3},
		{"as many as may be", slices.Repeat([]int{5000}, transport.MaxReads), -1, 0, transport.MaxReads},
		{"the first is wrong", []int{1000, 1000}, 0, 0, 0},
		{"the third is wrong", []int{1000, 2000, 3000, 4000}, 2, 0, 2},
		{"the last is wrong", []int{1000, 2000, 3000}, 2, 0, 2},
		{"the second is copied", []int{1000, 2000, 3000}, 1, 5, 1},
		{"the first is copied", []int{1000, 2000}, 0, 5, 0},
	} {
		var reads []transport.Read
		var into [][]byte
		at := 0
		for i, n := range c.sizes {
			into = append(into, make([]byte, n))
			r := transport.Read{Dst: transport.HostMem(into[i]), Addr: addressOf(from[at:])}
			if i == c.bad && c.key == 0 {
				r.Addr = edge
			} else if i == c.bad {
				r.Key = c.key
			}
			reads = append(reads, r)
			at += n
		}
		if got := l.getSome(reads); got != c.want {
			t.Errorf("%s: %d are read, want %d", c.what, got, c.want)
		}
		at = 0
		for i, n := range c.sizes[:c.want] {
			if !bytes.Equal(into[i], from[at:at+n]) {
				t.Errorf("%s: read %d has other bytes", c.what, i)
			}
			at += n
		}
		l.dead.Store(true)
		if got := l.getSome(reads); got != 0 {
			t.Errorf("%s: %d are read of a peer that is gone", c.what, got)
		}
		l.dead.Store(false)
	}
	b.revoke(0)
	buf := make([]byte, 8)
	if l.getSome([]transport.Read{{Dst: transport.HostMem(buf), Addr: addressOf(from)}}) != 0 {
		t.Error("the access is withdrawn, and memory is read")
	}
}
