package join

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/cpuset"
	"github.com/gorun-mpi/mpi/internal/pmi"
	"github.com/gorun-mpi/mpi/internal/settings"
	"github.com/gorun-mpi/mpi/internal/tuned"
)

// Settings reads an environment as Init does: an error names every value that Init refuses on any host. A lack at some
// hosts only, such as of an interface or a library, shows when a rank there opens a transport.
func Settings(environ []string) (settings.Values, []settings.Warning, error) {
	set, warnings, err := settings.Load(environ)
	if err == nil {
		_, tunedErr := tuned.Find(set.Tuned, nil)
		err = errors.Join(check(set), tunedErr)
	}
	return set, warnings, err
}

// check reports every wrong value that another package parses, apart from the tuned file.
func check(set settings.Values) error {
	_, tcpErr := (&deviceConfig{set: set}).tcpOptions()
	_, collErr := parseChoice(set)
	return errors.Join(checkTransports(set.Transports), tcpErr, collErr)
}

// findTuned returns the tuned file of this rank, or nil, and puts the file's lines before the table of c. Under gorun
// it returns the file that gorun names: this rank's host may have another file.
func findTuned(set settings.Values, c *collectives.Choice) (*tuned.File, error) {
	var places []string
	if self, err := os.Executable(); err == nil && set.Job == "" {
		places = tuned.Places(self)
	}
	f, err := tuned.Find(set.Tuned, places)
	if err != nil || f == nil {
		return nil, err
	}
	return f, c.Tune(f.Collectives)
}

// Here is this machine, to compare with the one that was measured.
func Here(set settings.Values) tuned.Here {
	m := cpuset.ReadMachine()
	h := tuned.Here{CPU: m.Model, Online: m.CPUs, Transports: set.Transports}
	if h.Transports == nil {
		h.Transports = auto()
	}
	return h
}

// warnElsewhere says that a tuned file was measured on another machine. Its lines hold all the same: all ranks of a job
// choose alike, and only all of them together could agree on leaving the file out.
func (c *config) warnElsewhere() {
	if why := c.tuned.Elsewhere(Here(c.set)); why != "" {
		warnings().Warn("the tuned file was measured on another machine or transport, and holds all the same; measure "+
			"again with gorun tune, or set "+tuned.Variable+"="+tuned.Off, "file", tunedName(c.tuned), "measured", why)
	}
}

// compareTuned compares this rank's tuned file with the next rank's: ranks that choose by other lines would wait for
// each other for ever. If the files of a job differ, some rank with a file differs from the one after it. So ranks
// without a file need not look.
func (m *Member) compareTuned(ctx context.Context, own *tuned.File) error {
	if own == nil || m.Size == 1 {
		return nil
	}
	next := (m.Rank + 1) % m.Size
	b, err := m.client.Get(ctx, next, tunedKey(next))
	if err != nil && !errors.Is(err, pmi.ErrNoKey) {
		return err
	}
	digest, path, _ := strings.Cut(string(b), " ")
	if digest == own.Digest() {
		return nil
	}
	other := "no tuned file"
	if digest != "" {
		path = strings.Trim(strconv.Quote(path[:min(len(path), 250)]), `"`) // another process has written it
		other = fmt.Sprintf("the tuned file %s, with other lines", path)
	}
	return fmt.Errorf("rank %d has the tuned file %s and rank %d has %s: all ranks of a job choose algorithms by the "+
		"same lines; give all of them the same file, or set %s=%s", m.Rank, tunedName(own), next, other, tuned.Variable,
		tuned.Off)
}

// putTuned says to the rank before this one which tuned file this rank has.
func (m *Member) putTuned(ctx context.Context, own *tuned.File) error {
	if own == nil || m.Size == 1 {
		return nil
	}
	return m.client.Put(ctx, tunedKey(m.Rank), []byte(own.Digest()+" "+tunedName(own)))
}

func tunedKey(rank int) string { return "gorun-tuned-" + strconv.Itoa(rank) }

// tunedName is the path of the file, or the end of a long one.
func tunedName(f *tuned.File) string {
	const most = 200
	switch {
	case f.Path == "":
		return "in " + tuned.Variable
	case len(f.Path) > most:
		return "…" + strings.ToValidUTF8(f.Path[len(f.Path)-most:], "")
	}
	return f.Path
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
