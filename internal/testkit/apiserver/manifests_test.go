package apiserver

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/batch"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	corev1conversion "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/registry/batch/job"
	"k8s.io/kubernetes/pkg/registry/core/secret"
	"k8s.io/kubernetes/pkg/registry/core/service"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

const manifests = "../../../cmd/gorun/testdata/k8s"

// codecs refuse fields that do not exist, or that are there twice.
var codecs = serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict)

// items are the objects of a List.
func items(text []byte) (all []json.RawMessage, err error) {
	var l struct {
		APIVersion, Kind string
		Items            []json.RawMessage
	}
	if err := json.Unmarshal(text, &l); err != nil {
		return nil, err
	}
	if l.APIVersion != "v1" || l.Kind != "List" {
		return nil, fmt.Errorf("%s %s is no List", l.APIVersion, l.Kind)
	}
	return l.Items, nil
}

// create does with an object what the API server does before it stores one.
func create(text []byte) (runtime.Object, error) {
	object, _, err := codecs.UniversalDecoder().Decode(text, nil, nil)
	if err != nil {
		return nil, err
	}
	var strategy rest.RESTCreateStrategy
	namespace := "default"
	switch o := object.(type) {
	case *batch.Job:
		strategy = job.Strategy
		namespace = o.Namespace
	case *core.Service:
		strategy = service.Strategy
		o.Spec.ClusterIPs = []string{o.Spec.ClusterIP} // the storage of Services does that, in a function of its own
		namespace = o.Namespace
	case *core.Secret:
		strategy = secret.Strategy
		namespace = o.Namespace
	default:
		return nil, fmt.Errorf("a %T is none of a job's objects", object)
	}
	if namespace == "" {
		namespace = "default"
	}
	meta, err := apimeta.Accessor(object)
	if err != nil {
		return nil, err
	}
	rest.FillObjectMetaSystemFields(meta)
	ctx := genericapirequest.WithNamespace(genericapirequest.NewContext(), namespace)
	if err := rest.BeforeCreate(strategy, ctx, object); err != nil {
		return nil, err
	}
	if said := strategy.WarningsOnCreate(ctx, object); len(said) > 0 {
		return nil, fmt.Errorf("it warns: %s", strings.Join(said, "; "))
	}
	return object, nil
}

// manifest creates all objects of a file.
func manifest(t *testing.T, file string) (j *batch.Job, s *core.Service) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all, err := items(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		object, err := create(one)
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		switch o := object.(type) {
		case *batch.Job:
			j = o
		case *core.Service:
			s = o
		}
	}
	if j == nil || s == nil {
		t.Fatalf("%s has no Job or no Service", file)
	}
	return j, s
}

// pod is the template of a Job in the version of the API.
func pod(t *testing.T, j *batch.Job) (metav1.ObjectMeta, corev1.PodSpec) {
	t.Helper()
	var p corev1.PodSpec
	if err := corev1conversion.Convert_core_PodSpec_To_v1_PodSpec(&j.Spec.Template.Spec, &p, nil); err != nil {
		t.Fatal(err)
	}
	return j.Spec.Template.ObjectMeta, p
}

// profile is the strictest of Pod Security that a pod keeps to, and what keeps it from a stricter one.
func profile(t *testing.T, j *batch.Job) (level api.Level, why []string) {
	t.Helper()
	judge, err := policy.NewEvaluator(policy.DefaultChecks())
	if err != nil {
		t.Fatal(err)
	}
	meta, spec := pod(t, j)
	for _, level := range []api.Level{api.LevelRestricted, api.LevelBaseline} {
		at := api.LevelVersion{Level: level, Version: api.LatestVersion()}
		r := policy.AggregateCheckResults(judge.EvaluatePod(at, &meta, &spec))
		if r.Allowed {
			return level, why
		}
		why = append(why, r.ForbiddenDetail())
	}
	return api.LevelPrivileged, why
}

