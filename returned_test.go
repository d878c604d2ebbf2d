package mpi

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// returned checks that err says that a rank has returned.
func returned(err error, rank string) {
	check(errors.Is(err, ErrPeerFailed) && strings.Contains(err.Error(), rank+" has returned"), "%v", err)
}

// A wait for a rank that has returned ends with an error that says so, whatever the wait is. Messages that the rank has
// sent before are received all the same, and waits that other ranks can end go on.
func TestRankThatHasReturned(t *testing.T) {
	everyTransport(t, func(t *testing.T, run runner) {
		if cannotAsk(t) {
			t.Skip("a device that matches by itself has no place for the question")
		}
		if testing.Short() && !strings.HasSuffix(t.Name(), "/shm") && !strings.HasSuffix(t.Name(), "/tcp") {
			t.Skip("each takes two seconds")
		}
		const n = 10 // which credit allows: all are sent before the rank returns
		run(9, func(w *Comm) {
			const gone = 8
			buf := make([]byte, long)
			switch w.Rank() {
			case gone: // has sent before it returns
				var rs []*Request
				for i := range n {
					rs = append(rs, ok(Isend(w, message(short, i), 0, 1)))
				}
				must(Send(w, message(long, n), 0, 2))
				must(WaitAll(rs...))
			case 0:
				ok(Recv(w, buf, gone, 2))
				whole(buf, n)
				_, err := Recv(w, buf, gone, 3)
				returned(err, "rank 8")
				for i := range n {
					ok(Recv(w, buf[:short], gone, 1))
					whole(buf[:short], i)
				}
				_, err = Recv(w, buf, gone, 1)
				returned(err, "rank 8")
			case 1:
				_, err := Probe(w, gone, AnyTag)
				returned(err, "rank 8")
			case 2:
				returned(Ssend(w, buf[:1], gone, 3), "rank 8")
			case 3:
				returned(Send(w, buf, gone, 3), "rank 8")
			case 4:
				_, _, err := WaitAny(ok(Irecv(w, buf, gone, 3)), ok(Irecv(w, buf[:1], w.Rank(), 3)))
				returned(err, "rank 8")
				must(Send(w, buf[:1], w.Rank(), 3))
				time.Sleep(time.Millisecond)
			case 5:
				for r := ok(Irecv(w, buf, gone, 3)); ; {
					if done, _, err := r.Test(); done {
						returned(err, "rank 8")
						break
					}
				}
			case 6: // rank 7 answers later
				st := ok(Recv(w, buf, AnySource, 4))
				same(st.Source, 7)
			case 7:
				time.Sleep(1500 * time.Millisecond)
				must(Send(w, buf[:1], 6, 4))
			}
		})
	})
}

// So does a collective call that a rank has not made before it returned, by messages and by memory that all share.
func TestCollectiveAfterReturn(t *testing.T) {
	everyTransport(t, func(t *testing.T, run runner) {
		if cannotAsk(t) {
			t.Skip("a device that matches by itself has no place for the question")
		}
		if testing.Short() && !strings.HasSuffix(t.Name(), "/shm") {
			t.Skip("each takes a second")
		}
		for _, before := range few([]int{0, 3}, 3) {
			run(4, func(w *Comm) {
				for range before {
					must(Barrier(w))
				}
				if w.Rank() == 2 {
					return
				}
				in := []int{w.Rank()}
				err := Allreduce(w, nil, in, Sum)
				check(errors.Is(err, ErrPeerFailed), "%v", err)
			})
		}
	})
}

// A loop of probes that do not wait ends too. A call for a rank that is known to have returned ends at once, as one for
// a rank that has died.
func TestCallsForARankKnownToHaveReturned(t *testing.T) {
	everyTransport(t, func(t *testing.T, run runner) {
		if cannotAsk(t) {
			t.Skip("a device that matches by itself has no place for the question")
		}
		if testing.Short() && !strings.HasSuffix(t.Name(), "/shm") && !strings.HasSuffix(t.Name(), "/tcp") {
			t.Skip("each takes two seconds")
		}
		run(3, func(w *Comm) {
			if w.Rank() > 0 {
				must(Send(w, message(short, w.Rank()), 0, 1))
				return
			}
			buf := make([]byte, long)
			takes := []func(rank int) error{
				func(rank int) error { _, _, err := Iprobe(w, rank, 2); return err },
				func(rank int) error { _, _, _, err := Improbe(w, rank, 2); return err },
			}
			begun, left := time.Now(), []int{1, 2}
			for len(left) > 0 { // both are asked for by turns
				check(time.Since(begun) < time.Minute, "probes for ranks %d find nothing, for ever", left)
				left = slices.DeleteFunc(left, func(rank int) bool {
					err := takes[rank-1](rank)
					if err != nil {
						returned(err, fmt.Sprint("rank ", rank))
					}
					return err != nil
				})
			}
			for rank := 1; rank < 3; rank++ {
				_, is, err := Iprobe(w, rank, 1)
				check(is && err == nil, "the message that rank %d has sent: %v, %v", rank, is, err)
				ok(Recv(w, buf[:short], rank, AnyTag))
				whole(buf[:short], rank)
				_, err = Probe(w, rank, 1)
				returned(err, fmt.Sprint("rank ", rank))
				must(Send(w, buf[:short], rank, 1))
				for name, r := range map[string]*Request{
					"Irecv": ok(Irecv(w, buf, rank, 1)), "Issend": ok(Issend(w, buf[:1], rank, 1)),
					"Isend": ok(Isend(w, buf, rank, 1)), "Issend of much": ok(Issend(w, buf, rank, 1)),
				} {
					done, _, err := r.Test()
					check(done, "%s to rank %d waits", name, rank)
					returned(err, fmt.Sprint("rank ", rank))
				}
			}
		})
	})
}

// cannotAsk reports whether a rank has no place for the question whether another one has returned: its device matches
// messages, or tags, by itself.
func cannotAsk(t *testing.T) bool {
	return matchedBelow(t) || strings.Contains(t.Name(), "/verbs-tags")
}
