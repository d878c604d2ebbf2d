package mpi_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// What may import what. A line is packages, a colon, and what they may import apart from the standard library;
// after a comma it goes on in the next line. mpi is the root package, {name} another module, * one step of a path.
// Nothing is inherited: each line is all that its packages may import. What a line allows must be in use, so that this
// text shows the code as it is.
//
// To change this text is to change the design (ARCHITECTURE.md): say why in docs/decisions.
const graph = `
	# Leaves: they import no other package of ours, or only another leaf.
	internal/wire, internal/spelling, internal/topology, internal/layout, internal/waitpolicy, internal/place,
	internal/frames, internal/ranks, internal/meminfo:
	internal/sizes                : {github.com/docker/go-units}
	internal/reduce               : {golang.org/x/sys}
	internal/ring                 : {golang.org/x/sys}
	internal/memfile              : {golang.org/x/sys}
	internal/pmi                  : internal/auth, internal/settings, {golang.org/x/sys}
	internal/cpuset               : {golang.org/x/sys}
	internal/sysmon               : {golang.org/x/sys}
	internal/settings             : internal/spelling, internal/sizes
	internal/auth                 : {golang.org/x/sys}
	internal/k8s                  :
	internal/reach                : internal/auth

	# The pure parts of messaging.
	tagmatch, collectives, rma, internal/consensus:
	collectives/simulate          : collectives
	internal/tuned                : collectives
	eager, rendezvous             : internal/wire

	# The seam, and what is behind it.
	transport                     : internal/wire
	internal/eventset             : transport, {golang.org/x/sys}
	internal/board                : transport, internal/ring
	transport/loop                : transport, internal/board, internal/meminfo, internal/wire
	transport/faulty              : transport, internal/wire
	transport/looptag             : transport, tagmatch
	transport/shm                 : transport, internal/auth, internal/board, internal/meminfo, internal/wire,
	                                internal/ring, {golang.org/x/sys}
	transport/multi               : transport
	transport/tcp                 : transport, internal/auth, internal/eventset, internal/wire, {golang.org/x/sys}
	transport/verbs               : transport, transport/tcp, internal/eventset, internal/wire, internal/topology,
	                                {golang.org/x/sys}
	transport/ucx                 : transport, transport/tcp, internal/eventset, internal/wire, {golang.org/x/sys}
	transport/ofi                 : transport, transport/tcp, internal/wire
	transport/transporttest       : internal/testkit/proc, internal/testkit/leak, internal/eventset, transport,
	                                transport/faulty, internal/wire

	# Accelerators: what the engine asks of a driver, and the driver of CUDA.
	accel                         :
	accel/cuda                    : accel, {golang.org/x/sys}

	# The engine knows the seam and no concrete transport.
	pml                           : tagmatch, eager, rendezvous, transport, accel, internal/eventset, internal/memfile,
	                                internal/wire, internal/waitpolicy, {golang.org/x/sys}

	# Ways into a job.
	internal/bootstrap            :
	internal/bootstrap/rank0      : internal/pmi, internal/auth, internal/cpuset
	internal/bootstrap/pmix       : internal/bootstrap, internal/pmi
	internal/bootstrap/slurm      : internal/bootstrap/rank0, internal/auth, internal/place
	internal/bootstrap/index      : internal/bootstrap/rank0, internal/auth
	internal/bootstrap/detect     : internal/bootstrap, internal/bootstrap/pmix, internal/bootstrap/slurm,
	                                internal/bootstrap/index, internal/pmi

	# The one package that knows every transport, and the public package on top.
	internal/join                 : pml, transport, transport/loop, transport/shm, transport/tcp, transport/verbs,
	                                transport/ucx, transport/ofi, transport/multi, internal/bootstrap,
	                                internal/bootstrap/detect, internal/bootstrap/rank0, internal/pmi, internal/place, internal/cpuset,
	                                internal/settings, internal/sysmon, internal/waitpolicy, internal/tuned,
	                                collectives, {github.com/hashicorp/go-hclog}
	internal/mpierr               : pml, transport, accel, internal/ranks
	internal/background           : internal/mpierr
	internal/agree                : pml, internal/consensus, internal/ranks, internal/mpierr, internal/background
	internal/coll                 : pml, transport, collectives, internal/agree, internal/mpierr, internal/background,
	                                internal/ranks
	internal/window               : rma, pml, accel, collectives, internal/coll, internal/agree, internal/meminfo,
	                                internal/mpierr, internal/ranks, internal/layout, {golang.org/x/sys}
	internal/tune                 : pml, collectives, internal/join, internal/coll, internal/ranks, internal/reduce,
	                                internal/tuned
	internal/vet                  : collectives, {golang.org/x/tools}
	internal/waits                :
	internal/standstill           : pml, internal/agree, internal/coll, internal/waits
	internal/door                 : accel
	internal/report               : {golang.org/x/sys}
	mpi                           : pml, transport, collectives, internal/join, internal/reduce, internal/layout,
	                                internal/consensus,
	                                internal/mpierr, internal/ranks, internal/agree, internal/coll, internal/window,
	                                internal/meminfo, rma, internal/standstill, internal/waits, internal/door,
	                                internal/report, accel, {github.com/hashicorp/go-hclog}
	checkpoint                    : mpi
	gpu                           : mpi, internal/door, internal/mpierr, accel, accel/cuda, internal/topology,
	                                internal/cpuset, internal/memfile

	# The launcher shares the wire-up with mpi, and nothing else.
	internal/bind                 : internal/cpuset, internal/place
	internal/procs                : internal/pmi, internal/reach, {golang.org/x/sys}
	internal/program              : internal/procs, {golang.org/x/sys}
	internal/stdio                : internal/frames, internal/cpuset, {golang.org/x/sys}, {golang.org/x/term}
	launcher                      : internal/pmi, internal/place, internal/cpuset, internal/waits, internal/frames,
	                                internal/reach, {golang.org/x/sys},
	                                internal/bind, internal/procs, internal/program, internal/stdio,
	                                {golang.org/x/term}, {github.com/hashicorp/go-hclog}
	cmd/gorun                     : launcher, accel, accel/cuda, internal/bind, internal/procs, internal/program, internal/auth,
	                                internal/k8s, internal/reach, internal/place, internal/vet, {golang.org/x/tools},
	                                internal/settings, internal/sizes, internal/spelling, internal/cpuset, internal/topology,
	                                internal/waitpolicy, internal/join, internal/tuned, internal/tune,
	                                transport/tcp, transport/verbs, transport/ucx, transport/ofi, collectives,
	                                collectives/simulate,
	                                {golang.org/x/sys}, {golang.org/x/term}, {github.com/docker/go-units},
	                                {github.com/spf13/cobra}, {github.com/spf13/pflag}

	# Programs are what a user could have written.
	benchmarks/harness            : internal/sizes, {github.com/spf13/pflag}
	benchmarks/internal/picture   : benchmarks/harness, {gonum.org/v1/plot}
	benchmarks/internal/bench     : mpi, benchmarks/harness
	benchmarks/internal/device    : mpi, gpu, benchmarks/harness, benchmarks/internal/bench
	benchmarks/latency            : benchmarks/harness, benchmarks/internal/bench, benchmarks/internal/device,
	                                benchmarks/internal/picture
	benchmarks/bw                 : benchmarks/harness, benchmarks/internal/bench, benchmarks/internal/device,
	                                benchmarks/internal/picture
	benchmarks/bibw               : mpi, benchmarks/harness, benchmarks/internal/bench, benchmarks/internal/device,
	                                benchmarks/internal/picture
	benchmarks/collective         : mpi, gpu, benchmarks/harness, benchmarks/internal/bench, benchmarks/internal/device,
	                                benchmarks/internal/picture
	benchmarks/curves             : benchmarks/internal/picture
	benchmarks/kernel             : benchmarks/harness, benchmarks/internal/bench, internal/reduce
	benchmarks/compare            : benchmarks/internal/picture, benchmarks/harness, {golang.org/x/sys}
	benchmarks/recovery           : mpi, benchmarks/harness, benchmarks/internal/bench, {golang.org/x/sys}
	benchmarks/*                  : mpi, benchmarks/harness, benchmarks/internal/bench, benchmarks/internal/picture
	examples, benchmarks          :
	examples/heat                 : mpi, {gonum.org/v1/plot}
	examples/train                : mpi, gpu
	examples/survive              : mpi, checkpoint
	examples/*                    : mpi

	# Tools.
	internal/tools/gpucheck       : internal/tools/partrun, accel, accel/cuda, {golang.org/x/sys}
	internal/tools/rdmacheck      : internal/tools/partrun, transport/verbs, internal/topology
	internal/tools/*, internal/lint, internal/guard:
`

