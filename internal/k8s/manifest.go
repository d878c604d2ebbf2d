package k8s

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Job is what a manifest is made of.
type Job struct {
	Name        string // of the Job and the Service; the pods are called Name-0, Name-1, ...
	Namespace   string // "": that of kubectl's context
	Image       string
	Command     []string // of each pod, word for word
	Pods        int
	CPUs        int      // that a pod asks for
	Bound       bool     // ranks are bound to CPUs, so that a pod is limited to those that it asks for
	Memory      string   // that a pod asks for and is limited to, as 4Gi; "": neither
	Shm         string   // the most that a pod may keep in /dev/shm
	Devices     []Device // for RDMA; with any, root asks for IPC_LOCK, which reaches no other user
	HostNetwork bool     // the pods have the network of their nodes
	User        Account
	Port        int               // on which the pod with index 0 is dialled
	Secret      string            // that has the key
	Key         []byte            // the key itself, so that the Secret is part of the manifest; nil: it exists
	PullSecrets []string          // for the registry of the image
	Selector    map[string]string // labels of the nodes that pods may be on
	Tolerations []Toleration
	Spread      bool // one pod on each node
	Claims      []Claim
	Variables   []Variable
	Again       int    // how often the pod of an index may be made again when it has failed
	AgainCode   int    // the exit code, below 128, of a pod that wants that
	KeepFor     *int   // seconds that the Job stays when it has finished; nil: until it is deleted
	Queue       string // of Kueue; "": none
}

// Device is a resource that a device plugin offers, as rdma/hca, and how many of it a pod gets.
type Device struct {
	Name  string
	Count int
}

// Account is what the processes of a pod run as.
type Account struct{ User, Group int64 }

const (
	// KeyFile is where a pod has the key of the job, in base64.
	KeyFile = keyDir + "/" + keyName
	// MaxPods is the most that the API server lets an Indexed Job run at once.
	MaxPods = 100_000

	keyDir    = "/etc/gorun"
	keyName   = "key" // in the Secret, too
	keyMode   = 0o400
	nameLabel = "app.kubernetes.io/name"
	jobLabel  = "app.kubernetes.io/instance"
	// queueLabel is Kueue's, and of others that know it.
	queueLabel = "kueue.x-k8s.io/queue-name"
)

// Manifest returns a List with the Service, the Job and, if Key is set, the Secret.
func (j *Job) Manifest() ([]byte, error) {
	if err := j.check(); err != nil {
		return nil, err
	}
	l := list{APIVersion: "v1", Kind: "List"}
	if j.Key != nil {
		l.Items = append(l.Items, j.secret())
	}
	l.Items = append(l.Items, j.service(), j.job())
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(l)
	return out.Bytes(), err
}

// Host returns the name of a pod, which is also the name of its host.
func Host(job string, index int) string { return job + "-" + strconv.Itoa(index) }

// Address is the name by which the pods of a job find the one with this index.
func Address(job string, index int) string { return Host(job, index) + "." + job }

func (j *Job) labels() map[string]string {
	return map[string]string{nameLabel: "gorun", jobLabel: j.Name}
}

func (j *Job) meta(name string) meta {
	return meta{Name: name, Namespace: j.Namespace, Labels: j.labels()}
}

func (j *Job) secret() secret {
	text := base64.StdEncoding.EncodeToString(j.Key)
	return secret{APIVersion: "v1", Kind: "Secret", Metadata: j.meta(j.Secret), Immutable: true, Type: "Opaque",
		StringData: map[string]string{keyName: text}}
}

// service has no address of its own. The pods have names in it from the moment that they have addresses: none of them
// has a probe that would make it ready.
func (j *Job) service() service {
	return service{APIVersion: "v1", Kind: "Service", Metadata: j.meta(j.Name), Spec: serviceSpec{ClusterIP: "None",
		PublishNotReadyAddresses: true, Selector: j.labels(), Ports: []servicePort{{"gorun", j.Port}}}}
}

// job has a pod for each index, all at once. A pod that fails is not replaced, unless its ranks may start again.
func (j *Job) job() batchJob {
	m := j.meta(j.Name)
	if j.Queue != "" {
		m.Labels[queueLabel] = j.Queue
	}
	spec := jobSpec{
		CompletionMode: "Indexed", Completions: j.Pods, Parallelism: j.Pods, KeepFor: j.KeepFor,
		Template: template{Metadata: meta{Labels: j.labels()}, Spec: j.pod()},
	}
	if j.Again > 0 {
		spec.readmit(j.Again, j.AgainCode)
	} else {
		spec.BackoffLimit = new(int)
	}
	return batchJob{APIVersion: "batch/v1", Kind: "Job", Metadata: m, Spec: spec}
}

// pod is what the profile "restricted" of Pod Security allows, unless there are devices or HostNetwork.
//
// The kubelet gives the files of a Secret to root, and with fsGroup to that group, which it lets read them whatever
// their mode. Without fsGroup only root could read the key.
func (j *Job) pod() podSpec {
	p := podSpec{
		Subdomain: j.Name, RestartPolicy: "Never",
		SecurityContext: podSecurity{RunAsNonRoot: j.User.User != 0, RunAsUser: j.User.User, RunAsGroup: j.User.Group,
			FSGroup: j.User.Group, SeccompProfile: seccompProfile{"RuntimeDefault"}},
		Containers: []container{j.container()},
		Volumes: []volume{
			{Name: "key", Secret: &secretVolume{j.Secret, keyMode, []keyPath{{keyName, keyName}}}},
			{Name: "shm", EmptyDir: &emptyDir{"Memory", j.Shm}},
		},
	}
	if j.HostNetwork {
		p.HostNetwork, p.DNSPolicy = true, "ClusterFirstWithHostNet" // else the names of pods are not known there
	}
	j.extras(&p)
	if j.Again > 0 {
		c := &p.Containers[0]
		c.Env = append(c.Env, failuresVariable())
	}
	return p
}

