package mpi

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/faulty"
)

// One test for each rule of MPI 4.1's point-to-point chapter (and of the barrier), over every fabric. § stands for a
// section of the standard.

// §3.4: "The send in standard mode … may complete before a matching receive is posted" if it is buffered, and ours
// buffers short messages.
func TestStandardModeBuffersShortMessages(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			if w.Rank() == 0 {
				for i := range 20 {
					must(Send(w, message(short, i), 1, i))
				}
				sendSignal(w, 1) // only now does the other receive
				return
			}
			awaitSignal(w, 0)
			for i := range 20 {
				buf := make([]byte, short)
				ok(Recv(w, buf, 0, i))
				whole(buf, i)
			}
		})
	})
}

// §3.4: a synchronous send "will complete successfully only if a matching receive is posted, and the receive operation
// has started to receive the message". A probe does not match (§3.8.1).
func TestSynchronousModeWaitsForTheMatch(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		for _, size := range []int{0, short, long} {
			run(2, func(w *Comm) {
				if w.Rank() == 1 {
					echoSignals(w, 0)
					st := ok(Probe(w, 0, 2))
					same(st.Bytes, int64(size))
					echoSignals(w, 0)
					awaitSignal(w, 0)
					for _, tag := range []int{2, 1} {
						buf := make([]byte, size)
						ok(Recv(w, buf, 0, tag))
						whole(buf, tag)
					}
					return
				}
				r := ok(Issend(w, message(size, 1), 1, 1))
				var returned atomic.Bool
				done := make(chan error)
				go func() {
					err := Ssend(w, message(size, 2), 1, 2)
					returned.Store(true)
					done <- err
				}()
				exchangeSignals(w, 1)
				check(!finished(r) && !returned.Load(), "%d bytes: complete without a receive", size)
				exchangeSignals(w, 1)
				check(!finished(r) && !returned.Load(), "%d bytes: complete after a probe", size)
				sendSignal(w, 1)
				ok(r.Wait())
				must(<-done)
			})
		}
	})
}

// §3.4: a long standard send may not complete before it is matched, and ours does not: its buffer is read then.
func TestStandardModeLongMessageKeepsItsBuffer(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			if w.Rank() == 0 {
				r := ok(Isend(w, message(long, 1), 1, 1))
				exchangeSignals(w, 1)
				check(!finished(r), "complete without a receive")
				sendSignal(w, 1)
				ok(r.Wait())
				return
			}
			echoSignals(w, 0)
			awaitSignal(w, 0)
			buf := make([]byte, long)
			ok(Recv(w, buf, 0, 1))
			whole(buf, 1)
		})
	})
}

// §3.4: a buffered send's "completion does not depend on the occurrence of a matching receive", and its buffer may be
// reused at once.
func TestBufferedModeCompletesAtOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			for i, size := range []int{0, short, long, inShort(8<<20, 1<<20)} {
				if w.Rank() == 1 {
					echoSignals(w, 0)
					for tag := range 2 {
						buf := make([]byte, size)
						ok(Recv(w, buf, 0, tag))
						whole(buf, i)
					}
					continue
				}
				b := message(size, i)
				must(Bsend(w, b, 1, 0))
				clear(b)
				b = message(size, i)
				r := ok(Ibsend(w, b, 1, 1))
				check(finished(r), "Ibsend of %d bytes is not complete", size)
				clear(b)
				exchangeSignals(w, 1)
			}
		})
	})
}

// §3.4: a ready send "may be started only if the matching receive is already posted".
func TestReadyMode(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			for i, size := range []int{0, short, long} {
				if w.Rank() == 0 {
					awaitSignal(w, 1)
					must(Rsend(w, message(size, i), 1, 1))
					ok(ok(Irsend(w, message(size, i), 1, 2)).Wait())
					continue
				}
				a, b := make([]byte, size), make([]byte, size)
				r1, r2 := ok(Irecv(w, a, 0, 1)), ok(Irecv(w, b, 0, 2))
				sendSignal(w, 0)
				must(WaitAll(r1, r2))
				whole(a, i)
				whole(b, i)
			}
		})
	})
}

// §3.5 (order): "If a sender sends two messages in succession to the same destination, and both match the same receive,
// then this operation cannot receive the second message if the first one is still pending", whatever their length and
// mode, and whether the receives or the messages are first.
func TestMessagesOfAPairDoNotOvertake(t *testing.T) {
	sizes := []int{10, long, 20, 8 << 10, 8<<10 + 1, 5000, 0, 70_000, 1}
	n := inShort(90, 4*len(sizes)) // each size in each mode at least
	everywhere(t, func(t *testing.T, run runner) {
		for _, source := range []int{0, AnySource} {
			for _, first := range []string{"receives", "messages", "neither"} {
				run(2, func(w *Comm) {
					var rs []*Request
					if w.Rank() == 0 {
						if first == "receives" {
							awaitSignal(w, 1)
						}
						for i := range n {
							rs = append(rs, sendAnyMode(w, message(sizes[i%len(sizes)], i), 1, i))
						}
						if first == "messages" {
							sendSignal(w, 1)
						}
						must(WaitAll(rs...))
						return
					}
					if first == "messages" {
						awaitSignal(w, 0)
					}
					bufs := make([][]byte, n)
					for i := range n {
						bufs[i] = make([]byte, long)
						rs = append(rs, ok(Irecv(w, bufs[i], source, AnyTag)))
					}
					if first == "receives" {
						sendSignal(w, 0)
					}
					for i, st := range ok(WaitAllStatus(rs...)) {
						same(st, Status{Source: 0, Tag: i, Bytes: int64(sizes[i%len(sizes)])})
						whole(bufs[i][:st.Bytes], i)
					}
				})
			}
		}
	})
}

// starter is a call that starts an operation, or prepares a persistent one.
type starter[T any] func(c *Comm, buf []T, peer, tag int) (*Request, error)

// sendAnyMode uses each mode in turn.
func sendAnyMode(w *Comm, buf []byte, dest, tag int) *Request {
	modes := []starter[byte]{Isend[byte], Issend[byte], Ibsend[byte], Irsend[byte]}
	return ok(modes[tag%4](w, buf, dest, tag))
}

// §3.5 (order): "If a receiver posts two receives in succession, and both match the same message, then the second
// receive operation cannot be satisfied by this message, if the first one is still pending", wildcards or not.
func TestReceivesMatchInTheOrderOfPosting(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		for _, size := range []int{4, long} {
			run(2, func(w *Comm) {
				if w.Rank() == 0 {
					awaitSignal(w, 1)
					for i := range 6 {
						must(Send(w, message(size, i), 1, 5))
					}
					return
				}
				bufs := make([][]byte, 6)
				var rs []*Request
				for i, k := range [][2]int{{0, 5}, {AnySource, AnyTag}, {AnySource, 5}, {0, AnyTag}, {0, 5}, {AnySource, AnyTag}} {
					bufs[i] = make([]byte, size)
					rs = append(rs, ok(Irecv(w, bufs[i], k[0], k[1])))
				}
				sendSignal(w, 0)
				for i, st := range ok(WaitAllStatus(rs...)) {
					same(st, Status{Source: 0, Tag: 5, Bytes: int64(size)})
					whole(bufs[i], i)
				}
			})
		}
	})
}

// §3.5: messages that do not match the same receive may be taken in any order.
func TestTagsSelectAmongMessages(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			sizes := []int{short, long, 0, long, short}
			if w.Rank() == 0 {
				var rs []*Request
				for tag, size := range sizes {
					rs = append(rs, ok(Isend(w, message(size, tag), 1, tag)))
				}
				must(WaitAll(rs...))
				return
			}
			for tag, size := range slices.Backward(sizes) {
				buf := make([]byte, size)
				same(ok(Recv(w, buf, 0, tag)), Status{Source: 0, Tag: tag, Bytes: int64(size)})
				whole(buf, tag)
			}
		})
	})
}

