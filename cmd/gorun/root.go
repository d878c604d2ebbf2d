package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/internal/procs"
	"github.com/gorun-mpi/mpi/internal/program"
	"github.com/gorun-mpi/mpi/internal/settings"
	"github.com/gorun-mpi/mpi/launcher"
	"github.com/spf13/cobra"
)

const summary = `gorun starts the ranks of a message-passing program, on this host or on those of a list, and watches
them: when one fails, all end.

PROGRAM is a binary, or a Go package (a folder, an import path, a .go file), which is built first and leaves nothing
behind. What follows PROGRAM belongs to it. Several programs in one job are separated by a colon; after -- before
PROGRAM a colon is an argument.`

const examples = `  gorun -n 4 ./examples/heat                   build a package, run 4 ranks of it
  gorun -n 4 ./heat -steps 100                 run a binary with its arguments
  gorun -n 1 ./master : -n 3 ./worker          different programs in one job
  gorun -n 4 --map-by core:PE=2 ./heat         two cores for each rank
  gorun -n 4 --tag-output --timeout 5m ./heat  lines begin with [rank]; stop after 5 minutes
  gorun -H a:4,b:4 ./heat                      4 ranks on each of two hosts, reached by ssh
  gorun info                                   settings, and what this host allows
  gorun doctor --hostfile hosts                whether hosts have what jobs need
  gorun tune                                   measure this host, for faster collective calls
  gorun vet ./...                              mistakes in the use of the library, in source`

const exitStatus = `the code of the first rank that failed; 128 + N if signal N killed it; 124 after --timeout; 125 after
--stall abort; 130 after Ctrl-C; 141 when the reader of its output goes away; 2 for a wrong command line; 126 or 127 for a program that cannot be
started or found.`

const notes = `A job that goes on after logout: nohup gorun ... >log 2>&1 &, or setsid -f gorun ... >log 2>&1. Settings
are GORUN_ variables: gorun info lists them. The spellings of mpirun and mpiexec (-np, -wdir, -genv) are understood.`

// newRoot makes the command. code is gorun's exit code when no error is returned, or with it.
func newRoot(stdin, stdout, stderr *os.File, code *int) *cobra.Command {
	var j jobFlags
	root := &cobra.Command{
		Use:           "gorun [flags] PROGRAM [arguments] [: [flags] PROGRAM [arguments]]...",
		Short:         "start and watch the ranks of a message-passing program",
		Args:          cobra.ArbitraryArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if j.version {
				printVersion(stdout)
				return nil
			}
			*code, err = j.start(args, stdin, stdout, stderr)
			return err
		},
	}
	root.Flags().SetInterspersed(false)
	j.register(root.Flags())
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.AddCommand(infoCommand(stdout), simulateCommand(stdout, stderr), doctorCommand(stdout, stderr, code),
		tuneCommand(stdout, stderr, code), tuneRankCommand(stdout), k8sCommand(stdin, stdout, stderr, code),
		vetCommand(stdin, stdout, stderr, code), statusCommand(stdout), manCommand(stdout), versionCommand(stdout),
		completionCommand(stdout))
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(probeCommands(stdin, stdout)...)
	root.InitDefaultHelpFlag()
	root.Flags().Lookup("help").Usage = "print this page"
	plain := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if cmd == root {
			help(stdout, root)
			return
		}
		plain(cmd, args)
	})
	complete(root)
	return root
}

// start runs a job, or prints its plan.
func (j *jobFlags) start(args []string, stdin, stdout, stderr *os.File) (int, error) {
	parts, err := j.programs(args)
	if err != nil {
		return launcher.CodeUsage, usageError{err}
	}
	environ, err := j.withSettings(os.Environ())
	if err != nil {
		return launcher.CodeUsage, usageError{err}
	}
	values, err := checkSettings(environ, parts, stderr)
	if err != nil {
		return launcher.CodeUsage, err
	}
	job := launcher.Job{
		Options: j.Options, Environ: environ, Stdin: stdin, Stdout: stdout, Stderr: stderr, Alone: true,
		Cleaner: cleanerCommand(),
	}
	if job.Dump != "" {
		if job.Dump, err = filepath.Abs(job.Dump); err != nil {
			return launcher.CodeUsage, err
		}
	}
	if j.cpuProfile != "" {
		job.Insist = profileTime
	}
	job.Recover = job.Recover || job.Respawn > 0
	job.LogLevel = values.Log
	if j.verbose && values.Log == "off" {
		job.LogLevel = "debug"
	}
	ranks, err := j.place.fill(&job)
	if err != nil {
		return launcher.CodeUsage, usageError{err}
	}
	job.Agents.Silence = values.PeerTimeout
	if ranks > 0 && len(parts) == 1 {
		parts[0].ranks = count(ranks)
	}
	var programs []*program.Program
	for _, p := range parts {
		found, err := program.Find(p.program, string(p.wdir))
		if err != nil {
			return findCode(err), err
		}
		programs = append(programs, found)
		if j.preload {
			if err := found.Sendable(); err != nil {
				return launcher.CodeUsage, usageError{err}
			}
		}
		env, missing := resolveEnv(p.env, environ)
		for _, name := range missing {
			fmt.Fprintf(stderr, "gorun: warning: -x %s: the variable is not set here\n", name)
		}
		job.Apps = append(job.Apps, launcher.App{
			Ranks: int(p.ranks), Path: found.Path, Sent: found.Package != "" || j.preload, Name: p.program,
			Args: p.args, Dir: string(p.wdir), Env: env,
		})
	}
	if err := handTuned(&job, programs); err != nil {
		return launcher.CodeUsage, err
	}
	if err := j.buildFlags(programs); err != nil {
		return launcher.CodeUsage, usageError{err}
	}
	tag(programs, stderr)
	if j.dryRun {
		return 0, job.Describe(stdout, programs)
	}
	if _, err := job.Plan(); err != nil { // before the time for a build is spent
		return launcher.CodeUsage, usageError{err}
	}
	defer func() {
		for _, p := range programs {
			p.Close()
		}
	}()
	if code, err := build(programs, stderr); err != nil {
		return code, err
	}
	for i, p := range programs {
		job.Apps[i].Path = p.Path
	}
	if j.Debug != "" {
		fmt.Fprintf(stderr, "gorun: rank %s waits under dlv, which prints its address: run dlv connect ADDRESS in another "+
			"terminal of the rank's host\n", j.Debug)
	}
	return job.Run(), nil
}

