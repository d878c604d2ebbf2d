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
	"github.com/gorun-mpi/mpi/internal/place"
	"github.com/gorun-mpi/mpi/internal/pmi"
)

// What the bodies of frames hold, in JSON. That has characters in its strings, and what Linux passes on (file names,
// arguments, variables, values of PMI-1) is bytes: those strings are widened before, and narrowed after.

// startMessage is the part of a job that one host has.
type startMessage struct {
	Host     string // as the user has named it
	World    int    // all ranks of the job
	Ranks    []int  // of this host, in order
	AppOf    []int  // of each of them, an index of Apps
	Apps     []App
	Environ  []string
	Dir      string // gorun's
	OwnHost  bool   // gorun's too: the environment is the same
	Place    place.Request
	Bind     Bind
	Report   bool
	Tag      bool
	Time     bool
	Coloured [2]bool // of stdout and stderr: tags may be
	Output   string  // --output-dir
	Stdin    []int   // the ranks that have the standard input: -1: all of them
	LogLevel string
	Name     string // of the job
	Secret   []byte
	Mapping  string
	Silence  time.Duration
}

// check refuses what gorun does not send.
func (m *startMessage) check() error {
	switch {
	case m.World < 1 || m.World > maxRanks:
		return fmt.Errorf("a job of %d ranks", m.World)
	case len(m.Ranks) == 0 || len(m.Ranks) > m.World || len(m.AppOf) != len(m.Ranks):
		return fmt.Errorf("%d ranks of %d, with %d programs", len(m.Ranks), m.World, len(m.AppOf))
	case m.Ranks[0] < 0 || m.Ranks[len(m.Ranks)-1] >= m.World || len(m.Secret) != secretSize:
		return fmt.Errorf("ranks %d to %d of %d", m.Ranks[0], m.Ranks[len(m.Ranks)-1], m.World)
	}
	if m.Silence < time.Millisecond {
		return fmt.Errorf("a silence of %v", m.Silence)
	}
	for i, rank := range m.Ranks {
		if i > 0 && rank <= m.Ranks[i-1] || m.AppOf[i] < 0 || m.AppOf[i] >= len(m.Apps) {
			return fmt.Errorf("rank %d with program %d of %d", rank, m.AppOf[i], len(m.Apps))
		}
	}
	return nil
}

// secretSize is what pmi has for the secret of a job.
const secretSize = 32

// order is what the head wants of an agent.
type order struct {
	Phase  phase          // of the job: it is to end, or not
	Signal syscall.Signal `json:",omitempty"` // for all ranks
	Hold   bool           `json:",omitempty"`
	Finish bool           `json:",omitempty"` // all ranks of the job have ended
}

func (o *order) check() error {
	if o.Phase < working || o.Phase > killing || o.Signal < 0 || o.Signal > 64 {
		return fmt.Errorf("phase %d, signal %d", o.Phase, o.Signal)
	}
	return nil
}

type startedMessage struct{ Rank, Pid int }

// allStartedMessage says that no more ranks are started, and why one could not be.
type allStartedMessage struct {
	Err  string `json:",omitempty"`
	Code int    `json:",omitempty"`
}

// exitedMessage is an Exit.
type exitedMessage struct {
	Rank, Pid  int
	Code       int            `json:",omitempty"`
	Signal     syscall.Signal `json:",omitempty"`
	Core       bool           `json:",omitempty"`
	Err        string         `json:",omitempty"`
	Unfinished bool           `json:",omitempty"`
}

type abortedMessage struct {
	Rank, Code int
	Message    string
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
	m.Apps, m.Environ = slices.Clone(m.Apps), all(m.Environ)
	for i := range m.Apps {
		a := &m.Apps[i]
		a.Path, a.Name, a.Dir, a.Args, a.Env = change(a.Path), change(a.Name), change(a.Dir), all(a.Args), all(a.Env)
	}
	m.Dir, m.Output = change(m.Dir), change(m.Output)
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

// putFrames cuts what a fence brings into frames.
func putFrames(put []pmi.Pair) (bodies [][]byte) {
	const most = 400 // pairs of 64 and 880 bytes, that may double when encoded
	for some := range slices.Chunk(put, most) {
		bodies = append(bodies, encode(pairs(some, widen)))
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
