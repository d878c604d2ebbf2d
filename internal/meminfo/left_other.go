//go:build !linux

package meminfo

import "math"

// Left is not known here.
func Left() (free int64, why string) { return math.MaxInt64, "no limit is known" }
