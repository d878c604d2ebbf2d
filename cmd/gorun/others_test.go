package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Flags that users of mpirun, mpiexec and srun type are understood, or an error names what to write.
func TestFlagsOfOthers(t *testing.T) {
	t.Parallel()
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	apps := file("apps", "# two programs\n-np 1 true 'one word'\n\n-n 2 -x \"A=b c\" echo x\n")
	hosts := file("hosts", "\ufeffa slots = 1 max_slots=2, me@b:1\r\n")
	for _, c := range []struct {
		args, out, err string
	}{
		{"--ntasks=4 --ntasks-per-node 2 -H a,B,b hostname", "host a has ranks 0-1\nhost B has ranks 2-3\n", ""},
		{"-N 2 -n 4 -H a,b hostname", "host b has ranks 2-3\n", ""},
		{"--chdir /usr -n 1 true", "cd /usr && GORUN_TEST_ROLE=rank true", ""},
		{"-D /usr -n 1 true", "cd /usr && GORUN_TEST_ROLE=rank true", ""},
		{"-n 2 -w a,b true", "host b has rank 1\n", ""},
		{"-c 1 -n 1 true", "1 rank on host ", ""},
		{"-c 2 true", "", "-c 2 is 2 cores for each rank, as of srun, and needs -n or --ppn; if ranks are meant"},
		{"-n 1 -c 2 --map-by core:PE=3 true", "", "leave one out"},
		{"-v -q -n 1 true", "1 rank on host ", ""},
		{"--map-by socket -n 1 true", "1 rank on host ", ""},
		{"--map-by L3CACHE --rank-by package --bind-to hwthread -n 1 true", "1 rank on host ", ""},
		{"--bind-to socket --merge-stderr-to-stdout -n 1 true", "1 rank on host ", ""},
		{"--app " + apps, "0 any true 'one word'\n1 any A='b c' echo x\n2 any A='b c' echo x\n", ""},
		{"--app " + apps + " true", "", "names the programs, and \"true\" stands on the command line"},
		{"--app /no/such", "", "--app: open /no/such: no such file"},
		{"--app " + file("bad", "-n 1 'true\n"), "", "bad:1: a quote is not closed"},
		{"--app " + file("bad", "\n-n 1 --ppn 2 true\n"), "", "(in this file: only -n, --wdir and -x)"},
		{"--app " + file("bad", "-n 1 a : -n 2 b\n"), "", "bad:1: a line is -n N PROGRAM ARGUMENTS"},
		{"--app " + file("bad", "# none\n"), "", "no program is named"},
		{"--hostfile " + hosts + " true", "host a has rank 0\nhost me@b has rank 1\n", ""},
		{"--mca btl tcp,self true", "", "--mca btl: write -x GORUN_TRANSPORTS=... (How ranks"},
		{"-mca btl_vader_single_copy_mechanism none true", "", "write -x GORUN_SHM_CMA=..."},
		{"--mca coll_tuned_allreduce_algorithm 3 true", "", "write -x GORUN_COLL=..."},
		{"--mca btl_tcp_if_include eth0 true", "", "write -x GORUN_TCP_IF=..."},
		{"--mca plm_rsh_agent rsh true", "", "write --launch-agent"},
		{"--mca nonsense 1 true", "", "there are no MCA parameters; settings are GORUN_ variables"},
		{"--mca", "", "there are no MCA parameters"},
		{"--rankfile f true", "", "there is no flag --rankfile: name the hosts in the order of the ranks"},
		{"--wait 3 true", "", "there is no flag --wait: a rank that has ended well ends no other; --timeout bounds"},
		{"--cpu_bind=cores true", "", "there is no flag --cpu_bind=cores: use --bind-to"},
		{"-bynode true", "", "there is no flag -bynode: write --map-by node"},
		{"-t 5 true", "", "there is no flag -t: use --timeout"},
		{"-iface eth0 true", "", "write -x GORUN_TCP_IF=NAME"},
		{"--output-dir= true", "", `"--output-dir" flag: it is empty`},
		{"--launch-agent= true", "", `"--launch-agent" flag: it is empty`},
		{"--wdir= true", "", `"--wdir" flag: it is empty`},
	} {
		flags := strings.Fields(c.args)
		j := prepare(t, append([]string{"--dry-run"}, flags...)...)
		code := 0
		if c.err != "" {
			code = 2
		}
		j.start().wait(code)
		if c.err != "" {
			j.says(c.err)
		}
		var out strings.Builder // without the columns of a table, and what the machine's CPUs decide
		for line := range strings.Lines(j.out.String()) {
			words := strings.Fields(line)
			if len(words) > 2 && words[0] >= "0" && words[0] <= "9" && words[1] != "rank" && words[1] != "ranks" {
				words[1] = "any"
			}
			fmt.Fprintln(&out, strings.Join(words, " "))
		}
		if !strings.Contains(out.String(), c.out) {
			t.Errorf("gorun %s: no %q in\n%s", c.args, c.out, out.String())
		}
	}
}

// Words of --launch-agent and --app are as sh has them.
func TestShellWords(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"":                               nil,
		"  ":                             nil,
		"ssh -F  /a\tb":                  {"ssh", "-F", "/a", "b"},
		`ssh -o 'ProxyCommand nc %h %p'`: {"ssh", "-o", "ProxyCommand nc %h %p"},
		`a"b c"'d'\ e`:                   {"ab cd e"},
		`'' "" x`:                        {"", "", "x"},
		`"a\"b\\\n" '\'`:                 {`a"b\\n`, `\`},
		`\'`:                             {"'"},
	} {
		if got, err := shellWords(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q (%v), want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"'a", `"a`, `a\`, `"a\"`} {
		if got, err := shellWords(text); err == nil {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// A word of --launch-agent may have blanks. What ranks write to standard error comes with their output, in its order,
// if that is wanted.
func TestQuotedShellAndMergedErrors(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a folder")
	shell := filepath.Join(dir, "shell")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(shell, []byte("#!/bin/sh\n[ \"$1\" = 'two words' ] || exit 127\nshift 2\nexec \"$@\"\n"),
		0o700); err != nil {
		t.Fatal(err)
	}
	agent := []string{"--launcher", "exec", "-H", "a", "--launch-agent", "'" + shell + "' \"two words\""}
	orders := []string{"RANK", "print=1", "complain=2", "print=3"}
	for _, flags := range [][]string{nil, {"-l"}, agent} {
		flags = append(slices.Clone(flags), "--merge-stderr-to-stdout")
		tag := ""
		if flags[0] == "-l" {
			tag = "[0] "
		}
		start(t, append(flags, orders...)...).wait(0).prints(tag + "1\n" + tag + "2\n" + tag + "3\n")
	}
	out := filepath.Join(dir, "out")
	start(t, append([]string{"--merge-stderr-to-stdout", "--output-dir", out}, orders...)...).wait(0).prints("")
	if text, err := os.ReadFile(filepath.Join(out, "rank.0.out")); string(text) != "1\n2\n3\n" {
		t.Errorf("%q (%v)", text, err)
	}
	start(t, "--launch-agent", "'ssh", "-H", "b", "RANK").wait(2).says("--launch-agent: a quote is not closed")
}
