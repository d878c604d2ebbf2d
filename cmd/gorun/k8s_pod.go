package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/gorun-mpi/mpi/internal/auth"
	"github.com/gorun-mpi/mpi/internal/k8s"
	"github.com/gorun-mpi/mpi/internal/reach"
	"github.com/gorun-mpi/mpi/launcher"
)

// envIndex is the variable in which a pod of an Indexed Job has its number.
const envIndex = "JOB_COMPLETION_INDEX"

// checkFirst refuses to begin a job again whose pod with index 0 has failed: the other pods have lost it with all that
// the job has done. The exit code lets the Job fail.
func checkFirst(name string) error {
	if n := os.Getenv(k8s.FailuresVar); n != "" && n != "0" {
		return fmt.Errorf("the pod of %s has failed (%s=%.20s), and the job with it, which does not begin again: delete "+
			"the Job %s and create it", k8s.Host(name, 0), k8s.FailuresVar, n, name)
	}
	return nil
}

// podFlags are what gorun in a pod is told, after which the flags of the job follow.
type podFlags struct {
	job     jobFlags
	pods    podsFlags
	head    string
	keyFile string
}

func podCommand(stdin, stdout, stderr *os.File, code *int) *cobra.Command {
	var p podFlags
	c := &cobra.Command{
		Use:   "pod --name NAME --pods N [flags] PROGRAM [arguments]",
		Short: "what the pods of such a job run: index 0 starts it, the others dial index 0",
		Long: `Is gorun in a pod of an Indexed Job, whose number it has from JOB_COMPLETION_INDEX. In that with index 0
it starts the job, with the other pods as its hosts. In the others it dials that pod until it answers, and runs ranks
for it.`,
		DisableFlagParsing: true,
		RunE: func(c *cobra.Command, args []string) (err error) {
			own, program, err := splitFlags(c.Flags(), args)
			if err == nil {
				err = c.Flags().Parse(own)
			}
			if err != nil {
				return usageError{err}
			}
			if help, _ := c.Flags().GetBool("help"); help {
				return c.Help()
			}
			*code, err = p.run(program, stdin, stdout, stderr)
			return err
		},
	}
	f := c.Flags()
	p.job.register(f)
	for name := range notInPods {
		f.Lookup(name).Hidden = true
	}
	p.pods.register(f)
	f.StringVar(&p.head, "head", "", "the `ADDRESS` of the pod with index 0 (default: NAME-0.NAME)")
	f.StringVar(&p.keyFile, "key-file", k8s.KeyFile, "the `FILE` with the key of the job: 32 bytes in base64")
	return c
}

// run returns the exit code of this pod.
func (p *podFlags) run(program []string, stdin, stdout, stderr *os.File) (int, error) {
	index, err := p.check()
	if err != nil {
		return launcher.CodeUsage, usageError{err}
	}
	key, err := auth.ReadKey(p.keyFile)
	if err != nil {
		return launcher.CodeUsage, fmt.Errorf("the key of the job, which is a file of a Secret: %w", err)
	}
	me, err := reach.Me()
	if err != nil {
		return launcher.CodeCannotStart, err
	}
	call := reach.Call{Job: p.pods.name, Key: key, Addrs: []string{net.JoinHostPort(p.head, strconv.Itoa(p.pods.port))},
		Host: k8s.Host(p.pods.name, index), Build: me.Build,
		Late: func(err error) { fmt.Fprintf(stderr, "gorun: %v; trying again for up to %v\n", err, p.patience()) }}
	again := p.job.Respawn > 0 && p.pods.pods > 1
	switch {
	case index > 0 && again:
		call.Patience = p.patience()
		return launcher.Keeper(p.dial(call), call), nil
	case index > 0:
		return launcher.Agent(p.dial(call), cleanerCommand()), nil
	case again:
		if err := checkFirst(p.pods.name); err != nil {
			return 1, err
		}
	}
	ln, err := net.Listen("tcp", ":"+strconv.Itoa(p.pods.port))
	if err != nil {
		return launcher.CodeCannotStart, err
	}
	hosts := p.pods.hosts()
	o := reach.AcceptorOptions{Call: call, Readmit: again,
		Log: func(msg string, _ ...any) { fmt.Fprintf(stderr, "gorun: %s\n", msg) }}
	for _, h := range hosts[1:] {
		o.Hosts = append(o.Hosts, h.Name)
	}
	acceptor := reach.Listen(ln, o)
	p.job.place.given = hosts
	others := &launcher.Others{Reach: acceptor, Close: acceptor.Close, Together: true}
	if again {
		others.Pods = acceptor
	}
	p.job.place.agents = launcher.Agents{Here: hosts[0].Name, Others: others}
	p.job.place.patience = seconds(p.patience())
	return p.job.start(program, stdin, stdout, stderr)
}

func (p *podFlags) check() (index int, err error) {
	text := os.Getenv(envIndex)
	switch index, err = strconv.Atoi(text); {
	case text == "":
		return 0, fmt.Errorf("%s is not set: this is for pods of an Indexed Job (gorun k8s manifest)", envIndex)
	case p.pods.name == "" || p.pods.pods == 0:
		return 0, errors.New("--name and --pods say which pods the job has: gorun k8s manifest sets them")
	case err != nil || index < 0 || index >= int(p.pods.pods):
		return 0, fmt.Errorf("%s=%.40q is no number from 0 to %d, which --pods %d makes the last", envIndex, text,
			p.pods.pods-1, p.pods.pods)
	}
	if p.head == "" {
		p.head = k8s.Address(p.pods.name, 0)
	}
	return index, nil
}

func (p *podFlags) patience() time.Duration {
	if p.job.place.patience == 0 {
		return podPatience
	}
	return time.Duration(p.job.place.patience)
}

// dial connects an agent with the pod of index 0. That may be late, and so may its name.
func (p *podFlags) dial(call reach.Call) func(context.Context) (io.ReadWriter, error) {
	return func(ctx context.Context) (io.ReadWriter, error) {
		ctx, cancel := context.WithTimeout(ctx, p.patience())
		defer cancel()
		conn, err := call.Dial(ctx)
		if err != nil {
			if ctx.Err() == context.DeadlineExceeded {
				err = fmt.Errorf("%w (tried for %v, which --host-timeout sets)", err, p.patience())
			}
			return nil, err
		}
		return reach.Dialled{Conn: conn}, nil
	}
}
