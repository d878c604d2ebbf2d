package place

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Unit is what ranks are dealt to in turn, or counted by.
type Unit string

const (
	Slot   Unit = "slot"     // the hosts one after the other, each until its slots are full
	Node   Unit = "node"     // the hosts in turn
	Core   Unit = "core"     // as Slot; on a host its cores in turn
	NUMA   Unit = "numa"     // as Slot; on a host its NUMA nodes in turn
	Socket Unit = "socket"   // as Slot; on a host its sockets in turn
	L3     Unit = "l3cache"  // as Slot; on a host its third-level caches in turn
	Thread Unit = "hwthread" // as Slot; on a host its hardware threads in turn
)

// Units are the values of --map-by and --rank-by.
var Units = []Unit{Slot, Node, Core, NUMA, Socket, L3, Thread}

const useUnits = "use slot, node, core, numa, socket, l3cache or hwthread"

// parseUnit reads the name of a unit, in letters of either case.
func parseUnit(text string) (Unit, bool) {
	u := Unit(strings.ToLower(text))
	if u == "package" { // what Open MPI 5 calls a socket
		u = Socket
	}
	return u, slices.Contains(Units, u)
}

// Request is how a job wants its ranks placed.
type Request struct {
	Ranks   int
	PerHost int  // exactly so many on each host until there are no more ranks; 0: as the slots of the hosts say
	MapBy   Unit // "": Slot
	RankBy  Unit // how the ranks are numbered after they have been placed; "": as they were dealt
	PE      int  // cores of each rank, and the slots that it takes; 0: one slot
}

// ParseMapBy reads a value of --map-by into the request: a unit, perhaps with :PE=n, or ppr:N:node.
func (q *Request) ParseMapBy(text string) error {
	words := strings.Split(strings.ToLower(text), ":")
	if words[0] == "ppr" {
		if len(words) < 3 || words[2] != string(Node) {
			return errors.New("write ppr:N:node for N ranks on each host, or --ppn N")
		}
		n, err := strconv.Atoi(words[1])
		if err != nil || n < 1 || n > MaxRanks {
			return fmt.Errorf("ppr:%s:node: the number of ranks on each host is 1 or more", words[1])
		}
		q.PerHost, q.MapBy, words = n, Slot, words[2:]
	} else if unit, ok := parseUnit(words[0]); ok {
		q.MapBy = unit
	} else if words[0] != "" { // :PE=2 alone
		return errors.New(useUnits + ", perhaps with :PE=n for n cores of each rank")
	}
	for _, w := range words[1:] {
		cores, isPE := strings.CutPrefix(w, "pe=")
		n, err := strconv.Atoi(cores)
		switch {
		case isPE && (err != nil || n < 1 || n > MaxRanks):
			return fmt.Errorf("%s: the number of cores of each rank is 1 or more", strings.ToUpper(w))
		case isPE:
			q.PE = n
		case w != "oversubscribe" && w != "nooversubscribe":
			return fmt.Errorf("%s is not known: what may follow the colon is PE=n", w)
		}
	}
	return nil
}

// ParseRankBy reads a value of --rank-by.
func ParseRankBy(text string) (Unit, error) {
	if u, ok := parseUnit(text); ok {
		return u, nil
	}
	return "", errors.New(useUnits)
}

// Layout is ranks placed on hosts.
type Layout struct {
	Ranks  int
	Hosts  []Host // those that have ranks
	Counts []int  // of the ranks of each
	Unused []Host // those that have none
	Spares []Host // which the caller sets: ranks may start there later
	Order  Order  // the numbers in it are those of Hosts
}

// Place deals the ranks to the hosts. There is a host at least.
//
// A host whose slots are not said has an equal share of the ranks that the others have no slots for. Where there are
// more ranks than slots the slots are filled again from the first host on: no job is refused for that.
func Place(hosts []Host, q Request) (*Layout, error) {
	if q.Ranks < 1 || q.Ranks > MaxRanks {
		return nil, fmt.Errorf("a job has 1 to %d ranks, not %d", MaxRanks, q.Ranks)
	}
	if q.PerHost > 0 && q.Ranks > q.PerHost*len(hosts) {
		need := (q.Ranks + q.PerHost - 1) / q.PerHost
		return nil, fmt.Errorf("%d ranks with %d on each host need %d hosts, and there %s: name more, or use --ppn %d",
			q.Ranks, q.PerHost, need, areHosts(len(hosts)), (q.Ranks+len(hosts)-1)/len(hosts))
	}
	l := &Layout{Ranks: q.Ranks}
	for i, n := range deal(room(hosts, q), q.Ranks, q.MapBy == Node) {
		if n == 0 {
			l.Unused = append(l.Unused, hosts[i])
			continue
		}
		l.Hosts, l.Counts = append(l.Hosts, hosts[i]), append(l.Counts, n)
	}
	if q.RankBy == Node || q.RankBy == "" && q.MapBy == Node {
		l.Order = InTurn(l.Counts)
	} else {
		l.Order = Blocks(l.Counts)
	}
	return l, nil
}

func areHosts(n int) string {
	if n == 1 {
		return "is 1"
	}
	return fmt.Sprintf("are %d", n)
}

// All is how many ranks fill the hosts: a host whose slots are not said is full with one.
func (q Request) All(hosts []Host) (n int) {
	for _, h := range hosts {
		n += q.roomOf(h)
	}
	return n
}

// roomOf is how many ranks a host takes; one if its slots are not said.
func (q Request) roomOf(h Host) int {
	if q.PerHost > 0 {
		return q.PerHost
	}
	return max(h.Slots/max(q.PE, 1), 1)
}

// room is how many ranks each host takes before the next one has a turn: one at least.
func room(hosts []Host, q Request) []int {
	all := make([]int, len(hosts))
	rest, open := q.Ranks, 0
	for i, h := range hosts {
		if q.PerHost == 0 && h.Slots == 0 {
			open++
			continue
		}
		all[i] = q.roomOf(h)
		rest -= all[i]
	}
	share := 0
	for i := range all {
		if all[i] == 0 {
			all[i] = max((rest-share+open-1)/open, 1)
			share++
		}
	}
	return all
}

// deal returns how many of n ranks each host has: the room is filled host by host, or by one rank for each host in
// turn, and as often as there are ranks for.
func deal(room []int, n int, inTurn bool) []int {
	all := 0
	for _, r := range room {
		all += r
	}
	counts := make([]int, len(room))
	level := 0 // every host has so many of the last, incomplete filling
	rest := n % all
	if inTurn {
		filled := func(level int) (sum int) {
			for _, r := range room {
				sum += min(r, level)
			}
			return sum
		}
		level = sort.Search(slices.Max(room), func(l int) bool { return filled(l+1) > rest })
		rest -= filled(level)
	}
	for i, r := range room {
		more := min(r-min(r, level), rest)
		if inTurn {
			more = min(more, 1)
		}
		rest -= more
		counts[i] = n/all*r + min(r, level) + more
	}
	return counts
}
