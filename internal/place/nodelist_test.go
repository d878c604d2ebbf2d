package place

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// nodelists are what Slurm 22.05 makes of each; TestSlurmAgrees asks it.
var nodelists = map[string]string{
	"":                     "",
	"n1":                   "n1",
	"n[1-3]":               "n1 n2 n3",
	"n[01-03,7]":           "n01 n02 n03 n7",
	"n[09-11]":             "n09 n10 n11",
	"n[99-101]":            "n99 n100 n101",
	"n[1-03]":              "n1 n2 n3",
	"n[001-10]":            "n001 n002 n003 n004 n005 n006 n007 n008 n009 n010",
	"n[2,1]":               "n2 n1",
	"n[1-2,02]":            "n1 n2 n02",
	"n[1-2],n[2-3]":        "n1 n2 n2 n3",
	"a[1-2]b[3-4]":         "a1b3 a1b4 a2b3 a2b4",
	"n[1-2][3-4]":          "n13 n14 n23 n24",
	"a,,b":                 "a b",
	",a,":                  "a",
	" n1 , n2":             "n1 n2",
	"n[1-2] m":             "n1 n2 m",
	"[1-3]":                "1 2 3",
	"1-3":                  "1-3",
	"n-1":                  "n-1",
	"a1b[3-4],a2b[3-4],c7": "a1b3 a1b4 a2b3 a2b4 c7",
	"n[12345678901234567890-12345678901234567891]": "n12345678901234567890 n12345678901234567891",
}

func TestNodelist(t *testing.T) {
	ours := map[string]string{ // beyond Slurm
		"n[1-2].cluster":         "n1.cluster n2.cluster",
		"r[0-1]n[08-09]-ib":      "r0n08-ib r0n09-ib r1n08-ib r1n09-ib",
		"a[1-2]b[1-2]c[1-2]":     "a1b1c1 a1b1c2 a1b2c1 a1b2c2 a2b1c1 a2b1c2 a2b2c1 a2b2c2",
		"[fd00::1],10.0.0.[1-2]": "fd00::1 10.0.0.1 10.0.0.2",
	}
	for _, texts := range []map[string]string{nodelists, ours} {
		for text, want := range texts {
			got, err := Nodelist("LIST", text)
			if strings.Join(got, " ") != want || err != nil {
				t.Errorf("%q: %q, %v, want %s", text, got, err, want)
			}
		}
	}
}

func TestNodelistErrors(t *testing.T) {
	for text, want := range map[string]string{
		"n[3-1]":                               "column 3: the range 3-1 runs backwards",
		"a,n[1-2":                              "column 4: this [ is not closed: write n[1-3]",
		"n]1":                                  "column 2: a ] without a [",
		"n[]":                                  "column 3: a number is missing here",
		"n[1,]":                                "column 5: a number is missing here",
		"n[-1]":                                "column 3: a number is missing here",
		"n[1--3]":                              "column 5: a number is missing here",
		"n[1-2-3]":                             "column 6: '-' cannot be in a bracket",
		"n[a-b]":                               "column 3: a number is missing here",
		"n[000x011]":                           "column 6: 'x' cannot be in a bracket",
		"n[1-2,[4-5]]":                         "column 7: brackets do not nest: write n[1-2,4-5]",
		"n[0-65536]":                           "column 3: the range 0-65536 has more than 65536 hosts",
		"n[0-18446744073709551615]":            "column 3: the range 0-18446744073709551615 has more than 65536 hosts",
		"n[0-18446744073709551616]":            "column 5: the number 18446744073709551616 is too large",
		"n[0-255][0-255][0-1]":                 "column 1: more than 65536 hosts",
		"n[0-255][0-255],m":                    "more than 65536 hosts",
		"-oProxyCommand=x":                     "column 1: a host's name begins with a letter or a digit, not with '-'",
		"me@n1":                                "column 3: @ cannot be here",
		"n1,fd77::2":                           "column 4: write an address of IPv6 in brackets: [fd77::2]",
		"::1":                                  "column 1: write an address of IPv6 in brackets: [::1]",
		"n1:4":                                 "column 3: no : can be here",
		"a;b":                                  "column 2: ';' cannot be part of a host's name",
		"[::1%eth0]":                           "column 1: [::1%eth0] is no address of IPv6",
		"ü":                                    "column 1: 'Ã' cannot be part of a host's name",
		"n[" + strings.Repeat("0", 250) + "1]": "", // as long as a name may be
		"nn[" + strings.Repeat("0", 250) + "1-2]b": "column 1: a host's name has at most 253 bytes",
	} {
		got, err := Nodelist("LIST", text)
		if want == "" {
			if err != nil || len(got) != 1 {
				t.Errorf("%q: %d names, %v", text, len(got), err)
			}
			continue
		}
		if got != nil || err == nil || !strings.HasPrefix(err.Error(), "LIST, column ") ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %d names, %v, want %q", text, len(got), err, want)
		}
	}
}

