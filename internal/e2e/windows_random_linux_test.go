package e2e

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/testkit/truth"
)

func init() {
	role("window-death", windowDeath)
	role("window-memory", windowMemory)
	withoutReadv("window-memory", windowMemory)
}

// windowDeath is a job of which one rank dies in a random program on windows.
func windowDeath(_ context.Context, w *mpi.Comm) error {
	seed, err := strconv.ParseUint(os.Args[1], 10, 64)
	if err != nil {
		return err
	}
	p := truth.WindowDeath{Seed: seed, Create: os.Args[2] == "create", Die: die}
	if err := p.Run(w); err != nil {
		return err
	}
	fmt.Printf("rank %d is right\n", w.Rank())
	return nil
}

// A process that is killed at any step of a program on a window leaves no other rank waiting, and no other rank with a
// wrong value.
func TestDeathInWindow(t *testing.T) {
	t.Parallel()
	seeds := uint64(20)
	if testing.Short() {
		seeds = 2
	}
	for i, transports := range []string{"shm", "tcp"} {
		for j, kind := range []string{"alloc", "create"} {
			t.Run(transports+"/"+kind, func(t *testing.T) {
				t.Parallel()
				first := seeds * uint64(2*i+j)
				for seed := first; seed < first+seeds; seed++ {
					job := run(t, spec{n: 4, role: "window-death", args: []string{fmt.Sprint(seed), kind},
						flags: []string{"--enable-recovery"}, env: []string{"GORUN_TRANSPORTS=" + transports}}, 137)
					if n := job.count(`^rank \d is right$`); n != 3 {
						t.Errorf("seed %d: %d ranks are right:\n%s\n%s", seed, n, job.out.String(), job.err.String())
					}
				}
			})
		}
	}
}

// windowMemory is a job whose ranks make operations between memory of Alloc and of Go, at windows of both and of
// WinAlloc.
func windowMemory(_ context.Context, w *mpi.Comm) error {
	const most = 1 << 17
	alloc := func() ([]int64, func() error, error) {
		b, err := mpi.Alloc[int64](most)
		if err != nil {
			return nil, nil, err
		}
		return b.Slice(), b.Free, nil
	}
	plain := func() ([]int64, func() error, error) {
		return make([]int64, most), func() error { return nil }, nil
	}
	for i, buffer := range []func() ([]int64, func() error, error){alloc, plain} {
		for j, memory := range []func() ([]int64, func() error, error){alloc, plain, nil} {
			if err := useMemory(w, most, buffer, memory); err != nil {
				return fmt.Errorf("buffer %d, window %d: %w", i, j, err)
			}
		}
	}
	fmt.Printf("rank %d has all over %s\n", w.Rank(), w.Transport())
	return nil
}

// useMemory makes a window of memory, or of WinAlloc's, and operations with a buffer.
func useMemory(w *mpi.Comm, most int, buffer, memory func() ([]int64, func() error, error)) (err error) {
	must := func(e error) {
		if err == nil {
			err = e
		}
	}
	buf, freeBuf, e := buffer()
	if e != nil {
		return e
	}
	var win *mpi.Win[int64]
	freeMem := func() error { return nil }
	if memory == nil {
		win, err = mpi.WinAlloc[int64](w, most)
	} else {
		var mem []int64
		if mem, freeMem, err = memory(); err == nil {
			win, err = mpi.WinCreate(w, mem)
		}
	}
	if err != nil {
		return err
	}
	right := (w.Rank() + 1) % w.Size()
	for _, n := range []int{1, 1000, 1100, 20_000, most} {
		for i := range buf[:n] {
			buf[i] = int64(w.Rank()*most + i + n)
		}
		must(win.Fence())
		must(win.Put(buf[:n], right, 0))
		must(win.Fence())
		left := (w.Rank() + w.Size() - 1) % w.Size()
		for i, v := range win.Local()[:n] {
			if want := int64(left*most + i + n); v != want {
				return fmt.Errorf("element %d of %d is %d, not %d, after Put", i, n, v, want)
			}
		}
		must(win.Fence())
		must(win.Accumulate(mpi.Sum, buf[:n], right, 0))
		must(win.Fence())
		clear(buf[:n])
		must(win.Get(buf[:n], right, 0))
		must(win.Fence())
		for i, v := range buf[:n] {
			if want := 2 * int64(w.Rank()*most+i+n); v != want {
				return fmt.Errorf("element %d of %d comes back as %d, not %d", i, n, v, want)
			}
		}
		must(win.Fence())
	}
	must(win.Free())
	must(freeBuf())
	must(freeMem())
	return err
}

// Operations are right between memory of Alloc and memory of Go, at windows of either and of WinAlloc; §9.2, §12.2.
func TestWindowMemory(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ role, transports string }{
		{"window-memory", "shm"}, {"window-memory without readv", "shm"}, {"window-memory", "tcp"},
	} {
		t.Run(c.role+"/"+c.transports, func(t *testing.T) {
			t.Parallel()
			j := run(t, spec{n: 3, role: c.role, env: []string{"GORUN_TRANSPORTS=" + c.transports}}, 0)
			if n := j.count(`^rank \d has all`); n != 3 {
				t.Errorf("%d ranks have all", n)
			}
		})
	}
}
