package launcher

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/frames"
	"github.com/gorun-mpi/mpi/internal/place"
	"github.com/gorun-mpi/mpi/internal/pmi"
	"github.com/gorun-mpi/mpi/internal/procs"
	"github.com/gorun-mpi/mpi/internal/reach"
	"github.com/gorun-mpi/mpi/internal/stdio"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/internal/waits"
)

// feed hands the frames in b to receive, until one is refused.
func feed(b []byte, receive func(frames.Frame) error) {
	for {
		f, n, _, err := frames.Next(b)
		if err != nil || n == 0 || receive(f) != nil {
			return
		}
		b = b[n:]
	}
}

// frame is one for the seeds of a fuzz target.
func frame(k frames.Kind, v any) []byte {
	return frames.Append(nil, frames.Frame{Kind: k, Body: encode(v)})
}

// Whatever an agent says, the head counts the ranks that run rightly, and does not fail itself.
func FuzzAgentSays(f *testing.F) {
	var good []byte
	for _, b := range [][]byte{frame(frames.Started, startedMessage{2, 7}), frame(frames.Started, startedMessage{3, 8}),
		frames.Append(nil, frames.Frame{Kind: frames.AllStarted}),
		frame(frames.Put, []pmi.Pair{{Key: "k", Value: "v"}}),
		frames.Append(nil, frames.Frame{Kind: frames.Fence}),
		frames.Append(nil, frames.Frame{Kind: frames.Question, Body: []byte("cmd=get kvsname=x key=k")}),
		frames.Append(nil, frames.Frame{Kind: frames.Stdout, Body: []byte("text\n")}),
		frame(frames.Aborted, abortedMessage{2, 1, "why", true}),
		frame(frames.Exited, exitedMessage{Rank: 2, Pid: 7, Code: 1}),
		frame(frames.Exited, exitedMessage{Rank: 3, Signal: 9}),
		frames.Append(nil, frames.Frame{Kind: frames.Finished})} {
		good = append(good, b...)
	}
	f.Add(good)
	f.Add(frame(frames.Started, startedMessage{0, 1})) // of the other host
	f.Add(frame(frames.Exited, exitedMessage{Rank: 2}))
	f.Add(frame(frames.Failed, failedMessage{Err: "no\nno", Code: -1}))
	f.Add(frame(frames.Failed, failedMessage{Lost: true}))
	f.Add(frame(frames.Refused, refusedMessage{Rank: 2, Hosts: 1}))
	f.Add(append(frame(frames.Host, hostMessage{0, "x", "a"}), frame(frames.Host, hostMessage{2, "x", "a"})...))
	f.Add(append(frame(frames.Started, startedMessage{2, 1}), frame(frames.Started, startedMessage{2, 1})...))
	f.Fuzz(func(t *testing.T, b []byte) {
		hosts := []place.Host{{Name: "fuzz-a", Slots: 2}, {Name: "fuzz-b", Slots: 2}, {Name: "fuzz-c", Slots: 1},
			{Name: "fuzz-d", Slots: 1}}
		h := newHead(t, &Job{Apps: []App{{Ranks: 6, Path: "/x", Name: "x"}}, Hosts: hosts, Agents: Agents{Width: 2}})
		n, r := h.children[0], h.run // of ranks 0 to 3; 2 and 3 are below it
		feed(b, n.receive)
		ended := make(chan struct{})
		r.post(func() {
			if r.alive < 0 || r.alive > 4 || h.left < 1 || r.ranks[4].started || r.ranks[5].ended {
				t.Errorf("%d ranks run, %d hosts still start some", r.alive, h.left)
			}
			n.gone()
			if r.alive != 0 {
				t.Errorf("%d ranks run on a host that is gone", r.alive)
			}
			close(ended)
		})
		<-ended
		feed(frame(frames.Started, startedMessage{Rank: 3}), n.receive) // had come before
		r.post(func() {
			if r.alive != 0 {
				t.Errorf("%d ranks run on a host that is gone, said late", r.alive)
			}
		})
		h.end()
	})
}