// slurmConf lets scontrol expand lists without a daemon.
func slurmConf(t *testing.T) []string {
	t.Helper()
	if _, err := exec.LookPath("scontrol"); err != nil && testing.Short() {
		t.Skip("-short, and scontrol is not here (Debian: slurm-client)")
	}
	proc.RequireProgram(t, "scontrol", "slurm-client")
	file := filepath.Join(t.TempDir(), "slurm.conf")
	const conf = "ClusterName=x\nSlurmctldHost=localhost\nNodeName=n[1-4]\nPartitionName=p Nodes=n[1-4]\n"
	if err := os.WriteFile(file, []byte(conf), 0o666); err != nil {
		t.Fatal(err)
	}
	return append(os.Environ(), "SLURM_CONF="+file)
}

func TestSlurmAgrees(t *testing.T) {
	env := slurmConf(t)
	for text := range nodelists {
		cmd := exec.Command("scontrol", "show", "hostnames", text)
		cmd.Env = env
		out, err := cmd.Output()
		ours, _ := Nodelist("LIST", text)
		if got := strings.Fields(string(out)); !slices.Equal(got, ours) || err != nil {
			t.Errorf("%q: Slurm has %q (%v), we have %q", text, got, err, ours)
		}
	}
	// What Slurm makes of many names is what they were.
	var names []string
	for i := range 300 {
		names = append(names, fmt.Sprintf("%s%0*d", []string{"a", "b-", "c3x"}[i/20%3], i/50%4, i%120))
	}
	cmd := exec.Command("scontrol", "show", "hostlist", strings.Join(names, ","))
	cmd.Env = env
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	text := strings.TrimSpace(string(out))
	if back, err := Nodelist("LIST", text); !slices.Equal(back, names) || !strings.Contains(text, "[") {
		t.Errorf("%v: %s came back as %q", err, text, back)
	}
}

// slowNodelist expands a list by a regular expression, one bracket after the other. It fails where Nodelist must.
func slowNodelist(text string) (names []string, ok bool) {
	words := regexp.MustCompile(`[^\s,\[\]]*(\[[^\[\]]*\][^\s,\[\]]*)*`).FindAllString(text, -1)
	left := regexp.MustCompile(`[^\s,\[\]]*(\[[^\[\]]*\][^\s,\[\]]*)*`).ReplaceAllString(text, "")
	if strings.Trim(left, ", \t\n") != "" {
		return nil, false
	}
	for _, w := range words {
		if w == "" {
			continue
		}
		all, ok := slowWord(w)
		if !ok {
			return nil, false
		}
		names = append(names, all...)
	}
	return names, len(names) <= MaxHosts
}

func slowWord(w string) (names []string, ok bool) {
	if a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(w, "["), "]")); err == nil && w[0] == '[' &&
		a.Is6() && a.Zone() == "" && w[len(w)-1] == ']' {
		return []string{w[1 : len(w)-1]}, true
	}
	before, rest, found := strings.Cut(w, "[")
	if !found {
		good := regexp.MustCompile(`^[0-9A-Za-z][-._0-9A-Za-z]*$`).MatchString(w) && len(w) <= maxName
		return []string{w}, good
	}
	inside, after, closed := strings.Cut(rest, "]")
	if !closed {
		return nil, false
	}
	for _, part := range strings.Split(inside, ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		if !isRange {
			hi = lo
		}
		if !regexp.MustCompile(`^[0-9]+-[0-9]+$`).MatchString(lo + "-" + hi) {
			return nil, false
		}
		a, err1 := strconv.ParseUint(lo, 10, 64)
		b, err2 := strconv.ParseUint(hi, 10, 64)
		if err1 != nil || err2 != nil || b < a || b-a >= MaxHosts || len(hi) > maxName {
			return nil, false
		}
		for i := range b - a + 1 {
			digits := strconv.FormatUint(a+i, 10)
			for len(digits) < len(lo) {
				digits = "0" + digits
			}
			more, ok := slowWord(before + digits + after)
			if !ok {
				return nil, false
			}
			names = append(names, more...)
		}
	}
	return names, len(names) <= MaxHosts
}

func FuzzNodelist(f *testing.F) {
	for text := range nodelists {
		f.Add(text)
	}
	for _, text := range []string{"n[1-2]c.d,[fd00::1]", "n[3-1]", "n[1-2,[4-5]]", "n[1-99999]", "n[1", "x]", "@"} {
		f.Add(text)
	}
	f.Add("[[::]]")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 40 || regexp.MustCompile(`[0-9]{4}`).MatchString(text) {
			text = text[:min(len(text), 12)] // what the model can do in time
		}
		names, err := Nodelist("LIST", text)
		var where *TextError
		if err != nil && (!errors.As(err, &where) || where.Column < 1 || where.Column > len(text)+1 || names != nil) {
			t.Fatalf("%q: %d names, %v", text, len(names), err)
		}
		if want, ok := slowNodelist(text); ok != (err == nil) || ok && !slices.Equal(names, want) {
			t.Errorf("%q: %q, %v; the model has %q, %v", text, names, err, want, ok)
		}
	})
}
