//go:build !amd64

package reduce

// kernels is empty: the loops in Go do all.
var kernels table
