package e2e

import "testing"

// Messages of every size arrive whatever the limit of eager ones; how they travel is seen in the counters.
func TestEagerMax(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"1":     `gets [1-9]\d* `,        // all but the smallest ask first
		"64KiB": `gets \d+ streams \d+ `, // more than a slot takes: bounded by the transport
		"4000":  `gets [1-9]\d* `,
	} {
		t.Run(value, func(t *testing.T) {
			j := run(t, spec{n: 2, role: "exchange", env: []string{"GORUN_EAGER_MAX=" + value, "GORUN_LOG=debug"}}, 0)
			if got := j.count(`^rank \d of 2 exchanged; ` + want); got != 2 {
				t.Errorf("%d of 2 ranks report\n%s", got, j.out.String())
			}
			limit := map[string]string{"1": "1", "64KiB": `\d+`, "4000": "4000"}[value]
			j.says(`peer connected: .*transport=shm eager-max=` + limit + ` `)
		})
	}
}

func TestSmallRing(t *testing.T) {
	t.Parallel()
	run(t, spec{n: 2, role: "exchange", env: []string{"GORUN_SHM_RING=16KiB"}}, 0).says(`^rank 0 of 2 exchanged`)
}

// Never polls: everything by sleeping and waking.
func TestNoSpin(t *testing.T) {
	t.Parallel()
	run(t, spec{n: 2, role: "exchange", env: []string{"GORUN_SPIN=0"}}, 0).says(`^rank 0 of 2 exchanged`)
}

func TestBadSettings(t *testing.T) {
	t.Parallel()
	// gorun checks it before it starts a rank; without gorun the rank does.
	for setting, want := range map[string]string{
		"GORUN_EAGER_MAX=many":       `GORUN_EAGER_MAX="many".*64KiB`,
		"GORUN_TRANSPORTS=nonsense":  `nonsense: no such transport; there is shm`,
		"GORUN_TRANSPORTS=shm,loop":  `loop: it connects the goroutines of RunLocal, not processes`,
		"GORUN_TCP_PORTS=99999-1":    `GORUN_TCP_PORTS="99999-1": .*write it like 20000-20999`,
		"GORUN_COLL=allreduce:rangs": `GORUN_COLL="allreduce:rangs": .*it has doubling`,
	} {
		run(t, spec{n: 2, role: "join", env: []string{setting}}, 2).says(`^gorun: .*` + want)
		run(t, spec{bare: true, role: "join", env: []string{setting}}, 3).says(`^unavailable true: mpi: Init: .*` + want)
	}
}

// A variable that is misspelt is mentioned once, not by every rank, with what may have been meant.
func TestMisspeltSetting(t *testing.T) {
	t.Parallel()
	// Put together, since internal/lint knows which variables there are.
	const like, unlike = "GORUN" + "_TRASNPORTS", "GORUN" + "_COLOUR_OF_THE_SKY"
	for _, hydra := range []bool{false, true} {
		j := run(t, spec{n: 4, role: "exchange", hydra: hydra, env: []string{like + "=shm", unlike + "=blue"}}, 0)
		if got := j.count(like + ` is not a setting and has no effect; did you mean GORUN_TRANSPORTS\?`); got != 1 {
			t.Errorf("hydra %v: %d warnings, want 1:\n%s", hydra, got, j.err.String())
		}
		if got := j.count(unlike + ` is not a setting and has no effect; .gorun info. lists`); got != 1 {
			t.Errorf("hydra %v: %d warnings, want 1:\n%s", hydra, got, j.err.String())
		}
	}
}

// One line for each peer, with its transport and scheme, and why the others are not used.
func TestDebugLog(t *testing.T) {
	t.Parallel()
	j := run(t, spec{n: 3, role: "exchange", env: []string{"GORUN_LOG=debug"}}, 0)
	for _, pair := range []string{"rank=0 .*peer=1", "rank=1 .*peer=2", "rank=2 .*peer=0"} {
		line := `\[DEBUG\] mpi: peer connected: .*` + pair + ` transport=shm eager-max=\d+ rendezvous=\S.* not-used=\S`
		if got := j.count(line); got != 1 {
			t.Errorf("%d lines about %s, want 1:\n%s", got, pair, j.err.String())
		}
	}
}
