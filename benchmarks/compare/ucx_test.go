package main

import (
	"strings"
	"testing"
)

// What is run over UCX: the same transports for all three, the same programs for ours and Open MPI's.
func TestOverUCX(t *testing.T) {
	local := []library{{name: gorun, dir: "/d/g", launch: func(_ int, program string) []string {
		return []string{"/d/g/gorun", "-n", "2", program}
	}}, {name: openMPI, dir: "/d/o"}}
	bed := testbed{local: local, overUCX: func() (string, error) { return "/d/u", nil }}
	rate := ucxPlan()[2]
	libraries, err := bed.libraries(rate)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"gorun -n 2 -x GORUN_TRANSPORTS=ucx -x UCX_TLS=posix,self mbw_mr -p 1 -W 64 -m 8:8 --time 0.2",
		"mpirun.openmpi --allow-run-as-root -np 2 --bind-to core --mca pml ucx --mca pml_ucx_tls any --mca " +
			"pml_ucx_devices any -x UCX_TLS=posix,self mbw_mr -p 1 -W 64 -m 8:8 --time 0.2",
		"env UCX_TLS=posix,self scripts/ucx-perftest mbw_mr 8:2000000",
	}
	for i, l := range libraries {
		words := underOpenMPI(2, "x") // which binds where there are two CPUs
		if i == 1 && words[4] != "--bind-to" {
			continue
		}
		if got := l.shown(rate, rate.runs[0], i == 0); got != want[i] {
			t.Errorf("%s: %q, want %q", l.name, got, want[i])
		}
	}
	if ours := libraries[0]; ours.launch(2, "x")[0] != "/d/u/gorun" || ours.dir != "/d/u" {
		t.Errorf("ours is %+v", ours)
	}
	for i, m := range ucxPlan() {
		libraries, err := bed.libraries(m)
		if err != nil {
			t.Fatal(err)
		}
		tls, counts := "UCX_TLS=posix,self", "300000"
		if i > 2 {
			tls, counts = "UCX_TLS=tcp,self", "20000"
		}
		for at, l := range libraries {
			shown := l.shown(m, m.runs[0], at == 0)
			if !strings.Contains(shown, tls) {
				t.Errorf("%s, %s: %q has not %s", m.name, l.name, shown, tls)
			}
			if m.program == "latency" && l.name == ucxPerftest && !strings.HasSuffix(shown, ":"+counts) {
				t.Errorf("%s: %q does not measure %s times", m.name, shown, counts)
			}
		}
	}
}
