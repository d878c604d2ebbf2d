package place

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func hostsOf(slots ...int) (hosts []Host) {
	for i, n := range slots {
		hosts = append(hosts, Host{string(rune('a' + i)), n})
	}
	return hosts
}

// format is the names of the hosts of all ranks in turn.
func format(l *Layout) string {
	var b strings.Builder
	for _, host := range l.Order.Ranks(l.Ranks) {
		b.WriteString(l.Hosts[host].Name)
	}
	return b.String()
}

func TestPlace(t *testing.T) {
	for _, c := range []struct {
		name  string
		slots []int
		q     Request
		want  string
	}{
		{"slots in order", []int{4, 4}, Request{Ranks: 8}, "aaaabbbb"},
		{"not all needed", []int{4, 4}, Request{Ranks: 5}, "aaaab"},
		{"a host left over", []int{4, 4}, Request{Ranks: 4}, "aaaa -b"},
		{"in turn", []int{4, 4}, Request{Ranks: 5, MapBy: Node}, "ababa"},
		{"in turn until full", []int{1, 3}, Request{Ranks: 4, MapBy: Node}, "abbb"},
		{"in turn, one full in the middle", []int{3, 1, 2}, Request{Ranks: 6, MapBy: Node}, "abcaca"},
		{"in turn, numbered by host", []int{4, 4}, Request{Ranks: 5, MapBy: Node, RankBy: Slot}, "aaabb"},
		{"filled, numbered in turn", []int{4, 2}, Request{Ranks: 6, RankBy: Node}, "ababaa"},
		{"more ranks than slots", []int{2, 1}, Request{Ranks: 8}, "aaaaaabb"},
		{"more ranks than slots, in turn", []int{2, 1}, Request{Ranks: 8, MapBy: Node}, "abababaa"},
		{"slots not said", []int{0, 0}, Request{Ranks: 5}, "aaabb"},
		{"slots not said, few ranks", []int{0, 0, 0}, Request{Ranks: 2}, "ab -c"},
		{"some said", []int{4, 0, 0}, Request{Ranks: 10}, "aaaabbbccc"},
		{"some said, none left", []int{4, 0}, Request{Ranks: 3}, "aaa -b"},
		{"ppn", []int{9, 9, 0}, Request{Ranks: 6, PerHost: 2}, "aabbcc"},
		{"ppn, the last not full", []int{0, 0}, Request{Ranks: 3, PerHost: 2}, "aab"},
		{"ppn in turn", []int{0, 0}, Request{Ranks: 4, PerHost: 2, MapBy: Node}, "abab"},
		{"cores", []int{8, 8}, Request{Ranks: 4, MapBy: Core, PE: 4}, "aabb"},
		{"more cores than slots", []int{2, 2}, Request{Ranks: 2, PE: 4}, "ab"},
		{"numa", []int{2, 2}, Request{Ranks: 4, MapBy: NUMA}, "aabb"},
	} {
		l, err := Place(hostsOf(c.slots...), c.q)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got := format(l)
		for _, h := range l.Unused {
			got += " -" + h.Name
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	for want, q := range map[string]Request{
		"a job has 1 to 1048576 ranks, not 0":                                                  {},
		"a job has 1 to 1048576 ranks, not 1048577":                                            {Ranks: MaxRanks + 1},
		"7 ranks with 2 on each host need 4 hosts, and there are 3: name more, or use --ppn 3": {Ranks: 7, PerHost: 2},
	} {
		if l, err := Place(hostsOf(0, 0, 0), q); l != nil || err == nil || err.Error() != want {
			t.Errorf("%+v: %v, want %s", q, err, want)
		}
	}
}

// slowPlace deals rank by rank.
func slowPlace(hosts []Host, q Request) []int {
	free := make([]int, len(hosts))
	fill := func() {
		said, open := 0, 0
		for i, h := range hosts {
			switch {
			case q.PerHost > 0:
				free[i] = q.PerHost
			case h.Slots > 0:
				free[i] = max(1, h.Slots/max(1, q.PE))
				said += free[i]
			default:
				free[i] = 1
				open++
			}
		}
		for i := 0; said+open < q.Ranks && open > 0 && q.PerHost == 0; i = (i + 1) % len(hosts) {
			if hosts[i].Slots == 0 { // one more of the share
				free[i]++
				said++
			}
		}
	}
	var order []int
	counts := make([]int, len(hosts))
	for at := 0; len(order) < q.Ranks; {
		if !slices.ContainsFunc(free, func(n int) bool { return n > 0 }) {
			fill()
			at = 0
		}
		if free[at] == 0 {
			at = (at + 1) % len(hosts)
			continue
		}
		free[at]--
		counts[at]++
		order = append(order, at)
		if q.MapBy == Node {
			at = (at + 1) % len(hosts)
		}
	}
	if q.RankBy == Node || q.RankBy == "" && q.MapBy == Node {
		order = order[:0]
		for len(order) < q.Ranks {
			for h := range counts {
				if counts[h] > 0 {
					counts[h]--
					order = append(order, h)
				}
			}
		}
		return order
	}
	slices.Sort(order)
	return order
}

func FuzzPlace(f *testing.F) {
	f.Add(uint64(1), 8, 0, uint8(0))
	f.Add(uint64(2), 31, 3, uint8(1))
	for seed := range uint64(40) {
		f.Add(seed, int(seed*7%50), int(seed%5), uint8(seed))
	}
	f.Fuzz(func(t *testing.T, seed uint64, ranks, perHost int, how uint8) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		slots := make([]int, 1+rnd.IntN(12))
		for i := range slots {
			slots[i] = rnd.IntN(6) * rnd.IntN(2)
		}
		hosts := hostsOf(slots...)
		q := Request{Ranks: 1 + abs(ranks)%200, PerHost: abs(perHost) % 8 * int(how&1), MapBy: Units[how>>1&3],
			RankBy: append([]Unit{""}, Units...)[int(how>>3)%5], PE: int(how >> 6)}
		l, err := Place(hosts, q)
		if err != nil {
			if q.PerHost == 0 || q.PerHost*len(hosts) >= q.Ranks {
				t.Fatalf("%+v on %v: %v", q, hosts, err)
			}
			return
		}
		var want, names []string
		for _, h := range slowPlace(hosts, q) {
			want = append(want, hosts[h].Name)
		}
		counts := make([]int, len(l.Hosts))
		for rank, h := range l.Order.Ranks(l.Ranks) {
			if at := l.Order.HostOf(rank); at != h {
				t.Fatalf("%+v on %v: rank %d is on %d and on %d", q, hosts, rank, h, at)
			}
			names = append(names, l.Hosts[h].Name)
			counts[h]++
		}
		if !slices.Equal(names, want) || !slices.Equal(counts, l.Counts) || len(l.Hosts)+len(l.Unused) != len(hosts) {
			t.Errorf("%+v on %v: %v, the model has %v; %v", q, hosts, names, want, l)
		}
		checkMapping(t, l)
	})
}

func abs(n int) int { return max(n, -(n + 1)) }

// checkMapping checks that a reader of the mapping finds each rank where it is, though it knows triples only.
func checkMapping(t *testing.T, l *Layout) {
	t.Helper()
	text := l.Order.Mapping()
	o, err := ParseMapping(text)
	if err != nil || strings.Contains(text, "[") {
		t.Fatalf("%s: %v", text, err)
	}
	slow := slowMapping(text, l.Ranks)
	for rank, host := range l.Order.Ranks(l.Ranks) {
		if o.HostOf(rank) != host || slow[rank] != host {
			t.Fatalf("%s: rank %d is on %d, and read as %d and %d", text, rank, host, o.HostOf(rank), slow[rank])
		}
	}
}

// 10,000 ranks on 100 hosts are a few ranges, however they are dealt.
func TestPlaceManyInRanges(t *testing.T) {
	hosts, err := List("-H", "n[001-100]:64")
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []Request{{MapBy: Slot}, {MapBy: Node}, {MapBy: Node, RankBy: Slot}, {PerHost: 100}} {
		q.Ranks = 10_000
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		l, err := Place(hosts, q)
		if err != nil {
			t.Fatal(err)
		}
		text := l.Order.Mapping()
		runtime.ReadMemStats(&after)
		ranges := 0
		for _, r := range l.Order {
			ranges += len(r.Spans)
		}
		if n := after.TotalAlloc - before.TotalAlloc; ranges > 3 || n > 64<<10 {
			t.Errorf("%+v: %d ranges, %d bytes", q, ranges, n)
		}
		if len(text) > 60 {
			t.Errorf("%+v: %s", q, text)
		}
	}
}

func TestParseMapBy(t *testing.T) {
	for text, want := range map[string]Request{
		"slot": {MapBy: Slot}, "NODE": {MapBy: Node}, "core:PE=2": {MapBy: Core, PE: 2}, "numa:pe=3": {MapBy: NUMA, PE: 3},
		"ppr:2:node": {MapBy: Slot, PerHost: 2}, "ppr:2:node:PE=4": {MapBy: Slot, PerHost: 2, PE: 4},
		"slot:PE=2:oversubscribe": {MapBy: Slot, PE: 2}, ":OVERSUBSCRIBE": {}, ":PE=2": {PE: 2},
		"socket": {MapBy: Socket}, "package:PE=2": {MapBy: Socket, PE: 2}, "L3cache": {MapBy: L3}, "hwthread": {MapBy: Thread},
	} {
		var q Request
		if err := q.ParseMapBy(text); err != nil || !reflect.DeepEqual(q, want) {
			t.Errorf("%s: %+v, %v", text, q, err)
		}
	}
	for text, want := range map[string]string{
		"board": "use slot, node, core, numa, socket, l3cache or hwthread", "core:PE=0": "PE=0: the number of cores", "core:PE=x": "PE=X",
		"ppr:2:socket": "ppr:N:node", "ppr:x:node": "ppr:x:node: the number", "ppr": "ppr:N:node", "core:x": "x is not known",
	} {
		if err := new(Request).ParseMapBy(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if u, err := ParseRankBy("Node"); u != Node || err != nil {
		t.Error(u, err)
	}
	if _, err := ParseRankBy("fill"); err == nil {
		t.Error("--rank-by fill was understood")
	}
}

func ExampleOrder_Mapping() {
	fmt.Println(Blocks([]int{4, 2, 1, 1}).Mapping())
	fmt.Println(InTurn([]int{2, 2, 2}).Mapping())
	fmt.Println(InTurn([]int{3, 1}).Mapping())
	// Output:
	// (vector,(0,1,4),(1,1,2),(2,2,1))
	// (vector,(0,3,1))
	// (vector,(0,2,1),(0,1,1),(0,1,1))
}
