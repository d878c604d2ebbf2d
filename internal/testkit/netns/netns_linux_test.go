package netns

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/internal/testkit/vswitch"
)

// short is the time in which an answer on these cables certainly comes, if one comes: used only where none must come.
const short = 300 * time.Millisecond

func output(t *testing.T, h *Hosts, host int, name string, args ...string) string {
	t.Helper()
	out, err := h.Command(host, name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v on h%d: %v: %s", name, args, host, err, out)
	}
	return strings.TrimSpace(string(out))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// listenOn listens on any address of a host, both families on one socket.
func listenOn(t *testing.T, h *Hosts, host int) net.Listener {
	t.Helper()
	var ln net.Listener
	must(t, h.Do(host, func() (err error) { ln, err = net.Listen("tcp", ":0"); return err }))
	t.Cleanup(func() { ln.Close() })
	return ln
}

func dialFrom(h *Hosts, host int, to netip.Addr, port int) (conn net.Conn, err error) {
	err = h.Do(host, func() error {
		conn, err = net.DialTimeout("tcp", netip.AddrPortFrom(to, uint16(port)).String(), patience)
		return err
	})
	return conn, err
}

// pair is a TCP connection between two hosts; echo answers at the far end.
func pair(t *testing.T, h *Hosts, from, to int, six bool) (near, far net.Conn) {
	t.Helper()
	ln := listenOn(t, h, to)
	addr := h.Address(to)
	if six {
		addr = h.Address6(to)
	}
	near, err := dialFrom(h, from, addr, ln.Addr().(*net.TCPAddr).Port)
	must(t, err)
	far, err = ln.Accept()
	must(t, err)
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

// passes reports whether a byte comes through within a time.
func passes(t *testing.T, near, far net.Conn, within time.Duration) bool {
	t.Helper()
	if _, err := near.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	far.SetReadDeadline(time.Now().Add(within))
	_, err := io.ReadFull(far, make([]byte, 1))
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	return err == nil
}

func hasIPv6() bool { _, err := os.Stat("/proc/net/if_inet6"); return err == nil }

func TestHostsAreApart(t *testing.T) {
	t.Parallel()
	h := Up(t, 2)
	for _, what := range []string{"net", "uts", "ipc", "pid", "mnt"} {
		link := "/proc/self/ns/" + what
		here, _ := os.Readlink(link)
		one, two := output(t, h, 1, "readlink", link), output(t, h, 2, "readlink", link)
		if one == two || one == here {
			t.Errorf("%s: %s on h1, %s on h2, %s outside", what, one, two, here)
		}
	}
	const bootID = "/proc/sys/kernel/random/boot_id"
	if a, b := output(t, h, 1, "cat", bootID), output(t, h, 2, "cat", bootID); a == b || len(a) != 36 {
		t.Errorf("boot_id %q and %q", a, b)
	}
	if name := output(t, h, 2, "hostname"); name != "h2" {
		t.Errorf("h2 has the name %q", name)
	}
	if cards := output(t, h, 1, "ls", "/sys/class/net"); strings.Join(strings.Fields(cards), " ") != "eth0 lo" {
		t.Errorf("h1 shows the network cards %q", cards)
	}
	if out := output(t, h, 1, "sh", "-c", "echo x >/dev/shm/mine; ls /dev/shm"); out != "mine" {
		t.Errorf("/dev/shm of h1 has %q", out)
	}
	if out := output(t, h, 2, "ls", "/dev/shm"); out != "" {
		t.Errorf("/dev/shm of h2 has %q", out)
	}
	// Another machine may have the address there, and answer.
	ln := listenOn(t, h, 1)
	port := ln.Addr().(*net.TCPAddr).Port
	if conn, err := net.DialTimeout("tcp", netip.AddrPortFrom(h.Address(1), uint16(port)).String(), short); err == nil {
		conn.Close()
	}
	ln.(*net.TCPListener).SetDeadline(time.Now().Add(short))
	if conn, err := ln.Accept(); err == nil {
		conn.Close()
		t.Error("h1 can be reached from the machine's own network")
	}
}

// Two sets with the same addresses do not reach each other.
func TestTwoSets(t *testing.T) {
	t.Parallel()
	a, b := Up(t, 1), Up(t, 1)
	ln := listenOn(t, a, 1)
	port := ln.Addr().(*net.TCPAddr).Port
	conn, err := dialFrom(a, Switch, a.Address(1), port)
	must(t, err)
	conn.Close()
	if conn, err := dialFrom(b, Switch, b.Address(1), port); err == nil {
		conn.Close()
		t.Error("a listener of one set was reached from another")
	}
}

func TestListenAtTheSwitch(t *testing.T) {
	t.Parallel()
	h := Up(t, 1)
	listens := []func() (net.Listener, error){h.Listen}
	if hasIPv6() {
		listens = append(listens, h.Listen6)
	}
	for _, listen := range listens {
		ln, err := listen()
		must(t, err)
		defer ln.Close()
		at := netip.MustParseAddrPort(ln.Addr().String())
		conn, err := dialFrom(h, 1, at.Addr(), int(at.Port()))
		must(t, err)
		conn.Close()
	}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	h := Up(t, 1)
	var exit *exec.ExitError
	if err := h.Command(1, "sh", "-c", "exit 7").Run(); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("exit 7: %v", err)
	}
	cmd := h.Command(1, "sh", "-c", "echo $$; exec sleep 1000")
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	fmt.Fscan(out, new(int))
	KillGroup(cmd)
	if err := cmd.Wait(); err == nil {
		t.Error("a killed command has no error")
	}
	// One is of the host's first process; the other's end may take a moment.
	proc.Eventually(t, "the end of the other sleep", func() bool {
		return output(t, h, 1, "sh", "-c", "pgrep -x sleep | wc -l") == "1"
	})
}

// What was left running on a host does not outlive it, even frozen.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	h := Up(t, 1)
	cmd := h.Command(1, "sleep", "1000")
	must(t, cmd.Start())
	pid := childInside(t, cmd.Process.Pid)
	must(t, h.Freeze(1))
	must(t, h.Close())
	if err := cmd.Wait(); err == nil {
		t.Error("a command of a removed host has ended well")
	}
	ends(t, pid)
	if _, err := os.Stat(h.base); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", h.base, err)
	}
}

