package netns

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// Fault does what `scripts/hosts fault` does with these arguments, for example "link", "h2", "down".
func (h *Hosts) Fault(args ...string) error {
	cmd := exec.Command(h.script, append([]string{"fault", "-b", h.base}, args...)...)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	err = fmt.Errorf("fault %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == unavailable {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}

func name(host int) string { return "h" + strconv.Itoa(host) }

// LinkDown pulls the host's cable: nothing comes, nothing goes, and no peer gets an error.
func (h *Hosts) LinkDown(host int) error { return h.Fault("link", name(host), "down") }

// LinkUp plugs it in again.
func (h *Hosts) LinkUp(host int) error { return h.Fault("link", name(host), "up") }

// Loss drops this percentage of the packets that come to the host; 0: none.
func (h *Hosts) Loss(host int, percent float64) error {
	if percent == 0 {
		return h.Fault("loss", name(host), "off")
	}
	return h.Fault("loss", name(host), strconv.FormatFloat(percent, 'f', -1, 64))
}

// Cut drops everything between two hosts; both still reach the others.
func (h *Hosts) Cut(a, b int) error { return h.Fault("cut", name(a), name(b)) }

// Block keeps a host from connecting to another, by a firewall at the second: "drop" says nothing to the first, "reset"
// refuses it. The second still connects to the first, and connections that stand go on.
func (h *Hosts) Block(from, to int, how string) error {
	return h.Fault("block", name(from), name(to), how)
}

// Heal ends Loss, Cut and Block on these hosts.
func (h *Hosts) Heal(hosts ...int) error {
	for _, host := range hosts {
		if err := h.Fault("heal", name(host)); err != nil {
			return err
		}
	}
	return nil
}

// Rate limits what the host is sent to this many megabits per second; 0: no limit.
func (h *Hosts) Rate(host, megabits int) error {
	if megabits == 0 {
		return h.Fault("rate", name(host), "off")
	}
	return h.Fault("rate", name(host), strconv.Itoa(megabits))
}

// Crash ends all processes of the host at once; the kernel closes their sockets, which peers see. The host
// does not come back.
func (h *Hosts) Crash(host int) error { return h.Fault("crash", name(host)) }

// PowerOff is Crash after LinkDown: peers see nothing but silence.
func (h *Hosts) PowerOff(host int) error { return h.Fault("poweroff", name(host)) }

// Freeze stops all processes of the host; its kernel goes on to answer for them.
func (h *Hosts) Freeze(host int) error { return h.Fault("freeze", name(host)) }

// Thaw lets them go on.
func (h *Hosts) Thaw(host int) error { return h.Fault("thaw", name(host)) }

// KillConnections makes the kernel of a host abort its TCP connections to other hosts, not those to the switch: both
// ends see a reset. The error wraps ErrUnavailable where the kernel cannot do that.
func (h *Hosts) KillConnections(host int) error { return h.Fault("reset", name(host)) }
