package join

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/settings"
)

// Settings reads an environment as Init does: an error names every value that Init refuses on any host. A lack at some
// hosts only, such as of an interface or a library, shows when a rank there opens a transport.
func Settings(environ []string) (settings.Values, []settings.Warning, error) {
	set, warnings, err := settings.Load(environ)
	if err == nil {
		err = check(set)
	}
	return set, warnings, err
}

// check reports every value whose syntax is that of another package.
func check(set settings.Values) error {
	_, tcpErr := (&deviceConfig{set: set}).tcpOptions()
	_, collErr := parseChoice(set)
	return errors.Join(checkTransports(set.Transports), tcpErr, collErr)
}

func parseChoice(set settings.Values) (collectives.Choice, error) {
	choice, err := collectives.ParseChoice(set.Collectives)
	if err != nil {
		return choice, fmt.Errorf("GORUN_COLL=%q: %w", set.Collectives, err)
	}
	return choice, nil
}

// checkTransports checks the names of GORUN_TRANSPORTS; nil: auto.
func checkTransports(wanted []string) error {
	for _, name := range wanted {
		t, err := named(name)
		if err == nil && t.whole && len(wanted) > 1 {
			err = errors.New("it matches the messages of all ranks and stands alone")
		}
		if err != nil {
			return fmt.Errorf("GORUN_TRANSPORTS=%q: %s: %w", strings.Join(wanted, ","), name, err)
		}
	}
	return nil
}
