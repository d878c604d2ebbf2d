package guard

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// How many instructions a message takes on each hot path.
//
// The test binary runs itself under the counter, as one goroutine that does N turns of a path and then, in another
// process, 5N: the difference is free of what starting up costs. What is left of that, some ten thousand instructions
// more in one process than in the other, is one or two for each message.

var (
	rewriteCounts = flag.Bool("rewrite", false, "write the counts into testdata; read them before you commit them")
	reportCounts  = flag.String("report", "", "write what was counted, beside what is recorded, to this file")
)

const (
	countedMin   = 4_000 // messages, in N turns
	countFactor  = 5
	countTries   = 5 // of one process: valgrind fails now and then to start a Go program
	countTimeout = 4 * time.Minute
	pathVar      = "GORUN_TEST_PATH"
	turnsVar     = "GORUN_TEST_TURNS"
)

func init() {
	roles["hot path"] = func() error {
		turns, err := strconv.Atoi(os.Getenv(turnsVar))
		if err != nil {
			return err
		}
		return hotPathRole(os.Getenv(pathVar), turns)
	}
}

func TestInstructions(t *testing.T) {
	if proc.Race {
		t.Skip("the race detector's instructions are not ours")
	}
	if testing.Short() {
		t.Skip("takes half a minute; -short")
	}
	recorded, err := readCounts(countsFile)
	if err != nil && !*rewriteCounts {
		t.Fatal(err)
	}
	c, found := pickCounter(recorded.with)
	if !found { // perf stat has no counter, so that valgrind is needed
		proc.RequireProgram(t, "valgrind", "valgrind")
	}
	got := counts{minorVersion(runtime.Version()), runtime.GOARCH, c.name, countAll(t, c)}
	if t.Failed() {
		return
	}
	if *rewriteCounts {
		if err := os.WriteFile(countsFile, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		recorded = got
	}
	wrong, notes := judgeCounts(recorded, got)
	for _, note := range notes {
		t.Log(note)
	}
	if *reportCounts != "" {
		if err := os.WriteFile(*reportCounts, []byte(strings.Join(notes, "\n")+"\n"), 0o644); err != nil {
			t.Error(err)
		}
	}
	for _, complaint := range wrong {
		t.Error(complaint)
	}
}

// counter is a program that counts the instructions of another one.
type counter struct {
	name string
	wrap func(out string, command ...string) []string
	read func(printed, out string) (instructions float64, err error) // out: what it wrote to that file
}

var errNotCounted = errors.New("no number of instructions in what it printed")

// counters in order of preference, where the recorded counts do not say with which they were made. How Go's runtime
// copies depends on what the processor can, and valgrind's can AVX only on one that can: 8192 bytes take 16 % more
// without. So turns has Go use what every processor has (cpu.all=off).
var counters = []counter{
	{"perf", func(out string, command ...string) []string {
		return append([]string{"perf", "stat", "-x,", "-e", "instructions:u", "-o", out, "--"}, command...)
	}, func(_, out string) (float64, error) { return readPerf(out) }},
	{"callgrind", func(_ string, command ...string) []string {
		return append([]string{"valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"}, command...)
	}, func(printed, _ string) (float64, error) { return readCallgrind(printed) }},
}

// readPerf: a line of fields, the first of which is the number, or <not supported>.
func readPerf(text string) (float64, error) {
	for line := range strings.Lines(text) {
		first, rest, _ := strings.Cut(line, ",")
		if n, err := strconv.ParseFloat(first, 64); err == nil && strings.Contains(rest, "instructions") {
			return n, nil
		}
	}
	return 0, fmt.Errorf("perf: %w: %q", errNotCounted, text)
}

// readCallgrind: ==PID== Collected : N.
func readCallgrind(text string) (float64, error) {
	for line := range strings.Lines(text) {
		if _, number, found := strings.Cut(line, "== Collected : "); found {
			if n, err := strconv.ParseFloat(strings.TrimSpace(number), 64); err == nil && n > 0 {
				return n, nil
			}
		}
	}
	return 0, fmt.Errorf("callgrind: %w: %q", errNotCounted, text)
}

// pickCounter returns what the counts were recorded with, or else the first that works here.
func pickCounter(recorded string) (picked counter, found bool) {
	for _, c := range counters {
		if _, _, err := c.run(nil, time.Minute, "true"); err == nil && (!found || c.name == recorded) {
			picked, found = c, true
		}
	}
	return picked, found
}

// run returns the instructions of a command, and what it printed.
func (c counter) run(env []string, limit time.Duration, command ...string) (n float64, printed string, err error) {
	dir, err := os.MkdirTemp("", "instructions-")
	if err != nil {
		return 0, "", err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "out")
	command = c.wrap(out, command...)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = time.Minute
	text, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return 0, string(text), fmt.Errorf("%s: %w\n%s", c.name, err, text)
	}
	written, err := os.ReadFile(out)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, string(text), err
	}
	n, err = c.read(string(text), string(written))
	return n, string(text), err
}

// turns returns the instructions of a process that does so many turns of a path.
func (c counter) turns(t *testing.T, path string, turns int) float64 {
	t.Helper()
	env := []string{proc.RoleVar + "=hot path", pathVar + "=" + path, turnsVar + "=" + strconv.Itoa(turns),
		"GOGC=off", "GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1,cpu.all=off"}
	for try := 1; ; try++ {
		n, printed, err := c.run(env, countTimeout, os.Args[0])
		if err == nil && !strings.Contains(printed, turnsDone) {
			err = fmt.Errorf("the turns were not done: %s", printed)
		}
		if err == nil {
			return n
		}
		if errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%d turns take more than %v: a hang, or a path a hundred times as long: %v", turns, countTimeout, err)
		}
		if try == countTries {
			t.Fatalf("%d turns, for the %dth time: %v", turns, try, err)
		}
		t.Logf("once more, %d turns: %v", turns, err)
	}
}

// countAll returns the instructions per message of all paths.
func countAll(t *testing.T, c counter) map[string]float64 {
	var mu sync.Mutex
	all := map[string]float64{}
	t.Run("count", func(t *testing.T) {
		for _, p := range hotPaths {
			t.Run(p.name, func(t *testing.T) {
				t.Parallel()
				n := (countedMin + p.messages - 1) / p.messages
				few, many := c.turns(t, p.name, n), c.turns(t, p.name, countFactor*n)
				mu.Lock()
				defer mu.Unlock()
				all[p.name] = (many - few) / float64((countFactor-1)*n*p.messages)
			})
		}
	})
	return all
}
