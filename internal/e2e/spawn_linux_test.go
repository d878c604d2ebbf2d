package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/testkit/leak"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

func init() {
	role("spawn", func(_ context.Context, w *mpi.Comm) error { return spawnScenes[os.Args[1]](w) })
}

// spawnScenes are what ranks do that spawn others, and what these do: they are of the same program, and have a Parent.
var spawnScenes = map[string]func(w *mpi.Comm) error{
	"together": together, "twice": twice, "generations": generations, "fails": spawnFails, "refused": spawnRefused,
	"child fails": childFails, "outlive one": outliveOne, "outlive two": outliveTwo, "spawning is collective": spawnAlike,
	"replace": replaceDead, "long lines": longLines, "waits in both worlds": waitInBothWorlds,
	"dies in Init": childDiesInInit, "dies in Spawn": parentDiesInSpawn, "fails often": spawnFailsOften,
	"waits for a child": waitForAChild, "finalizes in vain": finalizeInVain,
}

// expect is an error unless ok.
func expect(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// talk has each rank of both groups send to each of the other group, and both groups make collective calls. The
// messages have n numbers.
func talk(inter *mpi.Comm, n int) error {
	const tag = 5
	mine := make([]int32, n)
	for i := range mine {
		mine[i] = int32(1000*inter.Rank() + i)
	}
	var set mpi.Set
	in := make([][]int32, inter.RemoteSize())
	for r := range in {
		in[r] = make([]int32, n)
		set.Add(mpi.Irecv(inter, in[r], r, tag))
	}
	for r := range in {
		set.Add(mpi.Isend(inter, mine, r, tag))
	}
	if err := set.Wait(); err != nil {
		return err
	}
	for r, got := range in {
		for i, v := range got {
			if want := int32(1000*r + i); v != want {
				return fmt.Errorf("number %d of remote rank %d is %d, want %d", i, r, v, want)
			}
		}
	}
	sum, err := mpi.AllreduceValue(inter, inter.Rank()+1, mpi.Sum[int])
	if err != nil {
		return err
	}
	far := inter.RemoteSize()
	return errors.Join(mpi.Barrier(inter), expect(sum == far*(far+1)/2, "the sum of %d remote ranks is %d", far, sum))
}

// merged merges both groups, parents first, and checks the order of the ranks.
func merged(inter *mpi.Comm, parent bool) (*mpi.Comm, error) {
	m, err := inter.Merge(!parent)
	if err != nil {
		return nil, err
	}
	want := inter.Rank()
	if !parent {
		want += inter.RemoteSize()
	}
	all, err := mpi.AllgatherValues(m, m.Rank())
	if err != nil {
		return nil, err
	}
	for r, v := range all {
		if v != r {
			return nil, fmt.Errorf("rank %d calls itself %d", r, v)
		}
	}
	return m, expect(m.Rank() == want && m.Size() == inter.Size()+inter.RemoteSize(), "rank %d of %d after Merge, want %d",
		m.Rank(), m.Size(), want)
}

// meetsParents is the part of a spawned rank in a talk.
func meetsParents(w *mpi.Comm, children, parents, n int) (*mpi.Comm, error) {
	p := mpi.Parent()
	if err := expect(p.IsInter() && p.Size() == children && w.Size() == children && p.Rank() == w.Rank() &&
		p.RemoteSize() == parents, "world: %d of %d, parent: %d of %d and %d", w.Rank(), w.Size(), p.Rank(), p.Size(),
		p.RemoteSize()); err != nil {
		return nil, err
	}
	return p, talk(p, n)
}

// putAround has each rank write into a window of the next one.
func putAround(c *mpi.Comm) error {
	w, err := mpi.WinAlloc[int32](c, 1)
	if err != nil {
		return err
	}
	n := c.Size()
	err = errors.Join(w.Fence(), w.Put([]int32{int32(c.Rank())}, (c.Rank()+1)%n, 0), w.Fence())
	got, want := w.Local()[0], int32((c.Rank()+n-1)%n)
	return errors.Join(err, w.Free(), expect(got == want, "the window has %d, want %d", got, want))
}

const spawnTalk = 1 << 16 // numbers: more than one eager message

// together: 2 ranks spawn 3, of which the one that is not the first is the root.
func together(w *mpi.Comm) error {
	if mpi.Parent() != nil {
		if err := expect(slices.Equal(os.Args[1:], []string{"together", "and more", ""}), "arguments %q",
			os.Args); err != nil {
			return err
		}
		p, err := meetsParents(w, 3, 2, spawnTalk)
		if err != nil {
			return err
		}
		m, err := merged(p, false)
		if err == nil {
			err = putAround(m)
		}
		if err == nil {
			dir, _ := os.Getwd()
			fmt.Printf("spawned rank %d of %d in %s\n", w.Rank(), w.Size(), dir)
		}
		return err
	}
	n, args := 3, []string{"together", "and more", ""}
	if w.Rank() == 0 {
		n, args = -7, nil // they count at the root
	}
	inter, err := mpi.Spawn(w, n, "", args, mpi.SpawnRoot(1), mpi.SpawnDir("/"))
	if err != nil {
		return err
	}
	if err := expect(inter.Size() == 2 && inter.RemoteSize() == 3 && inter.Rank() == w.Rank(), "%d of %d and %d",
		inter.Rank(), inter.Size(), inter.RemoteSize()); err != nil {
		return err
	}
	if err := errors.Join(talk(inter, spawnTalk), mpi.Barrier(w)); err != nil {
		return err
	}
	m, err := merged(inter, true)
	if err == nil {
		err = putAround(m)
	}
	if err != nil {
		return err
	}
	// What is of the two worlds does not go together.
	_, err1 := w.Group().Union(m.Group())
	_, err2 := w.Create(m.Group())
	if !errors.Is(err1, mpi.ErrGroup) || !errors.Is(err2, mpi.ErrGroup) {
		return fmt.Errorf("groups of two worlds: %v, %v", err1, err2)
	}
	if _, err := mpi.Self(w).Intercomm(0, m, 1-w.Rank(), 3); !errors.Is(err, mpi.ErrComm) {
		return fmt.Errorf("a bridge between two worlds: %v", err)
	}
	if same, err := mpi.Self(m).Compare(mpi.Self(w)); err != nil || same != mpi.Ident {
		return fmt.Errorf("two selves: %v, %v", same, err)
	}
	fmt.Printf("rank %d has spawned\n", w.Rank())
	return nil
}

func TestSpawn(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{nil, spawnHosts} {
		run(t, spec{n: 2, role: "spawn", args: []string{"together"}, flags: flags}, 0).counts(map[string]int{
			`^rank [01] has spawned$`: 2, `^spawned rank [012] of 3 in /$`: 3})
	}
}

// spawnHosts are flags for two hosts.
var spawnHosts = []string{"--launcher", "exec", "-H", "a,b"}

// A report is of the ranks of one world: the spawned ranks have a report of their own.
func TestSpawnWithReport(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run(t, spec{n: 2, role: "spawn", args: []string{"together"}, flags: []string{"--report", dir, "--output-dir",
		filepath.Join(dir, "out")}}, 0)
	for _, file := range []string{"report.html", "spawn.1/report.html", "out/rank.1.out", "out/spawn.1/rank.2.out"} {
		if st, err := os.Stat(filepath.Join(dir, file)); err != nil || st.Size() == 0 {
			t.Errorf("%s: %v", file, err)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "report.json"))
	calls := map[string]bool{`"Spawn"`: true, `"Merge"`: false} // which is of both worlds
	for call, want := range calls {
		if err != nil || strings.Contains(string(text), call) != want {
			t.Errorf("the report has %s: %v, %v", call, !want, err)
		}
	}
}

// The ranks meet under a launcher that knows nothing but PMI-1.
func TestSpawnUnderHydra(t *testing.T) {
	t.Parallel()
	run(t, spec{n: 2, role: "spawn", args: []string{"together"}, hydra: true}, 0).counts(map[string]int{
		`^rank [01] has spawned$`: 2, `^spawned rank [012] of 3 in /$`: 3})
}

// counts expects each pattern so often.
func (j *job) counts(want map[string]int) {
	j.t.Helper()
	for pattern, n := range want {
		if got := j.count(pattern); got != n {
			j.t.Errorf("%q is printed %d times, want %d:\n%s%s", pattern, got, n, clip(j.out.String()), clip(j.err.String()))
		}
	}
}

// twice: two spawns one after the other, then one by the ranks of the first and their parents.
func twice(w *mpi.Comm) error {
	if mpi.Parent() != nil {
		children, _ := strconv.Atoi(os.Args[2])
		parents, _ := strconv.Atoi(os.Args[3])
		p, err := meetsParents(w, children, parents, 100)
		if err != nil || os.Args[4] != "again" {
			return err
		}
		m, err := merged(p, false)
		if err != nil {
			return err
		}
		last, err := mpi.Spawn(m, 1, "", []string{"twice", "1", "3", ""})
		if err != nil {
			return err
		}
		return talk(last, 100)
	}
	first, err := mpi.Spawn(w, 1, "", []string{"twice", "1", "2", "again"})
	if err != nil {
		return err
	}
	second, err := mpi.Spawn(w, 2, "", []string{"twice", "2", "2", ""})
	if err != nil {
		return err
	}
	if err := errors.Join(talk(second, 100), talk(first, 100)); err != nil {
		return err
	}
	m, err := merged(first, true)
	if err != nil {
		return err
	}
	last, err := mpi.Spawn(m, 1, "", []string{"twice", "1", "3", ""})
	if err == nil {
		err = talk(last, 100)
	}
	if err == nil {
		err = first.Free()
	}
	if err == nil {
		fmt.Printf("rank %d has spawned\n", w.Rank())
	}
	return err
}

func TestSpawnTwice(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{nil, spawnHosts} {
		run(t, spec{n: 2, role: "spawn", args: []string{"twice"}, flags: flags}, 0).counts(map[string]int{
			`^rank [01] has spawned$`: 2})
	}
}

// generations: each rank spawns one that is one generation younger.
func generations(w *mpi.Comm) error {
	left, err := strconv.Atoi(os.Args[2])
	if err != nil {
		return err
	}
	if p := mpi.Parent(); p != nil {
		if err := talk(p, 10); err != nil {
			return err
		}
	}
	if left == 0 {
		fmt.Println("the last generation")
		return nil
	}
	inter, err := mpi.Spawn(w, 1, "", []string{"generations", strconv.Itoa(left - 1)})
	if err != nil {
		return err
	}
	return talk(inter, 10)
}

// Spawned ranks spawn others. Each job has its folder in --output-dir, and in the folders of reports and profiles.
func TestSpawnedRanksSpawn(t *testing.T) {
	t.Parallel()
	out, report, profile := t.TempDir(), t.TempDir(), t.TempDir()
	run(t, spec{n: 1, role: "spawn", args: []string{"generations", "3"}, env: []string{"GORUN_REPORT=" + report},
		flags: []string{"--output-dir", out, "--cpuprofile", profile}}, 0)
	for _, job := range []string{"", "spawn.1", "spawn.2", "spawn.3"} {
		text, err := os.ReadFile(filepath.Join(out, job, "rank.0.out"))
		if last := string(text) == "the last generation\n"; err != nil || last != (job == "spawn.3") {
			t.Errorf("rank 0 of %s has written %q, %v", job, text, err)
		}
		if _, err := os.Stat(filepath.Join(report, job, "report.json")); err != nil {
			t.Error(err)
		}
		if files, _ := filepath.Glob(filepath.Join(profile, job, "*.*")); len(files) == 0 {
			t.Errorf("there is no profile of %s", job)
		}
	}
}

// finalizeInVain: Finalize fails, since an operation is under way. Then a rank leaves the world of a Spawn as if it had
// not called Finalize: when all ranks have freed what was made of it.
func finalizeInVain(w *mpi.Comm) error {
	if p := mpi.Parent(); p != nil {
		return p.Free()
	}
	var before leak.Snapshot
	for turn := range 2 { // the first makes what stays
		inter, err := mpi.Spawn(w, 1, "", os.Args[1:])
		if err != nil {
			return err
		}
		if turn == 1 {
			r, err := mpi.Irecv(w, []byte{0}, 0, tagData)
			if err != nil {
				return err
			}
			if err := mpi.Finalize(); !errors.Is(err, mpi.ErrRequest) {
				return fmt.Errorf("Finalize with a receive under way: %w", err)
			}
			if err := mpi.Send(w, []byte{1}, 0, tagData); err != nil {
				return err
			}
			if _, err := r.Wait(); err != nil {
				return err
			}
		}
		if err := inter.Free(); err != nil {
			return err
		}
		if turn == 1 {
			return before.Check(20 * time.Second)
		}
		for len(newRanks()) > 0 { // it ends when its world does
			time.Sleep(time.Millisecond)
		}
		before = leak.Take()
	}
	return nil
}

func TestFinalizeInVain(t *testing.T) {
	t.Parallel()
	run(t, spec{n: 1, role: "spawn", args: []string{"finalizes in vain"}}, 0)
}

// spawnFails: what cannot be started is an error at all ranks, and the job goes on.
func spawnFails(w *mpi.Comm) error {
	for _, c := range []struct {
		n       int
		command string
		args    []string
		class   error
	}{
		{0, "", nil, mpi.ErrCount}, {-1, "", nil, mpi.ErrCount}, {1 << 40, "", nil, mpi.ErrCount},
		{2, "/no/such/program", nil, mpi.ErrSpawn}, {1, "/etc/passwd", nil, mpi.ErrSpawn},
		{1, "no-such-program-anywhere", nil, mpi.ErrSpawn},
		{2, os.Args[2], nil, mpi.ErrSpawn}, // no program the kernel knows
		{2, "true", nil, mpi.ErrSpawn}, {1, "false", nil, mpi.ErrSpawn},
		{2, "sleep", []string{"1000"}, mpi.ErrSpawn},
		{1, "sleep", []string{strings.Repeat("9", 1<<16)}, mpi.ErrSpawn},
	} {
		inter, err := mpi.Spawn(w, c.n, c.command, c.args)
		if inter != nil || !errors.Is(err, c.class) {
			return fmt.Errorf("%d of %s: %v, %v, want %v", c.n, c.command, inter, err, c.class)
		}
		if w.Rank() == 1 {
			fmt.Printf("%d %s %v: %v\n", c.n, filepath.Base(c.command), len(c.args), err)
		}
		if err := mpi.Barrier(w); err != nil {
			return err
		}
	}
	_, err := mpi.Spawn(w, 1, "", os.Args[1:], mpi.SpawnDir("/no/such/folder"))
	if !errors.Is(err, mpi.ErrSpawn) {
		return fmt.Errorf("a folder that is not there: %w", err)
	}
	if w.Rank() == 1 {
		fmt.Println("folder:", err)
	}
	return nil
}

func TestSpawnFails(t *testing.T) {
	t.Parallel()
	garbage := filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(garbage, []byte("\x00\x01\x02 no program"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{nil, spawnHosts} {
		spawnFailsOn(t, garbage, flags)
	}
}

func spawnFailsOn(t *testing.T, garbage string, flags []string) {
	t.Helper()
	run(t, spec{n: 2, role: "spawn", args: []string{"fails", garbage}, env: []string{"GORUN_TIMEOUT=3s"},
		flags: flags}, 0).says(
		`^0 \. 0: mpi: Spawn: .*start 1 at least`,
		`^1099511627776 \. 0: mpi: Spawn: .*one (Spawn|call) starts 65536 at most`,
		`^folder: mpi: Spawn: .*mpi.SpawnDir, which names a folder of each host: /no/such/folder: no such file`,
		`^2 program 0: mpi: Spawn: rank 0: the program "/no/such/program" cannot be started: no such file or `+
			`directory; give the path`,
		`^1 passwd 0: mpi: Spawn: .*permission denied`,
		`^1 no-such-program-anywhere 0: mpi: Spawn: .*not found`,
		`^2 garbage 0: mpi: Spawn: .*rank \d of spawn \d+ cannot be started: .*exec format error`,
		`^2 true 0: mpi: Spawn: .*rank \d of spawn \d .*exited with code 0 before .*Init`,
		`^1 false 0: mpi: Spawn: .*rank 0 of spawn \d .*exited with code 1 before .*Init`,
		`^2 sleep 1: mpi: Spawn: .*not all of the 2 processes have called Init within 3s .*; `+
			`Spawn starts programs that call mpi\.Main or mpi\.Init`,
		`^1 sleep 1: mpi: Spawn: .*argument 1 has 65538 bytes, and PMI-1 carries \d+: pass long data by a file`)
}

// spawnRefused: there is no launcher that starts ranks.
func spawnRefused(w *mpi.Comm) error {
	_, err := mpi.Spawn(w, 1, "", nil)
	if w.Rank() == 0 {
		fmt.Printf("unavailable %v: %v\n", errors.Is(err, mpi.ErrUnavailable), err)
	}
	return nil
}

func TestSpawnIsRefused(t *testing.T) {
	t.Parallel()
	args := []string{"refused"}
	run(t, spec{bare: true, role: "spawn", args: args}, 0).says(`^unavailable true: mpi: Spawn: .*gorun -n N`)
}

// spawnAlike: ranks that do not call Spawn alike get an error, and nothing is started.
func spawnAlike(w *mpi.Comm) error {
	_, err := mpi.Spawn(w, 1, "", []string{"none"}, mpi.SpawnRoot(w.Rank()))
	if !errors.Is(err, mpi.ErrComm) {
		return fmt.Errorf("two roots: %w", err)
	}
	if _, err = mpi.Spawn(w, 1, "", []string{"none"}, mpi.SpawnRoot(2)); !errors.Is(err, mpi.ErrRoot) {
		return fmt.Errorf("a root that is not there: %w", err)
	}
	if w.Rank() == 0 {
		_, err = mpi.Spawn(w, 1, "", []string{"none"})
	} else {
		_, err = w.Dup()
	}
	if !errors.Is(err, mpi.ErrComm) {
		return fmt.Errorf("Spawn and Dup: %w", err)
	}
	return nil
}

func TestSpawnIsCollective(t *testing.T) {
	t.Parallel()
	run(t, spec{n: 2, role: "spawn", args: []string{"spawning is collective"}}, 0)
}

// childFails: a rank of the job ends badly while others wait for it. os.Args: how, and where.
func childFails(w *mpi.Comm) error {
	how, parentFails := os.Args[2], os.Args[3] == "parent"
	inter := mpi.Parent()
	child := inter != nil
	if !child {
		var err error
		if inter, err = mpi.Spawn(w, 2, "", os.Args[1:]); err != nil {
			return err
		}
	}
	if err := talk(inter, 10); err != nil {
		return err
	}
	if child != parentFails && w.Rank() == 1 {
		switch how {
		case "die":
			die()
		case "error":
			return errors.New("the solver diverged")
		case "exit":
			os.Exit(0)
		}
	}
	c := inter
	if child != parentFails { // the other rank of the same world
		c = w
	}
	_, err := mpi.Recv(c, []byte{0}, 1, tagData)
	return fmt.Errorf("a consequence: %w", err)
}

// The end of a rank, of whatever world, is the end of the job, and is blamed by its name.
func TestDeathOfASpawnedRank(t *testing.T) {
	t.Parallel()
	for how, want := range map[string]struct {
		code int
		line string // %s: the rank
	}{
		"die":   {137, `gorun: %s \(pid \d+ on host \S+\) was killed by signal 9 \(killed\); the job is stopped`},
		"error": {1, `%s on \S+: the solver diverged`},
		"exit":  {1, `gorun: %s \(pid \d+ on host \S+\) exited with code 0 without calling Finalize; the job is stopped`},
	} {
		for who, name := range map[string]string{"child": "rank 1 of spawn 1", "parent": "rank 1"} {
			for hosts, flags := range map[string][]string{"one host": nil, "hosts": spawnHosts} {
				t.Run(who+" "+how+" "+hosts, func(t *testing.T) {
					t.Parallel()
					run(t, spec{n: 2, role: "spawn", args: []string{"child fails", how, who}, flags: flags}, want.code).
						lastLine(fmt.Sprintf(want.line, name))
				})
			}
		}
	}
}

// outliveOne: with --enable-recovery the others go on without a rank that dies. os.Args: whether it is the root of the
// Spawn, which serves the ranks of both sides, or a child.
func outliveOne(w *mpi.Comm) error {
	inter, err := mpi.Parent(), error(nil)
	child := inter != nil
	if !child {
		if inter, err = mpi.Spawn(w, 3, "", os.Args[1:]); err != nil {
			return err
		}
	}
	if err := talk(inter, 10); err != nil {
		return err
	}
	if err := mpi.Barrier(w); err != nil { // the ranks of a world have met too, on whatever hosts they are
		return err
	}
	dead, childDies := 0, os.Args[2] == "child"
	if childDies {
		dead = 1
	}
	from := inter
	if child == childDies {
		if from = w; w.Rank() == dead {
			die()
		}
	}
	if _, err := mpi.Recv(from, []byte{0}, dead, tagData); !errors.Is(err, mpi.ErrPeerFailed) {
		return fmt.Errorf("the receive from the rank that died: %w", err)
	}
	rest, err := inter.Shrink()
	if err != nil {
		return err
	}
	if err := talk(rest, 10); err != nil {
		return err
	}
	fmt.Printf("goes on: %d and %d\n", rest.Size(), rest.RemoteSize())
	return nil
}

func TestRecoveryOfSpawnedRanks(t *testing.T) {
	t.Parallel()
	for who, want := range map[string]map[string]int{
		"child": {`^goes on: 2 and 2$`: 4, `rank 1 of spawn 1 .*; the job goes on without it$`: 1},
		"root":  {`^goes on: 1 and 3$`: 1, `^goes on: 3 and 1$`: 3, `^gorun: rank 0 \(.*; the job goes on without it$`: 1},
	} {
		for hosts, flags := range map[string][]string{"one host": nil, "hosts": spawnHosts} {
			t.Run(who+" "+hosts, func(t *testing.T) {
				t.Parallel()
				flags := append([]string{"--enable-recovery"}, flags...)
				j := run(t, spec{n: 2, role: "spawn", args: []string{"outlive one", who}, flags: flags}, 137)
				j.counts(want)
				j.counts(map[string]int{`the job goes on without it$`: 1})
			})
		}
	}
}

// outliveTwo: the root of a Spawn dies, which serves the ranks of both sides and would tell of other deaths, and then a
// caller that no rank has exchanged anything with since. Who waits for that one hears of its end all the same.
func outliveTwo(w *mpi.Comm) error {
	const root, second = 0, 2
	inter, err := mpi.Parent(), error(nil)
	if inter == nil {
		if inter, err = mpi.Spawn(w, 2, "", os.Args[1:]); err != nil {
			return err
		}
		switch w.Rank() {
		case root:
			for child := range 2 {
				if _, err := mpi.Recv(inter, []byte{0}, child, tagGo); err != nil {
					return err
				}
			}
			if _, err := mpi.Recv(w, []byte{0}, second, tagGo); err != nil {
				return err
			}
			die()
		case second:
			if err := mpi.Send(w, []byte{0}, root, tagGo); err != nil {
				return err
			}
			if _, err := mpi.Recv(w, []byte{0}, root, tagData); !errors.Is(err, mpi.ErrPeerFailed) {
				return fmt.Errorf("the receive from the root: %w", err)
			}
			die()
		}
	} else {
		if err := mpi.Send(inter, []byte{0}, root, tagGo); err != nil {
			return err
		}
		if _, err := mpi.Recv(inter, []byte{0}, second, tagData); !errors.Is(err, mpi.ErrPeerFailed) {
			return fmt.Errorf("the receive from the second rank: %w", err)
		}
	}
	if err := mpi.Barrier(inter); !errors.Is(err, mpi.ErrPeerFailed) {
		return fmt.Errorf("the barrier: %w", err)
	}
	fmt.Println("goes on")
	return nil
}

func TestSpawnedRanksOutliveTheRootAndAnother(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ env, flags []string }{
		"shm": {}, "tcp": {env: []string{"GORUN_TRANSPORTS=tcp"}}, "hosts": {flags: spawnHosts}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, spec{n: 3, role: "spawn", args: []string{"outlive two"}, env: c.env,
				flags: append([]string{"--enable-recovery"}, c.flags...)}, 137).
				counts(map[string]int{`^goes on$`: 3, `the job goes on without it$`: 2})
		})
	}
}