// §3.5: messages of a pair keep their order also when the receives are from any source; with several senders none is
// lost or doubled.
func TestAnySourceKeepsEachPairsOrder(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		n := inShort(60, 12) // of each sender; each late read of faulty takes its time
		run(5, func(w *Comm) {
			sizes := []int{16, 9000, 100, long}
			if w.Rank() != 0 {
				for i := range n {
					must(Send(w, message(sizes[i%len(sizes)], i+w.Rank()), 0, i))
				}
				return
			}
			next := make([]int, w.Size())
			buf := make([]byte, long)
			for range n * (w.Size() - 1) {
				st := ok(Recv(w, buf, AnySource, AnyTag))
				same(st.Tag, next[st.Source])
				same(int(st.Bytes), sizes[st.Tag%len(sizes)])
				whole(buf[:st.Bytes], st.Tag+st.Source)
				next[st.Source]++
			}
			same(fmt.Sprint(next), fmt.Sprint([]int{0, n, n, n, n}))
		})
	})
}

// §3.2.4: a receive matches its own source and tag, MPI_ANY_SOURCE and MPI_ANY_TAG match all, §3.2.5: the status says
// which it was.
func TestEnvelopeSelection(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(3, func(w *Comm) {
			if w.Rank() != 0 {
				must(Send(w, []int32{int32(w.Rank())}, 0, 10+w.Rank()))
				must(Send(w, []int32{int32(w.Rank())}, 0, 20))
				awaitSignal(w, 0)
				must(Send(w, []int32{int32(w.Rank())}, 0, 0))
				must(Send(w, []int32{int32(w.Rank())}, 0, MaxTag-1))
				return
			}
			recv := func(source, tag int) Status {
				buf := []int32{0}
				st := ok(Recv(w, buf, source, tag))
				same(int(buf[0]), st.Source)
				same(Count[int32](st), 1)
				return st
			}
			same(recv(AnySource, 12), Status{Source: 2, Tag: 12, Bytes: 4})
			same(recv(2, AnyTag), Status{Source: 2, Tag: 20, Bytes: 4})
			same(recv(1, 20), Status{Source: 1, Tag: 20, Bytes: 4})
			same(recv(AnySource, AnyTag), Status{Source: 1, Tag: 11, Bytes: 4})
			sendSignal(w, 1)
			sendSignal(w, 2)
			same(recv(2, MaxTag-1), Status{Source: 2, Tag: MaxTag - 1, Bytes: 4})
			same(recv(1, 0), Status{Source: 1, Tag: 0, Bytes: 4})
		})
	})
}

// §6.1, §7: wildcards never match the messages of collective calls.
func TestWildcardsDoNotMatchCollectives(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(3, func(w *Comm) {
			buf := []byte{7, 7}
			r := ok(Irecv(w, buf, AnySource, AnyTag))
			for range 5 {
				must(Barrier(w))
				d := ok(w.Dup())
				must(Barrier(d))
				must(d.Free())
			}
			check(!finished(r), "a wildcard receive has matched a collective's message")
			must(Barrier(w))
			must(Send(w, []byte{byte(w.Rank())}, (w.Rank()+1)%3, 4))
			from := (w.Rank() + 2) % 3
			same(ok(r.Wait()), Status{Source: from, Tag: 4, Bytes: 1})
			same(buf[0], byte(from))
		})
	})
}

// §3.11: "A communication with process MPI_PROC_NULL has no effect. A send to MPI_PROC_NULL succeeds and returns as
// soon as possible. A receive … is executed … with no modifications to the receive buffer … status source =
// MPI_PROC_NULL, tag = MPI_ANY_TAG and count = 0"; with probes and matched probes likewise (§3.8.1, §3.8.2).
func TestProcNull(t *testing.T) {
	null := Status{Source: ProcNull, Tag: AnyTag}
	wait := func(r *Request, err error) Status { must(err); return ok(r.Wait()) }
	everywhere(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			peer := 1 - w.Rank()
			buf := []int{1, 2, 3}
			for _, send := range []func(*Comm, []int, int, int) error{Send[int], Ssend[int], Rsend[int], Bsend[int]} {
				must(send(w, buf, ProcNull, 3))
			}
			for _, start := range []starter[int]{Isend[int], Issend[int], Irsend[int], Ibsend[int], Irecv[int]} {
				wait(start(w, buf, ProcNull, 3))
			}
			same(ok(Recv(w, buf, ProcNull, 3)), null)
			same(wait(Irecv(w, buf, ProcNull, 3)), null)
			got, st, err := RecvAlloc[int](w, ProcNull, 3)
			check(got == nil && st == null && err == nil, "RecvAlloc: %v %v %v", got, st, err)
			same(ok(Sendrecv(w, buf, ProcNull, 1, buf, ProcNull, 1)), null)
			same(ok(SendrecvReplace(w, buf, ProcNull, 1, ProcNull, 1)), null)
			same(wait(Isendrecv(w, buf, ProcNull, 1, buf, ProcNull, 1)), null)
			same(ok(Probe(w, ProcNull, 9)), null)
			st, found, err := Iprobe(w, ProcNull, 9)
			check(found && st == null && err == nil, "Iprobe: %v %v %v", found, st, err)
			m, st, err := Mprobe(w, ProcNull, 9)
			check(st == null && err == nil, "Mprobe: %v %v", st, err)
			same(ok(Mrecv(m, buf)), null)
			m, st, found, err = Improbe(w, ProcNull, 9)
			check(found && st == null && err == nil, "Improbe: %v %v %v", found, st, err)
			same(wait(Imrecv(m, buf)), null)
			for _, init := range []starter[int]{SendInit[int], SsendInit[int], RsendInit[int], BsendInit[int], RecvInit[int]} {
				r := ok(init(w, buf, ProcNull, 2))
				for range 3 {
					must(r.Start())
					same(ok(r.Wait()), null)
				}
				must(r.Free())
			}
			must(SendValue(w, 5, ProcNull, 1))
			must(SendObject(w, "x", ProcNull, 1))
			v, st, err := RecvValue[int](w, ProcNull, 1)
			check(v == 0 && st == null && err == nil, "RecvValue: %v %v %v", v, st, err)
			o, st, err := RecvObject[string](w, ProcNull, 1)
			check(o == "" && st == null && err == nil, "RecvObject: %v %v %v", o, st, err)
			same(fmt.Sprint(buf), "[1 2 3]")

			// One side only: the usual shift at the edge of a grid.
			in := []int{0}
			st = ok(Sendrecv(w, []int{w.Rank() + 10}, [2]int{1, ProcNull}[w.Rank()], 1, in, [2]int{ProcNull, 0}[w.Rank()], 1))
			same(st, [2]Status{null, {Source: 0, Tag: 1, Bytes: 8}}[w.Rank()])
			same(in[0], [2]int{0, 10}[w.Rank()])
			sendSignal(w, peer)
			awaitSignal(w, peer)
			_, found, err = Iprobe(w, AnySource, AnyTag)
			check(!found && err == nil, "a message to ProcNull has arrived")
		})
	})
}

// §3.2.2: "the message length may be zero"; envelopes match as ever. nil and empty slices are the same.
func TestZeroLengthMessages(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			for i, size := range []int{0, 5} {
				if w.Rank() == 0 {
					must(Send[int](w, nil, 1, i))
					must(Ssend(w, []int{}, 1, i))
					ok(ok(Isend[int](w, nil, 1, i)).Wait())
					must(Bsend[int](w, nil, 1, i))
					continue
				}
				buf := slices.Repeat([]int{-1}, size) // also longer than the message
				for range 4 {
					st := ok(Recv(w, buf, 0, i))
					same(st, Status{Source: 0, Tag: i})
					same(Count[int](st), 0)
				}
				same(fmt.Sprint(buf), fmt.Sprint(slices.Repeat([]int{-1}, size)))
			}
		})
	})
}

