package place

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestList(t *testing.T) {
	for text, want := range map[string]string{
		"a":                        "[{a 0}]",
		"a:4,b:4":                  "[{a 4} {b 4}]",
		"n[01-03]:2,login":         "[{n01 2} {n02 2} {n03 2} {login 0}]",
		"n[1,3]:2,n[2-3]:4":        "[{n1 2} {n3 6} {n2 4}]",
		"a,a,b":                    "[{a 2} {b 0}]",
		"[fd00::1]:4, 127.0.0.1:2": "[{fd00::1 4} {127.0.0.1 2}]",
		"a:1048576,a":              "[{a 1048576}]",
		"H2,h2:3, me@h2":           "[{H2 4} {me@h2 0}]",
	} {
		if got, err := List("-H", text); fmt.Sprint(got) != want || err != nil {
			t.Errorf("%q: %v, %v, want %s", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":             "-H, column 1: no host is named: write a:4,b:4",
		",":            "column 1: no host is named",
		"a:":           "column 3: the number of slots is a whole number from 1 to 1048576",
		"a:0":          "column 3: the number of slots",
		"b,a:x":        "column 5: the number of slots",
		"a:1048577":    "column 3: the number of slots",
		"a:4:5":        "column 4: no : can be here: write an address of IPv6 as [::1]",
		"::1":          "column 1: write an address of IPv6 in brackets: [::1]",
		"a,fd77::2:4":  "column 3: write an address of IPv6 in brackets: [fd77::2:4]",
		"a slots=4":    "column 8: '=' cannot be part of a host's name",
		":4":           "column 1: no : can be here",
		"n[0-65535],a": "more than 65536 hosts",
		"n[1-2:4":      "column 6: ':' cannot be in a bracket",
	} {
		if got, err := List("-H", text); got != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want %q", text, got, err, want)
		}
	}
}

func TestHostfile(t *testing.T) {
	for text, want := range map[string]string{
		"a\nb\n":                          "[{a 0} {b 0}]",
		"a slots=4\nb:2":                  "[{a 4} {b 2}]",
		"# all\n\n  a\tslots=4 # big\r\n": "[{a 4}]",
		"n[01-02] slots=3\nn[03-04]:1":    "[{n01 3} {n02 3} {n03 1} {n04 1}]",
		"a\na\nb\na\n":                    "[{a 3} {b 0}]", // PBS: a line for each slot
		"[fd00::1] slots=2":               "[{fd00::1 2}]",
		// Of other launchers.
		"\ufeffa slots = 4\nb slots= 2\r\n":      "[{a 4} {b 2}]",
		"a slots=2 max_slots=9\nb max-slots = 3": "[{a 2} {b 0}]",
		"a,b\nc:2, d slots=3 , e":                "[{a 0} {b 0} {c 2} {d 3} {e 0}]",
		"me@a slots=2\nme@a\na\nyou@n[1-2]:4":    "[{me@a 3} {a 0} {you@n1 4} {you@n2 4}]",
		"H1 slots=2\nh1\nH1.Cluster\n":           "[{H1 3} {H1.Cluster 0}]",
	} {
		if got, err := Hostfile("hosts", text); fmt.Sprint(got) != want || err != nil {
			t.Errorf("%q: %v, %v, want %s", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                        "hosts:1:1: no host is named: write one a line, as in: node1 slots=4",
		"# none\n\n":              "hosts:2:1: no host is named",
		"a\nb slots=0":            "hosts:2:9: the number of slots",
		"a\n\n b slots=4x":        "hosts:3:11: 'x' cannot be",
		"a slot=4":                `hosts:1:3: "slot=4" is not known: what may follow a host is slots=N`,
		"a slots 4":               `hosts:1:3: "slots" is not known`,
		"a b":                     `hosts:1:3: "b" is not known: what may follow a host is slots=N, or a comma`,
		"a slots=":                "hosts:1:9: the number of slots",
		"a:2 slots=2":             "hosts:1:5: the slots of this host are given twice",
		"a slots=2 slots=2":       "hosts:1:11: the slots of this host are given twice",
		"a max_slots=x":           "hosts:1:13: the number of slots",
		"me@":                     "hosts:1:4: a host is missing here",
		"@a":                      "hosts:1:1: @ cannot be here",
		"-l@a":                    "hosts:1:1: a host's name begins with a letter or a digit",
		"me@you@a":                "hosts:1:7: @ cannot be here",
		"fd77::2 slots=2":         "hosts:1:1: write an address of IPv6 in brackets: [fd77::2]",
		"n[1-2":                   "hosts:1:2: this [ is not closed",
		"slots=4":                 "hosts:1:6: '=' cannot be",
		"n[0-65535]\nx":           "hosts:2:1: more than 65536 hosts",
		"\xff":                    "hosts:1:1: 'ÿ' cannot be",
		"-oProxyCommand=reboot\n": "hosts:1:1: a host's name begins with a letter or a digit",
	} {
		if got, err := Hostfile("hosts", text); got != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want %q", text, got, err, want)
		}
	}
}

// checkSlurm checks the hosts of an allocation that env describes, or the error.
func checkSlurm(t *testing.T, env map[string]string, want string) {
	t.Helper()
	hosts, err := Slurm(func(name string) string { return env[name] })
	if got := fmt.Sprint(hosts); err == nil && got != want || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("%q: %s, %v", env, got, err)
	}
}

func TestSlurm(t *testing.T) {
	for _, c := range []struct{ job, nodes, tasks, want string }{
		{"", "", "", "[]"},
		{"", "", "4", "[]"},
		{"n[1-3]", "", "4,1(x2)", "[{n1 4} {n2 1} {n3 1}]"},
		{"n[1-3]", "n[1-2]", "2(x3)", "[{n1 2} {n2 2} {n3 2}]"},
		{"", "n[1-2]", "3(x2)", "[{n1 3} {n2 3}]"},
		{"n[1-3]", "n1", "1", "[{n1 0} {n2 0} {n3 0}]"}, // in a step on one of them
		{"n[1-3]", "", "", "[{n1 0} {n2 0} {n3 0}]"},
		{"n[1-", "", "", "SLURM_JOB_NODELIST, column 5: a number is missing"},
		{"", "n[1-", "", "SLURM_NODELIST, column 5: a number is missing"},
		{"n1", "", "4(x", "SLURM_TASKS_PER_NODE, column 1: this is no number of tasks such as 4 or 4(x3)"},
	} {
		env := map[string]string{"SLURM_JOB_NODELIST": c.job, "SLURM_NODELIST": c.nodes, "SLURM_TASKS_PER_NODE": c.tasks}
		checkSlurm(t, env, c.want)
	}
}

// Where the tasks of each host are not said, its CPUs are as many slots.
func TestSlurmCPUs(t *testing.T) {
	for _, c := range []struct{ tasks, cpus, each, want string }{
		{"", "4,1(x2)", "", "[{n1 4} {n2 1} {n3 1}]"},
		{"1", "4,1(x2)", "2", "[{n1 2} {n2 1} {n3 1}]"}, // in a step on one of them
		{"2(x3)", "8(x3)", "4", "[{n1 2} {n2 2} {n3 2}]"},
		{"", "8(x2)", "", "[{n1 0} {n2 0} {n3 0}]"},
		{"", "8(x3)", "-1", "[{n1 8} {n2 8} {n3 8}]"},
		{"", "8(x", "", "SLURM_JOB_CPUS_PER_NODE, column 1: this is no number of tasks such as 4 or 4(x3)"},
	} {
		env := map[string]string{"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_TASKS_PER_NODE": c.tasks,
			"SLURM_JOB_CPUS_PER_NODE": c.cpus, "SLURM_CPUS_PER_TASK": c.each}
		checkSlurm(t, env, c.want)
	}
}

func TestTasksPerNode(t *testing.T) {
	for text, want := range map[string]string{
		"": "[]", "4": "[4]", "4(x3),2": "[4 4 4 2]", "4,1(x2)": "[4 1 1]", "1(x65536)": "",
	} {
		got, err := TasksPerNode("T", text)
		if err != nil || want != "" && fmt.Sprint(got) != want || want == "" && len(got) != MaxHosts {
			t.Errorf("%q: %d, %v", text, len(got), err)
		}
	}
	for _, text := range []string{"x", "0", "-1", "4(", "4(x)", "4(x0)", "4(x-1)", "4(x3", "4(3)", "4,", ",4", "4;2", "4 ",
		"1(x65537)", "1,1(x65536)", "99999999999999999999", "1(x99999999999999999999)"} {
		if got, err := TasksPerNode("T", text); got != nil || err == nil {
			t.Errorf("%q: %d", text, len(got))
		}
	}
}

// slowHosts reads one host of a hostfile with what is said of it, or an item of -H, by regular expressions.
func slowHosts(item string, fields bool) (names []string, slots int, ok bool) {
	user := regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*@`).FindString(item)
	form := `^(.*?[^:]|\[[^\]]*:[^\]]*\])(:[0-9]+)?()$`
	if fields {
		form = `^(\S*?[^:\s]|\[\S*?:[^\]\s]*\])(:[0-9]+)?((?:[ \t]+(?:max[-_])?slots[ \t]*=[ \t]*[0-9]+)*)$`
	}
	m := regexp.MustCompile(form).FindStringSubmatch(item[len(user):])
	if m == nil || regexp.MustCompile(`[,\s]`).MatchString(regexp.MustCompile(`\[[^\[\]]*\]`).ReplaceAllString(m[1], "")) {
		return nil, 0, false
	}
	for _, number := range regexp.MustCompile(`[0-9]+`).FindAllString(m[2]+m[3], -1) {
		if n, _ := strconv.Atoi(number); n < 1 || n > MaxRanks {
			return nil, 0, false
		}
	}
	for _, number := range regexp.MustCompile(`([ \t]slots[ \t]*=[ \t]*|:)[0-9]+`).FindAllString(m[2]+m[3], -1) {
		if slots > 0 { // twice
			return nil, 0, false
		}
		slots, _ = strconv.Atoi(number[strings.LastIndexAny(number, ":= \t")+1:])
	}
	names, ok = slowWord(m[1])
	for i := range names {
		names[i] = user + names[i]
	}
	return names, slots, ok
}

func slowMerge(all []Host, names []string, slots int) []Host {
	for _, name := range names {
		i := slices.IndexFunc(all, func(h Host) bool { return strings.EqualFold(h.Name, name) })
		if i < 0 {
			all = append(all, Host{name, slots})
			continue
		}
		all[i].Slots = min(max(all[i].Slots, 1)+max(slots, 1), MaxRanks)
	}
	return all
}

func FuzzHostfile(f *testing.F) {
	for _, text := range []string{"a slots=4\nb:2", "# x\nn[01-03] slots=2 # y\r\n", "a\na\n", "[::1]:2", "a:2 slots=3",
		"a  slots=1\t", "a:4:5", "n[1-2", ":", "a,b", "slots=4", "a slots=1x",
		"\ufeffa slots = 4 max_slots=9 , b", "me@a,you@n[1,2]:2", "A\na\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 60 || regexp.MustCompile(`[0-9]{4}`).MatchString(text) {
			text = text[:min(len(text), 12)]
		}
		got, err := Hostfile("F", text)
		var where *TextError
		if err != nil && (!errors.As(err, &where) || where.Line < 1 || where.Line > strings.Count(text, "\n")+1 ||
			where.Column < 1 || where.Column > len(text)+1) {
			t.Fatalf("%q: %v", text, err)
		}
		var want []Host
		good := true
		for _, line := range strings.Split(strings.TrimPrefix(text, "\ufeff"), "\n") {
			line, _, _ = strings.Cut(line, "#")
			if line = strings.Trim(strings.TrimRight(line, " \t\r"), " \t"); line == "" {
				continue
			}
			for _, item := range regexp.MustCompile(`([^\[,]|\[[^\]]*\]?)+`).FindAllString(line, -1) {
				if item = strings.Trim(item, " \t"); item == "" {
					continue
				}
				names, slots, ok := slowHosts(item, true)
				good = good && ok
				want = slowMerge(want, names, slots)
			}
		}
		if good = good && len(want) > 0; good != (err == nil) || good && !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v; the model has %v, %v", text, got, err, want, good)
		}
	})
}

func FuzzList(f *testing.F) {
	for _, text := range []string{"a:4,b:4", "n[01-03,7]:2", "[::1]:4,x", "a:", "a:4:5", ",", "a b:2", "n[1,2", "::1", "me@a:2,A,a"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 60 || regexp.MustCompile(`[0-9]{4}`).MatchString(text) {
			text = text[:min(len(text), 12)]
		}
		got, err := List("-H", text)
		var want []Host
		good := true
		for _, item := range regexp.MustCompile(`([^\[, \t\n]|\[[^\]]*\]?)+`).FindAllString(text, -1) {
			names, slots, ok := slowHosts(item, false)
			good = good && ok
			want = slowMerge(want, names, slots)
		}
		if good = good && len(want) > 0; good != (err == nil) || good && !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v; the model has %v, %v", text, got, err, want, good)
		}
	})
}

func FuzzTasksPerNode(f *testing.F) {
	for _, text := range []string{"4(x3),2", "4", "4,,2", "1(x99999999)", "4(x", "4(x2)(x2)"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := TasksPerNode("T", text)
		var want []int
		good := true
		for _, item := range strings.Split(text, ",") {
			if text == "" {
				break
			}
			m := regexp.MustCompile(`^([0-9]+)(\(x([0-9]+)\))?$`).FindStringSubmatch(item)
			if m == nil {
				good = false
				break
			}
			n, err1 := strconv.Atoi(m[1])
			times, err2 := 1, error(nil)
			if m[2] != "" {
				times, err2 = strconv.Atoi(m[3])
			}
			if err1 != nil || err2 != nil || n < 1 || n > MaxRanks || times < 1 || times > MaxHosts {
				good = false
				break
			}
			want = append(want, slices.Repeat([]int{n}, times)...)
		}
		if good = good && len(want) <= MaxHosts; good != (err == nil) || good && !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v; the model has %v, %v", text, got, err, want, good)
		}
	})
}
