package mpi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// MPI 4.1 §3.5, Progress: a send and a receive that match and are both started complete, however many other messages
// are unmatched. These tests have more of them than a receiver has room for.

const tagUnmatched, tagMatched = 1, 2

// littleRoom is the least that a sender can be granted: sixteen envelopes.
func littleRoom() Option { return WithEnviron([]string{"GORUN_UNEXPECTED_MAX=1KiB"}) }

// waitingFor is how a rank waits for the message with tagMatched of another, or its own; comms are some of those ranks.
var waitingFor = map[string]func(c *Comm, source int){
	"recv":     func(c *Comm, source int) { gotMatched(Recv(c, make([]byte, 1), source, tagMatched)) },
	"any rank": func(c *Comm, _ int) { gotMatched(Recv(c, make([]byte, 1), AnySource, tagMatched)) },
	"probe": func(c *Comm, source int) {
		gotMatched(Probe(c, source, tagMatched))
		gotMatched(Recv(c, make([]byte, 1), source, tagMatched))
	},
	"mprobe any": func(c *Comm, _ int) {
		m, _, err := Mprobe(c, AnySource, tagMatched)
		must(err)
		gotMatched(Mrecv(m, make([]byte, 1)))
	},
	"iprobe": func(c *Comm, source int) {
		for found := false; !found; {
			var err error
			_, found, err = Iprobe(c, source, tagMatched)
			must(err)
		}
		gotMatched(Recv(c, make([]byte, 1), source, tagMatched))
	},
	"test": func(c *Comm, source int) {
		for r := ok(Irecv(c, make([]byte, 1), source, tagMatched)); !finished(r); {
		}
	},
	"waitany": func(c *Comm, source int) {
		never := ok(Irecv(c, make([]byte, 1), source, 3))
		i, _, err := WaitAny(never, ok(Irecv(c, make([]byte, 1), source, tagMatched)))
		must(err)
		same(i, 1)
		must(never.Cancel())
		ok(never.Wait())
	},
	"sendrecv": func(c *Comm, source int) {
		gotMatched(Sendrecv(c, []byte{1}, ProcNull, 4, make([]byte, 1), source, tagMatched))
	},
	"done": func(c *Comm, source int) {
		<-ok(Irecv(c, make([]byte, 1), source, tagMatched)).Done()
	},
	"compute": nil, // outside the library, until the sender has got on
}

func gotMatched(_ Status, err error) { must(err) }

// A message whose receive is posted passes any number of the same sender that are unmatched, in whatever call its
// receiver waits, also on another communicator, and among messages of a rank to itself.
func TestMatchedMessagePassesUnmatched(t *testing.T) {
	everyTransport(t, func(t *testing.T, run runner) {
		for i, name := range slices.Sorted(maps.Keys(waitingFor)) {
			wait := waitingFor[name]
			for k, size := range []int{0, short, long} {
				if testing.Short() && k != i%3 {
					continue
				}
				n := inShort(100, 40)
				if size == long {
					n = inShort(30, 20)
				}
				sent := make(computing)
				run(2, func(w *Comm) {
					other := ok(w.Dup())
					source, dest := 0, 1
					if name == "sendrecv" || size == short && name == "test" { // each rank to itself
						source, dest = w.Rank(), w.Rank()
					}
					matched := w
					if size == long {
						matched = other
					}
					var rs []*Request
					if w.Rank() == source {
						for i := range n {
							rs = append(rs, ok(Isend(w, message(size, i), dest, tagUnmatched)))
						}
						last := ok(Isend(matched, []byte{1}, dest, tagMatched))
						if name == "compute" {
							sent.while(func() { ok(last.Wait()) })
						} else {
							rs = append(rs, last)
						}
					}
					if w.Rank() == dest {
						if name == "compute" {
							r := ok(Irecv(matched, make([]byte, 1), source, tagMatched))
							<-sent
							ok(r.Wait())
						} else {
							wait(matched, source)
						}
						buf := make([]byte, size)
						for i := range n {
							same(ok(Recv(w, buf, source, tagUnmatched)).Bytes, int64(size))
							whole(buf, i)
						}
					}
					must(WaitAll(rs...))
				}, littleRoom())
			}
		}
	})
}

