package reach

import (
	"errors"
	"strings"
	"testing"
)

// Each cause says what is wrong and what mends it, and one that stands before it does not take all of its errors.
func TestCauses(t *testing.T) {
	for _, c := range causes {
		text := "ssh: " + strings.Join(c.words, " ")
		found := CauseOf(errors.New(text))
		if found.Wrong() != c.wrong || found.Mend([]string{"ssh"}, "/g") != c.Mend([]string{"ssh"}, "/g") {
			t.Errorf("%s: taken for %q", text, found.Wrong())
		}
		if c.wrong == "" || c.mend == "" || strings.Contains(c.Mend([]string{"ssh", "-F", "x"}, "/g"), "SHELL") {
			t.Errorf("%s: %q, %q", text, c.wrong, c.mend)
		}
		if got := fateOf("ssh", shellFailed, text, ""); got != c.fate {
			t.Errorf("%s: fate %d, want %d", text, got, c.fate)
		}
	}
	if CauseOf(errors.New("x")).Wrong() != unknown.wrong || fateOf("ssh", shellFailed, "x", "") != transient {
		t.Error("words of no cause have one")
	}
}

// Why a gorun that is dynamically linked is not copied says what to do: to doctor, and to a job that would copy it.
func TestDynamicallyLinked(t *testing.T) {
	s := &Self{Path: "/g", dynamic: "/lib64/ld.so"}
	for _, err := range []error{s.Copied(), s.copyTo(nil, kernel())} {
		if err == nil || !strings.Contains(err.Error(), "dynamically linked (/lib64/ld.so)") ||
			!strings.Contains(err.Error(), "CGO_ENABLED=0") {
			t.Errorf("%v", err)
		}
	}
}
