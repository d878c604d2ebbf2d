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

// maxRanksText is how long a list of ranks is at most. A longer one is left out: without it the processes start all the
// same, on hosts that gorun chooses.
const maxRanksText = 8 << 10

// FormatRanks writes a list of ranks as 0,3,5-9; "": there are none, or too many.
func FormatRanks(list []int) string {
	var b strings.Builder
	for i := 0; i < len(list) && b.Len() <= maxRanksText; i++ {
		first := list[i]
		for i+1 < len(list) && list[i+1] == list[i]+1 {
			i++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(first))
		if list[i] > first {
			fmt.Fprintf(&b, "-%d", list[i])
		}
	}
	if b.Len() > maxRanksText {
		return ""
	}
	return b.String()
}

// ParseRanks reads what FormatRanks has written of n different ones. The text is hostile.
func ParseRanks(text string, n int) (list []int, ok bool) {
	seen := map[int]bool{}
	for part := range strings.SplitSeq(text, ",") {
		low, high, isRange := strings.Cut(part, "-")
		first, err := strconv.Atoi(low)
		last := first
		if err == nil && isRange {
			last, err = strconv.Atoi(high)
		}
		if err != nil || first < 0 || last < first || last >= MaxSpawned || last-first >= n-len(list) {
			return nil, false
		}
		for rank := first; rank <= last; rank++ {
			if seen[rank] {
				return nil, false
			}
			seen[rank] = true
			list = append(list, rank)
		}
	}
	return list, len(list) == n
}
