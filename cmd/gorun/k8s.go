package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorun-mpi/mpi/internal/auth"
	"github.com/gorun-mpi/mpi/internal/bind"
	"github.com/gorun-mpi/mpi/internal/k8s"
	"github.com/gorun-mpi/mpi/internal/place"
	"github.com/gorun-mpi/mpi/launcher"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func k8sCommand(stdin, stdout, stderr *os.File, code *int) *cobra.Command {
	c := &cobra.Command{
		Use:   "k8s",
		Short: "Kubernetes: write the manifest of a job whose pods start it without ssh",
		Args:  cobra.ArbitraryArgs,
		RunE: func(*cobra.Command, []string) error {
			return usageError{errors.New("name a command: gorun k8s manifest writes a manifest (docs/kubernetes.md)")}
		},
	}
	c.AddCommand(manifestCommand(stdout, stderr), podCommand(stdin, stdout, stderr, code))
	return c
}

// podPatience is how long the pods of a job wait for each other: images are fetched meanwhile.
const podPatience = 10 * time.Minute

// podsFlags say what the pods of a job have in common. The manifest gives them to each pod.
type podsFlags struct {
	name string
	pods count
	port int
}

func (p *podsFlags) register(f *pflag.FlagSet) {
	f.StringVar(&p.name, "name", "", "the `NAME` of the job (default: made of the program's)")
	f.Var(&p.pods, "pods", "number of pods (default: what -n and --ppn make, one for each rank without --ppn)")
	f.IntVar(&p.port, "port", 23000, "the `PORT` on which the pod with index 0 is dialled")
}

// podsWords are the flags of podsFlags as the manifest has them.
func (p *podsFlags) words() []string {
	return []string{"--name=" + p.name, "--pods=" + p.pods.String(), "--port=" + strconv.Itoa(p.port)}
}

// hosts are the pods. All have an equal share of the ranks, or what --ppn says.
func (p *podsFlags) hosts() []place.Host {
	hosts := make([]place.Host, p.pods)
	for i := range hosts {
		hosts[i].Name = k8s.Host(p.name, i)
	}
	return hosts
}

// manifestFlags are those of the job, and what a pod needs.
type manifestFlags struct {
	job    jobFlags
	pods   podsFlags
	out    k8s.Job
	gorun  string
	user   string
	newKey bool
	cpus   count
	keep   seconds  // how long the Job stays when it has finished
	given  []string // the flags of the job, as the pods get them
}

// notInPods are flags of gorun that mean nothing for pods, and what to do instead.
var notInPods = map[string]string{
	"host":         "the pods are the hosts: say how many with --pods or --ppn",
	"hostfile":     "the pods are the hosts: say how many with --pods or --ppn",
	"launch-agent": "the pods start gorun themselves",
	"launcher":     "the pods start gorun themselves",
	"preload":      "the image has the program",
	"spares":       "each pod has ranks, and Kubernetes makes a pod that fails again",
	"app":          "the command line names the programs",
	"tree-width":   "all pods dial the one with index 0",
	"stdin":        "pods have no standard input",
	"dry-run":      "a manifest starts nothing by itself",
	"version":      "gorun --version prints it",
}

