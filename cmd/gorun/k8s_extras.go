package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/gorun-mpi/mpi/internal/k8s"
)

// registerExtras registers the flags of what pods need not have.
func (m *manifestFlags) registerExtras(f *pflag.FlagSet) {
	each := func(name, kind, usage string, add func(text string) error) {
		f.Var(repeated{kind, add}, name, usage+"; may be repeated")
	}
	each("image-pull-secret", "NAME", "a Secret for the registry of the image", func(text string) error {
		m.out.PullSecrets = append(m.out.PullSecrets, text)
		return nil
	})
	each("node-selector", "LABEL=VALUE", "a label of the nodes that pods may be on", func(text string) error {
		label, value, ok := strings.Cut(text, "=")
		if !ok {
			return errors.New("write LABEL=VALUE")
		}
		if m.out.Selector == nil {
			m.out.Selector = map[string]string{}
		}
		m.out.Selector[label] = value
		return nil
	})
	each("toleration", "KEY=VALUE:EFFECT", "a taint of nodes that pods may be on all the same", func(text string) error {
		return added(&m.out.Tolerations, k8s.ParseToleration, text)
	})
	each("volume", "CLAIM:/PATH[:ro]", "a PersistentVolumeClaim that all pods have in this folder, for results",
		func(text string) error { return added(&m.out.Claims, k8s.ParseClaim, text) })
	each("env-secret", "NAME=SECRET/KEY", "a variable from a Secret; SECRET alone: all of its keys",
		func(text string) error { return added(&m.out.Variables, k8s.ParseVariable, text) })
	f.BoolVar(&m.out.Spread, "one-per-node", false, "each pod has a node that no other pod of the job is on")
	f.Var(&m.keep, "keep", "delete the Job this `TIME` after its end (default: it stays)")
	f.StringVar(&m.out.Queue, "queue", "", "the local queue of Kueue, of this `NAME`, that the Job waits in")
}

// added appends what a text says.
func added[T any](to *[]T, parse func(string) (T, error), text string) error {
	one, err := parse(text)
	if err == nil {
		*to = append(*to, one)
	}
	return err
}

// repeated is a flag that may be given several times.
type repeated struct {
	kind string
	add  func(text string) error
}

func (r repeated) Set(text string) error { return r.add(text) }
func (r repeated) String() string        { return "" }
func (r repeated) Type() string          { return r.kind }

// ofThisHost are variables whose values mean something where the manifest is written, and not in a pod.
var ofThisHost = []string{"HOME", "PATH", "PWD", "USER", "LOGNAME", "SHELL", "TMPDIR", "HOSTNAME", "LD_LIBRARY_PATH",
	"GOPATH", "GOROOT", "XDG_RUNTIME_DIR", "SSH_AUTH_SOCK", "KUBECONFIG"}

// warnOfVariables warns of -x NAME whose value is of this host, and of values that should stand in no manifest.
func warnOfVariables(list []string, stderr io.Writer) {
	for _, kv := range list {
		name, value, given := strings.Cut(kv, "=")
		upper := strings.ToUpper(name)
		secret := slices.ContainsFunc([]string{"SECRET", "PASSWORD", "PASSWD", "TOKEN", "CREDENTIAL", "_KEY", "APIKEY"},
			func(s string) bool { return strings.Contains(upper, s) }) || upper == "KEY"
		switch {
		case !given && slices.Contains(ofThisHost, name):
			fmt.Fprintf(stderr, "gorun: warning: -x %s: the pods get the value of this host; leave it out for the value of the "+
				"image, or write -x %s=VALUE\n", name, name)
		case secret && (value != "" || !given):
			fmt.Fprintf(stderr, "gorun: warning: -x %s: its value stands in the manifest and in kubectl describe, for all who "+
				"may read them; --env-secret %s=SECRET/KEY takes it from a Secret\n", name, name)
		}
	}
}
