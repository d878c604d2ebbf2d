package mpi

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gorun-mpi/mpi/internal/coll"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/transport"
)

// reading has ranks read each other's buffers.
var reading = WithEnviron([]string{"GORUN_COLL_CHECK=0", "GORUN_COLL=barrier:shared,bcast:direct,allgather:direct," +
	"alltoall:direct,reduce:direct,allreduce:direct"})

// Every call in which ranks read each other's buffers gives what it should.
func TestDirect(t *testing.T) { sharedBy(t, reading) }

// Elements that are longer than what is read at once, and fit a slot.
func TestDirectLongElements(t *testing.T) {
	type long [coll.CombinedAtOnce/8 + 100]int64
	add := func(inout, in []long) {
		for i := range in {
			for k := range in[i] {
				inout[i][k] += in[i][k]
			}
		}
	}
	overLoop(t)(2, func(w *Comm) {
		meetOnBoard(w)
		mine, got := make([]long, 3), make([]long, 3)
		for i := range mine {
			mine[i][i], mine[i][len(long{})-1] = 1, int64(w.Rank())
		}
		must(Allreduce(w, mine, got, add))
		rooted := make([]long, 3)
		must(Reduce(w, mine, rooted, add, 0))
		for i := range got {
			all := &got[i]
			check(all[i] == 2 && all[len(all)-1] == 1 && (w.Rank() != 0 || rooted[i] == *all), "element %d", i)
		}
	}, reading)
}

// The rank that is not the root has its vector back when Reduce returns, and not before all pieces have been read: what
// it writes there then is in no result.
func TestDirectReduceOfTwo(t *testing.T) {
	overLoop(t)(2, func(w *Comm) {
		meetOnBoard(w)
		for round := range 40 {
			for root := range 2 {
				n := []int{1, 100, w.group.Board.Slot / 8, w.group.Board.Slot/8*2 + 1}[round%4]
				mine, sum := make([]int64, n), make([]int64, n)
				for i := range mine {
					mine[i] = int64(i + w.Rank())
				}
				must(Reduce(w, mine, sum, Sum, root))
				for i := range mine {
					mine[i] = -1 << 40
				}
				bad := slices.IndexFunc(sum, func(v int64) bool { return v < 0 || v%2 == 0 })
				check(w.Rank() != root || bad < 0 && sum[n-1] == int64(2*n-1), "round %d, %d: %d at %d", round, n,
					sum[max(bad, 0)], bad)
			}
		}
	}, reading)
}

// Two ranks move parts of one call, each for the other: every length around the limits, either root, in place and not.
// What a rank writes to its buffers after a call is in no other's, and no other rank writes there then.
func TestDirectByBoth(t *testing.T) {
	type odd [3]uint64
	add := func(inout, in []odd) {
		for i := range in {
			for k := range in[i] {
				inout[i][k] += in[i][k]
			}
		}
	}
	sizes := []int{1, coll.BothBcast/24 - 1, coll.BothBcast/24 + 1, coll.BothReduce / 24, coll.BothReduce/24 + 1,
		coll.SlotMost/24*3 + 1}
	overLoop(t)(2, func(w *Comm) {
		meetOnBoard(w)
		me := uint64(w.Rank())
		for round, size := range append(sizes, sizes...) {
			root := round / len(sizes)
			is := w.Rank() == root
			fill := func(f uint64) []odd {
				v := make([]odd, size)
				for i := range v {
					v[i] = odd{f + uint64(i), f * 3, uint64(size)}
				}
				return v
			}
			buf := fill(me + 5)
			must(Bcast(w, buf, root))
			check(slices.Equal(buf, fill(uint64(root)+5)), "Bcast of %d", size)
			clear(buf)
			want := fill(0)
			add(want, fill(1))
			mine, sum := fill(me), make([]odd, size)
			must(Reduce(w, mine, sum, add, root))
			clear(mine)
			check(!is || slices.Equal(sum, want), "Reduce of %d", size)
			mine = fill(me)
			if is {
				must(Reduce(w, nil, mine, add, root))
				check(slices.Equal(mine, want), "Reduce of %d in place", size)
			} else {
				must(Reduce(w, mine, nil, add, root))
			}
			clear(mine)
			must(Barrier(w))
			for _, b := range [][]odd{buf, mine} {
				check(slices.Equal(b, make([]odd, size)), "%d: a buffer was written later", size)
			}
		}
	}, reading)
}

