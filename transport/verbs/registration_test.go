//go:build verbs && linux && cgo

package verbs

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/testkit/leak"
	"github.com/gorun-mpi/mpi/transport"
)

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

// The same of memory that the kernel refuses, on any device: it is not shown to peers, and not read into, until it may
// be written to.
func TestRegistrationRefused(t *testing.T) {
	if soft(t) {
		t.Skip("the software HCA pins no pages, so there is none that it is refused")
	}
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
		if state, err := ab.TryGet(dst, addr, key, 1); !errors.Is(err, unix.EFAULT) || !strings.Contains(err.Error(), "registering 100000 bytes") {
			t.Fatalf("state %d, %v; its registration was to fail", state, err)
		}
		if _, _, ok := ab.Register(dst); ok {
			t.Error("a peer is shown what could not be registered")
		}
		talk(ab, b)
		talk(ba, a)
	}
	if said := log.with("a message is copied because its memory could not be registered"); len(said) != 1 || !strings.Contains(said[0], "100000") {
		t.Errorf("said %q", said)
	}
	if err := unix.Mprotect(dst, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		t.Fatal(err)
	}
	if err := fetch(t, ab, a, b, dst, addr, key); err != nil || !bytes.Equal(dst, mem) {
		t.Errorf("when it may be written to: %v", err)
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
	files := leak.Files()
	opt := options(t, 0, 2, func(string, ...any) {})
	if d, err := New(opt); !errors.Is(err, transport.ErrUnavailable) || !strings.Contains(err.Error(), "KiB for receive and send buffers: registering ") {
		t.Errorf("%v, %v", d, err)
	}
	if now := leak.Files(); now > files {
		t.Errorf("%d descriptors, %d before", now, files)
	}
}