// An agent speaks for the ranks of its own subtree only, and each of them once.
func TestAgentSaysWhatIsNotItsOwn(t *testing.T) {
	hosts := []place.Host{{Name: "say-a", Slots: 1}, {Name: "say-b", Slots: 1}, {Name: "say-c", Slots: 1},
		{Name: "say-d", Slots: 1}}
	started, exited := func(rank int) []byte { return frame(frames.Started, startedMessage{rank, 7}) },
		func(rank int) []byte { return frame(frames.Exited, exitedMessage{Rank: rank}) }
	host := func(rank int) []byte { return frame(frames.Host, hostMessage{rank, fmt.Sprint(rank), "x"}) }
	refuse := func(rank, n int) []byte { return frame(frames.Refused, refusedMessage{rank, n, "no"}) }
	bare := func(k frames.Kind) []byte { return frames.Append(nil, frames.Frame{Kind: k}) }
	for _, c := range []struct { // the node is that of rank 2, with rank 3 below
		say  [][]byte
		want string // of the last one; "": it is taken
	}{
		{[][]byte{started(2), started(3), bare(frames.AllStarted), exited(3), exited(2)}, ""},
		{[][]byte{host(2), host(3), started(2)}, ""},
		{[][]byte{host(2), host(2)}, "the host of rank 2 out of turn"},
		{[][]byte{host(0)}, "the host of rank 0 out of turn"},
		{[][]byte{refuse(3, 1), host(3)}, "the host of rank 3 out of turn"},
		{[][]byte{started(0)}, "the start of rank 0 out of turn"},
		{[][]byte{started(-1)}, "the start of rank -1 out of turn"},
		{[][]byte{started(3), started(3)}, "the start of rank 3 out of turn"},
		{[][]byte{exited(1)}, "the end of rank 1 out of turn"},
		{[][]byte{exited(3)}, "the end of rank 3 out of turn"},
		{[][]byte{frame(frames.Aborted, abortedMessage{1, 1, "x", false})}, "an abort of rank 1"},
		{[][]byte{refuse(3, 1), bare(frames.Fence)}, ""},
		{[][]byte{refuse(3, 1), started(3)}, "the start of rank 3 out of turn"},
		{[][]byte{refuse(3, 1), refuse(3, 1)}, "1 hosts from that of rank 3 on"},
		{[][]byte{refuse(3, 2)}, "2 hosts from that of rank 3 on"},
		{[][]byte{refuse(3, 0)}, "0 hosts from that of rank 3 on"},
		{[][]byte{refuse(2, 1)}, "1 hosts from that of rank 2 on"},
		{[][]byte{refuse(0, 1)}, "1 hosts from that of rank 0 on"},
		{[][]byte{started(3), refuse(3, 1)}, "the host of rank 3, which runs"},
		{[][]byte{bare(frames.AllStarted), refuse(3, 1)}, "1 hosts from that of rank 3 on"},
		{[][]byte{bare(frames.Fence), bare(frames.Fence)}, "in the fence twice"},
		{[][]byte{frame(frames.Put, []pmi.Pair{{Key: "", Value: "x"}})}, "is none of PMI-1"},
	} {
		h := newHead(t, &Job{Apps: []App{{Ranks: 4, Path: "/x", Name: "x"}}, Hosts: hosts, Agents: Agents{Width: 2}})
		n, err := h.children[1], error(nil)
		for _, b := range c.say {
			if err != nil {
				t.Errorf("%q: %v", c.say, err)
			}
			f, _, _, _ := frames.Next(b)
			err = n.receive(f)
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.say, err, c.want)
		}
		h.end()
	}
}

// Hosts that are handed over by an agent that is lost are not started, and the others are waited for.
func TestHandedOverByALostHost(t *testing.T) {
	hosts := []place.Host{{Name: "say-a", Slots: 1}, {Name: "say-b", Slots: 1}, {Name: "say-c", Slots: 1},
		{Name: "say-d", Slots: 1}}
	h := newHead(t, &Job{Apps: []App{{Ranks: 4, Path: "/x", Name: "x"}}, Hosts: hosts, Agents: Agents{Width: 2},
		Options: Options{Recover: true}})
	n := h.children[1]
	h.run.post(n.gone)
	f, _, _, _ := frames.Next(frame(frames.Refused, refusedMessage{3, 1, "no"}))
	if err := n.receive(f); err != nil {
		t.Error(err)
	}
	h.run.post(func() {
		if h.left != 1 || h.run.starting != 1 {
			t.Errorf("%d hosts still start ranks, and %d who start some; the first one does", h.left, h.run.starting)
		}
	})
	h.end()
}

