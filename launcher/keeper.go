package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/gorun-mpi/mpi/internal/frames"
	"github.com/gorun-mpi/mpi/internal/procs"
	"github.com/gorun-mpi/mpi/internal/reach"
)

// keeper is the first process of a pod in which ranks may start again. It starts agents when the head asks it, and its
// stream says whether the pod is there (pods.go).
type keeper struct {
	link   *frames.Link
	call   reach.Call
	agents map[*reach.Dialler]string // their names

	asked     chan string // names of agents
	ended     chan *reach.Dialler
	dismissed chan struct{}      // closed when the job is over
	gone      chan error         // has room for the end of the link
	silences  chan time.Duration // has room for the one that the head says; link may not be set when it comes

	silence bool // has come; of the receiving goroutine
	over    bool // likewise: dismissed is closed
}

// agentMessage asks a keeper for an agent.
type agentMessage struct {
	Name    string        `json:",omitempty"` // under which it dials; "": none is asked for
	Silence time.Duration `json:",omitempty"` // after which either end of the stream is lost; 0: it was said
}

// mostAgents is how many agents a pod has at a time. There are as many as runs with ranks there.
const mostAgents = 1 << 10

func (m *agentMessage) check(host string) error {
	switch {
	case m.Silence < 0 || m.Silence > 0 && m.Silence < 8:
		return fmt.Errorf("an agent that is lost after %v", m.Silence)
	case m.Name != "" && (!strings.HasPrefix(m.Name, host+"/") || len(m.Name) > len(host)+20):
		return fmt.Errorf("an agent %.80q on host %s", m.Name, host)
	}
	return nil
}

func newKeeper() *keeper {
	return &keeper{agents: map[*reach.Dialler]string{}, asked: make(chan string, mostAgents),
		ended: make(chan *reach.Dialler), dismissed: make(chan struct{}), gone: make(chan error, 1),
		silences: make(chan time.Duration, 1)}
}

// Keeper is the life of gorun in a pod, other than the head's, of a job whose ranks may start again. connect makes the
// stream to the head. call is what its agents dial with.
func Keeper(connect func(context.Context) (io.ReadWriter, error), call reach.Call) int {
	k := newKeeper()
	k.call = call
	signals := procs.Signals()
	var stream io.ReadWriter
	err := procs.UntilSignal(func(ctx context.Context) (err error) {
		stream, err = connect(ctx)
		return err
	})
	var stopped *procs.Stopped
	switch {
	case err == nil:
	case errors.Is(err, reach.ErrOver):
		return 0
	default:
		fmt.Fprintf(os.Stderr, "gorun: the pod of %s: %v\n", call.Host, err)
		if errors.As(err, &stopped) || reach.Again(err, true) {
			return CodeAgain
		}
		return 1
	}
	k.link = frames.New(stream, stream, frames.Options{Down: true, Silence: defaultSilence, Receive: k.receive,
		Lost: func(err error) { k.gone <- err }})
	for {
		select {
		case s := <-signals:
			if s := s.(syscall.Signal); procs.Ends(s) {
				k.leave(fmt.Sprintf("the pod was told to end by signal %d (%s)", int(s), s))
				return CodeAgain
			}
		case name := <-k.asked:
			if err := k.start(name); err != nil {
				k.leave(fmt.Sprintf("no agent can be started in the pod: %v", err))
				return CodeAgain
			}
		case a := <-k.ended:
			name := k.agents[a]
			if delete(k.agents, a); !a.Well() { // the head knows whether it is still wanted
				k.link.Send(frames.Failed, encode(failedMessage{Err: "an agent of the pod has ended: " + a.Why(), Agent: name}))
			}
		case s := <-k.silences:
			k.link.SetSilence(s)
		case err := <-k.gone:
			k.endAgents()
			if isClosed(k.dismissed) {
				return 0
			}
			fmt.Fprintf(os.Stderr, "gorun: the pod of %s has ended its ranks, for gorun is lost: %v\n", call.Host, err)
			return CodeAgain
		case <-k.dismissed:
			k.endAgents()
			k.link.SendAfter(frames.Finished, nil)
			k.link.Drain(math.MaxInt64)
			<-k.gone // what is on its way arrives
			return 0
		}
	}
}

// receive is called with what the head says.
func (k *keeper) receive(f frames.Frame) error {
	switch f.Kind {
	case frames.Agent:
		m, err := decode[agentMessage](f)
		if err == nil {
			err = m.check(k.call.Host)
		}
		if err != nil {
			return err
		}
		if m.Silence > 0 && !k.silence {
			k.silence = true
			k.silences <- m.Silence
		}
		if m.Name == "" {
			return nil
		}
		select {
		case k.asked <- m.Name:
			return nil
		default:
			return fmt.Errorf("more than %d agents are wanted", mostAgents)
		}
	case frames.Order:
		o, err := decode[order](f)
		if err == nil && !o.Finish {
			err = errors.New("an order for a keeper, which has no ranks")
		}
		if err == nil && !k.over {
			k.over = true
			close(k.dismissed)
		}
		return err
	}
	return fmt.Errorf("a %v frame for a keeper", f.Kind)
}

func (k *keeper) start(name string) error {
	self, err := reach.Me()
	if err != nil {
		return err
	}
	c := k.call
	c.Host = name
	a, err := self.StartDialler(c)
	if err != nil {
		return err
	}
	k.agents[a] = name
	go func() {
		<-a.Ended()
		k.ended <- a
	}()
	return nil
}

// leave tells the head why the pod ends, and ends it.
func (k *keeper) leave(why string) {
	k.link.Send(frames.Failed, encode(failedMessage{Err: why, Stopped: true}))
	k.link.Drain(time.Second)
	k.endAgents()
}

// graceOfAgents is how long agents may take to end their ranks and themselves.
const graceOfAgents = 5 * time.Second

// endAgents ends the agents with their ranks. When the job is over they end by themselves.
func (k *keeper) endAgents() {
	if !isClosed(k.dismissed) {
		for a := range k.agents {
			a.Leave()
		}
	}
	late := time.NewTimer(graceOfAgents)
	defer late.Stop()
	for len(k.agents) > 0 {
		select {
		case a := <-k.ended:
			delete(k.agents, a)
		case <-late.C:
			for a := range k.agents {
				a.Kill()
			}
		}
	}
}
