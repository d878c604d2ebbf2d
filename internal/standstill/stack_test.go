package standstill

import (
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/pml"
)

// A goroutine that computes, reads, sleeps or makes a connection again can move; one that only hears others cannot.
func TestWaiting(t *testing.T) {
	const (
		self  = "goroutine 9 [running]:\nmain.x()\n\t/x.go:1"
		in    = library + "/"
		sleep = "goroutine 1 [syscall]:\n" + in + "pml.(*waitFor).park(0x1)\n\t/m/pml/wait.go:1\n" + library +
			".Recv[...](...)\n\t/m/recv.go:1\nmain.main()\n\t/solve.go:7\n"
	)
	for _, c := range []struct {
		name, stack string
		want        bool
	}{
		{"hears the launcher", "goroutine 2 [IO wait]:\nnet.(*conn).Read(0x1)\n\t/net.go:1\n" + in +
			"internal/pmi.(*Client).read(0x1)\n\t/m/client.go:1\ncreated by " + in + "internal/pmi.(*Client).start\n\t/m/c.go:2", true},
		{"waits for the launcher's end", "goroutine 2 [chan receive]:\n" + library + ".watchLauncher(0x1)\n\t/m/init.go:1\n" +
			"created by " + library + ".Init in goroutine 1\n\t/m/init.go:2", true},
		{"waits for a signal", "goroutine 2 [select]:\n" + library + ".endAlone(0x1)\n\t/m/signals.go:1\n" +
			"created by " + library + ".signalContext in goroutine 1\n\t/m/signals.go:2", true},
		{"accepts", "goroutine 2 [IO wait]:\nnet.(*TCPListener).Accept(0x1)\n\t/n.go:1\n" + in +
			"internal/auth.(*Acceptor).accept(0x1)\n\t/m/a.go:1\nsync.(*WaitGroup).Go.func1()\n\t/w.go:1\n" +
			"created by sync.(*WaitGroup).Go in goroutine 1\n\t/w.go:2", true},
		{"takes a peer's memory", "goroutine 2 [IO wait]:\n" + in + "transport/shm.receive(0x1)\n\t/m/a.go:1\n" + in +
			"transport/shm.(*segments).receive(0x1)\n\t/m/a.go:1\n" + in + "internal/auth.(*Acceptor).attend(0x1)\n\t/m/a.go:1\n" +
			in + "internal/auth.(*Acceptor).admit.func1()\n\t/m/a.go:2\nsync.(*WaitGroup).Go.func1()\n\t/w.go:1\n" +
			"created by sync.(*WaitGroup).Go in goroutine 1\n\t/w.go:2", true},
		{"looks who calls", "goroutine 2 [IO wait]:\n" + in + "internal/auth.(*Acceptor).attend(0x1)\n\t/m/a.go:1\n" +
			in + "internal/auth.(*Acceptor).admit.func1()\n\t/m/a.go:2\nsync.(*WaitGroup).Go.func1()\n\t/w.go:1\n" +
			"created by sync.(*WaitGroup).Go in goroutine 1\n\t/w.go:2", false},
		{"connects again", "goroutine 2 [select]:\n" + in + "transport/tcp.(*Device).redial(0x1)\n\t/m/resume.go:1\n" +
			"created by " + in + "transport/tcp.(*Device).down in goroutine 1\n\t/m/resume.go:2", false},
		{"a user's accepts", "goroutine 2 [IO wait]:\nnet.(*TCPListener).Accept(0x1)\n\t/n.go:1\n" +
			"created by main.main in goroutine 1\n\t/x.go:2", false},
		{"sleeps", "goroutine 2 [sleep]:\ntime.Sleep(0x1)\n\t/t.go:1\nmain.main.func1()\n\t/solve.go:1\n" +
			"created by main.main in goroutine 1\n\t/x.go:2", false},
		{"hears, and has something to do", "goroutine 2 [runnable]:\n" + in + "internal/pmi.(*Client).read(0x1)\n\t/m/c.go:1\n" +
			"created by " + in + "internal/pmi.(*Client).start\n\t/m/c.go:2", false},
		{"waits in Finalize", "goroutine 2 [select]:\n" + in + "internal/pmi.(*Client).reply(0x1)\n\t/m/c.go:1\n" +
			in + "internal/join.(*Member).Leave(0x1)\n\t/m/j.go:1\n" + library + ".Finalize()\n\t/m/init.go:2\n" +
			"main.main()\n\t/x.go:9", true},
		{"waits in Spawn for processes", "goroutine 2 [select]:\n" + in +
			"internal/pmi.(*Client).result(0x1)\n\t/m/c.go:1\n" + in + "internal/join.(*Member).Spawn(0x1)\n\t/m/s.go:1\n" +
			library + ".Spawn(0x1)\n\t/m/s.go:2\nmain.main()\n\t/x.go:9", false},
		{"serves ranks, of which none asks", "goroutine 2 [select]:\nnet.(*pipe).read(0x1)\n\t/net.go:1\n" + in +
			"internal/pmi.(*serverConn).next(0x1)\n\t/m/s.go:1\n" + in + "internal/pmi.(*serverConn).read(0x1)\n\t/m/s.go:2\n" +
			in + "internal/pmi.(*Server).ServeConn(0x1)\n\t/m/s.go:3\n" +
			"created by " + in + "internal/pmi.(*Server).Join\n\t/m/s.go:4", true},
		{"serves a rank that asks", "goroutine 2 [chan send]:\n" + in +
			"internal/pmi.(*serverConn).read(0x1)\n\t/m/s.go:2\n" + in + "internal/pmi.(*Server).ServeConn(0x1)\n\t/m/s.go:3\n" +
			"created by " + in + "internal/pmi.(*Server).Join\n\t/m/s.go:4", false},
		{"looks now and then", "goroutine 2 [runnable]:\n" + in +
			"internal/eventset.(*Check).look-fm()\n\t<auto>:1\ncreated by time.goFunc\n\t/t.go:1", true},
		{"sleeps in a call and has been woken", strings.Replace(sleep, "1 [syscall]", "2 [runnable]", 1), false},
	} {
		var all []stack
		for _, text := range []string{self, sleep, c.stack} {
			all = append(all, parseStack(text))
		}
		if got := waiting(all, 1); got != c.want {
			t.Errorf("a goroutine that %s: %t, want %t", c.name, got, c.want)
		}
		if waiting(all, 2) || waiting(all, 0) {
			t.Errorf("%s: the engine knows of another number of sleepers", c.name)
		}
	}
	main := parseStack(strings.TrimSpace(sleep))
	if op, at := main.call(); op != "Recv" || at != "solve.go:7" {
		t.Errorf("it is in %q at %q", op, at)
	}
	main = parseStack("goroutine 1 [syscall]:\n" + in + "pml.(*waitFor).park(0x1)\n\t/m/pml/wait.go:1\n" + library +
		".Spawn.func1(0x1, 0x2)\n\t/m/spawn.go:4\n" + in + "internal/coll.(*Group).Create.func1()\n\t/m/queue.go:91\n" +
		in + "internal/coll.(*Group).RunDetached(0x1)\n\t/m/queue.go:122\n" + in +
		"internal/coll.(*Group).Create(0x1)\n\t/m/queue.go:86\n" + library + ".Spawn(0x1)\n\t/m/spawn.go:3\nmain.main()\n" +
		"\t/solve.go:8\n")
	if op, at := main.call(); op != "Spawn" || at != "solve.go:8" {
		t.Errorf("a call by which others are made is in %q at %q", op, at)
	}
	main = parseStack("goroutine 1 [select]:\n" + in + "internal/pmi.(*Client).reply(0x1)\n\t/m/c.go:1\n" + library +
		".finalize()\n\t/m/init.go:1\n" + library + ".Finalize()\n\t/m/init.go:2\n" + library + ".Main(0x1)\n\t/m/init.go:3\n" +
		"main.main()\n\t/solve.go:9")
	if op, at := main.call(); op != "Finalize" || at != "solve.go:9" {
		t.Errorf("it is in %q at %q", op, at)
	}
}

