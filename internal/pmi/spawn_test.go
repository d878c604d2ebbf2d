package pmi

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

// spawn waits for all that comes of a spawn.
func spawn(ctx context.Context, c *Client, q Spawn) error {
	met, err := c.Spawn(ctx, q)
	if err == nil {
		err = met(ctx)
	}
	return err
}

// What a rank asks for reaches the launcher as it is, and so does what has come of it.
func TestSpawnRequest(t *testing.T) {
	args := []string{"and more", "", `back\slash`, "x=y", "two\nlines\x00\xff"}
	want := Spawn{Ranks: 3, Command: "/bin/a program", Args: args, Dir: "/tmp", Limit: 1500 * time.Millisecond,
		Meet: true, Dead: []int{7, 0, 1}}
	if err := want.Keep("port", []byte(strings.Repeat("long", 500))); err != nil || len(want.Keys) < 2 {
		t.Fatalf("%d keys: %v", len(want.Keys), err)
	}
	answers := map[error]error{nil: nil, errors.New("rank 0 cannot be started"): errors.New("rank 0 cannot be started"),
		fmt.Errorf("%w: not on a Sunday", ErrNoSpawn): ErrNoSpawn}
	for answer, is := range answers {
		var got Spawn
		from := -1
		_, clients := world(t, 2, false, Options{Spawn: func(rank int, q Spawn, done func(error)) {
			from, got = rank, q
			go func() {
				if done(answer); answer == nil {
					done(nil)
				}
				done(errors.New("an answer too many"))
			}()
		}})
		err := spawn(t.Context(), clients[1], want)
		if from != 1 || !reflect.DeepEqual(got, want) {
			t.Errorf("rank %d asks for %+v, want rank 1 and %+v", from, got, want)
		}
		switch {
		case is == nil:
			if err != nil {
				t.Error(err)
			}
		case err == nil, !strings.Contains(err.Error(), is.Error()), errors.Is(err, ErrNoSpawn) != (is == ErrNoSpawn):
			t.Errorf("%v, want %v", err, answer)
		}
		// The keys are there in the new job.
		_, spawned := world(t, 2, false, Options{Keys: got.Keys})
		if b, err := spawned[1].Get(t.Context(), "port"); len(b) != 2000 || err != nil {
			t.Errorf("%d bytes under the key: %v", len(b), err)
		}
	}
}

// A rank whose request is not answered yet is heard, and other ranks are served.
func TestSpawnDoesNotBlock(t *testing.T) {
	later := make(chan func(error), 1)
	s := NewServer(2, Options{Name: "job", Spawn: func(_ int, _ Spawn, done func(error)) { later <- done }})
	defer s.Close()
	c, d := dial(t, s, 0), dial(t, s, 1)
	for _, r := range []*raw{c, d} {
		r.ask("cmd=init pmi_version=1 pmi_subversion=1", initReply)
	}
	c.send("mcmd=spawn\nnprocs=1\nexecname=a\ntotspawns=1\nspawnssofar=1\nargcnt=0\npreput_num=0\ninfo_num=0\nendcmd\n")
	done := <-later
	d.ask("cmd=put kvsname=job key=a value=b", "cmd=put_result rc=0 msg=success")
	c.send("mcmd=spawn\nnprocs=1\nexecname=a\ntotspawns=1\nendcmd\n")
	c.want("cmd=spawn_result rc=-1 msg=another_spawn_of_this_rank_is_under_way")
	done(nil)
	c.want("cmd=spawn_result rc=0")
	c.send("mcmd=spawn\nnprocs=1\nexecname=a\ntotspawns=1\nspawnssofar=1\nargcnt=0\npreput_num=0\ninfo_num=0\nendcmd\n")
	done = <-later
	c.send("cmd=abort exitcode=7\n")
	for e := range s.Events() {
		if e.Kind == EventAbort {
			break
		}
	}
	done(nil)
}

