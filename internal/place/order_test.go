package place

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func TestMapping(t *testing.T) {
	for want, counts := range map[string][]int{
		"(vector,(0,2,1))":                 {1, 1},
		"(vector,(0,1,3),(1,1,1))":         {3, 1},
		"(vector,(0,1,4),(1,1,2),(2,2,1))": {4, 2, 1, 1},
		"(vector,(0,1,1))":                 {1},
	} {
		if got := Blocks(counts).Mapping(); got != want {
			t.Errorf("%v: %s, want %s", counts, got, want)
		}
	}
	for want, counts := range map[string][]int{
		"(vector,(0,2,1))":                         {5, 5}, // from the beginning again
		"(vector,(0,3,1))":                         {2, 1, 1},
		"(vector,(0,3,1),(0,1,1),(2,1,1),(0,1,1))": {3, 1, 2},
	} {
		if got := InTurn(counts).Mapping(); got != want {
			t.Errorf("%v in turn: %s, want %s", counts, got, want)
		}
	}
}

// The host of each rank is the one on which the launcher has put it; blocks are repeated, as hydra does.
func TestParseMapping(t *testing.T) {
	for text, want := range map[string]string{
		"(vector,(0,1,4))":                          "[0 0 0 0]",
		"(vector,(0,2,1))":                          "[0 1 0 1 0]",
		"(vector,(0,2,2),(5,1,3))":                  "[0 0 1 1 5 5 5 0]",
		" (vector, (3,1,1), (0,2,1))":               "[3 0 1]",
		"(vector,2,0,(1,1,2))":                      "[2 0 1 1 2]",
		"(vector,[(0,2,1)]x2,[0]x2,1)":              "[0 1 0 1 0 0 1 0]",
		"(vector,[(0,1,2),3]x2,(7,1,1))":            "[0 0 3 0 0 3 7 0]",
		"(vector,(16777216,4096,4096))":             "[16777216]",
		"(vector,[(0,4096,4096)]x1)":                "[0]",
		"(vector,(0,1,0))":                          "",
		"(vector,(0,0,1))":                          "",
		"(vector,(0,1))":                            "",
		"(vector,(0,1,1,1))":                        "",
		"(vector,(0,1,99999999999))":                "",
		"(vector,(0,4096,4097))":                    "",
		"(vector,[(0,4096,4096)]x2)":                "",
		"(vector,(0,4096,4096),1)":                  "",
		"(vector,[(0,16777216,16777216)]x16777216)": "", // 2⁷²
		"(vector,(0,16777216,16777216),[(0,16777216,16777216)]x16777216)": "",
		"(vector)":                "",
		"(vector,)":               "",
		"(vector,(0,1,1),)":       "",
		"(vector,(0,1,1)":         "",
		"(vector,(0,1,1)))":       "",
		"(vector,[(0,1,1)])":      "",
		"(vector,[]x2)":           "",
		"(vector,[0]x0)":          "",
		"(vector,[[0]x2]x2)":      "",
		"(vector,(0,1,1)(0,1,1))": "",
		"(matrix,(0,1,1))":        "",
		"":                        "",
		"(vector,(-1,1,1))":       "",
		"(vector,(+1,1,1))":       "",
	} {
		o, err := ParseMapping(text)
		if (err != nil) != (want == "") {
			t.Errorf("%q: %v, %v", text, o, err)
		}
		if err != nil {
			continue
		}
		var hosts []int
		for rank := range strings.Count(want, " ") + 1 {
			hosts = append(hosts, o.HostOf(rank))
		}
		if got := fmt.Sprint(hosts); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	if _, err := ParseMapping(strings.Repeat("x", 1000)); err == nil || len(err.Error()) > 400 {
		t.Error(err)
	}
}

// slowMapping expands a mapping by regular expressions, to n ranks.
func slowMapping(text string, n int) (hosts []int) {
	text = regexp.MustCompile(`\[([^\]]*)\]x([0-9]+)`).ReplaceAllStringFunc(text, func(group string) string {
		m := regexp.MustCompile(`\[([^\]]*)\]x([0-9]+)`).FindStringSubmatch(group)
		times, _ := strconv.Atoi(m[2])
		return strings.TrimPrefix(strings.Repeat(","+m[1], min(times, n)), ",")
	})
	for _, m := range regexp.MustCompile(`\((\d+),(\d+),(\d+)\)|(\d+)`).FindAllStringSubmatch(text, -1) {
		var v [5]int
		for i := 1; i < 5; i++ {
			v[i], _ = strconv.Atoi(m[i])
		}
		if m[4] != "" {
			hosts = append(hosts, v[4])
			continue
		}
		for h := range min(v[2], n) {
			for range min(v[3], n) {
				if hosts = append(hosts, v[1]+h); len(hosts) > 4*n {
					break
				}
			}
		}
	}
	for i := 0; len(hosts) < n; i++ {
		hosts = append(hosts, hosts[i])
	}
	return hosts[:n]
}

// A list of hosts becomes few ranges, whose text says the same.
func TestOrderOf(t *testing.T) {
	for want, hosts := range map[string][]int{
		"(vector,(0,1,1))":                 {0},
		"(vector,(0,3,2))":                 {0, 0, 1, 1, 2, 2},
		"(vector,(0,2,2),(2,1,1))":         {0, 0, 1, 1, 2},
		"(vector,(0,3,1),(0,3,1))":         {0, 1, 2, 0, 1, 2},
		"(vector,(3,1,2),(1,2,1),(1,1,2))": {3, 3, 1, 2, 1, 1},
	} {
		o := OrderOf(hosts)
		if got := o.Mapping(); got != want {
			t.Errorf("%v: %s, want %s", hosts, got, want)
		}
		for rank, h := range hosts {
			if got := o.HostOf(rank); got != h {
				t.Errorf("%v: rank %d is on host %d", hosts, rank, got)
			}
		}
	}
}

func FuzzParseMapping(f *testing.F) {
	for _, text := range []string{"(vector,(0,2,2),(5,1,3))", "(vector,[(0,2,1),4]x3,(1,1,1))", "(vector,7)",
		"(vector,[(0,4096,4096)]x2)", "(vector,", "(vector,[(0,1,1)]x)"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		o, err := ParseMapping(text)
		if err != nil {
			return
		}
		const n = 200
		slow := slowMapping(strings.ReplaceAll(text, " ", ""), n)
		for rank := range n {
			if h := o.HostOf(rank); h != slow[rank] {
				t.Fatalf("%q: rank %d is on host %d, the model has %d", text, rank, h, slow[rank])
			}
		}
	})
}
