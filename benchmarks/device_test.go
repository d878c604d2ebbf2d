//go:build cuda && linux && cgo

package benchmarks

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/cudakit"
)

// The programs that take -d, over the software GPU: latency, bw and bibw with each pair of places, and collective with
// each operation of package gpu, blocking and not.
func TestDevices(t *testing.T) {
	env := cudakit.Env(t, "SOFTCUDA_DEVICES=2", "SOFTCUDA_SEED=5")
	bin := t.TempDir()
	args := []string{"build", "-buildvcs=false", "-ldflags=-s", "-o", bin + string(os.PathSeparator),
		"../cmd/gorun", "./latency", "./bw", "./bibw", "./collective"}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	places := func(title, a, b string) string {
		return `^# OSU MPI-CUDA ` + title + ` Test v7\.4 \(gorun\)\n# Send Buffer on ` + a + ` and Receive Buffer on ` + b +
			`\n# Datatype: MPI_CHAR\.\n`
	}
	const device, host = `DEVICE \(D\)`, `HOST \(H\)`
	passed := func(n string) string { return `# Size .*\n(\d+ +\d+\.\d\d +Pass\n){` + n + `}$` }
	type test struct {
		ranks         int
		command, want string
	}
	tests := []test{
		{2, "latency -d cuda D D -m 0:64 -i 20 -x 2", places("Latency", device, device) + `# Size .*\n` +
			lines(1, 2) + `{8}$`},
		{2, "latency -d cuda D D -m 1:4194304 -i 3 -x 1 -c", places("Latency", device, device) + passed("23")},
		{2, "latency -d cuda -m 8192:65536 -i 3 -x 1 -c", places("Latency", device, device) + passed("4")},
		{2, "latency -d cuda D H -m 1:4194304 -i 3 -x 1 -c", places("Latency", device, host) + passed("23")},
		{2, "latency -d cuda -m 1:1048576 -i 3 -x 1 -c H D", places("Latency", host, device) + passed("21")},
		{2, "bw -d cuda D D -m 1:262144 -i 3 -x 1 -W 8 -b multiple -c", places("Bandwidth", device, device) + passed("19")},
		{2, "bw -d cuda H D -m 1024:65536 -i 3 -x 1 -W 8 -c", places("Bandwidth", host, device) + passed("7")},
		{2, "bw -d cuda D H -m 1024:65536 -i 3 -x 1 -W 8 -c", places("Bandwidth", device, host) + passed("7")},
		{2, "bibw -d cuda D D -m 1024:262144 -i 3 -x 1 -W 8 -b multiple -c",
			places("Bi-Directional Bandwidth", device, device) + passed("9")},
		{2, "bibw -d cuda D H -m 1024:65536 -i 3 -x 1 -W 8 -c",
			places("Bi-Directional Bandwidth", device, host) + passed("7")},
		{2, "bibw -d cuda H D -m 1024:65536 -i 3 -x 1 -W 8 -c",
			places("Bi-Directional Bandwidth", host, device) + passed("7")},
		{3, "collective allreduce -d cuda -m 8:65536 -i 3 -x 1 -c",
			`^# OSU MPI-CUDA Allreduce Latency Test v7\.4 \(gorun\)\n# Datatype: MPI_DOUBLE\.\n` + passed("14")},
		{3, "collective iallreduce -d cuda -m 8:64 -i 3 -x 1 -c", `^# OSU MPI-CUDA Non-blocking Allreduce Latency Test `},
		{3, "collective allgather,alltoall,bcast,gather,reduce,reduce_scatter_block,scatter -d cuda -m 8:64 -i 3 -x 1 -c",
			`# Size .*\n(\d+( +\d+\.\d\d){7}\n){4}$`},
	}
	for _, name := range []string{"allgather", "alltoall", "bcast", "gather", "reduce", "reduce_scatter_block", "scatter"} {
		tests = append(tests, test{3, "collective i" + name + " -d cuda -m 8:64 -i 3 -x 1 -c", `^# OSU MPI-CUDA Non-blocking `})
	}
	for _, test := range tests {
		t.Run(test.command, func(t *testing.T) {
			knob, left := cudakit.Left(t)
			out, stderr, err := start(t, append(slices.Clone(env), knob), gorun(bin, test.ranks, test.command)...)
			if err != nil {
				t.Fatalf("%v\n%s%s", err, out, stderr)
			}
			if !regexp.MustCompile(test.want).MatchString(out) {
				t.Errorf("printed\n%swant %s", out, test.want)
			}
			for _, line := range left() { // pinned memory, a stream and its events are kept for the next message
				if !regexp.MustCompile(`: (host_registrations|streams|events) `).MatchString(line) {
					t.Error("left: " + line)
				}
			}
		})
	}
	// Without the library one rank says so.
	for command, want := range map[string]string{
		"latency -d cuda D D": "rank 0 has no device",
		"bw -d cuda H D":      "rank 1 has",
	} {
		none := append(slices.Clone(env), "GORUN_CUDA_LIB="+filepath.Join(bin, "none.so"))
		out, stderr, err := start(t, none, gorun(bin, 2, command)...)
		if err == nil || out != "" || strings.Count(stderr, want) != 1 || !strings.Contains(stderr, "none.so") {
			t.Errorf("%s without a driver: %v, printed %q and %q", command, err, out, stderr)
		}
	}
}
