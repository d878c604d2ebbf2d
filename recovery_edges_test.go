package mpi

import "testing"

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