// head is one whose agents are not there.
type head struct {
	run *run
	*fleet
	end func()
}

// pumped does what is posted to a run, and drops what its server says, until the run is over; then it is closed.
func pumped(r *run, events <-chan pmi.Event) (done chan struct{}) {
	done = make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case f := <-r.posts:
				f()
			case <-events:
			case <-r.over:
				return
			}
		}
	}()
	return done
}

func newHead(t testing.TB, j *Job) *head {
	j.Stdout, j.Stderr = os.Stdout, os.Stderr
	plan, err := j.Plan()
	if err != nil {
		t.Fatal(err)
	}
	r := j.newRun(plan)
	r.log = logger("", nil)
	r.streams = stdio.NewTo(stdio.NewOutlet(io.Discard, false, nil), stdio.NewOutlet(io.Discard, false, nil))
	fl := j.headFleet(r, &reach.Self{}, pmi.Options{})
	fl.cancel() // no host is reached for
	here, there := net.Pipe()
	go io.Copy(io.Discard, there)
	link := func(n *child) {
		if n.link == nil {
			n.link = frames.New(here, here, frames.Options{Silence: time.Hour, Lost: func(error) {}})
		}
	}
	for _, n := range fl.children {
		link(n)
	}
	done := pumped(r, nil)
	return &head{r, fl, func() {
		ended := make(chan struct{})
		r.post(func() {
			for _, n := range fl.children {
				n.gone()
			}
			if r.alive != 0 || fl.left != 0 || r.starting != 0 {
				t.Errorf("%d ranks run, %d hosts still start some, %d start ranks", r.alive, fl.left, r.starting)
			}
			close(ended)
		})
		<-ended
		fl.finished()
		close(r.over)
		<-done
		for _, n := range fl.children {
			if n.link != nil {
				n.link.Close()
			}
		}
		there.Close()
		for _, o := range r.streams.Outlets() {
			o.Flush()
		}
		fl.server.Close()
	}}
}

// What the ranks of a host put fits into frames, and arrives as it was, whatever is in it.
func TestPutFrames(t *testing.T) {
	var put []pmi.Pair
	for i := range 1000 {
		value := strings.Repeat([]string{"<", "\xff", "\"", "x"}[i%4], 880)
		put = append(put, pmi.Pair{Key: fmt.Sprintf("%064d", i), Value: value})
	}
	var got []pmi.Pair
	for _, body := range putFrames(put) {
		f, n, _, err := frames.Next(frames.Append(nil, frames.Frame{Kind: frames.Put, Body: body}))
		if err != nil || n == 0 {
			t.Fatalf("%d, %v", n, err)
		}
		some, err := decode[[]pmi.Pair](f)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, pairs(some, narrow)...)
	}
	if !slices.Equal(got, put) {
		t.Error("they are others")
	}
}

// Whatever a head says, what is started has been checked.
func FuzzHeadSays(f *testing.F) {
	start := startMessage{Hosts: []hostPart{{Name: "h", Ranks: []int{1, 3}}, {Name: "below", Ranks: []int{0}}},
		World: 4, Apps: []App{{Ranks: 4, Name: "x", Path: "/x"}}, Secret: make([]byte, secretSize)}
	f.Add(frame(frames.Start, start))
	f.Add(append(frame(frames.Start, start), frame(frames.Order, order{Phase: killing, Signal: 9})...))
	f.Add(append(frame(frames.Order, order{Phase: killing}), frame(frames.Start, start)...))
	f.Add(frames.Append(nil, frames.Frame{Kind: frames.Stdin, Body: []byte("text")}))
	f.Add(frames.Append(nil, frames.Frame{Kind: frames.Released}))
	f.Add(append(frames.Append(nil, frames.Frame{Kind: frames.File, Body: []byte("\x7fELF....")}),
		frames.Append(nil, frames.Frame{Kind: frames.File})...))
	f.Add(append(frame(frames.Order, order{Gone: 5}), frame(frames.Start, start)...)) // of four
	start.Hosts[1].Ranks = []int{3, 1}
	f.Add(frame(frames.Start, start))
	start.Hosts[1].Ranks, start.Agents.Silence = []int{0}, -1
	f.Add(frame(frames.Start, start))
	f.Fuzz(func(t *testing.T, b []byte) {
		a := &parent{start: make(chan *startMessage, 1), gone: make(chan struct{}), ready: make(chan struct{}),
			input: stdio.NewIntake()}
		close(a.ready) // as after a start that has failed
		defer a.programs.Close()
		feed(b, a.receive)
		select {
		case m := <-a.start:
			if m != nil && (m.check() != nil || len(a.early) > 0 && slices.Max(a.early) >= m.World) {
				t.Errorf("%+v was taken, after the ends of %v", m, a.early)
			}
		default:
		}
	})
}

