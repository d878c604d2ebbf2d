//go:build verbs && linux && cgo

package verbs

import "time"

// A device sends again what is not acknowledged, after a timeout, a number of times. Then the queue pair is over. The
// timeout decides over two things: for how long a port may be down, and how late a packet comes that is lost with none
// behind it. The first has to be tens of seconds and the second about one. So the device gets the long timeout, and
// watchTails finds such packets sooner.

const (
	// ackRetries is how often a device sends again. It is not 7: soft-RoCE goes on for ever then.
	ackRetries = 6
	// ackTimeoutLeast keeps a slow answer from being taken for a loss: 0.27 s. ackTimeoutMost is the last of 5 bits.
	ackTimeoutLeast = 16
	ackTimeoutMost  = 31
	// tailEvery is how often watchTails looks: it acts at the second look.
	tailEvery = time.Second / 2
)

// ackTime is what a timeout of a queue pair means. A device may take up to four times as long, says the specification.
func ackTime(timeout uint8) time.Duration { return 4096 * time.Nanosecond << timeout }

// ackTimeoutFor is the least timeout with which a device goes on for as long as a peer may be silent.
func ackTimeoutFor(silence time.Duration) uint8 {
	timeout := uint8(ackTimeoutLeast)
	for timeout < ackTimeoutMost && devicePatience(timeout) < silence {
		timeout++
	}
	return timeout
}

// devicePatience is how long a device goes on with a timeout.
func devicePatience(timeout uint8) time.Duration { return (ackRetries + 1) * ackTime(timeout) }