// replaceDead: the ranks that live have one started in the place of a dead one.
func replaceDead(w *mpi.Comm) error {
	if mpi.Parent() != nil {
		m, err := merged(mpi.Parent(), false)
		if err != nil {
			return err
		}
		fmt.Printf("rank %d of %d\n", m.Rank(), m.Size())
		return mpi.Barrier(m)
	}
	if err := mpi.Barrier(w); err != nil {
		return err
	}
	if w.Rank() == 1 {
		for _, other := range []int{0, 2} { // they are through the barrier
			if _, err := mpi.Recv(w, []byte{0}, other, tagGo); err != nil {
				return err
			}
		}
		die()
	}
	if err := mpi.Send(w, []byte{1}, 1, tagGo); err != nil {
		return err
	}
	if _, err := mpi.Recv(w, []byte{0}, 1, tagData); !errors.Is(err, mpi.ErrPeerFailed) {
		return fmt.Errorf("the receive from the rank that died: %w", err)
	}
	living, err := w.Shrink()
	if err != nil {
		return err
	}
	inter, err := mpi.Spawn(living, 1, "", os.Args[1:])
	if err != nil {
		return err
	}
	m, err := merged(inter, true)
	if err != nil {
		return err
	}
	fmt.Printf("rank %d of %d\n", m.Rank(), m.Size())
	return mpi.Barrier(m)
}

