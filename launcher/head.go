package launcher

import (
	"cmp"
	"crypto/rand"
	"fmt"

	"github.com/gorun-mpi/mpi/internal/pmi"
	"github.com/gorun-mpi/mpi/internal/procs"
	"github.com/gorun-mpi/mpi/internal/reach"
	"github.com/gorun-mpi/mpi/internal/stdio"
)

// runFleet runs a job whose ranks are on other hosts too.
func (j *Job) runFleet(plan *Plan) int {
	me, err := reach.Me()
	if err != nil {
		fmt.Fprintf(j.Stderr, "gorun: %v\n", err)
		return CodeCannotStart
	}
	r := j.newRun(plan)
	r.enroll()
	r.streams = stdio.New(j.Stdout, j.Stderr)
	o := pmi.Options{Survive: j.Recover, Spawn: r.spawn}
	switch others := j.Agents.Others; {
	case others == nil:
	case others.Pods != nil:
		j.Agents.Others = r.keepPods(others)
	default:
		o.Spawn = spawnElsewhere
	}
	return r.lead(me, o)
}

// lead is the life of a head.
func (r *run) lead(me *reach.Self, o pmi.Options) int {
	defer close(r.over)
	r.log = logger(r.job.LogLevel, r.streams.Stderr)
	f := r.job.headFleet(r, me, o)
	f.pulse = procs.NewPulse(f.start.Agents.silence())
	defer f.pulse.Stop()
	defer f.server.Close()
	defer r.stops.begin(r.job.Alone)() // gorun may start ranks that others have spawned itself
	r.announce()
	if r.spawned == nil {
		go r.showProgress()
	}
	f.open()
	if r.job.Alone {
		defer r.serveStatus()()
	}
	r.beginWatch()
	r.watch()
	return r.finish()
}

// headFleet makes the fleet of a head.
func (j *Job) headFleet(r *run, me *reach.Self, o pmi.Options) *fleet {
	o.Tree = true
	server := pmi.NewServer(r.plan.World, o)
	secret := make([]byte, secretSize)
	rand.Read(secret)
	start := startMessage{
		Options: j.Options, World: r.plan.World, Apps: j.Apps, Environ: j.Environ, Dir: workingDir(), Agents: j.Agents,
		Coloured: [2]bool{r.streams.Stdout.Coloured(), r.streams.Stderr.Coloured()},
		Name:     server.Name(), Secret: secret, Mapping: r.plan.Layout.Order.Mapping(),
		Spawn: j.Spawn, Before: j.Before, Again: j.Again, Joins: o.Joins,
	}
	switch {
	case j.Stdin == nil:
	case r.plan.stdins.all:
		start.Stdin = []int{-1}
	case r.plan.stdins.rank >= 0:
		start.Stdin = []int{r.plan.stdins.rank}
	}
	hosts := make([]hostPart, len(r.plan.Layout.Hosts))
	for i, h := range r.plan.Layout.Hosts {
		hosts[i] = hostPart{Name: h.Name, Own: h.Name == r.plan.Host}
	}
	for rank, host := range r.plan.Layout.Order.Ranks(r.plan.World) {
		hosts[host].Ranks = append(hosts[host].Ranks, rank)
	}
	if r.plan.Slurm {
		start.Agents.Others = r.slurm(hosts, me)
	}
	if others := start.Agents.Others; others != nil && others.pods != nil && r.spawned != nil {
		start.Agents.Others = others.shared()
	}
	return r.addFleet(start, hosts, server, me)
}

// addFleet has the ranks of other hosts started by agents there.
func (r *run) addFleet(start startMessage, hosts []hostPart, server *pmi.Server, me *reach.Self) *fleet {
	for _, h := range hosts {
		for _, rank := range h.Ranks {
			r.ranks[rank] = newRankState(h.Name)
		}
	}
	f := newFleet(r, start, hosts, server, me)
	f.parent, f.host = r.parent, r.plan.Host
	for _, app := range r.job.Apps {
		if app.Sent {
			f.programs = append(f.programs, app.Path)
		}
	}
	f.add(hosts)
	r.fleet = f
	r.starting++
	return f
}

// slurm is the way to the hosts of an allocation: one srun starts all agents, also that of this host, so that Slurm
// watches all ranks. What srun says is said to the user, such as that the job's time is over, until gorun ends ranks
// itself: Slurm ends the processes of a step one by one, and gorun may hear of a rank before it hears why.
func (r *run) slurm(hosts []hostPart, self *reach.Self) *Others {
	o := reach.SlurmOptions{
		Self: self, Environ: r.job.Environ, Limit: cmp.Or(r.job.Agents.Patience, DefaultPatience), Log: r.log.Debug,
		Survive: r.job.Recover,
		Say: func(line string) {
			r.post(func() {
				if r.policy.phase < terminating {
					r.say("%s", line)
				}
			})
		},
	}
	for _, h := range hosts {
		o.Hosts = append(o.Hosts, h.Name)
	}
	s := reach.NewSlurm(o)
	return &Others{Reach: s, Close: s.Close, Own: true}
}
