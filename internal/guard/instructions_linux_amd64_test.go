package guard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
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
// The test binary runs itself under callgrind and does the turns of one path. Callgrind counts only the thread that does
// the turns, and only these turns (toggleCollect): what starting up, other goroutines and Go's monitor thread cost
// depends on the load of the machine. The counts of two runs differ by 0.1 %.

const (
	countedMessages = 4_000
	countTries      = 5 // of one process: valgrind fails now and then to start a Go program
	countTimeout    = 4 * time.Minute
	pathVar         = "GORUN_TEST_PATH"
	turnsVar        = "GORUN_TEST_TURNS"
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
	proc.RequireProgram(t, "valgrind", "valgrind")
	got := counts{minorVersion(runtime.Version()), runtime.GOARCH, countAll(t)}
	if t.Failed() {
		return
	}
	if *rewriteCounts {
		if err := os.WriteFile(countsFile, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		recorded = got
	}
	wrong, notes := compareCounts(recorded, got)
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

// countTurns runs the test binary under callgrind and returns the instructions of so many turns of a path.
//
// How Go's runtime copies depends on what the processor can, and valgrind's can AVX only on one that can: 8192 bytes
// take 16 % more without. So the process uses what every processor has (cpu.all=off).
func countTurns(path string, turns int) (float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), countTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
		"--collect-atstart=no", os.Args[0])
	cmd.Env = append(os.Environ(), proc.RoleVar+"=hot path", pathVar+"="+path, turnsVar+"="+strconv.Itoa(turns),
		"GOGC=off", "GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1,cpu.all=off")
	cmd.WaitDelay = time.Minute
	printed, err := cmd.CombinedOutput()
	switch {
	case ctx.Err() != nil:
		return 0, fmt.Errorf("%d turns take more than %v: a hang, or a path a hundred times as long: %w", turns,
			countTimeout, ctx.Err())
	case err != nil:
		return 0, fmt.Errorf("callgrind: %w\n%s", err, printed)
	case !strings.Contains(string(printed), turnsDone):
		return 0, fmt.Errorf("the turns were not done: %s", printed)
	}
	return readCallgrind(string(printed))
}

// countAll returns the instructions per message of all paths.
func countAll(t *testing.T) map[string]float64 {
	var mu sync.Mutex
	all := map[string]float64{}
	t.Run("count", func(t *testing.T) {
		for _, p := range hotPaths {
			t.Run(p.name, func(t *testing.T) {
				t.Parallel()
				turns := (countedMessages + p.messages - 1) / p.messages
				n, err := countTurns(p.name, turns)
				for try := 1; err != nil && try < countTries && !errors.Is(err, context.DeadlineExceeded); try++ {
					t.Logf("once more: %v", err)
					n, err = countTurns(p.name, turns)
				}
				if err != nil {
					t.Fatal(err)
				}
				mu.Lock()
				defer mu.Unlock()
				all[p.name] = n / float64(turns*p.messages)
			})
		}
	})
	return all
}

// hotPathRole does as many turns of one path as it is told, and as many before as it takes until all is as it stays:
// queues have grown, and rings that are not in use are not polled any more. With 16 ranks the last of these rings is
// left after some 20,000 messages.
func hotPathRole(name string, turns int) error {
	const warmPerRank = 2_500 // messages
	for _, p := range hotPaths {
		if p.name != name {
			continue
		}
		ranks, _ := ranksOverShm(p.ranks)
		turn := p.begin(ranks)
		runtime.LockOSThread() // callgrind counts by thread
		for range warmPerRank * p.ranks / p.messages {
			turn()
		}
		toggleCollect()
		for range turns {
			turn()
		}
		toggleCollect()
		fmt.Println(turnsDone)
		return nil
	}
	return fmt.Errorf("there is no path %q", name)
}

const turnsDone = "all turns done"
