package launcher

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/gorun-mpi/mpi/internal/bind"
	"github.com/gorun-mpi/mpi/internal/cpuset"
	"github.com/gorun-mpi/mpi/internal/place"
	"github.com/gorun-mpi/mpi/internal/procs"
)

// App is one program of a job; an MPMD job has several.
type App struct {
	Ranks int
	Path  string   // the executable; Find finds it
	Name  string   // argv[0]: what the user typed
	Args  []string // without argv[0]
	Dir   string   // working directory; "": the launcher's
	Env   []string // NAME=value, on top of the launcher's environment
	Sent  bool     // to other hosts, which do not have it at this path, such as a program that gorun has built
}

// Job is what the user asked for.
type Job struct {
	Options
	Apps    []App
	Environ []string     // the environment the ranks inherit, as of os.Environ
	Hosts   []place.Host // nil: this one
	Spares  []place.Host // for ranks that take the places of those of lost hosts; no rank starts there before
	Agents  Agents       // for ranks on other hosts

	Stdin, Stdout, Stderr *os.File
	// Alone says that this process does nothing else than run the job. It catches signals, and kills any child process
	// that is left at the end.
	Alone bool
	// Announced says that the caller has told the user what there is to know before the start.
	Announced bool
	// Spawn is the number of a job that a rank has had started, from 1 on; 0: it is the first job. Before is how many
	// ranks this host has already then. No rank of such a job is bound.
	Spawn, Before int
	Again         *Again // what the ranks of such a job are that take the places of others; nil: they take none
	// Cleaner is a command that calls procs.Clean; nil: the processes that ranks have started survive a SIGKILL of this
	// process.
	Cleaner []string

	// Of a spawned job: the place in Hosts of the host of each rank, or nil: as Place says; and whether Slurm starts
	// the agent of this host too, as those of the first job.
	at   []int
	step bool
}

// DefaultKillDelay is the time between the first Ctrl-C and SIGKILL.
const DefaultKillDelay = 3 * time.Second

// Size is the number of ranks.
func (j *Job) Size() int {
	n := 0
	for _, a := range j.Apps {
		n += a.Ranks
	}
	return n
}

// maxRanks on one host: each needs a process and three descriptors here.
const maxRanks = 1 << 16

// Plan is a job laid out on its hosts, or the part of one host.
type Plan struct {
	World int // all ranks of the job
	// Of the ranks that this process starts; of all that it has agents start, without what is the host's.
	Specs  []procs.Spec
	Remote bool // agents start the ranks
	Slurm  bool // srun starts the agents
	Host   string
	Layout *place.Layout
	Hosts  []place.Host // that the job may have ranks on, also such as have none
	CPUs   cpuset.Host
	Over   bool // ranks outnumber the usable CPUs
	Unfit  bool // the cores that each rank was to have are more than there are
	stdins stdinMode
}

// Plan checks the job and lays it out, without starting anything. Env lacks what is known at the start only.
func (j *Job) Plan() (*Plan, error) { return j.plan(cpuset.Read()) }

func (j *Job) plan(host cpuset.Host) (*Plan, error) {
	n := j.Size()
	if n < 1 || n > maxRanks {
		return nil, fmt.Errorf("a job has 1 to %d ranks, not %d", maxRanks, n)
	}
	stdins, err := parseStdin(j.StdinFor, n)
	if err == nil {
		err = j.checkDebug(n)
	}
	if err != nil {
		return nil, err
	}
	c, err := j.choose(cmp.Or(j.Agents.Here, hostName()))
	if err != nil {
		return nil, err
	}
	p := &Plan{World: n, Host: c.here, stdins: stdins}
	if p.Layout, err = j.layOut(&c); err != nil {
		return nil, err
	}
	for a, app := range j.Apps {
		if app.Ranks < 1 {
			return nil, fmt.Errorf("program %s: it needs at least 1 rank, not %d", app.Name, app.Ranks)
		}
		for range app.Ranks {
			p.Specs = append(p.Specs, procs.Spec{Rank: len(p.Specs), App: a})
		}
	}
	p.Hosts, p.Layout.Spares = c.hosts, c.spares // in the order in which they are used
	if j.Respawn > 0 {
		p.Layout.Spares = append(p.Layout.Spares, p.Layout.Unused...)
	}
	p.Remote = !onlyHere(p.Layout, p.Host) || j.step
	if len(j.Spares) > 0 && !p.Remote {
		return nil, fmt.Errorf("--spares %s: all ranks are on this host, and gorun ends with it: "+
			"name other hosts by -H, or leave out --spares", someHosts(j.Spares))
	}
	if p.Remote {
		p.Slurm = c.slurm
		return p, nil
	}
	return p, j.fillSpecs(p, host)
}

