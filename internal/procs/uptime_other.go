//go:build !linux

package procs

import "time"

var began = time.Now()

// uptime is the time since some moment.
func uptime() time.Duration { return time.Since(began) }
