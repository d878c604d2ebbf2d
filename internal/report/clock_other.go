//go:build !linux

package report

import "time"

func hostClock() int64 { return time.Now().UnixNano() }

func usage() (cpu, memory int64) { return 0, 0 }
