package mpi

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/transport"
)

// within is w with a deadline that a wait which ends does not meet.
func within(w *Comm) (*Comm, context.CancelFunc) {
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	return w.WithContext(ctx), stop
}

// A sender tests its short Isend in a loop in which it makes other calls as well, or while another goroutine waits for
// messages that come now and then. Its receiver waits for what the sender sends next.
func TestTestedSendReturns(t *testing.T) {
	for name, other := range map[string]func(w *Comm, never *Request){
		"Iprobe":  func(w *Comm, _ *Request) { _, _, err := Iprobe(w, 1, 9); must(err) },
		"Test":    func(_ *Comm, never *Request) { finished(never) },
		"traffic": func(*Comm, *Request) { time.Sleep(200 * time.Microsecond) },
	} {
		t.Run(name, func(t *testing.T) {
			enough := errors.New("enough")
			defer watchdog(t)()
			err := RunLocal(3, func(w *Comm) error {
				const n = 40
				switch w.Rank() {
				case 0:
					if name == "traffic" {
						go func() {
							for b := make([]byte, 1); ; {
								if _, err := Recv(w, b, 2, 5); err != nil {
									return
								}
							}
						}()
					}
					never := ok(Irecv(w, make([]byte, 1), 1, 3))
					begun := time.Now()
					for i := range n {
						turns := 0
						for r := ok(Isend(w, make([]byte, 8), 1, 1000+i)); !finished(r); turns++ {
							other(w, never)
							check(time.Since(begun) < 10*time.Second, "message %d is not over after %d turns", i, turns)
						}
					}
					must(Send(w, []byte{1}, 1, tagMatched))
					ok(Recv(w, make([]byte, 1), 1, 6))
				case 1:
					ok(Recv(w, make([]byte, 1), 0, tagMatched))
					return enough
				case 2:
					for name == "traffic" && Send(w, []byte{1}, 0, 5) == nil {
						time.Sleep(2 * time.Millisecond)
					}
				}
				return nil
			}, littleRoom())
			if !errors.Is(err, enough) {
				t.Fatal(err)
			}
		})
	}
}

// So does an Isend whose message a matched probe has taken, as a Send does.
func TestSendOfTakenMessageReturns(t *testing.T) {
	for _, blocking := range []bool{true, false} {
		over(t)(2, func(w *Comm) {
			in, stop := within(w)
			defer stop()
			if w.Rank() == 0 {
				var rs []*Request
				for i := range 14 {
					rs = append(rs, ok(Isend(w, make([]byte, 8), 1, 1000+i)))
				}
				if blocking {
					must(Send(in, make([]byte, 8), 1, 5))
				} else {
					r := ok(Isend(in, make([]byte, 8), 1, 5))
					awaitSignal(w, 1) // that it is taken
					ok(r.Wait())
				}
				must(Send(w, []byte{1}, 1, tagMatched))
				must(WaitAll(rs...))
				return
			}
			m, _, err := Mprobe(w, 0, 5)
			must(err)
			if !blocking {
				sendSignal(w, 0)
			}
			ok(Recv(in, make([]byte, 1), 0, tagMatched))
			ok(Mrecv(m, make([]byte, 8)))
			for i := range 14 {
				ok(Recv(w, make([]byte, 8), 0, 1000+i))
			}
		}, littleRoom())
	}
}

// The leader sleeps for a message that does not move when another goroutine comes that waits for one behind blocked
// sends.
func TestBlockedSendersGoOnBesideAWait(t *testing.T) {
	for name, waits := range map[string]func(w *Comm, stuck *Request, tag int){
		"follower": func(w *Comm, stuck *Request, tag int) {
			if tag == tagMatched {
				go stuck.Wait()
			}
			time.Sleep(1500 * time.Millisecond) // the leader has asked whether ranks have returned, and sleeps
			in, stop := within(w)
			defer stop()
			ok(Recv(in, make([]byte, 1), 0, tag))
		},
	} {
		t.Run(name, func(t *testing.T) {
			enough := errors.New("enough")
			defer watchdog(t)()
			err := RunLocal(3, func(w *Comm) error {
				switch w.Rank() {
				case 0:
					for round := range 2 {
						for i := range 60 {
							must(Send(w, message(8, i), 2, 1000+i))
						}
						must(Send(w, []byte{1}, 2, tagMatched+round))
						for i := range 100 {
							if Send(w, message(8, i), 2, 2000+i) != nil {
								return nil // rank 2 has had enough
							}
						}
					}
				case 1:
					ok(Isend(w, make([]byte, 1<<20), 2, 1)).Wait()
				case 2:
					ok(Probe(w, 1, 1))
					stuck := ok(Irecv(w, make([]byte, 1<<20), 1, 1))
					waits(w, stuck, tagMatched)
					waits(w, stuck, tagMatched+1)
					return enough
				}
				return nil
			}, littleRoom(), withDevices(func(rank int, d transport.Device) transport.Device {
				if rank != 1 {
					return d
				}
				facts := *d.Facts()
				facts.Short, facts.ConnectNow = nil, nil
				return &losing{d, facts}
			}))
			if !errors.Is(err, enough) {
				t.Fatal(err)
			}
		})
	}
}
