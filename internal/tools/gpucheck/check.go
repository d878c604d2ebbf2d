package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/gorun-mpi/mpi/internal/tools/partrun"
)

// check is one run.
type check struct {
	*partrun.Runner
	each   time.Duration // for which a figure is measured
	report report
}

// forFigures is the time that correctness leaves, at most half of what there is: parts that hang may take all the rest.
const forFigures = 100 * time.Second

func (c *check) all(only string) {
	c.facts() // which also finds out whether the device is software
	end := c.Until
	if only == "" {
		c.Until = end.Add(-min(forFigures, time.Until(end)/2))
	}
	if only == "" || only == "correctness" {
		c.correctness()
	}
	c.Until = end
	if only == "" || only == "figures" {
		c.figures()
	}
	c.report.Result = c.report.sum()
	c.Printf("\n%s\n", c.report.Result)
}

// mapping is what the log of a job must say of messages between devices of one host.
type mapping int

const (
	whatever  mapping = iota
	oneCopy           // no rank says that memory is not mapped
	notMapped         // some rank says it
)

// notMappedText is what a rank logs when it does not map another one's memory (pml/sharing.go).
const notMappedText = "messages between devices of this host go through pinned memory"

// gorun is the command of a job. Its ranks log what they choose, which costs nothing for each message. The log must say
// what m wants.
func gorun(limit time.Duration, env []string, ranks int, m mapping, words string) partrun.Command {
	return partrun.Command{Limit: limit, Env: append([]string{"GORUN_LOG=debug"}, env...), Check: m.check,
		Args: append([]string{"gorun", "-n", fmt.Sprint(ranks)}, strings.Fields(words)...)}
}

// check compares the log with what it must say.
func (m mapping) check(log string) error {
	at := strings.Index(log, notMappedText)
	switch {
	case m == oneCopy && at >= 0:
		line, _, _ := strings.Cut(log[at:], "\n")
		return fmt.Errorf("it has not measured one copy: %s", line)
	case m == notMapped && at < 0:
		return errors.New("its messages did not go through pinned memory")
	}
	return nil
}

// visible is the environment in which a process has the first n of the devices that this one has.
func visible(n int) string {
	all := []string{"0", "1"}
	if set, ok := os.LookupEnv("CUDA_VISIBLE_DEVICES"); ok {
		all = strings.Split(set, ",")
	}
	return "CUDA_VISIBLE_DEVICES=" + strings.Join(all[:min(n, len(all))], ",")
}
