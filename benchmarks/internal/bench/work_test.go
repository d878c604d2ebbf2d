package bench

import "testing"

func TestHidden(t *testing.T) {
	for _, c := range []struct{ pure, compute, total, want float64 }{
		{100, 200, 200, 1}, {100, 200, 300, 0}, {100, 200, 250, 0.5}, {100, 200, 150, 1}, {100, 200, 500, 0},
	} {
		if got := Hidden(c.pure, c.compute, c.total); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestComputationIsMadeToMeasure(t *testing.T) {
	few, many := StepsFor(1e5), StepsFor(1e7)
	if few < 1 || many <= few {
		t.Errorf("%d steps for 0.1 ms, %d for 10 ms", few, many)
	}
	before := sink
	Work(100)
	if sink == before {
		t.Error("the computation left no trace: it may not have been done")
	}
}