func (j *Job) container() container {
	c := container{
		Name: "gorun", Image: j.Image, Ports: []containerPort{{"gorun", j.Port}},
		Resources:       resources{Requests: map[string]string{"cpu": strconv.Itoa(j.CPUs)}},
		SecurityContext: containerSecurity{Capabilities: capabilities{Drop: []string{"ALL"}}},
		VolumeMounts:    []mount{{"key", keyDir, true}, {"shm", "/dev/shm", false}},
	}
	for _, word := range j.Command {
		c.Command = append(c.Command, literal(word))
	}
	limits := map[string]string{}
	if j.Bound {
		limits["cpu"] = strconv.Itoa(j.CPUs)
	}
	if j.Memory != "" {
		c.Resources.Requests["memory"], limits["memory"] = j.Memory, j.Memory
	}
	for _, d := range j.Devices {
		limits[d.Name] = strconv.Itoa(d.Count)
		c.Resources.Requests[d.Name] = strconv.Itoa(d.Count)
	}
	if len(limits) > 0 {
		c.Resources.Limits = limits
	}
	if len(j.Devices) > 0 && j.User.User == 0 {
		c.SecurityContext.Capabilities.Add = []string{"IPC_LOCK"}
	}
	return c
}

// literal protects a word from the kubelet, which replaces $(NAME) and makes one $ of two.
func literal(word string) string { return strings.ReplaceAll(word, "$", "$$") }

func (j *Job) check() error {
	if err := j.checkNames(); err != nil {
		return err
	}
	switch {
	case j.Image == "":
		return errors.New("no image is named: --image REGISTRY/NAME:TAG, which has gorun and the program")
	case strings.ContainsFunc(j.Image, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return fmt.Errorf("the image %q: a name has no spaces", j.Image)
	case j.Pods < 1 || j.Pods > MaxPods:
		return fmt.Errorf("%d pods: a Job runs 1 to %d at once", j.Pods, MaxPods)
	case j.CPUs < 1:
		return fmt.Errorf("%d CPUs for a pod: it needs 1 or more", j.CPUs)
	case j.Port < 1024 || j.Port > 65535:
		return fmt.Errorf("port %d: use 1024 to 65535, which need no privilege", j.Port)
	case j.User.User < 0 || j.User.Group < 0 || j.User.User > maxID || j.User.Group > maxID:
		return fmt.Errorf("user %d, group %d: use numbers from 0 to %d", j.User.User, j.User.Group, maxID)
	case j.User.User == 0 && len(j.Devices) == 0:
		return errors.New("user 0 is root, which no job needs: use another, such as 65532 (with --rdma it is " +
			"allowed, since IPC_LOCK reaches no other user)")
	}
	for _, word := range j.Command {
		if !utf8.ValidString(word) || strings.ContainsRune(word, 0) {
			return fmt.Errorf("the word %q: a manifest holds text in UTF-8 only", word)
		}
	}
	if err := checkSize("--shm", j.Shm); err != nil {
		return err
	}
	if j.Memory != "" {
		if err := checkSize("--memory", j.Memory); err != nil {
			return err
		}
	}
	if err := j.checkExtras(); err != nil {
		return err
	}
	return j.checkDevices()
}

const maxID = 1<<31 - 1

func (j *Job) checkDevices() error {
	seen := map[string]bool{}
	for _, d := range j.Devices {
		domain, name, _ := strings.Cut(d.Name, "/")
		switch {
		case !isSubdomain(domain) || !isQualified(name):
			return fmt.Errorf("the resource %q: a device plugin offers it as DOMAIN/NAME, for example rdma/hca", d.Name)
		case d.Count < 1:
			return fmt.Errorf("%d of the resource %s: a pod gets 1 or more", d.Count, d.Name)
		case seen[d.Name]:
			return fmt.Errorf("the resource %s is asked for twice: give one number for it", d.Name)
		}
		seen[d.Name] = true
	}
	return nil
}

func (j *Job) checkNames() error {
	last := Host(j.Name, max(j.Pods, 1)-1)
	switch {
	case !isLabel(j.Name) || j.Name[0] < 'a' || j.Name[0] > 'z':
		return fmt.Errorf("the name %q: it becomes one of DNS, so use up to %d lower-case letters, digits and -, of "+
			"which the first is a letter and the last is not -", j.Name, maxLabel)
	case len(last) > maxLabel:
		return fmt.Errorf("the name %s is too long: the last pod is called %s, and names of hosts have at most %d "+
			"characters", j.Name, last, maxLabel)
	case j.Namespace != "" && !isLabel(j.Namespace):
		return fmt.Errorf("the namespace %q: use lower-case letters, digits and -", j.Namespace)
	case !isSubdomain(j.Secret):
		return fmt.Errorf("the Secret %q: its name has lower-case letters, digits, - and dots", j.Secret)
	}
	return nil
}
