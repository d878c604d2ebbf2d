// Mbw_mr measures how many bytes and messages a second many pairs of ranks send at once, for each size.
//
//	gorun -n N ./benchmarks/mbw_mr [-p PAIRS] [-m MIN:MAX] [-i N | --time SECONDS] [-x N]
//	                               [--warm-time SECONDS] [-W N] [-b single|multiple] [--run-ahead] [-c]
//	                               [-f] [-z[LIST]] [-R 0|1] [-V] [--alloc] [--json] [--plot FILE]
//
// Rank i sends the windows of benchmarks/bw to rank i + PAIRS, all pairs at the same time: they meet in a barrier after
// the warm-up. Each sender reads the clock around its own windows. The program divides the data of all pairs by the
// mean of these times, and prints 10^6 bytes per second and messages per second. Without -p half of the ranks are
// senders; ranks after the last pair only take part in the barriers. With -f the extremes and percentiles are the
// figures of rank 0's pair, times the number of pairs. With -V each size is sent in windows of 8 to 128 messages: a
// table has the bandwidths, with a column for each window, and a second one the messages per second, unless -R 0 leaves
// it out.
//
// Options, rounds and output are as in osu_mbw_mr 7.4.
//
// Owns: which ranks are a pair.
// May call: mpi, benchmarks/harness, benchmarks/internal/*.
// Never: reach into the runtime.
package main

import (
	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"github.com/gorun-mpi/mpi/benchmarks/internal/bench"
	"github.com/gorun-mpi/mpi/benchmarks/internal/picture"
)

var program = harness.Program{
	Name: "mbw_mr", Title: "OSU MPI Multiple Bandwidth / Message Rate Test", Takes: "mixXTWprbMcfazYRV",
	About:    "Measures the bandwidth and the message rate of many pairs of ranks at once.",
	Defaults: harness.BandwidthDefaults(),
	Buffers:  bench.BuffersOf(1),
	Draw:     picture.Draw,
}

func main() { bench.Main(program, run) }

func run(j *bench.Job) error {
	pairs, err := j.Options.PairsOf(j.Ranks)
	if err != nil {
		return j.Refuse(err)
	}
	partner, sends := bench.PartnerIn(pairs, j.Rank)
	if j.Options.VaryWindow {
		return vary(j, pairs, partner, sends)
	}
	window, err := bench.Windows(j, partner, sends)
	if err != nil {
		return err
	}
	report := program.Report(j.Output, harness.Rates)
	report.Under("[ pairs: %d ] [ window size: %d ]", pairs, j.Options.Window)
	return bench.NewMeter(j, sends, true).Bandwidth(report, window, pairs*j.Options.Window)
}
