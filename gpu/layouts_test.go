package gpu

import (
	"math/rand/v2"
	"testing"

	"github.com/gorun-mpi/mpi"
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