// A rank that cannot write what it is to write for the other one says so: both have an error, and the next call is
// right.
func TestDirectWriteFails(t *testing.T) {
	overLoop(t)(2, func(w *Comm) {
		meetOnBoard(w)
		write := w.group.Board.On.Lending.Write
		w.group.Board.On.Lending.Write = func(int, []byte, transport.Loan, int) error { return transport.ErrNoMemory }
		const size = coll.BothReduce
		buf := make([]byte, size)
		for root := range 2 {
			err := Bcast(w, buf, root)
			check(errors.Is(err, ErrPeerFailed) != (w.Rank() == root) && err != nil, "Bcast: %v", err)
			err = Reduce(w, buf, make([]byte, size), Sum, root)
			check(errors.Is(err, ErrPeerFailed) == (w.Rank() == root) && err != nil, "Reduce: %v", err)
		}
		w.group.Board.On.Lending.Write = write
		buf[size-1] = byte(7 * (1 - w.Rank()))
		must(Bcast(w, buf, 0))
		check(buf[size-1] == 7, "%d", buf[size-1])
	}, reading)
}

// Two ranks whose counts differ, both in this form or one of them, have an error. No rank writes then.
func TestDirectByBothDiffer(t *testing.T) {
	const size = coll.BothReduce
	for _, counts := range [][2]int{{size, size + 8}, {size, coll.BothBcast - 8}, {size, coll.BothBcast}} {
		for root := range 2 {
			for _, rooted := range []bool{true, false} {
				overLoop(t)(2, func(w *Comm) {
					meetOnBoard(w)
					buf := make([]byte, counts[w.Rank()])
					var err error
					if rooted {
						err = Bcast(w, buf, root)
					} else {
						err = Reduce(w, buf, make([]byte, len(buf)), Sum, root)
					}
					differ := errors.Is(err, ErrCount) || errors.Is(err, ErrComm)
					check(differ || errors.Is(err, ErrPeerFailed), "%v", err)
				}, reading)
			}
		}
	}
}

// So have those whose elements are as long as a slot, which takes a bit more than what is shorter. 2 and 3 of them were
// taken for equal: the rank with 3 wrote behind the buffer of the one with 2.
func TestDirectLongestElementsDiffer(t *testing.T) {
	type longest [coll.SlotMost]byte
	op := func(inout, _ []longest) { inout[len(inout)-1][0]++ }
	for _, call := range []func(w *Comm, buf []longest) error{
		func(w *Comm, buf []longest) error { return Bcast(w, buf, 0) },
		func(w *Comm, buf []longest) error { return Reduce(w, make([]longest, len(buf)), buf, op, 1) },
	} {
		overLoop(t)(2, func(w *Comm) {
			meetOnBoard(w)
			err := call(w, make([]longest, 3-w.Rank()))
			check(err != nil, "no error")
			is(err, ErrCount)
			check(strings.Contains(err.Error(), "of 3 elements of 65536 bytes"), "%v", err)
		}, reading)
	}
}