// ends expects that a process ends, which may take a moment more than the end of what it belonged to.
func ends(t *testing.T, pid int) {
	t.Helper()
	proc.Eventually(t, fmt.Sprintf("the end of process %d", pid),
		func() bool { _, lives := proc.Lookup(pid); return !lives })
}

func childInside(t *testing.T, nsenter int) int {
	t.Helper()
	pid, err := insideOf(nsenter, nil)
	must(t, err)
	return pid
}

// The script removes the hosts when its input ends, as it does with the process that has made them.
func TestOwnerDies(t *testing.T) {
	t.Parallel()
	h := Up(t, 2)
	h.input.Close()
	h.hold.Wait()
	for _, p := range h.procs {
		ends(t, p.PID)
	}
	if err := h.Command(1, "true").Run(); err == nil {
		t.Error("a command runs on a host that is not there")
	}
	h.closed = true // nothing is left to remove
	os.RemoveAll(h.base)
}

func TestLink(t *testing.T) {
	t.Parallel()
	h := Up(t, 2)
	near, far := pair(t, h, 1, 2, false)
	if !passes(t, near, far, patience) {
		t.Fatal("nothing passes")
	}
	must(t, h.LinkDown(2))
	if passes(t, near, far, short) {
		t.Error("a byte passes over a link that is down")
	}
	must(t, h.LinkUp(2))
	far.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.ReadFull(far, make([]byte, 1)); err != nil {
		t.Errorf("the byte of before does not come when the link is up again: %v", err)
	}
}

func TestCutAndHeal(t *testing.T) {
	t.Parallel()
	h := Up(t, 3)
	for _, six := range []bool{false, true} {
		if six && !hasIPv6() {
			continue
		}
		near, far := pair(t, h, 1, 2, six)
		other, otherFar := pair(t, h, 1, 3, six)
		must(t, h.Cut(1, 2))
		if passes(t, near, far, short) {
			t.Error("a byte passes between hosts that are cut off")
		}
		if !passes(t, other, otherFar, patience) {
			t.Error("a third host cannot be reached")
		}
		must(t, h.Heal(1, 2))
		far.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.ReadFull(far, make([]byte, 1)); err != nil {
			t.Errorf("healed: %v", err)
		}
	}
}

