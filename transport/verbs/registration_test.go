//go:build verbs && linux && cgo

package verbs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

func init() { roles["locked"] = locked }

// limitVar is how many bytes the role may lock.
const limitVar = "GORUN_TEST_VERBS_MEMLOCK"

// limitsLine is what an administrator has to do. It is in the documentation, and people search for it.
const limitsLine = `Write the line "* - memlock unlimited" into /etc/security/limits.d/rdma.conf and log in again; ` +
	`for ranks of a service, LimitMEMLOCK=infinity in its unit (for Slurm slurmd.service)`

// A registration that fails is copied around, which is said once; the next may succeed.
func TestRegistrationFails(t *testing.T) {
	needSoft(t)
	watchdog(t)
	var log notes
	b := newEnd(t, 1, 2)
	t.Setenv("SOFTHCA_FAIL", "reg:3") // two are the buffers
	a := newEnd(t, 0, 2, log.option)
	ab, ba := a.link(b), b.link(a)
	mem, dst := pattern(100_000, 1), make([]byte, 100_000)
	addr, key, ok := ba.Register(mem)
	if !ok {
		t.Fatal("not registered")
	}
	if state, err := ab.TryGet(dst, addr, key, 1); err == nil || !strings.Contains(err.Error(), "registering 100000 bytes") {
		t.Fatalf("state %d, %v; its registration was to fail", state, err)
	}
	if said := log.with("a message is copied because its memory could not be registered"); len(said) != 1 || !strings.Contains(said[0], "100000") {
		t.Errorf("said %q", said)
	}
	talk(ab, b)
	talk(ba, a)
	if state, err := ab.TryGet(dst, addr, key, 2); err != nil || state != transport.GetStarted {
		t.Fatal(state, err)
	}
	if p := a.take(transport.Got); p.Header.ID != 2 || p.Err != nil || string(dst) != string(mem) {
		t.Errorf("%d, %v", p.Header.ID, p.Err)
	}
	a.quiet()
}

// Memory for half of the buffers is enough; for too few the device says what it needs, and leaves nothing behind.
func TestFewBuffers(t *testing.T) {
	needSoft(t)
	watchdog(t)
	t.Setenv("SOFTHCA_MEMLOCK", strconv.Itoa((receives+sends)*slotSize/4))
	a, b, ab, ba := two(t)
	if a.recv.count >= receives || a.send.count >= sends {
		t.Fatalf("%d and %d buffers, and there is no room for them", a.recv.count, a.send.count)
	}
	random(t, 1, 3000, eagerMax, a, b, ab, ba)
	t.Setenv("SOFTHCA_MEMLOCK", "1000000")
	files := openFiles()
	opt := options(t, 0, 2, func(string, ...any) {})
	if d, err := New(opt); !errors.Is(err, transport.ErrUnavailable) || !strings.Contains(err.Error(), "KiB for receive and send buffers: registering ") {
		t.Errorf("%v, %v", d, err)
	}
	if now := openFiles(); now > files {
		t.Errorf("%d descriptors, %d before", now, files)
	}
}

// A process that may lock little memory says which line to write where. As a user who is not root, for a kernel asks no
// others. TestMemlock is the same without a kernel.
func TestLockedByKernel(t *testing.T) {
	if !inGuest() {
		t.Skip("needs a kernel with RDMA: runs in guests only")
	}
	watchdog(t)
	for _, c := range []struct {
		limit uint64
		says  []string
	}{
		{64 << 10, []string{"transport unavailable: verbs: ", "KiB for receive and send buffers: ", "this process may lock 64 KiB (ulimit -l). " + limitsLine}},
		{16 << 20, []string{"copied: ", "this process may lock 16384 KiB (ulimit -l). " + limitsLine, "arrived all the same"}},
	} {
		t.Run(fmt.Sprint(c.limit>>10), func(t *testing.T) {
			cmd, out := unprivileged(t, c.limit)
			text, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			for _, want := range c.says {
				if strings.Count(string(text), want) != 1 {
					t.Errorf("%s\nsays %d times %q", text, strings.Count(string(text), want), want)
				}
			}
			if entries, _ := os.ReadDir(out); len(entries) > 1 {
				t.Errorf("left behind in %s: %v", out, entries)
			}
		})
	}
}