func TestSpawnInThePlaceOfADeadRank(t *testing.T) {
	t.Parallel()
	j := run(t, spec{n: 3, role: "spawn", args: []string{"replace"}, flags: []string{"--enable-recovery"}}, 137)
	j.counts(map[string]int{`^rank [012] of 3$`: 3})
}

// Spawned ranks end when the user ends the job, and when gorun is killed.
func TestSpawnedRanksEndWithGorun(t *testing.T) {
	t.Parallel()
	for s, code := range map[syscall.Signal]int{syscall.SIGKILL: -1, syscall.SIGINT: 130} {
		for hosts, flags := range map[string][]string{"one host": nil, "hosts": {"--launcher", "exec", "-H", "a"}} {
			t.Run(s.String()+" "+hosts, func(t *testing.T) {
				t.Parallel()
				j := start(t, spec{n: 1, role: "spawned sleep", flags: flags})
				proc.Eventually(t, "two spawned ranks that are ready", func() bool { return j.count(`^ready$`) == 2 })
				j.cmd.Process.Signal(s)
				j.wait(code)
			})
		}
	}
}

func init() {
	role("spawned sleep", func(_ context.Context, w *mpi.Comm) error {
		inter := mpi.Parent()
		if inter != nil {
			fmt.Println("ready")
		} else {
			var err error
			if inter, err = mpi.Spawn(w, 2, "", nil); err != nil {
				return err
			}
		}
		_, err := mpi.Recv(inter, []byte{0}, 0, tagData)
		return err
	})
}