// What a process sends that makes no sense is refused, and starts nothing.
func TestSpawnRequestHostile(t *testing.T) {
	s := NewServer(1, Options{Name: "job", Spawn: func(_ int, q Spawn, _ func(error)) { t.Errorf("%+v is started", q) }})
	defer s.Close()
	c := dial(t, s, 0)
	good := "nprocs=1\nexecname=a\ntotspawns=1\nspawnssofar=1\narg1=x\nargcnt=1\npreput_num=1\npreput_key_0=k\n" +
		"preput_val_0=v\ninfo_num=1\ninfo_key_0=gorun_limit\ninfo_val_0=5\n"
	c.send("mcmd=spawn\n" + good + "endcmd\n")
	c.want("cmd=spawn_result rc=-1 msg=init_must_come_first")
	c.ask("cmd=init pmi_version=1 pmi_subversion=1", initReply)
	for old, bad := range map[string]string{
		"nprocs=1": "nprocs=0", "totspawns=1": "totspawns=2", "execname=a": "execnam=a", "arg1=x": "arg1=\x01",
		"argcnt=1": "argcnt=2", "preput_key_0=k": "preput_key_0=" + strings.Repeat("k", keyMax+1),
		"preput_val_0=v": "preput_val_0=" + strings.Repeat("v", valMax+1), "preput_num=1": "preput_num=-1",
		"info_val_0=5": "info_val_0=never", "info_num=1": "info_num=99999999999999999999", "spawnssofar=1\n": "argcnt=\n",
		"info_key_0=gorun_limit":               "info_key_0=gorun_quoted",
		"info_key_0=gorun_limit\ninfo_val_0=5": "info_key_0=gorun_dead\ninfo_val_0=0-1",
	} {
		text := strings.Replace(good, old, bad, 1)
		if bad == "argcnt=\n" { // the last one holds
			text = good + bad
		}
		c.send("mcmd=spawn\n" + text + "endcmd\n")
		if b, err := c.in.next(); err != nil || !strings.HasPrefix(string(b), "cmd=spawn_result rc=-1 msg=") {
			t.Errorf("%s: %q, %v", bad, b, err)
		}
	}
	c.send("mcmd=other\nendcmd\n")
	c.want("cmd=other_result rc=-1 msg=unknown_command")
}

// An argument that PMI-1 cannot carry is an error before anything is sent.
func TestSpawnRequestThatDoesNotFit(t *testing.T) {
	_, clients := world(t, 1, false, Options{Spawn: func(_ int, q Spawn, done func(error)) { done(nil) }})
	for _, q := range []Spawn{
		{Ranks: 1, Command: "a", Args: []string{strings.Repeat("x", maxRead)}},
		{Ranks: 1, Command: "a", Args: []string{"x"}, Dir: "line\nfeed"},
		{Ranks: 1, Command: "a", Args: make([]string, maxSpawn)},
	} {
		if err := spawn(t.Context(), clients[0], q); err == nil {
			t.Errorf("no error for arguments of %d bytes, %d of them", len(q.Args[0]), len(q.Args))
		}
	}
	ask := func(arg string) error {
		return spawn(t.Context(), clients[0], Spawn{Ranks: 1, Command: "a", Args: []string{arg}})
	}
	if err := ask("line\nfeed"); err != nil {
		t.Error(err)
	}
	clients[0].ours = false // as of another launcher
	if err := ask("line\nfeed"); err == nil || !strings.Contains(err.Error(), "control character") {
		t.Errorf("two lines for another launcher: %v", err)
	}
	if err := ask("a"); err != nil {
		t.Error(err)
	}
}

