package k8s

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Claim is a volume that exists, and where a pod has it: for what a job reads and writes.
type Claim struct {
	Name     string // of the PersistentVolumeClaim
	Path     string
	ReadOnly bool
}

// Variable is taken from a Secret.
type Variable struct {
	Name   string // "": all keys of the Secret are variables
	Secret string
	Key    string
}

// Toleration lets pods run on nodes with a taint.
type Toleration struct {
	Key    string // "": any
	Value  string // "": any
	Effect string // "": any
}

// effects are those that a taint may have.
var effects = []string{"NoSchedule", "PreferNoSchedule", "NoExecute"}

// ParseToleration reads KEY=VALUE:EFFECT, as kubectl taint has it; VALUE and EFFECT may be left out.
func ParseToleration(text string) (Toleration, error) {
	rest, effect, has := strings.Cut(text, ":")
	key, value, _ := strings.Cut(rest, "=")
	if key == "" || has && !slices.Contains(effects, effect) {
		return Toleration{}, fmt.Errorf("%q: write KEY=VALUE:EFFECT, of which =VALUE and :EFFECT may be left out; an effect "+
			"is one of %s", text, strings.Join(effects, ", "))
	}
	return Toleration{key, value, effect}, nil
}

// ParseClaim reads CLAIM:PATH or CLAIM:PATH:ro.
func ParseClaim(text string) (Claim, error) {
	name, path, _ := strings.Cut(text, ":")
	path, readOnly := strings.CutSuffix(path, ":ro")
	if name == "" || !strings.HasPrefix(path, "/") {
		return Claim{}, fmt.Errorf("%q: write CLAIM:/PATH, or CLAIM:/PATH:ro where nothing is written", text)
	}
	return Claim{name, path, readOnly}, nil
}

// ParseVariable reads NAME=SECRET/KEY, or SECRET for all of its keys.
func ParseVariable(text string) (Variable, error) {
	name, from, one := strings.Cut(text, "=")
	if !one {
		return Variable{Secret: text}, nil
	}
	secret, key, has := strings.Cut(from, "/")
	if name == "" || !has || key == "" {
		return Variable{}, fmt.Errorf("%q: write NAME=SECRET/KEY, or SECRET for all of its keys", text)
	}
	return Variable{name, secret, key}, nil
}

// checkExtras checks what a pod need not have.
func (j *Job) checkExtras() error {
	for _, name := range j.PullSecrets {
		if !isSubdomain(name) {
			return fmt.Errorf("the Secret %q for images: its name has lower-case letters, digits, - and dots", name)
		}
	}
	for key, value := range j.Selector {
		if !isLabelKey(key) || value != "" && !isQualified(value) {
			return fmt.Errorf("the label %s=%s of nodes: write it like node-pool=hpc or example.com/net=ib", key, value)
		}
	}
	for _, t := range j.Tolerations {
		if !isLabelKey(t.Key) || t.Value != "" && !isQualified(t.Value) {
			return fmt.Errorf("the taint %s=%s of nodes: write it like dedicated=hpc:NoSchedule", t.Key, t.Value)
		}
	}
	paths := map[string]bool{keyDir: true, "/dev/shm": true}
	for _, c := range j.Claims {
		switch {
		case !isSubdomain(c.Name):
			return fmt.Errorf("the claim %q: its name has lower-case letters, digits, - and dots", c.Name)
		case paths[c.Path]:
			return fmt.Errorf("the volume at %s: there is another one, choose another path", c.Path)
		case strings.Contains(c.Path, ":"):
			return fmt.Errorf("the volume at %s: a path has no colon", c.Path)
		}
		paths[c.Path] = true
	}
	for _, v := range j.Variables {
		if !isSubdomain(v.Secret) {
			return fmt.Errorf("the Secret %q for variables: its name has lower-case letters, digits, - and dots", v.Secret)
		}
		if v.Name != "" && !isWord(v.Key, letterOrDigit, "-_.", maxSubdomain) {
			return fmt.Errorf("the key %q of the Secret %s: it has letters, digits, -, _ and dots", v.Key, v.Secret)
		}
		if strings.ContainsAny(v.Name, " =\t\n") {
			return fmt.Errorf("the variable %q: a name has no blank and no =", v.Name)
		}
	}
	switch {
	case j.KeepFor != nil && *j.KeepFor < 0:
		return errors.New("a finished job is kept for 0 seconds or more")
	case j.Queue != "" && !isQualified(j.Queue):
		return fmt.Errorf("the queue %q: use letters, digits, -, _ and dots", j.Queue)
	}
	return nil
}

// isLabelKey reports whether s is NAME or DOMAIN/NAME.
func isLabelKey(s string) bool {
	domain, name, has := strings.Cut(s, "/")
	if !has {
		return isQualified(s)
	}
	return isSubdomain(domain) && isQualified(name)
}

// Warnings are about what is allowed, and does perhaps not what is meant.
func (j *Job) Warnings() (all []string) {
	if j.Bound && j.Memory == "" {
		all = append(all, "--bind-to without --memory: the kubelet gives CPUs for themselves to Guaranteed pods only, whose "+
			"memory is limited too; name it, as in --memory 4Gi, else ranks are bound to CPUs that other pods use as well")
	}
	if len(j.Devices) > 0 && j.User.User == 0 {
		all = append(all, "--rdma with --user 0: the pods run as root with IPC_LOCK, so that they may lock memory; the "+
			"namespace must take privileged pods")
	}
	if len(j.Devices) > 0 && j.User.User != 0 {
		all = append(all, "--rdma: IPC_LOCK reaches no user but root, so it is not asked for; lift the limit of locked memory "+
			"on the nodes (docs/rdma-node.md), or use --user 0")
	}
	if j.Memory != "" && bytesOf(j.Shm) > bytesOf(j.Memory) {
		all = append(all, fmt.Sprintf("/dev/shm may become %s, and the pod has %s of memory, which it is part of: a pod that "+
			"fills it is killed; use a smaller --shm or more --memory", j.Shm, j.Memory))
	}
	return all
}

// affinity keeps the pods of a job on nodes of their own.
func (j *Job) affinity() *affinity {
	if !j.Spread {
		return nil
	}
	return &affinity{podAntiAffinity{[]podAffinityTerm{{labelSelector{j.labels()}, "kubernetes.io/hostname"}}}}
}

// extras adds to a pod and its container what they need not have.
func (j *Job) extras(p *podSpec) {
	c := &p.Containers[0]
	for _, name := range j.PullSecrets {
		p.ImagePullSecrets = append(p.ImagePullSecrets, reference{name})
	}
	p.NodeSelector, p.Affinity = j.Selector, j.affinity()
	for _, t := range j.Tolerations {
		operator := "Equal"
		if t.Value == "" {
			operator = "Exists"
		}
		p.Tolerations = append(p.Tolerations, toleration{t.Key, operator, t.Value, t.Effect})
	}
	for i, v := range j.Claims {
		name := fmt.Sprintf("volume-%d", i)
		p.Volumes = append(p.Volumes, volume{Name: name, Claim: &claimVolume{v.Name, v.ReadOnly}})
		c.VolumeMounts = append(c.VolumeMounts, mount{name, v.Path, v.ReadOnly})
	}
	for _, v := range j.Variables {
		if v.Name == "" {
			c.EnvFrom = append(c.EnvFrom, envFrom{reference{v.Secret}})
			continue
		}
		c.Env = append(c.Env, envVar{v.Name, valueFrom{SecretKeyRef: &keyRef{v.Secret, v.Key}}})
	}
}
