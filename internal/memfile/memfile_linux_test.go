package memfile

import (
	"bytes"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/internal/testkit/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.VerifyMain(m.Run)) }

func create(t *testing.T, n, shared int) *Memory {
	t.Helper()
	m, err := Create(n, shared)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// What one end writes the other reads, in what is shared, and so much is mapped. The memory outlives its owner's
// mapping.
func TestOpen(t *testing.T) {
	m := create(t, 20_000, 9000)
	copy(m.Bytes(), "first")
	o, err := Open(m.Handle())
	if err != nil {
		t.Fatal(err)
	}
	if b := o.Bytes(); len(b) != 9000 || string(b[:5]) != "first" || len(m.Bytes()) != 20_000 {
		t.Errorf("%d bytes of %d: %q", len(b), len(m.Bytes()), b[:5])
	}
	o.Bytes()[8999] = 7
	if m.Bytes()[8999] != 7 {
		t.Error("it is other memory")
	}
	if err := unix.Ftruncate(m.fd, page); err == nil {
		t.Error("its owner can make it shorter under a mapping")
	}
	m.Close()
	o.Bytes()[0] = 1
	o.Close()
}

// A handle is believed in nothing: no other file is mapped, and no more of it than there is.
func TestOpenHostile(t *testing.T) {
	m := create(t, 8192, 4096)
	defer m.Close()
	other := create(t, 8192, 4096)
	defer other.Close()
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	good, _ := decode(m.Handle())
	for what, edit := range map[string]func(h *handle){
		"another file of memory": func(h *handle) { h.fd = other.fd },
		"another file":           func(h *handle) { h.fd = int(null.Fd()) },
		"no descriptor":          func(h *handle) { h.fd = 1 << 20 },
		"a negative one":         func(h *handle) { h.fd = -1 },
		"no process":             func(h *handle) { h.pid = 1 << 30 },
		"process 0":              func(h *handle) { h.pid = 0 },
		"another namespace":      func(h *handle) { h.namespace++ },
		"another secret":         func(h *handle) { h.secret[15]++ },
		"more than there is":     func(h *handle) { h.size = page + 8193 },
		"less than a page":       func(h *handle) { h.size = page },
		"a negative length":      func(h *handle) { h.size = -1 },
	} {
		h := good
		edit(&h)
		if o, err := Open(h.encode()); err == nil {
			o.Close()
			t.Errorf("%s is opened", what)
		}
	}
	for n := range m.Handle() {
		if o, err := Open(m.Handle()[:n]); err == nil {
			o.Close()
			t.Errorf("%d bytes of a handle are opened", n)
		}
	}
	if b := good.encode(); !bytes.Equal(b, m.Handle()) {
		t.Errorf("%x became %x", m.Handle(), b)
	}
	// A file of memory that its owner can shorten is not mapped, whatever it holds.
	fd, err := unix.MemfdCreate("unsealed", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	unix.Ftruncate(fd, 1<<20)
	unix.Pwrite(fd, good.secret[:], 0)
	h := good
	h.fd = fd
	if o, err := Open(h.encode()); err == nil {
		o.Close()
		t.Error("a file that can be shortened is opened")
	}
}

// A handle whose memory has been freed opens nothing, also where its descriptor is another file's.
func TestOpenFreed(t *testing.T) {
	m := create(t, 8192, 4096)
	b, fd := m.Handle(), m.fd
	m.Close()
	var all []*Memory
	taken := false
	for range 20 {
		n := create(t, 8192, 4096)
		all = append(all, n)
		taken = taken || n.fd == fd
	}
	if !taken {
		t.Error("no other file has its descriptor")
	}
	if o, err := Open(b); err == nil {
		o.Close()
		t.Error("other memory is opened")
	}
	for _, n := range all {
		n.Close()
	}
}