// What a rank asks for that another server serves than the one that starts processes, goes there as it is.
func TestSpawnRequestFromBelow(t *testing.T) {
	tr, clients := treeOf(t, [][]int{{0}, {1, 2}}, []int{-1, 0})
	want := Spawn{Ranks: 3, Command: "/bin/\xff", Args: []string{"and\nmore", "", "\xfe\xff"}, Dir: "/tmp",
		Limit: time.Second}
	if err := want.Keep("port", []byte("somewhere")); err != nil {
		t.Fatal(err)
	}
	err := spawn(t.Context(), clients[2], want)
	if !errors.Is(err, ErrNoSpawn) {
		t.Errorf("%v, want one that wraps ErrNoSpawn", err)
	}
	tr.root.opts.Spawn = func(rank int, q Spawn, done func(error)) {
		if rank != 2 || !reflect.DeepEqual(q, want) {
			t.Errorf("rank %d asks for %+v, want rank 2 and %+v", rank, q, want)
		}
		done(errors.New("no room"))
	}
	if err := spawn(t.Context(), clients[2], want); err == nil || err.Error() != "no room" {
		t.Errorf("%v, want: no room", err)
	}
	long := want
	long.Args = []string{strings.Repeat("x", 15<<10), strings.Repeat("y", 15<<10), strings.Repeat("z", 15<<10)}
	if err := spawn(t.Context(), clients[2], long); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("45 KiB of arguments: %v", err)
	}
	for request, answers := range map[string]int{"cmd=spawn": 0, "cmd=spawn rank=1 request=!": 0,
		"cmd=spawn rank=9 request=e30": 0, "cmd=spawn rank=1 request=e30": 1} {
		e := &edge{tree: tr, down: make(chan func() error, 1)} // nothing that it answers goes down
		if err := tr.root.NewBelow(3, e).Ask([]byte(request)); err == nil != (answers == 1) || len(e.down) != answers {
			t.Errorf("%s: %v, %d answers", request, err, len(e.down))
		}
	}
	for _, result := range []string{"cmd=spawn_result rc=0", "cmd=spawn_result rc=0 rank=2"} {
		if tr.below[1].Answered([]byte(result)) == nil {
			t.Errorf("%s is taken, and no spawn is under way", result)
		}
	}
}

// While a spawn is under way, other requests of its rank are answered, and requests of other ranks of its host, also
// where only the server of the whole job can.
func TestSpawnHoldsNothingUp(t *testing.T) {
	later := make(chan func(error), 1)
	tr, clients := treeOf(t, [][]int{{0}, {1, 2}}, []int{-1, 0})
	tr.root.opts.Spawn = func(_ int, _ Spawn, done func(error)) { later <- done }
	spawned := make(chan error, 1)
	go func() { spawned <- spawn(t.Context(), clients[1], Spawn{Ranks: 1, Command: "a"}) }()
	done := <-later
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	for _, rank := range []int{1, 2} {
		if _, err := clients[rank].Get(ctx, "nothing"); !errors.Is(err, ErrNoKey) {
			t.Errorf("rank %d asks for a key: %v", rank, err)
		}
	}
	done(errors.New("no room"))
	if err := <-spawned; err == nil || err.Error() != "no room" {
		t.Errorf("%v, want: no room", err)
	}
}

// A rank whose spawn has two results gets both, in a tree too, and can make other requests before and between them. One
// that fails has one.
func TestSpawnThatMeets(t *testing.T) {
	later := make(chan func(error), 1)
	tr, clients := treeOf(t, [][]int{{0}, {1}}, []int{-1, 0})
	tr.root.opts.Spawn = func(_ int, _ Spawn, told func(error)) { later <- told }
	for _, fails := range []int{0, 1, 2} { // at which result; 2: at none
		for range outboxSize { // no place for an answer is lost
			var met func(context.Context) error
			first := make(chan error, 1)
			go func() {
				var err error
				met, err = clients[1].Spawn(t.Context(), Spawn{Ranks: 1, Command: "a", Meet: true})
				first <- err
			}()
			told := <-later
			for result := range 2 {
				if _, err := clients[1].Get(t.Context(), "nothing"); !errors.Is(err, ErrNoKey) {
					t.Error(err)
				}
				want := error(nil)
				if result == fails {
					want = errors.New("no room")
				}
				told(want)
				err := error(nil)
				if result == 0 {
					err = <-first
				} else {
					err = met(t.Context())
				}
				if fmt.Sprint(err) != fmt.Sprint(want) {
					t.Errorf("result %d of a spawn: %v, want %v", result, err, want)
				}
				if want != nil {
					break
				}
			}
		}
	}
}

