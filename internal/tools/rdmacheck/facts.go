package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/gorun-mpi/mpi/internal/tools/partrun"
	"github.com/gorun-mpi/mpi/internal/topology"
	"github.com/gorun-mpi/mpi/transport/verbs"
)

// libraryVar names another library than the system's libibverbs: the software HCA.
const libraryVar = "GORUN_VERBS_LIB"

// usedPort is a port that is checked.
type usedPort struct {
	device   string
	number   int
	gid      int // index; negative: InfiniBand, which needs none
	software bool
}

func (p *usedPort) name() string { return fmt.Sprintf("%s:%d", p.device, p.number) }

// env has a program use that port. The conformance suite builds a software HCA unless a library is named.
func (p *usedPort) env() []string {
	library := os.Getenv(libraryVar)
	if library == "" {
		library = "libibverbs.so.1"
	}
	return []string{libraryVar + "=" + library, "GORUN_VERBS_DEV=" + p.name()}
}

// facts are of the machine, the libraries and the devices.
func (c *check) facts() {
	c.Printf("rdma-check, %s\n", c.report.Time)
	for name, path := range map[string]string{"built": c.Path("BUILT"),
		"kernel": "/proc/sys/kernel/osrelease", "system": "/etc/os-release", "limits": "/proc/self/limits"} {
		b, err := os.ReadFile(path)
		c.report.Facts[name] = fact(name, string(b), err)
	}
	c.report.Facts["CPUs"] = fmt.Sprint(runtime.NumCPU())
	c.report.Facts["rdma-core"] = c.rdmaCore()
	c.devices()
	c.PrintFacts()
	c.report.DevInfo = c.said("ibv_devinfo", "-v")
	c.report.Info = c.said("gorun", "info")
	c.Printf("\n%s\n", c.report.DevInfo)
}

// fact is the line of a file that counts.
func fact(name, text string, err error) string {
	if err != nil {
		return "unknown: " + err.Error()
	}
	begins := map[string]string{"system": "PRETTY_NAME=", "limits": "Max locked memory"}[name]
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, begins); ok {
			return strings.TrimSpace(begins + rest)
		}
	}
	return "unknown"
}

// rdmaCore is the version of the library's package, as far as a package manager or OFED says it.
func (c *check) rdmaCore() string {
	for _, ask := range [][]string{{"ofed_info", "-s"}, {"dpkg-query", "-W", "libibverbs1", "ibverbs-providers"},
		{"rpm", "-q", "libibverbs"}} {
		if _, err := exec.LookPath(ask[0]); err != nil {
			continue
		}
		if out, err := exec.CommandContext(c.Ctx, ask[0], ask[1:]...).Output(); err == nil {
			return strings.Join(strings.Fields(string(out)), " ")
		}
	}
	return "unknown: neither ofed_info, dpkg-query nor rpm says it"
}

// said is what a program has printed, or why it has not. That is no part that fails.
func (c *check) said(args ...string) string {
	if _, err := exec.LookPath(args[0]); err != nil && args[0] != "gorun" {
		return args[0] + " is not installed"
	}
	out, err := c.Output(partrun.Command{Limit: 20 * time.Second, Args: args})
	if err != nil {
		return out + err.Error()
	}
	return out
}

// devices asks libibverbs in this process.
func (c *check) devices() {
	start := time.Now()
	all, err := verbs.Query()
	c.report.Devices = all
	for _, d := range all {
		why := d.Unfit
		for _, p := range d.Ports {
			if p.State != "ACTIVE" || d.Unfit != "" {
				continue
			}
			why = "used"
			u := usedPort{device: d.Name, number: p.Number, gid: -1, software: topology.Virtual("/", d.Name)}
			if p.Link == "Ethernet" {
				u.gid, _ = topology.ChooseGID(p)
			}
			c.ports = append(c.ports, u)
		}
		if why == "" {
			why = "no port is ACTIVE"
		}
		c.report.Facts["device "+d.Name] = fmt.Sprintf("firmware %s, library %s, %d ports: %s", d.Firmware, d.Library,
			len(d.Ports), why)
	}
	if err == nil && len(c.ports) == 0 {
		err = errors.New("no RDMA device with an ACTIVE port can be used (ibv_devinfo lists them; docs/rdma-node.md helps)")
	}
	c.Passed("a device can be used", time.Since(start), err)
}
