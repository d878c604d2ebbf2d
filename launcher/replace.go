package launcher

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gorun-mpi/mpi/internal/place"
	"github.com/gorun-mpi/mpi/internal/pmi"
)

// A rank that takes the place of a dead one starts on the host of that, if the host is not lost; else on a spare; else
// on the host that has the fewest ranks (docs/decisions/spawn.md).

// worldRank is a rank of a world: that of the first job (0), or that of a job which Spawn has started. Where ranks are
// replaced, several processes have it one after the other. Processes that take places have no world here.
type worldRank struct{ world, rank int }

// roster is which process has which rank, and which hosts are lost. All runs of a job share that of the first one, and
// any goroutine may use it.
type roster struct {
	mu      sync.Mutex
	holders map[worldRank]*holder // guarded by mu; nil: no rank of the job may be replaced
	lost    map[string]bool       // guarded by mu; names of hosts
	// standsFor has the spares whose slots are not said and that are in use: each takes the ranks of one lost host.
	standsFor map[string]string // guarded by mu
	changed   chan struct{}     // guarded by mu; closed at the next change; nil: no goroutine waits for one
}

// holder is the process that has a rank.
type holder struct {
	job   int // the number of its job
	host  string
	ended bool
}

func (l *roster) isLost(host string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost[host]
}

// lose notes that a host is lost.
func (l *roster) lose(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost == nil {
		l.lost = map[string]bool{}
	}
	l.lost[host] = true
	l.notify()
}

// notify wakes those that wait. mu is held.
func (l *roster) notify() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// enroll notes where the ranks of a run are about to start, which take no places.
func (r *run) enroll() {
	first := r.first()
	if first.job.Respawn == 0 || r.parent != nil {
		return
	}
	l, layout := &first.spawns.roster, r.plan.Layout
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holders == nil {
		l.holders = map[worldRank]*holder{}
	}
	for rank, host := range layout.Order.Ranks(r.plan.World) {
		l.holders[r.worldRank(rank)] = &holder{job: r.job.Spawn, host: layout.Hosts[host].Name}
	}
}

// rankGone is called once for each rank that has ended, or does not start.
func (r *run) rankGone(rank int) {
	l := &r.first().spawns.roster
	l.mu.Lock()
	if h := l.holders[r.worldRank(rank)]; h != nil && h.job == r.job.Spawn {
		h.ended = true
		l.notify()
	}
	l.mu.Unlock()
	r.spawns.rankEnded(rank)
}

// dismiss notes the end of a spawned job. Where ranks have taken places, these may be taken again.
func (l *roster) dismiss(s *spawned) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for rank := range s.want.Ranks {
		at := s.worldRank(rank)
		switch h := l.holders[at]; {
		case h == nil || h.job != s.number:
		case s.takes == nil:
			delete(l.holders, at)
		default:
			h.ended = true
		}
	}
	l.notify()
}

// world is the number of the world in which the places count that a rank of r asks for.
func (r *run) world() int {
	switch s := r.spawned; {
	case s == nil:
		return 0
	case s.takes != nil:
		return s.outer.world()
	default:
		return s.number
	}
}

// worldSize is how many ranks that has.
func (r *run) worldSize() int {
	if s := r.spawned; s != nil && s.takes != nil {
		return s.outer.worldSize()
	}
	return r.plan.World
}

func (r *run) worldRank(rank int) worldRank {
	if r.spawned != nil {
		return r.spawned.worldRank(rank)
	}
	return worldRank{0, rank}
}

func (s *spawned) worldRank(rank int) worldRank {
	if s.takes != nil {
		return s.takes[rank]
	}
	return worldRank{s.number, rank}
}

// placesOf is which places the processes take that a rank of r asks for. The zero rank is not known: {-1, 0}.
func (r *run) placesOf(q pmi.Spawn) (takes []worldRank, err error) {
	if !q.InPlaces() {
		if q.Dead != nil {
			err = errors.New("the request names dead ranks, and its processes take no places")
		}
		return nil, err
	}
	if q.Dead == nil { // of a communicator whose ranks the one that asks cannot tell
		return slices.Repeat([]worldRank{noRank}, q.Ranks), nil
	}
	for _, rank := range q.Dead {
		if rank >= r.worldSize() {
			return nil, fmt.Errorf("the request names dead rank %d of a world of %d ranks", rank, r.worldSize())
		}
		takes = append(takes, worldRank{r.world(), rank})
	}
	return takes, nil
}