// §3.2.4: "The length of the received message must be less than or equal to the length of the receive buffer. An
// overflow error occurs if all incoming data does not fit". Here: that receive only, the prefix is there, nothing
// beyond the buffer is touched, and the messages around it are whole.
func TestTruncation(t *testing.T) {
	receive := map[string]func(w *Comm, buf []byte) (Status, error){
		"Recv":  func(w *Comm, buf []byte) (Status, error) { return Recv(w, buf, 0, 1) },
		"Irecv": func(w *Comm, buf []byte) (Status, error) { return ok(Irecv(w, buf, 0, 1)).Wait() },
		"Mrecv": func(w *Comm, buf []byte) (Status, error) {
			m, _, err := Mprobe(w, 0, 1)
			must(err)
			return Mrecv(m, buf)
		},
		"posted": nil, // before the message is sent
	}
	everywhere(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			for _, name := range slices.Sorted(maps.Keys(receive)) {
				for _, size := range []int{2, short, 8 << 10, long} {
					for _, room := range []int{0, 1, size - 1} {
						if w.Rank() == 0 {
							awaitSignal(w, 1)
							// The sender is not told that the second is cut.
							must(WaitAll(ok(Isend(w, message(size, 1), 1, 1)), ok(Issend(w, message(size, 2), 1, 1)),
								ok(Isend(w, message(size, 3), 1, 1))))
						} else {
							receiveCut(w, name, receive[name], size, room)
						}
					}
				}
			}
		})
	})
}

// receiveCut receives three messages, the second into a buffer that has room for a part of it.
func receiveCut(w *Comm, name string, recv func(w *Comm, buf []byte) (Status, error), size, room int) {
	first, all := make([]byte, size), make([]byte, size+8)
	if recv == nil {
		f, r := ok(Irecv(w, first, 0, 1)), ok(Irecv(w, all[:room], 0, 1))
		sendSignal(w, 0)
		ok(f.Wait())
		recv = func(*Comm, []byte) (Status, error) { return r.Wait() }
	} else {
		sendSignal(w, 0)
		ok(Recv(w, first, 0, 1))
	}
	whole(first, 1)
	st, err := recv(w, all[:room])
	is(err, ErrTruncate)
	same(st, Status{Source: 0, Tag: 1, Bytes: int64(room)})
	// What is cut off by UCX or libfabric may have no prefix: the standard promises none.
	noPrefix := slices.Contains([]string{"ucx", "ofi"}, w.group.Engine.Transport())
	check(noPrefix || bytes.Equal(all[:room], message(size, 2)[:room]),
		"%s: the prefix is wrong", name)
	check(bytes.Equal(all[room:], make([]byte, size+8-room)), "%s: memory beyond the buffer was changed", name)
	ok(Recv(w, all, 0, 1))
	whole(all[:size], 3)
}

// §3.10: "executes a blocking send and receive", which cannot wait for each other; a message sent by it may be received
// by an ordinary receive and the other way round; the two buffers and types differ, or are the same (replace).
func TestSendrecv(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(4, func(w *Comm) {
			right, left := (w.Rank()+1)%4, (w.Rank()+3)%4
			for i, size := range []int{0, short, 8 << 10, long} {
				in := make([]byte, size+3)
				st := ok(Sendrecv(w, message(size, w.Rank()+i), right, 5, in, left, AnyTag))
				same(st, Status{Source: left, Tag: 5, Bytes: int64(size)})
				whole(in[:size], left+i)

				buf := message(size, w.Rank()+i)
				same(ok(SendrecvReplace(w, buf, right, 6, AnySource, 6)), Status{Source: left, Tag: 6, Bytes: int64(size)})
				whole(buf, left+i)

				in = make([]byte, size)
				r := ok(Isendrecv(w, message(size, w.Rank()), right, 7, in, left, 7))
				same(ok(r.Wait()), Status{Source: left, Tag: 7, Bytes: int64(size)})
				whole(in, left)

				if w.Rank() == 0 { // Send and Recv; a shift that goes round once
					must(Send(w, message(size, 9), right, 8))
					ok(Recv(w, in, left, 8))
				} else {
					b := make([]byte, size)
					ok(Recv(w, b, left, 8))
					must(Send(w, b, right, 8))
				}
			}
			out, got := []int16{int16(w.Rank()), 2}, make([]float64, 1)
			r := ok(Isendrecv(w, out, right, 1, got, left, 2))
			must(Send(w, []float64{float64(w.Rank())}, right, 2))
			x := make([]int16, 2)
			ok(Recv(w, x, left, 1))
			same(ok(r.Wait()).Bytes, 8)
			check(got[0] == float64(left) && x[0] == int16(left), "%v %v", got, x)

			// A rank with itself.
			in := make([]byte, long)
			ok(Sendrecv(w, message(long, 1), w.Rank(), 1, in, w.Rank(), 1))
			whole(in, 1)
			is(second(Sendrecv(w, message(long, 1), w.Rank(), 1, in[:5], w.Rank(), 1)), ErrTruncate)
		})
	})
}

func second[T any](_ T, err error) error { return err }

// §3.9: a persistent request binds the arguments once; "the request is inactive" until it is started and again after
// each completion; a receive may be matched by messages of persistent and other sends alike; MPI_STARTALL.
func TestPersistentRequests(t *testing.T) {
	inits := []starter[byte]{SendInit[byte], SsendInit[byte], RsendInit[byte], BsendInit[byte]}
	everywhere(t, func(t *testing.T, run runner) {
		for _, size := range []int{0, short, long} {
			run(2, func(w *Comm) {
				peer := 1 - w.Rank()
				out, in := make([][]byte, len(inits)), make([][]byte, len(inits))
				var rs []*Request
				for tag, init := range inits {
					in[tag] = make([]byte, size)
					rs = append(rs, ok(RecvInit(w, in[tag], peer, tag)))
					out[tag] = make([]byte, size)
					rs = append(rs, ok(init(w, out[tag], peer, tag)))
				}
				for turn := range 5 {
					for tag := range inits {
						copy(out[tag], message(size, turn+tag)) // the buffer as it is when it is started counts
						clear(in[tag])
					}
					// The receives first, since one of the sends is in ready mode.
					must(StartAll(rs[0], rs[2], rs[4], rs[6]))
					sendSignal(w, peer)
					awaitSignal(w, peer)
					must(StartAll(rs[1], rs[3], rs[5], rs[7]))
					if turn%2 == 0 {
						must(WaitAll(rs...))
					} else {
						for i := range rs {
							st := ok(rs[i].Wait())
							if i%2 == 0 {
								same(st, Status{Source: peer, Tag: i / 2, Bytes: int64(size)})
							}
						}
					}
					for tag := range inits {
						whole(in[tag], turn+tag)
					}
				}
				// One that is matched by a plain send, with a wildcard that must be a wildcard again each time.
				any := ok(RecvInit(w, in[0], AnySource, AnyTag))
				for turn := range 3 {
					must(any.Start())
					must(Bsend(w, message(size, turn), peer, 40+turn))
					same(ok(any.Wait()), Status{Source: peer, Tag: 40 + turn, Bytes: int64(size)})
					whole(in[0], turn)
				}
				for _, r := range append(rs, any) {
					must(r.Free())
					is(r.Start(), ErrRequest)
				}
			})
		}
	})
}