// What only tests import, and what that may import. An entry need not be in use.
const kits = `
	internal/testkit/proc         : {golang.org/x/sys}
	internal/testkit/leak         :
	internal/testkit/vswitch      : {golang.org/x/sys}
	internal/testkit/netns        : internal/testkit/proc, internal/testkit/vswitch, internal/place, internal/pmi,
	                                internal/cpuset, {golang.org/x/sys}
	internal/testkit/netns/hostrun: internal/testkit/netns
	internal/testkit/vm           : internal/testkit/proc
	internal/testkit/apiserver    : {k8s.io}
	internal/testkit/vm/guestrun  : internal/place, internal/pmi
	internal/testkit/softlib      : internal/testkit/proc
	internal/testkit/hcakit       : internal/testkit/softlib, internal/testkit/proc
	internal/testkit/cudakit      : internal/testkit/softlib
	internal/topology/topologytest:
	internal/auth/authtest        : internal/auth, internal/testkit/proc
	accel/acceltest               : accel
	internal/testkit/truth        : mpi, collectives
	internal/testkit/deaths       : mpi, internal/join, internal/testkit/proc, internal/wire, transport,
	                                transport/faulty, {golang.org/x/sys}
	internal/e2e                  : mpi, launcher, internal/testkit/truth, internal/testkit/proc, internal/pmi,
	                                {golang.org/x/sys}
	internal/e2e/*                : mpi, internal/testkit/proc, {golang.org/x/sys}
`

