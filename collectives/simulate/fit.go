package simulate

import (
	"errors"
	"fmt"
	"math"
)

// parameter is one that a fit may change.
type parameter struct {
	name string
	of   func(*Model) *float64
}

// parameters are those that measured times say something about. Between hosts there are those of Network; where ranks
// share processors there is Switch. Rates of switches, and at which size messages wait, are the model's that the fit
// starts from.
var parameters = []parameter{
	{"Host.Latency", func(m *Model) *float64 { return &m.Host.Latency }},
	{"Host.Overhead", func(m *Model) *float64 { return &m.Host.Overhead }},
	{"Host.Rate", func(m *Model) *float64 { return &m.Host.Rate }},
	{"Host.Touch", func(m *Model) *float64 { return &m.Host.Touch }},
	{"Network.Latency", func(m *Model) *float64 { return &m.Network.Latency }},
	{"Network.Overhead", func(m *Model) *float64 { return &m.Network.Overhead }},
	{"Network.Rate", func(m *Model) *float64 { return &m.Network.Rate }},
	{"Network.Touch", func(m *Model) *float64 { return &m.Network.Touch }},
	{"Memory", func(m *Model) *float64 { return &m.Memory }},
	{"Fresh", func(m *Model) *float64 { return &m.Fresh }},
	{"Combine", func(m *Model) *float64 { return &m.Combine }},
	{"Copy", func(m *Model) *float64 { return &m.Copy }},
	{"Switch", func(m *Model) *float64 { return &m.Switch }},
	{"Spill", func(m *Model) *float64 { return &m.Spill }},
}

const (
	fitSteps    = 30
	fitTurns    = 4
	mostDamping = 1e6
	// enough is which part of the sum of squares a step must save to be followed by another.
	enough = 1e-3
	// pull is how strongly a parameter that measurements say nothing about stays where it was: as an error of so much
	// for each factor of e.
	pull = 0.02
	// outlier is an error from which on it counts by its size, not its square: single measured times are off by any
	// factor.
	outlier = 0.3
	// farthest is how far a parameter goes from where it was, as the logarithm of the factor.
	farthest = 9.3 // a factor of about 10,000
)

// Fit changes the parameters of a model that are above 0 to those with which its times are nearest to measured ones:
// the sum of the squares of the logarithms of their ratios is least, by Levenberg and Marquardt's method; great ones
// count less (outlier). It is deterministic. It says which parameters do not matter for what was measured.
func Fit(start Model, runs []Measured) (fitted Model, without []string, err error) {
	if err := start.Valid(); err != nil {
		return start, nil, err
	}
	if len(runs) == 0 {
		return start, nil, errors.New("there is nothing to fit to")
	}
	f := fit{start: start, runs: runs}
	for _, p := range parameters {
		if *p.of(&start) > 0 {
			f.free = append(f.free, p)
		}
	}
	x := make([]float64, len(f.free))
	at, err := f.residuals(x)
	if err != nil {
		return start, nil, err
	}
	x, err = f.descend(x, at)
	if err != nil {
		return start, nil, err
	}
	return f.model(x), f.without, nil
}

const (
	// wild is a factor by which machines that a model is begun with do not differ: what has gone so far is not a
	// property of the machine.
	wild = 1000
	// worth is which part of the error must go so that a fit is worth it.
	worth = 0.05
)

// Doubts says why the model that Fit has made of start is no better than start, or says nothing of the machine.
func Doubts(start, fitted *Model, without []string, runs []Measured) (all []string, err error) {
	determined := -len(without)
	for _, p := range parameters {
		was, is := *p.of(start), *p.of(fitted)
		if !(was > 0) {
			continue
		}
		determined++
		if by := is / was; by > wild || by < 1.0/wild {
			all = append(all, fmt.Sprintf("%s is %.2g, %.2g times as much as where the fit began: the measured calls do not "+
				"determine it, or the model does not describe this machine", p.name, is, by))
		}
	}
	if n := len(runs); n < determined {
		calls := fmt.Sprintf("%d measured calls do", n)
		if n == 1 {
			calls = "1 measured call does"
		}
		all = append(all, fmt.Sprintf("%s not determine %d parameters; measure more sizes, algorithms and numbers of ranks",
			calls, determined))
	}
	var off [2]float64
	for i, m := range []*Model{start, fitted} {
		contests, err := Compare(m, runs)
		if err != nil {
			return nil, err
		}
		for _, c := range contests {
			for k := range c.Entries {
				v := math.Log(c.Entries[k].Ratio())
				off[i] += v * v
			}
		}
		off[i] = math.Sqrt(off[i] / float64(len(runs)))
		if v := Sum(contests); i == 1 && v.Error > near {
			all = append(all, fmt.Sprintf("half of the times of the fitted model are off by more than %.0f %%", 100*(near-1)))
		}
	}
	if off[1] >= (1-worth)*off[0] {
		all = append(all, fmt.Sprintf("the fit comes no nearer to the measured times than the model that it began with: a "+
			"factor of %.2f before, and of %.2f now", math.Exp(off[0]), math.Exp(off[1])))
	}
	return all, nil
}

type fit struct {
	start   Model
	runs    []Measured
	free    []parameter
	without []string
}

// model has the parameters exp(x) times as great.
func (f *fit) model(x []float64) Model {
	m := f.start
	for i, p := range f.free {
		*p.of(&m) *= math.Exp(x[i])
	}
	return m
}

