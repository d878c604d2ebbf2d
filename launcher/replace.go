package launcher

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gorun-mpi/mpi/internal/place"
	"github.com/gorun-mpi/mpi/internal/pmi"
)

// A rank that takes the place of a dead one starts on the host of that, if the host is not lost; else on a spare; else
// on the host that has the fewest ranks (docs/decisions/spawn.md).

// roster is which process has which rank, and which hosts are lost. All runs of a job share that of the first one, and
// any goroutine may use it.
type roster struct {
	mu sync.Mutex
	// holders is guarded by mu. nil: no rank of the job may be replaced, or all are on this host.
	holders map[rankID]*holder
	lost    map[string]bool // guarded by mu; names of hosts
	// standsFor has the spares whose slots are not said and that are in use: each takes the ranks of one lost host.
	standsFor map[string]string // guarded by mu
	changed   chan struct{}     // guarded by mu; closed at the next change; nil: no goroutine waits for one
}

// holder is the process that has a rank.
type holder struct {
	job   int // the number of its job
	host  string
	met   string // where the last process of the rank was that has met the others
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
	if first.job.Respawn == 0 || !first.plan.Remote {
		return
	}
	l, layout := &first.spawns.roster, r.plan.Layout
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holders == nil {
		l.holders = map[rankID]*holder{}
	}
	for rank, host := range layout.Order.Ranks(r.plan.World) {
		at := layout.Hosts[host].Name
		l.holders[r.job.idOf(rank)] = &holder{job: r.job.Spawn, host: at, met: at}
	}
}

// rankGone is called once for each rank that has ended, or does not start.
func (r *run) rankGone(rank int) {
	l := &r.first().spawns.roster
	l.mu.Lock()
	if h := l.holders[r.job.idOf(rank)]; h != nil && h.job == r.job.Spawn {
		h.ended = true
		l.notify()
	}
	l.mu.Unlock()
	close(r.ranks[rank].gone)
}

// dismiss notes the end of a spawned job. The places of its ranks may be taken again while a rank of their world lives.
func (l *roster) dismiss(j *Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for rank := range j.Size() {
		if h := l.holders[j.idOf(rank)]; h != nil && h.job == j.Spawn {
			h.ended = true
		}
	}
	world, lives := j.idOf(0).spawn, false
	for at, h := range l.holders {
		lives = lives || at.spawn == world && !h.ended
	}
	if world != 0 && !lives {
		maps.DeleteFunc(l.holders, func(at rankID, _ *holder) bool { return at.spawn == world })
	}
	l.notify()
}

// placesOf is which ranks the processes become that a rank of r asks for, or noRank for each; nil: they take no places.
func (r *run) placesOf(q pmi.Spawn) (takes []rankID, err error) {
	if !q.InPlaces() {
		if q.Dead != nil {
			err = errors.New("the request names dead ranks, and its processes take no places")
		}
		return nil, err
	}
	if q.Dead == nil { // of a communicator whose ranks the one that asks cannot tell
		return slices.Repeat([]rankID{noRank}, q.Ranks), nil
	}
	o := r.origin()
	for _, rank := range q.Dead {
		if rank >= o.plan.World {
			return nil, fmt.Errorf("the request names dead rank %d of a world of %d ranks", rank, o.plan.World)
		}
		takes = append(takes, rankID{o.job.Spawn, rank})
	}
	return takes, nil
}

// awaitEnds waits until this process knows of each rank whose place is to be taken that it has ended or that its host
// is lost: the ranks may hear of that before. Without the wait, ranks of a lost host would be started there again.
// A host is found lost a little more than GORUN_PEER_TIMEOUT after its last word. When no end has been heard of long
// after that, the ranks do not reach each other.
func (r *run) awaitEnds(takes []rankID, limit time.Duration) {
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
func (l *roster) unlessEnded(takes []rankID) <-chan struct{} {
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

// settle chooses the host of each process that takes a place, and notes it. number is that of their job. Ranks whose
// hosts live come first: a spare to which ranks return is not free.
func (r *run) settle(takes []rankID, number int) (hosts []place.Host, at []int, err error) {
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
	was, chosen := make([]string, len(takes)), make([]string, len(takes))
	for i, rank := range takes {
		h := l.holders[rank]
		if h == nil {
			continue
		}
		if was[i] = h.host; !l.lost[h.host] {
			chosen[i] = h.host
			load[h.host]++
		}
	}
	for i := range takes {
		if chosen[i] != "" {
			continue
		}
		if chosen[i] = l.hostFor(plan, was[i], load); chosen[i] == "" {
			return nil, nil, errors.New("all hosts of the job are lost")
		}
		load[chosen[i]]++
	}
	for i, rank := range takes {
		host := chosen[i]
		if rank != noRank {
			h := &holder{job: number, host: host}
			if before := l.holders[rank]; before != nil {
				h.met = before.met
			}
			l.holders[rank] = h
		}
		k := slices.IndexFunc(hosts, func(h place.Host) bool { return h.Name == host })
		if k < 0 {
			k, hosts = len(hosts), append(hosts, place.Host{Name: host})
		}
		at = append(at, k)
	}
	return hosts, at, nil
}

// hostFor is where a process starts that takes the place of one on a lost host, or on a host that is not known (""). It
// returns "" if there is no host. mu is held.
func (l *roster) hostFor(p *Plan, was string, load map[string]int) string {
	if spare := l.spareFor(p.Layout.Spares, was, load); spare != "" {
		return spare
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

// spareFor is the spare for a rank of a lost host; "": none is free. mu is held.
func (l *roster) spareFor(spares []place.Host, was string, load map[string]int) string {
	idle := "" // it stands for a host none of whose ranks is there: their start has failed, or they have died
	for _, s := range spares {
		first, used := l.standsFor[s.Name]
		switch {
		case was == "" || l.lost[s.Name]:
		case s.Slots > 0:
			if load[s.Name] < s.Slots {
				return s.Name
			}
		case !used || first == was:
			l.bind(s.Name, was)
			return s.Name
		case load[s.Name] == 0 && idle == "":
			idle = s.Name
		}
	}
	if idle != "" {
		l.bind(idle, was)
	}
	return idle
}

// bind has a spare without slots stand for a lost host. mu is held.
func (l *roster) bind(spare, lost string) {
	if l.standsFor == nil {
		l.standsFor = map[string]string{}
	}
	l.standsFor[spare] = lost
}

// meets notes that the process of a rank has met the others. It returns the host of the last one before that has.
func (l *roster) meets(id rankID) (was string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.holders[id]; h != nil {
		was, h.met = h.met, h.host
	}
	return was
}

// outOfSpares reports whether a rank has started on a host since no spare was free. was is where it was before. r is
// the first run.
func (r *run) outOfSpares(host, was string) bool {
	spares := r.plan.Layout.Spares
	isSpare := slices.ContainsFunc(spares, func(h place.Host) bool { return h.Name == host })
	return host != was && len(spares) > 0 && !isSpare
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
