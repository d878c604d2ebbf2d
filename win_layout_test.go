package mpi

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/rma"
)

// everyKind runs body on a window of each kind, where this rank's elements are mem, and at has the number of the first
// element of each rank.
func everyKind[T any](w *Comm, n int, body func(win *Win[T], mem []T, at []int64)) {
	withWin(w, n, func(win *Win[T]) { body(win, win.Local(), make([]int64, w.Size())) })
	win, mem, at := ok(WinDynamic[T](w)), make([]T, n), make([]int64, w.Size())
	must(Allgather(w, []int64{ok(win.Attach(mem))}, at))
	body(win, mem, at)
	must(win.Free())
}

// scattered returns a random layout of n elements of T, and their places in its order. No two share memory.
func scattered[T any](r *rand.Rand, n int) (l Layout, places []int) {
	size := sizeOf[T]()
	switch form := r.IntN(5); {
	case form == 0:
		for i := range n {
			places = append(places, i)
		}
		return Contiguous(n, Of[T]()), places
	case form == 1 && n%10 == 0: // blocks at one distance, in either direction
		block, stride, first := n/10, n/10+r.IntN(4), 0
		if r.IntN(2) == 0 {
			first, stride = 9*stride, -stride
		}
		for i := range 10 * block {
			places = append(places, first+i/max(1, block)*stride+i%max(1, block))
		}
		return HIndexed([]int{1}, []int{first * size}, Vector(10, block, stride, Of[T]())), places
	case form == 2 && n%6 == 0: // loops of loops
		for i := range n {
			places = append(places, i/(n/3)+i%(n/3)/2*8+i%2*4)
		}
		return HVector(3, 1, size, HVector(n/6, 1, 8*size, HVector(2, 1, 4*size, Of[T]()))), places
	}
	var lens, at []int // blocks anywhere, in any order
	for next, left := r.IntN(5), n; left > 0; {
		k := min(left, 1+r.IntN([]int{3, 1 + n/8}[r.IntN(2)]))
		lens, at = append(lens, k), append(at, next)
		next, left = next+k+r.IntN(3), left-k
	}
	r.Shuffle(len(at), func(i, j int) {
		at[i], at[j] = at[j], at[i]
		lens[i], lens[j] = lens[j], lens[i]
	})
	for i, a := range at {
		for j := range lens[i] {
			places = append(places, a+j)
		}
	}
	return Indexed(lens, at, Of[T]()), places
}

// Operations with random layouts on either side do what a loop over the places does, and touch nothing else; §12.3.
func TestWinLayouts(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		layoutsOf(run, 1, func(i int) uint8 { return uint8(i) })
		layoutsOf(run, 2, func(i int) int32 { return int32(3 * i) })
		layoutsOf(run, 3, func(i int) complex128 { return complex(float64(i), float64(-i)) })
	})
}

func layoutsOf[T Number](run runner, seed uint64, value func(i int) T) {
	const front = 10 // elements before the one that an operation names, which its layout may name too
	rounds, most := inShort(60, 12), inShort(24000, 2400)
	length := 4 * most // of memory
	run(2, func(w *Comm) {
		everyKind(w, length, func(win *Win[T], mem []T, at []int64) {
			must(win.LockAll())
			if w.Rank() == 1 {
				awaitSignal(w, 0)
				must(win.UnlockAll())
				return
			}
			r := rand.New(rand.NewPCG(seed, 9))
			var model [2][]T
			for to := range model {
				model[to] = make([]T, length)
			}
			next := 0
			fresh := func(n int) []T {
				s := make([]T, n)
				for i := range s {
					next++
					s[i] = value(next)
				}
				return s
			}
			for range rounds {
				to, n := r.IntN(2), []int{0, 1, 6, 60, 600, most}[r.IntN(6)]
				own, here := scattered[T](r, n)
				there, places := scattered[T](r, n)
				shift := r.IntN(front) // places before the one that the operation names
				there = HIndexed([]int{1}, []int{-shift * sizeOf[T]()}, there)
				first := front + r.IntN(100)
				for i := range places {
					places[i] += first - shift
				}
				buf := fresh(length)
				want := slices.Clone(buf)
				target := at[to] + int64(first)
				requests := r.IntN(2) == 0 // and not the calls without them
				wait := func(q *Request, err error) {
					must(err)
					must(second(q.Wait()))
				}
				switch r.IntN(5) {
				case 0:
					if requests {
						wait(win.RPutLayout(buf, own, to, target, there))
					} else {
						must(win.PutLayout(buf, own, to, target, there))
					}
					for i, p := range places {
						model[to][p] = buf[here[i]]
					}
				case 1:
					if requests {
						wait(win.RGetLayout(buf, own, to, target, there))
					} else {
						must(win.GetLayout(buf, own, to, target, there))
					}
					for i, p := range places {
						want[here[i]] = model[to][p]
					}
				case 2:
					if requests {
						wait(win.RAccumulateLayout(Sum, buf, own, to, target, there))
					} else {
						must(win.AccumulateLayout(Sum, buf, own, to, target, there))
					}
					for i, p := range places {
						model[to][p] += buf[here[i]]
					}
				default:
					op, src := Op[T](Sum[T]), fresh(length)
					from, given := scattered[T](r, n)
					if r.IntN(3) == 0 {
						op, src, from = NoOp[T], nil, Layout{}
					}
					if requests {
						wait(win.RGetAccumulateLayout(op, src, from, buf, own, to, target, there))
					} else {
						must(win.GetAccumulateLayout(op, src, from, buf, own, to, target, there))
					}
					for i, p := range places {
						if want[here[i]] = model[to][p]; src != nil {
							model[to][p] += src[given[i]]
						}
					}
				}
				must(win.Flush(to))
				check(slices.Equal(buf, want), "the buffer is not as a loop leaves it")
				got := make([]T, length)
				must(win.Get(got, to, at[to]))
				must(win.Flush(to))
				check(slices.Equal(got, model[to]), "the elements at rank %d are not as a loop leaves them", to)
			}
			sendSignal(w, 1)
			must(win.UnlockAll())
		})
	})
}

