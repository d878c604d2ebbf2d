package mpi

import "testing"

// Types that have been sent or received are known, all at a time: a program that sends two in turn has each checked once.
func TestTypesInTurn(t *testing.T) {
	type pair struct{ a, b int32 }
	err := RunLocal(1, func(w *Comm) error {
		for range 2 {
			if _, err := Sendrecv(w, []float64{1}, 0, 1, make([]float64, 1), 0, 1); err != nil {
				return err
			}
			if _, err := Sendrecv(w, []pair{{1, 2}}, 0, 1, make([]pair, 1), 0, 1); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !known[float64]() || !known[pair]() {
		t.Errorf("known are float64: %v, pair: %v", known[float64](), known[pair]())
	}
}
