//go:build !(linux && amd64)

package report

func cpuTicks() int64 { return 0 }

func hasTicks() bool { return false }
