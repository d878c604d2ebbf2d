package join

import (
	"context"
	"errors"
	"fmt"
	"go/build"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/place"
	"github.com/gorun-mpi/mpi/internal/settings"
	"github.com/gorun-mpi/mpi/internal/testkit/hcakit"
	"github.com/gorun-mpi/mpi/internal/testkit/leak"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/loop"
)

func TestMain(m *testing.M) {
	os.Exit(leak.VerifyMain(func() int { return hcakit.Main(m) }))
}

const page = "../../docs/transports.md"

// row is one line of the table in docs/transports.md, by column.
type row map[string]string

// The columns in order. What stands below the first three is what abilities finds.
var columns = []string{"name", "build tag", "systems", "RMA", "zero copy", "presence", "memory", "boards", "offload",
	"tagged"}

const no = "—"

// readTable returns the rows of the first table of a document.
func readTable(t *testing.T) (rows []row) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != len(columns) || strings.Contains(line, "---") {
			continue
		}
		r := row{}
		for i, c := range cells {
			r[columns[i]] = strings.Trim(strings.TrimSpace(c), "`")
		}
		if r["name"] != "name" {
			rows = append(rows, r)
		}
	}
	return rows
}

// The table has a row for every transport, and each cell is what the code can do.
func TestTableOfTransports(t *testing.T) {
	rows := readTable(t)
	var names []string
	for _, r := range rows {
		names = append(names, r["name"])
	}
	want := []string{"loop"}
	for _, l := range transports {
		want = append(want, l.name)
	}
	if !slices.Equal(names, want) {
		t.Fatalf("the table in %s has rows for %q, want %q: loop, and the list of transports in its order", page, names, want)
	}
	for _, r := range rows {
		t.Run(r["name"], func(t *testing.T) {
			checkSystems(t, r)
			checkAbilities(t, r)
		})
	}
}

// A folder of transport/ is a transport, which has a row, one of those that are made of other transports, or for tests.
func TestFoldersOfTransports(t *testing.T) {
	known := []string{"faulty", "looptag", "multi", "transporttest"}
	for _, r := range readTable(t) {
		known = append(known, r["name"])
	}
	folders, err := filepath.Glob("../../transport/*/doc.go")
	if err != nil || len(folders) < len(known) {
		t.Fatalf("%q, %v: want at least the folders %q", folders, err, known)
	}
	for _, f := range folders {
		if name := filepath.Base(filepath.Dir(f)); !slices.Contains(known, name) {
			t.Errorf("transport/%s has no row in %s", name, page)
		}
	}
}

// checkSystems compares the row with the build constraints: a transport does not work where its absent.go is compiled.
func checkSystems(t *testing.T, r row) {
	var tags []string
	if r["build tag"] != no {
		tags = []string{r["build tag"]}
		if found := systemsOf(t, r["name"]); len(found) != 0 {
			t.Errorf("it works without the tag %s on %q", tags[0], found)
		}
	}
	if found := strings.Join(systemsOf(t, r["name"], tags...), ", "); found != r["systems"] {
		t.Errorf("it is built for %q, the table says %q", found, r["systems"])
	}
}

// systemsOf returns the systems that a transport is built for, of those that we build for.
func systemsOf(t *testing.T, name string, tags ...string) (systems []string) {
	for _, system := range []string{"linux", "darwin"} {
		c := build.Default
		c.GOOS, c.GOARCH, c.CgoEnabled, c.BuildTags = system, "arm64", true, tags
		p, err := c.ImportDir("../../transport/"+name, 0)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(slices.Concat(p.GoFiles, p.CgoFiles), "absent.go") {
			systems = append(systems, system)
		}
	}
	return systems
}