// FuzzHeadOrders has a head say anything to an agent whose ranks run: one waits for the value of a key, one is in the
// barrier. No rank is sent what is no signal, or a line that is none of PMI-1, and none is told of a rank that is none.
func FuzzHeadOrders(f *testing.F) {
	answer := func(text string) []byte {
		return frames.Append(nil, frames.Frame{Kind: frames.Answer, Body: []byte(text)})
	}
	released := frames.Append(nil, frames.Frame{Kind: frames.Released})
	f.Add(append(answer("cmd=get_result rc=0 msg=success value=v j=7\n"), released...))
	f.Add(answer("cmd=get_result rc=0 msg=\xd8success value=v j=7\n"))
	f.Add(append(answer("cmd=get_result rc=0 value=\xff\n"), answer("cmd=get_result rc=0 value=v\n")...))
	f.Add(append(released, answer("cmd=barrier_out\n")...))
	f.Add(append(frame(frames.Order, order{Phase: killing, Signal: 9}),
		frame(frames.Order, order{Finish: true})...))
	f.Add(append(frame(frames.Order, order{Gone: 4}), frame(frames.Order, order{Gone: 4})...))
	f.Add(frame(frames.Order, order{Gone: 5})) // of a job of four
	f.Add(append(frame(frames.Order, order{Ask: question{ID: 1, Level: waits.Full, Rank: waits.Any, Dump: "/x"}}),
		frame(frames.Order, order{Ask: question{ID: 2, Level: waits.Glance, Rank: 3}})...))
	f.Add(frame(frames.Order, order{Signal: 65}))
	f.Add(frame(frames.Order, order{Phase: working, Signal: 10, Silent: true}))
	f.Add(append(frames.Append(nil, frames.Frame{Kind: frames.Stdin, Body: []byte("text")}),
		frames.Append(nil, frames.Frame{Kind: frames.StdinEnd})...))
	f.Fuzz(func(t *testing.T, b []byte) {
		a := newRunningAgent(t)
		feed(b, a.receive)
		a.run.post(func() {
			if a.run.policy.phase < working || a.run.policy.phase > killing || a.run.alive != 2 {
				t.Errorf("phase %d, %d ranks run", a.run.policy.phase, a.run.alive)
			}
		})
		for _, s := range a.end() {
			if s < 1 || s > 64 {
				t.Errorf("signal %d to a rank", s)
			}
		}
		for i := range a.heard {
			told := map[string]bool{}
			for line := range strings.Lines(a.heard[i].String()) {
				text := strings.TrimSuffix(line, "\n")
				rank, gone := strings.CutPrefix(text, "cmd=gorun_gone rank=")
				if !strings.HasPrefix(text, "cmd=") || hasControls(text) ||
					gone && (told[text] || !slices.Contains([]string{"0", "1", "2", "3", lastGone}, rank)) {
					t.Errorf("a rank is told %q", line)
				}
				told[text] = gone
			}
		}
	})
}

// lastGone is a rank that the ranks of runningAgent are told of last.
const lastGone = "9"

// hasControls reports whether text has a control character of ASCII. PMI-1 carries other bytes as they are: a value is
// the program's.
func hasControls(text string) bool {
	return strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f })
}

// runningAgent is an agent of a job of four ranks, of which it has 1 and 3, that run.
type runningAgent struct {
	*parent
	heard   [2]proc.Buffer // what the ranks are told
	signals []syscall.Signal
	end     func() []syscall.Signal // returns what the ranks were sent
}

