package pmi

import (
	"os"
	"testing"
)

// The process of the launcher is that which made the control socket, and unknown where it was dialled.
func TestLauncherPID(t *testing.T) {
	a, _ := sockets(t)
	if pid := newClient(a, 0, 1).LauncherPID(); pid != os.Getpid() {
		t.Errorf("this process, %d, has made the socket, and the launcher is said to be %d", os.Getpid(), pid)
	}
	if pid := newClient(nil, 0, 1).LauncherPID(); pid != 0 {
		t.Errorf("without a socket the launcher is said to be %d", pid)
	}
}
