package pml

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/rendezvous"
	"github.com/gorun-mpi/mpi/transport"
)

var rewrite = flag.Bool("rewrite", false, "write the traces into testdata; read them before you commit them")

// TestTraces runs the scripts of testdata. A script is commands, each at the beginning of a line, and below each, with
// a tab in front, what happened: packets that were taken by a wire, READs, results. # begins a comment. Sizes are in
// bytes, KiB or MiB.
//
//	net ranks=2 eager=1024 frag=4KiB [unexpected=1MiB] [limit=N] [noget] [put]   begins; limit is Config.EagerMax
//	send 0->1 tag=7 len=10 [sync] [as=name]         post 1 src=any tag=7 len=10 [as=name]
//	probe 1 src=0 tag=7 [take=name]                 mrecv 1 message=name len=10 [as=name]
//	cancel name                                     drop 1               (forgets the communicator)
//	deliver 1 [count]   rank 1 sees what is on the wires to it, at most count packets of each sender
//	work 1              rank 1 polls once      stall 1   it finds that nothing comes any more
//	polls 1 no          rank 1 is not in the library, as far as others can see
//	waits 1             rank 1 is in the library, perhaps asleep
//	reads 1 3           of the READs of rank 1, 3 more succeed; all: every one. writes 1 3: of its WRITEs
//	prefer 1 split      where rank 1 may choose among stream, get and split
//	room 0->1 3         the wire from 0 to 1 takes no more packets while 3 are on it; all: it takes any
//	frag 0 1KiB         links of rank 0 take fragments of 1 KiB at most from now on
//	link                all ranks connect to each other; otherwise a first contact does, and does at once what it can
//	hold 0->1           connecting takes until: connect 0->1 ok, or connect 0->1 fails
//	down 1 at 0         rank 0 hears that rank 1 is gone
//	inject 1->0 kind=rts tag=1 id=1.1 len=5 addr=0 key=0 payload=10 [readable]    a packet that no engine sent
//	fail 0              the engine is told that the job is over
//	stats 0             what the counters say
//
// At the end nothing may be left that the script does not say: "left" prints how many operations are under way.
func TestTraces(t *testing.T) {
	eachScript(t, func(t *testing.T, file, before string) {
		after := runScript(t, before)
		if *rewrite {
			if err := os.WriteFile(file, []byte(after), 0o666); err != nil {
				t.Fatal(err)
			}
			return
		}
		want, got := strings.Split(before, "\n"), strings.Split(after, "\n")
		for i := range max(len(want), len(got)) {
			if i >= len(want) || i >= len(got) || want[i] != got[i] {
				t.Fatalf("%s:%d: the trace differs from here on; the whole is now:\n%s", file, i+1, after)
			}
		}
	})
}

// eachScript runs a test for each script of testdata.
func eachScript(t *testing.T, test func(t *testing.T, file, text string)) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			watchdog(t)
			test(t, file, string(text))
		})
	}
}

// script is one that runs.
type script struct {
	t        *testing.T
	net      *testNet
	out      strings.Builder
	named    []*operation // in order of their beginning
	messages map[string]*Message
	nics     bool // all ranks have devices that match tags
	noRead   bool // and leave rendezvous to software
}

// nic makes them.
func (s *script) nic(eager int) func(int) *testNIC {
	if !s.nics {
		return nil
	}
	return func(int) *testNIC {
		return &testNIC{limits: nicLimits{Tags: 64, Min: eager}, noRead: s.noRead}
	}
}

// operation is a send or receive with a name.
type operation struct {
	name string
	rank int
	r    *Request
	buf  []byte
	recv bool
	told bool
}

func runScript(t *testing.T, text string) string { return (&script{t: t}).run(text) }

func (s *script) run(text string) string {
	t := s.t
	s.messages = map[string]*Message{}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "\t") {
			continue // what happened the last time
		}
		s.out.WriteString(line + "\n")
		command, _, _ := strings.Cut(line, "#")
		if f := strings.Fields(command); len(f) > 0 {
			s.command(f)
			s.results()
			s.net.check(t)
		}
		if t.Failed() {
			t.Fatalf("after %q:\n%s", line, s.out.String())
		}
	}
	s.net.close()
	s.results()
	for _, o := range s.named {
		if !o.told {
			t.Errorf("%s has no end", o.name)
		}
	}
	for _, e := range s.net.engines {
		if n := e.Pending(); n != 0 {
			t.Errorf("rank %d has %d operations under way after its end", e.cfg.Rank, n)
		}
	}
	if n := len(s.net.regions); n != 0 {
		t.Errorf("%d buffers are still registered", n)
	}
	return s.out.String()
}

