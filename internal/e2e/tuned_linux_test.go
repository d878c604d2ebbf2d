package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi"
)

func init() { roles["tuned"] = tunedRank }

// tunedRank prints how many messages a rank sends in an Allreduce of 8 KiB and in one of 8 bytes. Its arguments, if
// there are some, are GORUN_TUNED of each rank; "" leaves it as it is.
func tunedRank() error {
	if rank, err := strconv.Atoi(os.Getenv("PMI_RANK")); err == nil && len(os.Args) > 1+rank && os.Args[1+rank] != "" {
		os.Setenv("GORUN_TUNED", os.Args[1+rank])
	}
	w, err := mpi.Init()
	if err != nil {
		fmt.Printf("unavailable %v: %v\n", errors.Is(err, mpi.ErrUnavailable), err)
		os.Exit(3)
	}
	var each [2]uint64
	for i, n := range []int{1024, 1} {
		send, recv := make([]float64, n), make([]float64, n)
		const calls = 10
		for k := range 4 + calls {
			if k == 4 { // the board is made
				each[i] = messagesOf(w)
			}
			if err := mpi.Allreduce(w, send, recv, mpi.Sum); err != nil {
				return err
			}
		}
		each[i] = (messagesOf(w) - each[i]) / calls
	}
	fmt.Printf("messages of long calls: %d, of short ones: %d\n", each[0], each[1])
	return mpi.Finalize()
}

func messagesOf(w *mpi.Comm) uint64 {
	s := w.Stats()
	return s.EagerSent + s.RendezvousSent
}

const ringLine = `{"version": 1, "measured": {"host": "this"}, "collectives": [
  {"operation": "allreduce", "least_bytes": 1024, "most_bytes": 65536, "least_ranks": 3, "most_ranks": 4, "over": "shm",
   "cpus": "any", "algorithm": "ring"}
]}`

// writeTuned writes a file, and returns its path.
func writeTuned(t *testing.T, text string, path ...string) string {
	t.Helper()
	file := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return file
}

// All ranks take the algorithms of a tuned file, whether a setting names it or it is found, and GORUN_COLL goes before
// it. The ring has 2 messages for each other rank; the table's choice goes through a board.
func TestTunedFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := writeTuned(t, ringLine, dir, "gorun", "tuned.json")
	home := "XDG_CONFIG_HOME=" + dir
	const ring, table = "^messages of long calls: 6, of short ones: 0$", "^messages of long calls: 0, of short ones: 0$"
	for name, c := range map[string]struct {
		s    spec
		want string
	}{
		"named":         {spec{n: 4, env: []string{"GORUN_TUNED=" + file}}, ring},
		"found":         {spec{n: 4, env: []string{home}}, ring},
		"found by each": {spec{n: 4, hydra: true, env: []string{home}}, ring},
		"off":           {spec{n: 4, env: []string{home, "GORUN_TUNED=off"}}, table},
		"other ranks":   {spec{n: 5, env: []string{home}}, table},
		"overruled":     {spec{n: 4, env: []string{home, "GORUN_COLL=allreduce:shared"}}, table},
		"for the job":   {spec{n: 4, flags: []string{"-x", "GORUN_TUNED=" + file}}, ring},
	} {
		t.Run(name, func(t *testing.T) {
			c.s.role = "tuned"
			j := run(t, c.s, 0)
			if got := j.count(c.want); got != c.s.n {
				t.Errorf("%d of %d ranks print %s:\n%s", got, c.s.n, c.want, j.out.String())
			}
			if j.count("another machine") != 0 {
				t.Errorf("the file names no machine:\n%s", j.err.String())
			}
		})
	}
}

// The eager limit of a tuned file holds over the transport with which it was measured, unless a setting has another
// one.
func TestTunedEagerMax(t *testing.T) {
	t.Parallel()
	file := writeTuned(t, `{"version": 1, "measured": {"transport": "shm"}, "collectives": [], "eager_max": 3000}`,
		t.TempDir(), "x.json")
	for env, want := range map[string]string{
		"GORUN_LOG=debug":      `transport=shm eager-max=3000 `,
		"GORUN_EAGER_MAX=2000": `transport=shm eager-max=2000 `,
		"GORUN_TRANSPORTS=tcp": `transport=tcp eager-max=65536 `,
		"GORUN_TUNED=off":      `transport=shm eager-max=(8192|32768) `,
	} {
		run(t, spec{n: 2, role: "exchange", env: []string{"GORUN_TUNED=" + file, "GORUN_LOG=debug", env}}, 0).
			says(`peer connected: .*` + want)
	}
}

