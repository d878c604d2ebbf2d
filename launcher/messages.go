package launcher

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/gorun-mpi/mpi/internal/frames"
	"github.com/gorun-mpi/mpi/internal/pmi"
	"github.com/gorun-mpi/mpi/internal/waits"
)

// What the bodies of frames hold, in JSON. That has characters in its strings, and what Linux passes on (file names,
// arguments, variables, values of PMI-1) is bytes: those strings are widened before, and narrowed after.

// startMessage is the part of a job that the hosts of a subtree have. An agent passes it on to those below it, with
// their hosts.
type startMessage struct {
	Options
	Hosts    []hostPart // that of the agent, and those below it
	World    int        // all ranks of the job
	Apps     []App
	Environ  []string
	Dir      string  // gorun's
	Coloured [2]bool // of stdout and stderr: tags may be
	Stdin    []int   // the ranks that have the standard input: -1: all of them
	Name     string  // of the job
	Secret   []byte
	Mapping  string
	Agents   Agents
	Spawn    int    `json:",omitempty"` // of Job
	Before   int    `json:",omitempty"` // likewise
	Again    *Again `json:",omitempty"` // likewise
	Joins    int    `json:",omitempty"` // of pmi.Options
}

// hostPart is a host with its ranks.
type hostPart struct {
	Name  string // as the user has named it
	Own   bool   // it is gorun's own: the environment is the same
	Ranks []int  // in order
}

// check refuses what gorun does not send.
func (m *startMessage) check() error {
	ranks := 0
	for _, a := range m.Apps {
		if a.Ranks < 1 || a.Ranks > maxRanks {
			return fmt.Errorf("a program of %d ranks", a.Ranks)
		}
		ranks += a.Ranks
	}
	switch {
	case m.World < 1 || m.World > maxRanks || ranks != m.World:
		return fmt.Errorf("a job of %d ranks, with programs of %d", m.World, ranks)
	case len(m.Secret) != secretSize:
		return fmt.Errorf("a secret of %d bytes", len(m.Secret))
	case len(m.Hosts) == 0 || len(m.Hosts) > m.World:
		return fmt.Errorf("%d hosts of a job of %d ranks", len(m.Hosts), m.World)
	case m.Spawn < 0:
		return fmt.Errorf("spawned job %d", m.Spawn)
	case m.Before < 0 || m.Before > maxRanks:
		return fmt.Errorf("%d ranks before this job", m.Before)
	case m.Joins < 0 || m.Joins > 2:
		return fmt.Errorf("%d barriers in which all ranks must be", m.Joins)
	case m.Agents.Width < 0:
		return fmt.Errorf("a tree of width %d", m.Agents.Width)
	case m.Agents.silence() < time.Millisecond:
		return fmt.Errorf("a silence of %v", m.Agents.Silence)
	}
	if err := m.Again.check(m.World); err != nil {
		return err
	}
	seen := map[int]bool{}
	for _, h := range m.Hosts {
		if len(h.Ranks) == 0 {
			return fmt.Errorf("the host %.80q has no rank", h.Name)
		}
		for i, rank := range h.Ranks {
			if rank < 0 || rank >= m.World || seen[rank] || i > 0 && rank <= h.Ranks[i-1] {
				return fmt.Errorf("rank %d of %d, on host %.80q", rank, m.World, h.Name)
			}
			seen[rank] = true
		}
	}
	return nil
}

// appOf returns the index of the program of each rank of a job.
func appOf(apps []App) []int {
	var of []int
	for i, a := range apps {
		for range a.Ranks {
			of = append(of, i)
		}
	}
	return of
}

// secretSize is what pmi has for the secret of a job.
const secretSize = 32

// order is what the head wants of an agent.
type order struct {
	Phase  phase          // of the job: it is to end, or not
	Signal syscall.Signal `json:",omitempty"` // for all ranks
	Finish bool           `json:",omitempty"` // all ranks of the job have ended
	Gone   int            `json:",omitempty"` // a rank that has ended, and one more; the job goes on without it
	Silent bool           `json:",omitempty"` // the sender stops: its silence means nothing until the next order
	Ask    question       `json:",omitzero"`  // what is asked of the ranks, if its ID is not 0
}

func (o *order) check() error {
	if o.Phase < working || o.Phase > killing || o.Signal < 0 || o.Signal > 64 || o.Gone < 0 || o.Gone > maxRanks {
		return fmt.Errorf("phase %d, signal %d, rank %d", o.Phase, o.Signal, o.Gone-1)
	}
	if q := &o.Ask; q.ID < 0 || q.Level < waits.Glance || q.Level > waits.Full || q.Rank < waits.Any ||
		q.Rank >= maxRanks || q.Limit < 0 || q.Limit > patience {
		return fmt.Errorf("question %d of level %d to rank %d, for %v", q.ID, q.Level, q.Rank, q.Limit)
	}
	return nil
}

