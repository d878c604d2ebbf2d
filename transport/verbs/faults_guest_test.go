//go:build verbs && guest && linux && cgo

package verbs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// Faults of the real device that only a guest's root can bring about; for make rdma.

// guestCard is the network card below rxe0 where there is one guest (scripts/guest).
const guestCard = "dummy0"

func init() { roles["removable"] = removable }

// guestDevice puts rxe0 and its card in order, as scripts/guest does, and waits until the kernel has filled its tables.
func guestDevice(t testing.TB) {
	t.Helper()
	if !inGuest() {
		t.Fatal("takes the network or the device away: runs in a guest only (make rdma)")
	}
	command(t, "ip", "link", "set", guestCard, "up")
	if _, err := os.Stat("/sys/class/infiniband/rxe0"); err != nil {
		command(t, "rdma", "link", "add", "rxe0", "type", "rxe", "netdev", guestCard)
	}
	const port = "/sys/class/infiniband/rxe0/ports/1"
	for limit := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		state, _ := os.ReadFile(port + "/state")
		gid, _ := os.ReadFile(port + "/gids/1")
		_, err := os.Stat("/dev/infiniband/uverbs0")
		if strings.Contains(string(state), "ACTIVE") && strings.Contains(string(gid), ":ffff:") && err == nil {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("rxe0 is not there again: state %q, GID 1 %q, %v", state, gid, err)
		}
	}
}

// A network that goes away and comes back while nothing is under way is a line in the log.
func TestNetworkReturns(t *testing.T) {
	watchdog(t)
	defer guestDevice(t)
	var log notes
	a, b := newEnd(t, 0, 2, log.option), newEnd(t, 1, 2)
	ab, ba := a.link(b), b.link(a)
	for round := range 2 {
		talk(ab, b)
		talk(ba, a)
		a.deliver(time.Now().Add(patience))
		b.deliver(time.Now().Add(patience))
		if a.inFlight+b.inFlight > 0 {
			t.Fatal("not all has been delivered")
		}
		command(t, "ip", "link", "set", guestCard, "down")
		a.until("the log", func() bool { return len(log.with("port error")) == round+1 })
		guestDevice(t)
		a.until("the log", func() bool { return len(log.with("port active")) == round+1 })
	}
	talk(ab, b)
	talk(ba, a)
	if said := log.with("the port's state has changed"); len(said) != 4 || !strings.Contains(said[0], "rxe0") {
		t.Errorf("said %q", said)
	}
}

// A network that goes away under what is under way, and stays away: both ends are told although they could still talk
// with each other otherwise, and when it is back new sessions work.
func TestNetworkGone(t *testing.T) {
	watchdog(t)
	defer guestDevice(t)
	a, b, ab, ba := two(t)
	addr, key := register(t, ba, pattern(readableBytes, 5))
	endedWhileRead(t, a, ab, addr, key, 1, func() {
		command(t, "ip", "link", "set", guestCard, "down")
		send(t, ab, wire.Header{Kind: wire.Eager}, []byte("lost"))
	})
	b.down(0)
	a.Close()
	b.Close()
	guestDevice(t)
	_, d, cd, _ := two(t)
	talk(cd, d)
}

// removable is rank 1 of 3, has memory that can be read, and loses its device when it is told so. It ends when its
// peer is down.
func removable() error {
	d, l, err := roleDevice(func(o *Options) { o.Size = 3 })
	if err != nil {
		return err
	}
	if err := offer(d, l); err != nil {
		return err
	}
	told := make(chan error, 1)
	go func() {
		_, err := proc.Recv()
		told <- err
	}()
	fmt.Println("ready")
	for pkts := make([]transport.Packet, 8); ; time.Sleep(time.Millisecond) {
		for _, p := range pkts[:d.Poll(pkts)] {
			if p.Event == transport.Down {
				d.Close()
				fmt.Println(p.Err)
				return nil
			}
		}
		select {
		case err := <-told:
			if err == nil {
				err = hangUp()
			}
			if err != nil {
				return err
			}
			d.happened(eventDeviceFatal, 0)
		default:
		}
	}
}