// residuals are the errors of a model's times, and how far its parameters are from the start.
func (f *fit) residuals(x []float64) ([]float64, error) {
	m := f.model(x)
	all := make([]float64, 0, len(f.runs)+len(x))
	for i := range f.runs {
		r := &f.runs[i]
		t, err := r.Predict(&m)
		if err != nil {
			return nil, err
		}
		if !(t > 0) {
			o, a := r.Names()
			return nil, fmt.Errorf("%s:%s on %d ranks takes no time in the model, and %v s as measured", o, a,
				r.Ranks, r.Seconds)
		}
		all = append(all, bounded(math.Log(t/r.Seconds)))
	}
	for _, v := range x {
		all = append(all, pull*v)
	}
	return all, nil
}

// bounded is an error whose square grows as the error does, once it is an outlier: by Huber's loss, without its corner.
func bounded(v float64) float64 {
	return math.Copysign(outlier*math.Sqrt(2*(math.Hypot(1, v/outlier)-1)), v)
}

func squares(r []float64) (sum float64) {
	for _, v := range r {
		sum += v * v
	}
	return sum
}

// descend goes down from x, where the errors are at. Times are not smooth: which rank has a processor first changes
// with the parameters. So where the slopes lead no further, each parameter is tried by itself.
func (f *fit) descend(x, at []float64) ([]float64, error) {
	for turn := range fitTurns {
		before := squares(at)
		var err error
		if x, at, err = f.alongSlopes(x, at, turn == 0); err != nil {
			return nil, err
		}
		if x, at, err = f.oneByOne(x, at); err != nil {
			return nil, err
		}
		if squares(at) > (1-enough)*before {
			break
		}
	}
	return x, nil
}

// alongSlopes is Levenberg and Marquardt's method.
func (f *fit) alongSlopes(x, at []float64, first bool) ([]float64, []float64, error) {
	damping := 1e-2
	for range fitSteps {
		slopes, err := f.slopes(x, at)
		if err == nil && first {
			first = false
			if x = f.leave(x, slopes); len(x) < len(slopes) {
				at, err = f.residuals(x)
				if err == nil {
					slopes, err = f.slopes(x, at)
				}
			}
		}
		if err != nil {
			return nil, nil, err
		}
		was := squares(at)
		for ; damping < mostDamping; damping *= 8 {
			to := move(x, solve(slopes, at, damping))
			next, err := f.residuals(to)
			if err != nil {
				return nil, nil, err
			}
			if squares(next) < was {
				x, at = to, next
				damping = max(damping/30, 1e-6)
				break
			}
		}
		if squares(at) > (1-enough)*was {
			break
		}
	}
	return x, at, nil
}

// oneByOne moves each parameter by itself as long as that is better.
func (f *fit) oneByOne(x, at []float64) ([]float64, []float64, error) {
	for i := range x {
		for _, d := range []float64{1, -1, 0.3, -0.3, 0.1, -0.1} {
			for {
				step := make([]float64, len(x))
				step[i] = d
				to := move(x, step)
				next, err := f.residuals(to)
				if err != nil {
					return nil, nil, err
				}
				if squares(next) >= squares(at) {
					break
				}
				x, at = to, next
			}
		}
	}
	return x, at, nil
}

// leave names the parameters that no time depends on, and leaves them out of the fit.
func (f *fit) leave(x []float64, slopes [][]float64) (left []float64) {
	var free []parameter
	for i, p := range f.free {
		if squares(slopes[i][:len(f.runs)]) < 1e-12 {
			f.without = append(f.without, p.name)
			continue
		}
		free, left = append(free, p), append(left, x[i])
	}
	f.free = free
	return left
}

// slopes are the derivatives of the errors by each parameter.
func (f *fit) slopes(x, at []float64) ([][]float64, error) {
	const h = 0.01
	all := make([][]float64, len(x))
	for i := range x {
		to := append([]float64(nil), x...)
		to[i] += h
		r, err := f.residuals(to)
		if err != nil {
			return nil, err
		}
		for k := range r {
			r[k] = (r[k] - at[k]) / h
		}
		all[i] = r
	}
	return all, nil
}

// move is x + d, no step longer than a factor of e, and none too far.
func move(x, d []float64) []float64 {
	to := make([]float64, len(x))
	for i := range x {
		to[i] = max(-farthest, min(farthest, x[i]+max(-1, min(1, d[i]))))
	}
	return to
}

// solve is the step of least squares, with each diagonal element of the normal equations increased.
func solve(slopes [][]float64, at []float64, damping float64) []float64 {
	n := len(slopes)
	a := make([][]float64, n)
	for i := range a {
		a[i] = make([]float64, n+1)
		for k := range n {
			a[i][k] = dot(slopes[i], slopes[k])
		}
		a[i][i] *= 1 + damping
		a[i][n] = -dot(slopes[i], at)
	}
	return eliminate(a)
}

func dot(a, b []float64) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// eliminate solves a symmetric positive definite system, whose right side is the last column.
func eliminate(a [][]float64) []float64 {
	n := len(a)
	for i := range n {
		for k := i + 1; k < n; k++ {
			by := a[k][i] / a[i][i]
			for c := i; c <= n; c++ {
				a[k][c] -= by * a[i][c]
			}
		}
	}
	x := make([]float64, n)
	for i := n - 1; i >= 0; i-- {
		x[i] = a[i][n]
		for k := i + 1; k < n; k++ {
			x[i] -= a[i][k] * x[k]
		}
		x[i] /= a[i][i]
	}
	return x
}