// Vectors that are no whole number of slots or parts, elements that no slot is a multiple of, and operators that do not
// commute.
func TestDirectPieces(t *testing.T) {
	type odd [3]int64
	add := func(inout, in []odd) {
		for i := range in {
			inout[i] = odd{in[i][0], inout[i][1], inout[i][2] + in[i][2]} // the first and the last rank, and the sum
		}
	}
	for _, n := range few([]int{2, 3, 5}, 2, 3) {
		overLoop(t)(n, func(w *Comm) {
			meetOnBoard(w)
			check(w.group.Board.ReadsBuffers(), "the ranks do not read each other's memory")
			most := n * w.group.Board.Slot / 24
			for _, size := range few([]int{1, n - 1, n, most - 1, most, most + 1, 2*most + 1}, 1, most, most+1) {
				mine := make([]odd, size)
				for i := range mine {
					mine[i] = odd{int64(w.Rank()), int64(w.Rank()), int64(i)}
				}
				good := func(got []odd) bool {
					for i, g := range got {
						if g != (odd{0, int64(n - 1), int64(n * i)}) {
							return false
						}
					}
					return true
				}
				got := make([]odd, size)
				must(Allreduce(w, mine, got, add, Ordered))
				check(good(got), "Allreduce of %d: %v…", size, got[0])
				for root := range n {
					clear(got)
					must(Reduce(w, mine, got, add, root, Ordered))
					check(w.Rank() != root || good(got), "Reduce of %d: %v…", size, got[0])
				}
				var send []odd
				if w.Rank()%2 == 0 { // in place at some of them
					send, got = mine, make([]odd, size)
				} else {
					got = slices.Clone(mine)
				}
				must(Allreduce(w, send, got, add, Ordered))
				check(good(got), "Allreduce in place of %d: %v…", size, got[0])
			}
		}, reading)
	}
}

// What a caller passes is the caller's again when the call returns, and not read by others any more: the race detector
// looks.
func TestDirectGivesBack(t *testing.T) {
	overLoop(t)(3, func(w *Comm) {
		meetOnBoard(w)
		const size = 3000
		in, out, all := make([]int, size), make([]int, size), make([]int, 3*size)
		for round := range 20 {
			for i := range in {
				in[i] = round
			}
			must(Allreduce(w, in, out, Sum))
			clear(in)
			check(out[0] == 3*round && out[size-1] == 3*round, "%v…", out[0])
			clear(out)
			if w.Rank() == round%3 {
				out[size-1] = round
			}
			must(Bcast(w, out, round%3))
			check(out[size-1] == round, "%v", out[size-1])
			out[0], out[size-1] = 7, w.Rank()
			must(Allgather(w, out, all))
			clear(out)
			check(all[size-1] == 0 && all[3*size-1] == 2, "%v %v", all[size-1], all[3*size-1])
			back := make([]int, 3*size)
			must(Alltoall(w, all, back))
			clear(all)
			in[0] = 1
			must(Reduce(w, in, out, Sum, round%3))
			clear(in)
			check(w.Rank() != round%3 || out[0] == 3, "%v", out[0])
		}
	}, reading)
}

// A rank that ends, between calls or in the middle of one, is ErrPeerFailed at all others, which have their buffers
// again then: what others still read of them is not used, and not read at all where the race detector looks.
func TestDirectRankEnds(t *testing.T) {
	rankEnds(t, 5, []int{1, 100, 5000}, reading, endedCalls)
	rankEnds(t, 2, []int{1, coll.BothBcast/8 + 1, 3*coll.SlotMost/8 + 1}, reading, endedCalls)
}

func endedCalls(w *Comm, i, size int, op Op[int]) error {
	n := w.Size()
	in, out, all := slices.Repeat([]int{1}, size), make([]int, size), make([]int, n*size)
	var err error
	for _, call := range []func() error{
		func() error { return Allreduce(w, in, out, op) },
		func() error { return Reduce(w, in, out, op, i%n) },
		func() error { return Bcast(w, in, i%n) },
		func() error { return Allgather(w, in, all) },
		func() error { return Alltoall(w, all, make([]int, n*size)) },
	} {
		if err = call(); err != nil {
			break
		}
	}
	if err == nil {
		check(all[0] == 1 && all[len(all)-1] == 1, "%v %v", all[0], all[len(all)-1])
	}
	for k := range in {
		in[k] = 99
	}
	clear(out)
	clear(all)
	return err
}