// A device that is taken away while it is in use. Soft-RoCE itself waits until it is not in use (see below), so the
// test has the kernel do to one rank what it does to all where a driver does not wait: what the rank has made is
// destroyed, each call fails with EIO, completions do not come any more, and the event says so.
func TestDeviceRemoved(t *testing.T) {
	for _, side := range []string{"ours", "theirs"} {
		t.Run(side, func(t *testing.T) {
			watchdog(t)
			var log notes
			hub := leaky(t, 3, log.option)
			o, to := opposite(t, hub, "removable")
			rts := hub.take(transport.Arrived)
			o.ReadLine()
			err := endedWhileRead(t, hub, to, rts.Header.Addr, rts.Header.Key, 1, func() {
				if side == "theirs" {
					o.Send(nil)
					return
				}
				if err := hangUp(); err != nil {
					t.Fatal(err)
				}
				hub.happened(eventDeviceFatal, 0)
			})
			t.Log(err)
			if side == "ours" && !strings.Contains(err.Error(), "the device rxe0: "+eventText(eventDeviceFatal)) {
				t.Errorf("%v does not say which device and what event", err)
			}
			// The event, or what we could not read.
			if why := o.ReadLine(); !strings.Contains(why, transport.ErrPeerGone.Error()) {
				t.Errorf("the other end says %q", why)
			}
			two := newEnd(t, 2, 3)
			if side == "ours" {
				refused(t, hub, two)
				if said := log.with("the device has failed"); len(said) != 1 || !strings.Contains(said[0], "rxe0") {
					t.Errorf("said %q", said)
				}
			} else {
				talk(hub.link(two), two)
			}
			hub.sleeps()
			ends(t, hub)
		})
	}
}

// The same without the event, of a rank that does nothing but wait: it finds out when it goes to sleep.
func TestDeviceGoneUnsaid(t *testing.T) {
	watchdog(t)
	a := leaky(t, 3)
	o, _ := opposite(t, a, "removable")
	a.take(transport.Arrived)
	o.ReadLine()
	if err := hangUp(); err != nil {
		t.Fatal(err)
	}
	a.until("the end", func() bool {
		if a.Arm(transport.Any) {
			a.Disarm()
		}
		return len(a.in) > 0
	})
	t.Log(a.down(1))
	t.Log(o.ReadLine())
	a.sleeps()
	ends(t, a)
}

// sleeps checks that the device is armed when there is nothing to be polled, and not awake for ever.
func (e *end) sleeps() {
	e.t.Helper()
	e.noPackets()
	e.until("sleep", func() bool { return e.Arm(transport.Any) })
	e.Disarm()
}

// ends checks that Close comes back, and does not wait for what will never come.
func ends(t *testing.T, e *end) {
	t.Helper()
	began := time.Now()
	e.Close()
	if took := time.Since(began); took > patience {
		t.Errorf("Close took %v", took)
	}
}

// refused checks that a device that has failed makes no session, and says so at once.
func refused(t *testing.T, e, to *end) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := e.Connect(ctx, to.rank, to.Address()); err == nil || ctx.Err() != nil {
		t.Errorf("a session over a device that is gone: %v", err)
	}
}

// descriptors are those of this process, and what they are.
func descriptors() (map[int]string, error) {
	entries, err := os.ReadDir("/proc/self/fd")
	all := map[int]string{}
	for _, e := range entries {
		n, _ := strconv.Atoi(e.Name())
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			all[n] = to
		}
	}
	return all, err
}

// leaky is rank 0. What the library keeps of a device that was hung up, for it could not destroy it, is closed after
// it: the channel of its completions.
func leaky(t *testing.T, size int, change ...func(*Options)) *end {
	t.Helper()
	before, err := descriptors()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		now, _ := descriptors()
		for n, to := range now {
			if _, old := before[n]; !old && strings.Contains(to, "infinibandevent") {
				unix.Close(n)
			}
		}
	})
	return newEnd(t, 0, size, change...)
}

