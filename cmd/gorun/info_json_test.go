package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// gorun info --json is one value that programs can read; a secret is not in it.
func TestInfoJSON(t *testing.T) {
	t.Parallel()
	j := prepare(t)
	j.cmd.Args = []string{j.cmd.Args[0], "info", "--json"}
	j.cmd.Env = append(j.cmd.Env, "GORUN_SPIN=17ms", "GORUN_KEY=c2VjcmV0", "GORUN_"+"SPINN=1")
	j.start().wait(0)
	var f facts
	d := json.NewDecoder(strings.NewReader(j.out.String()))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil || d.More() {
		t.Fatalf("%v in\n%s", err, j.out.String())
	}
	if f.Gorun == "" || f.Host == "" || f.Arch == "" || f.CPUs.Usable < 1 || f.Readv == "" || len(f.Interfaces) == 0 ||
		f.Settings["GORUN_SPIN"] != "17ms" || (f.UCX.Error == "") != (f.UCX.Version != "") ||
		(f.OFI.Error == "") != (f.OFI.Version != "") ||
		len(f.Warnings) != 1 || len(f.Waiting) == 0 {
		t.Errorf("%+v", f)
	}
	if strings.Contains(j.out.String(), "c2VjcmV0") {
		t.Error("it shows the key")
	}
}
