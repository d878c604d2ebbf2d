package main

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/auth"
)

// called is what gorun does in this process.
type called struct {
	out, err string
	code     int
}

func call(t *testing.T, args ...string) (c called) {
	t.Helper()
	var files [2]*os.File
	for i := range files {
		f, err := os.Create(filepath.Join(t.TempDir(), "stream"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files[i] = f
	}
	c.code = run(args, os.Stdin, files[0], files[1])
	for i, text := range []*string{&c.out, &c.err} {
		b, err := os.ReadFile(files[i].Name())
		if err != nil {
			t.Fatal(err)
		}
		*text = string(b)
	}
	return c
}

// manifests are the command lines of the golden files, which make k8s has the API server's validation judge.
var manifests = map[string][]string{
	"least": {"--image", "registry.example/heat:1", "/heat"},
	"ranks": {"--image", "heat", "--name", "wide", "-n", "7", "-ppn", "2", "--map-by", "node", "-l", "/bin/heat",
		"-n", "3"},
	"one":    {"--image", "heat", "--name", "one", "--pods", "1", "-n", "16", "--bind-to", "core", "/heat"},
	"shares": {"--image", "heat", "--pods", "3", "-n", "4", "--map-by", "slot:PE=2", "/opt/My_Program.v2"},
	"words": {"--image", "h@sha256:" + strings.Repeat("0", 64), "--name", "w", "-x", "A=$(PATH) $$ $HOME", "-x",
		"FROM_HERE", "-wdir", "/tmp/a b", "--", "sh", "-c", `echo "<&>" $(hostname) $$ ü`, ":", "--image", ""},
	"mpmd": {"--image", "x", "--namespace", "lab", "-n", "1", "-genv", "A", "1", "/bin/master", "a", ":",
		"-n", "3", "-x", "B=2", "-wdir", "/work", "/bin/worker", "b", ":", "--", "/bin/last", ":", "c"},
	"rdma": {"--image", "x", "--name", "r", "-ppn", "8", "--pods", "2", "--rdma", "rdma/hca", "--rdma",
		"openshift.io/mlnx_2=2", "--host-network",
		"--memory", "64Gi", "--shm", "8Gi", "--cpus", "12", "--user", "0", "--gorun", "/opt/gorun", "/prog"},
	"site": {"--image", "x", "--name", "site", "--pods", "2", "-n", "8", "--bind-to", "core", "--memory", "4Gi",
		"--shm", "1Gi", "--image-pull-secret", "registry", "--node-selector", "example.com/net=ib", "--node-selector", "pool=",
		"--toleration", "dedicated=hpc:NoSchedule", "--toleration", "gpu", "--volume", "results:/out", "--volume",
		"input:/in:ro", "--env-secret", "TOKEN=team/token", "--env-secret", "others", "--keep", "1h", "--one-per-node",
		"--queue", "lab", "/prog"},
	"again": {"--image", "x", "--name", "again", "-n", "8", "--ppn", "4", "--respawn", "3", "--env-secret",
		"TOKEN=team/token", "/prog"},
	"all": {"--image", "x", "--name", "all", "--secret", "of.the.team", "--port", "2345", "--user", "1000:100",
		"--memory", "512Mi", "--host-timeout", "90", "--timeout", "1h", "--kill-delay", "5", "--output-dir", "/out",
		"--bind-to", "none",
		"--report-bindings", "--display-map", "--rank-by", "node", "-np", "2", "/prog"},
}

// A manifest says the same whenever and wherever it is written.
func TestManifests(t *testing.T) {
	t.Setenv("FROM_HERE", "here")
	for name, args := range manifests {
		t.Run(name, func(t *testing.T) {
			c := call(t, append([]string{"k8s", "manifest"}, args...)...)
			if c.code != 0 || !strings.Contains(c.err, "kubectl create secret generic ") {
				t.Fatalf("exit code %d\n%s", c.code, c.err)
			}
			golden(t, filepath.Join("k8s", name+".json"), []byte(c.out))
		})
	}
}

// With --new-key the manifest has a Secret, with a key that is another each time.
func TestNewKey(t *testing.T) {
	seen := map[string]bool{}
	for range 3 {
		c := call(t, "k8s", "manifest", "--image", "x", "--new-key", "/prog")
		var l struct {
			Items []struct {
				Kind       string
				Metadata   struct{ Name string }
				StringData map[string]string
			}
		}
		if err := json.Unmarshal([]byte(c.out), &l); err != nil || len(l.Items) != 3 || c.err != "" {
			t.Fatalf("%v %s\n%s", err, c.err, c.out)
		}
		s := l.Items[0]
		key, err := base64.StdEncoding.DecodeString(s.StringData["key"])
		if err != nil || len(key) != auth.KeySize || s.Kind != "Secret" || s.Metadata.Name != "prog-key" ||
			seen[string(key)] {
			t.Errorf("%v %v", err, s)
		}
		seen[string(key)] = true
		fixed := base64.StdEncoding.EncodeToString(make([]byte, auth.KeySize))
		golden(t, filepath.Join("k8s", "secret.json"), []byte(strings.ReplaceAll(c.out, s.StringData["key"], fixed)))
	}
}

func TestManifestsThatCannotBe(t *testing.T) {
	long := strings.Repeat("a", 62)
	for want, args := range map[string][]string{
		"no image is named: --image":                        {"/prog"},
		"a name has no spaces":                              {"--image", "a b", "/prog"},
		"no program is named":                               {"--image", "x"},
		"there is no flag --imgae; did you mean --image?":   {"--imgae", "x", "/prog"},
		"no name can be made of ./123: use --name":          {"--image", "x", "./123"},
		"it becomes one of DNS":                             {"--image", "x", "--name", "Heat", "/prog"},
		"the last pod is called " + long + "-0":             {"--image", "x", "--name", long, "/prog"},
		"the namespace \"a.b\"":                             {"--image", "x", "--namespace", "a.b", "/prog"},
		"the Secret \"A\"":                                  {"--image", "x", "--secret", "A", "/prog"},
		"port 80: use 1024":                                 {"--image", "x", "--port", "80", "/prog"},
		"--shm \"100m\": use a size":                        {"--image", "x", "--shm", "100m", "/prog"},
		"--memory 99999999999Ti: that is more":              {"--image", "x", "--memory", "99999999999Ti", "/prog"},
		"user 0 is root":                                    {"--image", "x", "--user", "0", "/prog"},
		"--user \"me\": use numbers":                        {"--image", "x", "--user", "me", "/prog"},
		"the resource \"hca\": a device plugin":             {"--image", "x", "--rdma", "hca=1", "/prog"},
		"is asked for twice":                                {"--image", "x", "--rdma", "a/b=1", "--rdma", "a/b", "/p"},
		"use the resource of a device plugin and how many":  {"--image", "x", "--rdma", "a/b=x", "/prog"},
		"0 of the resource a/b":                             {"--image", "x", "--rdma", "a/b=0", "/prog"},
		"1 of the 3 pods would get no rank":                 {"--image", "x", "--pods", "3", "-n", "2", "/prog"},
		"with 2 on each host need 4 hosts":                  {"--image", "x", "--pods", "3", "-n", "7", "-ppn=2", "p"},
		"a Job runs 100000 at most":                         {"--image", "x", "--pods", "100001", "/prog"},
		"a job has 1 to":                                    {"--image", "x", "--pods", "2", "-n", "999999999", "/prog"},
		"--host: the pods are the hosts":                    {"--image", "x", "-H", "a", "/prog"},
		"--hostfile: the pods are the hosts":                {"--image", "x", "-machinefile", "f", "/prog"},
		"--dry-run: a manifest starts nothing":              {"--image", "x", "--dry-run", "/prog"},
		"write KEY=VALUE:EFFECT":                            {"--image", "x", "--toleration", "a=b:Never", "/prog"},
		"write LABEL=VALUE":                                 {"--image", "x", "--node-selector", "a", "/prog"},
		"the label a b=c of nodes":                          {"--image", "x", "--node-selector", "a b=c", "/prog"},
		"write CLAIM:/PATH":                                 {"--image", "x", "--volume", "a", "/prog"},
		"there is another one":                              {"--image", "x", "--volume", "a:/dev/shm", "/prog"},
		"write NAME=SECRET/KEY":                             {"--image", "x", "--env-secret", "A=b", "/prog"},
		`the Secret "DB" for variables: its name has lower`: {"--image", "x", "--env-secret", "DB", "/prog"},
		`the key "b c" of the Secret a`:                     {"--image", "x", "--env-secret", "A=a/b c", "/prog"},
		"the queue \"a b\"":                                 {"--image", "x", "--queue", "a b", "/prog"},
		"the Secret \"A_\" for images":                      {"--image", "x", "--image-pull-secret", "A_", "/prog"},
		"a manifest holds text in UTF-8 only":               {"--image", "x", "/prog", "\xff"},
		"gorun k8s manifest writes a manifest":              nil,
	} {
		words := []string{"k8s", "manifest"}
		if args == nil {
			words = words[:1]
		}
		c := call(t, append(words, args...)...)
		if c.code != 2 || c.out != "" || !strings.Contains(c.err, want) ||
			!strings.Contains(c.err, "Run '"+strings.Join(append([]string{"gorun"}, words...), " ")+" --help'") {
			t.Errorf("%q: exit code %d, want 2 and %q:\n%s%s", args, c.code, want, c.err, c.out)
		}
	}
	c := call(t, "k8s", "manifest", "--image", "x", "-x", "NOT_SET_HERE", "/prog")
	if c.code != 0 || !strings.Contains(c.err, "warning: -x NOT_SET_HERE: the variable is not set here") {
		t.Errorf("exit code %d\n%s", c.code, c.err)
	}
	c = call(t, "k8s", "manifest", "--help")
	if c.code != 0 || !strings.Contains(c.out, "--rdma RESOURCE=N") || strings.Contains(c.out, "--launch-agent") {
		t.Errorf("exit code %d\n%s", c.code, c.out)
	}
	if lines := slices.Collect(strings.Lines(c.out)); len(lines) < 20 {
		t.Errorf("the help is\n%s", c.out)
	}
}

// The commands of the page about Kubernetes are understood.
func TestCommandsOnTheKubernetesPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for line := range strings.Lines(string(page)) {
		command, ok := strings.CutPrefix(line, "    gorun k8s manifest ")
		if !ok {
			continue
		}
		found++
		command, _, _ = strings.Cut(command, "|")
		if c := call(t, append([]string{"k8s", "manifest"}, strings.Fields(command)...)...); c.code != 0 {
			t.Errorf("gorun k8s manifest %s: exit code %d\n%s", command, c.code, c.err)
		}
	}
	if found < 4 {
		t.Errorf("%d commands found", found)
	}
}

// What is allowed and does perhaps not what is meant is said.
func TestManifestWarnings(t *testing.T) {
	t.Setenv("MY_TOKEN", "t0ken")
	for _, c := range []struct {
		args []string
		want string // "": no warning
	}{
		{nil, ""},
		{[]string{"-x", "GORUN_LOG=info", "-x", "LANG", "-x", "HOME=/tmp"}, ""},
		{[]string{"-x", "HOME"}, "-x HOME: the pods get the value of this host"},
		{[]string{"-x", "API_KEY=1234"}, "--env-secret API_KEY=SECRET/KEY"},
		{[]string{"-x", "MY_TOKEN"}, "-x MY_TOKEN: its value stands in the manifest"},
		{[]string{"--shm", "2Gi", "--memory", "1Gi"}, "/dev/shm may become 2Gi, and the pod has 1Gi of memory"},
		{[]string{"--shm", "1Gi", "--memory", "1Gi"}, ""},
		{[]string{"--bind-to", "core"}, "Guaranteed pods only"},
		{[]string{"--bind-to", "core", "--memory", "1Gi"}, ""},
		{[]string{"--rdma", "rdma/hca"}, "IPC_LOCK reaches no user but root"},
		{[]string{"--rdma", "rdma/hca", "--user", "0"}, "run as root with IPC_LOCK"},
	} {
		got := call(t, append(append([]string{"k8s", "manifest", "--image", "x"}, c.args...), "/prog")...)
		if got.code != 0 || strings.Contains(got.err, "warning") != (c.want != "") || !strings.Contains(got.err, c.want) {
			t.Errorf("%q: %d, %q; want %q", c.args, got.code, got.err, c.want)
		}
	}
}
