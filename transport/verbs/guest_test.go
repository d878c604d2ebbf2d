//go:build verbs && linux && cgo

package verbs

import (
	"context"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
)

// What tests do to the real device in a guest, and its kernel, of which they are root and the only users.

// command runs one of the administrator's.
func command(t testing.TB, argv ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", argv, err, out)
	}
	return string(out)
}

var regionCount = regexp.MustCompile(` mr (\d+) `)

// regions is how many memory regions there are: of this device, or of all that use rxe0.
func (e *end) regions() int {
	e.t.Helper()
	if !inGuest() {
		return int(e.counted("mrs"))
	}
	out := command(e.t, "rdma", "resource", "show", "rxe0")
	m := regionCount.FindStringSubmatch(out)
	if m == nil {
		e.t.Fatalf("no regions in %q", out)
	}
	n, _ := strconv.Atoi(m[1])
	return n
}
