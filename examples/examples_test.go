package examples

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/png"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The examples are programs: each is built once and started by gorun as a user would.

// rankCounts are one rank, powers of two and not, and more ranks than most machines of CI have cores. With -short only
// a rank alone, and a number that divides nothing.
func rankCounts() []int {
	if testing.Short() {
		return []int{1, 3}
	}
	return []int{1, 2, 3, 4, 6, 8}
}

const runLimit = 2 * time.Minute // a hang, not a slow machine

// run starts an example and returns what it printed.
type run func(ranks int, args ...string) string

func TestExamples(t *testing.T) {
	bin := t.TempDir()
	build(t, bin, "../cmd/gorun", "./heat", "./ring", "./pi", "./masterworker", "./goroutines", "./cg", "./train",
		"./matmul", "./samplesort", "./queue", "./hashtable", "./halo", "./survive")
	tests := []struct {
		name  string
		check func(t *testing.T, start run, ranks int)
	}{
		{"ring", checkRing}, {"pi", checkPi}, {"masterworker", checkMasterWorker}, {"goroutines", checkGoroutines},
		{"heat", newHeatCheck()},
		{"cg", prints(`^2500 unknowns on (\d+) ranks: \d+ iterations, residual \S+, mean error \S+\n$`, "-cells", "50")},
		{"train", prints(`^(?:step .*\n)+(\d+) ranks and one rank have the same loss, 0\.\d+\n$`, "-samples", "500")},
		{"matmul", prints(`^61 × 61 on a grid of (\d+) × (\d+) ranks: \S+ GFlop/s, all elements are right\n$`,
			"-size", "61")},
		{"queue", prints(`^9592 primes below 100000, in 100 pieces on (\d+) ranks\n$`, "-below", "100000", "-interval",
			"1000")},
		{"hashtable", prints(`^\d+ keys, 1000 different ones, counted on (\d+) ranks\n$`, "-keys", "5000")},
		{"halo", prints(`^\d+ cells on (\d+) ranks after 200 steps: the heat is the same\n$`, "-steps", "200")},
		{"survive", prints(`^60 × 60 points, 200 steps, (\d+) ranks: [0-9a-f]{16}\n$`, "-size", "60", "-steps", "200")},
		{"samplesort", prints(`keys on (\d+) ranks sorted in \S+; no rank has more than \S+ % of them\n$`, "-keys", "20011")},
	}
	for _, test := range tests {
		for _, ranks := range rankCounts() {
			t.Run(fmt.Sprintf("%s/%d", test.name, ranks), func(t *testing.T) {
				test.check(t, starter(t, bin, test.name), ranks)
			})
		}
	}
}

// The result is the same to the bit whichever ranks die and whenever.
func TestSurvive(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("ranks that are processes need shared memory, which is on Linux so far")
	}
	bin := t.TempDir()
	build(t, bin, "../cmd/gorun", "./survive")
	start := func(deaths int, after time.Duration) (string, string) {
		ctx, cancel := context.WithTimeout(t.Context(), runLimit)
		defer cancel()
		c := exec.CommandContext(ctx, filepath.Join(bin, "gorun"), "--respawn", "2", "-n", "4",
			filepath.Join(bin, "survive"), "-steps", "600", "-deaths", strconv.Itoa(deaths), "-after", after.String())
		var out, errs bytes.Buffer
		c.Stdout, c.Stderr = &out, &errs
		if err := c.Run(); err != nil { // also with deaths
			t.Fatalf("%d deaths, %v apart: %v\n%s\n%s", deaths, after, err, out.String(), errs.String())
		}
		return out.String(), errs.String()
	}
	want, _ := start(0, time.Second)
	for _, after := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 80 * time.Millisecond} {
		got, errs := start(2, after)
		if got != want {
			t.Errorf("two deaths, each after %v: %q, without deaths %q\n%s", after, got, want, errs)
		}
		if n := strings.Count(errs, "has been started again on"); after < 2*time.Millisecond && n != 2 {
			t.Errorf("%d ranks have died:\n%s", n, errs)
		}
	}
}

