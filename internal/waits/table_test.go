package waits

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func recv(from, tag int) Call {
	return Call{Op: "Recv", At: "a.go:1", Waits: []Wait{{Message, from, tag, 8, "world"}}}
}

func in(op string, number uint32, missing ...int) Call {
	c := Call{Op: op, At: "a.go:2", Number: number, Comm: "rows", For: 1500 * time.Millisecond}
	for _, rank := range missing {
		c.Waits = append(c.Waits, Wait{Kind: Step, Peer: rank})
	}
	return c
}

func ranksOf(calls ...[]Call) (all []Rank) {
	for rank, c := range calls {
		all = append(all, Rank{Rank: rank, Account: Account{Calls: c}})
	}
	return all
}

func TestTable(t *testing.T) {
	ring := make([]Rank, 64)
	for i := range ring {
		ring[i] = Rank{Rank: i, Host: "h" + string(rune('0'+i%8)), Account: Account{Calls: []Call{{Op: "Ssend", At: "r.go:9",
			For: time.Duration(i+3) * time.Second, Waits: []Wait{{Match, (i + 1) % 64, 0, 20 << 10, "world"}}}}}}
	}
	tagged := ranksOf([]Call{recv(1, 6)}, nil)
	tagged[0].Unasked = []Unasked{{1, 3, []int{5, 7}, "world"}, {1, 1, []int{6}, "rows"}}
	tagged[1].Note = "computes, in no call of mpi, at b.go:3"
	lockOf := func(rank int) []Call {
		return []Call{{Op: "Win.Lock", At: "a.go:3", Window: 7, Waits: []Wait{{Kind: Lock, Peer: rank, Comm: "win"}}}}
	}
	locked := ranksOf(lockOf(1), []Call{recv(0, 9)}, lockOf(0))
	locked[0].Holds = []Hold{{7, [][2]int{{0, 0}}}, {8, [][2]int{{0, 2}}}}
	locked[2].Holds = []Hold{{7, [][2]int{{1, 1}, {3, 3}}}}
	shared := ranksOf(lockOf(1), lockOf(1), nil, nil, nil)
	for i := range shared[2:] {
		shared[2+i].Note = "computes"
		shared[2+i].Holds = []Hold{{7, [][2]int{{0, 4}}}}
	}
	shared[4].Holds[0].Window = 8
	for name, c := range map[string]struct {
		ranks []Rank
		want  string
	}{
		"two that send to each other": {ranksOf(
			[]Call{{Op: "Ssend", At: "a.go:1", For: 3200 * time.Millisecond, Waits: []Wait{{Match, 1, 0, 8, "world.dup2"}}}},
			[]Call{{Op: "Ssend", At: "a.go:1", For: 12 * time.Second, Waits: []Wait{{Match, 0, 0, 8, "world.dup2"}}}},
		), `rank 0: Ssend to 1, tag 0, 8 B, world.dup2, for 3.2 s, at a.go:1
rank 1: Ssend to 0, tag 0, 8 B, world.dup2, for 12 s, at a.go:1
0 waits for 1 waits for 0`},
		"a ring over hosts": {ring,
			`ranks 0-63 on 8 hosts: Ssend, each to another rank (rank 0 to 1, rank 1 to 2, ...), tag 0, 20 KiB, world, for 3.0 s, at r.go:9
0 waits for 1 waits for 2 waits for 3 waits for 4 waits for 5 waits for 6 waits for 7 waits for 8 waits for 9 waits ` +
				`for 10 waits for ... waits for 63 waits for 0 (64 ranks)`},
		"a collective call that one skips": {ranksOf([]Call{in("Allreduce", 17, 1)}, []Call{in("Allreduce", 17, 0, 2)},
			[]Call{recv(0, 9)}, []Call{in("Allreduce", 17, 2)}),
			`ranks 0, 1, 3: Allreduce number 17 on rows: waits for 2, for 1.5 s, at a.go:2
rank 2: Recv from 0, tag 9, 8 B, world, at a.go:1
0 waits for 1 waits for 0`},
		"a wrong tag": {tagged, `rank 0: Recv from 1, tag 6, 8 B, world, at a.go:1
rank 1: computes, in no call of mpi, at b.go:3
rank 0 has 3 messages from 1, tags 5, 7, world: did the receive ask for tag 6?`},
		"locks": {locked, `rank 0: Win.Lock of 1, win, held by 2, at a.go:3
rank 2: Win.Lock of 0, win, held by 0, at a.go:3
rank 1: Recv from 0, tag 9, 8 B, world, at a.go:1
0 waits for 2 waits for 0`},
		"a lock that several have": {shared, `ranks 0, 1: Win.Lock of 1, win, held by 2, 3, at a.go:3
ranks 2-4: computes`},
		"locks of many": {ranksOf(lockOf(1), lockOf(2), lockOf(3), lockOf(0)),
			"ranks 0-3: Win.Lock, each of another rank (rank 0 of 1, rank 1 of 2, ...), win, at a.go:3"},
		"a set": {ranksOf([]Call{{Op: "WaitAny", Waits: []Wait{{Message, 1, Any, 0, "w"}, {Message, Any, 2, 0, "w"},
			{Match, 1, 2, 0, "w"}, {Match, 1, 3, 0, "w"}}}}, []Call{recv(0, 1)}),
			`rank 0: WaitAny: from 1, tag any, w; from any rank, tag 2, w; to 1, tag 2, 0 B, w; 1 more
rank 1: Recv from 0, tag 1, 8 B, world, at a.go:1`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(Table(c.ranks), "\n"); got != c.want {
				t.Errorf("the table is\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// However many ranks do different things, the table fits on a few screens.
func TestTableIsBounded(t *testing.T) {
	var all []Rank
	for i := range 5000 {
		a := Account{Calls: []Call{{Op: "Recv", Waits: []Wait{{Message, (i * 7) % 5000, i, int64(i), "world"}}}},
			Unasked: []Unasked{{(i * 7) % 5000, 1, []int{-i}, "world"}}}
		all = append(all, Rank{Rank: i, Account: a})
	}
	if n := len(Table(all)); n > mostLines+mostHints+3 {
		t.Errorf("%d lines", n)
	}
}

// A search for a cycle ends soon however many ranks wait for however many, and finds what there is among few.
func TestSearchIsBounded(t *testing.T) {
	const ranks, each = 5000, 300
	var all []Rank
	for rank := range ranks {
		c := Call{Op: "Alltoall"}
		for k := range each { // of higher numbers alone: there is no cycle
			if rank+1+k < ranks {
				c.Waits = append(c.Waits, Wait{Kind: Step, Peer: rank + 1 + k})
			}
		}
		all = append(all, Rank{Rank: rank, Account: Account{Calls: []Call{c}}})
	}
	left := mostSteps
	if c := circle(waitedFor(all), 0, &left); c != nil || left >= 0 {
		t.Errorf("%v, and %d steps are left", c, left)
	}
	if c := Cycle(all); c != "" {
		t.Error(c)
	}
}

// An account that a rank makes up is refused or harmless, and what is too long is left out.
func TestHostileAccounts(t *testing.T) {
	for _, bad := range []string{"", "null garbage", `{"Calls":[{"Waits":[{"Peer":4}]}]}`,
		`{"Calls":[{"Waits":[{"Peer":-2}]}]}`, `{"Calls":[{"For":-1}]}`, `{"Calls":[{"Waits":[{"Kind":9}]}]}`,
		`{"Unasked":[{"From":7,"Count":1}]}`, `{"Unasked":[{"From":0,"Count":0}]}`, `{"Calls":[{"More":-1}]}`,
		`{"Holds":[{"Ranks":[[0,4]]}]}`, `{"Holds":[{"Ranks":[[-1,0]]}]}`, `{"Holds":[{"Ranks":[[2,1]]}]}`,
		`{"Note":"` + strings.Repeat("x", Most) + `"}`} {
		if a, err := Decode([]byte(bad), 4); err == nil {
			t.Errorf("%.40q was taken for %+v", bad, a)
		}
	}
	a, err := Decode([]byte(`{"Note":"\u001b[2J\nhello","Calls":[{"Op":"a\tb"}]}`), 4)
	if err != nil || a.Note != "?[2J?hello" || a.Calls[0].Op != "a?b" {
		t.Errorf("%+v, %v", a, err)
	}
	long := Account{Note: strings.Repeat("x", 9000)}
	for range 100 {
		c := in("Allreduce", 1)
		for rank := range 200 {
			c.Waits = append(c.Waits, Wait{Message, rank, 1 << 30, 1 << 60, strings.Repeat("c", 500)})
		}
		long.Calls = append(long.Calls, c)
		long.Holds = append(long.Holds, Hold{1 << 30, make([][2]int, 900)})
		long.Unasked = append(long.Unasked, Unasked{3, 5, make([]int, 900), strings.Repeat("c", 500)})
	}
	b := long.Encode()
	if len(b) > Most {
		t.Errorf("%d bytes", len(b))
	}
	if _, err := Decode(b, 200); err != nil {
		t.Error(err)
	}
	locked := Account{Holds: long.Holds}
	if a, err := Decode(locked.Encode(), 200); err != nil || len(a.Holds) != mostCalls ||
		len(a.Holds[0].Ranks) != mostWaits {
		t.Errorf("%+v, %v", a.Holds, err)
	}
	locked.Calls = slices.Repeat([]Call{in("Allreduce", 1, make([]int, mostWaits)...)}, mostCalls)
	if a, err := Decode(locked.Encode(), 200); err != nil || len(a.Calls) != mostCalls || a.Holds != nil {
		t.Errorf("%d calls and the locks of %d windows, %v", len(a.Calls), len(a.Holds), err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(ranksOf([]Call{in("Allreduce", 17, 1), recv(1, 6)})[0].Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := Decode(b, 4); err == nil {
			for _, line := range Table([]Rank{{Account: a}, {Rank: 1, Account: a}}) {
				if strings.ContainsAny(line, "\n\x1b") {
					t.Errorf("%q", line)
				}
			}
		}
	})
}

// The table says which ranks have been started again.
func TestTableOfRanksThatStartAgain(t *testing.T) {
	rank := func(n int, again bool, note string) Rank {
		return Rank{Rank: n, Again: again, Account: Account{Note: note}}
	}
	got := Table([]Rank{rank(0, false, "a"), rank(1, true, "a"), rank(2, true, "a"), rank(3, true, "b"),
		rank(4, false, "c")})
	want := []string{"ranks 0-2 (1, 2 started again): a", "rank 3 (started again): b", "rank 4: c"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
