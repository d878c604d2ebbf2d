//go:build !linux

package launcher

import "time"

var began = time.Now()

// uptime is the time since some moment.
func uptime() time.Duration { return time.Since(began) }
