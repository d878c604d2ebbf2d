package vm

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// What a test binary finds when it is itself run in a guest, or in two (guest_test of scripts/test).
func TestInside(t *testing.T) {
	host := os.Getenv("GUEST_HOST")
	if host == "" {
		t.Skip("is to be run in a guest: make test-rdma does that")
	}
	if os.Getenv(Wanted) == "" {
		t.Errorf("%s is not set", Wanted)
	}
	if state, err := os.ReadFile("/sys/class/infiniband/rxe0/ports/1/state"); err != nil ||
		!strings.Contains(string(state), "ACTIVE") {
		t.Errorf("rxe0 is %q, %v; want ACTIVE", state, err)
	}
	if _, err := os.Stat("vm.go"); err != nil {
		t.Errorf("this is not the folder of the package: %v", err)
	}
	if name, _ := os.Hostname(); name != "guest"+host {
		t.Errorf("host %s has the name %q", host, name)
	}
	if _, err := os.Stat("/sys/class/net/eth0"); err == nil {
		meet(t, host)
	}
}

// meet has guest 1 and guest 2 exchange their numbers.
func meet(t *testing.T, host string) {
	const address = "10.99.0.1:4711" // of a cable that the two guests have to themselves
	var conn net.Conn
	if host == "1" {
		ln, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		ln.(*net.TCPListener).SetDeadline(time.Now().Add(within))
		if conn, err = ln.Accept(); err != nil {
			t.Fatal(err)
		}
	} else {
		proc.Eventually(t, "guest 1", func() (ok bool) {
			var err error
			conn, err = net.DialTimeout("tcp", address, within)
			return err == nil
		})
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(within))
	conn.Write([]byte(host))
	other := make([]byte, 1)
	if _, err := conn.Read(other); err != nil || host+string(other) != "12" && host+string(other) != "21" {
		t.Errorf("host %s has met host %q, %v", host, other, err)
	}
}
