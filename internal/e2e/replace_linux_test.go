package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/pmi"
	"github.com/gorun-mpi/mpi/internal/testkit/leak"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

func init() {
	role("replace", func(_ context.Context, w *mpi.Comm) error { return replaceScenes[os.Args[1]](w) })
}

// replaceScenes are what ranks do some of which die. A rank that was started in the place of another one is new.
var replaceScenes = map[string]func(w *mpi.Comm) error{
	"once": replaceOnce, "turns": replaceInTurns, "refused": replaceIsRefused, "meanwhile": dieInReplace,
	"random": replaceAtRandom, "none": replaceNone, "host": replaceHost, "returned": replaceReturned,
	"returned late": replaceReturnedLate,
}

// isNew reports whether this rank was started in the place of another one.
func isNew() bool { return os.Getenv(pmi.EnvSpawned) == "1" }

// whole checks a communicator that Replace has returned, which has n ranks, and this one in its old place.
func whole(c *mpi.Comm, n, place int) error {
	if err := expect(c.Size() == n && c.Rank() == place, "rank %d of %d, want %d of %d", c.Rank(), c.Size(), place,
		n); err != nil {
		return err
	}
	if err := expect(mpi.Parent() == nil, "this rank has parents"); err != nil {
		return err
	}
	all, err := mpi.AllgatherValues(c, place)
	if err != nil {
		return err
	}
	for r, v := range all {
		if v != r {
			return fmt.Errorf("rank %d calls itself %d", r, v)
		}
	}
	big := make([]int32, spawnTalk)
	for i := range big {
		big[i] = int32(i + place)
	}
	if err := mpi.Allreduce(c, nil, big, mpi.Sum); err != nil {
		return err
	}
	for i, v := range big {
		if want := int32(n*i + n*(n-1)/2); v != want {
			return fmt.Errorf("the sum is %d in place %d, want %d", v, i, want)
		}
	}
	return putAround(c)
}

// fall has some ranks of c die, after all have been in a barrier. The others hear of it and revoke c.
func fall(c *mpi.Comm, dead []int) error {
	if err := mpi.Barrier(c); err != nil {
		return err
	}
	if slices.Contains(dead, c.Rank()) {
		for r := range c.Size() {
			if !slices.Contains(dead, r) {
				if _, err := mpi.Recv(c, []byte{0}, r, tagGo); err != nil {
					return err
				}
			}
		}
		die()
	}
	for _, r := range dead {
		if err := mpi.Send(c, []byte{1}, r, tagGo); err != nil && !errors.Is(err, mpi.ErrPeerFailed) {
			return err
		}
	}
	for _, r := range dead {
		if _, err := mpi.Recv(c, []byte{0}, r, tagData); !errors.Is(err, mpi.ErrPeerFailed) &&
			!errors.Is(err, mpi.ErrRevoked) {
			return fmt.Errorf("the receive from the rank that died: %w", err)
		}
	}
	return c.Revoke()
}

