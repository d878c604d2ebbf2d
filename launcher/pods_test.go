package launcher

import (
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/frames"
	"github.com/gorun-mpi/mpi/internal/reach"
)

// The loss of a host that was there again is news.
func TestHostIsLostAgain(t *testing.T) {
	d := deaths{most: 2}
	const why = "host job-1 is lost: its agent is gone: the connection has ended"
	for range 2 {
		for i, news := range []bool{true, false} {
			if d.hostLost(why) != news {
				t.Errorf("loss %d is news: %v, want %v", i+1, !news, news)
			}
		}
		d.hostBack("job-1")
	}
	if d.hostLost("host job-11 is lost: x"); !d.hostLost(why) {
		t.Error("the loss is no news")
	}
	if d.hostBack("job-1"); d.hostLost("host job-11 is lost: x") {
		t.Error("another host is back")
	}
}

// So is what is said of all hosts, or of gorun, once a host is there again.
func TestAllHostsAreLostAgain(t *testing.T) {
	d := deaths{most: 2}
	const why = "the 2 other hosts (job-1, job-2) fell silent together"
	if !d.hostLost(why) || d.hostLost(why) {
		t.Error("said of another pair of losses")
	}
	if d.hostBack("job-2"); !d.hostLost(why) {
		t.Error("the loss is no news")
	}
}

// Of what a keeper hears, what makes no sense ends it.
func TestWhatAKeeperHears(t *testing.T) {
	for name, c := range map[string]struct {
		kind frames.Kind
		body any
		bad  bool
	}{
		"silence":            {frames.Agent, agentMessage{Silence: time.Second}, false},
		"an agent":           {frames.Agent, agentMessage{Name: "job-1/3"}, false},
		"of another pod":     {frames.Agent, agentMessage{Name: "job-2/3"}, true},
		"a long name":        {frames.Agent, agentMessage{Name: "job-1/" + string(make([]byte, 300))}, true},
		"no silence":         {frames.Agent, agentMessage{Silence: -1}, true},
		"hardly any silence": {frames.Agent, agentMessage{Silence: 1}, true},
		"no message":         {frames.Agent, "x", true},
		"the end":            {frames.Order, order{Finish: true}, false},
		"a signal":           {frames.Order, order{Signal: 9}, true},
		"a start":            {frames.Start, nil, true},
	} {
		k := newKeeper()
		k.call.Host = "job-1"
		k.link = frames.New(never{}, never{}, frames.Options{Silence: time.Hour})
		for range 2 { // nothing is done twice that must not be
			err := k.receive(frames.Frame{Kind: c.kind, Body: encode(c.body)})
			if (err != nil) != c.bad {
				t.Errorf("%s: %v", name, err)
			}
		}
		k.link.Close()
	}
	k := newKeeper()
	k.call.Host = "job-1"
	for n := range mostAgents + 1 {
		err := k.receive(frames.Frame{Kind: frames.Agent, Body: encode(agentMessage{Name: "job-1/1"})})
		if (err != nil) != (n == mostAgents) {
			t.Fatalf("agent %d: %v", n+1, err)
		}
	}
}

// An agent that ends in its pod is news of the pod if it is one that is wanted, or that a run has. One that was asked
// for in vain ends too, later: it may not end a pod that starts the next.
func TestWhatAPodSays(t *testing.T) {
	for agent, news := range map[string]bool{"job-1/1": false, "job-1/2": true, "job-1/3": true, "": false} {
		p, h := new(pods), &pod{opening: map[string]bool{"job-1/2": true},
			agents: map[*reach.Edge]string{new(reach.Edge): "job-1/3"}}
		if err := p.receive(h, frames.Frame{Kind: frames.Failed,
			Body: encode(failedMessage{Err: "an\nend", Agent: agent})}); err != nil {
			t.Fatal(err)
		}
		if (h.says != "") != news {
			t.Errorf("the end of agent %q: %q", agent, h.says)
		}
	}
}

// never is a stream that says and takes nothing.
type never struct{}

func (never) Read([]byte) (int, error)    { select {} }
func (never) Write(b []byte) (int, error) { return len(b), nil }
