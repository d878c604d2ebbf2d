package pmi

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// PlacesKey is the key of a spawn under which its processes find whose places they take. gorun starts processes in the
// places of others only as often as its user allows.
const PlacesKey = "gorun-places"

// InPlaces reports whether the processes take the places of ranks that have died.
func (q *Spawn) InPlaces() bool {
	return slices.ContainsFunc(q.Keys, func(p Pair) bool { return strings.HasPrefix(p.Key, PlacesKey) })
}

// maxDead is how long the list of dead ranks is at most, which is one line. A longer one is left out: without it the
// processes start all the same, on hosts that gorun chooses.
const maxDead = 8 << 10

// MostOrigins is how long a list of ranks may be that processes get under a key when they take places: a frame between
// hosts has the request with it, the dead ranks and the arguments. 2,000 ranks in random order need 10 KB.
const MostOrigins = 16 << 10

// FormatRanks writes a list of ranks as 0,3,5-9,10-30/4. An empty list is "", and so is one that would be longer than
// most bytes.
func FormatRanks(list []int, most int) string {
	var b strings.Builder
	for len(list) > 0 && b.Len() <= most {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		n, stride := run(list)
		b.WriteString(strconv.Itoa(list[0]))
		if n > 1 {
			fmt.Fprintf(&b, "-%d", list[n-1])
		}
		if stride > 1 {
			fmt.Fprintf(&b, "/%d", stride)
		}
		list = list[n:]
	}
	if b.Len() > most {
		return ""
	}
	return b.String()
}

// run is how many ranks at the beginning of a list are written as one range, and the stride between them.
func run(list []int) (n, stride int) {
	if len(list) == 1 || list[1] <= list[0] {
		return 1, 1
	}
	n, stride = 2, list[1]-list[0]
	for n < len(list) && list[n]-list[n-1] == stride {
		n++
	}
	if n == 2 && stride > 1 {
		return 1, 1
	}
	return n, stride
}

// ParseRanks reads what FormatRanks has written of n different ones. The text is hostile.
func ParseRanks(text string, n int) (list []int, ok bool) {
	seen := map[int]bool{}
	for part := range strings.SplitSeq(text, ",") {
		first, last, stride, ok := parseRange(part)
		if !ok || (last-first)/stride >= n-len(list) {
			return nil, false
		}
		for rank := first; rank <= last; rank += stride {
			if seen[rank] {
				return nil, false
			}
			seen[rank] = true
			list = append(list, rank)
		}
	}
	return list, len(list) == n
}

// parseRange reads one rank, or a range with or without a stride.
func parseRange(text string) (first, last, stride int, ok bool) {
	stride = 1
	text, every, strided := strings.Cut(text, "/")
	low, high, isRange := strings.Cut(text, "-")
	first, err := strconv.Atoi(low)
	last = first
	if err == nil && isRange {
		last, err = strconv.Atoi(high)
	}
	if err == nil && strided {
		stride, err = strconv.Atoi(every)
	}
	ok = err == nil && first >= 0 && last >= first && last < MaxSpawned && stride > 0 && (isRange || !strided)
	return first, last, stride, ok
}
