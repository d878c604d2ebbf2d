//go:build cuda && linux && cgo

package cuda

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/accel/acceltest"
)

// TestConformance runs the conformance test of drivers over the software GPU. The other process is this test binary.
func TestConformance(t *testing.T) {
	d := the(t)
	if !onDevice {
		d = softGPU(t)
	}
	acceltest.TestDriver(t, func(t *testing.T) (acceltest.Subject, acceltest.Peer) { return newSubject(d), newPeer(t) })
}

// After Query a user's own copy into memory of cuMemAlloc is done when it returns. The driver may return before.
func TestSynchronousCopies(t *testing.T) {
	d := softGPU(t)
	s := newSubject(d)
	host := must(mapped(4096))
	if err := d.Pin(host); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		m := s.User(0, 4096, acceltest.Ordinary) // which asks Query
		copy(s.out, "0123456789")
		if err := userCall(0, "cuMemcpyHtoD_v2", m.Base, address(s.out), 10); err != nil {
			t.Fatal(err)
		}
		ev := must(d.Copy(0, address(host), m.Base, 10))
		for !must(d.Done(0, ev)) {
		}
		if string(host[:10]) != "0123456789" {
			t.Fatalf("round %d: a message would have had %q", i, host[:10])
		}
		clear(host)
		s.FreeUser(m)
	}
	if err := d.Unpin(host); err != nil {
		t.Error(err)
	}
}

func TestStreamOfAThread(t *testing.T) {
	d := softGPU(t)
	if _, err := d.Mark(0, 2); err == nil {
		t.Error("the stream of a thread, which a goroutine does not have, is taken")
	}
}

func TestDescriptorsAreClosedOnExec(t *testing.T) {
	d := softGPU(t)
	m := must(d.Alloc(0, 5000))
	fd := must(d.DMABuf(m, m.Base, 4096))
	must[int64](0, func() error { _, _, err := d.Export(m); return err }())
	for what, fd := range map[string]int{"DMABuf": fd, "Export": d.blocks[m.Base].shared.fd,
		"the label": d.blocks[m.Base].shared.label} {
		if flags := must(unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)); flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("a descriptor of %s is inherited", what)
		}
	}
	unix.Close(fd)
	if err := d.Free(m); err != nil {
		t.Error(err)
	}
}

// BenchmarkQuery is what one call through cgo costs: over the software GPU, and of a function that does nothing.
func BenchmarkQuery(b *testing.B) {
	d := the(b)
	if !onDevice {
		d = softGPU(b)
	}
	m := must(d.Alloc(0, 4096))
	b.Run("driver", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if got, err := d.Query(m.Base); err != nil || got.Kind != accel.OnBoard {
				b.Fatal(got, err)
			}
		}
	})
	b.Run("nothing", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			reader()
		}
	})
	if err := d.Free(m); err != nil {
		b.Error(err)
	}
}

// GORUN_CUDA_SHARE=0 keeps memory from other processes.
func TestNothingIsShared(t *testing.T) {
	softGPU(t)
	for share, want := range map[string]string{"0": "GORUN_CUDA_SHARE is 0", "1": "", "": ""} {
		p := newPeer(t, "GORUN_CUDA_SHARE="+share)
		m := must(p.Alloc(0, 5000))
		if _, _, err := p.Export(m); (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("GORUN_CUDA_SHARE=%s: Export: %v, want %q", share, err, want)
		}
		if err := p.Free(m); err != nil {
			t.Error(err)
		}
	}
}