func (s *script) say(format string, args ...any) { fmt.Fprintf(&s.out, "\t"+format+"\n", args...) }

// args are the key=value and bare words of a command.
type args map[string]string

func parse(words []string) args {
	a := args{}
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		a[k] = v
	}
	return a
}

func (s *script) number(text string) int64 {
	unit := int64(1)
	for suffix, n := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20} {
		if strings.HasSuffix(text, suffix) {
			text, unit = strings.TrimSuffix(text, suffix), n
		}
	}
	switch text {
	case "any", "all":
		return -1
	case "max":
		return math.MaxInt64
	case "":
		return 0
	}
	n, err := strconv.ParseInt(text, 0, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return n * unit
}

// id reads slot.use, as traces print it.
func (s *script) id(text string) uint64 {
	slot, use, _ := strings.Cut(text, ".")
	return uint64(s.number(use))<<32 | uint64(s.number(slot))
}

func (s *script) pair(text string) [2]int {
	from, to, _ := strings.Cut(text, "->")
	return [2]int{int(s.number(from)), int(s.number(to))}
}

const scriptContext = 4

func (s *script) command(f []string) {
	a := parse(f[1:])
	if f[0] != "net" && s.net == nil {
		s.t.Fatal("a script begins with net")
	}
	switch f[0] {
	case "net":
		_, noGet := a["noget"]
		_, put := a["put"]
		s.net = newTestNet(netOptions{ranks: int(s.number(a["ranks"])), eagerMax: int(s.number(a["eager"])), fragMax: int(s.number(a["frag"])),
			unexpectedMax: max(s.number(a["unexpected"]), 1), limit: int(s.number(a["limit"])), noGet: noGet, put: put, nic: s.nic(int(s.number(a["eager"])))})
		s.net.log = s.say
	case "link":
		s.net.linkAll()
	case "send":
		s.send(s.pair(f[1]), a)
	case "post":
		s.post(int(s.number(f[1])), a)
	case "probe":
		s.probe(int(s.number(f[1])), a)
	case "mrecv":
		o := s.begin(int(s.number(f[1])), a)
		o.recv, o.buf = true, make([]byte, s.number(a["len"]))
		r, err := s.net.engines[o.rank].Imrecv(nil, s.messages[a["message"]], o.buf)
		if err != nil {
			s.t.Fatal(err)
		}
		o.r = r
	case "cancel":
		i := slices.IndexFunc(s.named, func(o *operation) bool { return o.name == f[1] })
		if err := s.named[i].r.Cancel(); err != nil {
			s.t.Fatal(err)
		}
	case "drop":
		s.net.engines[s.number(f[1])].DropContext(scriptContext, errors.New("communicator freed"))
	case "deliver":
		count := math.MaxInt
		if len(f) > 2 {
			count = int(s.number(f[2]))
		}
		s.net.deliver(int(s.number(f[1])), count)
	case "work":
		s.net.work(int(s.number(f[1])))
	case "stall":
		e := s.net.engines[s.number(f[1])]
		e.lock()
		e.path.stalled()
		e.exitCall()
		e.unlock()
		s.net.work(e.cfg.Rank)
	case "prefer":
		s.net.prefer(int(s.number(f[1])), map[string]*rendezvous.Scheme{"stream": rendezvous.Stream, "get": rendezvous.Get, "split": rendezvous.Split}[f[2]])
	case "left":
		s.say("%d", s.net.engines[s.number(f[1])].Pending())
	case "fail":
		s.net.engines[s.number(f[1])].Fail(errors.New("the job is over"))
		s.net.work(int(s.number(f[1]))) // what it has cut is down
	case "stats":
		st := s.net.engines[s.number(f[1])].Stats()
		s.say("%+v", st)
	default:
		s.wireCommand(f, a)
	}
	s.net.awaitConnects()
}

