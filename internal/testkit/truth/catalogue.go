package truth

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/collectives"
)

// Counts are lengths of blocks to try: none, one, odd ones, powers, and beyond limits of messages and of algorithms.
var Counts = []int{0, 1, 2, 3, 7, 64, 129, 1000, 4096}

// Large is 1 MiB of all blocks.
const Large = 1 << 20

// Catalogue makes every call with every kind of elements, and with each of these counts, in each of the three ways in
// turn.
func Catalogue(c *mpi.Comm, counts []int, large bool) error {
	size := c.Size()
	roots := slices.Compact([]int{0, size / 2, size - 1})
	key := uint64(0)
	try := func(call Call) error {
		key++
		call.Key, call.Way = key, Way(key%uint64(Ways))
		return call.Make(c)
	}
	for _, o := range Operations {
		places := []bool{false, true}
		if !InPlace(o) {
			places = places[:1]
		}
		for k, kind := range kinds {
			operators := 1
			if reduces(o) {
				operators = kind.many()
			}
			for i, count := range counts {
				if o == collectives.Barrier && (i > 0 || k > 0) || k > 0 && count > 200 {
					continue
				}
				for at, root := range roots {
					if at > 0 && !rooted(o) {
						continue
					}
					for operator := range operators {
						if operator > 0 && (at > 0 || count > 200) {
							continue // each operator with each length, and with some roots
						}
						for _, place := range places {
							ordered := []bool{false}
							if reduces(o) && operator == 0 {
								ordered = []bool{false, true}
							}
							for _, ordered := range ordered {
								if err := try(Call{Operation: o, Kind: k, Operator: operator + at, Ordered: ordered, InPlace: place,
									Count: count, Root: root}); err != nil {
									return err
								}
							}
						}
					}
				}
			}
		}
		if !large || o == collectives.Barrier {
			continue
		}
		for _, place := range places {
			call := Call{Operation: o, Count: Large / 8, Root: size - 1, InPlace: place}
			if !whole(o) {
				call.Count /= size
			}
			if err := try(call); err != nil {
				return fmt.Errorf("1 MiB: %w", err)
			}
		}
	}
	return nil
}

// Choices are values of GORUN_COLL under which, together, calls take every algorithm that fits them. Under the last one
// ranks read each other's buffers where there is an algorithm that does.
func Choices() (all []string) {
	for i, more := 0, true; more; i++ {
		more = false
		var names []string
		for o := collectives.Barrier; o <= collectives.Exscan; o++ {
			algorithms := collectives.Algorithms(o)
			more = more || i+1 < len(algorithms)
			names = append(names, algorithms[i%len(algorithms)].String())
		}
		all = append(all, strings.Join(names, ","))
	}
	var direct []string
	for o := collectives.Barrier; o <= collectives.Exscan; o++ {
		if a, err := collectives.Find(o, "direct"); err == nil {
			direct = append(direct, a.String())
		}
	}
	return append(all, strings.Join(direct, ","))
}