func init() {
	role("spawned daemon", func(_ context.Context, w *mpi.Comm) error {
		inter := mpi.Parent()
		if inter == nil {
			var err error
			if inter, err = mpi.Spawn(w, 1, "", os.Args[1:]); err != nil {
				return err
			}
		} else {
			daemon := exec.Command("sleep", "1000")
			daemon.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			if err := daemon.Start(); err != nil {
				return err
			}
			fmt.Println("ready")
		}
		if os.Args[1] == "ends" {
			return nil
		}
		_, err := mpi.Recv(inter, []byte{0}, 0, tagData)
		return err
	})
}

// What a spawned rank has started ends with the job, and when gorun is killed: in a job of one host, and where gorun
// starts the spawned rank itself and has agents start the others.
func TestChildrenOfSpawnedRanksEnd(t *testing.T) {
	t.Parallel()
	here, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for hosts, flags := range map[string][]string{"one host": nil, "hosts": {"--launcher", "exec", "-H", here + ",b"}} {
		t.Run(hosts, func(t *testing.T) {
			t.Parallel()
			s := spec{n: 2, role: "spawned daemon", args: []string{"ends"}, flags: flags}
			run(t, s, 0).counts(map[string]int{`^ready$`: 1})
			s.args = []string{"stays"}
			j := start(t, s)
			proc.Eventually(t, "a spawned rank that is ready", func() bool { return j.count(`^ready$`) == 1 })
			cleaners := 2 // of the job and the spawned one
			if flags != nil {
				cleaners = 3 // of two agents and of the spawned job
			}
			proc.Eventually(t, "the cleaners", func() bool {
				return len(proc.List(func(p proc.Info) bool {
					return p.Exe() == j.launcher && len(p.Args()) == 2 && p.Args()[1] == "__cleaner"
				})) == cleaners
			})
			j.cmd.Process.Kill()
			j.wait(-1)
		})
	}
}