// noRank stands for a rank that is not known.
var noRank = worldRank{-1, 0}

// awaitEnds waits until this process knows of each rank whose place is to be taken that it has ended or that its host
// is lost: the ranks may hear of that before. Without the wait, ranks of a lost host would be started there again.
// A host is found lost a little more than GORUN_PEER_TIMEOUT after its last word. When no end has been heard of long
// after that, the ranks do not reach each other.
func (r *run) awaitEnds(takes []worldRank, limit time.Duration) {
	if len(takes) == 0 || !r.first().plan.Remote {
		return
	}
	most := r.job.Agents.silence() * 3 / 2
	if limit > 0 {
		most = min(most, limit)
	}
	late := time.NewTimer(most)
	defer late.Stop()
	for l := &r.first().spawns.roster; ; {
		changed := l.unlessEnded(takes)
		if changed == nil {
			return
		}
		select {
		case <-changed:
		case <-late.C:
			return
		case <-r.over:
			return
		}
	}
}

// unlessEnded returns nil if all processes that have these ranks have ended, or else what is closed at the next change.
func (l *roster) unlessEnded(takes []worldRank) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range takes {
		if h := l.holders[at]; h != nil && !h.ended && !l.lost[h.host] {
			if l.changed == nil {
				l.changed = make(chan struct{})
			}
			return l.changed
		}
	}
	return nil
}

// settle chooses the host of each process that takes a place, and notes it. number is that of their job.
func (r *run) settle(takes []worldRank, number int) (hosts []place.Host, at []int, err error) {
	plan := r.first().plan
	if !plan.Remote {
		return []place.Host{{Name: plan.Host}}, make([]int, len(takes)), nil
	}
	l := &r.first().spawns.roster
	l.mu.Lock()
	defer l.mu.Unlock()
	load := map[string]int{}
	for _, h := range l.holders {
		if !h.ended {
			load[h.host]++
		}
	}
	for _, rank := range takes {
		was := ""
		if h := l.holders[rank]; h != nil {
			was = h.host
		}
		host := l.hostFor(plan, was, load)
		if host == "" {
			return nil, nil, errors.New("all hosts of the job are lost")
		}
		load[host]++
		if rank != noRank {
			l.holders[rank] = &holder{job: number, host: host}
		}
		i := slices.IndexFunc(hosts, func(h place.Host) bool { return h.Name == host })
		if i < 0 {
			i, hosts = len(hosts), append(hosts, place.Host{Name: host})
		}
		at = append(at, i)
	}
	return hosts, at, nil
}

// hostFor is where a process starts that takes the place of one on a host; "": there is no host. mu is held.
func (l *roster) hostFor(p *Plan, was string, load map[string]int) string {
	if was != "" && !l.lost[was] {
		return was
	}
	for _, s := range p.Layout.Spares {
		first, used := l.standsFor[s.Name]
		switch {
		case was == "" || l.lost[s.Name]:
		case s.Slots > 0 && load[s.Name] < s.Slots:
			return s.Name
		case s.Slots == 0 && (!used || first == was):
			if l.standsFor == nil {
				l.standsFor = map[string]string{}
			}
			l.standsFor[s.Name] = was
			return s.Name
		}
	}
	best := ""
	take := func(hosts []place.Host, fewer bool) {
		for _, h := range hosts {
			if !l.lost[h.Name] && (best == "" || fewer && load[h.Name] < load[best]) {
				best = h.Name
			}
		}
	}
	take(p.Hosts, true)
	take(slices.DeleteFunc(slices.Clone(p.Layout.Spares), func(h place.Host) bool { return load[h.Name] == 0 }), true)
	take(p.Layout.Spares, false)
	return best
}

// hostsLeft are the hosts of the job without those that are lost, and without spares.
func (r *run) hostsLeft() []place.Host {
	all := r.first().plan.Hosts
	l := &r.first().spawns.roster
	left := slices.DeleteFunc(slices.Clone(all), func(h place.Host) bool { return l.isLost(h.Name) })
	if len(left) == 0 { // the host of the rank that asks, too
		return all
	}
	return left
}
