package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi"
)

func init() {
	role("huge counts", hugeCounts)
}

// Lengths beyond what 31 and 32 bits count.
const (
	hugeBcast = 3 << 30        // bytes
	hugeBlock = 2<<30 + 8*1001 // bytes of one block of a v form
	hugeSum   = 1<<28 + 77     // elements of 8 bytes
)

// fillWords fills b so that no two of its words are alike, and verifyWords finds the first that is not so.
func fillWords(b []uint64, key uint64) {
	for i := range b {
		b[i] = key + uint64(i)*0x9e3779b97f4a7c15
	}
}

func verifyWords(what string, b []uint64, key uint64) error {
	for i := range b {
		if want := key + uint64(i)*0x9e3779b97f4a7c15; b[i] != want {
			return fmt.Errorf("%s: element %d of %d is %#x, want %#x", what, i, len(b), b[i], want)
		}
	}
	return nil
}

// hugeCounts makes the call that its argument names, with more than 2 GiB.
func hugeCounts(_ context.Context, w *mpi.Comm) error {
	calls := map[string]func(*mpi.Comm) error{"bcast": hugeBroadcast, "allreduce": hugeReduction,
		"alltoallv": hugeExchange, "layout": hugeLayout}
	if err := calls[os.Args[1]](w); err != nil {
		return err
	}
	fmt.Printf("rank %d is content\n", w.Rank())
	return nil
}

func hugeBroadcast(w *mpi.Comm) error {
	b := make([]uint64, hugeBcast/8)
	if w.Rank() == 1 {
		fillWords(b, 5)
	}
	if err := mpi.Bcast(w, b, 1); err != nil {
		return err
	}
	return verifyWords("Bcast", b, 5)
}

func hugeReduction(w *mpi.Comm) error {
	b := make([]uint64, hugeSum)
	fillWords(b, uint64(w.Rank()))
	if err := mpi.Allreduce(w, nil, b, mpi.Max); err != nil {
		return err
	}
	for i := range b { // the larger of two words that differ by 1, which may wrap around
		low := uint64(i) * 0x9e3779b97f4a7c15
		if want := max(low, low+1); b[i] != want {
			return fmt.Errorf("Allreduce: element %d of %d is %#x, want %#x", i, len(b), b[i], want)
		}
	}
	return nil
}

// hugeExchange sends one block that is long.
func hugeExchange(w *mpi.Comm) error {
	const long, short = hugeBlock / 8, 3
	send, recv := make([][]uint64, 2), make([][]uint64, 2)
	if w.Rank() == 0 {
		send[1], recv[1] = make([]uint64, long), make([]uint64, short)
		fillWords(send[1], 9)
	} else {
		send[0], recv[0] = make([]uint64, short), make([]uint64, long)
		fillWords(send[0], 7)
	}
	if err := mpi.Alltoallv(w, send, recv); err != nil {
		return err
	}
	if w.Rank() == 0 {
		return verifyWords("Alltoallv", recv[1], 7)
	}
	if err := verifyWords("Alltoallv", recv[0], 9); err != nil {
		return err
	}
	clear(recv[0])
	return nil
}

// hugeLayout moves elements that are more than 2³² bytes apart.
func hugeLayout(w *mpi.Comm) error {
	const far = 1<<30 + 5
	b := make([]uint32, far+2)
	if w.Rank() == 0 {
		b[0], b[far], b[far+1] = 1, 2, 3
	}
	if err := mpi.BcastLayout(w, b, mpi.Indexed([]int{1, 2}, []int{0, far}, mpi.Of[uint32]()), 0); err != nil {
		return err
	}
	if b[0] != 1 || b[far] != 2 || b[far+1] != 3 || b[5] != 0 {
		return fmt.Errorf("BcastLayout: %v, %v", b[0], b[far:])
	}
	return nil
}

// Counts have 64 bits: 3 GiB are broadcast, 2 GiB combined, blocks of a v form are longer than 2 GiB. In schedules of
// short messages, and as one long one.
func TestHugeCounts(t *testing.T) {
	if testing.Short() {
		t.Skip("it moves 20 GiB, and takes 9 of memory")
	}
	if free := availableGiB(t); free < 11 {
		t.Skipf("%d GiB of memory are available; it takes 9", free)
	}
	for _, c := range []struct{ call, env string }{
		{"bcast", "GORUN_COLL="}, {"allreduce", "GORUN_COLL="}, {"alltoallv", "GORUN_COLL="}, {"layout", "GORUN_COLL="},
		{"bcast", "GORUN_COLL=bcast:binomial"}, {"allreduce", "GORUN_COLL=allreduce:doubling"},
		{"bcast", "GORUN_TRANSPORTS=tcp"},
	} {
		j := run(t, spec{n: 2, role: "huge counts", args: []string{c.call}, env: []string{c.env}}, 0)
		if got := j.count(`^rank \d is content`); got != 2 {
			t.Errorf("%v: %d of 2 ranks report\n%s", c, got, j.out.String())
		}
	}
}

// availableGiB is what the kernel says that programs can have.
func availableGiB(t *testing.T) (n int) {
	t.Helper()
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Skip(err)
	}
	_, line, _ := strings.Cut(string(text), "MemAvailable:")
	fmt.Sscan(line, &n)
	return n >> 20
}
