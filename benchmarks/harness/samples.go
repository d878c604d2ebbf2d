package harness

import "slices"

// Summary describes a set of samples. The percentiles are by nearest rank: a value that was measured.
type Summary struct {
	Count              int
	Min, Max, Mean     int64
	P50, P90, P99, Sum int64
}

// Summarize sorts the samples in place and describes them; no samples give a Summary of zeros.
func Summarize(samples []int64) Summary {
	n := len(samples)
	if n == 0 {
		return Summary{}
	}
	slices.Sort(samples)
	s := Summary{Count: n, Min: samples[0], Max: samples[n-1]}
	for _, v := range samples {
		s.Sum += v
	}
	s.Mean = s.Sum / int64(n)
	s.P50, s.P90, s.P99 = percentile(samples, 50), percentile(samples, 90), percentile(samples, 99)
	return s
}

// percentile returns the smallest sample that at least p of 100 samples do not exceed.
func percentile(sorted []int64, p int) int64 {
	rank := (len(sorted)*p + 99) / 100
	return sorted[max(rank, 1)-1]
}
