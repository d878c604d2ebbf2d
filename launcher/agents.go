package launcher

import (
	"cmp"
	"time"

	"github.com/gorun-mpi/mpi/internal/reach"
)

// defaultSilence is after what time without a word the other end of a stream is given up. An agent has it until the
// head has said how long it is (Agents.Silence).
const defaultSilence = 30 * time.Second

// Agents says how gorun starts agents on other hosts, and how long it waits for them.
type Agents struct {
	Shell []string // the words of a remote shell, before the host; nil: reach.SSH
	// Local says that all hosts are this one, whatever they are called, also where Shell leads to them. It is for tests
	// of jobs on many hosts.
	Local  bool
	Others *Others `json:"-"` // nil: gorun starts the agents, and they each other
	// Here is what this host is called in Hosts; "": what it calls itself.
	Here string `json:"-"`
	// Patience is how long hosts are waited for that do not answer; 0: DefaultPatience, and a name that is not known is
	// an error at once.
	Patience time.Duration
	// Silence is GORUN_PEER_TIMEOUT: after so long without a word a host is lost to gorun, and gorun to its agents,
	// which then end their ranks; 0: 30 s. Each pings the other; what the ranks do does not matter.
	Silence time.Duration
	// Width is how many agents gorun, and each agent, starts itself; those start the others. 0: DefaultWidth.
	Width int
}

// Others is the way to agents that others start, all at once: the tasks of a step of Slurm's, or the pods of a Job.
type Others struct {
	reach.Reach
	Close func() // called once, when the job ends
	// Own says that the agent of gorun's own host is one of them.
	Own bool
	// Together says that ranks are started when all agents are there. Agents may be minutes late, and ranks wait for
	// each other for GORUN_TIMEOUT only.
	Together bool
	// Pods lets in the keepers of pods, and the agents that they start; nil: each host has one agent, and Reach leads
	// there. Only a job that may start ranks again has keepers.
	Pods *reach.Acceptor
	pods *pods // made of Pods
}

func (a *Agents) silence() time.Duration { return cmp.Or(a.Silence, defaultSilence) }

// way returns the way to start an agent on a host where no others start it. here says that the host is this one.
func (a *Agents) way(self *reach.Self, here bool) reach.Reach {
	switch {
	case here || a.Local && a.Shell == nil:
		return reach.Exec{Self: self}
	case a.Shell != nil:
		return reach.Shell{Words: a.Shell, Self: self}
	}
	return reach.Shell{Words: reach.SSH, Self: self}
}

// isDefault reports whether no way to hosts is named: Slurm may start the agents then.
func (a *Agents) isDefault() bool { return a.Shell == nil && !a.Local && a.Others == nil }

const (
	// DefaultPatience is how long a host may take to answer.
	DefaultPatience = 30 * time.Second
	// DefaultWidth is how many agents one process starts itself. It is as many at a time.
	DefaultWidth = 32
	// The time between two attempts to reach a host.
	firstPause, longestPause = 50 * time.Millisecond, time.Second
)