// Each element is updated in one step, with those of other ranks and with FetchOp, also next to elements that no layout
// names; §12.7.1.
func TestAccumulateLayoutIsAtomic(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		accumulateAll[uint8](run, 5)
		accumulateAll[int64](run, inShort(300, 30))
		accumulateAll[complex128](run, inShort(300, 30))
	})
}

func accumulateAll[T Number](run runner, each int) {
	var total T
	for range 4 * each {
		total++
	}
	const n, ranks = 50, 4
	run(ranks, func(w *Comm) {
		everyKind(w, 2*n, func(win *Win[T], mem []T, at []int64) {
			ones, was := make([]T, n), make([]T, n)
			for i := range ones {
				ones[i] = 1
			}
			must(win.LockAll())
			for i := range each {
				if i%2 == 0 {
					must(win.AccumulateLayout(Sum, ones, Contiguous(n, Of[T]()), 2, at[2], Vector(n, 1, 2, Of[T]())))
				} else {
					must(win.GetAccumulateLayout(Sum, ones, Contiguous(n, Of[T]()), was, Contiguous(n, Of[T]()), 2,
						at[2], Vector(n, 1, 2, Of[T]())))
				}
				ok(win.FetchOp(Sum, 1, 2, at[2]+1))
			}
			must(win.UnlockAll())
			must(Barrier(w))
			if w.Rank() == 2 {
				for i, v := range mem {
					var want T
					if i%2 == 0 || i == 1 {
						want = total
					}
					check(v == want, "element %d is %v, want %v", i, v, want)
				}
			}
			must(Barrier(w))
		})
	})
}

// Layouts name fields of structs: the others stay.
func TestWinLayoutOfFields(t *testing.T) {
	type cell struct {
		mass  float64
		count int32
		speed [3]float32
	}
	everyWindow(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			const n = 1000
			size := int(unsafe.Sizeof(cell{}))
			field := func(at uintptr, of Layout) Layout {
				return Contiguous(n, Resized(Struct(Field{1, int(at), of}), 0, size))
			}
			speeds := field(unsafe.Offsetof(cell{}.speed), Contiguous(3, Of[float32]()))
			counts := field(unsafe.Offsetof(cell{}.count), Of[int32]())
			everyKind(w, n, func(win *Win[cell], mem []cell, at []int64) {
				for i := range mem {
					mem[i] = cell{1, 2, [3]float32{3, 4, 5}}
				}
				must(win.Fence())
				own, to := make([]cell, n), 1-w.Rank()
				for i := range own {
					own[i] = cell{-1, int32(i), [3]float32{6, 7, float32(i)}}
				}
				must(win.PutLayout(own, speeds, to, at[to], speeds))
				must(win.GetLayout(own, counts, to, at[to], counts))
				must(win.Fence())
				for i := range n {
					same(mem[i], cell{1, 2, [3]float32{6, 7, float32(i)}})
					same(own[i], cell{-1, 2, [3]float32{6, 7, float32(i)}})
				}
				is(win.PutLayout(own, speeds, to, at[to], field(0, Contiguous(3, Of[int32]()))), ErrType)
				is(win.PutLayout(own, counts, to, at[to], field(unsafe.Offsetof(cell{}.speed), Of[float32]())), ErrType)
				must(win.Fence())
			})
		})
	})
}

