package gpu

import (
	"math/rand/v2"
	"testing"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/accel/acceltest"
)

// blocks are parts of memory of the host, in the order of a layout, none of which overlap.
type blocks struct {
	lens, at []int
	size     int // bytes of all
	extent   int
}

// newBlocks makes some of size bytes, in any order.
func newBlocks(dice *rand.Rand, size int) (b blocks) {
	b.size = size
	for left := size; left > 0; {
		n := 1 + dice.IntN(min(left, []int{7, 300, 20_000, left}[dice.IntN(4)]))
		b.extent += dice.IntN(1 + n)
		b.lens, b.at = append(b.lens, n), append(b.at, b.extent)
		b.extent += n
		left -= n
	}
	dice.Shuffle(len(b.lens), func(i, k int) {
		b.lens[i], b.lens[k] = b.lens[k], b.lens[i]
		b.at[i], b.at[k] = b.at[k], b.at[i]
	})
	b.extent += dice.IntN(5)
	return b
}

func (b *blocks) layout() mpi.Layout { return mpi.Indexed(b.lens, b.at, mpi.Of[byte]()) }

// scatter has the blocks of mem have data, the beginning of them.
func (b *blocks) scatter(mem, data []byte) {
	for i, n := range b.lens {
		n = copy(mem[b.at[i]:][:n], data)
		data = data[n:]
	}
}

// A message between memory of a device and a layout of the host's, of any kind and in messages of all lengths, has the
// bytes of a loop over the layout, at each end: in pieces, as long as the pinned memory, and truncated.
func TestHostLayouts(t *testing.T) {
	alsoWhole(t, 2, func(r rank) {
		programs := 12
		if testing.Short() {
			programs = 3
		}
		dice := rand.New(rand.NewPCG(uint64(r.Size()), 3)) // the same at both ranks
		for n := range programs * len(edges) {
			size := edges[n%len(edges)]
			b, other := newBlocks(dice, size), 1-r.Rank()
			data, before := message(size, n), message(b.extent, n+1)
			tag, room := n, size
			if size > 1 && dice.IntN(5) == 0 {
				room = 1 + dice.IntN(size-1)
			}
			sends := dice.IntN(2) == r.Rank()
			mem := append([]byte{}, before...)
			ended := func(st mpi.Status, err error) {
				if room < size {
					isError(err, mpi.ErrTruncate, "")
					return
				}
				must(err)
				check(st.Bytes == int64(size), "%+v", st)
			}
			switch fromHost := dice.IntN(2) == 0; {
			case fromHost && sends:
				b.scatter(mem, data)
				want := append([]byte{}, mem...)
				must(mpi.SendLayout(r.Comm, mem, b.layout(), other, tag))
				same(mem, want)
			case fromHost:
				s := of(r, message(room, n+2))
				ended(Recv(r.Comm, s, other, tag))
				same(contents(r, s), data[:room])
				free(s)
			case sends:
				s := of(r, data)
				must(Send(r.Comm, s, other, tag))
				same(contents(r, s), data)
				free(s)
			default:
				room = size // a layout has one size
				ended(mpi.RecvLayout(r.Comm, mem, b.layout(), other, tag))
				b.scatter(before, data)
				same(mem, before)
			}
		}
	})
}

// A message with a layout of device memory has the bytes of a loop over the layout: at one end or at both, with a slice
// of a device or of the host at the other, of all lengths, blocking and not, with a stream, shorter than its receive
// and truncated. No other byte changes.
func TestDeviceLayouts(t *testing.T) {
	alsoWhole(t, 2, func(r rank) {
		programs := 12
		if testing.Short() {
			programs = 3
		}
		dice := rand.New(rand.NewPCG(uint64(r.Size()), 4)) // the same at both ranks
		for n := range programs * len(edges) {
			size := edges[n%len(edges)]
			room := size
			switch dice.IntN(5) {
			case 0:
				room = 1 + dice.IntN(max(size, 1))
			case 1:
				room += dice.IntN(300)
			}
			whole := min(size, room)
			out, in := newBlocks(dice, size), newBlocks(dice, room)
			kind, starts, streams := dice.IntN(5), dice.IntN(2) == 0, dice.IntN(2) == 0
			data, from, other := message(size, n), dice.IntN(2), 1-r.Rank()
			order := func(s Slice[byte]) Slice[byte] {
				if streams {
					return s.On(0)
				}
				return s
			}
			var st mpi.Status
			var err error
			switch sends := r.Rank() == from; {
			case sends && kind < 3:
				mem := message(out.extent, n+1)
				out.scatter(mem, data)
				s := of(r, mem)
				if starts {
					err = waited(IsendLayout(r.Comm, order(s), out.layout(), other, n))
				} else {
					err = SendLayout(r.Comm, order(s), out.layout(), other, n)
				}
				must(err)
				same(contents(r, s), mem)
				free(s)
			case sends && kind == 3:
				s := of(r, data)
				must(Send(r.Comm, s, other, n))
				free(s)
			case sends:
				must(mpi.Send(r.Comm, data, other, n))
			case kind == 1:
				s := alloc[byte](r, room)
				st, err = Recv(r.Comm, s, other, n)
				same(contents(r, s)[:whole], data[:whole])
				free(s)
			case kind == 2:
				mem := make([]byte, room)
				st, err = mpi.Recv(r.Comm, mem, other, n)
				same(mem[:whole], data[:whole])
			default:
				want := message(in.extent, n+2)
				s := of(r, want)
				if starts {
					st, err = collect(IrecvLayout(r.Comm, order(s), in.layout(), other, n))
				} else {
					st, err = RecvLayout(r.Comm, order(s), in.layout(), other, n)
				}
				in.scatter(want, data)
				same(contents(r, s), want)
				free(s)
			}
			switch {
			case r.Rank() == from:
			case room < size:
				isError(err, mpi.ErrTruncate, "")
			default:
				must(err)
				check(st == mpi.Status{Source: other, Tag: n, Bytes: int64(size)}, "%+v", st)
			}
		}
	})
}

