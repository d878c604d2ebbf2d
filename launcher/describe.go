package launcher

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/gorun-mpi/mpi/internal/cpuset"
	"github.com/gorun-mpi/mpi/internal/procs"
	"github.com/gorun-mpi/mpi/internal/program"
)

// Describe prints what Run would do: for ranks on other hosts where they would be, else their CPUs too. programs, if
// any, say which apps would be built first.
func (j *Job) Describe(w io.Writer, programs []*program.Program) error {
	plan, err := j.Plan()
	if err != nil {
		return err
	}
	if plan.Remote {
		l := plan.Layout
		_, err = fmt.Fprintf(w, "%d %s on %d %s\n%s\n", l.Ranks, plural(l.Ranks, "rank"), len(l.Hosts),
			plural(len(l.Hosts), "host"), strings.Join(mapLines(l), "\n"))
		return err
	}
	return plan.describeAll(w, j, programs)
}

func (p *Plan) describeAll(w io.Writer, j *Job, programs []*program.Program) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s on host %s, which has %d usable %s\n", len(p.Specs), plural(len(p.Specs), "rank"), p.Host,
		p.CPUs.Usable(), plural(p.CPUs.Usable(), "CPU"))
	for _, prog := range programs {
		if prog.Package != "" {
			flags := slices.Clone(prog.Flags)
			if len(prog.Tags) > 0 {
				flags = append(flags, "-tags", strings.Join(prog.Tags, ","))
			}
			words := []string{"build  go build"}
			for _, f := range append(flags, prog.Package) {
				words = append(words, quote(f))
			}
			fmt.Fprintf(&b, "%s (into memory)\n", strings.Join(words, " "))
		}
	}
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "rank\tCPUs\tprogram")
	for i := range p.Specs {
		s := &p.Specs[i]
		where := "any"
		if s.CPUs != nil {
			where = cpuset.FormatList(s.CPUs)
		}
		fmt.Fprintf(t, "%d\t%s\t%s\n", s.Rank, where, commandLine(s, j.Apps[s.App].Env))
	}
	t.Flush()
	_, err := io.WriteString(w, b.String())
	return err
}

// commandLine is what a user would type in a shell for this rank.
func commandLine(s *procs.Spec, env []string) string {
	var words []string
	if s.Dir != "" {
		words = append(words, "cd", quote(s.Dir), "&&")
	}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		words = append(words, name+"="+quote(value))
	}
	for _, a := range s.Argv {
		words = append(words, quote(a))
	}
	return strings.Join(words, " ")
}

func quote(s string) string {
	safe := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./:=,+@%", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !safe(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// describe says in words where a rank is bound.
func (p *Plan) describe(s *procs.Spec) string {
	rank := fmt.Sprintf("rank %d on host %s", s.Rank, p.Host)
	if s.CPUs == nil {
		ids := make([]int, len(p.CPUs.CPUs))
		for i, c := range p.CPUs.CPUs {
			ids[i] = c.ID
		}
		return fmt.Sprintf("%s is not bound: it may use CPUs %s", rank, cpuset.FormatList(ids))
	}
	var cores, nodes []string
	for _, c := range p.CPUs.CPUs {
		if !slices.Contains(s.CPUs, c.ID) {
			continue
		}
		core, node := fmt.Sprintf("%d.%d", c.Socket, c.Core), fmt.Sprint(c.Node)
		if !slices.Contains(cores, core) {
			cores = append(cores, core)
		}
		if !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
	}
	return fmt.Sprintf("%s is bound to %s %s (%s %s, NUMA %s %s)", rank,
		plural(len(s.CPUs), "CPU"), cpuset.FormatList(s.CPUs), plural(len(cores), "core"), strings.Join(cores, ","),
		plural(len(nodes), "node"), strings.Join(nodes, ","))
}
