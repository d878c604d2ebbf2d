package settings

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/gorun-mpi/mpi/internal/spelling"
)

// Warning is about a variable that has no effect.
type Warning struct {
	Name    string // as found
	Nearest string // a variable that exists and is spelt alike; "" if none is
}

func (w Warning) String() string {
	if w.Nearest == "" {
		return fmt.Sprintf("%s is not a setting and has no effect; `gorun info` lists the settings", w.Name)
	}
	return fmt.Sprintf("%s is not a setting and has no effect; did you mean %s?", w.Name, w.Nearest)
}

// Load reads an environment (as of os.Environ). The error names each bad value and its variable; an unknown GORUN_
// variable is a warning. An empty value means the default.
func Load(environ []string) (Values, []Warning, error) {
	found := map[string]string{}
	var warnings []Warning
	for _, kv := range environ {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || !strings.HasPrefix(name, "GORUN_") {
			continue
		}
		_, known := Find(name)
		switch {
		case known:
			found[name] = strings.TrimSpace(value)
		case !strings.HasPrefix(name, "GORUN_TEST_"): // the tests' own
			warnings = append(warnings, Warning{name, nearest(name)})
		}
	}
	var v Values
	var bad []error
	for _, s := range Table {
		text := cmp.Or(found[s.Name], s.Default)
		if err := s.read(&v, text); err != nil {
			bad = append(bad, fmt.Errorf("%s=%q: %w", s.Name, text, err))
		}
	}
	return v, warnings, errors.Join(bad...)
}

// nearest returns the user's setting that is spelt most like name, if any is near enough to be meant.
func nearest(name string) string {
	users := func(yield func(string) bool) {
		for _, s := range Table {
			if !s.Internal() && !yield(s.Name) {
				return
			}
		}
	}
	return spelling.Nearest(strings.ToUpper(name), users, max(2, (len(name)-len("GORUN_"))/2))
}