// numbers reads "0,2".
func numbers(text string) (list []int, err error) {
	for _, f := range strings.Split(text, ",") {
		n, err := strconv.Atoi(f)
		if err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, nil
}

// replaceOnce: os.Args has the ranks that die, and how many ranks there are.
func replaceOnce(w *mpi.Comm) error {
	dead, err := numbers(os.Args[2])
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(os.Args[3])
	if err != nil {
		return err
	}
	c, place := w, w.Rank()
	if !isNew() {
		if err = fall(w, dead); err == nil {
			c, err = w.Replace()
		}
	} else if !slices.Contains(dead, place) {
		err = fmt.Errorf("a new rank has place %d", place)
	}
	if err == nil {
		err = whole(c, n, place)
	}
	if err == nil {
		fmt.Printf("rank %d goes on, new: %v, on %s\n", place, isNew(), c.Name())
	}
	return err
}

func TestReplace(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		n     int
		dead  string
		flags []string
		env   []string
	}{
		"one":             {n: 3, dead: "1"},
		"rank 0":          {n: 3, dead: "0"},
		"rank 0, tcp":     {n: 3, dead: "0", env: []string{"GORUN_TRANSPORTS=tcp"}},
		"two":             {n: 4, dead: "0,2"},
		"all but one":     {n: 4, dead: "0,1,3"},
		"two, hosts":      {n: 4, dead: "0,3", flags: spawnHosts},
		"one, recovery":   {n: 2, dead: "1", flags: []string{"--enable-recovery"}},
		"one of a report": {n: 3, dead: "2", flags: []string{"--report", t.TempDir()}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			deaths := len(strings.Split(c.dead, ","))
			j := run(t, spec{n: c.n, role: "replace", args: []string{"once", c.dead, strconv.Itoa(c.n)}, env: c.env,
				flags: append([]string{"--respawn", strconv.Itoa(deaths)}, c.flags...)}, 0)
			j.counts(map[string]int{
				`^rank \d goes on, new: true, on world\.replaced1$`:  deaths,
				`^rank \d goes on, new: false, on world\.replaced1$`: c.n - deaths,
				`^gorun: rank \d \(.*; the job goes on, and Replace (may start it again ` +
					`\(--respawn: \d of \d starts left\)|starts it again)$`: deaths,
				`^gorun: rank \d has been started again on \S+ \(start \d of --respawn \d\)$`:         deaths,
				`^gorun: all ranks that died were started again, and the job has ended well: rank \d`: 1,
			})
		})
	}
}

// replaceHost: the ranks from 2 on have never come.
func replaceHost(w *mpi.Comm) error {
	c, place, n := w, w.Rank(), w.Size()
	if !isNew() {
		if _, err := mpi.Recv(w, []byte{0}, 2, tagData); !errors.Is(err, mpi.ErrPeerFailed) &&
			!errors.Is(err, mpi.ErrRevoked) {
			return fmt.Errorf("the receive from the rank that is not there: %w", err)
		}
		if err := w.Revoke(); err != nil {
			return err
		}
		var err error
		if c, err = w.Replace(); err != nil {
			return err
		}
	}
	if err := whole(c, n, place); err != nil {
		return err
	}
	fmt.Printf("rank %d goes on, new: %v\n", place, isNew())
	return nil
}