// hangUp does to the only device of this process what the kernel does to one that is gone. A terminal that has been
// hung up, which says EIO to everything, comes in the place of the descriptor by which the device is told what to do,
// and zeros where its queues are. So the kernel destroys all that it has of the device.
func hangUp() error {
	dead, err := hungUp()
	if err != nil {
		return err
	}
	defer unix.Close(dead)
	all, err := descriptors()
	if err != nil {
		return err
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	const name = "/dev/infiniband/uverbs"
	zeroed, replaced := 0, 0
	for line := range strings.Lines(string(maps)) {
		var from, to uintptr
		if !strings.Contains(line, name) {
			continue
		}
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil {
			return err
		}
		if err := zeros(from, to-from); err != nil {
			return err
		}
		zeroed++
	}
	for n, to := range all {
		if strings.HasPrefix(to, name) {
			if err := unix.Dup3(dead, n, unix.O_CLOEXEC); err != nil {
				return err
			}
			replaced++
		}
	}
	if replaced != 1 || zeroed == 0 {
		return fmt.Errorf("%d descriptors of %v are devices', and %d queues were found", replaced, all, zeroed)
	}
	return nil
}

// zeros puts fresh memory in the place of other.
func zeros(at, bytes uintptr) error {
	_, _, no := unix.Syscall6(unix.SYS_MMAP, at, bytes, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_FIXED|unix.MAP_ANON|unix.MAP_PRIVATE, ^uintptr(0), 0)
	if no != 0 {
		return fmt.Errorf("zeros at %#x: %w", at, no)
	}
	return nil
}

// hungUp is a terminal whose other end is closed.
func hungUp() (int, error) {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(master)
	number, err1 := unix.IoctlGetInt(master, unix.TIOCGPTN)
	err2 := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0)
	if err := errors.Join(err1, err2); err != nil {
		return 0, err
	}
	return unix.Open(fmt.Sprint("/dev/pts/", number), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
}

// A device that is to be taken away while it is in use, by a driver that waits for its users: they notice nothing, no
// new ones are let in, Close lets it go, and one that comes back works.
func TestDeviceLeaves(t *testing.T) {
	watchdog(t)
	a, b, ab, ba := two(t)
	talk(ab, b)
	src, dst := pattern(1<<20, 1), make([]byte, 1<<20)
	addr, key := register(t, ab, src)
	leaving := exec.Command("rdma", "link", "delete", "rxe0")
	if err := leaving.Start(); err != nil {
		t.Fatal(err)
	}
	left := make(chan error, 1)
	go func() { left <- leaving.Wait() }()
	defer guestDevice(t) // it can be made anew when the old one is gone
	defer func() {
		a.Close()
		b.Close()
		select {
		case err := <-left:
			left <- err
		case <-time.After(patience):
			leaving.Process.Kill()
			t.Error("all its users have gone, and it does not leave")
		}
	}()
	for limit := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat("/dev/infiniband/uverbs0"); err != nil {
			break
		}
		if time.Now().After(limit) {
			t.Fatal("it does not begin to leave")
		}
	}
	talk(ab, b)
	talk(ba, a)
	if err := fetch(t, ba, b, a, dst, addr, key); err != nil || !bytes.Equal(dst, src) {
		t.Errorf("a READ: %v", err)
	}
	if d, err := New(options(t, 0, 2, nil)); !errors.Is(err, transport.ErrUnavailable) {
		t.Errorf("a device that leaves was opened: %v, %v", d, err)
	}
	select {
	case err := <-left:
		t.Errorf("it has left while it was used: %v", err)
		left <- err
	default:
	}
	a.Close()
	b.Close()
	select {
	case err := <-left:
		if left <- err; err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		return
	}
	if d, err := New(options(t, 0, 2, nil)); !errors.Is(err, transport.ErrUnavailable) ||
		!strings.Contains(err.Error(), "there is no RDMA device") {
		t.Errorf("no device, and %v, %v", d, err)
	}
	guestDevice(t)
	_, d, cd, _ := two(t)
	talk(cd, d)
}

// The same of memory that the kernel refuses, which the software HCA cannot show since it pins no pages: it is not
// advertised to peers for writing, and not read into, until it may be written to.
func TestRegistrationRefused(t *testing.T) {
	watchdog(t)
	var log notes
	a, b := newEnd(t, 0, 2, log.option), newEnd(t, 1, 2)
	ab, ba := a.link(b), b.link(a)
	mem := pattern(100_000, 1)
	addr, key := register(t, ba, mem)
	dst, err := unix.Mmap(-1, 0, len(mem), unix.PROT_READ, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(dst)
	for range 2 {
		if state, err := ab.caps.RMA.Get(transport.HostMem(dst), addr, key, 1); !errors.Is(err, unix.EFAULT) ||
			!strings.Contains(err.Error(), "registering 100000 bytes") {
			t.Fatalf("state %d, %v; its registration was to fail", state, err)
		}
		if _, _, ok := ab.caps.RMA.Register(transport.HostMem(dst), transport.Writable); ok {
			t.Error("a peer is told of what could not be registered")
		}
		talk(ab, b)
		talk(ba, a)
	}
	if said := log.with("a message is copied because its memory could not be registered"); len(said) != 1 ||
		!strings.Contains(said[0], "100000") {
		t.Errorf("said %q", said)
	}
	if err := unix.Mprotect(dst, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		t.Fatal(err)
	}
	if err := fetch(t, ab, a, b, dst, addr, key); err != nil || !bytes.Equal(dst, mem) {
		t.Errorf("when it may be written to: %v", err)
	}
	a.noPackets()
}
