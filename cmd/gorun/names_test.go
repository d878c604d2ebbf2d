package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The flags that docs/mpi-names.md gives for gorun are understood.
func TestFlagsOnTheNamesPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/mpi-names.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## Starting a job\n")
	code := 0
	root := newRoot(os.Stdin, os.Stdout, os.Stderr, &code)
	found := 0
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.HasPrefix(line, "| `") {
			continue
		}
		for _, flag := range regexp.MustCompile("`(-[a-z-]+)").FindAllStringSubmatch(cells[3], -1) {
			found++
			if _, _, err := splitFlags(root.Flags(), []string{flag[1], "1", "2"}); err != nil {
				t.Errorf("%s: %v", flag[1], err)
			}
		}
	}
	if found < 10 {
		t.Errorf("%d flags found in the table", found)
	}
}
