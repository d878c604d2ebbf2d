package e2e

import (
	"encoding/binary"
	"fmt"

	"github.com/gorun-mpi/mpi"
)

// sizes are those at which something changes (a slot's payload, the eager limit, the areas of a ring, a fragment, a
// READ's piece), and their neighbours, up to 8 MiB.
var sizes = []int{0, 1, 2, 7, 8, 48, 63, 64, 79, 80, 81, 111, 112, 113, 127, 128, 1000, 4095, 4096, 8191, 8192, 8193,
	16383, 16385, 32767, 32768, 32769, 65535, 65537, 131072, 262145, 524287, 524288, 524289, 1048575, 1048577, 2097152,
	3<<20 + 7, 4 << 20, 8<<20 - 1, 8 << 20}

// word is what 8 bytes of a message are: they tell the seed and the place.
func word(at, seed int) uint64 {
	return uint64(at+1)*0x9e3779b97f4a7c15 + uint64(seed)*0xd1b54a32d192ed03
}

// pattern fills b so that verify knows it.
func pattern(b []byte, seed int) {
	i := 0
	for ; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], word(i, seed))
	}
	for ; i < len(b); i++ {
		b[i] = byte(word(i, seed) >> 56)
	}
}

// verify reports the first place of b that is not as pattern makes it.
func verify(b []byte, seed int) error {
	i := 0
	for ; i+8 <= len(b); i += 8 {
		if got, want := binary.LittleEndian.Uint64(b[i:]), word(i, seed); got != want {
			return fmt.Errorf("at byte %d of %d is %#x, want %#x", i, len(b), got, want)
		}
	}
	for ; i < len(b); i++ {
		if want := byte(word(i, seed) >> 56); b[i] != want {
			return fmt.Errorf("byte %d of %d is %#x, want %#x", i, len(b), b[i], want)
		}
	}
	return nil
}

// memory gives a rank a buffer of some size.
type memory func(n int) []byte

func heap(n int) []byte { return make([]byte, n) }

// exchange moves messages of all sizes between each rank and its neighbours, both at once, one way with the receive
// posted before, and one way with the message there before.
func exchange(w *mpi.Comm, send, recv memory) error {
	me, n := w.Rank(), w.Size()
	right, left := (me+1)%n, (me+n-1)%n
	for i, size := range sizes {
		if brief && size > 1<<20+1 {
			break
		}
		out, in := send(size), recv(size)
		pattern(out, me+i)
		st, err := mpi.Sendrecv(w, out, right, i, in, left, i)
		if err == nil && (st.Source != left || st.Tag != i || st.Bytes != int64(size)) {
			err = fmt.Errorf("status %+v", st)
		}
		if err == nil {
			err = verify(in, left+i)
		}
		if err == nil {
			err = inTurn(w, out, in, left, right, i)
		}
		if err != nil {
			return fmt.Errorf("%d bytes: %w", size, err)
		}
	}
	return mpi.Barrier(w)
}

// inTurn sends once before and once after the other has begun to receive.
func inTurn(w *mpi.Comm, out, in []byte, left, right, seed int) error {
	clear(in)
	// The message first: it waits at the receiver, which is probing.
	s, err := mpi.Isend(w, out, right, 1000)
	if err != nil {
		return err
	}
	st, err := mpi.Probe(w, left, 1000)
	if err != nil || st.Bytes != int64(len(in)) {
		return fmt.Errorf("probe: %+v %w", st, err)
	}
	if _, err := mpi.Recv(w, in, left, 1000); err != nil {
		return err
	}
	if err := verify(in, left+seed); err != nil {
		return fmt.Errorf("message first: %w", err)
	}
	if _, err := s.Wait(); err != nil {
		return err
	}
	clear(in)
	// The receive first: the sender waits for a message that it is posted.
	r, err := mpi.Irecv(w, in, left, 1001)
	if err != nil {
		return err
	}
	if _, err := mpi.Sendrecv(w, []byte{1}, left, 1002, make([]byte, 1), right, 1002); err != nil {
		return err
	}
	if err := mpi.Send(w, out, right, 1001); err != nil {
		return err
	}
	if _, err := r.Wait(); err != nil {
		return err
	}
	if err := verify(in, left+seed); err != nil {
		return fmt.Errorf("receive first: %w", err)
	}
	return nil
}
