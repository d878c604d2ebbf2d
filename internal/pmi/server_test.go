package pmi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// raw is a hand-driven client of the server.
type raw struct {
	t    testing.TB
	conn net.Conn
	in   lineReader
}

func dial(t testing.TB, s *Server, rank int) *raw {
	t.Helper()
	a, b := sockets(t)
	go s.ServeConn(rank, a)
	r := &raw{t: t, conn: b}
	r.in.r = b
	b.SetDeadline(time.Now().Add(time.Minute))
	return r
}

func (r *raw) send(text string) {
	r.t.Helper()
	if _, err := io.WriteString(r.conn, text); err != nil {
		r.t.Fatalf("sending %.60q: %v", text, err)
	}
}

func (r *raw) want(line string) {
	r.t.Helper()
	b, err := r.in.next()
	if err != nil || string(b) != line {
		r.t.Fatalf("got %q (%v), want %q", b, err, line)
	}
}

func (r *raw) ask(request, reply string) {
	r.t.Helper()
	r.send(request + "\n")
	r.want(reply)
}

const initReply = "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1"

// gorun's ranks are told the mapping when they join, also one that is longer than PMI-1 allows.
func TestMappingOfOurs(t *testing.T) {
	for _, length := range []int{0, valMax + 1, mappingMax, mappingMax + 1} {
		_, clients := world(t, 2, length == mappingMax, Options{Mapping: strings.Repeat("x", length)})
		for _, c := range clients {
			text, err := c.Mapping(t.Context())
			switch {
			case length == 0 && (text != "(vector,(0,1,2))" || err != nil),
				length > 0 && length <= mappingMax && (len(text) != length || err != nil),
				length > mappingMax && !errors.Is(err, ErrNoKey):
				t.Errorf("%d characters: %.20q, %v", length, text, err)
			}
		}
	}
}

// A mapping that a client of PMI-1 could not read is no answer: the client looks for itself.
func TestMappingThatFits(t *testing.T) {
	for length, want := range map[int]string{
		valMax:     "cmd=get_result rc=0 msg=success value=" + strings.Repeat("x", valMax),
		valMax + 1: "cmd=get_result rc=-1 msg=key_not_found value=unknown",
	} {
		s := NewServer(1, Options{Name: "job", Mapping: strings.Repeat("x", length)})
		defer s.Close()
		c := dial(t, s, 0)
		c.ask("cmd=init pmi_version=1 pmi_subversion=1", initReply)
		c.ask("cmd=get kvsname=job key=PMI_process_mapping", want)
	}
}

// What MPICH's client asks, in its order (FACTS.md §2).
func TestServerTranscript(t *testing.T) {
	s := NewServer(2, Options{Name: "job", AppNums: []int{0, 1}})
	defer s.Close()
	c, d := dial(t, s, 0), dial(t, s, 1)
	c.ask("cmd=init pmi_version=1 pmi_subversion=1", initReply)
	d.ask("cmd=init pmi_version=1 pmi_subversion=2", initReply)
	c.ask("cmd=get_maxes", "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=880")
	c.ask("cmd=get_appnum", "cmd=appnum rc=0 appnum=0")
	d.ask("cmd=get_appnum", "cmd=appnum rc=0 appnum=1")
	c.ask("cmd=get_my_kvsname", "cmd=my_kvsname rc=0 kvsname=job")
	c.ask("cmd=get_universe_size", "cmd=universe_size rc=0 size=2")
	c.ask("cmd=get kvsname=job key=PMI_process_mapping", "cmd=get_result rc=0 msg=success value=(vector,(0,1,2))")
	c.ask(`cmd=put kvsname=job key=-bcast-1-0 value=2F64\ \=x`, "cmd=put_result rc=0 msg=success")
	c.send("cmd=barrier_in\n")
	d.ask("cmd=barrier_in", "cmd=barrier_out rc=0")
	c.want("cmd=barrier_out rc=0")
	d.ask("cmd=get kvsname=job key=-bcast-1-0", `cmd=get_result rc=0 msg=success value=2F64\ \=x`)
	d.ask("cmd=get kvsname=job key=nosuch", "cmd=get_result rc=-1 msg=key_not_found value=unknown")
	c.ask("cmd=lookup_name service=svc", "cmd=lookup_result rc=1 info=fail msg=service_not_found")
	c.ask("cmd=publish_name service=svc port=xyz", "cmd=publish_result info=ok rc=0 msg=success")
	c.ask("cmd=publish_name service=svc port=xyz", "cmd=publish_result rc=1 info=fail msg=duplicate_service")
	d.ask("cmd=lookup_name service=svc", "cmd=lookup_result port=xyz info=ok rc=0 msg=success")
	d.ask("cmd=unpublish_name service=svc", "cmd=unpublish_result info=ok rc=0 msg=success")
	d.ask("cmd=unpublish_name service=svc", "cmd=unpublish_result rc=1 info=fail msg=service_not_found")
	c.send("mcmd=spawn\nnprocs=2\nexecname=python3\ntotspawns=1\nspawnssofar=1\narg1=sp.py and more\nargcnt=1\ninfo_num=0\nendcmd\n")
	c.want("cmd=spawn_result rc=-1 msg=gorun_does_not_spawn_processes_after_the_start")
	c.ask("cmd=finalize", "cmd=finalize_ack rc=0")
	if st := s.State(0); !st.Joined || !st.Finalized {
		t.Errorf("%+v", st)
	}
}

