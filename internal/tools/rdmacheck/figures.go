package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/gorun-mpi/mpi/internal/tools/partrun"
)

// figures measures some things beside perftest, over the first port of each device. Both ranks, and both ends of
// perftest, are on this host: the device sends to itself.
func (c *check) figures() {
	c.Printf("\nfigures\n")
	seen := map[string]bool{}
	for i := range c.ports {
		p := &c.ports[i]
		if seen[p.device] {
			continue
		}
		seen[p.device] = true
		c.beside(p, figure{Name: "8 B, one way", Unit: "us", Beside: "ib_send_lat"}, "latency -m 8:8", 1, "-s 8 -n 5000")
		c.beside(p, figure{Name: "1 MiB, 64 under way", Unit: "GB/s", Beside: "ib_read_bw"}, "bw -m 1M:1M", 1e-3,
			"-s 1048576 -n 1000")
		c.beside(p, figure{Name: "put of 8 B", Unit: "us", Beside: "ib_write_lat"},
			"onesided -w create -s flush -m 8:8 put_latency", 1, "-s 8 -n 5000")
	}
}

// beside measures a benchmark, whose value is multiplied by scale, and a program of perftest.
func (c *check) beside(p *usedPort, f figure, words string, scale float64, args string) {
	f.Name, f.Software = p.name()+": "+f.Name, p.software
	words = fmt.Sprintf("%s --time %v --warm-time %v --json", words, c.each.Seconds(), c.each.Seconds()/2)
	out, err := c.Output(p.gorun(20*time.Second, words))
	if err == nil {
		f.Value, err = partrun.FirstValue(out)
		f.Value *= scale
	}
	if err != nil {
		f.Why = err.Error()
	}
	if f.Other, err = c.perftest(p, f.Beside, args); err != nil {
		f.NoOther = err.Error()
	}
	c.report.Figures = append(c.report.Figures, f)
	c.Printf("%s\n", f.line())
}

// perftestPort is where the client of perftest finds its server.
const perftestPort = "18515"

// perftest runs a program of perftest with both ends here, and returns its typical time in us, or its rate in GB/s.
func (c *check) perftest(p *usedPort, program, args string) (float64, error) {
	if os.Getenv(libraryVar) != "" {
		return 0, errors.New("not run: perftest uses the system's libibverbs, and " + libraryVar + " names another one")
	}
	if _, err := exec.LookPath(program); err != nil {
		return 0, errors.New("not installed (perftest)")
	}
	words := append([]string{program, "-d", p.device, "-i", strconv.Itoa(p.number), "-F", "-p", perftestPort},
		strings.Fields(args)...)
	if p.gid >= 0 {
		words = append(words, "-x", strconv.Itoa(p.gid))
	}
	bandwidth := strings.HasSuffix(program, "_bw")
	if bandwidth {
		words = append(words, "--report_gbits")
	}
	ctx, cancel := context.WithTimeout(c.Ctx, min(15*time.Second, max(0, time.Until(c.Until))))
	defer cancel()
	server, err := c.Start(ctx, partrun.Command{Args: words}, nil, nil)
	if err != nil {
		return 0, err
	}
	defer func() {
		server.Cancel()
		server.Wait()
	}()
	var out bytes.Buffer
	err = errors.New("no time was left")
	for ctx.Err() == nil { // until the server listens
		out.Reset()
		var client *exec.Cmd
		if client, err = c.Start(ctx, partrun.Command{Args: append(words, "127.0.0.1")}, &out, &out); err == nil {
			err = client.Wait()
		}
		if err == nil {
			return perftestValue(out.String(), bandwidth)
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
	return 0, fmt.Errorf("failed: %w: %s", err, partrun.Tail(out.String()))
}

// perftestValue reads the last row of a table of perftest: of a time the typical one, which is the fifth number, and of
// a rate the average, the fourth, in Gb/s.
func perftestValue(out string, bandwidth bool) (float64, error) {
	at, scale := 4, 1.0
	if bandwidth {
		at, scale = 3, 1.0/8
	}
	var row []string
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		if len(words) > at {
			if _, err := strconv.ParseFloat(words[0], 64); err == nil {
				row = words
			}
		}
	}
	if row == nil {
		return 0, fmt.Errorf("it has printed no row of numbers: %s", partrun.Tail(out))
	}
	v, err := strconv.ParseFloat(row[at], 64)
	return v * scale, err
}
