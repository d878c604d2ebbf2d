package harness

import "fmt"

// PrintInit prints the line of osu_init, in whole milliseconds, and as comments what that line has no room for.
// The times are nanoseconds, one for each rank.
func PrintInit(out Output, p Program, init, barrier []int64, peakKiB int64) error {
	i, b := Summarize(init), Summarize(barrier)
	if out.Options.JSON {
		us := func(ns int64) float64 { return float64(ns) / 1e3 }
		return p.printObject(out, []string{"Init(us)", "Init Min(us)", "Init Max(us)", "Barrier(us)", "Barrier Min(us)",
			"Barrier Max(us)", "Max RSS(KiB)"},
			us(i.Mean), us(i.Min), us(i.Max), us(b.Mean), us(b.Min), us(b.Max), peakKiB)
	}
	const ms = 1_000_000
	_, err := fmt.Fprintf(out.W, "%s\nnprocs: %d, min: %d ms, max: %d ms, avg: %d ms\n"+
		"# Init(us)    min %d, max %d, avg %d\n# Barrier(us) min %d, max %d, avg %d\n# Max RSS(KiB) of a rank %d\n",
		p.title(), out.Ranks, i.Min/ms, i.Max/ms, i.Mean/ms,
		i.Min/1000, i.Max/1000, i.Mean/1000, b.Min/1000, b.Max/1000, b.Mean/1000, peakKiB)
	return err
}
