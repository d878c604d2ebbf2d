package lint

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"
)

// subjectsSince is the first commit whose successors have subjects of at most 72 characters, which git log, GitHub and
// mail show whole.
const (
	subjectsSince = "8e08484"
	subjectMost   = 72
)

// badSubject says what is wrong with a commit's subject; "": nothing is.
func badSubject(s string) string {
	switch n := utf8.RuneCountInString(s); {
	case strings.HasPrefix(s, "Merge "):
		return ""
	case n > subjectMost:
		return fmt.Sprintf("it has %d characters, of at most %d: say why in the body", n, subjectMost)
	case !strings.Contains(s, ": "):
		return "it does not begin with the package and a colon"
	case strings.HasSuffix(s, "."):
		return "it ends with a full stop"
	}
	return ""
}

// TestCommitSubjects looks at the commits of this checkout, where git knows them.
func TestCommitSubjects(t *testing.T) {
	cmd := exec.Command("git", "log", "--format=%h %s", subjectsSince+"..HEAD")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Skip("git does not know the history: ", err)
	}
	for line := range strings.Lines(string(out)) {
		id, subject, _ := strings.Cut(strings.TrimSpace(line), " ")
		if wrong := badSubject(subject); wrong != "" {
			t.Errorf("commit %s %q: %s", id, subject, wrong)
		}
	}
	for s, want := range map[string]string{
		"pml: keep order":                 "",
		"Merge branch x":                  "",
		"pml: " + strings.Repeat("é", 68): "73 characters",
		"keep order":                      "the package",
		"pml, eager: keep order.":         "full stop",
		"pml: " + strings.Repeat("é", 67): "",
	} {
		if got := badSubject(s); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
}