func manifestCommand(stdout, stderr *os.File) *cobra.Command {
	var m manifestFlags
	c := &cobra.Command{
		Use:   "manifest --image IMAGE [flags] PROGRAM [arguments]",
		Short: "write a Service and an Indexed Job as JSON, for kubectl create -f -",
		Long: `Writes the manifest of a job as JSON: a headless Service, and an Indexed Job with one pod for each host.
Each pod runs gorun; that of index 0 starts the job, and the others dial it. The key by which they know each other comes
from a Secret. The flags of gorun are those of the job. PROGRAM is a path in the image.`,
		Example: `  gorun k8s manifest --image registry/heat:1 -n 8 --ppn 4 /heat -steps 100 | kubectl create -f -`,
		// Flags have the spellings of mpirun too, and end at the program.
		DisableFlagParsing: true,
		RunE: func(c *cobra.Command, args []string) error {
			if err := m.read(c, args, stderr); err != nil {
				return usageError{err}
			}
			if help, _ := c.Flags().GetBool("help"); help {
				return c.Help()
			}
			return m.write(stdout, stderr)
		},
	}
	f := c.Flags()
	m.job.register(f)
	for name := range notInPods {
		f.Lookup(name).Hidden = true
	}
	m.pods.register(f)
	f.StringVar(&m.out.Image, "image", "", "the `IMAGE` of the pods, with gorun and the program in it")
	f.StringVar(&m.out.Namespace, "namespace", "", "the `NAMESPACE` (default: that of kubectl)")
	f.StringVar(&m.out.Secret, "secret", "", "the Secret with the key, of this `NAME` (default: the job's and -key)")
	f.BoolVar(&m.newKey, "new-key", false, "write the Secret too, with a new key: the manifest is then a secret itself")
	f.Var(&m.cpus, "cpus", "CPUs that each pod asks for (default: one for each rank, or n of --map-by HOW:PE=n)")
	f.StringVar(&m.out.Memory, "memory", "", "the `SIZE` of memory that each pod asks for and is limited to, as 4Gi")
	f.StringVar(&m.out.Shm, "shm", "", "the `SIZE` of /dev/shm (default: 256Mi for each rank)")
	f.Var((*devices)(&m.out.Devices), "rdma", "a resource of a device plugin that each pod gets, such as rdma/hca=1, "+
		"and for --user 0 the capability IPC_LOCK")
	f.BoolVar(&m.out.HostNetwork, "host-network", false, "the pods have the network of their nodes, and its devices")
	m.registerExtras(f)
	f.StringVar(&m.user, "user", "65532", "what the pods run as: `UID` or UID:GID")
	f.StringVar(&m.gorun, "gorun", "gorun", "the `PATH` of gorun in the image")
	return c
}

// read takes the flags, and keeps those of the job as they were given.
func (m *manifestFlags) read(c *cobra.Command, args []string, stderr *os.File) error {
	f := c.Flags()
	ofJob := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(jobFlags).register(ofJob)
	own, program, err := splitFlags(f, args)
	if err != nil {
		return err
	}
	err = f.ParseAll(own, func(flag *pflag.Flag, value string) error {
		if instead := notInPods[flag.Name]; instead != "" {
			return fmt.Errorf("--%s: %s", flag.Name, instead)
		}
		if err := f.Set(flag.Name, value); err != nil {
			return err
		}
		if ofJob.Lookup(flag.Name) != nil && flag.Name != "env" {
			m.given = append(m.given, "--"+flag.Name+"="+value)
		}
		return nil
	})
	if help, _ := f.GetBool("help"); err != nil || help {
		return err
	}
	parts, err := segments(m.job.app, program)
	if err != nil {
		return err
	}
	if m.out.Command, err = m.command(f, parts, stderr); err != nil {
		return err
	}
	m.out.Name, m.out.Port, m.out.Pods = m.pods.name, m.pods.port, int(m.pods.pods)
	if m.out.Pods > 1 {
		m.out.Again, m.out.AgainCode = int(m.job.Respawn), launcher.CodeAgain
	}
	return nil
}

// command lays the job out, and returns what each pod runs.
func (m *manifestFlags) command(f *pflag.FlagSet, parts []segment, stderr *os.File) ([]string, error) {
	if m.pods.name == "" {
		if m.pods.name = k8s.Program(parts[0].program); m.pods.name == "" {
			return nil, fmt.Errorf("no name can be made of %s: use --name", parts[0].program)
		}
	}
	perPod, err := m.layOut(f, parts)
	if err != nil {
		return nil, err
	}
	m.fillIn(f, perPod)
	words := append([]string{m.gorun, "k8s", "pod"}, m.pods.words()...)
	words = append(words, "--key-file="+k8s.KeyFile)
	words = append(words, m.given...)
	for i, p := range parts {
		if i > 0 {
			words = append(words, ":")
			if p.wdir != "" {
				words = append(words, "--wdir="+string(p.wdir))
			}
		}
		if i > 0 || !f.Changed("np") {
			words = append(words, "--np="+p.ranks.String())
		}
		env, missing := resolveEnv(p.env, os.Environ())
		for _, name := range missing {
			fmt.Fprintf(stderr, "gorun: warning: -x %s: the variable is not set here\n", name)
		}
		warnOfVariables(p.env, stderr)
		for _, kv := range env {
			words = append(words, "--env="+kv)
		}
		if i == len(parts)-1 {
			words = append(words, "--") // a colon is an argument from here on
		}
		words = append(append(words, p.program), p.args...)
	}
	return words, nil
}

