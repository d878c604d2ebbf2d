package cpuset

// first returns 0..n-1, for where the kernel does not say.
func first(n int) []int {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = i
	}
	return ids
}