// Wrong arguments are the errors of the call of package mpi, with this package's name.
func TestDeviceLayoutErrors(t *testing.T) {
	p := useMachine(t, acceltest.Options{})
	run(t, 1, func(c *mpi.Comm) {
		r := rank{c, p, 0}
		h := make([]float64, 4)
		s := of(r, h)
		freed := ok(c.Dup())
		must(freed.Free())
		whole, part := mpi.Contiguous(4, mpi.Of[float64]()), mpi.Vector(2, 1, 2, mpi.Of[float64]())
		twice := mpi.Indexed([]int{2, 2}, []int{0, 1}, mpi.Of[float64]())
		second := func(_ any, err error) error { return err }
		for i, pair := range [][2]error{
			{mpi.SendLayout(c, h, whole, 1, 0), SendLayout(c, s, whole, 1, 0)},
			{mpi.SendLayout(c, h, part, 0, -1), SendLayout(c, s, part, 0, -1)},
			{mpi.SendLayout(nil, h, part, 0, 0), SendLayout(nil, s, part, 0, 0)},
			{mpi.SendLayout(c, h[:2], part, 0, 0), SendLayout(c, s.Slice(0, 2), part, 0, 0)},
			{mpi.SendLayout(c, h, mpi.Of[int32](), 0, 0), SendLayout(c, s, mpi.Of[int32](), 0, 0)},
			{mpi.SendLayout(c, h, mpi.Layout{}, 0, 0), SendLayout(c, s, mpi.Layout{}, 0, 0)},
			{mpi.SendLayout(c, []*int{}, part, 0, 0), SendLayout(c, Slice[*int]{}, part, 0, 0)},
			{second(mpi.IsendLayout(freed, h, part, 0, 0)), second(IsendLayout(freed, s, part, 0, 0))},
			{second(mpi.RecvLayout(c, h, twice, 0, 0)), second(RecvLayout(c, s, twice, 0, 0))},
			{second(mpi.RecvLayout(c, h, part, 0, -5)), second(RecvLayout(c, s, part, 0, -5))},
			{second(mpi.RecvLayout(nil, h, part, 0, 0)), second(RecvLayout(nil, s, part, 0, 0))},
			{second(mpi.RecvLayout(c, h[:2], part, 0, 0)), second(RecvLayout(c, s.Slice(0, 2), part, 0, 0))},
			{second(mpi.IrecvLayout(c, h, part, 4, 0)), second(IrecvLayout(c, s, part, 4, 0))},
		} {
			check(pair[0] != nil && pair[1] != nil, "call %d: %v, %v", i, pair[0], pair[1])
			want := "mpi: gpu." + pair[0].Error()[len("mpi: "):]
			check(pair[1].Error() == want, "call %d:\n%v, want\n%s", i, pair[1], want)
			isError(pair[1], class(pair[0]), "")
		}
		must(SendLayout(c, s, twice, mpi.ProcNull, 0))
		st := ok(RecvLayout(c, s, part, mpi.ProcNull, 0))
		check(st.Source == mpi.ProcNull, "%+v", st)
		free(s)
		isError(SendLayout(c, s, part, 0, 0), mpi.ErrBuffer, "mpi: gpu.SendLayout to rank 0 tag 0")
	})
}

// Any copy of a message with a layout fails, of more than are under way at a time: a send has not begun, a receive is
// over, and nothing is left. The next message succeeds.
func TestDeviceLayoutCopyFails(t *testing.T) {
	way{name: "two devices", own: true, options: acceltest.Options{Devices: 2}}.test(t, 2, func(r rank) {
		const runs = 3*copiesAtATime + 1
		l := mpi.Vector(runs, 1, 2, mpi.Of[byte]())
		for _, method := range []string{"Copy", "CopyEnd"} {
			for _, nth := range []int{1, copiesAtATime, copiesAtATime + 1, runs} {
				s, want := of(r, message(2*runs, 1+r.Rank())), message(2*runs, 2)
				r.d.Fail(method, nth)
				if r.Rank() == 0 {
					isError(SendLayout(r.Comm, s, l, 1, 0), mpi.ErrDevice, "mpi: gpu.SendLayout")
					must(SendLayout(r.Comm, s, l, 1, 0))
					must(SendLayout(r.Comm, s, l, 1, 1))
				} else {
					q := ok(IrecvLayout(r.Comm, s, l, 0, 0))
					isError(s.Free(), mpi.ErrBuffer, "")
					_, err := q.Wait()
					isError(err, mpi.ErrDevice, "mpi: gpu.IrecvLayout")
					ok(RecvLayout(r.Comm, s, l, 0, 1))
					for i, sent := 0, message(2*runs, 1); i < runs; i++ {
						want[2*i] = sent[2*i]
					}
					same(contents(r, s), want)
				}
				free(s)
			}
		}
	})
}