// The same where the message is that of a collective call, at the sizes of jobs in which each sender has little room by
// default: up to the message that fitted, and beyond.
func TestBarrierPassesUnmatched(t *testing.T) {
	for _, c := range []struct{ ranks, n int }{
		{128, 1253}, {128, 1255}, {128, 3000}, {1024, 156}, {1024, 200}, {1024, 2000}} {
		if testing.Short() && c.ranks > 128 {
			continue
		}
		t.Run(fmt.Sprint(c.ranks, "ranks", c.n), func(t *testing.T) {
			over(t)(c.ranks, func(w *Comm) {
				const from, to = 0, 1
				var rs []*Request
				if w.Rank() == from {
					for i := range c.n {
						rs = append(rs, ok(Isend(w, []int{i}, to, tagUnmatched)))
					}
				}
				must(Barrier(w))
				if w.Rank() == to {
					var b [1]int
					for i := range c.n {
						ok(Recv(w, b[:], from, tagUnmatched))
						same(b[0], i)
					}
				}
				must(WaitAll(rs...))
			})
		})
	}
}

// After traffic that has left nearly half of what a sender is granted with the receiver, half as many unmatched
// messages use up the rest.
func TestMatchedMessagePassesAfterTraffic(t *testing.T) {
	for _, n := range []int{600, 700} {
		over(t)(128, func(w *Comm) {
			const before = 590 // of 1255
			switch w.Rank() {
			case 0:
				for i := range before {
					must(Send(w, []int{i}, 1, 9))
				}
				awaitSignal(w, 1)
				var rs []*Request
				for i := range n {
					rs = append(rs, ok(Isend(w, []int{i}, 1, tagUnmatched)))
				}
				must(Send(w, []int{0}, 1, tagMatched))
				must(WaitAll(rs...))
			case 1:
				var b [1]int
				for range before {
					ok(Recv(w, b[:], 0, 9))
				}
				sendSignal(w, 0)
				ok(Recv(w, b[:], 0, tagMatched))
				for range n {
					ok(Recv(w, b[:], 0, tagUnmatched))
				}
			}
		})
	}
}

// Very many unmatched messages, received in the reverse order of their tags: one after the other, or all at once, as
// they come or when all are there. The work does not grow with their number squared: it would not end.
func TestManyUnmatched(t *testing.T) {
	for _, c := range []struct{ senders, n int }{{1, inShort(300_000, 10_000)}, {31, inShort(20_000, 250)}} {
		for _, way := range []string{"one by one", "at once", "all there, at once"} {
			t.Run(fmt.Sprint(c.senders, "x", c.n, " ", way), func(t *testing.T) {
				over(t)(c.senders+1, func(w *Comm) {
					var rs []*Request
					if w.Rank() > 0 {
						for i := range c.n {
							rs = append(rs, ok(Isend(w, []int{i}, 0, i)))
						}
						rs = append(rs, ok(Isend[byte](w, nil, 0, tagSignal)))
						must(WaitAll(rs...))
						return
					}
					senders := func(f func(rank int)) {
						for s := range c.senders {
							f(s + 1)
						}
					}
					if way == "all there, at once" {
						senders(func(s int) { awaitSignal(w, s) })
					}
					got := make([]int, c.senders*c.n)
					for i := c.n - 1; i >= 0; i-- {
						senders(func(s int) {
							buf := got[(s-1)*c.n+i:][:1]
							if way == "one by one" {
								ok(Recv(w, buf, s, i))
							} else {
								rs = append(rs, ok(Irecv(w, buf, s, i)))
							}
						})
					}
					must(WaitAll(rs...))
					for i, v := range got {
						same(v, i%c.n)
					}
					if way != "all there, at once" {
						senders(func(s int) { awaitSignal(w, s) })
					}
				})
			})
		}
	}
}

// blockedFor is how a rank waits while others are in blocking sends of messages for which it asks later; comms, as
// there. The message that it waits for is sent behind these.
var blockedFor = func() map[string]func(c *Comm, source int) {
	ways := maps.Clone(waitingFor)
	delete(ways, "compute")
	ways["sendrecv"] = func(c *Comm, source int) {
		gotMatched(Sendrecv(c, []byte{1}, c.Rank(), 4, make([]byte, 1), source, tagMatched))
		gotMatched(Recv(c, make([]byte, 1), c.Rank(), 4))
	}
	ways["a goroutine"] = func(c *Comm, source int) {
		done := make(chan bool)
		go func() {
			defer close(done)
			gotMatched(Recv(c, make([]byte, 1), source, tagMatched))
		}()
		<-done
	}
	return ways
}()

