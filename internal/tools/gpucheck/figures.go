package main

import (
	"fmt"
	"time"

	"github.com/gorun-mpi/mpi/internal/tools/partrun"
)

// measurement is a job of a benchmark that prints one figure.
type measurement struct {
	env     []string
	command string
	mapped  mapping
}

// goal is what a figure should be: at most or at least a value, or a ratio to what stands beside it.
type goal struct {
	text  string
	least bool // it is the least that is good; otherwise the most
	ratio bool
	value float64
}

func (g goal) met(value, other float64) bool {
	if g.ratio {
		if other <= 0 {
			return false
		}
		value /= other
	}
	if g.least {
		return value >= g.value
	}
	return value <= g.value
}

func atMost(ratio float64, what string) goal {
	return goal{text: fmt.Sprintf("at most %v × the %s", ratio, what), ratio: true, value: ratio}
}

func atLeast(ratio float64, what string) goal {
	return goal{text: fmt.Sprintf("at least %v × the %s", ratio, what), least: true, ratio: true, value: ratio}
}

// figures measures what issue 29 has goals for, and what decides whether a kernel should reduce.
func (c *check) figures() {
	c.Printf("\nfigures\n")
	pulls, err := c.pulls([]int64{8, 64 << 10, 1 << 20, 16 << 20, 256 << 20})
	if err != nil {
		c.Printf("the bare pull was not measured: %v\n", err)
	}
	for _, f := range []struct {
		name string
		size int64
		goal goal
	}{
		{"8 B", 8, goal{text: "at most 25 us", value: 25}},
		{"64 KiB", 64 << 10, atMost(1.3, "bare pull")},
		{"1 MiB", 1 << 20, atMost(1.3, "bare pull")},
		{"16 MiB", 16 << 20, atMost(1.1, "bare pull")},
		{"256 MiB", 256 << 20, atMost(1.1, "bare pull")},
	} {
		value, err := c.measure(measurement{command: fmt.Sprintf("latency -d cuda D D -m %d:%d", f.size, f.size),
			mapped: oneCopy})
		c.figure(figure{Name: "D to D, " + f.name + ", by one copy", Value: value, Unit: "us", Beside: "bare pull",
			Other: pulls[f.size]}, f.goal, err)
	}
	for _, f := range []struct {
		name, command string
		env           []string
		mapped        mapping
		goal          goal
	}{
		{"D to D, 256 MiB, through pinned memory", "bw -d cuda D D -W 2 -m 256M:256M", []string{"GORUN_CUDA_SHARE=0"},
			notMapped, goal{text: "at least 42 GB/s", least: true, value: 42}},
		{"D to H, 256 MiB", "bw -d cuda D H -W 2 -m 256M:256M", nil, whatever, goal{}},
		{"H to D, 256 MiB", "bw -d cuda H D -W 2 -m 256M:256M", nil, whatever, goal{}},
	} {
		value, err := c.measure(measurement{f.env, f.command, f.mapped})
		c.figure(figure{Name: f.name, Value: value / 1e3, Unit: "GB/s"}, f.goal, err)
	}
	tcp := []string{"GORUN_TRANSPORTS=tcp"}
	for _, size := range []string{"4M", "64M"} {
		host, err := c.measure(measurement{env: tcp, command: "bw -W 4 -m " + size + ":" + size})
		var value float64
		if err == nil {
			value, err = c.measure(measurement{env: tcp, command: "bw -d cuda D D -W 4 -m " + size + ":" + size})
		}
		c.figure(figure{Name: "D to D, " + size + "iB, by tcp loopback", Value: value / 1e3, Unit: "GB/s",
			Beside: "H to H", Other: host / 1e3}, atLeast(0.8, "H to H"), err)
	}
	// The host's is in each of them. The rest is copies, which a kernel that reduces would not save.
	const reduction = "collective allreduce -m 64M:64M"
	host, err := c.measure(measurement{command: reduction})
	var value float64
	if err == nil {
		value, err = c.measure(measurement{command: reduction + " -d cuda"})
	}
	c.figure(figure{Name: "Allreduce of device memory, 64 MiB", Value: value, Unit: "us", Beside: "of the host's",
		Other: host}, goal{}, err)
	c.withAndWithoutCgo("H to H, 8 B, with the driver's door", "latency", "-m 8:8", "us", "without cgo", 1.05)
	c.withAndWithoutCgo("H to H, 1 MiB, with the driver's door", "latency", "-m 1M:1M", "us", "without cgo", 1.05)
}

// withAndWithoutCgo measures a program that was built with cgo, and so with accel/cuda, and uses no device, and the
// same without cgo, in turn; of each the best of three counts.
func (c *check) withAndWithoutCgo(name, program, args, unit, what string, most float64) {
	var best [2]float64
	var err error
	for range 3 {
		for i, p := range []string{program, program + "_plain"} {
			var value float64
			if err == nil {
				value, err = c.measure(measurement{command: p + " " + args})
			}
			if best[i] == 0 || value < best[i] {
				best[i] = value
			}
		}
	}
	c.figure(figure{Name: name, Value: best[0], Unit: unit, Beside: what, Other: best[1]}, atMost(most, "time "+what), err)
}

// figure adds one to the report.
func (c *check) figure(f figure, g goal, err error) {
	f.Goal, f.Software = g.text, c.report.Software
	switch {
	case err != nil:
		f.Why, f.Value = err.Error(), 0
	case g.text != "" && g.ratio && f.Other <= 0:
		f.Why = "there is nothing to compare it with"
	case g.text != "" && !c.report.Software:
		met := g.met(f.Value, f.Other)
		f.Met = &met
	}
	c.report.Figures = append(c.report.Figures, f)
	c.Printf("%s\n", f.line())
}

// measure runs a benchmark of two ranks for one size. They share the device that the bare pull is made on.
func (c *check) measure(m measurement) (float64, error) {
	words := fmt.Sprintf("%s --time %v --warm-time %v --json -M 2G", m.command, c.each.Seconds(), c.each.Seconds()/2)
	out, err := c.Output(gorun(20*time.Second, append([]string{visible(1)}, m.env...), 2, m.mapped, words))
	if err != nil {
		return 0, err
	}
	return partrun.FirstValue(out)
}
