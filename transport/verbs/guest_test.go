//go:build verbs && linux && cgo

package verbs

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// What tests do to the real device in a guest, and its kernel, of which they are root and the only users.

// guestCard is the network card below rxe0 where there is one guest (scripts/guest).
const guestCard = "dummy0"

// needGuest is for tests that do to the device what one may only do in a guest.
func needGuest(t testing.TB) {
	t.Helper()
	if !inGuest() {
		t.Skip("takes the network or the device away: runs in a guest only (make rdma)")
	}
	if _, err := os.Stat("/sys/class/net/" + guestCard); err != nil {
		t.Skip("with two guests the card below rxe0 is another: ", err)
	}
}

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

// guestDevice puts rxe0 and its card in order, as scripts/guest does, and waits until the kernel has filled its tables.
func guestDevice(t testing.TB) {
	t.Helper()
	command(t, "ip", "link", "set", guestCard, "up")
	if _, err := os.Stat("/sys/class/infiniband/rxe0"); err != nil {
		command(t, "rdma", "link", "add", "rxe0", "type", "rxe", "netdev", guestCard)
	}
	const port = "/sys/class/infiniband/rxe0/ports/1"
	for limit := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		state, _ := os.ReadFile(port + "/state")
		gid, _ := os.ReadFile(port + "/gids/1")
		_, err := os.Stat("/dev/infiniband/uverbs0")
		if strings.Contains(string(state), "ACTIVE") && strings.Contains(string(gid), ":ffff:") && err == nil {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("rxe0 is not there again: state %q, GID 1 %q, %v", state, gid, err)
		}
	}
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
