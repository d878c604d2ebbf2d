package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/gorun-mpi/mpi/internal/spelling"
)

// splitFlags takes the flags up to the first word that is none; the rest, which may begin with "--", is the program's.
// It knows the spellings of mpirun and mpiexec: -np and -wdir with one dash, and -genv NAME VALUE.
func splitFlags(known *pflag.FlagSet, args []string) (flags, rest []string, err error) {
	for len(args) > 0 {
		arg := args[0]
		if len(arg) < 2 || arg[0] != '-' || arg == "--" {
			return flags, args, nil
		}
		if arg == "-genv" || arg == "--genv" || arg == "-env" {
			if len(args) < 3 {
				return nil, nil, fmt.Errorf("%s needs a name and a value", arg)
			}
			flags, args = append(flags, "--env="+args[1]+"="+args[2]), args[3:]
			continue
		}
		if err := notHere(known, args); err != nil {
			return nil, nil, err
		}
		arg, takesNext, err := spell(known, arg)
		if err != nil {
			return nil, nil, err
		}
		args = args[1:]
		if !takesNext {
			flags = append(flags, arg)
			continue
		}
		if len(args) == 0 {
			return nil, nil, fmt.Errorf("%s needs a value", arg)
		}
		flags, args = append(flags, arg, args[0]), args[1:]
	}
	return flags, nil, nil
}

// spell returns a flag as pflag wants it, and whether its value is the next word.
func spell(known *pflag.FlagSet, arg string) (string, bool, error) {
	name, _, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	name, hasNew := renamed(name)
	f := known.Lookup(name)
	if f != nil && (strings.HasPrefix(arg, "--") || len(name) > 1) {
		if hasNew || !strings.HasPrefix(arg, "--") {
			arg = "--" + name + arg[len(arg)-len(valuePart(arg)):]
		}
		return arg, !hasValue && f.NoOptDefVal == "", nil
	}
	if strings.HasPrefix(arg, "--") {
		return "", false, unknown(known, arg)
	}
	// One letter each, as in -ln 4 or -n4.
	for i, c := range arg[1:] {
		f := known.ShorthandLookup(string(c))
		if f == nil {
			return "", false, unknown(known, arg)
		}
		if f.NoOptDefVal == "" {
			return arg, i == len(arg)-2, nil
		}
	}
	return arg, false, nil
}

// valuePart is the "=value" of a flag, or "".
func valuePart(arg string) string {
	if i := strings.IndexByte(arg, '='); i >= 0 {
		return arg[i:]
	}
	return ""
}

// other names of our flags in mpirun, mpiexec.hydra and srun.
var others = map[string]string{
	"wd": "wdir", "prepend-rank": "tag-output", "output-filename": "output-dir", "V": "version",
	"hosts": "host", "machinefile": "hostfile", "npernode": "ppn", "perhost": "ppn",
	"timestamp-output": "timestamp", "preload-binary": "preload",
	"disable-auto-cleanup": "enable-recovery", "branch-count": "tree-width",
	"ntasks": "np", "ntasks-per-node": "ppn", "tasks-per-node": "ppn", "chdir": "wdir", "D": "wdir", "label": "tag-output",
	"nodelist": "host", "w": "host", "cpus-per-proc": "cpus-per-task", "cpus-per-rank": "cpus-per-task",
	"configfile": "app", "display-allocation": "display-map", "display-devel-map": "display-map",
	"print-rank-map": "display-map", "stderr-to-stdout": "merge-stderr-to-stdout",
}

func renamed(name string) (string, bool) {
	if n, ok := others[name]; ok {
		return n, true
	}
	return name, false
}

// unknown names the flag and what may have been meant: flags that begin so, or the one that is spelt most alike.
func unknown(known *pflag.FlagSet, arg string) error {
	name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	var all, near []string
	known.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && len(name) > 1 {
			all = append(all, f.Name)
			if strings.HasPrefix(f.Name, name) {
				near = append(near, "--"+f.Name)
			}
		}
	})
	if meant := spelling.Nearest(name, slices.Values(all), 2); len(near) == 0 && meant != "" {
		near = []string{"--" + meant}
	}
	if len(near) == 0 {
		return fmt.Errorf("there is no flag %s", arg)
	}
	return fmt.Errorf("there is no flag %s; did you mean %s?", arg, strings.Join(near, " or "))
}
