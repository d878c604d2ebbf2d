package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"
)

func main() {
	quick := flag.Bool("quick", false, "a small set: three rounds, shorter queues")
	rounds := flag.Int("rounds", 0, "rounds (default 5, with -quick 3)")
	only := flag.String("only", "", "measurements to do, separated by commas (default all)")
	limit := flag.Duration("limit", 120*time.Second, "time that one run may take")
	flag.Parse()
	if *rounds == 0 {
		*rounds = 5
		if *quick {
			*rounds = 3
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := compare(ctx, plan(*quick), *only, *rounds, *limit); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// measurement is one table: one program, one number of ranks.
type measurement struct {
	name    string // for -only
	program string
	ranks   int
	args    []string
	columns []column
	wall    bool // the value is the wall time of the command, not what it prints
}

// column is one value of the program's lines that the table shows.
type column struct {
	name   string
	field  int // of a line: 0 is the size
	higher bool
	digits int
}

func plan(quick bool) []measurement {
	depth := "1:100000"
	if quick {
		depth = "1:1000"
	}
	var match []column
	for i, name := range []string{"posted, exact", "posted, any source", "posted, any tag", "posted, any of both",
		"unexpected, exact", "unexpected, any source", "unexpected, any tag", "unexpected, any of both"} {
		match = append(match, column{name: name + " (µs a message)", field: i + 1, digits: 3})
	}
	hops := []column{{name: "hops a second", field: 3, higher: true}}
	return []measurement{
		{name: "latency", program: "latency", ranks: 2, columns: []column{{name: "one way (µs)", field: 1, digits: 2}}},
		{name: "bw", program: "bw", ranks: 2, columns: []column{{name: "MB/s", field: 1, higher: true}}},
		{name: "ring", program: "ring", ranks: 2, columns: hops},
		{name: "ring", program: "ring", ranks: 8, columns: hops, args: []string{"-i", "2000"}},
		{name: "match", program: "match", ranks: 2, columns: match, args: []string{"-m", depth}},
		{name: "init", program: "init", ranks: 2, wall: true, columns: []column{{name: "whole command (ms)", field: 1}}},
		{name: "init", program: "init", ranks: 16, wall: true, columns: []column{{name: "whole command (ms)", field: 1}}},
	}
}

func compare(ctx context.Context, all []measurement, only string, rounds int, limit time.Duration) error {
	chosen, err := choose(all, only)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "compare-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	libraries, err := build(ctx, dir, chosen)
	if err != nil {
		return err
	}
	fmt.Println(machine())
	for _, m := range chosen {
		samples := measure(ctx, m, libraries, rounds, limit)
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, c := range m.columns {
			fmt.Println(samples.table(m, c))
		}
	}
	return nil
}

// choose keeps the measurements that -only names.
func choose(all []measurement, only string) ([]measurement, error) {
	if only == "" {
		return all, nil
	}
	var chosen []measurement
	for name := range strings.SplitSeq(only, ",") {
		before := len(chosen)
		for _, m := range all {
			if m.name == name {
				chosen = append(chosen, m)
			}
		}
		if len(chosen) == before {
			return nil, fmt.Errorf("-only %q: there is no such measurement; there are latency, bw, ring, match, init", name)
		}
	}
	return chosen, nil
}
