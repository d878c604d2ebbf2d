package mpi

import (
	"sync"
	"testing"
)

// Agree does not wait for a rank that has freed the communicator, also where its number is not small, and where the
// rank has looked at the freed communicator.
func TestAgreeAfterFree(t *testing.T) {
	for name, test := range map[string]struct {
		numbers uint32
		look    func(c *Comm)
	}{
		"small number":          {100, func(*Comm) {}},
		"number beyond":         {4, func(*Comm) {}},
		"Failed after the Free": {100, func(c *Comm) { c.Failed() }},
	} {
		t.Run(name, func(t *testing.T) {
			overLoop(t)(3, func(w *Comm) {
				fewNumbers(w, test.numbers)
				var held []*Comm
				for range 5 {
					held = append(held, ok(w.Dup()))
				}
				c := held[4]
				if w.Rank() == 2 {
					must(c.Free())
					test.look(c)
				} else {
					in, stop := within(c)
					got, err := in.Agree(6)
					is(err, ErrPeerFailed)
					same(got, 6)
					same(c.Failed().Size(), 1)
					stop()
					must(c.Free())
				}
				must(Barrier(w)) // rank 2 is in the job until then
				for _, d := range held[:4] {
					must(d.Free())
				}
			})
		})
	}
}

// A failure that does not end a receive from any source leaves it at its place among the receives that were posted: the
// first message that matches two of them goes to the one that was posted first.
func TestDeathKeepsTheOrderOfReceives(t *testing.T) {
	whereRanksDie(t, func(t *testing.T, opt func() Option) {
		var posted, seen sync.WaitGroup
		posted.Add(1)
		seen.Add(1)
		outlive(t, 4, opt(), func(w *Comm, die func()) {
			half := ok(w.Split(w.Rank()/3, 0)) // 0, 1, 2 and 3
			switch w.Rank() {
			case 0:
				first, second := make([]byte, 1), make([]byte, 1)
				any, one := ok(Irecv(half, first, AnySource, 5)), ok(Irecv(half, second, 1, 5))
				posted.Done()
				_, err := Recv(w, []byte{0}, 3, 9)
				is(err, ErrPeerFailed)
				seen.Done()
				must(WaitAll(any, one))
				check(first[0] == 1 && second[0] == 2, "the messages of rank 1 are %d and %d", first[0], second[0])
			case 1:
				seen.Wait()
				must(Send(half, []byte{1}, 0, 5))
				must(Send(half, []byte{2}, 0, 5))
			case 3:
				posted.Wait()
				die()
			}
		})
	})
}