func TestServerRefuses(t *testing.T) {
	s := NewServer(2, Options{Name: "job"})
	defer s.Close()
	c := dial(t, s, 0)
	c.ask("cmd=get_maxes", "cmd=maxes rc=-1 msg=init_must_come_first")
	c.ask("cmd=init pmi_version=2 pmi_subversion=0",
		"cmd=response_to_init rc=-1 pmi_version=1 pmi_subversion=1 msg=only_PMI_version_1_is_spoken_here")
	c.ask("cmd=init pmi_version=1", initReply)
	c.ask("cmd=dance", "cmd=dance_result rc=-1 msg=unknown_command")
	c.ask("cmd=put kvsname=other key=a value=b", "cmd=put_result rc=-1 msg=kvsname_unknown")
	c.ask("cmd=put kvsname=job value=b", "cmd=put_result rc=-1 msg=key_empty_or_too_long")
	c.ask("cmd=put kvsname=job key=a", "cmd=put_result rc=-1 msg=value_missing_or_too_long")
	c.ask("cmd=put kvsname=job key="+strings.Repeat("k", 65)+" value=b",
		"cmd=put_result rc=-1 msg=key_empty_or_too_long")
	c.ask("cmd=put kvsname=job key=a value="+strings.Repeat("v", 881),
		"cmd=put_result rc=-1 msg=value_missing_or_too_long")
	c.ask("cmd=put kvsname=job key=PMI_process_mapping value=b",
		"cmd=put_result rc=-1 msg=keys_beginning_with_PMI_are_reserved")
	c.ask("cmd=put kvsname=job key=a value=b", "cmd=put_result rc=0 msg=success")
	c.ask("cmd=put kvsname=job key=a value=b", "cmd=put_result rc=-1 msg=duplicate_key")
	c.ask("cmd=barrier_in group=NODE", "cmd=barrier_out rc=-1 msg=only_group=WORLD")
	c.send("cmd=barrier_in\n")
	c.ask("cmd=barrier_in", "cmd=barrier_out rc=-1 msg=this_rank_is_in_the_barrier_already")
	c.ask("cmd=gorun_hello version=99", "cmd=gorun_welcome rc=-1 version=1")
	if err := s.ServeConn(0, c.conn); err == nil {
		t.Error("a second connection for rank 0 was served")
	}
	if err := s.ServeConn(2, c.conn); err == nil {
		t.Error("rank 2 of 2 was served")
	}
}

// Values that the server takes must fit into the reply that carries them.
func TestServerLongestLines(t *testing.T) {
	s := NewServer(1, Options{Name: strings.Repeat("n", 60)})
	defer s.Close()
	c := dial(t, s, 0)
	c.ask("cmd=init pmi_version=1", initReply)
	key, value := strings.Repeat("k", 64), strings.Repeat("v", valMax)
	c.ask("cmd=put kvsname="+s.Name()+" key="+key+" value="+value, "cmd=put_result rc=0 msg=success")
	c.ask("cmd=get kvsname="+s.Name()+" key="+key, "cmd=get_result rc=0 msg=success value="+value)
}

func TestServerBounds(t *testing.T) {
	s := NewServer(1, Options{Name: "job"})
	s.maxKeys, s.maxBytes = 3, 20
	defer s.Close()
	c := dial(t, s, 0)
	c.ask("cmd=init pmi_version=1", initReply)
	const full = "cmd=put_result rc=-1 msg=no_room_in_job"
	c.ask("cmd=put kvsname=job key=a value=0123456789", "cmd=put_result rc=0 msg=success")
	c.ask("cmd=put kvsname=job key=b value=0123456789", full)
	c.ask("cmd=put kvsname=job key=c value=", "cmd=put_result rc=0 msg=success")
	c.ask("cmd=put kvsname=job key=d value=", "cmd=put_result rc=0 msg=success")
	c.ask("cmd=put kvsname=job key=e value=", full)
	c.ask("cmd=publish_name service=s port=p", "cmd=publish_result rc=1 info=fail msg=no_room")
	c.ask("cmd=get kvsname=job key=a", "cmd=get_result rc=0 msg=success value=0123456789")
}

