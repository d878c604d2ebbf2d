package pmi

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
)

// An abort counts however its message is written: MPICH escapes blanks, others do not, and some messages are long.
func TestAbortInPlainText(t *testing.T) {
	long := strings.Repeat("all work and no play ", maxRead/10)
	for _, c := range []struct {
		name, line string
		code       int
		message    string
	}{
		{"escaped", `exitcode=7 message=something\ went\ wrong`, 7, "something went wrong"},
		{"plain", "exitcode=7 message=something went wrong", 7, "something went wrong"},
		{"looks like fields", "exitcode=7 message=x is 3, y=4 or cmd=5", 7, "x is 3, y=4 or cmd=5"},
		{"control characters", "exitcode=7 message=a\tb\x1b[2Jc", 7, "a b [2Jc"},
		{"message first", `message=no\ disk exitcode=7`, 7, "no disk"},
		{"too long", "exitcode=7 message=" + long, 7, long[:maxRead-len("cmd=abort exitcode=7 message=")]},
		{"too long, message first", "message=" + long + " exitcode=7", 1, long[:maxRead-len("cmd=abort message=")]},
		{"no message", "exitcode=7", 7, ""},
		{"no code", "message=oops", 1, "oops"},
		{"nothing", "", 1, ""},
		{"no field", "help me", 1, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := NewServer(2, Options{Name: "job"})
			defer s.Close()
			r := dial(t, s, 0)
			r.ask("cmd=init pmi_version=1", initReply)
			go io.WriteString(r.conn, "cmd=abort "+c.line+"\n")
			for {
				switch e := nextEvent(t, s); e.Kind {
				case EventAbort:
					if e.Code != c.code || e.Message != c.message {
						t.Errorf("code %d and message %q, want %d and %q", e.Code, e.Message, c.code, c.message)
					}
					return
				case EventGarbage, EventClosed:
					t.Fatalf("the abort is lost: %v", e.Err)
				}
			}
		})
	}
}

// A client may send requests up to a barrier without waiting for the replies: none is lost, each is answered in its
// turn.
func TestPipelinedRequests(t *testing.T) {
	s := NewServer(2, Options{Name: "job"})
	defer s.Close()
	clients := []*raw{dial(t, s, 0), dial(t, s, 1)}
	for _, c := range clients {
		c.ask("cmd=init pmi_version=1", initReply)
	}
	for i := range 20 {
		for rank, c := range clients {
			c.send(strings.Repeat("cmd=get_appnum\n", 100) +
				fmt.Sprintf("cmd=put kvsname=job key=%d-%d value=b\ncmd=get_maxes\ncmd=barrier_in\n", rank, i))
		}
		for _, c := range clients {
			for range 100 {
				c.want("cmd=appnum rc=0 appnum=0")
			}
			c.want("cmd=put_result rc=0 msg=success")
			c.want("cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=880")
			c.want("cmd=barrier_out rc=0")
		}
	}
}

// A rank that has ended is heard out at once, although it has read no reply and a process that it has started still
// holds its socket.
func TestHeardOut(t *testing.T) {
	s := NewServer(1, Options{Name: "job"})
	defer s.Close()
	near, far := sockets(t)
	served := make(chan struct{})
	go func() {
		defer close(served)
		s.ServeConn(0, near)
	}()
	// The replies do not fit into the socket, so that the server stops in the midst of the requests.
	io.WriteString(far, "cmd=init pmi_version=1\n"+strings.Repeat("cmd=get_maxes\n", 4000)+"cmd=finalize\n")
	wantEvent(t, s, EventInit, 0)
	near.(*net.UnixConn).CloseRead()
	near.(*net.UnixConn).CloseWrite()
	within(t, served, "the end of the connection")
	wantEvent(t, s, EventFinalize, 0)
	if e := wantEvent(t, s, EventClosed, 0); e.Err != nil {
		t.Errorf("the connection ends with %v", e.Err) // such as that the server has waited for the rank to read
	}
}
