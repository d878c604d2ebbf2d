package reach

import (
	"errors"
	"slices"
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

// Cause is why a host was not reached, by what an error says of it, and what mends it.
type Cause struct {
	words       []string // each of them is in the error
	fate        fate
	wrong, mend string
}

// unknown is the cause of an error that has the words of none.
var unknown = Cause{nil, transient, "gorun does not come there", "try it by hand: SHELL HOST true"}

// causes are what remote shells, the script and this package say, and what that means. For a reader the first one
// counts whose words are there: what ssh says of a key, for example, is said of a key that has changed too. All other
// words are transient. A name that does not resolve is a mistake in most jobs, also where ssh says "Temporary failure":
// the resolver has tried again by then, and many resolvers say so of each name that they do not know. Where names come
// late, as in Kubernetes, the user says with --host-timeout how long hosts may take to come up.
//
// In what mends it HOST stands for the host, SHELL for the words of the remote shell, and GORUN for gorun's path.
var causes = []Cause{
	{[]string{"HOST IDENTIFICATION HAS CHANGED"}, final, "its host key is another one than this user knows",
		"ask who administers HOST whether its key has changed; then ssh-keygen -R HOST"},
	{[]string{"Host key verification failed"}, final, "its host key is not known here, and ssh may not ask",
		"ssh-keyscan HOST >>~/.ssh/known_hosts (compare the key first)"},
	{[]string{"noexec"}, transient, "no program can be run from the folders where gorun would be kept",
		"scp GORUN HOST:GORUN, or name a folder without noexec there: XDG_CACHE_HOME"},
	{[]string{"exit status 126", "Permission denied"}, final,
		"no program can be run from the folder where gorun is kept", "on HOST: mount | grep noexec; scp GORUN HOST:GORUN, " +
			"or name a folder without noexec there: XDG_CACHE_HOME"},
	{[]string{"Permission denied ("}, final, "it does not let this user log in", "ssh-copy-id HOST"},
	{[]string{"Permission denied, please"}, final, "it does not let this user log in", "ssh-copy-id HOST"},
	{[]string{"Too many authentication failures"}, final, "it does not let this user log in, after too many keys",
		"name the key for HOST in ~/.ssh/config: IdentityFile, and IdentitiesOnly yes"},
	{[]string{"Unable to negotiate with"}, final, "ssh here and the server there have no algorithm in common",
		"update the older one, or allow what it offers for HOST in ~/.ssh/config"},
	{[]string{"Could not resolve hostname"}, unnamed, nameUnknown, nameMend},
	{[]string{"Name or service not known"}, unnamed, nameUnknown, nameMend},
	{[]string{"No address associated"}, unnamed, nameUnknown, nameMend},
	{[]string{"nodename nor servname"}, unnamed, nameUnknown, nameMend},
	{[]string{"no such host"}, unnamed, nameUnknown, nameMend},
	{[]string{"does not answer as gorun"}, transient, "another program is where gorun should be, and there is none of " +
		"this build", "do what it says there, or scp GORUN HOST:GORUN"},
	{[]string{"account is currently not available"}, transient, "this user may not log in there",
		"ask who administers HOST for an account with a shell"},
	{[]string{"Connection refused"}, transient, "nothing listens there for a remote shell",
		"on HOST: systemctl start ssh"},
	{[]string{"No route to host"}, transient, "no machine answers for its address",
		"ping HOST: is it up, and on this network?"},
	{[]string{"timed out"}, transient, "it does not answer", "ping HOST: is it up, and is port 22 open?"},
	{[]string{"executable file not found"}, transient, "there is no remote shell here",
		"apt-get install openssh-client, or name another shell with --launch-agent"},
	{[]string{"Bad owner or permissions"}, final, "ssh refuses its configuration, which others could write",
		"chmod go-w ~/.ssh ~/.ssh/config"},
	{[]string{"Bad configuration option"}, final, shellConfig, shellMend},
	{[]string{"Can't open user config file"}, final, shellConfig, shellMend},
	{[]string{"config", "line"}, transient, shellConfig, shellMend},
	{[]string{"config file"}, transient, shellConfig, shellMend},
	{[]string{"does not run there"}, transient, "it is of another system or architecture, on which this gorun does " +
		"not run", "leave HOST out: the hosts of a job are of one system and architecture"},
	{[]string{"dynamically linked"}, transient, "it has no gorun of this build, and this one cannot be copied",
		"scp GORUN HOST:GORUN, or build gorun with CGO_ENABLED=0, so that jobs copy it"},
	{[]string{"gorun of this build is not there"}, transient, "it has no gorun of this build, and cannot be sent one",
		"do what it says there, or scp GORUN HOST:GORUN"},
	{[]string{"srun"}, transient, "srun has no agent there",
		"at GORUN must be this build of gorun, on all hosts of the allocation"},
	{[]string{"in time"}, transient, "it does not answer",
		"try it by hand: SHELL HOST true; --host-timeout is how long it may take"},
	{[]string{"Permission denied"}, final, unknown.wrong, unknown.mend},
}

const (
	nameUnknown = "its name is not known"
	nameMend    = "correct the name, or add it to /etc/hosts or DNS"
	shellConfig = "the remote shell is not configured as it should be"
	shellMend   = "correct it: SHELL HOST true"
)

// isIn reports whether a text has all words of the cause.
func (c *Cause) isIn(text string) bool {
	return !slices.ContainsFunc(c.words, func(s string) bool { return !strings.Contains(text, s) })
}

// CauseOf is why a host was not reached.
func CauseOf(err error) Cause {
	text := err.Error()
	for _, c := range causes {
		if c.isIn(text) {
			return c
		}
	}
	return unknown
}

// Wrong is the cause as a sentence about the host.
func (c Cause) Wrong() string { return c.wrong }

// Mend is what mends it, with HOST for the host. shell is the remote shell, and gorun the path of gorun.
func (c Cause) Mend(shell []string, gorun string) string {
	return strings.NewReplacer("SHELL", strings.Join(shell, " "), "GORUN", gorun).Replace(c.mend)
}

// shellFailed is the exit code of ssh, and of what works as it, where it has not reached the host. Any other is that of
// what ran there.
const shellFailed = 255

// fateOf decides what the end of a remote shell means for which there is no agent. name is its program, code its exit
// code (-1: it was killed), errors what it has printed to the standard error, and output what came from the other side.
func fateOf(name string, code int, errors, output string) fate {
	switch code {
	case 126, 127, otherBuild:
		return final
	}
	worst := transient
	for _, c := range causes {
		if c.isIn(errors) {
			worst = max(worst, c.fate)
		}
	}
	if worst != transient {
		return worst
	}
	if code >= 0 && code != shellFailed && (output != "" || name == "ssh") {
		return final // it ran on the host, or a login shell refused to
	}
	return transient
}