// §3.7.3, §3.7.5: an inactive persistent request counts as complete, with the empty status, and is passed over by
// Waitany, Waitsome and their tests.
func TestInactivePersistentRequests(t *testing.T) {
	empty := Status{Source: AnySource, Tag: AnyTag}
	everywhere(t, func(t *testing.T, run runner) {
		run(1, func(w *Comm) {
			idle := ok(RecvInit(w, []byte{0}, 0, 1))
			same(ok(idle.Wait()), empty)
			done, st, err := idle.Test()
			check(done && st == empty && err == nil, "Test: %v %v %v", done, st, err)
			must(WaitAll(idle, nil))
			i, st, err := WaitAny(idle, nil)
			check(i == Undefined && st == empty && err == nil, "WaitAny: %v %v %v", i, st, err)
			some, _, err := WaitSome(idle)
			check(some == nil && err == nil, "WaitSome: %v %v", some, err)
			i, found, _, err := TestAny(idle)
			check(i == Undefined && found && err == nil, "TestAny: %v %v %v", i, found, err)
			found, err = TestAll(idle)
			check(found && err == nil, "TestAll: %v %v", found, err)
			must(idle.Start())
			must(Send(w, []byte{1}, 0, 1))
			i, st, err = WaitAny(nil, idle)
			check(i == 1 && st.Bytes == 1 && err == nil, "WaitAny: %v %v %v", i, st, err)
			must(WaitAll(idle))
			must(idle.Free())
		})
	})
}

// §3.7.5: Waitany, Waitall, Waitsome and their tests; null requests are passed over, and with none but those
// they return at once with MPI_UNDEFINED, or nothing.
func TestCompletionOfSets(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			const n = 6
			if w.Rank() == 1 {
				for _, order := range [][]int{{3}, {0, 1}, {2}, {4, 5}} {
					awaitSignal(w, 0)
					for _, tag := range order {
						must(Send(w, []int{tag}, 0, tag))
					}
					must(Send[byte](w, nil, 0, 99)) // "they are on their way"
				}
				return
			}
			bufs, rs := make([][]int, n), make([]*Request, n+1) // rs[n] is nil throughout
			for i := range n {
				bufs[i] = make([]int, 1)
				rs[i] = ok(Irecv(w, bufs[i], 1, i))
			}
			arrived := func() { sendSignal(w, 1); ok(Recv[byte](w, nil, 1, 99)) }
			take := func(i int, st Status) {
				same(st, Status{Source: 1, Tag: i, Bytes: 8})
				same(bufs[i][0], i)
				rs[i] = nil
			}
			i, found, _, err := TestAny(rs...)
			check(i == Undefined && !found && err == nil, "TestAny: %v %v %v", i, found, err)
			is0, sts, err := TestSome(rs...)
			check(is0 == nil && sts == nil && err == nil, "TestSome: %v %v %v", is0, sts, err)
			found, err = TestAll(rs...)
			check(!found && err == nil, "TestAll: %v %v", found, err)

			arrived()
			found, err = TestAll(rs...)
			check(!found && err == nil, "TestAll: %v %v", found, err) // and has collected nothing:
			i, st, err := WaitAny(rs...)
			check(i == 3 && err == nil, "WaitAny: %v %v", i, err)
			take(i, st)

			arrived()
			for range 2 {
				i, found, st, err := TestAny(rs...)
				check(found && (i == 0 || i == 1) && err == nil, "TestAny: %v %v %v", i, found, err)
				take(i, st)
			}

			go tellLater(w)
			some, sts, err := WaitSome(rs...)
			check(len(some) == 1 && some[0] == 2 && err == nil, "WaitSome: %v %v", some, err)
			take(2, sts[0])
			ok(Recv[byte](w, nil, 1, 99))

			arrived()
			some, sts, err = TestSome(rs...)
			check(len(some) == 2 && err == nil, "TestSome: %v %v", some, err)
			take(some[0], sts[0])
			take(some[1], sts[1])

			// Nothing but nil, and nothing at all.
			for _, none := range [][]*Request{rs, nil} {
				must(WaitAll(none...))
				i, _, err := WaitAny(none...)
				check(i == Undefined && err == nil, "WaitAny: %v %v", i, err)
				some, _, err := WaitSome(none...)
				check(some == nil && err == nil, "WaitSome: %v %v", some, err)
				found, err := TestAll(none...)
				check(found && err == nil, "TestAll: %v %v", found, err)
				i, found, _, err = TestAny(none...)
				check(i == Undefined && found && err == nil, "TestAny: %v %v %v", i, found, err)
				some, _, err = TestSome(none...)
				check(some == nil && err == nil, "TestSome: %v %v", some, err)
				sts, err := WaitAllStatus(none...)
				check(len(sts) == len(none) && err == nil, "WaitAllStatus: %v %v", sts, err)
			}
		})
	})
}

func tellLater(w *Comm) { sendSignal(w, 1) }

// §3.7.5: with Waitall "the error code of a request that has failed" is its own: the others complete.
func TestOneFailureInASet(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(1, func(w *Comm) {
			a, b, c := make([]byte, 10), make([]byte, 5), make([]byte, 10)
			rs := []*Request{ok(Irecv(w, a, 0, 1)), ok(Irecv(w, b, 0, 2)), nil, ok(Irecv(w, c, 0, 3))}
			for tag := 1; tag <= 3; tag++ {
				must(Send(w, message(10, tag), 0, tag))
			}
			is(WaitAll(rs...), ErrTruncate)
			whole(a, 1)
			whole(c, 3)
		})
	})
}

// §3.7.3: Test is local and eventually true; Done is a channel for select.
func TestTestAndDone(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			for i, size := range []int{short, long} {
				buf := make([]byte, size)
				r := ok(Irecv(w, buf, 1-w.Rank(), i))
				done, _, err := r.Test()
				check(!done && err == nil, "Test: %v %v", done, err)
				ch := r.Done()
				select {
				case <-ch:
					panic("done before anything was sent")
				default:
				}
				sendSignal(w, 1-w.Rank())
				awaitSignal(w, 1-w.Rank())
				s := ok(Isend(w, message(size, i), 1-w.Rank(), i))
				<-ch
				<-r.Done() // also when it is done already
				done, st, err := r.Test()
				check(done && st.Bytes == int64(size) && err == nil, "Test: %v %v %v", done, st, err)
				whole(buf, i)
				for !finished(s) { // no wait but this
				}
			}
		})
	})
}

// §3.8.1: Probe and Iprobe tell of a message without receiving it; the receive that follows gets that message.
func TestProbe(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		for _, size := range []int{0, short, long} {
			run(2, func(w *Comm) {
				if w.Rank() == 0 {
					_, found, err := Iprobe(w, AnySource, AnyTag)
					check(!found && err == nil, "Iprobe of nothing: %v %v", found, err)
					sendSignal(w, 1)
					must(WaitAll(ok(Isend(w, message(size, 1), 1, 11)), ok(Issend(w, message(size, 2), 1, 12))))
					return
				}
				awaitSignal(w, 0)
				probes := [][3]int{{0, 12, 12}, {AnySource, 12, 12}, {0, 11, 11}, {AnySource, AnyTag, 11}, {0, AnyTag, 11}}
				for _, k := range probes {
					want := Status{Source: 0, Tag: k[2], Bytes: int64(size)}
					for range 2 { // it stays
						same(ok(Probe(w, k[0], k[1])), want)
						st, found, err := Iprobe(w, k[0], k[1])
						check(found && st == want && err == nil, "Iprobe: %v %v %v", found, st, err)
					}
				}
				st := ok(Probe(w, AnySource, AnyTag))
				buf := make([]byte, st.Bytes)
				ok(Recv(w, buf, st.Source, st.Tag))
				whole(buf, 1)
				_, found, err := Iprobe(w, 0, 11)
				check(!found && err == nil, "Iprobe of what has been received: %v %v", found, err)
				ok(Recv(w, buf, 0, 12))
				whole(buf, 2)
			})
		}
	})
}