// longLines: all ranks of both worlds print at the same time.
func longLines(w *mpi.Comm) error {
	inter, name := mpi.Parent(), "a"
	if inter == nil {
		var err error
		if inter, err = mpi.Spawn(w, 1, "", os.Args[1:]); err != nil {
			return err
		}
	} else {
		name = "b"
	}
	if err := mpi.Barrier(inter); err != nil {
		return err
	}
	for i := range 500 {
		fmt.Printf("<%s>\n", strings.Repeat(name, 1000+i))
	}
	return nil
}

// A line of a spawned rank and a line of another rank do not tear each other, also where both wait for the reader. A
// tag says of which world a rank is.
func TestLinesOfSpawnedRanks(t *testing.T) {
	t.Parallel()
	tagged := map[string]int{`(?m)^\[[01]\] <a+>$`: 1000, `(?m)^\[0 of spawn 1\] <b+>$`: 500}
	for flag, want := range map[string]map[string]int{
		"--tag-output=false": {`(?m)^<a+>$`: 1000, `(?m)^<b+>$`: 500},
		"--tag-output":       tagged,
		"--tag-output " + strings.Join(spawnHosts, " "): tagged,
	} {
		cmd := exec.Command(proc.Gorun(t), append(strings.Fields(flag), "-n", "2", program(t, ""), "long lines")...)
		cmd.Env = append(os.Environ(), proc.RoleVar+"=spawn")
		text, err := readSlowly(cmd)
		if err != nil {
			t.Fatal(err)
		}
		for pattern, want := range want {
			if got := len(regexp.MustCompile(pattern).FindAll(text, -1)); got != want {
				t.Errorf("%s: %d lines are %s, want %d", flag, got, pattern, want)
			}
		}
	}
}