func build(t *testing.T, bin string, packages ...string) {
	t.Helper()
	args := append([]string{"build", "-buildvcs=false", "-ldflags=-s", "-o", bin + string(os.PathSeparator)}, packages...)
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func starter(t *testing.T, bin, name string) run {
	return func(ranks int, args ...string) string {
		t.Helper()
		if ranks > 1 && runtime.GOOS != "linux" {
			t.Skip("ranks that are processes need shared memory, which is on Linux so far")
		}
		ctx, cancel := context.WithTimeout(t.Context(), runLimit)
		defer cancel()
		args = append([]string{"-n", strconv.Itoa(ranks), filepath.Join(bin, name)}, args...)
		cmd := exec.CommandContext(ctx, filepath.Join(bin, "gorun"), args...)
		cmd.WaitDelay = 20 * time.Second
		var out, complaints bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &complaints
		if err := cmd.Run(); err != nil {
			t.Fatalf("gorun %s: %v (within the limit: %v)\n%s%s", strings.Join(args, " "), err, ctx.Err() == nil,
				&out, &complaints)
		}
		return out.String()
	}
}

func checkRing(t *testing.T, start run, ranks int) {
	want := fmt.Sprintf("the token went round %d ranks and is now %d\n", ranks, ranks*(ranks-1)/2)
	if got := start(ranks); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func checkPi(t *testing.T, start run, ranks int) {
	got := start(ranks, "-strips", "1000003") // divisible by none of the rank counts
	m := regexp.MustCompile(`^pi = ([0-9.]+), off by \S+, 1000003 strips on (\d+) ranks in \S+\n$`).FindStringSubmatch(got)
	if m == nil || m[2] != strconv.Itoa(ranks) {
		t.Fatalf("printed %q", got)
	}
	if pi, err := strconv.ParseFloat(m[1], 64); err != nil || math.Abs(pi-math.Pi) > 1e-10 {
		t.Errorf("pi is %q", m[1])
	}
}

func checkMasterWorker(t *testing.T, start run, ranks int) {
	got := start(ranks, "-below", "200000", "-interval", "7000")
	if !strings.HasPrefix(got, "17984 primes below 200000\n") {
		t.Fatalf("printed %q", got)
	}
	done := 0
	for _, m := range regexp.MustCompile(`(?m)^rank \d+ did (\d+) pieces$`).FindAllStringSubmatch(got, -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		done += n
	}
	if want := 29; ranks > 1 && done != want {
		t.Errorf("%d pieces were done, want %d: %q", done, want, got)
	}
}

func checkGoroutines(t *testing.T, start run, ranks int) {
	want := fmt.Sprintf("%d ranks: %d clients asked %d questions, all answers were right\n", ranks, 40*ranks, 40*ranks*9)
	if got := start(ranks, "-clients", "40", "-questions", "9"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// prints is the check of an example that checks its own answer. The product of what the expression's groups match is
// the number of ranks.
func prints(want string, args ...string) func(*testing.T, run, int) {
	return func(t *testing.T, start run, ranks int) {
		got := start(ranks, args...)
		product := 1
		for _, group := range regexp.MustCompile(want).FindStringSubmatch(got) {
			if n, err := strconv.Atoi(group); err == nil {
				product *= n
			}
		}
		if !regexp.MustCompile(want).MatchString(got) || product != ranks {
			t.Errorf("printed %q, which does not match %s for %d ranks", got, want, ranks)
		}
	}
}

// newHeatCheck compares every run with the first one: neither the residuals nor the plate may depend on the number of
// ranks, to the last bit.
func newHeatCheck() func(*testing.T, run, int) {
	var firstNumbers string
	var firstPicture image.Image
	return func(t *testing.T, start run, ranks int) {
		path := filepath.Join(t.TempDir(), "heat.png")
		got := start(ranks, "-cells", "61", "-steps", "400", "-report", "100", "-o", path)
		first := fmt.Sprintf("61 × 61 cells, 400 steps, %d ranks\n", ranks)
		for _, want := range []string{first, "time per step ", "communication ", "wrote "} {
			if !strings.Contains(got, want) {
				t.Errorf("printed %q without %q", got, want)
			}
		}
		numbers := strings.Join(regexp.MustCompile(`residual .*|mean temperature .*`).FindAllString(got, -1), "\n")
		picture := decode(t, path)
		if firstPicture == nil {
			firstNumbers, firstPicture = numbers, picture
		}
		if strings.Count(numbers, "\n") != 4 || numbers != firstNumbers {
			t.Errorf("got\n%s\nwant\n%s", numbers, firstNumbers)
		}
		// gonum draws the isotherms in an order that changes from run to run; a line is a little brighter where it
		// begins.
		if n := differing(picture, firstPicture); n > 1000 {
			t.Errorf("%d of %v pixels differ from the picture of one rank", n, picture.Bounds().Size())
		}
	}
}

func decode(t *testing.T, path string) image.Image {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// differing counts the pixels of which a is not b.
func differing(a, b image.Image) (n int) {
	if a.Bounds() != b.Bounds() {
		return math.MaxInt
	}
	for y := a.Bounds().Min.Y; y < a.Bounds().Max.Y; y++ {
		for x := a.Bounds().Min.X; x < a.Bounds().Max.X; x++ {
			if a.At(x, y) != b.At(x, y) {
				n++
			}
		}
	}
	return n
}
