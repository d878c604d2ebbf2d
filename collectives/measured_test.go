package collectives

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// call is a call for which algorithms were measured.
type call struct {
	operation Operation
	ranks     int
	bytes     int64
}

// noise are calls whose measured times do not go with the times of shorter and longer ones.
var noise = []call{
	{Bcast, 8, 4 * kib},      // shared: 3.8 µs, 1.2 of half the bytes and 3.2 of twice
	{Allgather, 8, 4 * kib},  // shared: 15.5 µs, 2.5 of half and 10.2 of twice
	{Alltoall, 4, 256 * kib}, // direct: 73 µs, and 358 in another run
}

// measuredOn16 reads times in µs, by algorithm. Each rank had a core.
func measuredOn16(t *testing.T) map[call]map[string]float64 {
	t.Helper()
	text, err := os.ReadFile("testdata/cores16.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := map[call]map[string]float64{}
	var c call
	var sizes []int64
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		switch {
		case len(f) == 0 || f[0] == "#":
		case len(f) == 2:
			if c.operation, err = ParseOperation(f[0]); err == nil {
				c.ranks, err = strconv.Atoi(f[1])
			}
			sizes = nil
		case sizes == nil:
			for _, n := range f[1:] {
				bytes, _ := strconv.ParseInt(n, 10, 64)
				sizes = append(sizes, bytes)
			}
		default:
			for i, us := range f[1:] {
				if c.bytes = sizes[i]; all[c] == nil {
					all[c] = map[string]float64{}
				}
				if all[c][f[0]], err = strconv.ParseFloat(us, 64); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err != nil {
			t.Fatalf("%v: %s", err, line)
		}
	}
	return all
}

// chosenTime is the measured time of the algorithm that the table gives.
func chosenTime(t *testing.T, c call, times map[string]float64, roomy bool) float64 {
	t.Helper()
	p := Params{Size: c.ranks, Count: c.bytes, ElemSize: 1, Commutative: true, Hosts: Blocks{c.ranks, c.ranks},
		Board: true, Reads: true, ByPairs: true, Roomy: roomy}
	var table Choice
	a := table.Algorithm(c.operation, &p, SharedMemory)
	us, ok := times[a.Name]
	if !ok {
		t.Fatalf("%v: %v was not measured", c, a)
	}
	return us
}

// Where each rank has a core, the table takes the fastest algorithm that was measured, or one within a quarter of its
// time, in nine of ten calls.
func TestTableTakesTheFastest(t *testing.T) {
	all := measuredOn16(t)
	lost := func(roomy bool) (by []float64, slower int) {
		for c, times := range all {
			best := slices.Min(slices.Collect(maps.Values(times)))
			us := chosenTime(t, c, times, roomy)
			if by = append(by, us/best); us > 1.25*best {
				slower++
				if roomy {
					t.Logf("%v of %d ranks, %d B: %.4g µs, %.2f of the least", c.operation, c.ranks, c.bytes, us,
						us/best)
				}
			}
		}
		slices.Sort(by)
		return by, slower
	}
	by, slower := lost(true)
	t.Logf("of the least time: median %.2f, 9 of 10 calls up to %.2f, most %.2f; %d of %d above 1.25",
		by[len(by)/2], by[len(by)*9/10], by[len(by)-1], slower, len(by))
	if len(by) != 5*3*13 || 10*slower > len(by) {
		t.Errorf("%d of %d calls take more than 1.25 times as long as they could", slower, len(by))
	}
	if _, crowded := lost(false); crowded <= 2*slower {
		t.Errorf("the lines of crowded ranks are worse in %d calls only, and not needed apart", crowded)
	}
}

// A call of twice as many bytes takes no more than three times as long.
func TestTableHasNoCliff(t *testing.T) {
	all := measuredOn16(t)
	for c, times := range all {
		twice := c
		twice.bytes *= 2
		more, ok := all[twice]
		if !ok || slices.Contains(noise, c) || slices.Contains(noise, twice) {
			continue
		}
		if a, b := chosenTime(t, c, times, true), chosenTime(t, twice, more, true); b > 3*a {
			t.Errorf("%v of %d ranks: %d B take %v µs, %d B %v", c.operation, c.ranks, c.bytes, a, twice.bytes, b)
		}
	}
}
