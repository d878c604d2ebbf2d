//go:build cuda && linux && cgo

package gpu

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/testkit/cudakit"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// mortalVar tells the role "random" that a rank dies.
const mortalVar = "GORUN_TEST_MORTAL"

func init() {
	roles["random"] = func() error {
		mpi.Main(func(_ context.Context, world *mpi.Comm) error { return playAlone(world) })
		return nil
	}
}

// playAlone runs a program at a rank that is a process.
func playAlone(c *mpi.Comm) (err error) {
	seed := ok(strconv.ParseUint(os.Getenv(seedVar), 10, 64))
	p := &player{scenario: newScenario(seed, c.Size(), os.Getenv(mortalVar) != ""), c: c,
		dice: rand.New(rand.NewPCG(seed, uint64(100+c.Rank()))), devicesOf: &devicesOf{devices: 2,
			alloc: func(device, n int) Slice[byte] { return ok(Alloc[byte](device, n)) },
			wrap:  func(addr uint64, n int) Slice[byte] { return ok(Wrap[byte](addr, n)) },
			read: func(s Slice[byte]) []byte {
				b := make([]byte, s.Len())
				must(s.CopyTo(b))
				return b
			}, die: func() {
				fmt.Println("dying as", os.Getpid())
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}}}
	defer time.AfterFunc(hangs/2, func() {
		debug.SetTraceback("all")
		panic(fmt.Sprintf("rank %d hangs: %s", c.Rank(), *p.doing.Load()))
	}).Stop()
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("rank %d: %v", c.Rank(), v)
		}
	}()
	p.play()
	drain()
	fmt.Println("all is well at rank", c.Rank())
	return nil
}

// randomWays are what TestRandomMessagesOfProcesses adds to the environment, by name.
var randomWays = map[string]func(*testing.T) []string{
	"IPC":    func(*testing.T) []string { return []string{"GORUN_TRANSPORTS=shm", "SOFTCUDA_VMM=0"} },
	"VMM":    func(*testing.T) []string { return []string{"GORUN_TRANSPORTS=shm"} },
	"staged": func(*testing.T) []string { return []string{"GORUN_TRANSPORTS=shm", "GORUN_CUDA_SHARE=0"} },
	"tcp":    func(*testing.T) []string { return []string{"GORUN_TRANSPORTS=tcp"} },
}

// TestRandomMessagesOfProcesses runs random programs as ranks that are processes, with a software GPU.
func TestRandomMessagesOfProcesses(t *testing.T) {
	for name, env := range randomWays {
		for _, mortal := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", name, mortal), func(t *testing.T) {
				programs := 12
				if testing.Short() {
					programs = 2
				}
				for seed := range seeds(t, 10, programs) {
					playJob(t, env(t), seed, mortal)
				}
			})
		}
	}
}

func playJob(t *testing.T, env []string, seed uint64, mortal bool) {
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	again := proc.Again()
	knob, left := cudakit.Left(t)
	args, well := []string{"-n", "3"}, 3
	env = append(cudakit.Env(t, "SOFTCUDA_DEVICES=2", fmt.Sprint("SOFTCUDA_SEED=", seed%1000), knob), env...)
	env = append(env, proc.RoleVar+"=random", fmt.Sprint(seedVar, "=", seed))
	if mortal {
		args, well, env = append(args, "--enable-recovery"), 2, append(env, mortalVar+"=1")
	}
	cmd := exec.CommandContext(ctx, proc.Gorun(t), append(args, again.Args...)...)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	dead := "none"
	if _, after, found := strings.Cut(string(out), "dying as "); found && mortal {
		dead, _, _ = strings.Cut(after, "\n")
		err = nil // of that rank
	}
	if n := bytes.Count(out, []byte("all is well")); err != nil || n != well {
		t.Fatalf("%s=%d: %v, and %d ranks are well\n%s", seedVar, seed, err, n, out)
	}
	for _, line := range left() {
		// The driver keeps its streams and events, one and a pool for each device.
		if !strings.HasPrefix(line, "process "+dead+":") && !strings.Contains(line, ": streams ") &&
			!strings.Contains(line, ": events ") {
			t.Errorf("%s=%d: left: %s", seedVar, seed, line)
		}
	}
}
