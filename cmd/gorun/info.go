package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"

	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/cpuset"
	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/internal/settings"
	"github.com/gorun-mpi/mpi/internal/topology"
	"github.com/gorun-mpi/mpi/internal/waitpolicy"
	"github.com/spf13/cobra"
)

func infoCommand(stdout *os.File) *cobra.Command {
	var table, asJSON bool
	var ranks int
	c := &cobra.Command{
		Use:   "info",
		Short: "print the settings and what this host allows",
		Args:  noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			switch given := c.Flags().Changed("ranks"); {
			case given && (!table || asJSON):
				return usageError{errors.New("--ranks is for gorun info --collectives; with --json that prints " +
					"all lines")}
			case given && ranks < 1:
				return usageError{fmt.Errorf("--ranks %d: a host of a job has 1 rank or more", ranks)}
			case table && asJSON:
				lines, err := linesHere()
				e := json.NewEncoder(stdout)
				e.SetIndent("", "  ")
				return errors.Join(e.Encode(lines), err)
			case table:
				f, err := tunedHere(os.Environ())
				if err != nil {
					return err
				}
				text, roomy := whichLines(ranks, cpuset.Read().Usable())
				fmt.Fprintf(stdout, "%s\n\n", wrap(text, width(), ""))
				if f != nil {
					if err := printTuned(stdout, f, roomy); err != nil {
						return err
					}
				}
				return collectives.Print(stdout, roomy, costHeads, cost)
			}
			m := readMachine(topology.Source{Root: "/", Addrs: topology.Addrs}, askVerbs, askGPUs(accel.InUse()))
			f := readFacts(os.Environ(), m)
			if asJSON {
				_, _, err := join.Settings(os.Environ())
				return errors.Join(f.printJSON(stdout), err)
			}
			f.print(stdout)
			m.print(stdout, width())
			f.UCX.print(stdout, width())
			f.OFI.print(stdout, width())
			return printSettings(stdout, os.Environ(), width())
		},
	}
	c.Flags().BoolVar(&table, "collectives", false,
		"print which algorithm collective calls take, by operation, size and ranks, and what the call with the most\n"+
			"bytes and ranks of each line costs a rank on the model cluster; the first line that holds counts\n"+
			"(for a nonblocking Bcast, of the lines without chain and scatter_ring); lines of a tuned file come first")
	c.Flags().IntVar(&ranks, "ranks", 0,
		"with --collectives: print the lines that hold with so many ranks on this host (default: a rank for each CPU)")
	c.Flags().BoolVar(&asJSON, "json", false, "print the same as JSON, for programs; the names in it stay;\n"+
		"with --collectives it prints all lines, also lines that do not hold here")
	return c
}

// whichLines says which lines of the table hold for so many ranks on this host: the lines for roomy ranks, or for
// crowded ones. 0: a rank for each CPU.
func whichLines(ranks, cpus int) (text string, roomy bool) {
	if ranks == 0 {
		ranks = max(cpus, 2)
	}
	if ranks > cpus {
		return fmt.Sprintf("These lines hold where more ranks than this host's CPUs (%d) share them (crowded). "+
			"--ranks %[1]d prints the lines for ranks that have a CPU each (roomy).", cpus), false
	}
	return fmt.Sprintf("These lines hold where ranks on this host have a CPU each, up to %d of them (roomy). A line "+
		"that says roomy is for blocking calls inside a host. --ranks %d prints the lines for more ranks (crowded).",
		cpus, cpus+1), true
}

// waiting says what a rank does while it waits for messages. A setting that is wrong is printSettings' to report.
func waiting(environ []string, cpus int) (texts []string) {
	set, _, err := settings.Load(environ)
	if err != nil {
		return nil
	}
	texts = []string{waitpolicy.For(set.Spin, cpus, cpus).String()}
	if more := waitpolicy.For(set.Spin, cpus+1, cpus).String(); more != texts[0] {
		texts = append(texts, fmt.Sprintf("more than %d: %s", cpus, more))
	}
	return texts
}

func coresAndNodes(all []cpuset.CPU) (cores, nodes int) {
	seen := map[[3]int]bool{}
	var nodeIDs []int
	for _, c := range all {
		seen[[3]int{c.Node, c.Socket, c.Core}] = true
		if !slices.Contains(nodeIDs, c.Node) {
			nodeIDs = append(nodeIDs, c.Node)
		}
	}
	return len(seen), len(nodeIDs)
}

func kernel() string {
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return runtime.GOOS
	}
	return runtime.GOOS + " " + strings.TrimSpace(string(text))
}

// outerLauncher names the launcher of a job that gorun itself runs in, or "".
func outerLauncher() string {
	for _, v := range []struct{ name, by string }{
		{"GORUN_JOB", "gorun"}, {"HYDI_CONTROL_FD", "mpiexec.hydra"}, {"OMPI_COMM_WORLD_SIZE", "Open MPI"},
		{"SLURM_JOB_ID", "Slurm"}, {"PMI_FD", "a PMI launcher"}, {"PMIX_RANK", "a PMIx launcher"},
	} {
		if os.Getenv(v.name) != "" {
			return v.by + " (" + v.name + " is set)"
		}
	}
	return ""
}

// probeReadv tries process_vm_readv between two processes that are siblings, as two ranks are: the target prints where
// it has a word, the reader reads it there.
func probeReadv() string {
	answer, err := probe()
	if err != nil {
		return "not tried: " + err.Error()
	}
	return answer
}

func probe() (answer string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	target := exec.Command(self, probeTarget)
	in, err := target.StdinPipe()
	if err != nil {
		return "", err
	}
	out, err := target.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := target.Start(); err != nil {
		return "", err
	}
	defer target.Wait()
	defer in.Close()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return "", err
	}
	text, err := exec.Command(self, append([]string{probeReader}, strings.Fields(line)...)...).CombinedOutput()
	answer = strings.TrimSpace(string(text))
	if err != nil {
		answer = "no: " + answer
	}
	return answer, nil
}

// printSettings prints the list: name, value, meaning.
func printSettings(w io.Writer, environ []string, cols int) error {
	set := map[string]string{}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		set[name] = value
	}
	for _, internal := range []bool{false, true} {
		title := "Settings (environment variables)"
		if internal {
			title = "\nSet by gorun for its ranks"
		}
		fmt.Fprintln(w, title)
		var rows [][]string
		for _, s := range settings.Table {
			if s.Internal() == internal {
				rows = append(rows, settingRows(s, set[s.Name], cols)...)
			}
		}
		printTable(w, rows)
	}
	_, warnings, err := join.Settings(environ)
	for _, warning := range warnings {
		fmt.Fprintf(w, "\nwarning: %s\n", warning)
	}
	if err == nil {
		_, err = tunedHere(environ)
	}
	return err
}

// settingRows are one row, and one more for each further line of the meaning.
func settingRows(s settings.Setting, value string, cols int) (rows [][]string) {
	const left = 34 // columns before the meaning, unless a value is long
	text := s.Long()
	switch {
	case value == "":
		value = s.Default
	case s.Secret():
		value = "(secret)"
	case s.Default != "":
		text += " (default " + s.Default + ")"
	}
	name, value := s.Name, dash(value)
	for line := range strings.SplitSeq(wrap(text, max(cols-left, 30), ""), "\n") {
		rows = append(rows, []string{name, value, line})
		name, value = "", ""
	}
	return rows
}