// A blocking send of a short message returns without a match as long as its receiver waits, in whatever call, or takes
// messages, however many there are; the receiver takes them in the reverse order of their tags. Some are longer than all
// that a sender may leave with a receiver at first.
func TestBlockingSendsReturn(t *testing.T) {
	everyTransport(t, func(t *testing.T, run runner) {
		if matchedBelow(t) {
			return // the device says when a send is over
		}
		for i, name := range slices.Sorted(maps.Keys(blockedFor)) {
			for k, size := range []int{0, 8, 6000} {
				if testing.Short() && k != i%3 {
					continue
				}
				n := inShort(300, 60)
				run(2, func(w *Comm) {
					other := ok(w.Dup())
					if w.Rank() == 0 {
						for i := range n {
							must(Send(w, message(size, i), 1, 1000+i))
						}
						must(Send(other, []byte{1}, 1, tagMatched))
						return
					}
					blockedFor[name](other, 0)
					for i := n - 1; i >= 0; i-- {
						buf := make([]byte, size)
						same(ok(Recv(w, buf, 0, 1000+i)).Bytes, int64(size))
						whole(buf, i)
					}
				}, littleRoom())
			}
		}
	})
}

// losing is a device that delivers no part of a stream: a long message that has been matched stays under way.
type losing struct {
	transport.Device
	facts transport.Facts
}

func (d *losing) Facts() *transport.Facts { return &d.facts }

func (d *losing) Connect(ctx context.Context, peer int, address []byte) (transport.Link, error) {
	l, err := d.Device.Connect(ctx, peer, address)
	if err != nil {
		return nil, err
	}
	caps := *l.Caps()
	caps.RMA, caps.ZeroCopy = nil, nil
	return &losingLink{l, caps}, nil
}

type losingLink struct {
	transport.Link
	caps transport.Caps
}

func (l *losingLink) Caps() *transport.Caps { return &l.caps }

func (l *losingLink) TrySend(h *wire.Header, payload []byte) bool {
	return h.Kind == wire.Data || l.Link.TrySend(h, payload)
}