// A host is lost: the new ranks start on another one.
func TestReplaceOfAHost(t *testing.T) {
	t.Parallel()
	shell := filepath.Join(t.TempDir(), "shell")
	script := "#!/bin/sh\nif [ $1 = lost ]; then echo gorun-agent 1; sleep 0.3; exit 1; fi\nshift\nexec \"$@\"\n"
	if err := os.WriteFile(shell, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	run(t, spec{n: 4, role: "replace", args: []string{"host"}, flags: []string{"--respawn", "2", "--launcher", "exec",
		"--launch-agent", shell, "-H", "a:2,lost:2"}}, 0).counts(map[string]int{
		`^rank [23] goes on, new: true$`: 2, `^rank [01] goes on, new: false$`: 2,
		`^gorun: .*lost.*; the job goes on, and Replace may start its ranks again`:     1,
		`^gorun: rank [23] has been started again on a \(start [12] of --respawn 2\)$`: 2})
}

// replaceNone: no rank has died.
func replaceNone(w *mpi.Comm) error {
	c, err := w.Replace()
	if err == nil {
		err = whole(c, w.Size(), w.Rank())
	}
	if err != nil {
		return err
	}
	if w.Rank() == 0 {
		_, err = w.Agree(1)
	} else {
		_, err = w.Replace()
	}
	if w.Rank() == 0 {
		fmt.Println("together:", err)
	}
	return expect(errors.Is(err, mpi.ErrComm), "Agree and Replace: %v", err)
}

func TestReplaceOfNone(t *testing.T) {
	t.Parallel()
	run(t, spec{n: 2, role: "replace", args: []string{"none"}}, 0).says(`^together: mpi: Agree.*: some ranks call ` +
		`Agree and others Replace`)
}

// replaceInTurns: the ranks of os.Args die one after the other, so often. A rank that lives on has no more descriptors
// and goroutines in the end than after the first turns.
func replaceInTurns(w *mpi.Comm) error {
	victims, err := numbers(os.Args[2])
	if err != nil {
		return err
	}
	turns, err := strconv.Atoi(os.Args[3])
	if err != nil {
		return err
	}
	const settled = 3
	var before leak.Snapshot
	for c, done, place := w, 0, w.Rank(); ; done++ {
		if done, err = mpi.AllreduceValue(c, done, mpi.Max[int]); err != nil { // a new rank has seen none
			return err
		}
		if err := whole(c, w.Size(), place); err != nil {
			return fmt.Errorf("after %d turns: %w", done, err)
		}
		if done == settled && !isNew() {
			before = leak.Take()
		}
		if done == turns {
			if before.Goroutines > 0 {
				if err := before.Check(20 * time.Second); err != nil {
					return err
				}
			}
			fmt.Printf("rank %d has seen the end of %s\n", place, c.Name())
			if place == 0 {
				err = fewLaunchers(len(victims))
			}
			return errors.Join(err, mpi.Barrier(c))
		}
		if err := fall(c, victims[done%len(victims):][:1]); err != nil {
			return err
		}
		d, err := c.Replace()
		if err != nil {
			return err
		}
		c = d
	}
}

// fewLaunchers waits until gorun has processes of its own for the first job and for so many starts of a rank, and for
// no start whose rank has died. They are a cleaner for each, or where agents start the ranks, on two hosts, an agent
// with a cleaner.
func fewLaunchers(starts int) error {
	parent, _ := proc.Lookup(os.Getppid())
	launchers := func() (n int) {
		return len(proc.List(func(p proc.Info) bool { return p.Exe() == parent.Exe() }))
	}
	most := 1 + 1 + starts
	if slices.Contains(parent.Args(), "__agent") {
		most = 1 + 2*(2+starts)
	}
	for limit := time.Now().Add(20 * time.Second); launchers() > most; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(limit) {
			return fmt.Errorf("gorun has %d processes of its own, want at most %d", launchers(), most)
		}
	}
	return nil
}

// Ranks die one after the other: always the same, rank 0, and each in turn, so that no rank of the first ones is left.
func TestReplaceInTurns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		victims string
		flags   []string
	}{"one": {victims: "1"}, "rank 0": {victims: "0"}, "all": {victims: "0,1,2"},
		"all, hosts": {"2,1,0", spawnHosts}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			turns := "10"
			if testing.Short() {
				turns = "5"
			}
			run(t, spec{n: 3, role: "replace", args: []string{"turns", c.victims, turns},
				flags: append([]string{"--respawn", turns}, c.flags...)}, 0).counts(map[string]int{
				`^rank [012] has seen the end of world\.replaced` + turns + `$`: 3,
				`the job goes on, and Replace (may start|starts) it again`:      mustAtoi(turns),
				`has been started again on`:                                     mustAtoi(turns)})
		})
	}
}

// errNew is the error of a rank that must not have been started.
var errNew = errors.New("a rank was started")

// refusedFor expects that Replace starts no rank, since one has left, and goes on without those that have died or left.
func refusedFor(c *mpi.Comm, gone, left int) error {
	d, err := c.Replace()
	if d != nil || !errors.Is(err, mpi.ErrUnavailable) {
		return fmt.Errorf("Replace where rank %d has left: %v, %w", gone, d, err)
	}
	fmt.Printf("rank %d: %v\n", c.Rank(), err)
	if d, err = c.Shrink(); err != nil {
		return err
	}
	return errors.Join(expect(d.Size() == left, "%d ranks are left", d.Size()), mpi.Barrier(d))
}

