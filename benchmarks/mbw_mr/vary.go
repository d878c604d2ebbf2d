package main

import (
	"fmt"

	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
)

// windows are the window sizes that -V measures.
var windows = []int{8, 16, 32, 64, harness.WidestWindow}

// vary is run for -V.
func vary(j *bench.Job, pairs, partner int, sends bool) error {
	heads := func(what string) (cols []harness.Column) {
		for _, w := range windows {
			cols = append(cols, harness.Column{Head: fmt.Sprintf("%s, W %d", what, w), Width: 20})
		}
		return cols
	}
	all, err := bench.Windows(j, partner, sends)
	if err != nil {
		return err
	}
	meter := bench.NewMeter(j, sends, true)
	sizes, datatype := j.Options.Sizes(2), j.Options.Type.Name()
	rates := map[int64][]any{}
	table := program.Table(j.Output, datatype, "Size", heads("MB/s")...)
	table.Under("[ pairs: %d ] [ window size: varied ]", pairs)
	err = table.Run(sizes, func(size int64) (values []any, err error) {
		for _, w := range windows {
			all.Narrow(w)
			result, err := meter.Measure(all, size)
			if err == nil {
				err = result.Wrong()
			}
			if err != nil {
				return nil, err
			}
			perSecond := float64(pairs*w) * 1e9 / result.Iteration
			values = append(values, perSecond*float64(size)/1e6)
			rates[size] = append(rates[size], perSecond)
		}
		return values, nil
	})
	if err != nil || j.Options.NoRate {
		return err
	}
	table = program.Table(j.Output, datatype, "Size", heads("Messages/s")...)
	table.Under("[ pairs: %d ] [ window size: varied ]", pairs)
	table.Note("Message Rate Profile")
	return table.Run(sizes, func(size int64) ([]any, error) { return rates[size], nil })
}
