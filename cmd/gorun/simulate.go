package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/docker/go-units"
	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/collectives/simulate"
	"github.com/gorun-mpi/mpi/internal/sizes"
	"github.com/spf13/cobra"
)

// simulateFlags are those of gorun simulate.
type simulateFlags struct {
	operations, algorithms, sizes []string
	ranks                         []int
	perHost                       int
	model                         string
	limit                         string
	json                          bool
	measured                      measuredFlags
}

func simulateCommand(stdout, stderr *os.File) *cobra.Command {
	var f simulateFlags
	c := &cobra.Command{
		Use:   "simulate",
		Short: "price collective operations on a machine of any size, with the schedules that ranks run",
		Long: "simulate runs the schedules of all ranks in a model of hosts, NICs and a fat tree, without a rank.\n" +
			"A star is the algorithm that gorun's table chooses. Messages and memory are those of the rank that has most.",
		Example: "  gorun simulate --operations allreduce --ranks 1048576 --per-host 64 --sizes 8 --algorithms doubling\n" +
			"  gorun simulate --json | go run github.com/gorun-mpi/mpi/benchmarks/curves simulated.svg",
		Args: noArguments,
		RunE: func(*cobra.Command, []string) error {
			sweep, err := f.sweep()
			if err != nil {
				return usageError{err}
			}
			if f.measured.choices {
				return printChoices(stdout, sweep.Operations)
			}
			if f.measured.asked() {
				return f.measured.run(stdout, sweep.Model)
			}
			shown := newSimulateProgress(stderr)
			sweep.Progress = shown.show
			defer shown.clear()
			out := clearFirst{shown, stdout}
			if f.json {
				return f.printJSON(out, sweep)
			}
			return printRows(out, sweep)
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringSliceVar(&f.operations, "operations",
		[]string{"barrier", "bcast", "reduce", "allreduce", "allgather", "alltoall"}, "`NAMES` of operations")
	flags.StringSliceVar(&f.algorithms, "algorithms", nil, "`NAMES` of algorithms; none: all")
	flags.IntSliceVar(&f.ranks, "ranks", []int{256}, "`NUMBERS` of ranks")
	flags.IntVar(&f.perHost, "per-host", 16, "`NUMBER` of ranks on each host")
	flags.StringSliceVar(&f.sizes, "sizes", []string{"8", "1K", "64K", "1M"},
		"`BYTES` that one rank contributes, or has for each other")
	flags.StringVar(&f.model, "model", "cluster",
		"`NAME` of the machine: cluster (RDMA, 100 Gb/s), ethernet (TCP, 10 Gb/s), "+
			"roomy (a core for each rank), testbed\n"+
			"(docs/simulate.md), or a file that --save has written")
	flags.StringVar(&f.limit, "limit", "40M", "leave out calls with more messages than this `NUMBER`; 0: none")
	flags.BoolVar(&f.json, "json", false, "print a line of JSON for each call")
	f.measured.define(flags)
	return c
}

// sweep is what the flags ask for.
func (f *simulateFlags) sweep() (*simulate.Sweep, error) {
	s := &simulate.Sweep{Only: f.algorithms, Ranks: f.ranks, PerHost: f.perHost}
	var err error
	if s.Model, err = f.measured.model(f.model); err != nil {
		return nil, err
	}
	for _, name := range f.operations {
		o, err := collectives.ParseOperation(name)
		if err != nil {
			return nil, err
		}
		s.Operations = append(s.Operations, o)
	}
	for _, name := range f.algorithms {
		if err := namesAny(s.Operations, name); err != nil {
			return nil, err
		}
	}
	for _, text := range f.sizes {
		n, err := sizes.Parse(text)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("--sizes %q: not a number of bytes such as 8, 64K or 1M", text)
		}
		s.Bytes = append(s.Bytes, n)
	}
	limit, err := units.FromHumanSize(f.limit)
	if err != nil || limit < 0 {
		return nil, fmt.Errorf("--limit %q: not a number such as 40M", f.limit)
	}
	s.Limit = int(limit)
	return s, s.Check()
}

// namesAny says if no operation has an algorithm of a name.
func namesAny(operations []collectives.Operation, name string) (err error) {
	for _, o := range operations {
		if _, err = collectives.Find(o, name); err == nil {
			return nil
		}
	}
	return err
}

// printRows prints a table, each row when it is done. So the columns have a width that nearly all figures have room in.
func printRows(w io.Writer, s *simulate.Sweep) error {
	const columns = "%*v  %*v  %13v  %9v  %9v  %8v  %10v  %v\n"
	ranks, bytes := len("ranks"), len("bytes")
	for _, n := range s.Ranks {
		ranks = max(ranks, len(fmt.Sprint(n)))
	}
	for _, n := range s.Bytes {
		bytes = max(bytes, len(fmt.Sprint(n)))
	}
	if _, err := fmt.Fprintf(w, columns, ranks, "ranks", bytes, "bytes", "µs", "messages", "rounds", "memory", "MB sent",
		"operation:algorithm"); err != nil {
		return err
	}
	return s.Run(func(r simulate.Row) error {
		star := ""
		if r.Chosen {
			star = " *"
		}
		if r.Left != nil {
			_, err := fmt.Fprintf(w, columns, ranks, r.Ranks, bytes, r.Bytes, "", "", "", "", "",
				fmt.Sprintf("%v%s: left out: %v", r.Algorithm, star, r.Left))
			return err
		}
		_, err := fmt.Fprintf(w, columns, ranks, r.Ranks, bytes, r.Bytes, fmt.Sprintf("%.2f", r.Seconds*1e6), r.Most,
			r.Rounds, memory(r.Tmp), fmt.Sprintf("%.4g", float64(r.Result.Bytes)/1e6), r.Algorithm.String()+star)
		return err
	})
}

// memory is a number of bytes such as 32M.
func memory(n int64) string {
	return units.CustomSize("%.4g%s", float64(n), 1024, []string{"", "K", "M", "G", "T"})
}

// simulated is a line of --json.
type simulated struct {
	Operation string  `json:"operation"`
	Algorithm string  `json:"algorithm"`
	Chosen    bool    `json:"chosen"`
	Model     string  `json:"model"`
	Ranks     int     `json:"ranks"`
	PerHost   int     `json:"per_host"`
	Bytes     int64   `json:"bytes"`
	Seconds   float64 `json:"seconds"`
	Messages  int     `json:"messages_per_rank"`
	Rounds    int     `json:"rounds"`
	Memory    int64   `json:"memory_per_rank"`
	Sent      int64   `json:"bytes_sent"`
}

// printJSON leaves out what was left out.
func (f *simulateFlags) printJSON(w io.Writer, s *simulate.Sweep) error {
	e := json.NewEncoder(w)
	return s.Run(func(r simulate.Row) error {
		if r.Left != nil {
			return nil
		}
		return e.Encode(simulated{r.Algorithm.Operation.String(), r.Algorithm.Name, r.Chosen, f.model, r.Ranks, r.PerHost,
			r.Bytes, r.Seconds, r.Most, r.Rounds, r.Tmp, r.Result.Bytes})
	})
}

// costHeads are the columns that cost fills.
var costHeads = []string{"ranks, bytes priced", "µs", "messages", "memory"}

// cost is what a rank has of a call on the model cluster. What goes through memory in common, or depends on a graph or
// on a second group, has no price.
func cost(a *collectives.Algorithm, p collectives.Params) []string {
	r, err := simulate.Price(a, p, &simulate.Cluster)
	if err != nil {
		return []string{"", "", "", ""}
	}
	return []string{fmt.Sprintf("%d, %s", p.Size, memory(p.Count)), fmt.Sprintf("%.2f", r.Seconds*1e6),
		fmt.Sprint(r.Most), memory(r.Tmp)}
}
