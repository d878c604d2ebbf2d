package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// munge makes and opens credentials: text that names the user of the process that had it made, and that only processes
// of the same user can open, once on each host.
type munge struct {
	socket string // of munged; "": where it usually is
	uid    int
}

// newMunge finds out how munge is reached on this node.
func newMunge(env func(string) string) munge {
	return munge{socket: socketOf(env("SLURM_CONF")), uid: os.Geteuid()}
}

// socketOf is what the configuration of Slurm says of munged's socket: AuthInfo=socket=PATH.
func socketOf(conf string) string {
	if conf == "" {
		conf = "/etc/slurm/slurm.conf"
	}
	text, err := os.ReadFile(conf)
	if err != nil {
		return "" // its usual place then
	}
	return parseSocket(string(text))
}

func parseSocket(conf string) (socket string) {
	for line := range strings.Lines(conf) {
		line, _, _ = strings.Cut(line, "#")
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if !strings.EqualFold(strings.TrimSpace(name), "AuthInfo") {
			continue
		}
		for option := range strings.SplitSeq(value, ",") {
			if path, ok := strings.CutPrefix(strings.TrimSpace(option), "socket="); ok {
				socket = path
			}
		}
	}
	return socket
}

// seal makes a credential that processes of this user can open.
func (m munge) seal(ctx context.Context, payload string) (string, error) {
	out, err := m.run(ctx, payload, "munge", "--restrict-uid="+strconv.Itoa(m.uid))
	return strings.TrimSpace(out), err
}

// errNotOurs means that a credential is good and of another user.
var errNotOurs = errors.New("the credential is of another user")

// open returns what is in a credential of this user.
func (m munge) open(ctx context.Context, credential string) (payload string, err error) {
	out, err := m.run(ctx, credential, "unmunge", "--numeric", "--keys=UID")
	if err != nil {
		return "", err
	}
	return m.read(out)
}

// read takes the payload out of what unmunge prints: "UID:   17", an empty line, the payload.
func (m munge) read(out string) (payload string, err error) {
	head, payload, found := strings.Cut(out, "\n\n")
	uid, ok := strings.CutPrefix(head, "UID:")
	n, err := strconv.Atoi(strings.TrimSpace(uid))
	switch {
	case !found || !ok || err != nil:
		return "", fmt.Errorf("unmunge printed %.60q", out)
	case n != m.uid:
		return "", errNotOurs
	}
	return payload, nil
}

// run runs one of munge's programs. What goes in does not stand on its command line, which all users see.
func (m munge) run(ctx context.Context, in, program string, args ...string) (string, error) {
	if m.socket != "" {
		args = append(args, "--socket="+m.socket)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	var out, complaint bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &out, &complaint
	err := cmd.Run()
	if text := strings.TrimSpace(complaint.String()); err != nil && text != "" {
		err = fmt.Errorf("%s: %w", text, err)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", program, err)
	}
	return out.String(), nil
}
