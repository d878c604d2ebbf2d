package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

func init() {
	switch {
	case proc.Race:
		floodMessages = 20_000
	case brief:
		floodMessages = floodBrief
	}
	role("flood", flood)
}

const (
	floodBytes = 1024
	floodLimit = 4 << 20
	floodBrief = 60_000
)

// floodMessages are those of all senders together.
var floodMessages = 200_000

// flood: rank 0 computes and looks now and then for a message that is not sent, then it receives everything. A rank that
// waits for that message would have its senders send all that they have.
func flood(_ context.Context, w *mpi.Comm) error {
	each := floodMessages / (w.Size() - 1)
	b := make([]byte, floodBytes)
	if err := mpi.Barrier(w); err != nil {
		return err
	}
	if w.Rank() != 0 {
		pattern(b, w.Rank())
		for i := range each {
			binary.LittleEndian.PutUint64(b, uint64(i))
			if err := mpi.Send(w, b, 0, tagData); err != nil {
				return err
			}
		}
		return nil
	}
	// Until much is there, and a few times more.
	const looks = 30 // a rank that looks more often waits
	for more := looks; more > 0; more-- {
		time.Sleep(patience / 500)
		if _, found, err := mpi.Iprobe(w, mpi.AnySource, tagGo); found || err != nil {
			return fmt.Errorf("a message that is never sent: %v %w", found, err)
		}
		if w.Stats().UnexpectedBytes >= floodLimit/8 {
			more = min(more, 5)
		}
	}
	base := proc.Self().Memory("VmHWM") >> 10
	if err := drain(w, each, b); err != nil {
		return err
	}
	s := w.Stats()
	fmt.Printf("received %d; peak %d bytes; unexpected now %d; memory before %d after %d kB\n", each*(w.Size()-1),
		s.UnexpectedPeak, s.UnexpectedBytes, base, proc.Self().Memory("VmHWM")>>10)
	return nil
}

// drain receives each sender's messages in their order, in whatever order the senders come.
func drain(w *mpi.Comm, each int, b []byte) error {
	next := make([]uint64, w.Size())
	want := make([]byte, floodBytes)
	for range each * (w.Size() - 1) {
		st, err := mpi.Recv(w, b, mpi.AnySource, tagData)
		if err != nil {
			return err
		}
		pattern(want, st.Source)
		binary.LittleEndian.PutUint64(want, next[st.Source])
		if st.Bytes != floodBytes || !bytes.Equal(b, want) {
			return fmt.Errorf("message %d of rank %d: got number %d, %d bytes", next[st.Source], st.Source,
				binary.LittleEndian.Uint64(b), st.Bytes)
		}
		next[st.Source]++
	}
	if _, more, err := mpi.Iprobe(w, mpi.AnySource, mpi.AnyTag); more || err != nil {
		return fmt.Errorf("more than was sent: %v %w", more, err)
	}
	return nil
}

// Messages without a receive wait at their senders once they have filled what the receiver spends on them.
func TestFlood(t *testing.T) {
	sent := floodMessages
	if testing.Short() && !proc.Race {
		sent = floodBrief
	}
	for _, senders := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d senders", senders), func(t *testing.T) {
			j := run(t, spec{n: senders + 1, role: "flood", env: []string{"GORUN_UNEXPECTED_MAX=" + strconv.Itoa(floodLimit)}},
				0)
			m := j.find(`^received (\d+); peak (\d+) bytes; unexpected now (\d+); memory before (\d+) after (\d+) kB`)
			if len(m) != 1 || m[0][1] != strconv.Itoa(sent) || m[0][3] != "0" {
				t.Fatalf("rank 0 reports\n%s", j.out.String())
			}
			t.Log(m[0][0])
			peak, _ := strconv.Atoi(m[0][2])
			if peak > floodLimit || peak < floodLimit/8 {
				t.Errorf("at most %d bytes of unexpected messages were held; want many, and at most %d", peak, floodLimit)
			}
			memory, _ := strconv.Atoi(m[0][5])
			if most := 40 << 10; memory > most && !proc.Race { // 60 MB or 200 MB were sent
				t.Errorf("rank 0 has used %d kB, want at most %d", memory, most)
			}
		})
	}
}

// 64 ranks on a small machine: they come, meet and go, and none is large.
func TestManyRanks(t *testing.T) {
	const n, most = 64, 16 << 10 // kB
	j := run(t, spec{n: n, prog: proc.Build(t, "internal/e2e/testprog")}, 0)
	m := j.find(`^rank (\d+) of 64: peak (\d+)$`)
	if len(m) != n {
		t.Fatalf("%d of %d ranks report\n%s", len(m), n, j.out.String())
	}
	largest := 0
	for _, m := range m {
		kB, _ := strconv.Atoi(m[2])
		largest = max(largest, kB)
	}
	t.Logf("64 ranks in %v, the largest used %d kB", j.ended.Sub(j.started), largest)
	if largest > most {
		t.Errorf("a rank has used %d kB, want at most %d", largest, most)
	}
}
