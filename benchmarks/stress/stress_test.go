package main

import (
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/benchmarks/harness"
)

func TestPlanIsTheSameOnEveryRank(t *testing.T) {
	draw := func() plan { return newPlan(rand.New(rand.NewPCG(7, 1)), 3, 8, 500, 1<<20) }
	a, b := draw(), draw()
	for i := range a.messages {
		if a.messages[i] != b.messages[i] {
			t.Fatalf("message %d: %+v and %+v", i, a.messages[i], b.messages[i])
		}
	}
	seen := 0
	for rank := range 8 {
		for l := range lanes {
			seen += len(a.from(rank, l))
		}
	}
	if seen != len(a.messages) {
		t.Errorf("the lanes have %d messages of %d", seen, len(a.messages))
	}
}

func TestPlanCoversEverything(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	seenModes, empty, long := make(map[mode]bool), false, false
	for round := range 20 {
		p := newPlan(r, round, 4, 500, 8<<20)
		for _, m := range p.messages {
			seenModes[m.mode] = true
			empty, long = empty || m.length == 0, long || m.length > 1<<20
			if m.mode == rsend && (!p.early || m.lane == probed) {
				t.Fatalf("Rsend where no receive may be posted: %+v", m)
			}
		}
	}
	if len(seenModes) != int(modes) || !empty || !long {
		t.Errorf("modes %v, empty messages %v, long ones %v", seenModes, empty, long)
	}
}

// The verifier finds each kind of error.
func TestVerifier(t *testing.T) {
	first := message{number: 0, source: 1, tag: 2, length: 100}
	second := message{number: 1, source: 1, tag: 2, length: 100}
	other := message{number: 2, source: 1, tag: 0, length: 50}
	contents := func(m message) []byte {
		b := make([]byte, m.length)
		harness.Fill(b, 9, m.number)
		return b
	}
	type step struct {
		m        message
		contents []byte
	}
	ok := func(m message) step { return step{m, contents(m)} }
	spoiled := contents(first)
	spoiled[99] ^= 4
	tests := []struct {
		name  string
		lane  lane
		steps []step
		want  string
	}{
		{"in order", exact, []step{ok(first), ok(second), ok(other)}, ""},
		{"tags may overtake where receives name them", exact, []step{ok(other), ok(first), ok(second)}, ""},
		{"overtaken", exact, []step{ok(second)}, "wrong contents"},
		{"tags may not overtake with AnyTag", anyTag, []step{ok(other)}, "were next"},
		{"in order with AnyTag", anyTag, []step{ok(first), ok(second), ok(other)}, ""},
		{"twice", exact, []step{ok(other), ok(other)}, "came twice"},
		{"one bit", exact, []step{{first, spoiled}}, "wrong contents"},
		{"another length", exact, []step{{message{source: 1, tag: 2, length: 99}, contents(first)[:99]}}, "were next"},
		{"not sent", anySource, []step{{message{source: 3, tag: 2}, nil}}, "was not sent"},
		{"missing", exact, []step{ok(first)}, "2 messages are missing"},
	}
	for _, test := range tests {
		v := newVerifier(9, test.lane, []message{first, second, other})
		var err error
		for _, s := range test.steps {
			if err = v.received(s.m.source, s.m.tag, len(s.contents), s.contents); err != nil {
				break
			}
		}
		if err == nil {
			err = v.done()
		}
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}

// The watchdog reports what all goroutines do when there is no progress, and says nothing as long as there is some.
func TestWatch(t *testing.T) {
	reported := make(chan string, 1)
	end := watch(50*time.Millisecond, func() { reported <- string(stacks()) })
	select {
	case text := <-reported:
		if !strings.Contains(text, "TestWatch") || strings.Count(text, "goroutine ") < 2 {
			t.Errorf("the report lacks this goroutine:\n%s", text)
		}
	case <-time.After(time.Minute):
		t.Error("a hang is not reported")
	}
	end()
	end = watch(time.Hour, func() { t.Error("progress is reported as a hang") })
	progress.Add(1)
	end()
}

// A buffer that is written to after its receive has ended is found out.
func TestForgotten(t *testing.T) {
	buf := make([]byte, 100)
	harness.Fill(buf, 9, -3)
	r := &rank{forgotten: []forgotten{{buf, 3}}}
	buf[57] ^= 1
	if err := r.checkForgotten(9); err == nil {
		t.Error("a changed byte was not noticed")
	}
	buf[57] ^= 1
	if err := r.checkForgotten(9); err != nil || r.forgotten != nil {
		t.Error(err, r.forgotten)
	}
}

// The limit of open files comes back.
func TestChurnDescriptors(t *testing.T) {
	limit := func() (l syscall.Rlimit) {
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
			t.Fatal(err)
		}
		return l
	}
	before, stop, done := limit(), make(chan struct{}), make(chan struct{})
	go func() {
		churnDescriptors(rand.New(rand.NewPCG(1, 1)), stop)
		close(done)
	}()
	for end := time.Now().Add(time.Minute); limit().Cur == before.Cur && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if low := limit().Cur; low == before.Cur {
		t.Error("the limit stays as it is")
	}
	close(stop)
	<-done
	if after := limit(); after != before {
		t.Errorf("the limit is %v afterwards, and was %v", after, before)
	}
}