// The result of a spawn that its caller has given up is not taken for the next one's, which waits for it. A rank that
// has ended gets no result.
func TestSpawnThatWasGivenUp(t *testing.T) {
	later := make(chan func(error), 1)
	s, clients := world(t, 1, false, Options{Spawn: func(_ int, _ Spawn, done func(error)) { later <- done }})
	spawned := make(chan error, 1)
	begin := func(ctx context.Context) func(error) {
		go func() { spawned <- spawn(ctx, clients[0], Spawn{Ranks: 1, Command: "a"}) }()
		return <-later
	}
	ctx, cancel := context.WithCancel(t.Context())
	first := begin(ctx)
	cancel()
	if err := <-spawned; !errors.Is(err, context.Canceled) {
		t.Errorf("a spawn that is given up: %v", err)
	}
	waits, stop := context.WithCancel(t.Context())
	stop()
	if err := spawn(waits, clients[0], Spawn{Ranks: 1, Command: "a"}); !errors.Is(err, context.Canceled) {
		t.Errorf("a spawn that does not get its turn: %v", err)
	}
	first(errors.New("of the first"))
	second := begin(t.Context())
	first(errors.New("an answer too many"))
	second(nil)
	if err := <-spawned; err != nil {
		t.Errorf("the second spawn: %v", err)
	}
	third := begin(t.Context())
	clients[0].Close()
	if err := <-spawned; !errors.Is(err, ErrFinalized) {
		t.Errorf("a spawn of a rank that leaves: %v", err)
	}
	wantEvent(t, s, EventClosed, 0)
	third(nil)
}

// A rank that sends no hello, and asks for two results, gets one and holds no other up. So it is with requests that
// have no reply.
func TestRequestsOverTheirPlaces(t *testing.T) {
	const meet = "mcmd=spawn\nnprocs=1\nexecname=a\ntotspawns=1\nspawnssofar=1\nargcnt=0\npreput_num=0\n" +
		"info_num=1\ninfo_key_0=gorun_meet\ninfo_val_0=1\nendcmd\n"
	for _, request := range []string{meet, "cmd=" + peerFailedCommand + "\n"} {
		began := make(chan func(error), 16)
		s := NewServer(1, Options{Name: "job", Spawn: func(_ int, _ Spawn, told func(error)) { began <- told }})
		c := dial(t, s, 0)
		c.ask("cmd=init pmi_version=1 pmi_subversion=1", initReply)
		for range 12 {
			c.send(request)
			if request == meet {
				told := <-began
				told(nil)
				told(nil)
			}
		}
		s.State(0)
		c.conn.Close()
		wantEvent(t, s, EventClosed, 0)
	}
}

// The barrier in which ranks find out by themselves which of them share a host is of Init: they have not met after it.
func TestBarriersOfTheStart(t *testing.T) {
	for mapping, want := range map[string][]int{"": {1, 0}, strings.Repeat("m", mappingMax): {1, 0},
		strings.Repeat("m", mappingMax+1): {2, 1, 0}, NoMapping: {2, 1, 0}} {
		fenced := make(chan int, 4)
		_, clients := world(t, 1, false, Options{Mapping: mapping, Joins: 2, Fenced: func(left int) { fenced <- left }})
		for _, left := range want {
			if err := clients[0].Fence(t.Context()); err != nil {
				t.Fatal(err)
			}
			select {
			case got := <-fenced:
				if got != left {
					t.Errorf("a mapping of %d bytes: after a barrier %d are to come, want %d", len(mapping), got, left)
				}
			case <-time.After(hang):
				t.Fatalf("a mapping of %d bytes: the barrier before %d was not counted as one of the start", len(mapping), left)
			}
		}
	}
}
