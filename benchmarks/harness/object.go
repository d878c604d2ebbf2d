package harness

import (
	"cmp"
	"encoding/json"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// object is a line of --json.
type object struct {
	Program string          `json:"program"`
	Key     string          `json:"key"` // what size counts
	Size    int64           `json:"size"`
	Ranks   int             `json:"ranks"`
	Unit    string          `json:"unit"`   // of the first value
	Values  json.RawMessage `json:"values"` // by the headings of the table, in their order
	Args    []string        `json:"args"`
	machine
	Transport string `json:"transport"`
	PerHost   int    `json:"per_host,omitempty"`
	// Collectives is the environment's choice of algorithms, such as barrier:tree,bcast:chain.
	Collectives string `json:"collectives,omitempty"`
	Time        string `json:"time"`
}

// machine is what the figures depend on.
type machine struct {
	CPU    string `json:"cpu"`
	CPUs   int    `json:"cpus"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
	Commit string `json:"commit"` // empty when the program was not built from a checkout; "+dirty": not as committed
}

func (t *Table) object(key int64, values []any) error {
	line, err := json.Marshal(object{
		Program: t.program.Name, Key: cmp.Or(t.key, alone), Size: key, Ranks: t.out.Ranks, Unit: t.cols[0].unit(),
		Values: byHeading(t.cols, values), Args: os.Args[1:], machine: thisMachine(), Transport: t.out.Transport,
		PerHost: t.out.PerHost, Collectives: os.Getenv("GORUN_COLL"),
		Time: time.Now().UTC().Format(time.RFC3339),
	})
	if err != nil {
		return err
	}
	_, err = t.out.W.Write(append(line, '\n'))
	return err
}

// byHeading is the values as an object that keeps their order. What is no number is null.
func byHeading(cols []Column, values []any) json.RawMessage {
	var b strings.Builder
	for i, v := range values {
		b.WriteByte("{,"[min(i, 1)])
		if f, ok := v.(float64); ok && (math.IsNaN(f) || math.IsInf(f, 0)) {
			v = nil
		}
		head, _ := json.Marshal(cols[i].Head)
		value, _ := json.Marshal(v)
		b.Write(head)
		b.WriteByte(':')
		b.Write(value)
	}
	return json.RawMessage(b.String() + "}")
}

func thisMachine() machine {
	name, count := Processors()
	return machine{CPU: name, CPUs: count, Kernel: kernel(), Go: runtime.Version(), Commit: commit()}
}

// Processors are the name of the processor and how many of them the machine has, where /proc/cpuinfo lists them.
// runtime.NumCPU counts only those that this process is bound to.
func Processors() (name string, count int) {
	name = runtime.GOARCH
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		key, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "processor":
			count++
		case "model name":
			name = strings.TrimSpace(value)
		}
	}
	return name, max(count, runtime.NumCPU())
}

func kernel() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return runtime.GOOS
	}
	return runtime.GOOS + " " + strings.TrimSpace(string(release))
}

func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	var revision, dirty string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	if revision == "" {
		return ""
	}
	return revision + dirty
}

// printObject prints a line of --json for a program whose output is no table.
func (p Program) printObject(out Output, heads []string, values ...any) error {
	var cols []Column
	for _, head := range heads {
		cols = append(cols, Column{Head: head})
	}
	return p.Table(Output{W: out.W, Options: Options{JSON: true}, Ranks: out.Ranks,
		Transport: out.Transport}, "", "Ranks", cols...).Row(int64(out.Ranks), values...)
}