// readSlowly runs a command whose output is read more slowly than it comes.
func readSlowly(cmd *exec.Cmd) (text []byte, err error) {
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	for piece := make([]byte, 4<<10); err == nil; {
		var n int
		n, err = out.Read(piece)
		text = append(text, piece[:n]...)
		time.Sleep(time.Millisecond)
	}
	if err == io.EOF {
		err = nil
	}
	return text, errors.Join(err, cmd.Wait())
}

// waitInBothWorlds: a rank that waits in one world does what ranks wait for in the other one.
func waitInBothWorlds(w *mpi.Comm) error {
	const long = 4 << 20
	b := make([]byte, long)
	inter := mpi.Parent()
	if inter != nil {
		if _, err := mpi.Recv(inter, b, 0, tagData); err != nil { // rank 0 waits in the other world
			return err
		}
		return mpi.Send(inter, b, 1, tagData)
	}
	inter, err := mpi.Spawn(w, 1, "", os.Args[1:])
	if err != nil {
		return err
	}
	if w.Rank() == 0 {
		r, err := mpi.Isend(inter, b, 0, tagData)
		if err != nil {
			return err
		}
		_, err = mpi.Recv(w, b[:1:1], 1, tagGo)
		_, err2 := r.Wait()
		return errors.Join(err, err2)
	}
	if _, err := mpi.Recv(inter, b, 0, tagData); err != nil {
		return err
	}
	return mpi.Send(w, []byte{1}, 0, tagGo)
}

func TestProgressInBothWorlds(t *testing.T) {
	t.Parallel()
	for _, transports := range []string{"shm", "tcp"} {
		t.Run(transports, func(t *testing.T) {
			t.Parallel()
			run(t, spec{n: 2, role: "spawn", args: []string{"waits in both worlds"},
				env: []string{"GORUN_TRANSPORTS=" + transports}}, 0)
		})
	}
}

// childDiesInInit: of two spawned ranks one dies when gorun knows of it, before or after the barrier of its own world,
// and before it has met the others. Or both go on, and are of no program that meets others. os.Args: before, after or
// stuck.
func childDiesInInit(w *mpi.Comm) error {
	if mpi.Parent() != nil {
		return errors.New("the ranks have met")
	}
	const script = `if [ "$PMI_RANK" = 1 ] || [ "$WHEN" = stuck ]; then
			echo cmd=init pmi_version=1 pmi_subversion=1 >&$PMI_FD; read answer <&$PMI_FD
			[ "$WHEN" = before ] || { echo cmd=barrier_in >&$PMI_FD; read answer <&$PMI_FD; }
			[ "$WHEN" != stuck ] || exec sleep 12346
			sleep 0.3; kill -9 $$
		fi; exec "$@"`
	self, err := os.Executable()
	if err != nil {
		return err
	}
	inter, err := mpi.Spawn(w, 2, "sh", append([]string{"-c", "WHEN=" + os.Args[2] + "\n" + script, "sh", self},
		os.Args[1:]...), mpi.SpawnRoot(1))
	if inter != nil || !errors.Is(err, mpi.ErrSpawn) {
		return fmt.Errorf("a spawned rank dies in Init: %v, %w", inter, err)
	}
	fmt.Printf("goes on: %v\n", err)
	for len(ofJob("12346")) > 0 { // gorun kills what is left
		time.Sleep(time.Millisecond)
	}
	return mpi.Barrier(w)
}

// ofJob are the processes of this process's job that have an argument.
func ofJob(arg string) []proc.Info {
	mark := markVar + "=" + os.Getenv(markVar)
	return proc.List(func(p proc.Info) bool { return slices.Contains(p.Args(), arg) && slices.Contains(p.Env(), mark) })
}

