package pmi

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// Ranks of ours are told of each rank that has ended, at once or when they join, also in a barrier; others are not.
func TestGone(t *testing.T) {
	s := NewServer(4, Options{Survive: true})
	early, foreign := dial(t, s, 0), dial(t, s, 1)
	for _, c := range []*raw{early, foreign} {
		c.ask("cmd=init pmi_version=1 pmi_subversion=1", initReply)
	}
	welcome := func(c *raw) {
		c.send("cmd=gorun_hello version=1 gone=1\n")
		if b, err := c.in.next(); err != nil || !strings.HasPrefix(string(b), "cmd=gorun_welcome rc=0") {
			t.Fatalf("%q, %v", b, err)
		}
	}
	welcome(early)
	early.send("cmd=barrier_in\n")
	foreign.send("cmd=barrier_in\n")
	s.Gone(3)
	early.want("cmd=gorun_gone rank=3")
	s.Gone(2)
	early.want("cmd=gorun_gone rank=2")
	for _, rank := range []int{2, 3} { // they have never come
		c := dial(t, s, rank)
		c.conn.Close()
	}
	early.want("cmd=barrier_out rc=0")
	foreign.want("cmd=barrier_out rc=0")
	foreign.ask("cmd=get_appnum", "cmd=appnum rc=0 appnum=0")
	late := NewServer(2, Options{})
	late.Gone(1)
	c := dial(t, late, 0)
	c.ask("cmd=init pmi_version=1 pmi_subversion=1", initReply)
	c.send("cmd=gorun_hello version=1 gone=1\n")
	var lines []string
	for range 2 {
		b, err := c.in.next()
		if err != nil {
			t.Fatal(err)
		}
		cmd, _, _ := strings.Cut(string(b), " ")
		lines = append(lines, cmd)
	}
	if slices.Sort(lines); !slices.Equal(lines, []string{"cmd=gorun_gone", "cmd=gorun_welcome"}) {
		t.Errorf("one that comes late is told %q", lines)
	}
}

// The client hears of each while it waits for a reply and while it does not; nonsense ends the connection.
func TestHeard(t *testing.T) {
	s, clients := world(t, 3, false, Options{})
	c := clients[0]
	s.Gone(1)
	<-c.Notices()
	if got := c.Gone(); !slices.Equal(got, []int{1}) || c.Gone() != nil {
		t.Errorf("%v", got)
	}
	fenced := make(chan error)
	go func() { fenced <- c.Fence(t.Context()) }()
	s.Gone(2)
	<-c.Notices()
	for _, other := range clients[1:] {
		go other.Fence(t.Context())
	}
	if err := <-fenced; err != nil || !slices.Equal(c.Gone(), []int{2}) {
		t.Errorf("the fence ends with %v", err)
	}
	for _, bad := range []string{"rank=3", "rank=-1", "rank=x", ""} {
		a, b := sockets(t)
		c := newClient(b, 0, 3)
		c.start()
		a.Write([]byte("cmd=gorun_gone " + bad + "\n"))
		select {
		case <-c.Lost():
		case <-time.After(time.Minute):
			t.Errorf("%q was taken", bad)
		}
		if !errors.Is(c.deadErr, ErrLost) {
			t.Errorf("%q: %v", bad, c.deadErr)
		}
	}
}

// A client hears whether the job goes on without ranks that fail.
func TestSurvives(t *testing.T) {
	for _, survives := range []bool{false, true} {
		_, clients := world(t, 1, false, Options{Survive: survives})
		if clients[0].Survives() != survives {
			t.Errorf("Survive is %t, and the client has heard of the contrary", survives)
		}
	}
}