// Every manifest is one that the API server takes, and its pods find each other.
func TestManifests(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(manifests, "*.json"))
	if err != nil || len(files) < 5 {
		t.Fatalf("%d files in %s: %v", len(files), manifests, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			j, s := manifest(t, file)
			spec := j.Spec.Template.Spec
			for name, value := range s.Spec.Selector {
				if has := j.Spec.Template.Labels[name]; has != value {
					t.Errorf("the Service selects %s=%s, and the pods have %q", name, value, has)
				}
			}
			if s.Spec.ClusterIP != core.ClusterIPNone || spec.Subdomain != s.Name || !s.Spec.PublishNotReadyAddresses {
				t.Errorf("the pods have no names in the Service: %+v, subdomain %q", s.Spec, spec.Subdomain)
			}
			if *j.Spec.Completions != *j.Spec.Parallelism || *j.Spec.CompletionMode != batch.IndexedCompletion {
				t.Errorf("not all pods run at once: %+v", j.Spec)
			}
			if *spec.SecurityContext.FSGroup != *spec.SecurityContext.RunAsGroup {
				t.Errorf("the pods cannot read the key: %+v", spec.SecurityContext)
			}
			level, why := profile(t, j)
			want := api.LevelRestricted
			if filepath.Base(file) == "rdma.json" {
				want = api.LevelPrivileged
			}
			if level != want {
				t.Errorf("the pods keep to the profile %s, want %s: %s", level, want, why)
			}
		})
	}
}

// The words of the command arrive in the container as they were given.
func TestWords(t *testing.T) {
	j, _ := manifest(t, filepath.Join(manifests, "words.json"))
	var words []string
	known := expansion.MappingFuncFor(map[string]string{"PATH": "x", "hostname": "y"})
	for _, w := range j.Spec.Template.Spec.Containers[0].Command {
		words = append(words, expansion.Expand(w, known))
	}
	want := []string{"--env=A=$(PATH) $$ $HOME", "--env=FROM_HERE=here", "--", "sh", "-c",
		`echo "<&>" $(hostname) $$ ü`, ":", "--image", ""}
	if got := words[max(0, len(words)-len(want)):]; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// What the API server must refuse is refused here: the judge judges.
func TestJudge(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(manifests, "least.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, new, want string }{
		{`"Indexed"`, `"Indexd"`, "spec.completionMode: Unsupported value"},
		{`"parallelism"`, `"paralelism"`, `unknown field "spec.paralelism"`},
		{`"restartPolicy": "Never"`, `"restartPolicy": "Always"`, "restartPolicy: Required value"},
		{`"name": "heat"`, `"name": "Heat"`, "metadata.name: Invalid value"},
		{`"cpu": "1"`, `"cpu": "one"`, "quantities must match"},
		{`"defaultMode": 256`, `"defaultMode": 4096`, "must be a number between 0 and 0777"},
		{`"sizeLimit": "256Mi"`, `"sizeLimit": "-1"`, "SizeLimit"},
		{`"mountPath": "/dev/shm"`, `"mountPath": "/etc/gorun"`, "must be unique"},
		{`"clusterIP": "None"`, `"clusterIP": "none"`, "clusterIP"},
	} {
		changed := strings.ReplaceAll(string(text), c.old, c.new)
		if changed == string(text) {
			t.Errorf("%s is not in the manifest", c.old)
		}
		all, err := items([]byte(changed))
		for _, one := range all {
			if err == nil {
				_, err = create(one)
			}
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s in place of %s: %v, want %q", c.new, c.old, err, c.want)
		}
	}
	root := strings.ReplaceAll(string(text), `"runAsNonRoot": true`, `"runAsNonRoot": false`)
	file := filepath.Join(t.TempDir(), "root.json")
	if err := os.WriteFile(file, []byte(root), 0o600); err != nil {
		t.Fatal(err)
	}
	j, _ := manifest(t, file)
	if level, why := profile(t, j); level != api.LevelBaseline {
		t.Errorf("pods that may be root keep to the profile %s (%s)", level, why)
	}
}
