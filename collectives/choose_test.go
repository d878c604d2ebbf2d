package collectives

import (
	"math/bits"
	"strings"
	"testing"
)

// For every call there is an algorithm, and each rule's name is in the catalogue.
func TestTable(t *testing.T) {
	for _, r := range table {
		if find(r.operation, r.name) == nil {
			t.Errorf("the table names %v:%s, which is not in the catalogue", r.operation, r.name)
		}
	}
	for _, size := range []int{1, 2, 3, 8, 100, 1 << 20} {
		allHosts := []Hosts{nil, Blocks{size, 1}, Blocks{size, 64}, HostsOf(size, inTurn(3))}
		for o := range operations {
			for _, count := range []int64{0, 1, 1 << 10, 1 << 20, 1 << 40} {
				for _, commutative := range []bool{true, false} {
					for _, via := range []Via{SharedMemory, Network} {
						for _, hosts := range allHosts {
							p := Params{Size: size, Count: count, ElemSize: 8, Commutative: commutative, Hosts: hosts}
							checkChoice(t, o, p, via)
						}
					}
				}
			}
		}
	}
}

// checkChoice looks for an algorithm for p, also where there is a board, and where the board's ranks are roomy.
func checkChoice(t *testing.T, o Operation, p Params, via Via) {
	t.Helper()
	var c Choice
	for _, board := range []Params{{}, {Board: true}, {Board: true, Roomy: true},
		{Board: true, Reads: true, Roomy: true}, {Roomy: true}} {
		p.Board, p.Reads, p.Roomy = board.Board, board.Reads, board.Roomy
		if a := c.Algorithm(o, &p, via); a.Operation != o || a.Fits(&p) != nil {
			t.Errorf("%v of %d on %d ranks by %v", o, p.Count, p.Size, a)
		}
	}
}

// Ranks read each other's buffers only where that was measured to be faster. Of crowded ranks these are two and up to
// 8, and in an Allreduce two.
func TestTableReads(t *testing.T) {
	var c Choice
	for o, most := range map[Operation][2]int{Bcast: {8, 2}, Allgather: {8, 4}, Alltoall: {8, 8}, Reduce: {8, 64},
		Allreduce: {2, 64}} {
		for i, roomy := range []bool{false, true} {
			for _, size := range []int{2, 3, 8, 9, 32, 64} {
				reads := false
				for count := int64(1); count <= 1<<30; count *= 2 {
					p := Params{Size: size, Count: count, ElemSize: 1, Commutative: true, Board: true, Reads: true,
						Roomy: roomy}
					reads = reads || c.Algorithm(o, &p, SharedMemory).Needs&ReadsBuffers != 0
				}
				if want := size <= most[i]; reads != want {
					t.Errorf("%v of %d ranks, roomy %v, reads their buffers: %v; want %v", o, size, roomy, reads, want)
				}
			}
		}
	}
}

// Rabenseifner's algorithm takes up to twice as long where ranks are not a power of two: roomy ranks take it elsewhere.
func TestPowersOfTwo(t *testing.T) {
	var table Choice
	for ranks := 3; ranks <= 64; ranks++ {
		for _, o := range []Operation{Reduce, Allreduce} {
			p := Params{Size: ranks, Count: 64 * kib, ElemSize: 1, Commutative: true, Board: true, Reads: true,
				Roomy: true}
			name, power := table.Algorithm(o, &p, SharedMemory).Name, ranks&(ranks-1) == 0
			if want := power && (o == Allreduce || ranks > 8); (name == "rabenseifner") != want ||
				!power && name != "shared" {
				t.Errorf("%v of 64 KiB on %d ranks: %s", o, ranks, name)
			}
		}
	}
	lines, text := 0, strings.Builder{}
	for _, l := range Lines() {
		if l.Powers {
			lines++
		}
	}
	if err := Print(&text, true, nil, func(*Algorithm, Params) []string { return nil }); err != nil {
		t.Fatal(err)
	}
	if printed := strings.Count(text.String(), "  2^n"); lines == 0 || printed != lines {
		t.Errorf("%d lines for powers of two, of which %d are printed:\n%s", lines, printed, &text)
	}
}

// The lines of crowded ranks are what they were before there were others: calls that no board has agreed on go by them.
func TestCrowdedByDefault(t *testing.T) {
	var table Choice
	for o, want := range map[Operation]string{Bcast: "direct", Allgather: "direct", Alltoall: "direct",
		Allreduce: "shared"} {
		p := Params{Size: 4, Count: 2 * mib, ElemSize: 1, Commutative: true, Board: true, Reads: true}
		if a := table.Algorithm(o, &p, SharedMemory); a.Name != want {
			t.Errorf("%v of 2 MiB on 4 ranks: %s, want %s", o, a.Name, want)
		}
	}
}