// replaceReturned: rank 1 dies, and rank 3 makes no call on c any more while it lives: it has returned, or freed c.
func replaceReturned(w *mpi.Comm) error {
	if isNew() {
		return errNew
	}
	c := w
	if os.Args[2] == "freed" {
		var err error
		if c, err = w.Dup(); err != nil {
			return err
		}
	}
	if err := fall(c, []int{1}); err != nil {
		return err
	}
	if c.Rank() == 3 && c == w {
		return nil
	}
	if c.Rank() == 3 {
		err := c.Free()
		if err == nil {
			_, err = mpi.Recv(w, []byte{0}, 0, tagGo)
		}
		return err
	}
	err := refusedFor(c, 3, w.Size()-2)
	if err == nil && c.Rank() == 0 && c != w {
		err = mpi.Send(w, []byte{1}, 3, tagGo)
	}
	return err
}

// replaceReturnedLate: rank 0 is replaced. The new rank returns, and then rank 1 dies, which serves the ranks of the
// second world: the new rank does not end before rank 2, which would take it for dead.
func replaceReturnedLate(w *mpi.Comm) error {
	c := w
	if !isNew() {
		err := fall(w, []int{0})
		if err == nil {
			c, err = w.Replace()
		}
		if err != nil {
			return err
		}
	}
	if err := mpi.Barrier(c); err != nil {
		return err
	}
	switch c.Rank() {
	case 0:
		return expect(isNew(), "rank 0 was not replaced")
	case 1:
		if _, err := mpi.Recv(c, []byte{0}, 2, tagGo); err != nil {
			return err
		}
		die()
	}
	if isNew() {
		return errNew
	}
	if _, err := mpi.Recv(c, []byte{0}, 0, tagData); !errors.Is(err, mpi.ErrPeerFailed) {
		return fmt.Errorf("the receive from the rank that has returned: %w", err)
	}
	if err := mpi.Send(c, []byte{1}, 1, tagGo); err != nil {
		return err
	}
	if _, err := mpi.Recv(c, []byte{0}, 1, tagData); !errors.Is(err, mpi.ErrPeerFailed) {
		return fmt.Errorf("the receive from the rank that died: %w", err)
	}
	time.Sleep(time.Second) // in which the new rank does not end
	if n := newRanks(); len(n) != 1 {
		return fmt.Errorf("the new rank has ended: %v", n)
	}
	return refusedFor(c, 0, 1)
}

// newRanks are the processes of this job that were started in the places of others.
func newRanks() []proc.Info {
	mark := markVar + "=" + os.Getenv(markVar)
	return proc.List(func(p proc.Info) bool {
		return slices.Contains(p.Env(), mark) && slices.Contains(p.Env(), pmi.EnvSpawned+"=1")
	})
}

// No rank is started in the place of one that has returned, or has freed the communicator: all ranks that call Replace
// hear of that alike, and go on without it.
func TestReplaceOfOneThatHasReturned(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		n, fails int
		args     []string
		gone     string
		flags    []string
	}{
		"returned":        {n: 4, fails: 2, args: []string{"returned", "returned"}, gone: "3"},
		"returned, hosts": {n: 5, fails: 3, args: []string{"returned", "returned"}, gone: "3", flags: spawnHosts},
		"freed":           {n: 4, fails: 2, args: []string{"returned", "freed"}, gone: "3"},
		"late":            {n: 3, fails: 1, args: []string{"returned late"}, gone: "0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, spec{n: c.n, role: "replace", args: c.args, flags: append([]string{"--respawn", "9"}, c.flags...)}, 137).
				counts(map[string]int{`^rank \d: mpi: Replace( on \S+)?: rank ` + c.gone + ` has returned or freed the ` +
					`communicator, .* by an Agree behind the last step, or call Shrink$`: c.fails})
		})
	}
}

func mustAtoi(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}

// replaceIsRefused: gorun does not allow so many. The ranks that live go on without the dead one.
func replaceIsRefused(w *mpi.Comm) error {
	c, place := w, w.Rank()
	for turn := 0; ; turn++ {
		var err error
		if turn, err = mpi.AllreduceValue(c, turn, mpi.Max[int]); err != nil {
			return err
		}
		if err := fall(c, []int{1}); err != nil {
			return err
		}
		d, err := c.Replace()
		if err == nil {
			c = d
			continue
		}
		if !errors.Is(err, mpi.ErrUnavailable) || d != nil {
			return err
		}
		fmt.Printf("rank %d, %d replaced: %v\n", place, turn, err)
		if c, err = c.Shrink(); err != nil {
			return err
		}
		return expect(c.Size() == 2, "%d ranks are left", c.Size())
	}
}

func TestReplaceIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flags string
		line  string
	}{
		"not allowed": {"--enable-recovery", `^rank [02], 0 replaced: mpi: Replace.*gorun was not given --respawn; start ` +
			`the job with --respawn 1 or more, or call Shrink$`},
		"used up": {"--respawn 2", `^rank [02], 2 replaced: mpi: Replace.*the starts of --respawn 2 do not suffice: ` +
			`ranks to start now: 1, started before: 2; give more, or call Shrink$`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, spec{n: 3, role: "replace", args: []string{"refused"}, flags: strings.Fields(c.flags)}, 137).
				counts(map[string]int{c.line: 2})
		})
	}
}

// dieInReplace: rank 1 dies, and then another rank while a new one starts, or does not come; or the new one dies. The
// call fails at all, and the next one replaces all. os.Args: which rank dies too, a file that is there when it is to
// die, and the class of the error.
func dieInReplace(w *mpi.Comm) error {
	const n = 4
	second := mustAtoi(os.Args[2])
	c, place := w, w.Rank()
	if !isNew() {
		if err := fall(w, []int{1}); err != nil {
			return err
		}
		if place == second {
			go func() {
				for {
					if _, err := os.Stat(os.Args[3]); err == nil {
						time.Sleep(200 * time.Millisecond) // the others are waiting
						die()
					}
					time.Sleep(time.Millisecond)
				}
			}()
		}
		d, err := w.Replace()
		class := map[string]error{"peer": mpi.ErrPeerFailed, "spawn": mpi.ErrSpawn}[os.Args[4]]
		if d != nil || !errors.Is(err, class) {
			return fmt.Errorf("while a rank dies: %v, %w", d, err)
		}
		fmt.Printf("rank %d: %v\n", place, err)
		if c, err = w.Replace(); err != nil {
			return err
		}
	}
	if err := whole(c, n, place); err != nil {
		return err
	}
	if place == 0 { // those that were started in vain have ended
		want := 1
		if second >= 0 {
			want++
		}
		for end := time.Now().Add(patience / 2); ; time.Sleep(10 * time.Millisecond) {
			left := newRanks()
			if len(left) == want {
				break
			}
			if time.Now().After(end) {
				return fmt.Errorf("%d ranks were started to stay, and there are %v", want, left)
			}
		}
	}
	if err := mpi.Barrier(c); err != nil {
		return err
	}
	fmt.Printf("rank %d goes on\n", place)
	return nil
}

func TestDeathInReplace(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const pmi1 = `echo cmd=init pmi_version=1 pmi_subversion=1 >&$PMI_FD; read a <&$PMI_FD
	echo cmd=barrier_in >&$PMI_FD; read a <&$PMI_FD; `
	const leaf, root, new = "3", "0", "-1"
	for name, c := range map[string]struct {
		does   string // the first new process, which then goes on as the program
		second string
		class  string
		limit  string
	}{
		"a rank, in the start":     {`: >$ONCE/now; sleep 1`, leaf, "peer", "1h"},
		"the root, in the start":   {`: >$ONCE/now; sleep 1`, root, "peer", "1h"},
		"a rank, in the meeting":   {pmi1 + `: >$ONCE/now; sleep 1; exit 3`, leaf, "peer", "1h"},
		"the root, in the meeting": {pmi1 + `: >$ONCE/now; sleep 1; exit 3`, root, "peer", "1h"},
		"the new one, at once":     {`exit 3`, new, "spawn", "1h"},
		"the new one, later":       {pmi1 + `kill -9 $$`, new, "peer", "1h"},
	} {
		for hosts, flags := range map[string][]string{"one host": nil, "hosts": spawnHosts} {
			t.Run(name+", "+hosts, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				prog := filepath.Join(dir, "prog")
				script := fmt.Sprintf("#!/bin/sh\nif [ \"$PMI_SPAWNED\" = 1 ] && mkdir $ONCE/once 2>/dev/null; then\n%s\nfi\n"+
					"exec %s \"$@\"\n", c.does, self)
				if err := os.WriteFile(prog, []byte(script), 0o700); err != nil {
					t.Fatal(err)
				}
				j := run(t, spec{n: 4, role: "replace", prog: prog,
					args:  []string{"meanwhile", c.second, filepath.Join(dir, "now"), c.class},
					env:   []string{"ONCE=" + dir, "GORUN_TIMEOUT=" + c.limit},
					flags: append([]string{"--respawn", "9"}, flags...)}, 0)
				fails := 3
				if c.second != new {
					fails--
				}
				says := `^rank \d: mpi: Replace: `
				if c.class == "spawn" {
					says += `(rank 0: )?starting the program of this rank again: rank 1 \(started again, .*exited with code 3`
				}
				j.counts(map[string]int{says: fails, `^rank \d goes on$`: 4})
			})
		}
	}
}

