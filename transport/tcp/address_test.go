package tcp

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

func at(addr string, c class) point {
	return point{netip.AddrPortFrom(netip.MustParseAddr(addr), 4711), c}
}

func TestAddressRoundTrip(t *testing.T) {
	a := address{host: identify("x")}
	for i := range pointsMax {
		a.points = append(a.points, at(fmt.Sprintf("fd77::%x", i+1), plain))
	}
	a.points[3] = at("127.0.0.1", loopback)
	a.points[4] = at("172.17.0.1", virtual)
	b := a.encode()
	if len(b) > 400 {
		t.Errorf("%d bytes", len(b))
	}
	got, err := parseAddress(b)
	if err != nil || fmt.Sprint(got) != fmt.Sprint(a) {
		t.Errorf("%v, %v; want %v", got, err, a)
	}
}

func TestAddressHostile(t *testing.T) {
	good := address{points: []point{at("10.0.0.1", plain), at("fd77::1", plain)}}.encode()
	change := func(i int, v ...byte) []byte {
		b := bytes.Clone(good)
		copy(b[i:], v)
		return b
	}
	for name, b := range map[string][]byte{
		"nothing":             nil,
		"no points, too long": append(address{}.encode(), 0),
		"too short":           good[:len(good)-1],
		"too long":            append(bytes.Clone(good), 0),
		"another version":     change(0, 2),
		"too many points":     change(1, pointsMax+1),
		"more than there are": change(1, 3),
		"fewer":               change(1, 1),
		"unknown class":       change(pointsAt, byte(classes)),
		"unknown kind":        change(pointsAt, 0x40),
		"not loopback":        change(pointsAt, byte(loopback)),
		"loopback, not said":  change(pointsAt+1, 127),
		"unspecified":         change(pointsAt+1, 0, 0, 0, 0),
		"multicast":           change(pointsAt+1, 224),
		"broadcast":           change(pointsAt+1, 255, 255, 255, 255),
		"port 0":              change(pointsAt+5, 0, 0),
		"link-local":          change(pointsAt+8, 0xfe, 0x80),
		"mapped":              change(pointsAt+8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff),
	} {
		if a, err := parseAddress(b); err == nil {
			t.Errorf("%s: taken as %v", name, a)
		}
	}
}

func FuzzAddress(f *testing.F) {
	f.Add(address{points: []point{at("10.0.0.1", plain), at("fd77::1", virtual), at("::1", loopback)}}.encode())
	f.Add(address{}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parseAddress(b)
		if err != nil {
			return
		}
		if !bytes.Equal(a.encode(), b) {
			t.Errorf("%x is %v, which is %x", b, a, a.encode())
		}
		for _, to := range order(a, localNets{}) {
			if to.Addr().IsLoopback() && a.host != (hostID{}) {
				t.Errorf("loopback of another host would be tried: %v", to)
			}
		}
	})
}

func in(name, prefix string) network {
	p := netip.MustParsePrefix(prefix)
	return network{name, p, classOf(name, p.Addr())}
}