// What any test may import.
var forTests = []string{
	"internal/testkit/proc", "internal/testkit/leak", "internal/testkit/netns", "internal/testkit/vm",
	"internal/testkit/hcakit", "internal/testkit/cudakit", "internal/testkit/softlib", "internal/testkit/truth",
	"internal/testkit/vswitch", "internal/testkit/deaths",
	"internal/e2e", "internal/topology/topologytest", "internal/auth/authtest", "accel/acceltest",
}

// What tests may import beyond what their package may: test kits, and what is needed to stand in for the other side.
// An entry need not be in use.
const testGraph = `
	mpi                           : mpi, accel, accel/acceltest, internal/background, transport/shm, transport/tcp,
	                                transport/verbs, transport/ucx, transport/ofi, transport/multi,
	                                transport/faulty, transport/looptag, internal/wire, checkpoint
	internal/guard                : mpi, pml, internal/join, transport, transport/loop, transport/shm, transport/tcp,
	                                transport/verbs
	internal/agree                : internal/join
	internal/coll                 : internal/join
	gpu                           : internal/join, transport, transport/looptag, transport/loop, transport/faulty
	pml                           : transport/loop, transport/looptag, transport/faulty, accel/acceltest,
	                                transport/verbs, transport/tcp, accel/cuda
	transport/loop, transport/shm, transport/tcp: transport/faulty, transport/transporttest, transport/loop
	transport/verbs               : transport/transporttest, transport/multi, accel, accel/cuda
	transport/faulty              : transport/loop, transport/transporttest
	transport/multi               : transport/shm, transport/transporttest, internal/eventset, internal/wire,
	                                {golang.org/x/sys}
	transport/transporttest       : transport/loop, transport/faulty
	launcher                      : internal/settings
	internal/procs                : internal/cpuset
	cmd/gorun                     : internal/pmi, internal/wire, internal/frames
	examples/train                : accel
	internal/lint                 : internal/settings
`