// What a goroutine waits for is found by its request. One that sleeps in a call on another engine, for a spawned rank,
// has no part of it.
func TestAccountOfTwoEngines(t *testing.T) {
	sleeps := func(id, request, line string) stack {
		return parseStack("goroutine " + id + " [syscall]:\n" + library + "/pml.(*waitFor).park(0x1, " + request +
			")\n\t/m/pml/wait.go:1\n" + library + ".Recv[...](...)\n\t/m/recv.go:1\nmain.main()\n\t/solve.go:" + line)
	}
	all := []stack{parseStack("goroutine 9 [running]:\nmain.x()\n\t/x.go:1"), sleeps("1", "0xc1", "7"),
		sleeps("2", "0xc2", "8")}
	s := &pml.Snapshot{Asleep: 1, Sleepers: []pml.Sleeper{{IDs: []string{"0xc2"}, Awaited: []pml.Awaited{
		{What: pml.AwaitsMessage, Rank: 1, Tag: 5}}}}}
	named := func(uint32) (string, uint32) { return "world", 0 }
	a := account([]sight{{s, named, nil}}, -1, all)
	if len(a.Calls) != 2 || a.Calls[0].At != "solve.go:7" || len(a.Calls[0].Waits) != 0 || a.Calls[1].At != "solve.go:8" ||
		len(a.Calls[1].Waits) != 1 || a.Calls[1].Waits[0].Tag != 5 {
		t.Errorf("the account is %+v", a.Calls)
	}
	// The other engine serves a world of Replace, whose ranks are known.
	replaced := &pml.Snapshot{Asleep: 1, Sleepers: []pml.Sleeper{
		{IDs: []string{"0xc1"}, Awaited: []pml.Awaited{{What: pml.AwaitsMessage, Rank: 1, Tag: 6}}},
		{IDs: []string{"0xc9"}, Awaited: []pml.Awaited{{What: pml.AwaitsMessage, Rank: 1, Tag: 9}}}, // it has gone on
	}, Unasked: []pml.Unasked{{Source: 0, Tag: 3}}}
	a = account([]sight{{s, named, nil}, {replaced, named, []int{5, 3}}}, -1, all)
	if len(a.Calls) != 2 || len(a.Calls[0].Waits) != 1 || a.Calls[0].Waits[0].Peer != 3 || a.Calls[0].Waits[0].Tag != 6 ||
		a.Calls[1].Waits[0].Peer != 1 || len(a.Unasked) != 1 || a.Unasked[0].From != 5 {
		t.Errorf("with the ranks of the other engine the account is %+v", a)
	}
	s.Sleepers[0].IDs = nil // the runtime prints no argument that is in a register and not kept
	if a = account([]sight{{s, named, nil}}, -1, all[:2]); len(a.Calls) != 1 ||
		len(a.Calls[0].Waits) != 1 {
		t.Errorf("of one goroutine the account is %+v", a.Calls)
	}
}