// hostMessage says on what host an agent is.
type hostMessage struct {
	Rank int    // the first one of the host
	ID   string // is equal for all names of a host; "": it is not known
	Name string // that the host calls itself
}

// callMessage says that a rank calls another (pmi.Server.Called).
type callMessage struct{ To, From int }

type startedMessage struct{ Rank, Pid int }

// failedMessage says that a rank could not be started, or that a host is lost or its agent was stopped.
type failedMessage struct {
	Err  string
	Code int  `json:",omitempty"` // of gorun, if a rank could not be started
	Lost bool `json:",omitempty"`
	// Stopped says that a signal has ended the agent of a host; Code is the exit code of the job.
	Stopped bool `json:",omitempty"`
	// Agent is the name of an agent that has ended in the pod of a keeper.
	Agent string `json:",omitempty"`
}

// refusedMessage says that the agents of so many hosts in a row, from that of this rank on, cannot be started from
// where they should be: gorun has to.
type refusedMessage struct {
	Rank  int // the first one of the first host
	Hosts int
	Err   string
}

// exitedMessage is a procs.Exit.
type exitedMessage struct {
	Rank, Pid  int
	Code       int            `json:",omitempty"`
	Signal     syscall.Signal `json:",omitempty"`
	Core       bool           `json:",omitempty"`
	Err        string         `json:",omitempty"`
	Unfinished bool           `json:",omitempty"`
	// Consequence says that the rank had heard of another rank's end.
	Consequence bool `json:",omitempty"`
	Lost        bool `json:",omitempty"` // with its host
}

type abortedMessage struct {
	Rank, Code  int
	Message     string
	Consequence bool `json:",omitempty"` // of another rank's end
}

// widen makes a character of each byte.
func widen(s string) string {
	wide := make([]rune, len(s))
	for i := range len(s) {
		wide[i] = rune(s[i])
	}
	return string(wide)
}

// narrow takes back what widen has done. What else it is given, it makes something of.
func narrow(s string) string {
	b := make([]byte, 0, len(s))
	for _, c := range s {
		b = append(b, byte(c))
	}
	return string(b)
}

// with returns the message with all strings of bytes changed.
func (m startMessage) with(change func(string) string) startMessage {
	all := func(list []string) []string {
		list = slices.Clone(list)
		for i := range list {
			list[i] = change(list[i])
		}
		return list
	}
	m.Apps, m.Environ, m.Agents.Shell = slices.Clone(m.Apps), all(m.Environ), all(m.Agents.Shell)
	m.Hosts = slices.Clone(m.Hosts)
	for i := range m.Hosts {
		m.Hosts[i].Name = change(m.Hosts[i].Name)
	}
	for i := range m.Apps {
		a := &m.Apps[i]
		a.Path, a.Name, a.Dir, a.Args, a.Env = change(a.Path), change(a.Name), change(a.Dir), all(a.Args), all(a.Env)
	}
	m.Dir, m.OutputDir, m.Again = change(m.Dir), change(m.OutputDir), m.Again.with(change)
	return m
}

// encode is the body of a frame. What is encoded here cannot fail to be.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // or what is within its limit may become six times as long
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// decode reads a body that came from another process.
func decode[T any](f frames.Frame) (v T, err error) {
	if err = json.Unmarshal(f.Body, &v); err != nil {
		err = fmt.Errorf("a %v frame that makes no sense: %w", f.Kind, err)
	}
	return v, err
}

// putFrames cuts what a fence brings into frames: one, unless it is very much.
func putFrames(put []pmi.Pair) (bodies [][]byte) {
	const most = 3 << 20 // bytes of a frame, that may double when encoded
	for len(put) > 0 {
		n := 0
		for size := 0; n < len(put) && size < most; n++ {
			size += len(put[n].Key) + len(put[n].Value) + len(`{"Key":"","Value":""},`)
		}
		bodies, put = append(bodies, encode(pairs(put[:n], widen))), put[n:]
	}
	return bodies
}

// pairs are those with all of their strings changed.
func pairs(put []pmi.Pair, change func(string) string) []pmi.Pair {
	put = slices.Clone(put)
	for i := range put {
		put[i].Key, put[i].Value = change(put[i].Key), change(put[i].Value)
	}
	return put
}

// workingDir is where the ranks of a job run that names no folder.
func workingDir() string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	return dir
}