// §3.8.2: "no other probe or receive operation may match the message after it has been matched by a matched probe", and
// messages sent after it can be received before it.
func TestMatchedProbeCannotBeRobbed(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		for _, size := range []int{0, short, long} {
			run(2, func(w *Comm) {
				if w.Rank() == 0 {
					must(WaitAll(ok(Isend(w, message(size, 1), 1, 5)), ok(Issend(w, message(size, 2), 1, 5)),
						ok(Isend(w, message(size, 3), 1, 5))))
					return
				}
				buf := make([]byte, size)
				m1, st, err := Mprobe(w, AnySource, 5)
				check(err == nil && st == Status{Source: 0, Tag: 5, Bytes: int64(size)}, "%v %v", st, err)
				var m2 *Message
				found := false
				for !found {
					m2, _, found, err = Improbe(w, 0, AnyTag)
					check(err == nil, "%v", err)
				}
				ok(Recv(w, buf, AnySource, AnyTag)) // the third, which is all that is left
				whole(buf, 3)
				_, found, err = Iprobe(w, AnySource, AnyTag)
				check(!found && err == nil, "a probe has found a message that is taken: %v %v", found, err)
				_, _, found, err = Improbe(w, AnySource, AnyTag)
				check(!found && err == nil, "a matched probe has found a message that is taken: %v %v", found, err)
				r := ok(Imrecv(m2, buf))
				same(ok(r.Wait()), Status{Source: 0, Tag: 5, Bytes: int64(size)})
				whole(buf, 2)
				same(ok(Mrecv(m1, buf)), Status{Source: 0, Tag: 5, Bytes: int64(size)})
				whole(buf, 1)
				is(second(Mrecv(m1, buf)), ErrRequest)
				is(second(Imrecv(m2, buf)), ErrRequest)
			})
		}
	})
}

// §3.8.2: two threads that probe and receive get a message each; with Mprobe it is the one that they probed.
func TestMatchedProbeByManyGoroutines(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			const n = 40
			if w.Rank() == 0 {
				for i := range n {
					must(Send(w, message(i*97, i), 1, i))
				}
				return
			}
			var seen [n]atomic.Int32
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for range n / 4 {
						m, st, err := Mprobe(w, AnySource, AnyTag)
						must(err)
						buf := make([]byte, st.Bytes)
						same(ok(Mrecv(m, buf)), st)
						whole(buf, st.Tag)
						seen[st.Tag].Add(1)
					}
				})
			}
			wg.Wait()
			for i := range seen {
				same(seen[i].Load(), 1)
			}
		})
	})
}

// §3.8.4: a receive is cancelled, or completes normally: "either the cancellation succeeds, or the operation succeeds,
// but not both".
func TestCancelReceive(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		for _, size := range []int{short, long} {
			run(2, func(w *Comm) {
				if w.Rank() == 0 {
					awaitSignal(w, 1)
					s := ok(Isend(w, message(size, 1), 1, 1))
					exchangeSignals(w, 1)
					ok(s.Wait())
					return
				}
				buf, other := make([]byte, size), make([]byte, size)
				r := ok(Irecv(w, buf, 0, 1))
				later := ok(Irecv(w, other, 0, AnyTag))
				must(r.Cancel())
				must(r.Cancel()) // again: nothing
				st := ok(r.Wait())
				check(st.Cancelled && st.Bytes == 0, "%+v", st)
				sendSignal(w, 0)
				same(ok(later.Wait()), Status{Source: 0, Tag: 1, Bytes: int64(size)})
				whole(other, 1)
				check(slices.Equal(buf, make([]byte, size)), "the buffer of a cancelled receive was written")
				echoSignals(w, 0)
			})
			run(2, func(w *Comm) { // too late
				if w.Rank() == 0 {
					awaitSignal(w, 1)
					must(Send(w, message(size, 1), 1, 1))
					return
				}
				buf := make([]byte, size)
				r := ok(Irecv(w, buf, 0, 1))
				sendSignal(w, 0)
				<-r.Done()
				must(r.Cancel())
				same(ok(r.Wait()), Status{Source: 0, Tag: 1, Bytes: int64(size)})
				whole(buf, 1)
			})
		}
		run(1, func(w *Comm) { // persistent: it can be started again
			buf := make([]byte, 1)
			r := ok(RecvInit(w, buf, 0, 1))
			must(r.Start())
			must(r.Cancel())
			check(ok(r.Wait()).Cancelled, "not cancelled")
			must(r.Start())
			must(Send(w, []byte{9}, 0, 1))
			same(ok(r.Wait()), Status{Source: 0, Tag: 1, Bytes: 1})
			must(r.Free())
		})
	})
}

// §3.8.4: a send whose message is not matched can be cancelled, although its receiver does not call the library (it
// waits for a Go channel); then "no matching receive … will receive it".
func TestCancelUnmatchedSend(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		if sendsStay(t) {
			return
		}
		for name, send := range map[string]func(w *Comm) *Request{
			"long":              func(w *Comm) *Request { return ok(Isend(w, message(long, 1), 1, 1)) },
			"synchronous short": func(w *Comm) *Request { return ok(Issend(w, message(short, 1), 1, 1)) },
			"synchronous empty": func(w *Comm) *Request { return ok(Issend[byte](w, nil, 1, 1)) },
			"synchronous long":  func(w *Comm) *Request { return ok(Issend(w, message(long, 1), 1, 1)) },
		} {
			over := make(chan bool)
			run(2, func(w *Comm) {
				if w.Rank() == 0 {
					r := send(w)
					exchangeSignals(w, 1)
					must(r.Cancel())
					st := ok(r.Wait())
					check(st.Cancelled, "%s: not cancelled: %+v", name, st)
					close(over)
					must(Send(w, message(long, 2), 1, 2))
					return
				}
				echoSignals(w, 0)
				<-over
				buf := make([]byte, long)
				same(ok(Recv(w, buf, 0, AnyTag)), Status{Source: 0, Tag: 2, Bytes: long})
				whole(buf, 2)
				_, found, err := Iprobe(w, AnySource, AnyTag)
				check(!found && err == nil, "%s: there is a message still", name)
				same(w.Stats().UnexpectedBytes, 0)
			})
		}
	})
}

// §3.8.4: what is matched, or complete, is not cancelled.
func TestCancelMatchedSend(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		for _, synchronous := range []bool{true, false} {
			for _, size := range []int{short, long} {
				run(2, func(w *Comm) {
					if w.Rank() == 1 {
						buf := make([]byte, size)
						r := ok(Irecv(w, buf, 0, 1))
						sendSignal(w, 0)
						same(ok(r.Wait()), Status{Source: 0, Tag: 1, Bytes: int64(size)})
						whole(buf, 1)
						return
					}
					awaitSignal(w, 1)
					isend := Isend[byte]
					if synchronous {
						isend = Issend[byte]
					}
					r := ok(isend(w, message(size, 1), 1, 1))
					<-r.Done()
					must(r.Cancel())
					check(!ok(r.Wait()).Cancelled, "it was received, and is said to be cancelled")
				})
			}
		}
		run(2, func(w *Comm) { // taken by a matched probe is matched, §3.8.2
			if w.Rank() == 0 {
				r := ok(Isend(w, message(long, 1), 1, 1))
				awaitSignal(w, 1)
				must(r.Cancel())
				exchangeSignals(w, 1)
				check(!ok(r.Wait()).Cancelled, "cancelled after a matched probe")
				return
			}
			m, _, err := Mprobe(w, 0, 1)
			must(err)
			sendSignal(w, 0)
			echoSignals(w, 0)
			buf := make([]byte, long)
			ok(Mrecv(m, buf))
			whole(buf, 1)
		})
	})
}

