package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// outpour is 8 ranks of two agents on this host that together write this many bytes, to a pipe.
type outpour struct {
	*job
	r     *os.File
	bytes int
}

func startOutpour(t testing.TB, bytes int) *outpour {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	j := prepare(t, "--launcher", "exec", "-H", "a:4,b:4", "--bind-to", "none", "RANK",
		fmt.Sprintf("lines=%d", bytes/8))
	j.cmd.Stdout = w
	j.start()
	w.Close()
	t.Cleanup(func() { r.Close() })
	return &outpour{j, r, bytes}
}

// peaks are the most bytes that gorun, and the one of its agents that had more, have had in memory.
func (o *outpour) peaks() (gorun, agent int64) {
	if p, alive := proc.Lookup(o.cmd.Process.Pid); alive {
		gorun = p.Memory("VmHWM")
	}
	for _, p := range o.agents() {
		agent = max(agent, p.Memory("VmHWM"))
	}
	return gorun, agent
}

// check reads what is left, and sees that each rank's lines are all there, whole and in their order.
func (o *outpour) check() {
	o.t.Helper()
	var next [8]int
	total := 0
	for part := make([]byte, 1000*lineSize); ; {
		n, err := io.ReadFull(o.r, part)
		total += n
		for at := 0; at+lineSize <= n; at += lineSize {
			line := string(part[at : at+lineSize])
			rank, err := strconv.Atoi(strings.TrimSpace(line[:4]))
			number, err2 := strconv.Atoi(strings.TrimSpace(line[5:13]))
			if err != nil || err2 != nil || rank >= len(next) || number != next[rank] || line[lineSize-1] != '\n' {
				o.t.Fatalf("of %d bytes a line that is torn, or not the next one of %v: %q", total, next, line)
			}
			next[rank]++
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			break
		}
		if err != nil {
			o.t.Fatal(err)
		}
	}
	if total != o.bytes {
		o.t.Errorf("%d bytes came, want %d", total, o.bytes)
	}
}

// Output of two hosts to a reader that does not read for a while is in pipes and windows only, of a size that does not
// grow, and comes without loss when the reader goes on.
func TestOutputInBoundedMemory(t *testing.T) {
	t.Parallel()
	const bytes, most = 64 << 20, 48 << 20 // a Go program of this size has some 20 MB
	o := startOutpour(t, bytes)
	full(t, o.r)
	time.Sleep(700 * time.Millisecond) // more than the ranks need for all
	gorun, agent := o.peaks()
	o.check()
	o.wait(0)
	t.Logf("at most %d MB of gorun, %d of an agent", gorun>>20, agent>>20)
	if gorun == 0 || agent == 0 || gorun > most || agent > most {
		t.Errorf("gorun has had %d bytes in memory, an agent %d, want at most %d of %d", gorun, agent, most, bytes)
	}
}

// BenchmarkOutput is 64 MiB of 8 ranks of two agents: how fast they come, and what memory that takes.
func BenchmarkOutput(b *testing.B) {
	const bytes = 64 << 20
	b.SetBytes(bytes)
	var gorun, agent int64
	for b.Loop() {
		o := startOutpour(b, bytes)
		part := make([]byte, 1<<16)
		for i := 0; ; i++ {
			_, err := o.r.Read(part)
			if err == io.EOF {
				break
			}
			if err != nil {
				b.Fatal(err)
			}
			if i%64 == 0 {
				g, a := o.peaks()
				gorun, agent = max(gorun, g), max(agent, a)
			}
		}
		o.end(0)
	}
	b.ReportMetric(float64(gorun)/1e6, "MB-of-gorun")
	b.ReportMetric(float64(agent)/1e6, "MB-of-agent")
}
