// Train trains a small neural network on many ranks at once (data parallelism). Every rank has the whole model and a
// share of the samples. In each step it computes the gradient of its share, Allreduce adds the gradients of all ranks,
// and every rank takes the same step. So all ranks have the same model at all times, and no rank has to send it.
//
//	gorun -n 4 ./examples/train -samples 20000
//
// In the end rank 0 trains alone on all samples, and compares. With -gpu the ranks train once more, with their gradients
// in the memory of GPUs (gpu.go), and compare the models bit by bit.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"slices"

	"github.com/gorun-mpi/mpi"
)

var (
	samples = flag.Int("samples", 4000, "samples to learn from, on all ranks together")
	steps   = flag.Int("steps", 300, "steps of gradient descent")
	useGPU  = flag.Bool("gpu", false, "train again with the gradients in the memory of GPUs, and compare")
)

const rate = 4.0 // how far a step goes

func main() {
	flag.Parse()
	mpi.Main(run)
}

func run(_ context.Context, world *mpi.Comm) error {
	if *samples < 1 || *steps < 1 {
		return fmt.Errorf("train: -samples %d -steps %d: there is at least one of each", *samples, *steps)
	}
	m, together, err := train(world, onHost(world), world.Rank() == 0)
	if err == nil && *useGPU {
		err = compareGPU(world, m)
	}
	if err != nil {
		return err
	}
	self, err := world.Split(world.Rank(), 0) // a communicator of one rank
	if err != nil || world.Rank() != 0 {
		return err
	}
	_, alone, err := train(self, onHost(self), false)
	if err != nil {
		return err
	}
	if math.Abs(together.loss-alone.loss) > 1e-9 { // sums in another order are rounded differently
		return fmt.Errorf("train: the loss is %.15f on %d ranks, and %.15f on one", together.loss, world.Size(), alone.loss)
	}
	fmt.Printf("%d ranks and one rank have the same loss, %.9f\n", world.Size(), alone.loss)
	return nil
}

// compareGPU trains with the gradients in GPU memory, and compares the model with m.
func compareGPU(world *mpi.Comm, m model) error {
	sum, free, err := onGPU(world)
	if err != nil {
		return err
	}
	again, _, err := train(world, sum, false)
	if err = errors.Join(err, free()); err != nil {
		return err
	}
	same := func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }
	if !slices.EqualFunc(again, m, same) {
		return fmt.Errorf("train: with gradients in GPU memory rank %d has another model", world.Rank())
	}
	if world.Rank() == 0 {
		fmt.Println("with gradients in GPU memory the model is the same, to the bit")
	}
	return nil
}

// outcome is the mean over all samples.
type outcome struct{ loss, right float64 }

// A summer adds the vectors of all ranks, each in place.
type summer func(vector []float64) error

func onHost(c *mpi.Comm) summer {
	return func(vector []float64) error { return mpi.Allreduce(c, nil, vector, mpi.Sum) }
}

// train trains a model on the ranks of c, and says how good it was before the last step.
func train(c *mpi.Comm, add summer, talk bool) (m model, o outcome, err error) {
	n, rank, size := *samples, c.Rank(), c.Size()
	mine := makeSamples(n*rank/size, n*(rank+1)/size)
	m = newModel()
	for step := 1; step <= *steps; step++ {
		// One vector, so that one Allreduce is enough: the gradient, and behind it the loss and how many are right.
		sum := make([]float64, vectorLen)
		for _, s := range mine {
			m.learn(s, sum)
		}
		if err := add(sum); err != nil {
			return m, o, err
		}
		for i := range m {
			m[i] -= rate * sum[i] / float64(n)
		}
		o = outcome{sum[len(m)] / float64(n), sum[len(m)+1] / float64(n)}
		if talk && (step == 1 || step == *steps || step%100 == 0) {
			fmt.Printf("step %4d  loss %.4f  right %5.1f %%\n", step, o.loss, 100*o.right)
		}
	}
	return m, o, nil
}
