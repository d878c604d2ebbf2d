package vm

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

func TestMain(m *testing.M) {
	proc.RunRole(map[string]func() error{"inside": inside})
	os.Exit(m.Run())
}

// What a test binary finds when it is itself run in a guest, or in two.
func TestInside(t *testing.T) {
	t.Parallel()
	for hosts := 1; hosts <= 2; hosts++ {
		r := Run(t, Spec{Hosts: hosts, Env: []string{proc.RoleVar + "=inside"}}, os.Args[0])
		wantCode(t, r, 0)
		for i, h := range r.Hosts {
			if h.Stdout != "all is there\n" {
				t.Errorf("host %d of %d: stdout %q, stderr %q", i+1, hosts, h.Stdout, h.Stderr)
			}
		}
	}
}

// inside is a role in a guest.
func inside() error {
	host := os.Getenv("GUEST_HOST")
	var wrong []error
	if os.Getenv(Wanted) == "" {
		wrong = append(wrong, fmt.Errorf("%s is not set", Wanted))
	}
	if state, err := os.ReadFile("/sys/class/infiniband/rxe0/ports/1/state"); err != nil ||
		!strings.Contains(string(state), "ACTIVE") {
		wrong = append(wrong, fmt.Errorf("rxe0 is %q, %v; want ACTIVE", state, err))
	}
	if _, err := os.Stat("vm.go"); err != nil {
		wrong = append(wrong, fmt.Errorf("this is not the folder of the package: %w", err))
	}
	if name, _ := os.Hostname(); name != "guest"+host {
		wrong = append(wrong, fmt.Errorf("host %s has the name %q", host, name))
	}
	if _, err := os.Stat("/sys/class/net/eth0"); err == nil {
		wrong = append(wrong, meet(host))
	}
	if err := errors.Join(wrong...); err != nil {
		return err
	}
	fmt.Println("all is there")
	return nil
}

// meet has guest 1 and guest 2 exchange their numbers.
func meet(host string) error {
	conn, err := hostConn(host)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(within))
	conn.Write([]byte(host))
	other := make([]byte, 1)
	if _, err := conn.Read(other); err != nil || host+string(other) != "12" && host+string(other) != "21" {
		return fmt.Errorf("host %s has met host %q, %v", host, other, err)
	}
	return nil
}

// hostConn is the connection of the two guests, over a cable that they have to themselves.
func hostConn(host string) (conn net.Conn, err error) {
	const address = "10.99.0.1:4711"
	if host == "1" {
		ln, err := net.Listen("tcp", address)
		if err != nil {
			return nil, err
		}
		defer ln.Close()
		ln.(*net.TCPListener).SetDeadline(time.Now().Add(within))
		return ln.Accept()
	}
	for limit := time.Now().Add(within); ; time.Sleep(10 * time.Millisecond) { // guest 1 may boot later
		conn, err = net.DialTimeout("tcp", address, within)
		if err == nil || time.Now().After(limit) {
			return conn, err
		}
	}
}