// A rank that leaves a call with an error has its buffers again, while another one is still to read them: that one gets
// an error, and not what the first has there by now.
func TestDirectLeft(t *testing.T) {
	overLoop(t)(3, func(w *Comm) {
		meetOnBoard(w)
		const size = 3000
		in, out := make([]int, size), make([]int, size)
		switch w.Rank() {
		case 0: // it combines when rank 1 has left
			var once sync.Once
			op := func(inout, in []int) {
				once.Do(func() {
					for w.group.Board.On.Err() == nil {
						runtime.Gosched()
					}
				})
				Sum(inout, in)
			}
			err := Allreduce(w, in, out, op)
			check(errors.Is(err, ErrPeerFailed), "%v", err)
		case 1:
			err := Allreduce(w, in, out, Sum)
			check(errors.Is(err, ErrPeerFailed), "%v", err)
			for i := range in {
				in[i], out[i] = 99, 99
			}
		default:
			w.group.Engine.Close(mpierr.New("", ErrAborted, "the test ends it"))
		}
	}, reading)
}

// A call whose context has ended reads and lends the library's memory, and the next ones wait for their turn.
func TestDirectContextEnds(t *testing.T) {
	overLoop(t)(3, func(w *Comm) {
		meetOnBoard(w)
		const size = 2000
		for i := range 20 {
			c, cancel := context.WithCancel(context.Background())
			cancel()
			in, out := slices.Repeat([]int{1}, size), make([]int, size)
			if w.Rank() == i%3 {
				err := Allreduce(w.WithContext(c), in, out, Sum)
				check(errors.Is(err, context.Canceled), "%v", err)
				clear(in)
				clear(out)
			} else {
				must(Allreduce(w, in, out, Sum))
				check(out[0] == 3 && out[size-1] == 3, "%v", out[0])
			}
			in[size-1] = i * w.Rank()
			must(Bcast(w, in, 1))
			check(in[size-1] == i, "call %d: %v", i, in[size-1])
		}
		must(Barrier(w))
	}, reading)
}

// An operator that panics at one rank is an error at all ranks that need its part, and the next call is as before.
func TestDirectOperatorPanics(t *testing.T) {
	for _, n := range []int{2, 4} {
		overLoop(t)(n, operatorPanics, reading)
	}
}

// An operator that ends its goroutine ends the call, and with it the loan of its buffers: no rank writes there later.
func TestDirectOperatorEndsItsGoroutine(t *testing.T) {
	overLoop(t)(2, func(w *Comm) {
		meetOnBoard(w)
		out, left := make([]byte, coll.BothReduce), make(chan struct{})
		if w.Rank() == 0 {
			go func() {
				defer close(left)
				Reduce(w, make([]byte, len(out)), out, func(_, _ []byte) { runtime.Goexit() }, 0)
			}()
			<-left
			clear(out)
			must(Send(w, []int{}, 1, 7))
			must(second(Recv(w, []int{}, 1, 7)))
			check(slices.Max(out) == 0, "written later")
			return
		}
		write := w.group.Board.On.Lending.Write
		w.group.Board.On.Lending.Write = func(i int, src []byte, l transport.Loan, from int) error {
			must(second(Recv(w, []int{}, 0, 7)))
			return write(i, src, l, from)
		}
		err := Reduce(w, slices.Repeat([]byte{1}, len(out)), nil, Sum, 0)
		is(err, ErrPeerFailed)
		must(Send(w, []int{}, 0, 7))
	}, reading)
}

func operatorPanics(w *Comm) {
	n := w.Size()
	meetOnBoard(w)
	for victim := range n {
		for _, size := range []int{8, coll.SlotMost} {
			op := func(inout, in []int) {
				if w.Rank() == victim {
					panic("the test wants it")
				}
				Sum(inout, in)
			}
			root := (victim + 1) % n
			if n == 2 && size == 8 {
				root = victim // which alone combines a short vector
			}
			for _, err := range []error{Allreduce(w, make([]int, size), make([]int, size), op),
				Reduce(w, make([]int, size), make([]int, size), op, root)} {
				switch {
				case w.Rank() == victim:
					check(errors.Is(err, ErrOp), "%v", err)
				default:
					check(err == nil || errors.Is(err, ErrPeerFailed), "%v", err)
				}
			}
			sum := []int{1, 1, 1, 1}
			must(Allreduce(w, nil, sum, Sum))
			check(sum[0] == n && sum[3] == n, "%v", sum)
		}
	}
}