func newRunningAgent(t testing.TB) *runningAgent {
	a := &runningAgent{parent: &parent{start: make(chan *startMessage, 1), gone: make(chan struct{}),
		ready: make(chan struct{}), input: stdio.NewIntake()}}
	here, there := net.Pipe()
	asked, read := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(read)
		said := &bytes.Buffer{}
		for part := make([]byte, 1000); ; {
			n, err := there.Read(part)
			if err != nil {
				return
			}
			if said != nil && bytes.Contains(append(said.Bytes(), part[:n]...), []byte("cmd=get")) {
				close(asked)
				said = nil
			}
			if said != nil {
				said.Write(part[:n])
			}
		}
	}()
	a.link = frames.New(here, here, frames.Options{Down: true, Silence: time.Hour, Lost: func(error) {}})
	j := &Job{Apps: []App{{Ranks: 4, Path: "/x", Name: "x"}}}
	plan := &Plan{World: 4, Host: "h", Specs: []procs.Spec{{Rank: 1}, {Rank: 3}}}
	r := j.newRun(plan)
	r.parent, r.log, r.alive = a.parent, logger("", nil), 2
	r.backend = ranksOf{a}
	r.streams = stdio.NewTo(stdio.NewOutlet(io.Discard, false, nil), stdio.NewOutlet(io.Discard, false, nil))
	r.server = pmi.NewServer(4, pmi.Options{Name: "job", Tree: true, Here: 2, Above: a.parent})
	a.begun, a.run = true, r
	close(a.ready)
	done := pumped(r, r.server.Events())
	var ranks sync.WaitGroup
	var far [2]net.Conn
	for i, text := range []string{"cmd=get kvsname=job key=k1\n", "cmd=barrier_in\n"} {
		near, conn := net.Pipe()
		far[i] = conn
		ranks.Go(func() { r.server.ServeConn(plan.Specs[i].Rank, near) })
		ranks.Go(func() { io.Copy(&a.heard[i], conn) })
		io.WriteString(conn, "cmd=init pmi_version=1 pmi_subversion=1\ncmd=gorun_hello version=1 gone=1\n"+text)
	}
	<-asked
	for i := range a.heard {
		proc.Eventually(t, "the greeting", func() bool {
			return strings.Contains(a.heard[i].String(), "gorun_welcome")
		})
	}
	a.end = func() []syscall.Signal {
		ended := make(chan struct{})
		r.post(func() { close(ended) })
		<-ended
		r.server.Gone(9)
		proc.Eventually(t, "the last line", func() bool {
			return strings.Contains(a.heard[1].String(), "rank="+lastGone)
		})
		r.server.Close()
		for _, conn := range far {
			conn.Close()
		}
		ranks.Wait()
		close(r.over)
		<-done
		a.link.Close()
		there.Close()
		here.Close()
		<-read
		for _, o := range r.streams.Outlets() {
			o.Flush()
		}
		return a.signals
	}
	return a
}

// ranksOf is the backend of such an agent.
type ranksOf struct{ *runningAgent }

func (ranksOf) Start(*procs.Spec) (int, error)   { return 0, errors.New("all have been started") }
func (ranksOf) Host(int) string                  { return "h" }
func (ranksOf) Exits() <-chan procs.Exit         { return nil }
func (ranksOf) Close()                           {}
func (b ranksOf) Signal(_ int, s syscall.Signal) { b.signals = append(b.signals, s) }

// gorun says at the start what it does to ranks that outnumber the CPUs.
func TestSaysWhatCrowdedRanksGet(t *testing.T) {
	const crowded = " ranks on 2 usable CPUs: ranks outnumber CPUs, so a waiting rank gives the CPU away"
	for ranks, want := range map[int]string{2: "", 3: "gorun: 3" + crowded + "\n",
		9: "gorun: 9" + crowded + ", and its timers may be 1 ms late\n"} {
		if ranks > 8 && !procs.CanBeLazy {
			continue
		}
		r := runOf(t, &Job{Apps: []App{{Ranks: ranks, Path: "/bin/true", Name: "true"}}}, cpusOf(2))
		var out bytes.Buffer
		outlet := stdio.NewOutlet(&out, false, nil)
		r.streams = stdio.NewTo(outlet, outlet)
		r.announce()
		outlet.Flush()
		if got := out.String(); got != want {
			t.Errorf("%d ranks: %q, want %q", ranks, got, want)
		}
	}
}
