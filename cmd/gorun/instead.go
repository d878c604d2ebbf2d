package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/gorun-mpi/mpi/internal/settings"
)

// instead is what to write for a flag of mpirun, mpiexec.hydra or srun that gorun does not have.
var instead = map[string]string{
	"wait": "a rank that has ended well ends no other; --timeout bounds the job, and --kill-delay the time between " +
		"Ctrl-C and the kill",
	"W":                 "--timeout bounds the job, and --kill-delay the time between Ctrl-C and the kill",
	"rankfile":          "name the hosts in the order of the ranks, with slots, as in -H a:2,b:1, and use --bind-to for cores",
	"rf":                "name the hosts in the order of the ranks, with slots, as in -H a:2,b:1, and use --bind-to for cores",
	"cpu-set":           "taskset -c LIST gorun ... keeps the ranks to these CPUs",
	"cpu-list":          "taskset -c LIST gorun ... keeps the ranks to these CPUs",
	"cpu-bind":          "use --bind-to none, core, numa, socket, l3cache or hwthread",
	"distribution":      "use --map-by slot or --map-by node",
	"m":                 "use --map-by slot or --map-by node",
	"mem-bind":          "--bind-to numa keeps a rank, and with it its memory, on a NUMA node",
	"bynode":            "write --map-by node",
	"byslot":            "write --map-by slot",
	"bycore":            "write --map-by core",
	"bysocket":          "write --map-by socket",
	"pernode":           "write --ppn 1",
	"npersocket":        "write --map-by socket, with --ppn",
	"bind-to-core":      "write --bind-to core",
	"bind-to-socket":    "write --bind-to socket",
	"bind-to-none":      "write --bind-to none",
	"binding":           "write --bind-to core, numa or none",
	"nodes":             "-H names the hosts; in an allocation of Slurm all of its hosts are used",
	"nnodes":            "-H names the hosts; in an allocation of Slurm all of its hosts are used",
	"exclude":           "-H names the hosts that are used",
	"nooversubscribe":   "no job is refused for its number of ranks; gorun says so where they outnumber CPUs",
	"nolocal":           "-H names the hosts that are used, and this one is used only if it is named",
	"use-hwthread-cpus": "hardware threads are used where ranks outnumber cores; --bind-to hwthread gives each rank one",
	"iface":             "write -x GORUN_TCP_IF=NAME",
	"rmk":               "an allocation of Slurm is found by itself; else name the hosts with -H or --hostfile",
	"bootstrap":         "hosts are reached by ssh, or by what --launch-agent names",
	"bootstrap-exec":    "write --launch-agent PROGRAM",
	"launcher-exec":     "write --launch-agent PROGRAM",
	"output":            "use --output-dir",
	"o":                 "use --output-dir",
	"error":             "use --output-dir",
	"e":                 "use --output-dir",
	"input":             "use --stdin, and the standard input of gorun",
	"i":                 "use --stdin, and the standard input of gorun",
	"outfile-pattern":   "use --output-dir",
	"errfile-pattern":   "use --output-dir",
	"prepend-pattern":   "use -l, which puts the rank before each line",
	"unbuffered":        "lines come as they are written",
	"u":                 "lines come as they are written",
	"time":              "use --timeout",
	"t":                 "use --timeout",
	"mpi":               "gorun speaks PMI-1 to its ranks: leave it out",
	"prefix":            "name the program by its path; -x LD_LIBRARY_PATH and -x PATH pass on this shell's",
	"path":              "name the program by its path, or pass on PATH with -x PATH",
	"xterm":             "start it in place of the program: gorun -n 2 xterm -e PROGRAM",
	"gdb":               "start the debugger in place of the program: gorun -n 2 xterm -e gdb PROGRAM",
	"tv":                "--debug RANK runs a rank under dlv; for a terminal each, gorun -n 2 xterm -e dlv exec PROGRAM",
	"info":              "gorun info prints the settings and what this host allows",
	"tune":              "GORUN_TUNED names a file that gorun tune has written; gorun info lists all settings",
	"am":                "settings are GORUN_ variables, which gorun info lists",
}

// notHere is the error where the first word is a flag of another launcher that gorun does not have; nil: it is not.
func notHere(known *pflag.FlagSet, words []string) error {
	name, value, hasValue := strings.Cut(strings.TrimLeft(words[0], "-"), "=")
	oneLetter := len(name) == 1 && known.ShorthandLookup(name) != nil
	if known.Lookup(name) != nil || oneLetter || known.Lookup("bind-to") == nil { // after a colon other words are said
		return nil
	}
	if slices.Contains([]string{"mca", "gmca", "omca", "prtemca", "pmixmca"}, name) {
		parameter := append(words[1:min(2, len(words))], "")[0]
		if hasValue {
			parameter = value
		}
		return fmt.Errorf("%s %s: %s", words[0], parameter, forMCA(parameter))
	}
	if text := instead[strings.ReplaceAll(name, "_", "-")]; text != "" {
		return fmt.Errorf("there is no flag %s: %s", words[0], text)
	}
	return nil
}

// flagsForMCA are flags that do what a parameter of Open MPI's frameworks does.
var flagsForMCA = map[string]string{
	"plm_rsh_agent": "--launch-agent", "rmaps_base_mapping_policy": "--map-by", "rmaps_default_mapping_policy": "--map-by",
	"rmaps_base_ranking_policy": "--rank-by", "hwloc_base_binding_policy": "--bind-to",
	"hwloc_default_binding_policy": "--bind-to", "orte_default_hostfile": "--hostfile", "prte_default_hostfile": "--hostfile",
	"orte_output_filename": "--output-dir", "orte_tag_output": "--tag-output", "orte_enable_recovery": "--enable-recovery",
	"rmaps_base_oversubscribe": "nothing: no job is refused for its number of ranks",
	"orte_allow_run_as_root":   "nothing: root may start jobs",
}

// forMCA says what to write in place of a parameter of Open MPI.
func forMCA(parameter string) string {
	if flag := flagsForMCA[parameter]; flag != "" {
		return "write " + flag
	}
	name := ""
	switch parameter {
	case "pml", "mtl": // as btl: how ranks reach each other
		name = "GORUN_TRANSPORTS"
	case "oob_tcp_if_include", "oob_tcp_if_exclude":
		return "the agents of gorun have no port but ssh's: write -x GORUN_TCP_IF=... for the ranks"
	}
	for _, s := range settings.Table {
		for _, like := range strings.Split(strings.ReplaceAll(s.Like, "--mca ", ""), ", ") {
			before, after, some := strings.Cut(like, "…")
			vader := strings.Replace(parameter, "vader", "sm", 1) // its name before Open MPI 5
			if parameter != "" && (vader == like ||
				some && strings.HasPrefix(parameter, before) && strings.HasSuffix(parameter, after)) {
				name = s.Name
			}
		}
	}
	if name == "" {
		return "there are no MCA parameters; settings are GORUN_ variables, which gorun info lists"
	}
	s, _ := settings.Find(name)
	return fmt.Sprintf("write -x %s=... (%s)", name, strings.TrimSuffix(s.Meaning[:strings.Index(s.Meaning+". ", ". ")], "."))
}
