package report

// callers sets pcs to the return addresses of its caller and of the functions that have called that one, and returns
// how many there are. It ends with an address that is in known, if it comes across one. It follows the frame pointers,
// as Go's execution tracer does: runtime.Callers takes far longer. It is in assembly since the stack of a goroutine
// moves only where Go code runs.
//
//go:noescape
func callers(pcs *[callersDeep]uintptr, known *[linesKnown]uintptr) (n int)