// profileTime is the time in which a rank writes its profile when the job fails. The runtime collects samples for 0.1 s
// at a time.
const profileTime = 2 * time.Second

// buildFlags sets the flags with which packages are built.
func (j *jobFlags) buildFlags(programs []*program.Program) error {
	for _, p := range programs {
		if j.race && !isPackage(p) {
			return fmt.Errorf("--race is for Go packages, which gorun builds, and %s is built already: use go build -race",
				p.Name)
		}
		if j.race {
			p.Flags = append(p.Flags, "-race")
		}
		if j.Debug != "" {
			p.Flags = append(p.Flags, "-gcflags=all=-N -l") // dlv finds each variable and line
		}
	}
	return nil
}

// withSettings returns the environment of a job with the settings that flags make.
func (j *jobFlags) withSettings(environ []string) ([]string, error) {
	for name, folder := range map[string]named{"GORUN_REPORT": j.report, "GORUN_CPUPROFILE": j.cpuProfile} {
		if folder == "" {
			continue
		}
		dir, err := filepath.Abs(string(folder)) // ranks may run in another folder
		if err != nil {
			return nil, err
		}
		environ = slices.DeleteFunc(environ, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
		environ = append(environ, name+"="+dir)
	}
	const limit = "GORUN_TIMEOUT="
	if j.Debug != "" && !slices.ContainsFunc(environ, func(kv string) bool { return strings.HasPrefix(kv, limit) }) {
		environ = append(environ, limit+"24h") // the other ranks wait for a rank that stands in the debugger
	}
	return environ, nil
}

// checkSettings reads gorun's own settings, and warns of what has no effect in them and in those of each program (-x),
// once for each name. A bad value is an error here and not one of each rank. What ranks are told of GORUN_PEER_TIMEOUT
// holds for gorun and its agents too: the longest, if programs have several.
func checkSettings(environ []string, parts []segment, stderr *os.File) (own settings.Values, err error) {
	own, warnings, err := join.Settings(environ)
	own.PeerTimeout = 0
	for _, p := range parts {
		if err != nil {
			return own, err
		}
		env, _ := resolveEnv(p.env, environ)
		var of settings.Values
		var more []settings.Warning
		of, more, err = join.Settings(append(slices.Clone(environ), env...))
		own.PeerTimeout = max(own.PeerTimeout, of.PeerTimeout)
		for _, w := range more {
			if !slices.Contains(warnings, w) {
				warnings = append(warnings, w)
			}
		}
	}
	for _, w := range warnings {
		fmt.Fprintf(stderr, "gorun: warning: %s\n", w)
	}
	return own, err
}

func findCode(err error) int {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return launcher.CodeNotFound
	case errors.Is(err, fs.ErrPermission):
		return launcher.CodeCannotStart
	}
	return launcher.CodeUsage
}

// tag has the packages built with the optional transports that can be built here, and says so.
func tag(programs []*program.Program, stderr *os.File) {
	if !slices.ContainsFunc(programs, isPackage) {
		return
	}
	tags := program.Tags(context.Background())
	if len(tags) == 0 {
		return
	}
	for _, p := range programs {
		p.Tags = tags
	}
	fmt.Fprintf(stderr, "gorun: building with -tags %s: their headers and a C compiler are here (CGO_ENABLED=0 leaves "+
		"them out)\n", strings.Join(tags, ","))
}

// build compiles what must be compiled; a package that is named twice is built once. A job of binaries builds nothing.
func build(programs []*program.Program, stderr *os.File) (code int, err error) {
	if !slices.ContainsFunc(programs, isPackage) {
		return 0, nil
	}
	err = procs.UntilSignal(func(ctx context.Context) error {
		built := map[string]*program.Program{}
		for _, p := range programs {
			if same := built[p.Package]; same != nil && isPackage(p) {
				p.Path = same.Path
				continue
			}
			if err := p.Build(ctx, stderr, cleanerCommand()); err != nil {
				return err
			}
			built[p.Package] = p
		}
		return nil
	})
	var stopped *procs.Stopped
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &stopped):
		return 128 + int(stopped.Signal), fmt.Errorf("building was %w", err)
	}
	return launcher.CodeCannotStart, err
}

func isPackage(p *program.Program) bool { return p.Package != "" }

// cleanerWord makes this program the cleaner of a job.
const cleanerWord = "__cleaner"

func cleanerCommand() []string {
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	return []string{self, cleanerWord}
}