// The pure parts have no clock, no descriptor and no lock: their callers have these.
var (
	pure = []string{"tagmatch", "collectives", "rma", "eager", "rendezvous", "internal/consensus", "internal/wire",
		"internal/layout", "internal/place"}
	notInPure = []string{"time", "os", "net", "sync", "sync/atomic", "syscall", "context", "runtime", "log"}
)

// The files that may import "C", one for each library.
var doorsToC = []string{"transport/verbs/c.go", "transport/ucx/c.go", "transport/ofi/c.go",
	"internal/bootstrap/pmix/c.go", "accel/cuda/c.go"}

const module = "github.com/gorun-mpi/mpi"

// edge is one import: file, of package from, imports to. Paths of this module are short: mpi is the root.
type edge struct {
	from, file, to string
}

func (e edge) test() bool { return strings.HasSuffix(e.file, "_test.go") }

// rule is what the packages of one line may import.
type rule struct {
	from string // may end with /*
	to   []string
}

// goesOn is where a line goes on in the next one.
var goesOn = regexp.MustCompile(`,\n\s*`)

func parseGraph(text string) (rules []rule, err error) {
	for _, line := range strings.Split(goesOn.ReplaceAllString(text, ", "), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		left, right, ok := strings.Cut(line, ":")
		if !ok {
			return nil, fmt.Errorf("no colon: %s", line)
		}
		to := fields(right)
		for _, from := range fields(left) {
			rules = append(rules, rule{from, to})
		}
	}
	return rules, nil
}