// §3.8.4: when a cancel races the match, both sides agree on the outcome.
func TestCancelRacesTheMatch(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			r := newRand(1, uint64(w.Rank()))
			for i := range inShort(60, 24) {
				size := []int{0, short, long}[i%3]
				if w.Rank() == 0 {
					awaitSignal(w, 1)
					s := ok(Issend(w, message(size, i), 1, 1))
					for range r.IntN(30) {
						finished(ok(Ibsend[byte](w, nil, ProcNull, 0)))
					}
					must(s.Cancel())
					must(Send(w, []bool{ok(s.Wait()).Cancelled}, 1, 2))
					continue
				}
				sendSignal(w, 0)
				for range r.IntN(30) {
					_, _, err := Iprobe(w, 0, 3)
					must(err)
				}
				buf, won := make([]byte, size), []bool{false}
				in := ok(Irecv(w, buf, 0, 1))
				ok(Recv(w, won, 0, 2))
				if won[0] {
					check(!finished(in), "received although the send was cancelled")
					must(in.Cancel())
					check(ok(in.Wait()).Cancelled, "not cancelled")
					check(slices.Equal(buf, make([]byte, size)), "the buffer was written by a cancelled message")
					continue
				}
				same(ok(in.Wait()), Status{Source: 0, Tag: 1, Bytes: int64(size)})
				whole(buf, i)
			}
		})
	})
}

// §7.3, §7.4.2: messages of different communicators never match each other's receives, though ranks and tags are the
// same.
func TestCommunicatorsAreApart(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		for _, size := range []int{short, long} {
			run(2, func(w *Comm) {
				a := ok(w.Dup())
				b := ok(a.Dup())
				all := []*Comm{w, a, b}
				var rs []*Request
				if w.Rank() == 0 {
					for i, c := range all {
						rs = append(rs, ok(Isend(c, message(size, i), 1, 7)))
					}
					must(WaitAll(rs...))
					must(b.Free())
					return
				}
				for i, c := range slices.Backward(all) {
					st := ok(Probe(c, AnySource, AnyTag))
					same(st, Status{Source: 0, Tag: 7, Bytes: int64(size)})
					buf := make([]byte, size)
					ok(Recv(c, buf, AnySource, AnyTag))
					whole(buf, i)
					_, found, _ := Iprobe(c, AnySource, AnyTag)
					check(!found, "two messages on one communicator")
				}
				must(b.Free())
			})
		}
	})
}

// A rank that has made a communicator may send on it before the receiver has made it: the message is kept.
func TestMessageForACommunicatorToCome(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		for _, size := range []int{0, short, long} {
			run(2, func(w *Comm) {
				if w.Rank() == 0 {
					// What Dup will return, before it does.
					early := lookAlike(w, "early", w.group.Next)
					r := ok(Isend(early, message(size, 1), 1, 3))
					exchangeSignals(w, 1)
					d := ok(w.Dup())
					same(d.group.Context, early.group.Context)
					ok(r.Wait())
					return
				}
				echoSignals(w, 0)
				_, found, err := Iprobe(w, AnySource, AnyTag)
				check(!found && err == nil, "the message is seen on the parent: %v %v", found, err)
				d := ok(w.Dup())
				buf := make([]byte, size)
				same(ok(Recv(d, buf, AnySource, AnyTag)), Status{Source: 0, Tag: 3, Bytes: int64(size)})
				whole(buf, 1)
			})
		}
	})
}

// §7.2, §11.6: several goroutines may make communicators at once, of one parent and of several.
func TestDupByManyGoroutines(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		const n = 6
		var cids [3][]uint32
		run(3, func(w *Comm) {
			parents := make([]*Comm, n)
			for i := range parents {
				parents[i] = ok(w.Dup())
			}
			var mu sync.Mutex
			var made []*Comm
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() { // of parents of their own
					for range 4 {
						d := ok(parents[i].Dup())
						from := (w.Rank() + 2) % 3
						in := []int{0}
						ok(Sendrecv(d, []int{i*10 + w.Rank()}, (w.Rank()+1)%3, 1, in, from, 1))
						same(in[0], i*10+from)
						mu.Lock()
						made = append(made, d)
						mu.Unlock()
					}
				})
				wg.Go(func() { // of one
					d := ok(w.Dup())
					mu.Lock()
					made = append(made, d)
					mu.Unlock()
				})
			}
			wg.Wait()
			for _, c := range made {
				cids[w.Rank()] = append(cids[w.Rank()], c.group.Context)
			}
			slices.Sort(cids[w.Rank()])
			must(Barrier(w))
			check(slices.Equal(cids[w.Rank()], cids[0]), "ranks have different communicators: %v", cids)
			check(len(slices.Compact(slices.Clone(cids[0]))) == len(made), "two communicators are one: %v", cids[0])
			for _, c := range made {
				must(c.Free())
			}
		})
	})
}

// §7.4.3: a communicator that is freed cannot be used. Calls that wait on it end; a message that was not received is
// dropped, and its sender goes on. Its number may be used again, and no earlier message appears on it.
func TestFree(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		rank1 := make(chan bool)
		withoutMessages := func(w *Comm) { // a barrier
			if w.Rank() == 0 {
				<-rank1
			} else {
				rank1 <- true
			}
		}
		run(2, func(w *Comm) {
			for range 3 {
				d := ok(w.Dup())
				peer := 1 - w.Rank()
				must(Send(d, message(short, 1), peer, 1))
				lost := ok(Isend(d, message(long, 1), peer, 2))
				alsoLost := ok(Issend(d, message(short, 1), peer, 3))
				r := ok(Irecv(d, make([]byte, 5), peer, 4))
				calls := make(chan error)
				go func() { calls <- second(Probe(d, peer, 5)) }()
				go func() { calls <- second(Recv(d, make([]byte, 1), AnySource, 6)) }()
				for w.Stats().Posted < 2 || w.group.Engine.Pending() < 5 { // both wait
					_, _, err := Iprobe(w, peer, 0)
					must(err)
				}
				// All messages have arrived before a rank frees.
				if w.Rank() == 0 {
					exchangeSignals(w, 1)
				} else {
					echoSignals(w, 0)
				}
				must(d.Free())
				is(<-calls, ErrComm)
				is(<-calls, ErrComm)
				is(second(r.Wait()), ErrComm)
				must(WaitAll(lost, alsoLost))
				is(Send(d, []int{1}, peer, 1), ErrComm)
				is(d.Free(), ErrComm)
				is(second(d.Dup()), ErrComm)
				is(second(Recv(d.WithContext(t.Context()), []int{1}, peer, 1)), ErrComm)
				withoutMessages(w)
				same(w.Stats().UnexpectedBytes, 0)
				same(w.Stats().Unexpected, 0)
				withoutMessages(w)
			}
			is(w.Free(), ErrComm)
		})
	})
}

