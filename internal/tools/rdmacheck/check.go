package main

import (
	"strings"
	"time"

	"github.com/gorun-mpi/mpi/internal/tools/partrun"
)

// check is one run.
type check struct {
	*partrun.Runner
	each   time.Duration // for which a figure is measured
	ports  []usedPort
	report report
}

// forFigures is the time that correctness leaves, at most half of what there is.
const forFigures = 90 * time.Second

func (c *check) all() {
	c.facts()
	end := c.Until
	c.Until = end.Add(-min(forFigures, time.Until(end)/2))
	c.correctness()
	c.Until = end
	c.figures()
	c.report.Result = c.report.sum()
	c.Printf("\n%s\n", c.report.Result)
}

// gorun is the command of a job of two ranks over one port.
func (p *usedPort) gorun(limit time.Duration, words string) partrun.Command {
	return partrun.Command{Limit: limit, Env: append([]string{"GORUN_TRANSPORTS=verbs", "GORUN_LOG=debug"}, p.env()...),
		Args: append([]string{"gorun", "-n", "2"}, strings.Fields(words)...)}
}

// correctness runs what must be right on any adapter, over each port.
func (c *check) correctness() {
	c.Printf("\ncorrectness\n")
	c.Part("gorun doctor", partrun.Command{Limit: 30 * time.Second, Args: []string{"gorun", "doctor"}})
	const few = " -i 3 -x 1 -c"
	for _, p := range c.ports {
		c.Part(p.name()+": the conformance suite", partrun.Command{Limit: time.Minute, Env: p.env(),
			Args: []string{"verbs.test", "-test.short", "-test.run=^TestConformance$"}})
		c.Part(p.name()+": messages of 1 B to 4 MiB", p.gorun(30*time.Second, "latency -m 1:4194304"+few))
		c.Part(p.name()+": windows of 16 messages", p.gorun(30*time.Second, "bw -m 1:262144 -W 16 -b multiple"+few))
		c.Part(p.name()+": puts", p.gorun(30*time.Second, "onesided -w create -s flush -m 1:1048576 -i 3 -x 1 put_latency"))
		c.Part(p.name()+": gets", p.gorun(30*time.Second, "onesided -w create -s flush -m 1:1048576 -i 3 -x 1 get_latency"))
	}
}
