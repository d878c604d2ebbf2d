package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/testkit/netns"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

func init() {
	role("hosts mixed", func(_ context.Context, w *mpi.Comm) error {
		if err := exchange(w, heap, heap); err != nil {
			return err
		}
		if err := anySource(w); err != nil {
			return err
		}
		fmt.Printf("rank %d is content\n", w.Rank())
		return nil
	})
	role("hosts two talk", twoTalk)
}

// anySource has rank 0 receive messages from all hosts, its own included, as they come; those of each rank come in
// order.
func anySource(w *mpi.Comm) error {
	const count = 3000
	b := make([]byte, 100<<10)
	if w.Rank() > 0 {
		for i := range count {
			m := b[:8+i%64]
			if i%100 == 99 {
				m = b
			}
			binary.LittleEndian.PutUint64(m, uint64(i))
			if err := mpi.Send(w, m, 0, tagData); err != nil {
				return err
			}
		}
		return nil
	}
	next := make([]uint64, w.Size())
	for range count * (w.Size() - 1) {
		st, err := mpi.Recv(w, b, mpi.AnySource, mpi.AnyTag)
		if err != nil {
			return err
		}
		if got := binary.LittleEndian.Uint64(b); got != next[st.Source] {
			return fmt.Errorf("message %d of rank %d came when %d was next", got, st.Source, next[st.Source])
		}
		next[st.Source]++
	}
	return nil
}

// Three hosts with two ranks each: shared memory within, TCP between, all in one communicator.
func TestHostsMixed(t *testing.T) {
	t.Parallel()
	for _, tls := range []string{"0", "1"} {
		t.Run("TLS="+tls, func(t *testing.T) {
			h := netns.Up(t, 3)
			j := runOn(t, h, spread{perHost: []int{2, 2, 2}, role: "hosts mixed",
				env: []string{"GORUN_LOG=debug", "GORUN_TCP_TLS=" + tls}}).finish(0)
			for rank := range 6 {
				j.says(rank, fmt.Sprintf(`^rank %d is content`, rank))
			}
			for peer := 1; peer < 6; peer++ {
				by := "tcp"
				if peer == 1 {
					by = "shm"
				}
				if peer == 1 || peer == 5 { // rank 0's neighbours in exchange; from the others it only receives
					j.says(0, fmt.Sprintf(`peer connected:.*peer=%d transport=%s `, peer, by))
				}
			}
			j.says(3, `peer=2 transport=shm `, `peer=4 transport=tcp `)
		})
	}
}

// twoTalk has ranks 0 and 1 talk, both first at the same moment. Other ranks do not.
func twoTalk(_ context.Context, w *mpi.Comm) error {
	waitSignal("go")
	if w.Rank() < 2 {
		in := make([]byte, 1)
		if _, err := mpi.Sendrecv(w, []byte{7}, 1-w.Rank(), tagData, in, 1-w.Rank(), tagData); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	waitSignal("stop")
	return nil
}

// Connections are made between ranks that talk, one for two ranks, also if both begin at the same moment.
func TestHostsConnections(t *testing.T) {
	t.Parallel()
	h := netns.Up(t, 3)
	for range 10 {
		j := runOn(t, h, spread{role: "hosts two talk"})
		j.signal("go")
		j.allReady()
		for host, want := range map[int]int{1: 1, 2: 1, 3: 0} {
			var n int
			proc.Eventually(t, "the losing connection to be gone", func() bool { n = connections(t, h, host); return n <= want })
			if n != want {
				t.Errorf("h%d has %d connections to other hosts, want %d", host, n, want)
			}
		}
		j.signal("stop")
		j.finish(0)
	}
}

// connections counts those of a host to other hosts, not to the switch, where the wire-up is.
func connections(t *testing.T, h *netns.Hosts, host int) int {
	t.Helper()
	return len(between(t, h, host))
}

// between are the lines of ss on these connections.
func between(t *testing.T, h *netns.Hosts, host int) []string {
	t.Helper()
	return sockets(t, h, host, "state", "established",
		"( dst 10.77.0.0/24 and not dst 10.77.0.254 ) or ( dst [fd77::/64] and not dst [fd77::fe] )")
}

// sockets are the lines of ss on a host: TCP, numeric.
func sockets(t *testing.T, h *netns.Hosts, host int, args ...string) []string {
	t.Helper()
	proc.RequireProgram(t, "ss", "iproute2")
	out, err := h.Command(host, "ss", append([]string{"-H", "-t", "-n"}, args...)...).Output()
	if err != nil {
		t.Fatalf("ss: %v", err)
	}
	if out = bytes.TrimSpace(out); len(out) == 0 {
		return nil
	}
	return strings.Split(string(out), "\n")
}