func TestOrder(t *testing.T) {
	here, there := identify("here"), identify("there")
	local := localNets{here, []network{
		in("lo", "127.0.0.1/8"), in("lo", "::1/128"), in("eth0", "10.77.0.1/24"), in("eth0", "fd77::1/64"),
		in("docker0", "172.17.0.1/16"), in("ib0", "10.0.0.5/8"), in("wg0", "100.64.0.9/32"),
	}}
	for _, tc := range []struct {
		name string
		host hostID
		peer []point
		want string
	}{
		{"same host: loopback first", here,
			[]point{at("10.77.0.1", plain), at("127.0.0.1", loopback), at("::1", loopback)}, "127.0.0.1 ::1 10.77.0.1"},
		{"loopback of another host never", there,
			[]point{at("127.0.0.1", loopback), at("::1", loopback), at("10.77.0.2", plain)}, "10.77.0.2"},
		{"subnet before routed before virtual", there,
			[]point{at("172.18.0.1", virtual), at("192.168.1.1", plain), at("10.77.0.2", plain)},
			"10.77.0.2 192.168.1.1 172.18.0.1"},
		{"in turns, in each group", there,
			[]point{at("10.77.0.2", plain), at("10.77.0.3", plain), at("192.168.1.1", plain),
				at("fd77::2", plain), at("fd88::2", plain)},
			"10.77.0.2 fd77::2 10.77.0.3 192.168.1.1 fd88::2"},
		{"a bridge's network that is here too, though the peer does not call it one", there,
			[]point{at("172.17.0.9", plain), at("192.168.1.1", plain)}, "192.168.1.1 172.17.0.9"},
		{"a bridge of the peer in a network that is plain here", there,
			[]point{at("10.77.0.8", virtual), at("192.168.1.1", plain)}, "192.168.1.1 10.77.0.8"},
		{"an address that this host has too comes last", there,
			[]point{at("172.17.0.1", virtual), at("10.77.0.1", plain), at("172.19.0.1", virtual)},
			"172.19.0.1 172.17.0.1 10.77.0.1"},
		{"the narrowest of two networks decides; a network of one address is none", there,
			[]point{at("10.9.9.9", plain), at("100.64.0.9", plain), at("100.64.0.8", plain)},
			"10.9.9.9 100.64.0.8 100.64.0.9"},
		{"nothing", there, nil, ""},
	} {
		var got []string
		for _, to := range order(address{tc.host, tc.peer}, local) {
			got = append(got, to.Addr().String())
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: %v, want %s", tc.name, got, tc.want)
		}
	}
}

func TestPublish(t *testing.T) {
	for _, f := range []string{"", "!lo"} {
		filter, err := ParseInterfaces(f)
		if err != nil {
			t.Fatal(err)
		}
		ln, err := listen(filter, PortRange{})
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		v, err := look(filter)
		if err != nil {
			if f == "" {
				t.Fatal(err)
			}
			continue // this host has nothing but loopback
		}
		a := v.publish(ln)
		got, err := parseAddress(a.encode())
		if err != nil {
			t.Fatal(err)
		}
		local := 0
		for _, p := range got.points {
			if p.class == loopback {
				local++
			}
			proc.Eventually(t, fmt.Sprintf("a connection to %v, or its end", p), func() bool {
				conn, err := net.Dial("tcp", p.String())
				if err == nil {
					conn.Close()
					return true
				}
				// Addresses come and go: an IPv6 one is being checked, or another test had this one for its hosts.
				v, lookErr := look(filter)
				return lookErr == nil && !slices.Contains(v.publish(ln).points, p)
			})
		}
		if (local > 0) != (f == "") {
			t.Errorf("%q: published %v", f, got.points)
		}
	}
}

func TestPublishAtMost(t *testing.T) {
	v := localNets{networks: []network{in("lo", "127.0.0.1/8"), in("lo", "127.0.0.2/8"), in("lo", "::1/128")}}
	for i := range 20 {
		v.networks = append(v.networks, in("docker0", fmt.Sprintf("172.17.%d.1/24", i)))
	}
	for i := range 12 {
		v.networks = append(v.networks, in("eth0", fmt.Sprintf("10.0.%d.1/24", i)))
	}
	ln, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	a := v.publish(ln)
	count := map[class]int{}
	for _, p := range a.points {
		count[p.class]++
		if p.Addr().Is6() {
			t.Errorf("%v, and the listener is for IPv4", p)
		}
	}
	if count[loopback] != 2 || count[plain] != 12 || count[virtual] != 2 {
		t.Errorf("%v", a.points)
	}
}

func TestIdentity(t *testing.T) {
	if again := identity(); identity() != again || identity() == (hostID{}) {
		t.Error("a host has not one identity")
	}
	if identify("a", "b") == identify("ab", "") {
		t.Error("parts run together")
	}
}