// Each of these ends its own connection with an event, and nothing else.
func TestHostileClients(t *testing.T) {
	const hello = "cmd=init pmi_version=1\n"
	for name, text := range map[string]string{
		"no PMI":            "GET / HTTP/1.1\r\n",
		"binary":            "\x00\x01\x02\n",
		"endless line":      hello + strings.Repeat("x", 2*maxRead),
		"endless spawn":     hello + strings.Repeat("mcmd=x\n", maxSpawn+10),
		"after finalize":    hello + "cmd=finalize\ncmd=barrier_in\n",
		"long line, spawn":  hello + "mcmd=spawn\n" + strings.Repeat("y", 2*maxRead),
		"command of blanks": "   \n",
	} {
		t.Run(name, func(t *testing.T) {
			s := NewServer(2, Options{Name: "job"})
			defer s.Close()
			good, bad := dial(t, s, 0), dial(t, s, 1)
			go io.WriteString(bad.conn, text)
			if e := wantEvent(t, s, EventGarbage, 1); e.Err == nil {
				t.Error("no error in the event")
			}
			wantEvent(t, s, EventClosed, 1)
			good.ask("cmd=init pmi_version=1", initReply)
			good.ask("cmd=put kvsname=job key=a value=b", "cmd=put_result rc=0 msg=success")
		})
	}
}

// A client that asks and never reads is given up, and holds up no other.
func TestClientThatDoesNotRead(t *testing.T) {
	s := NewServer(2, Options{Name: "job"})
	defer s.Close()
	good, bad := dial(t, s, 0), dial(t, s, 1)
	bad.send("cmd=init pmi_version=1\n")
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		for {
			if _, err := io.WriteString(bad.conn, strings.Repeat("cmd=get_maxes\n", 1000)); err != nil {
				return
			}
		}
	}()
	good.ask("cmd=init pmi_version=1", initReply)
	for i := range 100 {
		good.ask(fmt.Sprintf("cmd=put kvsname=job key=k%d value=b", i), "cmd=put_result rc=0 msg=success")
	}
	s.Close()
	within(t, stop, "the flood to end")
}

// No newline, then the end: no event but the end itself.
func TestClientEndsInMidLine(t *testing.T) {
	s := NewServer(1, Options{})
	defer s.Close()
	c := dial(t, s, 0)
	c.ask("cmd=init pmi_version=1", initReply)
	c.send("cmd=barri")
	c.conn.Close()
	wantEvent(t, s, EventInit, 0)
	if e := nextEvent(t, s); e.Kind != EventClosed || e.Err == nil {
		t.Errorf("%+v", e)
	}
}

// A rank that dies in the barrier is not counted any more; the events are complete without a reader.
func TestLeaveBarrier(t *testing.T) {
	s := NewServer(2, Options{})
	defer s.Close()
	c := dial(t, s, 0)
	c.ask("cmd=init pmi_version=1", initReply)
	c.send("cmd=barrier_in\n")
	c.conn.Close()
	wantEvent(t, s, EventClosed, 0)
	if s.entered != 0 {
		t.Errorf("%d ranks in the barrier", s.entered)
	}
}

// FuzzServer lets a client send anything.
func FuzzServer(f *testing.F) {
	f.Add([]byte("cmd=init pmi_version=1\ncmd=get_maxes\ncmd=barrier_in\ncmd=abort exitcode=7\ncmd=finalize\n"))
	f.Add([]byte("cmd=init pmi_version=1\nmcmd=spawn\nx\nendcmd\ncmd=gorun_hello version=1\ncmd=abort exitcode=7 message=AAAA\n"))
	f.Add([]byte("cmd=abort exitcode=7 message=no disk\x1b[2J\ncmd=init pmi_version=1\n"))
	f.Add([]byte("cmd=init pmi_version=1\ncmd=put kvsname=job key=a value=b\ncmd=get kvsname=job key=a\ncmd=publish_name service=a port=b\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		s := NewServer(1, Options{Name: "job"})
		near, far := net.Pipe()
		done := make(chan struct{})
		go func() { defer close(done); s.ServeConn(0, near) }()
		var out bytes.Buffer
		read := make(chan struct{})
		go func() { defer close(read); io.Copy(&out, far) }()
		far.SetWriteDeadline(time.Now().Add(5 * time.Second))
		far.Write(in)
		far.Close()
		within(t, done, "the server to end")
		<-read
		for l := range bytes.Lines(out.Bytes()) {
			if len(l) > maxWrite && (len(l) > maxRead || !bytes.Contains(in, []byte("gorun_hello"))) {
				t.Errorf("the server sent a line of %d bytes", len(l))
			}
			if _, err := parseLine(bytes.TrimSuffix(l, []byte("\n"))); err != nil {
				t.Errorf("the server sent %q: %v", l, err)
			}
		}
	})
}