func TestSpawnedRankThatDiesInInit(t *testing.T) {
	t.Parallel()
	for when, what := range map[string]string{"before": "called Init", "after": "met the ranks that called Spawn"} {
		for _, flags := range [][]string{nil, {"--enable-recovery"}, spawnHosts,
			append([]string{"--enable-recovery"}, spawnHosts...)} {
			run(t, spec{n: 2, role: "spawn", args: []string{"dies in Init", when}, flags: flags}, 0).counts(map[string]int{
				`^goes on: mpi: Spawn: .*rank 1 of spawn 1 .*killed by signal 9 .*before all 2 had ` + what: 2})
		}
	}
	stuck := spec{n: 2, role: "spawn", args: []string{"dies in Init", "stuck"}, env: []string{"GORUN_TIMEOUT=2s"}}
	run(t, stuck, 0).counts(
		map[string]int{`^goes on: mpi: Spawn: .* within 2s \(GORUN_TIMEOUT\)`: 2})
}

func init() {
	role("spawned rank is to blame", func(_ context.Context, w *mpi.Comm) error {
		inter := mpi.Parent()
		if inter == nil {
			var err error
			if inter, err = mpi.Spawn(w, 2, "", nil); err != nil {
				return err
			}
			_, err = mpi.Recv(inter, []byte{0}, 1, tagData)
			if !errors.Is(err, mpi.ErrPeerFailed) {
				return fmt.Errorf("the receive from the rank that died: %w", err)
			}
			os.Exit(3)
		}
		if w.Rank() == 1 { // what watches this rank hears of its death late
			watcher := os.Getppid()
			wake := exec.Command("sh", "-c", fmt.Sprintf("sleep 0.5; kill -CONT %d", watcher))
			wake.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			if err := wake.Start(); err != nil {
				return err
			}
			syscall.Kill(watcher, syscall.SIGSTOP)
			die()
		}
		_, err := mpi.Recv(inter, []byte{0}, 0, tagData)
		return err
	})
}

// A rank that exits because a spawned one has died is not blamed, also where gorun hears of the death later.
func TestSpawnedRankIsToBlame(t *testing.T) {
	t.Parallel()
	flags := append([]string{"--allow-unused-hosts"}, spawnHosts...)
	run(t, spec{n: 1, role: "spawned rank is to blame", flags: flags}, 137).lastLine(
		`gorun: rank 1 of spawn 1 \(pid \d+ on host b\) was killed by signal 9 \(killed\); the job is stopped`)
}

func init() {
	roles["spawn what dies at its second barrier"] = func() error {
		mpi.Main(func(_ context.Context, w *mpi.Comm) error {
			if mpi.Parent() != nil {
				return errors.New("this rank is through Init")
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			inter, err := mpi.Spawn(w, 2, "env", []string{proc.RoleVar + "=dies at its second barrier", self})
			if inter != nil || !errors.Is(err, mpi.ErrSpawn) {
				return fmt.Errorf("a spawned rank dies after it has met the others: %v, %w", inter, err)
			}
			fmt.Printf("goes on: %v\n", err)
			return mpi.Barrier(w)
		})
		return nil
	}
	roles["dies at its second barrier"] = func() error {
		return betweenBarriers("spawn what dies at its second barrier", func(rank *os.Process) {
			if os.Getenv("PMI_RANK") == "1" {
				rank.Kill()
				rank.Wait()
				os.Exit(9)
			}
		}, func() {})
	}
	roles["spawn what loses its parents"] = func() error {
		mpi.Main(func(_ context.Context, w *mpi.Comm) error {
			if mpi.Parent() != nil {
				return errors.New("this rank is through Init")
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			pids, err := mpi.AllgatherValues(w, os.Getpid())
			if err != nil {
				return err
			}
			_, err = mpi.Spawn(w, 2, "env", []string{proc.RoleVar + "=loses its parents",
				"PARENTS=" + strings.Trim(fmt.Sprint(pids), "[]"), self})
			return fmt.Errorf("this rank lives: %w", err)
		})
		return nil
	}
	roles["loses its parents"] = func() error {
		return betweenBarriers("spawn what loses its parents", func(*os.Process) {}, func() {
			if os.Getenv("PMI_RANK") == "0" { // the callers wait for it, as it waits for them
				for _, pid := range strings.Fields(os.Getenv("PARENTS")) {
					syscall.Kill(mustAtoi(pid), syscall.SIGKILL)
				}
			}
		})
	}
}

// betweenBarriers runs a rank in a process of its own, and takes part in what that and gorun say to each other. It
// calls enters before it passes on that the rank enters its second barrier, and leaves before it passes on that the
// rank may leave that.
func betweenBarriers(role string, enters func(rank *os.Process), leaves func()) error {
	fd, err := strconv.Atoi(os.Getenv("PMI_FD"))
	if err != nil {
		return err
	}
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	gorun, near, far := os.NewFile(uintptr(fd), "gorun"), os.NewFile(uintptr(pair[0]), "near"),
		os.NewFile(uintptr(pair[1]), "far")
	rank := exec.Command("/proc/self/exe")
	rank.Env = append(os.Environ(), proc.RoleVar+"="+role, "PMI_FD=3")
	rank.ExtraFiles, rank.Stderr = []*os.File{far}, os.Stderr
	if err := rank.Start(); err != nil {
		return err
	}
	far.Close()
	pass := func(to, from *os.File, what string, second func()) {
		seen := 0
		for lines := bufio.NewScanner(from); lines.Scan(); {
			if strings.HasPrefix(lines.Text(), what) {
				if seen++; seen == 2 {
					second()
				}
			}
			fmt.Fprintln(to, lines.Text())
		}
	}
	go pass(near, gorun, "cmd=barrier_out", leaves)
	pass(gorun, near, "cmd=barrier_in", func() { enters(rank.Process) })
	return rank.Wait()
}

// A spawned rank that dies before all are through Init has Spawn fail, also when it has met all others.
func TestSpawnedRankThatDiesAtTheEndOfInit(t *testing.T) {
	t.Parallel()
	run(t, spec{n: 2, role: "spawn what dies at its second barrier", env: []string{"GORUN_TRANSPORTS=tcp"}}, 0).counts(
		map[string]int{`^goes on: mpi: Spawn: .*rank 1 of spawn 1 .*exited with code 9 before all 2 had met`: 2})
}

// Spawned ranks all of whose callers die at the end of the call end too, and have not failed: they have no Parent.
func TestSpawnedInVain(t *testing.T) {
	t.Parallel()
	run(t, spec{n: 2, role: "spawn what loses its parents", flags: []string{"--enable-recovery"}}, 137).counts(
		map[string]int{`this rank was spawned in vain: the ranks that have started it have given up`: 2,
			`of spawn 1`: 0, `this rank lives`: 0})
}

// parentDiesInSpawn: the root dies while the processes start.
func parentDiesInSpawn(w *mpi.Comm) error {
	if w.Rank() == 1 {
		go func() {
			for len(ofJob("12345")) < 2 {
				time.Sleep(time.Millisecond)
			}
			die()
		}()
	}
	inter, err := mpi.Spawn(w, 2, "sleep", []string{"12345"}, mpi.SpawnRoot(1))
	if inter != nil || err == nil {
		return errors.New("the ranks have met")
	}
	if w.Rank() == 1 || !errors.Is(err, mpi.ErrPeerFailed) {
		return err
	}
	fmt.Printf("goes on: %v\n", err)
	return nil
}

func TestParentThatDiesInSpawn(t *testing.T) {
	t.Parallel()
	for hosts, flags := range map[string][]string{"one host": nil, "hosts": spawnHosts} {
		s := spec{n: 3, role: "spawn", args: []string{"dies in Spawn"}, env: []string{"GORUN_TIMEOUT=1h"}} // no need to wait
		t.Run("stopped "+hosts, func(t *testing.T) {
			t.Parallel()
			s := s
			s.flags = flags
			run(t, s, 137).lastLine(`gorun: rank 1 \(pid \d+ on host \S+\) was killed by signal 9 \(killed\); ` +
				`the job is stopped`)
		})
		t.Run("recovery "+hosts, func(t *testing.T) {
			t.Parallel()
			s := s
			s.flags = append([]string{"--enable-recovery"}, flags...)
			run(t, s, 137).counts(map[string]int{`^goes on: `: 2})
		})
	}
}

// spawnFailsOften: what has failed leaves nothing at gorun.
func spawnFailsOften(w *mpi.Comm) error {
	count := func() (n int) {
		for _, of := range []string{"fd", "task"} {
			l, _ := os.ReadDir(fmt.Sprintf("/proc/%d/%s", os.Getppid(), of))
			n += len(l)
		}
		return n
	}
	fail := func(times int) error {
		for range times {
			if _, err := mpi.Spawn(w, 2, "true", nil); !errors.Is(err, mpi.ErrSpawn) {
				return fmt.Errorf("true is spawned: %w", err)
			}
		}
		return nil
	}
	if err := fail(5); err != nil {
		return err
	}
	before := count()
	if err := fail(40); err != nil {
		return err
	}
	for end := time.Now().Add(time.Minute); count() > before+20; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("gorun had %d descriptors and threads after 5 spawns, and has %d after 45", before, count())
		}
	}
	return nil
}