// replaceAtRandom: until a time, ranks die at random moments, also while others are replaced. The last rank lives on.
// os.Args: the time in Unix milliseconds.
func replaceAtRandom(w *mpi.Comm) error {
	until := time.UnixMilli(int64(mustAtoi(os.Args[2])))
	n, place := w.Size(), w.Rank()
	toDie := func(oneIn int) {
		if place != n-1 && time.Now().Before(until) && rand.IntN(oneIn) == 0 {
			time.AfterFunc(time.Duration(rand.IntN(150_000))*time.Microsecond, die)
		}
	}
	toDie(1 + place) // one for sure
	replaced := 0
	for c, calm := w, 0; ; {
		flags := uint32(1)
		if calm >= 20 && time.Now().After(until.Add(200*time.Millisecond)) {
			flags |= 2
		}
		err := whole(c, n, place)
		if err != nil {
			if !errors.Is(err, mpi.ErrPeerFailed) && !errors.Is(err, mpi.ErrRevoked) && !errors.Is(err, mpi.ErrTimeout) {
				return err
			}
			if err := c.Revoke(); err != nil {
				return err
			}
			flags = 0
		}
		agreed, err := c.Agree(flags)
		if err != nil && !errors.Is(err, mpi.ErrPeerFailed) {
			return err
		}
		if err == nil && agreed == 3 {
			fmt.Printf("rank %d has seen the end; replaced %d times\n", place, replaced)
			return nil
		}
		if err == nil && agreed&1 == 1 {
			calm++
			toDie(50)
			continue
		}
		toDie(3)
		d, err := c.Replace()
		for ; errors.Is(err, mpi.ErrPeerFailed); d, err = c.Replace() {
			toDie(3)
		}
		if err != nil {
			return err
		}
		c, calm = d, 0
		replaced++
	}
}

func TestReplaceAtRandom(t *testing.T) {
	t.Parallel()
	last, _ := soak(t)
	if testing.Short() {
		last = 2 * time.Second
	}
	for name, c := range map[string]struct {
		flags []string
		env   []string
	}{"shm": {}, "tcp": {env: []string{"GORUN_TRANSPORTS=tcp"}}, "hosts": {flags: spawnHosts}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proc.Gorun(t) // its build takes a while
			until := strconv.FormatInt(time.Now().Add(last).UnixMilli(), 10)
			j := run(t, spec{n: 5, role: "replace", args: []string{"random", until},
				env:   append(c.env, "GORUN_TIMEOUT=15s"), // of a connection to a rank that dies meanwhile
				flags: append([]string{"--respawn", "1000"}, c.flags...)}, 0)
			j.counts(map[string]int{`^rank \d has seen the end`: 5})
			t.Log(j.find(`^rank 4 has seen .*`), j.count("Replace (may start|starts) it again"), "deaths")
		})
	}
}