// So it does while another message of the receiver is on its way and does not move, which the receiver does not wait
// for.
func TestBlockingSendsReturnBesideAStream(t *testing.T) {
	enough := errors.New("enough")
	for name, blocks := range blockedFor {
		t.Run(name, func(t *testing.T) {
			defer watchdog(t)()
			err := RunLocal(3, func(w *Comm) error {
				switch w.Rank() {
				case 0:
					n := inShort(300, 60)
					for i := range n {
						must(Send(w, message(8, i), 2, 1000+i))
					}
					must(Send(w, []byte{1}, 2, tagMatched))
				case 1:
					ok(Isend(w, make([]byte, 1<<20), 2, 1)).Wait() // may take until all is over
				case 2:
					ok(Probe(w, 1, 1))
					ok(Irecv(w, make([]byte, 1<<20), 1, 1))
					blocks(w, 0)
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

// waitedSends are ways to send a message and return when its buffer may be used again.
var waitedSends = map[string]func(c *Comm, buf []byte, dest, tag int){
	"Isend, Wait": func(c *Comm, buf []byte, dest, tag int) { ok(ok(Isend(c, buf, dest, tag)).Wait()) },
	"Isend, Test": func(c *Comm, buf []byte, dest, tag int) {
		for r := ok(Isend(c, buf, dest, tag)); !finished(r); {
		}
	},
	"Isend, Done": func(c *Comm, buf []byte, dest, tag int) {
		r := ok(Isend(c, buf, dest, tag))
		<-r.Done()
		ok(r.Wait())
	},
	"Isend, WaitAny": func(c *Comm, buf []byte, dest, tag int) {
		never := ok(Irecv(c, make([]byte, 1), dest, 3))
		i, _, err := WaitAny(never, ok(Isend(c, buf, dest, tag)))
		must(err)
		same(i, 1)
		must(never.Cancel())
		ok(never.Wait())
	},
	"Isend, TestAll": func(c *Comm, buf []byte, dest, tag int) {
		for r := ok(Isend(c, buf, dest, tag)); !ok(TestAll(r)); {
		}
	},
	"SendInit": func(c *Comm, buf []byte, dest, tag int) {
		r := ok(SendInit(c, buf, dest, tag))
		must(r.Start())
		ok(r.Wait())
		must(r.Free())
	},
	"Isendrecv": func(c *Comm, buf []byte, dest, tag int) {
		ok(ok(Isendrecv(c, buf, dest, tag, make([]byte, 1), c.Rank(), tagMatched+1)).Wait())
	},
	"Isend, many": nil, // all at once
}

// A send that does not block returns like a blocking one in a call that waits for it. Neither Open MPI nor MPICH lets a
// short message wait for its match.
func TestWaitedSendsReturn(t *testing.T) {
	everyTransport(t, func(t *testing.T, run runner) {
		if matchedBelow(t) {
			return // the device says when a send is over
		}
		kinds := slices.Sorted(maps.Keys(blockedFor))
		for i, name := range slices.Sorted(maps.Keys(waitedSends)) {
			for k, size := range []int{0, 8, 6000} {
				if testing.Short() && k != i%3 {
					continue
				}
				n := inShort(300, 40)
				run(2, func(w *Comm) {
					other := ok(w.Dup())
					if w.Rank() == 1 {
						blockedFor[kinds[i%len(kinds)]](other, 0)
						for i := n - 1; i >= 0; i-- {
							buf := make([]byte, size)
							same(ok(Recv(w, buf, 0, 1000+i)).Bytes, int64(size))
							whole(buf, i)
						}
						return
					}
					var rs []*Request
					for i := range n {
						switch send := waitedSends[name]; {
						case send == nil:
							rs = append(rs, ok(Isend(w, message(size, i), 1, 1000+i)))
							continue
						case name == "Isendrecv":
							ok(Isend(w, []byte{1}, 0, tagMatched+1))
							fallthrough
						default:
							send(w, message(size, i), 1, 1000+i)
						}
					}
					must(WaitAll(rs...))
					must(Send(other, []byte{1}, 1, tagMatched))
				}, littleRoom())
			}
		}
	})
}

// The same with several senders, which then meet their receiver in a collective call of another communicator; with
// ranks that send to each other before either receives, and to themselves; and by Sendrecv.
func TestBlockingSendsOfSeveral(t *testing.T) {
	everyTransport(t, func(t *testing.T, run runner) {
		if matchedBelow(t) {
			return // the device says when a send is over
		}
		n := inShort(300, 40)
		run(5, func(w *Comm) {
			other := ok(w.Dup())
			if w.Rank() > 0 {
				for i := range n {
					must(Send(w, message(500, i), 0, i))
				}
			}
			must(Barrier(other))
			for i := n - 1; w.Rank() == 0 && i >= 0; i-- {
				for source := 1; source < 5; source++ {
					buf := make([]byte, 500)
					ok(Recv(w, buf, source, i))
					whole(buf, i)
				}
			}
		}, littleRoom())
		run(2, func(w *Comm) {
			peer := 1 - w.Rank()
			for i := range n {
				must(Send(w, message(8, i), peer, i))
				must(Send(w, message(8, i), w.Rank(), n+i))
				ok(Sendrecv(w, message(8, i), peer, 2*n+i, make([]byte, 1), ProcNull, 0))
			}
			for i := n - 1; i >= 0; i-- {
				for k, source := range []int{peer, w.Rank(), peer} {
					buf := make([]byte, 8)
					ok(Recv(w, buf, source, k*n+i))
					whole(buf, i)
				}
			}
		}, littleRoom())
	})
}

// The same beyond what a sender may leave with a receiver by default; and for messages of medium length, of which a
// sender announces some although it has credit, since it measures what is faster.
func TestBlockingSendsBeyondTheDefault(t *testing.T) {
	for _, f := range betweenProcesses {
		for _, c := range []struct{ size, n int }{{8, inShort(700_000, 100_000)}, {16 << 10, inShort(20_000, 500)}} {
			t.Run(fmt.Sprint(f.name, " ", c.size), func(t *testing.T) {
				over(t, f.option(t))(2, func(w *Comm) {
					buf := make([]byte, c.size)
					if w.Rank() == 0 {
						for i := range c.n {
							must(Send(w, buf, 1, 1000+i))
						}
						must(Send(w, buf, 1, 7))
						return
					}
					ok(Recv(w, buf, 0, 7))
					for i := c.n - 1; i >= 0; i-- {
						ok(Recv(w, buf, 0, 1000+i))
					}
				})
			})
		}
	}
}
