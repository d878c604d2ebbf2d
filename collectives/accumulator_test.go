package collectives

import "testing"

// Where the operator commutes each vector is combined where one of the two lies: no third memory is written first.
func TestNothingIsMoved(t *testing.T) {
	for _, o := range []Operation{Reduce, Allreduce} {
		for _, a := range Algorithms(o) {
			if a.Needs&OnBoard != 0 {
				continue
			}
			for size := 2; size <= 9; size++ {
				for at := range 2 * size {
					p := sample(a, size, at%size)
					p.InPlace = at >= size && (o == Allreduce || p.Rank == p.Root)
					if a.Fits(&p) != nil {
						continue
					}
					s := new(Builder).Build(a, &p)
					for i := range s.Rounds {
						_, local := s.Round(i)
						for _, step := range local {
							if step.Kind == Combine && step.Dst != step.Src && step.Dst != step.With {
								t.Errorf("%v, rank %d of %d, in place %v: %v", a, p.Rank, size, p.InPlace, step)
							}
						}
					}
				}
			}
		}
	}
}
