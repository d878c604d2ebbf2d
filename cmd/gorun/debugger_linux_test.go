package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// delve returns the folder of a dlv: the one of PATH, or the one that make builds.
func delve(t *testing.T) (dir string) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds programs for a debugger; -short")
	}
	if path, err := exec.LookPath("dlv"); err == nil {
		return filepath.Dir(path)
	}
	makefile, root := proc.CheckoutText(t, "Makefile")
	file := regexp.MustCompile(`(?m)^DLV += (bin/\S+)$`).FindStringSubmatch(makefile)
	if file == nil {
		t.Fatal("the Makefile has no line DLV = bin/...")
	}
	if _, err := os.Stat(filepath.Join(root, file[1])); err != nil {
		t.Skipf("dlv is not in PATH, and %s is not here: make %[1]s", file[1])
	}
	return filepath.Join(root, filepath.Dir(file[1]))
}

// summing is a program whose ranks add up their numbers in a function of its own.
const summing = `package main

import (
	"context"
	"fmt"
	"os"

	"github.com/gorun-mpi/mpi"
)

func main() { mpi.Main(solve) }

func solve(_ context.Context, world *mpi.Comm) error {
	mine, all := []int{world.Rank() + 40}, make([]int, 1)
	if err := mpi.Allreduce(world, mine, all, mpi.Sum); err != nil {
		return err
	}
	fmt.Println("the sum is", all[0])
	if len(os.Args) > 1 && world.Rank() == 1 {
		os.Exit(3)
	}
	return nil
}
`

// debugged is a program to be debugged, and a debugger for it.
type debugged struct {
	t       *testing.T
	dlv     string
	program string // a folder
	env     []string
}

func newDebugged(t *testing.T) *debugged {
	t.Helper()
	dir := delve(t)
	_, root := proc.CheckoutText(t, "go.mod")
	d := &debugged{t: t, dlv: filepath.Join(dir, "dlv"), program: module(t, summing)}
	work := "go 1.26.0\n\nuse (\n\t.\n\t" + root + "\n)\n"
	if err := os.WriteFile(filepath.Join(d.program, "go.work"), []byte(work), 0o666); err != nil {
		t.Fatal(err)
	}
	d.env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "GOWORK=" + filepath.Join(d.program, "go.work"),
		"HOME=" + t.TempDir(), "GOCACHE=" + goEnv(t, "GOCACHE"), "GOMODCACHE=" + goEnv(t, "GOMODCACHE"), "CGO_ENABLED=0"}
	return d
}

// goEnv is a setting of the go command, which depends on HOME.
func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// job prepares a job of the program.
func (d *debugged) job(args ...string) *job {
	d.t.Helper()
	j := prepare(d.t, args...)
	j.cmd.Env = append(j.cmd.Env, d.env...)
	return j
}

// script writes commands for dlv.
func (d *debugged) script(commands ...string) (path string) {
	d.t.Helper()
	path = filepath.Join(d.t.TempDir(), "commands")
	if err := os.WriteFile(path, []byte(strings.Join(commands, "\n")+"\n"), 0o666); err != nil {
		d.t.Fatal(err)
	}
	return path
}

// address waits until dlv has printed where it listens.
func (d *debugged) address(j *job) (address string) {
	d.t.Helper()
	printed := regexp.MustCompile(`API server listening at: (\S+)\n`)
	proc.Eventually(d.t, "dlv", func() bool {
		found := printed.FindStringSubmatch(j.out.String())
		if found != nil {
			address = found[1]
		}
		return found != nil
	})
	return address
}

// connect is a user in another terminal, who gives dlv these commands.
func (d *debugged) connect(address string, commands ...string) (printed string) {
	d.t.Helper()
	c := exec.CommandContext(d.t.Context(), d.dlv, "connect", address, "--init", d.script(append(commands, "exit")...))
	c.Env = append(os.Environ(), d.env...)
	out, err := c.CombinedOutput()
	if err != nil {
		d.t.Errorf("dlv connect: %v\n%s", err, out)
	}
	return string(out)
}

// expect expects lines in what dlv has printed.
func (d *debugged) expect(printed string, lines ...string) {
	d.t.Helper()
	for _, line := range lines {
		if !regexp.MustCompile(line).MatchString(printed) {
			d.t.Errorf("dlv prints no %q:\n%s", line, clip(printed))
		}
	}
}

// toSum are the commands that stop a rank in solve, show a variable, and let the rank go on.
var toSum = []string{"break main.solve", "continue", "next", "next", "print mine[0]", "continue"}

// Ranks run in a real debugger.
func TestDelve(t *testing.T) {
	t.Parallel()
	d := newDebugged(t)
	binary := d.build() // gorun's own build finds most in the cache then
	for _, c := range []struct {
		name string
		test func(d *debugged)
	}{
		{"by a script", func(d *debugged) { d.byScript(binary) }},
		{"as a server", (*debugged).asServer},
		{"ends badly", (*debugged).endsBadly},
		{"leaves nothing", (*debugged).leavesNothing},
	} {
		t.Run(c.name, func(t *testing.T) {
			of := *d
			of.t = t
			c.test(&of)
		})
	}
}

// build returns the program for a debugger.
func (d *debugged) build() (binary string) {
	d.t.Helper()
	binary = filepath.Join(d.t.TempDir(), "summing")
	c := exec.Command("go", "build", "-buildvcs=false", "-gcflags=all=-N -l", "-o", binary)
	c.Dir, c.Env = d.program, append(os.Environ(), d.env...)
	if out, err := c.CombinedOutput(); err != nil {
		d.t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

// sums expects that both ranks have the sum.
func (d *debugged) sums(j *job) {
	d.t.Helper()
	if n := strings.Count(j.out.String(), "the sum is 81\n"); n != 2 {
		d.t.Errorf("%d ranks have the sum:\n%s", n, &j.out)
	}
}

// byScript: commands of a file drive a rank under dlv, which needs no terminal.
func (d *debugged) byScript(binary string) {
	j := d.job("-n", "1", binary, ":", "-n", "1", "dlv", "exec", "--allow-non-terminal-interactive=true", "--init",
		d.script(append(toSum, "exit")...), binary).start().wait(0)
	d.expect(j.out.String(), `> \[Breakpoint 1\] main\.solve\(\)`, `(?m)^41$`, `has exited with status 0`)
	d.sums(j)
}

// asServer: a rank stops at a breakpoint in the function of Main, shows a variable and goes on, and the job ends as
// without dlv.
func (d *debugged) asServer() {
	j := d.job("-n", "2", "--debug", "1", d.program).start()
	d.expect(d.connect(d.address(j), toSum...), `> \[Breakpoint 1\] main\.solve\(\)`, `(?m)^41$`,
		`has exited with status 0`)
	j.wait(0).says("rank 1 waits under dlv")
	d.sums(j)
}

// endsBadly: the end of a rank without Finalize ends the job badly, though dlv ends well.
func (d *debugged) endsBadly() {
	j := d.job("-n", "2", "--debug", "1", d.program, "bad").start()
	d.expect(d.connect(d.address(j), "continue"), `has exited with status 3`)
	j.wait(1)
}

// leavesNothing: nothing is left of a job that ends while dlv has stopped the rank, which has a process group of its
// own: dlv makes it.
func (d *debugged) leavesNothing() {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		j := d.job("-n", "2", "--debug", "1", d.program).start()
		d.address(j)
		j.cmd.Process.Signal(sig)
		if sig == syscall.SIGTERM {
			j.wait(128 + int(sig))
			continue
		}
		j.cmd.Wait()
		j.gone()
	}
}