// checkAbilities compares the row with a device and a link, if this binary has the transport.
func checkAbilities(t *testing.T, r row) {
	if tag := r["build tag"]; tag != no && !builtWith(tag) {
		return // make verbs builds them with it
	}
	if !slices.Contains(systemsOf(t, r["name"], r["build tag"]), runtime.GOOS) {
		t.Skipf("it is not for %s", runtime.GOOS)
	}
	a, b := openPair(t, r["name"])
	for column, can := range abilities(a, capsOf(t, a, b)) {
		if r[column] != can {
			t.Errorf("%s: it is %q, the table says %q", column, can, r[column])
		}
	}
}

// capsOf are those of the link from a to b; none of a device that makes none.
func capsOf(t *testing.T, a, b transport.Device) *transport.Caps {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	link, err := a.Connect(ctx, 1, b.Address())
	switch {
	case a.Facts().Tagged != nil && errors.Is(err, errors.ErrUnsupported):
		return new(transport.Caps)
	case err != nil:
		t.Fatal(err)
	}
	return link.Caps()
}

// builtWith reports whether this binary was built with a tag.
func builtWith(tag string) bool {
	info, _ := debug.ReadBuildInfo()
	for _, s := range info.Settings {
		if s.Key == "-tags" {
			return slices.Contains(strings.Split(s.Value, ","), tag)
		}
	}
	return false
}

func silent(string, ...any) {}

// openPair opens the devices of two ranks on this host.
func openPair(t *testing.T, name string) (a, b transport.Device) {
	set, _, err := settings.Load(nil)
	if err != nil {
		t.Fatal(err)
	}
	set.OFIProvider = "tcp;ofi_rxm"
	if name == "verbs" {
		set.VerbsLibrary, set.TagMatching = hcakit.Build(t), "on"
	}
	var devices []transport.Device
	if name == "loop" {
		for _, d := range loop.New(2) {
			devices = append(devices, d)
		}
	}
	for rank := len(devices); rank < 2; rank++ {
		d, err := openNamed(name, deviceConfig{rank: rank, size: 2, local: 2, known: true, job: "table", set: set,
			secret: func() ([]byte, error) { return make([]byte, 32), nil }, log: silent, info: silent, debug: silent})
		if err != nil {
			t.Fatal(err)
		}
		devices = append(devices, d)
	}
	for _, d := range devices {
		t.Cleanup(func() { d.Close() })
	}
	return devices[0], devices[1]
}

// abilities are the cells of the table that a device and its link decide.
func abilities(d transport.Device, caps *transport.Caps) row {
	can := func(ability bool) string {
		if ability {
			return "yes"
		}
		return no
	}
	facts := d.Facts()
	rma := no
	switch {
	case caps.RMA == nil:
	case caps.RMA.FetchAdd != nil:
		rma = "get, put, atomics"
	case caps.RMA.Put != nil:
		rma = "get, put"
	default:
		rma = "get"
	}
	return row{"RMA": rma, "zero copy": can(caps.ZeroCopy != nil), "presence": can(caps.Presence != nil),
		"memory": can(facts.Memory != nil), "boards": can(facts.Boards != nil),
		"offload": can(caps.Offload), "tagged": can(facts.Tagged != nil)}
}

func TestOpenNamed(t *testing.T) {
	for name, want := range map[string]string{
		"nonsense": "no such transport; there is shm, verbs, tcp, ucx, ofi",
		"loop":     "connects the goroutines of RunLocal",
	} {
		if d, err := openNamed(name, deviceConfig{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, want an error with %q", name, d, err, want)
		}
	}
}

// none is a partition that no port is in, so that verbs does not open, whatever the host has.
const none = "none"

// Each reason stands in the error if nothing works.
func TestOpenTransportSaysWhy(t *testing.T) {
	set := settings.Values{TCPPorts: "0-x", VerbsPartition: none}
	var log []string
	info := func(msg string, args ...any) { log = append(log, fmt.Sprint(append([]any{msg}, args...)...)) }
	d, err := openTransport(deviceConfig{size: 2, local: 1, known: true, set: set, info: info, debug: silent})
	for i, reason := range []string{"verbs: ", `tcp: GORUN_TCP_PORTS="0-x"`} {
		if err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%v, %v, want %q", d, err, reason)
		}
		if name, _, _ := strings.Cut(reason, ":"); len(log) != 2 || !strings.Contains(log[i], name) {
			t.Errorf("the log has %q, want a line about %s", log, name)
		}
	}
}

