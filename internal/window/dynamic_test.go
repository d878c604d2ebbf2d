package window

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Random regions of one array are attached, used and detached, and lookups find what a list of them has; §12.2.4.
func TestRegions(t *testing.T) {
	const elem, length = 4, 200 // of the array
	rng := rand.New(rand.NewPCG(1, 2))
	array := make([]byte, elem*length)
	d := &regions{next: regionGap}
	type known struct {
		*region
		from int // in array
	}
	var all []known
	used := map[int64]bool{}
	for range 20000 {
		switch from, n := rng.IntN(length), rng.IntN(8); rng.IntN(4) {
		case 0:
			n = min(n, length-from)
			r, shares := d.attach(array[from*elem:][:n*elem], int64(n), 1000+uintptr(from*elem))
			apart := !slices.ContainsFunc(all, func(k known) bool {
				return from < k.from+int(k.n) && k.from < from+n && n > 0 && k.n > 0
			})
			switch {
			case (r != nil) != apart || (shares != nil) == apart:
				t.Fatalf("%d elements from %d on: %v, shares %v; they are apart: %v", n, from, r, shares, apart)
			case r == nil:
				continue
			case used[r.at]:
				t.Fatalf("%d is the number of a second region", r.at)
			}
			used[r.at] = true
			all = append(all, known{r, from})
		case 1:
			if len(all) == 0 {
				continue
			}
			i := rng.IntN(len(all))
			k := all[i]
			_, in := d.enter(k.at, 0, elem)
			if d.end(k.at+1) != nil {
				t.Fatal("the second element of a region begins it")
			}
			if d.end(k.at) != k.region || d.end(k.at) != k.region {
				t.Fatal("a region is over that is used")
			}
			waitsLater := rng.IntN(2) == 0
			if waitsLater && !k.giveUp() {
				t.Fatal("a caller whose context has ended is told that a region is over that is used")
			}
			if _, again := d.enter(k.at, 0, elem); again != nil {
				t.Fatal("a region is used that is ending")
			}
			in.leave()
			if <-k.ending; waitsLater && d.end(k.at) != k.region {
				t.Fatal("a caller that gave up is told that there was no region")
			}
			if k.giveUp() || d.end(k.at) != nil {
				t.Fatal("a region is there that is over")
			}
			all = slices.Delete(all, i, i+1)
		default:
			if len(all) == 0 {
				continue
			}
			k := all[rng.IntN(len(all))]
			at, n := k.at+int64(rng.IntN(12)-2), int64(rng.IntN(8))
			mem, in := d.enter(at, n, elem)
			inside := at >= k.at && at+n <= k.at+k.n
			if (in == k.region) != inside || in != nil && !inside {
				t.Fatalf("%d elements from %d on are in %+v; the region has %d from %d on", n, at, in, k.n, k.at)
			}
			if inside && n > 0 && &mem[0] != &array[(k.from+int(at-k.at))*elem] {
				t.Fatal("other memory is found")
			}
			in.leave()
		}
	}
	if len(d.byAt) != len(all) || len(d.byAddress) > len(all) {
		t.Errorf("%d regions by number and %d by address, of %d", len(d.byAt), len(d.byAddress), len(all))
	}
	for _, at := range []int64{math.MinInt64, -1, 0, regionGap - 1, d.next, math.MaxInt64} {
		if _, in := d.enter(at, 0, elem); in != nil {
			t.Errorf("there is memory at %d", at)
		}
	}
	if r, shares := d.attach(nil, math.MaxInt64-1, 0); r != nil || shares != nil {
		t.Error("there are numbers for 2^63-2 elements")
	}
}