// fillSpecs sets the parts of Specs that the host of the ranks decides: their CPUs, programs, folders and environment.
// Rank and App are set.
func (j *Job) fillSpecs(p *Plan, host cpuset.Host) error {
	d := divide(host, j.Bind, j.Place, j.Before, len(p.Specs))
	p.CPUs, p.Over = host, d.over
	option := "--wdir"
	if j.Spawn > 0 && (j.Again == nil || j.Again.Spawn > 0) {
		option = "mpi.SpawnDir, which names a folder of each host:"
	}
	for _, app := range j.Apps {
		if err := checkDir(option, app.Dir); err != nil {
			return err
		}
	}
	p.Unfit = d.sets == nil && j.Place.PE > 0 && !p.Over && j.Bind != bind.None && procs.CanBind
	for i := range p.Specs {
		s := &p.Specs[i]
		app := &j.Apps[s.App]
		s.Path, s.Argv, s.Dir = app.Path, append([]string{app.Name}, app.Args...), app.Dir
		if j.debugs(s.Rank) {
			if err := underDebugger(s); err != nil {
				return err
			}
		}
		h, before := j.Again.on(p.Host, host, j.Bind, s.Rank)
		if !before {
			h = d.of(i)
		}
		s.CPUs, s.Lazy = h.cpus, h.lazy
		at := procs.Position{Rank: s.Rank, Size: p.World, LocalRank: h.local, LocalSize: h.of}
		s.Env = procs.RankEnv(j.Environ, app.Env, at, h.usable, h.share)
	}
	return nil
}

// division is how ranks divide a host.
type division struct {
	host      cpuset.Host
	n, usable int
	over      bool    // they outnumber the usable CPUs, with those that were there before
	lazy      bool    // by more than lazyRanks times
	sets      [][]int // of CPUs that they are bound to; nil: they are not bound
	free      bool    // the user wants no rank bound
}

// lazyRanks is how many ranks each CPU has where ranks need not wake in time. Measured on 2 CPUs: with 4 ranks each it
// gains nothing, with 8 Revoke takes a third of the time. See docs/decisions/waiting.md.
const lazyRanks = 4

// divide divides a host between n ranks. Others were there before.
func divide(host cpuset.Host, mode bind.Mode, q place.Request, before, n int) division {
	cpus := max(1, host.Usable())
	d := division{host: host, n: n, usable: max(1, host.Usable()-before), over: before+n > cpus,
		lazy: procs.CanBeLazy && before+n > lazyRanks*cpus, free: mode == bind.None}
	if procs.CanBind && before == 0 {
		d.sets = bind.Assign(mode, q, host, n)
	}
	return d
}

// hostSettings are what a host decides for one of its ranks.
type hostSettings struct {
	local, of     int   // it is this one of so many ranks
	cpus          []int // that it is bound to; nil: it is not
	usable, share int   // CPUs of all ranks, and GOMAXPROCS of this one; 0: Go's own
	lazy          bool  // of procs.Spec
}

func (d *division) of(i int) hostSettings {
	h := hostSettings{local: i, of: d.n, usable: d.usable}
	switch {
	case d.sets != nil:
		h.cpus = d.sets[i]
		h.share = bind.Share(d.host, d.n, len(h.cpus))
	case d.over && !d.free:
		h.share, h.lazy = 1, d.lazy // see docs/decisions/waiting.md
	}
	return h
}

// checkDir is called with what the user calls the option by which a program has its folder.
func checkDir(option, dir string) error {
	if dir == "" {
		return nil
	}
	st, err := os.Stat(dir)
	if err != nil {
		return &dirError{fmt.Errorf("%s %s: %w", option, dir, errors.Unwrap(err))}
	}
	if !st.IsDir() {
		return &dirError{fmt.Errorf("%s %s: not a directory", option, dir)}
	}
	return nil
}

// dirError is a --wdir that is no folder: a wrong command line, on whatever host.
type dirError struct{ error }

func (e *dirError) Unwrap() error { return e.error }

// stdinMode says which ranks get the standard input.
type stdinMode struct {
	all  bool
	rank int // -1: none
}

func parseStdin(text string, n int) (stdinMode, error) {
	switch text {
	case "none":
		return stdinMode{rank: -1}, nil
	case "all":
		return stdinMode{all: true, rank: -1}, nil
	case "":
		return stdinMode{}, nil
	}
	rank, err := strconv.Atoi(text)
	if err != nil || rank < 0 || rank >= n {
		return stdinMode{}, fmt.Errorf("--stdin %s: use none, all, or a rank from 0 to %d", text, n-1)
	}
	return stdinMode{rank: rank}, nil
}
