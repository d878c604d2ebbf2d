package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi"
)

func init() {
	role("alloc", alloc)
	withoutReadv("alloc", alloc)
	role("alloc too much", allocTooMuch)
}

// shelf gives each message a new buffer from Alloc. Earlier ones are freed, so that addresses and numbers are used
// again.
type shelf struct {
	held []*mpi.Buffer[byte]
	err  error
}

func (s *shelf) get(n int) []byte {
	if len(s.held) == 2 {
		s.err = errors.Join(s.err, s.held[0].Free())
		s.held = s.held[1:]
	}
	b, err := mpi.Alloc[byte](n)
	if err != nil {
		s.err = errors.Join(s.err, err)
		return make([]byte, n)
	}
	s.held = append(s.held, b)
	if got := b.Slice(); len(got) != n {
		s.err = errors.Join(s.err, fmt.Errorf("%d bytes were asked for, %d are there", n, len(got)))
	}
	for _, c := range b.Slice() {
		if c != 0 {
			s.err = errors.Join(s.err, errors.New("the buffer is not zeroed"))
			break
		}
	}
	return b.Slice()
}

func (s *shelf) close() error {
	for _, b := range s.held {
		s.err = errors.Join(s.err, b.Free())
		if err := b.Free(); err == nil {
			s.err = errors.Join(s.err, errors.New("a second Free is not refused"))
		}
	}
	return s.err
}

// alloc exchanges messages of all sizes; the argument names the sides that have buffers from Alloc.
func alloc(_ context.Context, w *mpi.Comm) error {
	var out, in shelf
	send, recv := memory(heap), memory(heap)
	if strings.Contains(os.Args[1], "send") {
		send = out.get
	}
	if strings.Contains(os.Args[1], "recv") {
		recv = in.get
	}
	if err := exchange(w, send, recv); err != nil {
		return err
	}
	if err := parts(w); err != nil {
		return fmt.Errorf("parts of a buffer: %w", err)
	}
	fmt.Printf("rank %d exchanged; gets %d streams %d\n", w.Rank(), w.Stats().Gets, w.Stats().Streams)
	return errors.Join(out.close(), in.close())
}

// parts sends from the middle of a buffer, whose address and length are aligned to nothing.
func parts(w *mpi.Comm) error {
	b, err := mpi.Alloc[byte](1 << 20)
	if err != nil {
		return err
	}
	peer := 1 - w.Rank()
	for _, at := range []int{1, 4097, 1<<20 - 300001} {
		out, in := b.Slice()[at:at+300000], make([]byte, 300000)
		pattern(out, w.Rank()+at)
		if _, err := mpi.Sendrecv(w, out, peer, 0, in, peer, 0); err != nil {
			return err
		}
		if err := verify(in, peer+at); err != nil {
			return err
		}
	}
	return b.Free()
}

func TestAlloc(t *testing.T) {
	for _, role := range []string{"alloc", "alloc without readv"} {
		for _, sides := range []string{"send", "recv", "send and recv"} {
			t.Run(role+"/"+sides, func(t *testing.T) {
				j := run(t, spec{n: 2, role: role, args: []string{sides}}, 0)
				if got := j.count(`^rank \d exchanged`); got != 2 {
					t.Errorf("%d of 2 ranks report\n%s", got, j.out.String())
				}
				if j.err.String() != "" {
					t.Errorf("not silent:\n%s", j.err.String())
				}
				t.Log(strings.TrimSpace(j.out.String()))
			})
		}
	}
}

// allocTooMuch asks for more than there is, which is an error. What is there can be used afterwards.
func allocTooMuch(_ context.Context, w *mpi.Comm) error {
	for _, f := range []func() error{
		func() error { _, err := mpi.Alloc[uint64](1 << 50); return err }, // more than any machine has
		func() error { _, err := mpi.Alloc[byte](1 << 42); return err },
		func() error {
			if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1 << 20, Max: unix.RLIM_INFINITY}); err != nil {
				return err
			}
			_, err := mpi.Alloc[byte](1<<20 + 1)
			return err
		},
	} {
		err := f()
		fmt.Printf("rank %d no memory %v: %v\n", w.Rank(), errors.Is(err, mpi.ErrNoMemory), err)
	}
	if _, err := mpi.Alloc[byte](-1); !errors.Is(err, mpi.ErrCount) {
		return fmt.Errorf("a negative count: %w", err)
	}
	if _, err := mpi.Alloc[*int](1); !errors.Is(err, mpi.ErrType) {
		return fmt.Errorf("a type with pointers: %w", err)
	}
	b, err := mpi.Alloc[byte](1 << 20)
	if err != nil {
		return err
	}
	pattern(b.Slice(), w.Rank())
	in := make([]byte, 1<<20)
	if _, err := mpi.Sendrecv(w, b.Slice(), 1-w.Rank(), 0, in, 1-w.Rank(), 0); err != nil {
		return err
	}
	return errors.Join(verify(in, 1-w.Rank()), b.Free())
}

func TestAllocTooMuch(t *testing.T) {
	j := run(t, spec{n: 2, role: "alloc too much"}, 0)
	for _, n := range []string{"9007199254740992", "4398046511104", "1052672"} {
		if got := j.count(`^rank \d no memory true: mpi: Alloc: .*` + n); got != 2 {
			t.Errorf("%d of 2 ranks name the %s bytes that are not there\n%s", got, n, j.out.String())
		}
	}
}