// Two ranks on two hosts send a Bcast as one message, of any size: in segments it was slower
// (docs/decisions/choice.md).
func TestTwoHostsOneMessage(t *testing.T) {
	var c Choice
	for count := int64(1); count <= 1<<40; count *= 2 {
		p := Params{Rank: 0, Size: 2, Count: count, ElemSize: 1, Hosts: Blocks{2, 1}}
		var b Builder
		a := c.Algorithm(Bcast, &p, Network)
		if s := b.Window(a, &p, 0, 1); s.Messages != 1 {
			t.Fatalf("%v sends %d bytes as %d messages", a, count, s.Messages)
		}
	}
}

func TestParseChoice(t *testing.T) {
	c, err := ParseChoice(" allreduce:ring, bcast:chain,")
	if err != nil {
		t.Fatal(err)
	}
	p := Params{Size: 4, Count: 1, ElemSize: 8, Commutative: true}
	for o, want := range map[Operation]string{Allreduce: "ring", Bcast: "chain", Barrier: "dissemination"} {
		if a := c.Algorithm(o, &p, SharedMemory); a.Name != want {
			t.Errorf("%v, not %s", a, want)
		}
	}
	p.Commutative = false
	if a := c.Algorithm(Allreduce, &p, SharedMemory); a.Name == "ring" {
		t.Error("the ring, which does not keep the order of ranks, for an operator that does not commute")
	}
	for text, want := range map[string]string{
		"allreduce":                  `"allreduce" is not operation:algorithm`,
		"allreduce=ring":             `is not operation:algorithm`,
		"allsum:ring":                `no operation "allsum"; there are barrier, bcast`,
		"scan:ring":                  `scan has no algorithm "ring"; it has doubling, chain`,
		"bcast:chain,bcast:binomial": "bcast is named twice: chain and binomial",
	} {
		if _, err := ParseChoice(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseChoice(%q): %v; want %s", text, err, want)
		}
	}
}

func TestPrint(t *testing.T) {
	printed := map[*rule]bool{}
	for _, roomy := range []bool{false, true} {
		printLines(t, roomy)
		for i := range table {
			if r := &table[i]; r.cpus.holds(roomy) {
				printed[r] = true
			}
		}
	}
	if len(printed) != len(table) {
		t.Errorf("%d of %d lines are printed", len(printed), len(table))
	}
}

func printLines(t *testing.T, roomy bool) {
	t.Helper()
	all := 0
	for i := range table {
		if table[i].cpus.holds(roomy) {
			all++
		}
	}
	var text strings.Builder
	err := Print(&text, roomy, []string{"cost"}, func(a *Algorithm, p Params) []string {
		for i := range table {
			r := &table[i]
			if r.operation == a.Operation && r.name == a.Name && p.Count <= r.bytes && r.hasRanks(p.Size) &&
				p.Size/p.Hosts.Len() >= r.perHost && r.cpus.holds(roomy) {
				return []string{"priced"}
			}
		}
		t.Errorf("no line of the table gives %v for %d ranks and %d bytes", a, p.Size, p.Count)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(text.String(), "priced\n"); lines != all {
		t.Errorf("%d of %d lines have a price:\n%s", lines, all, &text)
	}
	if lines := strings.Count(text.String(), "\n"); lines != all+1 {
		t.Errorf("%d lines for %d rules", lines, len(table))
	}
}

// What is chosen for a large job has neither messages nor memory in proportion to the job, where the result has not.
func TestLargeJobs(t *testing.T) {
	const size = 1 << 20
	var choice Choice
	var b Builder
	for o := range operations {
		for _, count := range []int64{1, 1 << 10, 1 << 17} {
			for _, hosts := range []Hosts{nil, Blocks{size, 64}, Blocks{size, 48}} {
				for _, n := range []int{size, size - 1, size - 77} {
					for _, rank := range []int{0, 1, n/2 - 1, n - 1} {
						if o == Gatherv || o == Scatterv || o == Alltoallv || o == Alltoallw || o.Neighborhood() {
							continue // each message has data that only its two ranks have
						}
						if o == Alltoall && count*8 > 512 {
							continue // fewer messages would carry each block more than once
						}
						if o == Allgatherv || o == ReduceScatter {
							continue // the caller's counts are in proportion to the job, as is finding a part's place
						}
						if o > InterReduce {
							continue // likewise; and an Allgather between groups is a message for each pair: docs/limits.md
						}
						p := Params{Rank: rank, Size: n, Low: n / 2, Count: count, ElemSize: 8, Commutative: true, Hosts: hosts}
						a := choice.Algorithm(o, &p, Network)
						s := b.Window(a, &p, 0, 0)
						perHost := 0
						if hosts != nil {
							perHost = hosts.Size(0)
						}
						if most := 8*bits.Len(uint(n)) + 4*perHost; s.Messages > most {
							t.Errorf("%v of %d on %d ranks: %d messages at rank %d", a, count, n, s.Messages, rank)
						}
						result := count
						switch o {
						case Gather, Scatter, Allgather, Alltoall, ReduceScatterBlock:
							result *= int64(n)
						}
						if s.Tmp > 3*result+3 {
							t.Errorf("%v of %d on %d ranks: %d of Tmp at rank %d", a, count, n, s.Tmp, rank)
						}
					}
				}
			}
		}
	}
}