// unprivileged is this test binary in the role, as nobody if that can be.
func unprivileged(t *testing.T, limit uint64) (cmd *exec.Cmd, dir string) {
	t.Helper()
	path, devices := library(t)
	dir = t.TempDir()
	cmd = exec.Command(os.Args[0])
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), roleVar+"=locked", limitVar+"="+fmt.Sprint(limit), "GORUN_VERBS_LIB="+path, "GORUN_VERBS_DEV="+devices,
		"SOFTHCA_DIR="+dir)
	if os.Getuid() != 0 {
		return cmd, dir
	}
	const nobody = 65534
	readableByAll(t, os.Args[0])
	if path != "" {
		readableByAll(t, path)
	}
	for d := dir; len(d) > len(os.TempDir()); d = filepath.Dir(d) {
		os.Chmod(d, 0o755)
	}
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return cmd, dir
}

// readableByAll lets others come to a file that go test or softhca.Build have made for this user only.
func readableByAll(t *testing.T, path string) {
	t.Helper()
	for d := filepath.Dir(path); len(d) > len(filepath.Clean(os.TempDir())); d = filepath.Dir(d) {
		os.Chmod(d, 0o755)
	}
}

// locked opens two devices with little memory that may be locked, and moves a large message between them.
func locked() error {
	limit, err := strconv.ParseUint(os.Getenv(limitVar), 10, 64)
	if err != nil {
		return err
	}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: limit / 2, Max: limit}); err != nil {
		return err
	}
	opt := Options{Size: 2, Library: os.Getenv("GORUN_VERBS_LIB"), Devices: os.Getenv("GORUN_VERBS_DEV"), RegisterFrom: 1, Tags: "off",
		Log: func(msg string, args ...any) { fmt.Println("copied:", fmt.Sprint(args...)) }, Control: control(nil)}
	d, err := New(opt)
	if err != nil {
		fmt.Println(err)
		return nil
	}
	defer d.Close()
	opt.Rank, opt.Log = 1, nil
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
		return err
	}
	peer, err := New(opt)
	if err != nil { // the kernel counts for all devices of a user
		fmt.Println("a second device has no room:", errors.Is(err, transport.ErrUnavailable))
		peer = nil
	}
	return moveLocked(d.(*Device), peer)
}

func moveLocked(d *Device, peer transport.Device) error {
	if _, err := d.Alloc(16 << 20); err == nil {
		return errors.New("Alloc gave more than may be locked")
	}
	if _, err := d.expose(make([]byte, 16<<20), remoteRead); err == nil {
		return errors.New("more is registered than may be locked")
	}
	if _, err := d.expose(make([]byte, 16<<20), remoteRead); err == nil {
		return errors.New("more is registered than may be locked")
	}
	if peer == nil {
		fmt.Println("arrived all the same")
		return nil
	}
	defer peer.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l, err := peer.Connect(ctx, 0, d.Address())
	if err != nil {
		return err
	}
	if err := streamLocked(l, d); err != nil {
		return err
	}
	fmt.Println("arrived all the same")
	return nil
}

// streamLocked sends a message in pieces.
func streamLocked(l transport.Link, d *Device) error {
	pkts := make([]transport.Packet, 8)
	piece := pattern(eagerMax, 3)
	arrived := 0
	for sent := 0; arrived < 100; {
		if sent < 100 && l.TrySend(&wire.Header{Kind: wire.Data, Addr: uint64(sent)}, piece) {
			sent++
		}
		for _, p := range pkts[:d.Poll(pkts)] {
			if p.Event != transport.Arrived || int(p.Header.Addr) != arrived || string(p.Payload) != string(piece) {
				return fmt.Errorf("piece %d: event %d, %+v, %v", arrived, p.Event, p.Header, p.Err)
			}
			arrived++
		}
	}
	return nil
}
