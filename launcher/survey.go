package launcher

import (
	"cmp"
	"io"

	"github.com/gorun-mpi/mpi/internal/place"
	"github.com/gorun-mpi/mpi/internal/reach"
)

// Survey is the hosts that a job may have ranks on, and the way in which it would have its agents there. Nothing is
// started by making it.
type Survey struct {
	Here    string       // what this host is called among them
	Hosts   []place.Host // at least one
	Slurm   bool         // srun starts the agents, on this host too
	OneName bool         // two names of one host end the job
	// Way has an agent with a duty on a host that is not this one, or on any if Slurm.
	Way   reach.Reach
	Close func() // ends what Way has started that is not an agent
}

// HostID tells this host from others, whatever names lead to it; "": it is not known.
func HostID() string { return hostID() }

// Survey says which hosts the job may have ranks on. Of the job it takes the hosts, the agents and the environment. say
// gets what srun says.
func (j *Job) Survey(self *reach.Self, say func(line string)) (*Survey, error) {
	c, err := j.choose(cmp.Or(j.Agents.Here, hostName()))
	if err != nil {
		return nil, err
	}
	s := &Survey{Here: c.here, Hosts: c.hosts, Slurm: c.slurm && !onlyHere(&place.Layout{Hosts: c.hosts}, c.here),
		Way: j.Agents.way(self, false), Close: func() {}}
	s.OneName = !s.Slurm && !j.Agents.Local && j.Agents.Others == nil
	if s.Slurm {
		o := reach.SlurmOptions{Self: self, Environ: j.Environ, Limit: cmp.Or(j.Agents.Patience, DefaultPatience),
			Survive: true, Say: say, Log: logger(j.LogLevel, io.Discard).Debug}
		for _, h := range c.hosts {
			o.Hosts = append(o.Hosts, h.Name)
		}
		all := reach.NewSlurm(o)
		s.Way, s.Close = all, all.Close
	}
	return s, nil
}