// A file that was measured on another machine holds all the same, and one rank says where it was measured.
func TestTunedElsewhere(t *testing.T) {
	t.Parallel()
	file := writeTuned(t, strings.Replace(ringLine, `"host": "this"`, `"cpu": "Abacus", "online_cpus": 5000`, 1),
		t.TempDir(), "x.json")
	for _, hydra := range []bool{false, true} {
		j := run(t, spec{n: 4, role: "tuned", hydra: hydra, env: []string{"GORUN_TUNED=" + file}}, 0)
		if n := j.count(`\[WARN\] +mpi: the tuned file was measured on another machine or transport, and ` +
			`holds all the same; .*5000 CPUs, here \d+`); n != 1 {
			t.Errorf("hydra %v: said %d times:\n%s", hydra, n, j.err.String())
		}
		if n := j.count("^messages of long calls: 6, of short ones: 0$"); n != 4 {
			t.Errorf("hydra %v: %d ranks take the lines:\n%s", hydra, n, j.out.String())
		}
	}
}

// Ranks with different files, or with and without one, would wait for each other for ever. They get an error that names
// both, whatever rank has the file.
func TestTunedFilesDiffer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := writeTuned(t, ringLine, dir, "a.json")
	b := writeTuned(t, `{"version": 1, "collectives": []}`, dir, "b.json")
	for _, hydra := range []bool{false, true} {
		for name, c := range map[string]struct {
			args []string
			want string
		}{
			"two files": {[]string{a, b, a}, `rank (0 has the tuned file .*/a.json and rank 1 has the tuned file .*/b.json|` +
				`1 has the tuned file .*/b.json and rank 2 has the tuned file .*/a.json)`},
			"first lacks":  {[]string{"off", a, a}, `rank 2 has the tuned file .*/a.json and rank 0 has no tuned file`},
			"second lacks": {[]string{a, "off", "off"}, `rank 0 has the tuned file .*/a.json and rank 1 has no tuned file`},
			"alone":        {[]string{"off", "off", a}, `rank 2 has the tuned file .*/a.json and rank 0 has no tuned file`},
		} {
			t.Run(fmt.Sprint(name, " hydra ", hydra), func(t *testing.T) {
				j := start(t, spec{n: 3, role: "tuned", hydra: hydra, args: c.args})
				if j.end(); hydra { // it may lose what a rank prints that ends, and gives any exit code
					if j.cmd.ProcessState.Success() {
						t.Errorf("the job has succeeded:\n%s", j.out.String())
					}
					return
				}
				j.wait(3).says(`^unavailable true: mpi: Init: .*` + c.want + `.*; give all of them the same file`)
			})
		}
	}
}

// A file that cannot be read whole is an error, of gorun before it starts a rank, and without gorun of Init; also if it
// is found.
func TestBadTunedFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := writeTuned(t, "{\n \"version\": 1,\n \"collectives\": [{\"operation\": \"allreduce\", \"over\": \"any\",\n"+
		"\"cpus\": \"any\", \"algorithm\": \"rangs\"}]}", dir, "gorun", "tuned.json")
	const want = `the tuned file .*/tuned.json \(%s\): collectives, entry 1: algorithm: allreduce has no algorithm ` +
		`"rangs"; it has doubling,.*; mend it, write it anew with .gorun tune., or set GORUN_TUNED=off`
	for how, env := range map[string]string{
		"named by GORUN_TUNED": "GORUN_TUNED=" + file,
		"found there":          "XDG_CONFIG_HOME=" + dir,
	} {
		run(t, spec{n: 2, role: "join", env: []string{env}}, 2).says(`^gorun: ` + fmt.Sprintf(want, how))
		run(t, spec{bare: true, role: "join", env: []string{env}}, 3).
			says(`^unavailable true: mpi: Init: .*` + fmt.Sprintf(want, how))
	}
	missing := filepath.Join(dir, "missing.json")
	run(t, spec{n: 2, role: "join", env: []string{"GORUN_TUNED=" + missing}}, 2).
		says(`^gorun: the tuned file .*/missing.json \(named by GORUN_TUNED\): no such file or directory; `)
}
