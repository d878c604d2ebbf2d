package main

import (
	"math"
	"math/rand/v2"
)

// sample is a point of the square from -1 to 1, and what is to be learned: whether it lies in the first or the third
// quadrant. No straight line parts these from the others.
type sample struct{ x, y, label float64 }

// makeSamples makes the samples from first to below end, the same at every rank.
func makeSamples(first, end int) []sample {
	s := make([]sample, 0, end-first)
	for i := first; i < end; i++ {
		random := rand.New(rand.NewPCG(1, uint64(i)))
		x, y := 2*random.Float64()-1, 2*random.Float64()-1
		label := 0.0
		if x*y > 0 {
			label = 1
		}
		s = append(s, sample{x, y, label})
	}
	return s
}

const (
	hidden    = 16           // units
	modelLen  = 4*hidden + 1 // parameters
	vectorLen = modelLen + 2 // what the ranks add in a step
)

// model is a network of two inputs, hidden units and one output. A unit has four parameters: two weights, a bias and
// the weight of its output. The last one is the bias of the output.
type model []float64

// newModel begins with random parameters, the same at every rank.
func newModel() model {
	random := rand.New(rand.NewPCG(2, 3))
	m := make(model, modelLen)
	for i := range m {
		m[i] = random.NormFloat64()
	}
	return m
}

// learn adds to sum the gradient of the loss of a sample, the loss, and 1 if the model is right.
func (m model) learn(s sample, sum []float64) {
	var unit [hidden]float64
	out := m[4*hidden]
	for h := range unit {
		p := m[4*h:]
		unit[h] = math.Tanh(p[0]*s.x + p[1]*s.y + p[2])
		out += p[3] * unit[h]
	}
	likely := 1 / (1 + math.Exp(-out))
	slope := likely - s.label // of the loss by out
	for h, u := range unit {
		g, inner := sum[4*h:], slope*m[4*h+3]*(1-u*u)
		g[0] += inner * s.x
		g[1] += inner * s.y
		g[2] += inner
		g[3] += slope * u
	}
	sum[4*hidden] += slope
	sum[len(m)] -= math.Log(1 - math.Abs(slope))
	if math.Abs(slope) < 0.5 {
		sum[len(m)+1]++
	}
}