// A layout that cannot be used is an error, and one that reaches out of the window is ErrRange: nothing changes.
func TestWinLayoutMistakes(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			const n = 100
			everyKind(w, n, func(win *Win[int32], mem []int32, at []int64) {
				one, gaps := Of[int32](), Vector(10, 1, 2, Of[int32]())
				buf := make([]int32, n)
				for i := range buf {
					buf[i] = 1
				}
				other := slices.Clone(buf)
				ten := Contiguous(10, one)
				to := 1 - w.Rank()
				is(win.PutLayout(buf, ten, to, at[to], gaps), ErrEpoch)
				must(win.LockAll())
				each := func(own Layout, rank int, at int64, there Layout, class error) {
					for _, err := range []error{win.PutLayout(buf, own, rank, at, there),
						win.GetLayout(buf, own, rank, at, there),
						win.AccumulateLayout(Sum, buf, own, rank, at, there),
						win.GetAccumulateLayout(Sum, buf, own, other, own, rank, at, there),
						win.GetAccumulateLayout(NoOp, nil, Layout{}, other, own, rank, at, there),
						second(win.RPutLayout(buf, own, rank, at, there)),
						second(win.RGetLayout(buf, own, rank, at, there)),
						second(win.RAccumulateLayout(Sum, buf, own, rank, at, there)),
						second(win.RGetAccumulateLayout(Sum, buf, own, other, own, rank, at, there))} {
						check(errors.Is(err, class), "the error is %v, not of class %v", err, class)
						must(win.Flush(to))
					}
				}
				each(ten, to, at[to], Vector(9, 1, 2, one), ErrCount)
				each(Contiguous(n+1, one), to, at[to], Contiguous(n+1, one), ErrCount)
				each(Layout{}, to, at[to], ten, ErrType)
				each(ten, to, at[to], Layout{}, ErrType)
				each(Contiguous(10, Of[float32]()), to, at[to], ten, ErrType)
				each(ten, to, at[to], Contiguous(10, Of[uint32]()), ErrType)
				each(ten, 2, at[to], ten, ErrRank)
				each(ten, ProcNull, 1<<60, gaps, nil)
				each(Contiguous(0, one), to, at[to]+n, Vector(0, 1, 2, one), nil)
				twice := HVector(10, 1, 0, one)
				is(win.PutLayout(buf, ten, to, at[to], twice), ErrType)
				is(win.AccumulateLayout(Sum, buf, ten, to, at[to], twice), ErrType)
				is(win.GetLayout(buf, twice, to, at[to], ten), ErrType)
				is(win.GetAccumulateLayout(Sum, buf, ten, other, ten, to, at[to], twice), ErrType)
				is(win.GetAccumulateLayout(NoOp, nil, ten, other, twice, to, at[to], ten), ErrType)
				is(win.GetAccumulateLayout(Sum, nil, ten, other, ten, to, at[to], ten), ErrCount)
				is(win.GetAccumulateLayout(Sum, buf, Vector(9, 1, 2, one), other, ten, to, at[to], ten), ErrCount)
				is(win.GetAccumulateLayout(Sum, buf, ten, buf[5:], ten, to, at[to], ten), ErrBuffer)
				must(win.GetLayout(buf[:10], ten, to, at[to], twice)) // one that is read
				half := HVector(10, 1, 6, one)
				is(win.AccumulateLayout(Sum, buf, half, to, at[to], ten), ErrType)
				is(win.AccumulateLayout(Sum, buf, ten, to, at[to], half), ErrType)
				is(win.GetAccumulateLayout(Sum, buf, half, other, ten, to, at[to], ten), ErrType)
				is(win.GetAccumulateLayout(Sum, buf, ten, other, half, to, at[to], ten), ErrType)
				is(win.GetAccumulateLayout(Sum, buf, ten, other, ten, to, at[to], half), ErrType)
				is(win.GetAccumulateLayout(nil, buf, ten, other, ten, to, at[to], ten), ErrOp)
				is(win.AccumulateLayout(NoOp, buf, ten, to, at[to], gaps), ErrOp)
				is(win.AccumulateLayout(nil, buf, ten, to, at[to], gaps), ErrOp)
				must(win.Flush(to))
				for _, outside := range []struct {
					at    int64
					there Layout
				}{{n - 18, gaps}, {n, gaps}, {-at[to] - 1, gaps}, {0, HIndexed([]int{1}, []int{-4}, gaps)},
					{1<<63 - 1 - at[to], gaps}, {1<<63 - 1 - at[to], HIndexed([]int{1}, []int{4}, gaps)},
					{1, Vector(10, 1, 1<<40, one)}} {
					own, first := buf[n-20:], at[to]+outside.at
					for i, call := range []func() error{
						func() error { return win.PutLayout(own, gaps, to, first, outside.there) },
						func() error { return win.AccumulateLayout(Sum, own, gaps, to, first, outside.there) },
						func() error { return win.GetLayout(own, gaps, to, first, outside.there) },
						func() error {
							return win.GetAccumulateLayout(Sum, own, gaps, other, gaps, to, first, outside.there)
						},
					} {
						err := call()
						if err == nil && i < 2 { // the other rank has found it
							err = win.Flush(to)
						}
						is(err, ErrRange)
					}
				}
				must(win.UnlockAll())
				must(Barrier(w))
				for i := range n {
					same(mem[i], 0)
					same(buf[i], map[bool]int32{true: 0, false: 1}[i < 10])
				}
				must(Barrier(w))
			})
			var no *Win[int32]
			l := Of[int32]()
			is(no.PutLayout(nil, l, 0, 0, l), ErrComm)
			is(no.GetLayout(nil, l, 0, 0, l), ErrComm)
			is(no.AccumulateLayout(Sum, nil, l, 0, 0, l), ErrComm)
			is(no.GetAccumulateLayout(Sum, nil, l, nil, l, 0, 0, l), ErrComm)
			is(second(no.RPutLayout(nil, l, 0, 0, l)), ErrComm)
			is(second(no.RGetLayout(nil, l, 0, 0, l)), ErrComm)
			is(second(no.RAccumulateLayout(Sum, nil, l, 0, 0, l)), ErrComm)
			is(second(no.RGetAccumulateLayout(Sum, nil, l, nil, l, 0, 0, l)), ErrComm)
		})
	})
}