// layOut settles how many ranks and pods there are, and returns the most ranks that a pod has. It places the ranks as
// gorun in the pods will.
func (m *manifestFlags) layOut(f *pflag.FlagSet, parts []segment) (perPod int, err error) {
	q, err := m.job.place.wanted(m.job.Place)
	if err != nil {
		return 0, err
	}
	m.job.Place = q
	if !f.Changed("np") && len(parts) == 1 {
		parts[0].ranks = count(max(q.PerHost, 1) * max(int(m.pods.pods), 1))
	}
	for _, p := range parts {
		q.Ranks += int(p.ranks)
	}
	if m.pods.pods == 0 {
		m.pods.pods = count((q.Ranks + max(q.PerHost, 1) - 1) / max(q.PerHost, 1))
	}
	if m.pods.pods > k8s.MaxPods {
		return 0, fmt.Errorf("%d pods: a Job runs %d at most", m.pods.pods, k8s.MaxPods)
	}
	l, err := place.Place(m.pods.hosts(), q)
	if err != nil {
		return 0, err
	}
	if n := len(l.Unused); n > 0 {
		return 0, fmt.Errorf("%d of the %d pods would get no rank: use fewer --pods, or raise -n", n, m.pods.pods)
	}
	return slices.Max(l.Counts), nil
}

// fillIn sets what was not given.
func (m *manifestFlags) fillIn(f *pflag.FlagSet, perPod int) {
	m.out.Bound = m.job.Bind != bind.None
	if !f.Changed("bind-to") && m.job.Place.MapBy == "" {
		m.out.Bound = false
		// A pod often sees all CPUs of its node, which those of other jobs run on too.
		m.given = append(m.given, "--bind-to=none")
	}
	if !f.Changed("host-timeout") {
		m.given = append(m.given, "--host-timeout="+podPatience.String())
	}
	if m.out.CPUs = int(m.cpus); m.out.CPUs == 0 {
		m.out.CPUs = perPod * max(m.job.Place.PE, 1)
	}
	if m.out.Shm == "" {
		m.out.Shm = strconv.Itoa(256*perPod) + "Mi"
	}
	if m.out.Secret == "" {
		m.out.Secret = m.pods.name + "-key"
	}
}

// write prints the manifest, and to stderr what it takes for granted.
func (m *manifestFlags) write(stdout, stderr *os.File) error {
	var err error
	if m.out.User, err = parseUser(m.user); err != nil {
		return usageError{err}
	}
	if m.newKey {
		m.out.Key = make([]byte, auth.KeySize)
		rand.Read(m.out.Key)
	}
	if m.keep > 0 {
		keep := int(time.Duration(m.keep) / time.Second)
		m.out.KeepFor = &keep
	}
	text, err := m.out.Manifest()
	if err != nil {
		return usageError{err}
	}
	for _, w := range m.out.Warnings() {
		fmt.Fprintln(stderr, "gorun: warning:", w)
	}
	if _, err := stdout.Write(text); err != nil || m.newKey {
		return err
	}
	in := ""
	if m.out.Namespace != "" {
		in = " -n " + m.out.Namespace
	}
	fmt.Fprintf(stderr, "gorun: the pods need the Secret %s; if there is none yet: head -c %d /dev/urandom | base64 | "+
		"kubectl create secret generic %s%s --from-file=key=/dev/stdin\n", m.out.Secret, auth.KeySize, m.out.Secret, in)
	return nil
}

// parseUser reads UID or UID:GID.
func parseUser(text string) (k8s.Account, error) {
	uid, gid, both := strings.Cut(text, ":")
	if !both {
		gid = uid
	}
	u, errU := strconv.ParseInt(uid, 10, 64)
	g, errG := strconv.ParseInt(gid, 10, 64)
	if errU != nil || errG != nil {
		return k8s.Account{}, fmt.Errorf("--user %q: use numbers, UID or UID:GID, for example 65532", text)
	}
	return k8s.Account{User: u, Group: g}, nil
}

// devices collects --rdma NAME=COUNT.
type devices []k8s.Device

func (d *devices) Set(text string) error {
	name, number, has := strings.Cut(text, "=")
	n, err := strconv.Atoi(number)
	if !has {
		n, err = 1, nil
	}
	if err != nil || name == "" {
		return errors.New("use the resource of a device plugin and how many of it, such as rdma/hca=1")
	}
	*d = append(*d, k8s.Device{Name: name, Count: n})
	return nil
}
func (d *devices) String() string { return "" }
func (d *devices) Type() string   { return "RESOURCE=N" }