// wireCommand is one that is done to the network.
func (s *script) wireCommand(f []string, a args) {
	n := s.net
	n.mu.Lock()
	switch f[0] {
	case "polls":
		n.polls[int(s.number(f[1]))] = f[2] != "no"
	case "waits":
		n.waits[int(s.number(f[1]))] = true
	case "reads":
		n.reads[int(s.number(f[1]))] = int(s.number(f[2]))
		if f[2] == "all" {
			delete(n.reads, int(s.number(f[1])))
		}
	case "frag":
		n.devices[s.number(f[1])].caps.FragMax = int(s.number(f[2]))
	case "writes":
		n.writes[int(s.number(f[1]))] = int(s.number(f[2]))
		if f[2] == "all" {
			delete(n.writes, int(s.number(f[1])))
		}
	case "register":
		n.refused = f[1] == "no"
	case "room":
		n.rooms[s.pair(f[1])] = int(s.number(f[2]))
		if f[2] == "all" {
			delete(n.rooms, s.pair(f[1]))
		}
	case "hold":
		n.gates[s.pair(f[1])] = make(chan error)
	case "connect":
		w := s.pair(f[1])
		var err error
		if f[2] != "ok" {
			err = errors.New("the test does not let it")
		}
		gate := n.gates[w]
		n.mu.Unlock()
		gate <- err
		n.mu.Lock()
		delete(n.gates, w)
	case "down":
		at := n.devices[s.number(f[3])]
		at.inbox = append(at.inbox, transport.Packet{Event: transport.Down, Peer: int32(s.number(f[1])), Err: transport.ErrPeerGone})
		n.mu.Unlock()
		n.work(at.rank)
		return
	case "inject":
		n.mu.Unlock()
		s.inject(s.pair(f[1]), a)
		return
	default:
		s.t.Fatalf("no command %q", f[0])
	}
	n.mu.Unlock()
}

func (s *script) inject(w [2]int, a args) {
	h := wire.Header{Ctx: scriptContext, Tag: int32(s.number(a["tag"])), ID: s.id(a["id"]), Key: s.id(a["key"]),
		Addr: uint64(s.number(a["addr"])), Len: uint64(s.number(a["len"]))}
	for k := wire.Kind(0); k < 20; k++ {
		if k.String() == a["kind"] {
			h.Kind = k
		}
	}
	if _, ok := a["readable"]; ok {
		h.Flags |= wire.Readable
	}
	s.net.hostile = true
	d := s.net.devices[w[1]]
	d.inbox = append(d.inbox, transport.Packet{Peer: int32(w[0]), Header: h, Payload: contents(w[0], int(h.Tag), int(s.number(a["payload"])))})
	s.net.work(w[1])
}

// begin makes an operation of the name that the command gives, or the next number.
func (s *script) begin(rank int, a args) *operation {
	o := &operation{name: a["as"], rank: rank}
	if o.name == "" {
		o.name = fmt.Sprintf("#%d", len(s.named)+1)
	}
	s.named = append(s.named, o)
	return o
}

func (s *script) send(w [2]int, a args) {
	o := s.begin(w[0], a)
	tag := s.number(a["tag"])
	o.buf = contents(w[0], int(tag), int(s.number(a["len"])))
	mode := Standard
	if _, ok := a["sync"]; ok {
		mode = Synchronous
	}
	o.r = s.net.engines[w[0]].Isend(nil, scriptContext, w[1], int32(tag), o.buf, mode)
}

func (s *script) post(rank int, a args) {
	o := s.begin(rank, a)
	o.recv, o.buf = true, make([]byte, s.number(a["len"]))
	o.r = s.net.engines[rank].Irecv(nil, scriptContext, int(s.number(a["src"])), int32(s.number(a["tag"])), o.buf)
}

func (s *script) probe(rank int, a args) {
	m, st, found, err := s.net.engines[rank].Iprobe(scriptContext, int(s.number(a["src"])), int32(s.number(a["tag"])), a["take"] != "")
	switch {
	case err != nil:
		s.say("probe: %v", err)
	case !found:
		s.say("probe: nothing")
	default:
		s.say("probe: source=%d tag=%d len=%d", st.Source, st.Tag, st.Bytes)
		s.messages[a["take"]] = m
	}
}

// contents of a message follow from who sent it under which tag.
func contents(source, tag, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + source*31 + tag*3)
	}
	return b
}

// results says which operations have ended, and checks what receives brought.
func (s *script) results() {
	for _, o := range s.named {
		e := s.net.engines[o.rank]
		e.lock()
		over, st, err := o.r.state == stDone, o.r.status, o.r.err
		e.unlock()
		if o.told || !over {
			continue
		}
		o.told = true
		result := fmt.Sprintf("%d bytes", st.Bytes)
		if o.recv {
			result = fmt.Sprintf("source=%d tag=%d %d bytes", st.Source, st.Tag, st.Bytes)
		}
		if st.Cancelled {
			result = "cancelled"
		}
		if err != nil {
			result += ": " + err.Error()
		}
		if !errors.Is(err, errOver) {
			s.say("%s: %s", o.name, result)
		}
		if o.recv && !st.Cancelled && (err == nil || errors.Is(err, ErrTruncate)) &&
			!bytes.Equal(o.buf[:st.Bytes], contents(int(st.Source), int(st.Tag), int(st.Bytes))) {
			s.t.Errorf("%s: wrong contents", o.name)
		}
	}
}
