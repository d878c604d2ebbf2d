package reach

import (
	"errors"
	"strings"
)

// Error is why there is no agent.
type Error struct {
	Err error
	// Final: to try again is in vain. Unnamed: the name of the host is not known, so that it is in vain unless hosts
	// are still coming up.
	Final, Unnamed bool
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Again reports whether another try to open an agent may succeed after err. comingUp: the user expects hosts to appear
// while the job waits for them.
func Again(err error, comingUp bool) bool {
	var why *Error
	return !errors.As(err, &why) || !why.Final && (!why.Unnamed || comingUp)
}

// fate is what a cause means for another try.
type fate int

const (
	transient fate = iota // the host may be starting, or busy
	unnamed               // the name of the host is not known
	final
)

// causes are words that remote shells print to the standard error, and what they mean. The first one counts that is
// there. All other words are transient, as far as the remote shell itself says them.
var causes = []struct {
	words string
	fate  fate
}{
	{"Permission denied", final},
	{"Host key verification failed", final},
	{"REMOTE HOST IDENTIFICATION HAS CHANGED", final},
	{"Too many authentication failures", final},
	{"Bad owner or permissions", final},
	{"Bad configuration option", final},
	{"Can't open user config file", final},
	{"Unable to negotiate with", final},
	{"Name or service not known", unnamed},
	{"No address associated", unnamed},
	{"nodename nor servname", unnamed},
	{"no such host", unnamed},
}

// shellFailed is the exit code of ssh, and of what works as it, where it has not reached the host. Any other is that of
// what ran there.
const shellFailed = 255

// judge decides what the end of a remote shell means for which there is no agent. name is its program, code its exit
// code (-1: it was killed), errors what it has printed to the standard error, and output what came from the other side.
func judge(name string, code int, errors, output string) fate {
	switch code {
	case 126, 127, otherBuild:
		return final
	}
	for _, c := range causes {
		if strings.Contains(errors, c.words) {
			return c.fate
		}
	}
	if code >= 0 && code != shellFailed && (output != "" || name == "ssh") {
		return final // it ran on the host, or a login shell refused to
	}
	return transient
}