func TestSpawnsThatFailLeaveNothing(t *testing.T) {
	t.Parallel()
	run(t, spec{n: 1, role: "spawn", args: []string{"fails often"}}, 0)
}

// waitForAChild: all ranks of a world wait for each other, and by another goroutine for a spawned rank, which has them
// go on.
func waitForAChild(w *mpi.Comm) error {
	if p := mpi.Parent(); p != nil {
		time.Sleep(sleepOf())
		return errors.Join(mpi.Send(p, []byte{1}, 0, tagGo), mpi.Send(p, []byte{1}, 1, tagGo))
	}
	inter, err := mpi.Spawn(w, 1, "", os.Args[1:])
	if err != nil {
		return err
	}
	other := make(chan error, 1)
	go func() {
		_, err := mpi.Recv(inter, []byte{0}, 0, tagGo)
		other <- errors.Join(err, mpi.Send(w, []byte{1}, 1-w.Rank(), tagData))
	}()
	_, err = mpi.Recv(w, []byte{0}, 1-w.Rank(), tagData)
	return errors.Join(err, <-other)
}

// A job whose ranks wait for a spawned one does not stand.
func TestJobThatWaitsForASpawnedRank(t *testing.T) {
	t.Parallel()
	j := run(t, spec{n: 2, role: "spawn", args: []string{"waits for a child"}, flags: []string{"--stall", "500ms"},
		env: []string{"WAITS_SLEEP=3s"}}, 0)
	j.counts(map[string]int{"can move": 0})
}

func init() {
	roles["spawn is given up"] = giveUpSpawn
}

// giveUpSpawn: the context of a Spawn ends, and the program calls Finalize, while the process is on its way to Init.
func giveUpSpawn() error {
	w, err := mpi.Init()
	if err != nil {
		return err
	}
	if mpi.Parent() != nil {
		time.Sleep(300 * time.Millisecond)
		fmt.Println("spawned at", time.Now().UnixNano())
		return mpi.Finalize()
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err = mpi.Spawn(w.WithContext(ctx), 1, "sh", []string{"-c", "sleep 1; exec " + self})
	if !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("a Spawn that is given up: %w", err)
	}
	err = mpi.Finalize()
	fmt.Println("left at", time.Now().UnixNano())
	return err
}

// A Spawn whose caller has given it up is carried out, and Finalize waits for its ranks.
func TestSpawnThatIsGivenUp(t *testing.T) {
	t.Parallel()
	j := run(t, spec{n: 2, role: "spawn is given up"}, 0)
	spawned, left := j.find(`^spawned at (\d+)$`), j.find(`^left at (\d+)$`)
	if len(spawned) != 1 || len(left) != 2 || min(left[0][1], left[1][1]) < spawned[0][1] {
		t.Errorf("the ranks print\n%s", j.out.String())
	}
}
