package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/gorun-mpi/mpi/internal/place"
	"github.com/gorun-mpi/mpi/launcher"
	"github.com/spf13/pflag"
)

// placeFlags say which host has which ranks.
type placeFlags struct {
	np         *pflag.Flag // to see whether it was given
	list, file named       // -H and --hostfile
	spares     named
	perHost    count
	cores      count // of each rank
	launcher   string
	shell      named
	patience   seconds
	width      count
	given      []place.Host    // the hosts, where neither -H nor a file says them
	agents     launcher.Agents // for them
}

func (p *placeFlags) register(f *pflag.FlagSet, o *launcher.Options) {
	p.np = f.Lookup("np")
	p.registerHosts(f)
	f.VarP(&p.perHost, "ppn", "N", "number of ranks on each host")
	f.VarP(&p.cores, "cpus-per-task", "c", "cores of each rank, the same as :PE=N of --map-by; needs -n or --ppn")
	f.Var((*mapByFlag)(&o.Place), "map-by", "how ranks are dealt: slot (host after host), node (the hosts in turn), "+
		"core, numa, socket, l3cache or hwthread (of a host, in turn); with :PE=n each has n cores")
	f.Var((*rankByFlag)(&o.Place), "rank-by", "how the placed ranks are numbered: the values of --map-by without :PE "+
		"(default: in the order in which --map-by deals)")
	f.BoolVar(&o.DisplayMap, "display-map", false, "print which ranks each host has")
	p.registerWay(f)
	p.width = launcher.DefaultWidth
	f.Var(&p.width, "tree-width", "how many agents gorun starts itself, and each agent starts in turn")
	f.BoolVar(&o.AllowUnused, "allow-unused-hosts", false, "some of the hosts may get no rank")
	f.Var(&p.spares, "spares", "hosts in a `LIST` as of -H, which get no rank at the start: with --respawn the ranks "+
		"of a host that is lost may start there again")
}

// registerHosts registers the flags that say which hosts there are.
func (p *placeFlags) registerHosts(f *pflag.FlagSet) {
	f.VarP(&p.list, "host", "H", "the hosts in a `LIST`, with slots: a:4,b:4 or n[01-16]:4")
	f.VarP(&p.file, "hostfile", "f", "the same from a `FILE`, one host a line: a slots=4")
}

// registerWay registers those that say how they are reached.
func (p *placeFlags) registerWay(f *pflag.FlagSet) {
	f.Var(&p.shell, "launch-agent", "the remote `SHELL` to other hosts, with its arguments, in place of ssh; it may "+
		"have quotes; what follows it is the host and a command, as in kubectl exec -i")
	f.Var(&p.patience, "host-timeout", "how long a host may take to answer (default 30s)")
	f.StringVar(&p.launcher, "launcher", "ssh", "how other hosts are reached: ssh, or exec for tests: all are this "+
		"one, also where --launch-agent leads to them")
	f.Lookup("launcher").Hidden = true
}

// fill sets what these flags say in a job. ranks is the number of ranks if -n was not given, or 0 for the default.
func (p *placeFlags) fill(job *launcher.Job) (ranks int, err error) {
	if job.Place, err = p.wanted(job.Place); err != nil {
		return 0, err
	}
	if p.list == "" && p.file == "" && p.given == nil && (p.launcher == "ssh" || p.shell != "") {
		if p.given, p.agents, err = operatorHosts(os.Getenv); err != nil {
			return 0, err
		}
	}
	job.Agents = p.agents
	if job.Agents.Width = int(p.width); p.patience > 0 {
		job.Agents.Patience = time.Duration(p.patience)
	}
	if p.shell != "" {
		if job.Agents.Shell, err = shellWords(string(p.shell)); err == nil && len(job.Agents.Shell) == 0 {
			err = errors.New("no command is named")
		}
		if err != nil {
			return 0, fmt.Errorf("--launch-agent: %w", err)
		}
	}
	switch p.launcher {
	case "ssh":
	case "exec":
		job.Agents.Local = true
	default:
		return 0, fmt.Errorf("--launcher %s: use ssh, or name a remote shell with --launch-agent", p.launcher)
	}
	job.Hosts, err = p.hosts()
	if err == nil && p.spares != "" {
		job.Spares, err = place.List("--spares", string(p.spares))
	}
	if err != nil || p.np == nil || p.np.Changed { // gorun doctor has no -n
		return 0, err
	}
	return job.DefaultRanks()
}

// wanted adds what --ppn and -c say to a request. Without -n, -c may be meant as Open MPI has it.
func (p *placeFlags) wanted(q place.Request) (place.Request, error) {
	if p.perHost > 0 {
		q.PerHost = int(p.perHost)
	}
	switch {
	case p.cores == 0:
		return q, nil
	case !p.np.Changed && p.perHost == 0:
		return q, fmt.Errorf("-c %d is %[1]d cores for each rank, as of srun, and needs -n or --ppn; if ranks are meant, as "+
			"of Open MPI's mpirun, write -n %[1]d", p.cores)
	case q.PE > 0 && q.PE != int(p.cores):
		return q, fmt.Errorf("-c %d and --map-by with PE=%d say different numbers of cores: leave one out", p.cores, q.PE)
	}
	q.PE = int(p.cores)
	return q, nil
}

// hosts reads -H or --hostfile; nil: neither is given.
func (p *placeFlags) hosts() ([]place.Host, error) {
	switch {
	case p.list != "" && p.file != "":
		return nil, errors.New("-H and --hostfile cannot be used together: name the hosts in one of them")
	case p.list != "":
		return place.List("-H", string(p.list))
	case p.file != "":
		text, err := os.ReadFile(string(p.file))
		if err != nil {
			return nil, fmt.Errorf("--hostfile: %w", err)
		}
		return place.Hostfile(string(p.file), string(text))
	}
	return p.given, nil
}

type mapByFlag place.Request

func (m *mapByFlag) Set(text string) error { return (*place.Request)(m).ParseMapBy(text) }
func (m *mapByFlag) String() string        { return string(m.MapBy) }
func (m *mapByFlag) Type() string          { return "HOW" }

type rankByFlag place.Request

func (r *rankByFlag) Set(text string) (err error) {
	r.RankBy, err = place.ParseRankBy(text)
	return err
}
func (r *rankByFlag) String() string { return string(r.RankBy) }
func (r *rankByFlag) Type() string   { return "HOW" }
