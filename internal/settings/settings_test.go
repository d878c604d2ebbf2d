package settings

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestDefaults(t *testing.T) {
	v, warnings, err := Load(nil)
	if err != nil || len(warnings) != 0 {
		t.Fatal(warnings, err)
	}
	want := Values{
		UnexpectedMax: 64 << 20, VerbsReceive: 64 << 20, VerbsClass: 106, Spin: Auto, TagMatching: "off", GPUDirect: "auto", CollCheck: "auto",
		Log: "off", Timeout: time.Minute, PeerTimeout: 30 * time.Second, ShmCMA: true, CUDAShare: true,
	}
	if !reflect.DeepEqual(v, want) {
		t.Errorf("got %+v\nwant %+v", v, want)
	}
}

func TestLoad(t *testing.T) {
	v, warnings, err := Load([]string{
		"HOME=/", "GORUN_TRANSPORTS=Shm, loop", "GORUN_EAGER_MAX=16K", "GORUN_UNEXPECTED_MAX=1GiB", "GORUN_SPIN=0",
		"GORUN_SHM_RING=4096", "GORUN_LOG=DEBUG", "GORUN_TIMEOUT=5s", "GORUN_PEER_TIMEOUT=2s", "GORUN_KEY=k",
		"GORUN_JOB=j", "GORUN_LOCAL_RANK=3",
		"GORUN_LOCAL_SIZE=4", "GORUN_CPUS=2", "GORUN_VERBS_CACHE=256", "GORUN_TM=On", "GORUN_VERBS_RECV_MAX=1G",
	})
	if err != nil || len(warnings) != 0 {
		t.Fatal(warnings, err)
	}
	want := Values{
		Transports: []string{"shm", "loop"}, EagerMax: 16 << 10, UnexpectedMax: 1 << 30, ShmRing: 4096, VerbsClass: 106,
		ShmCMA: true, CUDAShare: true, VerbsCache: 256, VerbsReceive: 1 << 30, TagMatching: "on", GPUDirect: "auto", CollCheck: "auto",
		Log: "debug", Timeout: 5 * time.Second, PeerTimeout: 2 * time.Second, Job: "j", LocalSize: 4, CPUs: 2,
	}
	if !reflect.DeepEqual(v, want) {
		t.Errorf("got %+v\nwant %+v", v, want)
	}
}

// Every field must be a variable of its own, with a meaning, and with a default and limits that its syntax accepts.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range Table {
		for _, text := range []string{s.Default, s.Min, s.Max} {
			if err := s.read(new(Values), text); err != nil {
				t.Errorf("%s: its default or limit %q: %v", s.Name, text, err)
			}
		}
		if seen[s.Name] || s.Meaning == "" || !strings.HasPrefix(s.Name, "GORUN_") ||
			!slices.Contains([]string{"", "shm", "tcp", "verbs", "ucx", "ofi", "cuda", "job"}, s.Of) {
			t.Errorf("bad row %+v", s)
		}
		seen[s.Name] = true
	}
}

// Every field of the list must be of a type that parse knows, or of none: the key, and what is for programs.
func TestEveryFieldIsRead(t *testing.T) {
	for _, s := range Table {
		accepted := false
		for _, text := range append([]string{"1", "5s"}, s.OneOf...) {
			var v Values
			err := s.read(&v, text)
			accepted = accepted || err == nil && !reflect.DeepEqual(v, Values{})
		}
		field, _ := reflect.TypeFor[Values]().FieldByName(s.Field)
		kept := field.Type != reflect.TypeFor[struct{}]()
		if accepted != kept || kept && s.Secret() {
			t.Errorf("%s: values reach its field: %v", s.Name, accepted)
		}
	}
}

func TestBadValues(t *testing.T) {
	for _, kv := range []string{
		"GORUN_EAGER_MAX=12x", "GORUN_EAGER_MAX=-1", "GORUN_EAGER_MAX=0", "GORUN_UNEXPECTED_MAX=auto",
		"GORUN_UNEXPECTED_MAX=9999999999G", "GORUN_SPIN=5", "GORUN_SPIN=-1s", "GORUN_LOG=loud",
		"GORUN_TIMEOUT=0", "GORUN_TIMEOUT=soon", "GORUN_TIMEOUT=8761h", "GORUN_PEER_TIMEOUT=2000000h",
		"GORUN_PEER_TIMEOUT=999ms", "GORUN_PEER_TIMEOUT=0", "GORUN_TRANSPORTS=,",
		"GORUN_TRANSPORTS=shm,shm", "GORUN_TRANSPORTS=shm tcp", "GORUN_LOCAL_SIZE=x", "GORUN_CPUS=-2",
		"GORUN_SHM_RING=1,5M", "GORUN_SHM_RING=99999999999999999999",
		"GORUN_VERBS_TC=256", "GORUN_VERBS_TC=-1", "GORUN_TCP_TLS=yes",
		"GORUN_TM=1", "GORUN_TM=yes", "GORUN_VERBS_CACHE=many", "GORUN_VERBS_CACHE=-1", "GORUN_VERBS_CACHE=1048577",
		"GORUN_VERBS_RECV_MAX=auto", "GORUN_VERBS_RECV_MAX=-1",
	} {
		_, _, err := Load([]string{kv})
		name, value, _ := strings.Cut(kv, "=")
		if err == nil {
			t.Errorf("%s was accepted", kv)
		} else if !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), value) {
			t.Errorf("%s: the error does not name variable and value: %v", kv, err)
		}
	}
}

func TestUnknown(t *testing.T) {
	for name, want := range map[string]string{
		"GORUN_TRANSPORT": "GORUN_TRANSPORTS", "GORUN_EAGERMAX": "GORUN_EAGER_MAX", "GORUN_SHM_RNIG": "GORUN_SHM_RING",
		"GORUN_LGO": "GORUN_LOG", "GORUN_COLOUR_OF_THE_SKY": "", "GORUN_LOCAL_RNAK": "",
	} {
		_, warnings, err := Load([]string{name + "=1"})
		if err != nil || len(warnings) != 1 || warnings[0].Nearest != want {
			t.Errorf("%s: got %v %v, want nearest %q", name, warnings, err, want)
		} else if !strings.Contains(warnings[0].String(), name) {
			t.Errorf("%s: %s", name, warnings[0])
		}
	}
}