// Messages that come when their communicator has been freed are dropped too: they take neither memory nor credit, and
// end at their sender; §7.4.3. Nor does a later communicator get them.
func TestFreeDropsLateMessages(t *testing.T) {
	everyTransport(t, func(t *testing.T, run runner) {
		if matchedBelow(t) {
			return // the device keeps them
		}
		run(2, func(w *Comm) {
			for range inShort(100, 10) {
				d := ok(w.Dup())
				if w.Rank() == 0 {
					must(d.Free())
					sendSignal(w, 1)
					awaitSignal(w, 1)
				} else {
					awaitSignal(w, 0)
					must(Send(d, message(short, 1), 0, 1))
					must(Send(d, message(long, 1), 0, 1))
					must(Ssend(d, message(short, 1), 0, 2))
					must(WaitAll(ok(Isend(d, message(0, 1), 0, 3)), ok(Issend(d, message(long, 1), 0, 3))))
					must(d.Free())
					sendSignal(w, 0)
				}
				check(w.group.Numbers.Taken[d.group.Context/agree.ContextsEach].Is() &&
					w.group.Engine.Dropped(d.group.Context), "the number of a freed communicator may be another's")
			}
			s := w.Stats()
			check(s.Unexpected == 0 && s.UnexpectedBytes == 0, "%d messages, %d bytes are kept", s.Unexpected, s.UnexpectedBytes)
		}, littleRoom())
	})
}

// A rank whose Dup ends with its context has no part in the communicator that the others make: what they send to it
// there is dropped.
func TestDupGivenUp(t *testing.T) {
	everyTransport(t, func(t *testing.T, run runner) {
		if matchedBelow(t) {
			return // the device keeps them
		}
		run(2, func(w *Comm) {
			if w.Rank() == 0 {
				over, cancel := context.WithCancel(t.Context())
				cancel()
				is(second(w.WithContext(over).Dup()), context.Canceled)
				awaitSignal(w, 1)
				s := w.Stats()
				check(s.Unexpected == 0 && s.UnexpectedBytes == 0, "%d messages, %d bytes are kept",
					s.Unexpected, s.UnexpectedBytes)
				return
			}
			d := ok(w.Dup())
			for range 100 {
				must(Ssend(d, message(short, 1), 0, 1))
			}
			must(d.Free())
			sendSignal(w, 0)
		}, littleRoom())
	})
}

// §3.2.5: MPI_GET_COUNT: "if the number of basic elements is not integral, MPI_UNDEFINED".
func TestCount(t *testing.T) {
	for _, c := range []struct{ got, want int }{
		{Count[int32](Status{Bytes: 12}), 3},
		{Count[int32](Status{Bytes: 13}), Undefined},
		{Count[byte](Status{Bytes: 13}), 13},
		{Count[[3]int16](Status{Bytes: 12}), 2},
		{Count[[3]int16](Status{Bytes: 8}), Undefined},
		{Count[struct{}](Status{}), 0},
		{Count[struct{}](Status{Bytes: 1}), Undefined},
		{Count[float64](Status{}), 0},
	} {
		if c.got != c.want {
			t.Errorf("got %d, want %d", c.got, c.want)
		}
	}
}

type (
	celsius float32
	point   struct{ X, Y, Z float64 }
	mixed   struct {
		A bool
		B int64
		C [3]struct {
			D uint16
			E complex64
		}
		_ [2]byte
		F celsius
	}
)

// §3.2.2, §3.3: every type that has a fixed size and no pointers.
func TestElementTypes(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			exchange(w, true, false)
			exchange[int8](w, -128, 127)
			exchange[int16](w, -1<<15, 1<<15-1)
			exchange[int32](w, -1<<31, 1<<31-1)
			exchange[int64](w, -1<<63, 1<<63-1)
			exchange(w, -5, 5)
			exchange[uint8](w, 0, 255)
			exchange[uint16](w, 0, 1<<16-1)
			exchange[uint32](w, 0, 1<<32-1)
			exchange[uint64](w, 0, 1<<64-1)
			exchange[uint](w, 0, 77)
			exchange[uintptr](w, 0, 77)
			exchange[float32](w, -1.5, 1e30)
			exchange(w, -1.5, 1e300)
			exchange[complex64](w, 1+2i, -3i)
			exchange(w, 1+2i, -3e300i)
			exchange(w, 'ä', '世')
			exchange[celsius](w, -273.15, 100)
			exchange(w, time.Hour, -time.Nanosecond)
			exchange(w, [3]int16{1, 2, 3}, [3]int16{-1, -2, -3})
			exchange(w, [0]int64{}, [0]int64{})
			exchange(w, point{1, 2, 3}, point{-1, -2, -3})
			exchange(w, mixed{A: true, B: 1 << 60, F: 36.6}, mixed{C: [3]struct {
				D uint16
				E complex64
			}{{1, 2i}, {3, 4}, {5, 6i}}})
			exchange(w, struct{}{}, struct{}{})
		})
	})
}

// exchange passes values of T around in each way there is.
func exchange[T comparable](w *Comm, vs ...T) {
	peer := 1 - w.Rank()
	in := make([]T, len(vs))
	st := ok(Sendrecv(w, vs, peer, 1, in, peer, 1))
	check(slices.Equal(in, vs), "%T: sent %v, received %v", vs[0], vs, in)
	if sizeOf[T]() > 0 {
		same(Count[T](st), len(vs))
	}
	must(Bsend(w, vs, peer, 2))
	got, _, err := RecvAlloc[T](w, peer, 2)
	must(err)
	check(sizeOf[T]() == 0 || slices.Equal(got, vs), "%T: sent %v, received %v", vs[0], vs, got)
	for _, v := range vs {
		must(SendValue(w, v, peer, 3))
		got, _, err := RecvValue[T](w, peer, 3)
		must(err)
		same(got, v)
	}
}

// §3.2.4: a process may send to itself. A blocking call that waits for itself would not end; nonblocking ones do.
func TestMessagesToSelf(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		for _, ranks := range []int{1, 3} {
			run(ranks, func(w *Comm) {
				me := w.Rank()
				for i, size := range []int{0, short, 8 << 10, long, inShort(8<<20, 1<<20)} {
					buf := make([]byte, size)
					r := ok(Irecv(w, buf, me, 1)) // posted first
					must(Ssend(w, message(size, i), me, 1))
					same(ok(r.Wait()), Status{Source: me, Tag: 1, Bytes: int64(size)})
					whole(buf, i)
					clear(buf)
					s := ok(Issend(w, message(size, i), me, 2)) // sent first
					same(ok(Probe(w, AnySource, 2)), Status{Source: me, Tag: 2, Bytes: int64(size)})
					check(!finished(s), "complete without a receive")
					ok(Recv(w, buf, AnySource, 2))
					whole(buf, i)
					ok(s.Wait())
				}
				const n = 500 // more than fit into a link
				var rs []*Request
				bufs := make([][]byte, n)
				for i := range n {
					rs = append(rs, ok(Isend(w, message(i%50*300, i), me, i)))
				}
				for i := range slices.Backward(bufs) {
					bufs[i] = make([]byte, i%50*300)
					rs = append(rs, ok(Irecv(w, bufs[i], me, i)))
				}
				must(WaitAll(rs...))
				for i := range bufs {
					whole(bufs[i], i)
				}
				for i := range n { // and one after the other
					must(Send(w, []int{i}, me, 3))
				}
				for i := range n {
					b := []int{0}
					ok(Recv(w, b, me, 3))
					same(b[0], i)
				}
				if sendsStay(t) {
					return
				}
				s := ok(Issend(w, message(long, 0), me, 9))
				must(s.Cancel())
				check(ok(s.Wait()).Cancelled, "not cancelled")
			})
		}
	})
}