func fields(list string) (names []string) {
	for _, name := range strings.Split(list, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// find returns the line of a package: its own, or the first that covers it with a star.
func find(rules []rule, pkg string) (rule, bool) {
	for _, star := range []bool{false, true} {
		for _, r := range rules {
			if ok, _ := path.Match(r.from, pkg); ok && strings.Contains(r.from, "*") == star {
				return r, true
			}
		}
	}
	return rule{}, false
}

// allows reports whether one of a line's targets covers what is imported.
func (r rule) allows(to string) (target string, ok bool) {
	for _, t := range r.to {
		name, foreign := strings.CutPrefix(t, "{")
		name = strings.TrimSuffix(name, "}")
		if t == to || foreign && (to == name || strings.HasPrefix(to, name+"/")) {
			return t, true
		}
	}
	return "", false
}

// standard: the first element of a path of another module has a dot.
func standard(to string) bool {
	first, _, _ := strings.Cut(to, "/")
	return !strings.Contains(first, ".") && !ours(to)
}

// ours says whether a path is of this module: they have been made short, so no package of the standard library may
// have the name of one of our top folders.
func ours(to string) bool {
	first, _, _ := strings.Cut(to, "/")
	return slices.Contains([]string{"mpi", "internal", "tagmatch", "eager", "rendezvous", "transport", "pml", "launcher",
		"cmd", "benchmarks", "examples", "scripts", "collectives", "rma", "accel", "gpu", "checkpoint"}, first)
}

// judge returns what is wrong with the imports.
func judge(edges []edge, rules, kitRules, testRules []rule) (wrong []string) {
	used, unknown := map[string]bool{}, map[string]bool{}
	for _, e := range edges {
		r, known := find(rules, e.from)
		if !known {
			r, known = find(kitRules, e.from)
		}
		if !known {
			if !unknown[e.from] {
				wrong = append(wrong, fmt.Sprintf("package %s (%s) is in no line of the graph in deps_test.go: "+
					"add it there, and to ARCHITECTURE.md", e.from, e.file))
			}
			unknown[e.from] = true
			continue
		}
		if e.to == "C" || e.to == "unsafe" || standard(e.to) {
			if complaint := judgeNotOurs(e); complaint != "" {
				wrong = append(wrong, complaint)
			}
			continue
		}
		target, ok := r.allows(e.to)
		if ok && !e.test() {
			used[r.from+" "+target] = true
		}
		if !ok && !(e.test() && allowedInTests(e, testRules)) {
			wrong = append(wrong, fmt.Sprintf("%s imports %s: package %s may import %s "+
				"(the graph in deps_test.go says so, ARCHITECTURE.md why)", e.file, e.to, e.from, list(r.to)))
		}
	}
	return append(wrong, judgeUnused(edges, rules, used)...)
}

// judgeNotOurs is what is wrong with an import of C, of unsafe or of the standard library, or "".
func judgeNotOurs(e edge) string {
	door := slices.Contains(doorsToC, e.file)
	switch {
	case e.to == "C" && !door:
		return fmt.Sprintf(`%s imports "C": only %s may`, e.file, strings.Join(doorsToC, " and "))
	case e.to == "unsafe" && !strings.HasSuffix(e.file, "_unsafe.go") && !door && !e.test():
		return fmt.Sprintf("%s imports unsafe: move what needs it to a file named *_unsafe.go", e.file)
	case slices.Contains(pure, e.from) && slices.Contains(notInPure, e.to) && !e.test():
		return fmt.Sprintf("%s imports %s: package %s is pure, it has no clock, descriptor or lock; let its caller do that",
			e.file, e.to, e.from)
	}
	return ""
}

func allowedInTests(e edge, testRules []rule) bool {
	r, _ := find(testRules, e.from)
	_, ok := r.allows(e.to)
	return ok || e.to == e.from || slices.Contains(forTests, e.to) // e.to == e.from: an external test
}

// judgeUnused finds what the graph allows and no file imports.
func judgeUnused(edges []edge, rules []rule, used map[string]bool) (wrong []string) {
	for _, r := range rules {
		for _, to := range r.to {
			if !used[r.from+" "+to] && len(edges) > 0 {
				wrong = append(wrong, fmt.Sprintf("the graph in deps_test.go lets %s import %s, which it does not: "+
					"take that out", r.from, to))
			}
		}
	}
	return wrong
}

func list(to []string) string {
	if len(to) == 0 {
		return "the standard library only"
	}
	return "the standard library, " + strings.Join(to, ", ")
}

// readEdges parses the imports of every Go file, whatever its build constraints: all systems and all tags at once.
func readEdges(t *testing.T) (edges []edge) {
	t.Helper()
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && file != "." && (name[0] == '.' || name[0] == '_' || name == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(file, ".go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		from := short(path.Join(module, filepath.ToSlash(filepath.Dir(file))))
		for _, spec := range f.Imports {
			to, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			edges = append(edges, edge{from, filepath.ToSlash(file), short(to)})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return edges
}

// short turns a path of this module into the name that the graph has for it.
func short(importPath string) string {
	if importPath == module {
		return "mpi"
	}
	return strings.TrimPrefix(importPath, module+"/")
}

func rulesOf(t *testing.T) (rules, kitRules, testRules []rule) {
	t.Helper()
	var all [3][]rule
	for i, text := range []string{graph, kits, testGraph} {
		var err error
		if all[i], err = parseGraph(text); err != nil {
			t.Fatal(err)
		}
	}
	return all[0], all[1], all[2]
}

func TestImports(t *testing.T) {
	rules, kitRules, testRules := rulesOf(t)
	edges := readEdges(t)
	if len(edges) < 100 {
		t.Fatalf("only %d imports were found; the test must run in the folder of go.mod", len(edges))
	}
	for _, w := range judge(edges, rules, kitRules, testRules) {
		t.Error(w)
	}
}

// Each wall, with an import that crosses it.
func TestImportsCanFail(t *testing.T) {
	rules, kitRules, testRules := rulesOf(t)
	for _, c := range []struct {
		e    edge
		want string // part of the complaint; "": none
	}{
		{edge{"pml", "pml/engine.go", "transport"}, ""},
		{edge{"pml", "pml/engine.go", "transport/shm"}, "package pml may import"},
		{edge{"pml", "pml/engine_test.go", "transport/loop"}, ""},
		{edge{"pml", "pml/engine_test.go", "transport/shm"}, "package pml may import"},
		{edge{"pml", "pml/log.go", "github.com/hashicorp/go-hclog"}, "package pml may import"},
		{edge{"tagmatch", "tagmatch/table.go", "internal/wire"}, "the standard library only"},
		{edge{"tagmatch", "tagmatch/table.go", "time"}, "pure"},
		{edge{"tagmatch", "tagmatch/model_test.go", "time"}, ""},
		{edge{"rendezvous", "rendezvous/get.go", "sync"}, "pure"},
		{edge{"transport", "transport/transport.go", "pml"}, "package transport may import"},
		{edge{"transport/shm", "transport/shm/poll_linux.go", "tagmatch"}, "package transport/shm may import"},
		{edge{"transport/shm", "transport/shm/poll_linux.go", "golang.org/x/sys/unix"}, ""},
		{edge{"transport/loop", "transport/loop/link.go", "golang.org/x/sys/unix"}, "package transport/loop may import"},
		{edge{"launcher", "launcher/run.go", "mpi"}, "package launcher may import"},
		{edge{"cmd/gorun", "cmd/gorun/main.go", "mpi"}, "package cmd/gorun may import"},
		{edge{"mpi", "init.go", "launcher"}, "package mpi may import"},
		{edge{"mpi", "init.go", "transport/shm"}, "package mpi may import"},
		{edge{"mpi", "coll.go", "internal/coll"}, ""},
		{edge{"mpi", "device.go", "gpu"}, "package mpi may import"},
		{edge{"pml", "pml/device.go", "accel/cuda"}, "package pml may import"},
		{edge{"mpi", "coll.go", "internal/board"}, "package mpi may import"},
		{edge{"mpi", "coll.go", "internal/background"}, "package mpi may import"},
		{edge{"internal/coll", "internal/coll/plan.go", "internal/join"}, "package internal/coll may import"},
		{edge{"internal/coll", "internal/coll/plan.go", "internal/layout"}, "package internal/coll may import"},
		{edge{"internal/join", "internal/join/open.go", "transport/shm"}, ""},
		{edge{"internal/wire", "internal/wire/header.go", "transport"}, "the standard library only"},
		{edge{"benchmarks/latency", "benchmarks/latency/main.go", "benchmarks/harness"}, ""},
		{edge{"benchmarks/latency", "benchmarks/latency/main.go", "pml"}, "package benchmarks/latency may import"},
		{edge{"benchmarks/harness", "benchmarks/harness/table.go", "mpi"}, "package benchmarks/harness may import"},
		{edge{"examples/pi", "examples/pi/main.go", "internal/settings"}, "package examples/pi may import"},
		{edge{"examples/pi", "examples/pi/main.go", "gonum.org/v1/plot"}, "package examples/pi may import"},
		{edge{"examples/heat", "examples/heat/picture.go", "gonum.org/v1/plot/vg"}, ""},
		{edge{"mpi", "bytes.go", "unsafe"}, "*_unsafe.go"},
		{edge{"mpi", "bytes_unsafe.go", "unsafe"}, ""},
		{edge{"transport/shm", "transport/shm/c.go", "C"}, `imports "C"`},
		{edge{"pml", "pml/engine.go", "internal/testkit/proc"}, "package pml may import"},
		{edge{"pml", "pml/engine_test.go", "internal/testkit/leak"}, ""},
		{edge{"util", "util/util.go", "fmt"}, "in no line of the graph"},
	} {
		var got []string
		for _, w := range judge([]edge{c.e}, rules, kitRules, testRules) {
			if !strings.Contains(w, "which it does not") { // one import uses one line
				got = append(got, w)
			}
		}
		switch {
		case c.want == "" && len(got) != 0:
			t.Errorf("%v: %q, want no complaint", c.e, got)
		case c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)):
			t.Errorf("%v: %q, want one complaint with %q", c.e, got, c.want)
		}
	}
	unused := judge([]edge{{"transport", "transport/transport.go", "context"}}, rules, kitRules, testRules)
	if !strings.Contains(strings.Join(unused, "\n"), "lets transport import internal/wire") {
		t.Errorf("an allowance that is not in use is not reported: %q", unused)
	}
}

// The folders that the graph names exist, so that a line does not outlive its package.
func TestGraphNamesExist(t *testing.T) {
	rules, _, _ := rulesOf(t)
	for _, r := range rules {
		if r.from == "mpi" {
			continue
		}
		if found, err := filepath.Glob(r.from + "/*.go"); err != nil || len(found) == 0 {
			t.Errorf("the graph in deps_test.go has a line for %s, where no Go file is", r.from)
		}
	}
}
