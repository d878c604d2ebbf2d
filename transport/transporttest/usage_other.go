//go:build !unix

package transporttest

import "time"

func cpuTime() (time.Duration, bool) { return 0, false }
