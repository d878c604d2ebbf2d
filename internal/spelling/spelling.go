package spelling

import "iter"

// Nearest returns the word with the smallest distance from name, or "" if no distance is at most the given one. Of
// several it is the first.
func Nearest(name string, words iter.Seq[string], most int) (nearest string) {
	for w := range words {
		if d := distance(name, w); d <= most {
			nearest, most = w, d-1
		}
	}
	return nearest
}

// distance is the number of insertions, deletions, changes and swaps of neighbours that make b of a.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