// Requests with tables of runs that cannot be harm nothing.
func TestHostileRuns(t *testing.T) {
	everyWindow(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			const n, first, count = 100, 40, 20 // elements, and the part that the requests are about
			mem := make([]int32, n)
			win := ok(WinCreate(w, mem))
			if w.Rank() == 0 {
				r := newRand(3, 4)
				for range inShort(5000, 500) {
					kind := []byte{2, 4, 5, 6}[r.IntN(4)] // rma.Put, Get, Update and Fetch
					var table rma.Runs
					elements := make([]byte, 4*(r.IntN(20)/19)) // those of the runs, and seldom more
					for range 1 + r.IntN(3) {
						run := rma.Run{At: 4 * r.Int64N(25), Size: 4 * (1 + r.Int64N(3)), Count: 1 + r.Int64N(4),
							Stride: 4 * (r.Int64N(30) - 15)}
						for _, field := range []*int64{&run.At, &run.Size, &run.Count, &run.Stride} {
							if r.IntN(20) == 0 {
								*field = []int64{0, 1, -1, 81, 1 << 20, 1<<63 - 1, -1 << 63}[r.IntN(7)]
							}
						}
						if table = table.Append(run); kind != 4 && run.Size < 99 && run.Count < 99 {
							elements = append(elements, make([]byte, max(0, run.Size*run.Count))...)
						}
					}
					for i := range elements {
						elements[i] = 1
					}
					if r.IntN(10) == 0 {
						table[r.IntN(len(table))] = byte(r.Uint32())
					}
					length := len(table) + r.IntN(50)/49*r.IntN(1000)
					b := binary.LittleEndian.AppendUint16([]byte{kind, 0}, uint16(length))
					b = binary.LittleEndian.AppendUint32(b, uint32(3<<27+r.IntN(9)))
					b = binary.LittleEndian.AppendUint64(b, first)
					b = binary.LittleEndian.AppendUint64(b, count)
					b = append(append(b, table...), elements...)
					must(win.comm.group.Engine.Send(nil, win.comm.group.Context+agree.CtxRequests, 1, tagRequest, b, 0))
				}
				must(win.Lock(1, Shared))
				must(win.Accumulate(Sum, []int32{0}, 1, first-1)) // a request, behind which Flush sends its own
				win.Flush(1)                                      // may say that a request could not be
				same(ok(win.FetchOp(Sum, 0, 1, first-1)), 0)
				must(win.PutLayout([]int32{5, 5}, Contiguous(2, Of[int32]()), 1, 0, Vector(2, 1, 99, Of[int32]())))
				must(win.Unlock(1))
			}
			must(Barrier(w))
			for i, v := range mem {
				if i == 0 || i == n-1 {
					same(v, int32(5*w.Rank()))
				} else if i < first || i >= first+count {
					same(v, 0)
				}
			}
			must(win.Free())
		})
	})
}