// A transport that the user has named among others does not fall out without a word, nor does verbs if the user has
// named a device: the error names the transport and says why.
func TestNamedOpensOrFails(t *testing.T) {
	for _, c := range []struct {
		set  settings.Values
		want string
	}{
		{settings.Values{Transports: []string{"tcp", "verbs"}, VerbsPartition: none},
			"GORUN_TRANSPORTS names verbs, which does not work here: "},
		{settings.Values{VerbsDevices: "mlx5_0", VerbsPartition: none},
			"GORUN_VERBS_DEV=mlx5_0, and verbs does not work here: "},
		{settings.Values{VerbsDevices: "!mlx5_0", VerbsPartition: none}, ""},
	} {
		d, err := openTransport(deviceConfig{size: 2, local: 1, known: true, job: "named", set: c.set, info: silent,
			debug: silent, log: silent})
		if err == nil {
			d.Close()
		}
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%+v: %v", c.set.VerbsDevices, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// gorun info says of each transport whether a rank could open it.
func TestTryTransports(t *testing.T) {
	all, err := TryTransports([]string{"GORUN_VERBS_PKEY=" + none})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, x := range all {
		got = append(got, fmt.Sprint(x.Name, " ", x.Err == nil))
	}
	want := "shm true, verbs false, tcp true"
	if runtime.GOOS != "linux" {
		want = "shm false, verbs false, tcp true"
	}
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("%s, want %s", s, want)
	}
}

// The reason why tcp did not open is kept where shm did, and a rank without a way to other hosts does not join a job
// that has some.
func TestReasonIsKept(t *testing.T) {
	ln, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	port := strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)
	d, err := openTransport(deviceConfig{size: 3, local: 2, known: true, info: silent, debug: silent,
		set: settings.Values{TCPPorts: port, VerbsPartition: none}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	reason := "all 1 ports of GORUN_TCP_PORTS=" + port + " are taken"
	_, err = d.Connect(t.Context(), 2, []byte("\x03tcp\x01\x00x"))
	if err == nil || !strings.Contains(err.Error(), reason) {
		t.Errorf("connecting: %v, want %q", err, reason)
	}
	m := Member{Size: 3, near: d.near}
	if err := m.setHosts(place.Blocks([]int{3})); err != nil {
		t.Errorf("on one host: %v", err)
	}
	if err := m.setHosts(place.Blocks([]int{2, 1})); err == nil || !strings.Contains(err.Error(), reason) {
		t.Errorf("on two hosts: %v, want %q", err, reason)
	}
}

// A transport that matches messages by itself is not one of several.
func TestStandsAlone(t *testing.T) {
	for _, name := range []string{"ucx", "ofi"} {
		for _, with := range [][]string{{name, "tcp"}, {"shm", name}} {
			err := check(settings.Values{Transports: with})
			if err == nil || !strings.Contains(err.Error(), name+": it matches the messages of all ranks and stands alone") {
				t.Errorf("%q: %v", with, err)
			}
		}
		if slices.Contains(auto(), name) {
			t.Errorf("auto chooses %s", name)
		}
	}
}

// Each value that Init refuses is named, with its variable, before anything is opened.
func TestSettingsAreRefused(t *testing.T) {
	for kv, want := range map[string]string{
		"GORUN_TRANSPORTS=shm,shn":     "shn: no such transport; there is shm, verbs, tcp, ucx, ofi",
		"GORUN_TRANSPORTS=shm,loop":    "goroutines of RunLocal",
		"GORUN_TRANSPORTS=ucx,tcp":     "stands alone",
		"GORUN_COLL=allreduce:rang":    "rang",
		"GORUN_TCP_PORTS=99999-1":      "no range of ports",
		"GORUN_TCP_PORTS=40999-40000":  "write 40000-40999",
		"GORUN_TCP_IF=eth*0":           "* may only be its end",
		"GORUN_EAGER_MAX=many":         "64KiB",
		"GORUN_COLL=allreduce:ring":    "",
		"GORUN_TRANSPORTS=shm,tcp":     "",
		"GORUN_TCP_PORTS=40000-40999":  "",
		"GORUN_TCP_IF=eth0,!docker0":   "",
		"GORUN_TRANSPORTS=verbs":       "", // which the program may have, and gorun not
		"GORUN_TRANSPORTS=ucx":         "",
		"GORUN_TRANSPORTS=ofi":         "",
		"GORUN_VERBS_DEV=mlx5_0:1,!no": "",
	} {
		_, _, err := Settings([]string{kv})
		name, _, _ := strings.Cut(kv, "=")
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", kv, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name)):
			t.Errorf("%s: %v, want %q", kv, err, want)
		}
		if want == "" {
			continue
		}
		if _, inJob := Job(Options{Environ: []string{kv}}); fmt.Sprint(inJob) != fmt.Sprint(err) {
			t.Errorf("%s: Init says %v, gorun %v", kv, inJob, err)
		}
	}
}

// What users read of GORUN_TRANSPORTS=auto names the transports of the list, in its order.
func TestAutoIsExplained(t *testing.T) {
	s, _ := settings.Find("GORUN_TRANSPORTS")
	_, rest, _ := strings.Cut(s.Meaning, "Auto: ")
	for _, name := range auto() {
		before, after, ok := strings.Cut(rest, name)
		if !ok {
			t.Errorf("%q does not name %s, or not in order; before it: %q", s.Meaning, name, before)
		}
		rest = after
	}
}

// What is said of the ranks of a host is the launcher's: GORUN_LOCAL_SIZE and GORUN_CPUS of a gorun that surrounds it
// have no say.
func TestLocalRanks(t *testing.T) {
	for _, tc := range []struct {
		launcher      string
		local         int
		environ, want string
	}{
		{"gorun", 0, "", "7 false, 0 CPUs"},
		{"gorun", 0, "GORUN_LOCAL_SIZE=3 GORUN_CPUS=5", "3 true, 5 CPUs"},
		{"hydra", 2, "GORUN_LOCAL_SIZE=3 GORUN_CPUS=5", "2 true, 0 CPUs"},
		{"hydra", 0, "GORUN_LOCAL_SIZE=3 GORUN_CPUS=5", "7 false, 0 CPUs"},
		{"slurm", 0, "GORUN_LOCAL_SIZE=3 GORUN_CPUS=5", "7 false, 0 CPUs"},
		{"pmix", 4, "GORUN_LOCAL_SIZE=3 GORUN_CPUS=5", "4 true, 0 CPUs"},
	} {
		c, err := loadOptions(Options{Environ: strings.Fields(tc.environ)})
		if err != nil {
			t.Fatal(err)
		}
		c = c.withLauncher(tc.launcher, tc.local)
		local, known := localRanks(c, 7)
		if got := fmt.Sprintf("%d %v, %d CPUs", local, known, c.set.CPUs); got != tc.want {
			t.Errorf("%q under %s: %s, want %s", tc.environ, tc.launcher, got, tc.want)
		}
	}
}

func TestUsableCPUs(t *testing.T) {
	if got := usableCPUs(3); got != 3 {
		t.Errorf("the launcher says 3, and there are %d", got)
	}
	if got := usableCPUs(-1); got < 1 {
		t.Errorf("this host has %d CPUs", got)
	}
}