// The second network is between the hosts alone, and its switch does what the test says.
func TestWire(t *testing.T) {
	t.Parallel()
	h := Up(t, 2)
	s := h.Wire(t)
	ln := listenOn(t, h, 2)
	near, err := dialFrom(h, 1, h.WireAddress(2), ln.Addr().(*net.TCPAddr).Port)
	must(t, err)
	defer near.Close()
	far, err := ln.Accept()
	must(t, err)
	defer far.Close()
	s.Set(1, 2, vswitch.Faults{MaxPacket: 1400})
	if !passes(t, near, far, patience) {
		t.Error("a short packet does not pass")
	}
	long := make([]byte, 10_000) // less than a socket takes at once
	_, err = near.Write(long)
	must(t, err)
	far.SetReadDeadline(time.Now().Add(short))
	if n, err := far.Read(long); err == nil {
		t.Errorf("%d bytes in long packets pass", n)
	}
	s.Set(1, 2, vswitch.Faults{Loss: 0.05, Delay: time.Millisecond, Jitter: time.Millisecond, Repeat: 0.05})
	far.SetReadDeadline(time.Now().Add(patience))
	if _, err = io.ReadFull(far, long); err != nil {
		t.Error(err)
	}
	s.Set(1, 2, vswitch.Faults{Refuse: true})
	if _, err := dialFrom(h, 1, h.WireAddress(2), ln.Addr().(*net.TCPAddr).Port); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a connection that the switch refuses: %v", err)
	}
}

// A firewall at one host keeps another from connecting, and not the first.
func TestBlock(t *testing.T) {
	t.Parallel()
	h := Up(t, 2)
	for _, six := range []bool{false, true} {
		if six && !hasIPv6() {
			continue
		}
		near, far := pair(t, h, 1, 2, six)
		must(t, h.Block(1, 2, "reset"))
		ln := listenOn(t, h, 2)
		to := h.Address(2)
		if six {
			to = h.Address6(2)
		}
		if _, err := dialFrom(h, 1, to, ln.Addr().(*net.TCPAddr).Port); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("IPv6 %v: %v", six, err)
		}
		if !passes(t, near, far, patience) {
			t.Error("a connection that stands is cut")
		}
		pair(t, h, 2, 1, six)
		must(t, h.Heal(2))
		pair(t, h, 1, 2, six)
	}
}

func TestLoss(t *testing.T) {
	t.Parallel()
	h := Up(t, 2)
	var in, out net.PacketConn
	must(t, h.Do(1, func() (err error) { in, err = net.ListenPacket("udp", h.Address(1).String()+":0"); return err }))
	defer in.Close()
	must(t, in.(*net.UDPConn).SetReadBuffer(1<<20))
	must(t, h.Do(2, func() (err error) { out, err = net.ListenPacket("udp", h.Address(2).String()+":0"); return err }))
	defer out.Close()
	// count sends packets and counts those that come, until there are enough or none comes for so long.
	round := byte(0)
	count := func(enough int, silence time.Duration) (n int) {
		round++
		for range 200 { // little enough for the socket's buffer
			_, err := out.WriteTo([]byte{round}, in.LocalAddr())
			must(t, err)
		}
		for b := make([]byte, 1); n < enough; {
			in.SetReadDeadline(time.Now().Add(silence))
			if _, _, err := in.ReadFrom(b); err != nil {
				break
			}
			if b[0] == round { // not a late one of the round before
				n++
			}
		}
		return n
	}
	must(t, h.Loss(1, 50))
	if n := count(50, patience); n < 50 {
		t.Errorf("%d of 200 packets came through a loss of 50 %%", n)
	}
	if n := count(200, short); n > 150 {
		t.Errorf("%d of 200 packets came through a loss of 50 %%", n)
	}
	must(t, h.Loss(1, 100))
	if n := count(1, short); n != 0 {
		t.Errorf("%d of 200 packets came through a loss of 100 %%", n)
	}
	must(t, h.Loss(1, 0))
	if n := count(200, patience); n < 200 {
		t.Errorf("%d of 200 packets came without loss", n)
	}
}

// The bytes that a limit lets through can be too few, never too many.
func TestRate(t *testing.T) {
	t.Parallel()
	h := Up(t, 2)
	near, far := pair(t, h, 1, 2, false)
	must(t, h.Rate(2, 8))
	const size = 1 << 20 // 256 KiB of burst, then 1 MB/s
	start := time.Now()
	go near.Write(make([]byte, size))
	far.SetReadDeadline(time.Now().Add(patience))
	_, err := io.ReadFull(far, make([]byte, size))
	must(t, err)
	if took := time.Since(start); took < 500*time.Millisecond {
		t.Errorf("1 MiB over 8 Mbit/s took %v", took)
	}
	must(t, h.Rate(2, 0))
}