// An Alltoall that is in place at one rank alone, which therefore makes it in another form, is an error at all ranks:
// where the others' buffers are is not taken for what is in them.
func TestDirectInPlaceAtOne(t *testing.T) {
	for _, size := range []int{1, 100} { // the in place rank's contribution is in its line, or in a slot
		overLoop(t)(3, func(w *Comm) {
			c := ok(w.Dup())
			for range coll.BoardSetup {
				must(Barrier(c))
			}
			send := make([]int, 3*size)
			if w.Rank() == 1 {
				send = nil
			}
			err := Alltoall(c, send, make([]int, 3*size))
			if err == nil { // this rank has not waited for the others
				err = Barrier(c)
			}
			is(err, ErrBuffer)
			check(strings.Contains(err.Error(), "bytes from a send buffer"), "%v", err)
			is(Barrier(c), ErrBuffer)
			must(Barrier(w))
		}, reading)
	}
}

// A rank that looks at the board's failure after the others have made this call and disagreed in the next one still
// makes this call: all have begun it.
func TestRefusedAfterThisCall(t *testing.T) {
	var slow atomic.Bool // rank 2 is to wait before its next look at whether the board has failed
	looks, disagreed := make(chan struct{}), make(chan struct{})
	agreeNoMore := sync.OnceFunc(func() { close(disagreed) })
	late := withBoards(func(rank int, b *transport.Board) {
		failed := b.Failed
		b.Failed = func() (int, []byte) {
			if rank == 2 && slow.CompareAndSwap(true, false) {
				close(looks)
				<-disagreed
			}
			return failed()
		}
	})
	overLoop(t, late)(3, func(w *Comm) {
		meetOnBoard(w)
		c := ok(w.Dup())
		meetOnBoard(c)
		in := make([]int, 3)
		switch w.Rank() {
		case 1:
			in = nil
			fallthrough
		case 0:
			defer agreeNoMore() // also if this rank complains
			<-looks
		default:
			slow.Store(true)
		}
		must(Barrier(c))
		err := Alltoall(c, in, make([]int, 3))
		if err == nil {
			err = Barrier(c)
		}
		is(err, ErrBuffer)
		if w.Rank() == 0 {
			agreeNoMore()
		}
		must(Barrier(w))
	}, reading)
}

// Where one rank cannot read, or lets no other read, all ranks use the board in the other way, or messages.
func TestDirectNotEverywhere(t *testing.T) {
	refuse := errors.New("no memory of others is read")
	for bad := range 3 {
		for _, none := range []bool{true, false} {
			lending := withBoards(func(rank int, b *transport.Board) {
				switch {
				case rank != bad:
				case none:
					b.Lending = nil
				default:
					b.Lending.Try = func() error { return refuse }
				}
			})
			overLoop(t, lending)(3, func(w *Comm) {
				meetOnBoard(w)
				check(!w.group.Board.ReadsBuffers(), "ranks read each other's memory that cannot")
				moves[int64](w, 1000)
				reductions[int64](w, 1000)
			}, reading)
		}
	}
}

// A call in which ranks read each other's buffers makes no allocation over shm; in one process the table of what is
// lent may grow.
func TestDirectAllocates(t *testing.T) {
	overLoop(t)(2, func(w *Comm) {
		meetOnBoard(w)
		in, out := make([]float64, 40_000), make([]float64, 80_000)
		calls := func() {
			must(Bcast(w, in, 0))
			must(Reduce(w, in, out[:40_000], Sum, 1))
			must(Allreduce(w, in[:10_000], out[:10_000], Sum))
			must(Allgather(w, in, out))
			must(Alltoall(w, out[:10_000], in[:10_000]))
		}
		neverAllocates(w, calls)
	}, reading)
}