// RecvAlloc takes the length from the message, values and objects travel by themselves.
func TestRecvAllocValuesObjects(t *testing.T) {
	type record struct {
		Name string
		Tags map[string][]int
	}
	everywhere(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			rec := record{"x", map[string][]int{"a": {1, 2}, "b": nil}}
			big := record{Name: string(message(long, 1))}
			if w.Rank() == 0 {
				for i, size := range []int{0, short, long} {
					must(Send(w, message(size, i), 1, 1))
				}
				must(Send(w, message(13, 1), 1, 2)) // not a whole number of int32
				must(Send(w, []int32{1, 2}, 1, 2))
				must(SendValue(w, point{1, 2, 3}, 1, 3))
				must(Send(w, []int32{4}, 1, 3)) // shorter than the value
				must(SendObject(w, rec, 1, 4))
				must(SendObject(w, big, 1, 4))
				must(Send(w, []byte("no gob"), 1, 4))
				must(SendObject(w, rec, 1, 4))
				is(SendObject(w, func() {}, 1, 4), ErrType)
				return
			}
			for i, size := range []int{0, short, long} {
				b, st, err := RecvAlloc[byte](w, AnySource, 1)
				must(err)
				same(st, Status{Source: 0, Tag: 1, Bytes: int64(size)})
				same(len(b), size)
				whole(b, i)
			}
			_, st, err := RecvAlloc[int32](w, 0, 2)
			is(err, ErrType)
			same(st.Bytes, 13)
			ints, _, err := RecvAlloc[int32](w, 0, 2) // the message after it is intact
			must(err)
			same(fmt.Sprint(ints), "[1 2]")
			p, st, err := RecvValue[point](w, 0, AnyTag)
			must(err)
			same(st, Status{Source: 0, Tag: 3, Bytes: 24})
			same(p, point{1, 2, 3})
			_, _, err = RecvValue[point](w, 0, 3)
			is(err, ErrCount)
			for _, want := range []record{rec, big} {
				got, st, err := RecvObject[record](w, 0, 4)
				must(err)
				check(reflect.DeepEqual(got, want) && st.Source == 0 && st.Tag == 4, "%v %v", got, st)
			}
			_, _, err = RecvObject[record](w, 0, 4)
			is(err, ErrType)
			got, _, err := RecvObject[record](w, 0, 4)
			check(err == nil && reflect.DeepEqual(got, rec), "%v %v", got, err)
		})
	})
}

// Stats count what they say.
func TestStats(t *testing.T) {
	run := overLoop(t)
	run(2, func(w *Comm) {
		peer := 1 - w.Rank()
		settleBoth(w)
		a := w.Stats()
		if w.Rank() == 0 {
			for range 10 {
				must(Send(w, message(short, 0), 1, 1))
			}
			for range 3 {
				must(Send(w, message(long, 0), 1, 2))
			}
			settleBoth(w)
			b := w.Stats()
			same(b.EagerSent-a.EagerSent, 10+10)
			same(b.RendezvousSent-a.RendezvousSent, 3)
			same(b.BytesSent-a.BytesSent, 10*short+3*long)
			return
		}
		st := ok(Probe(w, peer, 2)) // so all short ones are here
		same(st.Bytes, long)
		b := w.Stats()
		same(b.Unexpected, 11)
		check(b.UnexpectedBytes >= 10*short && b.UnexpectedPeak >= b.UnexpectedBytes, "%+v", b)
		idle := ok(Irecv(w, []byte{0}, 0, 77))
		same(w.Stats().Posted, 1)
		must(idle.Cancel())
		check(ok(idle.Wait()).Cancelled, "not cancelled")
		buf := make([]byte, long)
		for range 10 {
			ok(Recv(w, buf, 0, 1))
		}
		for range 3 {
			ok(Recv(w, buf, 0, 2))
		}
		settleBoth(w)
		c := w.Stats()
		check(c.Matched-a.Matched >= 11 && c.Gets-a.Gets == 3 && c.Posted == 0, "%+v", c)
		check(c.Unexpected == 0 && c.UnexpectedBytes == 0, "%+v", c)
	})
}

func settleBoth(w *Comm) {
	if w.Rank() == 0 {
		exchangeSignals(w, 1)
	} else {
		echoSignals(w, 0)
	}
}

// barrierSizes are all up to 17 ranks, or with -short those that differ: powers of two, and one more and one less.
func barrierSizes() (sizes []int) {
	if testing.Short() {
		return []int{1, 2, 3, 4, 7, 9}
	}
	for n := range 17 {
		sizes = append(sizes, n+1)
	}
	return sizes
}

// §6.3: Barrier "returns … only after all group members have entered the call".
func TestBarrier(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		for _, n := range barrierSizes() {
			const rounds = 15
			var entered [rounds]atomic.Int32
			run(n, func(w *Comm) {
				for i := range rounds {
					entered[i].Add(1)
					must(Barrier(w))
					same(int(entered[i].Load()), n)
				}
			})
		}
	})
}

// §3.5 (progress): a started operation completes although a rank does not call the library: here one whose last call
// left an answer to be sent, and one that has only posted a receive.
func TestProgressWhileAway(t *testing.T) {
	refuse := misbehaving(1, faulty.Plan{Refuse: 0.6, RefuseFor: 1})
	for _, run := range []runner{over(t), over(t, refuse)} {
		for i := range 20 {
			size := []int{0, short, long}[i%3]
			over := make(chan bool)
			run(2, func(w *Comm) {
				if w.Rank() == 0 {
					must(Ssend(w, message(size, 1), 1, 1))
					must(Ssend(w, message(size, 2), 1, 2))
					close(over)
					return
				}
				buf, later := make([]byte, size), make([]byte, size)
				r := ok(Irecv(w, later, 0, 2))
				ok(Recv(w, buf, 0, 1))
				whole(buf, 1)
				if i%2 == 0 {
					ok(r.Wait())
				}
				<-over
				if i%2 == 1 {
					ok(r.Wait())
				}
				whole(later, 2)
			})
		}
	}
}

// Beyond the standard: when the connection to a rank breaks, the calls that involve that rank end with ErrPeerFailed,
// in whatever state they are. Other calls go on.
func TestPeerGone(t *testing.T) {
	cut := withDevices(func(rank int, d transport.Device) transport.Device {
		switch rank {
		case 0:
			return faulty.Wrap(d, 1, faulty.Plan{Cuts: []faulty.Cut{{Peer: 1, After: 40}}})
		case 1:
			return faulty.Wrap(d, 1, faulty.Plan{Cuts: []faulty.Cut{{Peer: 0, After: 40}}})
		}
		return d
	})
	for name, call := range map[string]func(w *Comm) error{
		"Recv":         func(w *Comm) error { return second(Recv(w, []int{0}, 1, 1)) },
		"Recv any":     func(w *Comm) error { return second(Recv(w, []int{0}, AnySource, 1)) },
		"Ssend":        func(w *Comm) error { return Ssend(w, []int{0}, 1, 1) },
		"Send":         func(w *Comm) error { return Send(w, message(long, 1), 1, 1) },
		"Probe":        func(w *Comm) error { return second(Probe(w, 1, 1)) },
		"Irecv, Wait":  func(w *Comm) error { return second(ok(Irecv(w, []int{0}, 1, 1)).Wait()) },
		"Issend, Wait": func(w *Comm) error { return second(ok(Issend(w, []int{0}, 1, 1)).Wait()) },
	} {
		over(t, cut)(3, func(w *Comm) {
			if w.Rank() == 2 {
				echoSignals(w, 0)
				return
			}
			done := make(chan error)
			if w.Rank() == 0 {
				go func() { done <- call(w) }() // begun before the end
			}
			var err error
			for err == nil { // until the connection breaks
				if err = Bsend(w, []int{1}, 1-w.Rank(), 99); err == nil {
					_, err = Recv(w, []int{0}, 1-w.Rank(), 99)
				}
			}
			is(err, ErrPeerFailed)
			if w.Rank() == 1 {
				return
			}
			is(<-done, ErrPeerFailed)
			if name != "Recv any" { // another rank could still send
				is(call(w), ErrPeerFailed)
			}
			exchangeSignals(w, 2)
		}, WithEnviron([]string{"GORUN_SPIN=0"}))
	}
}