// hold starts a program on a host that has one connection to a listener here.
func hold(t *testing.T, h *Hosts, host int) (*exec.Cmd, net.Conn) {
	t.Helper()
	ln, err := h.Listen()
	must(t, err)
	defer ln.Close()
	cmd := h.Command(host, os.Args[0])
	cmd.Env = append(os.Environ(), proc.RoleVar+"=ticker", "GORUN_TEST_AT="+ln.Addr().String())
	must(t, cmd.Start())
	t.Cleanup(func() { KillGroup(cmd); cmd.Wait() })
	ln.(*net.TCPListener).SetDeadline(time.Now().Add(patience))
	conn, err := ln.Accept()
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	return cmd, conn
}

// ticker is a program that sends a byte all the time.
func ticker() error {
	conn, err := net.Dial("tcp", os.Getenv("GORUN_TEST_AT"))
	if err != nil {
		return err
	}
	for range time.Tick(10 * time.Millisecond) {
		if _, err := conn.Write([]byte{1}); err != nil {
			return err
		}
	}
	return nil
}

// readAll reads until nothing comes for a time (nil) or the connection ends.
func readAll(conn net.Conn, silence time.Duration) error {
	for {
		conn.SetReadDeadline(time.Now().Add(silence))
		if _, err := conn.Read(make([]byte, 100)); errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func TestCrash(t *testing.T) {
	t.Parallel()
	h := Up(t, 2)
	_, conn := hold(t, h, 1)
	must(t, h.Crash(1))
	if err := readAll(conn, patience); err == nil {
		t.Error("the connection to a host that has crashed does not end")
	}
	if err := h.Command(1, "true").Run(); err == nil {
		t.Error("a command runs on a host that has crashed")
	}
	output(t, h, 2, "true")
}

func TestPowerOff(t *testing.T) {
	t.Parallel()
	h := Up(t, 1)
	cmd, conn := hold(t, h, 1)
	must(t, h.PowerOff(1))
	if err := cmd.Wait(); err == nil {
		t.Error("a process of the host goes on")
	}
	if err := readAll(conn, time.Second); err != nil {
		t.Errorf("the connection to a host without power ends: %v", err)
	}
}

func TestFreezeAndThaw(t *testing.T) {
	t.Parallel()
	h := Up(t, 1)
	cmd, conn := hold(t, h, 1)
	must(t, h.Freeze(1))
	if err := readAll(conn, time.Second); err != nil {
		t.Errorf("the connection to a frozen host ends: %v", err)
	}
	must(t, h.Thaw(1))
	conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Errorf("thawed: %v", err)
	}
	conn.Close() // the ticker ends by itself, and so does its nsenter
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("a command of a host that was frozen does not end")
	}
}

func TestKillConnections(t *testing.T) {
	t.Parallel()
	h := Up(t, 2)
	ln, err := h.Listen()
	must(t, err)
	defer ln.Close()
	at := netip.MustParseAddrPort(ln.Addr().String())
	control, err := dialFrom(h, 1, at.Addr(), int(at.Port()))
	must(t, err)
	defer control.Close()
	server, err := ln.Accept()
	must(t, err)
	defer server.Close()
	for _, six := range []bool{false, true} {
		if six && !hasIPv6() {
			continue
		}
		for _, victim := range []int{1, 2} { // the side that dialled, and the one that accepted on a socket of both families
			near, far := pair(t, h, 1, 2, six)
			must(t, h.KillConnections(victim))
			for _, conn := range []net.Conn{near, far} {
				conn.SetReadDeadline(time.Now().Add(patience))
				_, err := conn.Read(make([]byte, 1))
				if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.ECONNABORTED) {
					t.Errorf("IPv6 %v, reset on h%d: %v", six, victim, err)
				}
			}
		}
	}
	if !passes(t, control, server, patience) {
		t.Error("the connection to the switch is gone too")
	}
}

func TestFaultRefuses(t *testing.T) {
	t.Parallel()
	h := Up(t, 1)
	for _, args := range [][]string{{"dance", "h1"}, {"link", "h2", "down"}, {"link", "h1", "sideways"},
		{"loss", "h1", "x"}, {"cut", "h1"}, {"block", "h1", "h1", "sometimes"}, {"rate", "h1", "fast"}} {
		if err := h.Fault(args...); err == nil {
			t.Errorf("%v was done", args)
		}
	}
}
