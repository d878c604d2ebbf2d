package harness

import (
	"fmt"
	"io"
)

// PrintInit prints the line of osu_init, in whole milliseconds, and as comments what that line has no room for.
// The times are nanoseconds, one for each rank.
func PrintInit(w io.Writer, p Program, ranks int, init, barrier []int64, peakKiB int64) error {
	i, b := Summarize(init), Summarize(barrier)
	const ms = 1_000_000
	_, err := fmt.Fprintf(w, "%s\nnprocs: %d, min: %d ms, max: %d ms, avg: %d ms\n"+
		"# Init(us)    min %d, max %d, avg %d\n# Barrier(us) min %d, max %d, avg %d\n# Max RSS(KiB) of a rank %d\n",
		p.title(), ranks, i.Min/ms, i.Max/ms, i.Mean/ms,
		i.Min/1000, i.Max/1000, i.Mean/1000, b.Min/1000, b.Max/1000, b.Mean/1000, peakKiB)
	return err
}
