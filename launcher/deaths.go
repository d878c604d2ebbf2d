package launcher

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/gorun-mpi/mpi/internal/pmi"
	"github.com/gorun-mpi/mpi/internal/procs"
)

// rankID is a rank of the first job, or of one that Spawn has started, as the user names it. Where it starts again,
// several processes have it one after the other.
type rankID struct{ spawn, rank int }

// noRank stands for a rank that is not known.
var noRank = rankID{-1, 0}

func idOf(e procs.Exit) rankID { return rankID{e.Spawn, e.Number()} }

// idOf is which rank a rank of a job is for the user.
func (j *Job) idOf(rank int) rankID { return idOf(j.titled(procs.Exit{Rank: rank})) }

// deaths are the ranks of a job and its spawned jobs that have died while the job goes on, and how often each has been
// started again. Every supervisor of the job may call its methods.
type deaths struct {
	mu     sync.Mutex
	most   int            // starts that --respawn allows; 0: no rank is started again; never changes
	starts int            // guarded by mu; ranks that were started in the places of others, or were to be
	times  map[rankID]int // guarded by mu; how often a rank has been started again, or was to be
	back   map[rankID]int // guarded by mu; which of these starts was the last one that has met the other ranks
	all    []death        // guarded by mu; in their order
	hosts  []string       // guarded by mu; what has been said of hosts that are lost
}

// death is the end of a process of a rank.
type death struct {
	id    rankID
	name  string
	times int // 0: it was the rank's first process
	code  int // that it gives to the job
}

// take counts n starts that are to be made, also if they fail then, and says why they must not be. first is the number
// of the first one.
func (d *deaths) take(n int) (first int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.most == 0:
		return 0, fmt.Errorf("%w: gorun was not given --respawn; start the job with --respawn %d or more, or call Shrink",
			pmi.ErrNoSpawn, n)
	case d.starts+n > d.most:
		return 0, fmt.Errorf("%w: the starts of --respawn %d do not suffice: ranks to start now: %d, started before: %d; "+
			"give more, or call Shrink", pmi.ErrNoSpawn, d.most, n, d.starts)
	}
	first = d.starts + 1
	d.starts += n
	return first, nil
}

// start notes that a rank is started again. It returns which of its own starts that is.
func (d *deaths) start(id rankID) (times int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.times == nil {
		d.times, d.back = map[rankID]int{}, map[rankID]int{}
	}
	d.times[id]++
	return d.times[id]
}

// met notes that a rank that was started again has met the others. The deaths of its earlier processes do not count.
func (d *deaths) met(e procs.Exit) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.back[idOf(e)] = max(d.back[idOf(e)], e.Again)
}

// died notes the end of a rank.
func (d *deaths) died(e procs.Exit, code int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, death{idOf(e), e.Name(), e.Again, code})
}

// hostLost notes that a host is lost. It reports whether that has not been said. Without --respawn it gives the job a
// code, whatever ranks the host had; with it, only ranks that are not started again do.
func (d *deaths) hostLost(why string) (news bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.most == 0 {
		d.all = append(d.all, death{id: rankID{rank: -1}, code: 1})
	}
	news = !slices.Contains(d.hosts, why)
	d.hosts = append(d.hosts, why)
	return news
}

// goesOnWithout ends the line about a rank that has died. Other ranks may have heard of that before, and have asked for
// its start.
func (d *deaths) goesOnWithout(e procs.Exit) string {
	d.mu.Lock()
	starts := d.times[idOf(e)] > e.Again
	d.mu.Unlock()
	if starts {
		return "; the job goes on, and Replace starts it again"
	}
	return d.goesOn("it")
}

// goesOn ends the line about ranks that have died.
func (d *deaths) goesOn(them string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch left := d.most - d.starts; {
	case d.most == 0:
		return "; the job goes on without " + them
	case left <= 0:
		return fmt.Sprintf("; the job goes on without %s: no start of --respawn %d is left", them, d.most)
	default:
		return fmt.Sprintf("; the job goes on, and Replace may start %s again (--respawn: %d of %d starts left)", them,
			left, d.most)
	}
}

// counts reports whether no later process of the rank has met the others.
func (d *deaths) counts(one death) bool { return one.times >= d.back[one.id] }

// code is the exit code that the deaths give to the job: of the first rank that was not started again.
func (d *deaths) code() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, one := range d.all {
		if d.counts(one) {
			return one.code
		}
	}
	return 0
}

// summary is what is said at the end of a job that may start ranks again; "": nothing.
func (d *deaths) summary() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.most == 0 || len(d.all) == 0 {
		return ""
	}
	var lost, back []string
	code, times := 0, map[string]int{}
	for _, one := range d.all {
		if d.counts(one) {
			if len(lost) == 0 {
				code = one.code
			}
			if !slices.Contains(lost, one.name) {
				lost = append(lost, one.name)
			}
			continue
		}
		if times[one.name]++; times[one.name] == 1 {
			back = append(back, one.name)
		}
	}
	if len(lost) > 0 {
		return fmt.Sprintf("the exit code is %d: the first rank that ended badly and was not started again is %s%s", code,
			lost[0], others(lost[1:]))
	}
	for i, name := range back {
		if n := times[name]; n > 1 {
			back[i] = fmt.Sprintf("%s (%d times)", name, n)
		}
	}
	return "all ranks that died were started again, and the job has ended well: " + someOf(back)
}

// others names further ranks that have ended badly.
func others(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "; so did " + someOf(names)
}

// someOf names the first of them.
func someOf(names []string) string {
	const most = 8
	if more := len(names) - most; more > 0 {
		names = append(slices.Clone(names[:most]), fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}