func TestParseInterfaces(t *testing.T) {
	all := []network{
		in("lo", "127.0.0.1/8"), in("eth0", "10.0.0.1/8"), in("eth1", "192.168.0.1/24"),
		in("ib0", "fd77::1/64"), in("docker0", "172.17.0.1/16"),
	}
	for text, want := range map[string]string{
		"":                           "lo eth0 eth1 ib0 docker0",
		" ":                          "lo eth0 eth1 ib0 docker0",
		"eth0":                       "lo eth0",
		"eth*":                       "lo eth0 eth1",
		"eth*,!eth1":                 "lo eth0",
		"!eth*":                      "lo ib0 docker0",
		"! docker*, !lo":             "eth0 eth1 ib0",
		"10.0.0.0/8":                 "lo eth0",
		"10.9.9.9/8":                 "lo eth0",
		"fd00::/8,eth1":              "lo eth1 ib0",
		"192.168.0.1":                "lo eth1",
		"*":                          "lo eth0 eth1 ib0 docker0",
		"!0.0.0.0/0":                 "ib0",
		"lo":                         "lo",
		"eth0,!127.0.0.0/8":          "eth0",
		"ib0,docker0,!172.16.0.0/12": "lo ib0",
	} {
		f, err := ParseInterfaces(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		picked, err := f.pick(all)
		var names []string
		for _, n := range picked {
			names = append(names, n.name)
		}
		if err != nil || strings.Join(names, " ") != want {
			t.Errorf("%q: %v, %v; want %s", text, names, err, want)
		}
	}
	for text, says := range map[string]string{
		"eth0,,eth1":  `entry "" is empty`,
		"!":           `entry "!" is empty`,
		"10.0.0.0/40": "no network",
		"eth/0":       "no network",
		"*eth":        "no name",
		"a b":         "no name",
		"!!eth0":      "no name",
	} {
		if _, err := ParseInterfaces(text); err == nil || !strings.Contains(err.Error(), says) ||
			!strings.Contains(err.Error(), interfacesHelp) {
			t.Errorf("%q: %v; should say %q", text, err, says)
		}
	}
	for _, text := range []string{"eht0", "!*", "!0.0.0.0/0,!::/0"} {
		f, err := ParseInterfaces(text)
		if err != nil {
			t.Fatal(err)
		}
		if picked, err := f.pick(all); err == nil || !strings.Contains(err.Error(), "GORUN_TCP_IF="+text) ||
			!strings.Contains(err.Error(), "eth0 10.0.0.1/8") {
			t.Errorf("%q: %v, %v", text, picked, err)
		}
	}
}

func TestParsePorts(t *testing.T) {
	for text, want := range map[string]PortRange{
		"": {}, "20000-20999": {20000, 20999}, " 7 - 8 ": {7, 8}, "65535": {65535, 65535},
	} {
		if got, err := ParsePorts(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"0", "0-5", "9-8", "1-65536", "-", "a-b", "1-2-3", "-5"} {
		if got, err := ParsePorts(text); err == nil || !strings.Contains(err.Error(), "write") {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func TestListenPorts(t *testing.T) {
	any, err := listen(Filter{}, PortRange{})
	if err != nil {
		t.Fatal(err)
	}
	defer any.Close()
	taken := uint16(any.Addr().(*net.TCPAddr).Port)
	_, err = listen(Filter{}, PortRange{taken, taken})
	if err == nil || !strings.Contains(err.Error(), "taken") ||
		!strings.Contains(err.Error(), fmt.Sprintf("GORUN_TCP_PORTS=%d", taken)) {
		t.Error(err)
	}
	if taken == 65535 {
		return
	}
	// Many, since others on this machine have ports too.
	ln, err := listen(Filter{}, PortRange{taken, uint16(min(int(taken)+500, 65535))})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if port := ln.Addr().(*net.TCPAddr).Port; port == int(taken) {
		t.Errorf("port %d twice", port)
	}
}

func TestFilteredListener(t *testing.T) {
	f, err := ParseInterfaces("10.0.0.0/8,!127.0.0.2")
	if err != nil {
		t.Fatal(err)
	}
	l := &filteredListener{filter: f}
	if !l.allows(netip.MustParseAddr("127.0.0.1")) {
		t.Error("loopback is not accepted")
	}
	if l.allows(netip.MustParseAddr("203.0.113.9")) {
		t.Error("an address that is not here is accepted")
	}
	if l := (&filteredListener{}); !l.allows(netip.MustParseAddr("203.0.113.9")) {
		t.Error("without a filter something is refused")
	}
}
