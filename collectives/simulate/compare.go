package simulate

import (
	"math"
	"slices"

	"github.com/gorun-mpi/mpi/collectives"
)

// Compared is a measured call, and the model's time for it.
type Compared struct {
	Measured
	Predicted float64
}

// Ratio is predicted to measured.
func (c *Compared) Ratio() float64 { return c.Predicted / c.Seconds }

// Contest is the algorithms that were measured of one call, the fastest measured first.
type Contest struct {
	Operation      collectives.Operation
	Ranks, PerHost int
	Bytes          int64
	Entries        []Compared
	// Pairs counts the pairs of algorithms whose measured times differ by the margin at least, and Agree the pairs
	// among them that the model has in the same order.
	Pairs, Agree int
	Differ       []Pair // the others
	// Loss is how many times the measured time of the fastest algorithm that one takes which the model has as fastest.
	Loss float64
}

// Pair is two algorithms whose order differs.
type Pair struct{ Fast, Slow *collectives.Algorithm } // as measured

// Close is how near to each other two measured times are whose order means nothing.
const Close = 1.15

// Compare has a model predict what was measured. Contests are in the order in which their first runs come.
func Compare(m *Model, runs []Measured) (all []Contest, err error) {
	if err := m.Valid(); err != nil {
		return nil, err
	}
	for _, r := range runs {
		t, err := r.Predict(m)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(all, func(c Contest) bool { return c.has(&r) })
		if i < 0 {
			i = len(all)
			o := r.Algorithm.Operation
			all = append(all, Contest{Operation: o, Ranks: r.Ranks, PerHost: r.PerHost, Bytes: r.Bytes})
		}
		all[i].Entries = append(all[i].Entries, Compared{r, t})
	}
	for i := range all {
		all[i].judge()
	}
	return all, nil
}

func (c *Contest) has(r *Measured) bool {
	return c.Operation == r.Algorithm.Operation && c.Ranks == r.Ranks && c.PerHost == r.PerHost && c.Bytes == r.Bytes &&
		c.Entries[0].Alone == r.Alone
}

// judge compares the orders.
func (c *Contest) judge() {
	slices.SortStableFunc(c.Entries, func(a, b Compared) int {
		if a.Seconds < b.Seconds {
			return -1
		}
		if a.Seconds > b.Seconds {
			return 1
		}
		return 0
	})
	best := &c.Entries[0]
	for i := range c.Entries {
		fast := &c.Entries[i]
		if fast.Predicted < best.Predicted {
			best = fast
		}
		for k := i + 1; k < len(c.Entries); k++ {
			if slow := &c.Entries[k]; slow.Seconds >= Close*fast.Seconds {
				c.Pairs++
				if slow.Predicted > fast.Predicted {
					c.Agree++
				} else {
					c.Differ = append(c.Differ, Pair{fast.Algorithm, slow.Algorithm})
				}
			}
		}
	}
	c.Loss = best.Seconds / c.Entries[0].Seconds
}

// Verdict sums contests up.
type Verdict struct {
	Runs, Near   int     // Near: predicted within 30 % of what was measured
	Pairs, Agree int     // of Contest
	Choices      int     // contests with more than one algorithm
	Right        int     // of these: what the model takes is the fastest, or within Close of it
	Error        float64 // the median factor by which predictions are off
}

// near is what predictions are to be within.
const near = 1.3

// Sum is the verdict on contests.
func Sum(all []Contest) (v Verdict) {
	var off []float64
	for _, c := range all {
		v.Pairs += c.Pairs
		v.Agree += c.Agree
		if len(c.Entries) > 1 {
			v.Choices++
			if c.Loss < Close {
				v.Right++
			}
		}
		for i := range c.Entries {
			by := math.Exp(math.Abs(math.Log(c.Entries[i].Ratio())))
			off = append(off, by)
			if by <= near {
				v.Near++
			}
		}
	}
	v.Runs = len(off)
	if v.Runs > 0 {
		slices.Sort(off)
		v.Error = off[v.Runs/2]
	}
	return v
}
