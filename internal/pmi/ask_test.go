package pmi

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// A rank of ours is asked, at any time, and answers; others are not asked.
func TestAsk(t *testing.T) {
	s, clients := world(t, 3, false, Options{})
	for _, q := range []Question{{1, 0, ""}, {2, 2, "/a folder\nwith a line"}} {
		if !s.Ask(1, q) {
			t.Fatal("rank 1 cannot be asked")
		}
		if got := <-clients[1].Questions(); got != q {
			t.Errorf("it was asked %+v, want %+v", got, q)
		}
		text := strings.Repeat("x\n", MaxState/2)
		if err := clients[1].Answer(q.ID, []byte(text)); err != nil {
			t.Fatal(err)
		}
		<-s.Answers()
		if got := s.TakeAnswers(); len(got) != 1 || got[0].Rank != 1 || got[0].ID != q.ID || string(got[0].Text) != text {
			t.Errorf("the answers are %.200q", fmt.Sprint(got))
		}
	}
	if _, err := clients[1].Get(t.Context(), "nothing"); !errors.Is(err, ErrNoKey) {
		t.Error(err) // the answers have no replies that would be taken for this one
	}
	clients[2].Close()
	for s.Ask(2, Question{ID: 3}) {
		if t.Context().Err() != nil {
			t.Fatal("a rank that has left is asked")
		}
	}
}

// An answer that was made up is none, and harms nothing; a rank that did not offer it is not asked.
func TestAskOfOthers(t *testing.T) {
	s := NewServer(2, Options{})
	c := dial(t, s, 0)
	c.ask("cmd=init pmi_version=1 pmi_subversion=1", initReply)
	c.send("cmd=gorun_hello version=1 gone=1\n")
	if b, err := c.in.next(); err != nil || !strings.HasPrefix(string(b), "cmd=gorun_welcome rc=0") {
		t.Fatalf("%q, %v", b, err)
	}
	if s.Ask(0, Question{ID: 1}) || s.Ask(1, Question{ID: 1}) {
		t.Error("a rank is asked that has not said that it answers")
	}
	for _, l := range []string{"id=x text=eA", "text=eA", "id=1 text=!!", "id=1 text=" + strings.Repeat("A", 15000)} {
		c.send("cmd=gorun_state " + l + "\n")
	}
	for range 100 {
		c.send("cmd=gorun_state id=7 text=eA\n")
	}
	c.ask("cmd=get_appnum", "cmd=appnum rc=0 appnum=0")
	if got := s.TakeAnswers(); len(got) != 1 || got[0].ID != 7 || string(got[0].Text) != "x" {
		t.Errorf("%+v", got)
	}
}
