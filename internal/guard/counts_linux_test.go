package guard

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
)

const (
	countsFile  = "testdata/instructions.txt"
	countMargin = 2 // percent; two runs differ by 0.1
)

var (
	rewriteCounts = flag.Bool("rewrite", false, "write the counts into testdata; read them before you commit them")
	reportCounts  = flag.String("report", "", "write what was counted, and what is recorded, to this file")
)

// ratios are what must hold between paths counted in the same run. They are asserted with every compiler and counter.
var ratios = []struct {
	path, than string
	most       float64
	because    string
}{
	{"round-trip-8-many-posted", "round-trip-8", 2, "matching costs the same whatever is posted"},
	{"round-trip-8-many-unexpected", "round-trip-8", 2, "matching costs the same whatever has come too early"},
	{"round-trip-8-wildcards", "round-trip-8", 2, "a wildcard is a key like others"},
	{"round-trip-8-of-16-ranks", "round-trip-8", 1.5, "a poll looks at ranks that send, not at all that are connected"},
	{"round-trip-1024", "round-trip-8", 2.5, "a short message costs its copies"},
	{"round-trip-8192", "round-trip-8", 6, "a longer one too"},
	{"window-64-of-8", "round-trip-8", 2.5, "64 messages under way cost what one costs each, and a request"},
	{"round-trip-8-persistent", "round-trip-8", 2.5, "so does a request that is started again"},
	{"unexpected-8", "round-trip-8", 4, "a message that came too early is queued and copied once more"},
}

// counts are the instructions per message of the hot paths, and what they hold for.
type counts struct {
	goVersion, arch string
	perMessage      map[string]float64
}

// minorVersion is go1.26 of go1.26.8.
func minorVersion(version string) string {
	if parts := strings.Split(version, "."); len(parts) > 2 {
		return parts[0] + "." + parts[1]
	}
	return version
}

const countsHead = `# Instructions per message of the hot paths, sender and receiver together, written by
#     make guard-rewrite
# Read it before you commit it: each number that grows wants a reason.
`

func (c counts) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s %s\n", countsHead, c.goVersion, c.arch)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, p := range hotPaths {
		if n, counted := c.perMessage[p.name]; counted {
			fmt.Fprintf(w, "%s\t%.0f\n", p.name, n)
		}
	}
	w.Flush()
	return b.String()
}

func readCounts(path string) (counts, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return counts{}, err
	}
	c, err := parseCounts(string(text))
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return c, err
}

func parseCounts(text string) (c counts, err error) {
	c.perMessage = map[string]float64{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) == 0 || f[0][0] == '#':
		case c.goVersion == "" && len(f) == 2:
			c.goVersion, c.arch = f[0], f[1]
		case c.goVersion != "" && len(f) == 2:
			n, err := strconv.ParseFloat(f[1], 64)
			if err != nil || n <= 0 {
				return c, fmt.Errorf("%q is no number of instructions", strings.TrimSpace(line))
			}
			c.perMessage[f[0]] = n
		default:
			return c, fmt.Errorf("%q: want Go's version and architecture in a line, then paths with numbers", line)
		}
	}
	return c, nil
}

var errNotCounted = errors.New("no number of instructions in what callgrind printed")

// readCallgrind returns N of the line "==PID== Collected : N".
func readCallgrind(text string) (float64, error) {
	for line := range strings.Lines(text) {
		if _, number, found := strings.Cut(line, "== Collected : "); found {
			if n, err := strconv.ParseFloat(strings.TrimSpace(number), 64); err == nil && n > 0 {
				return n, nil
			}
		}
	}
	return 0, fmt.Errorf("%w: %q", errNotCounted, text)
}

// compareCounts says what is wrong with what was counted, and what a reader may want to know.
func compareCounts(recorded, got counts) (wrong, notes []string) {
	comparable := recorded.goVersion == got.goVersion && recorded.arch == got.arch
	if !comparable {
		notes = append(notes, fmt.Sprintf("recorded with %s, %s, counted with %s, %s: only the ratios are asserted",
			recorded.goVersion, recorded.arch, got.goVersion, got.arch))
	}
	for _, name := range slices.Sorted(maps.Keys(got.perMessage)) {
		n, was := got.perMessage[name], recorded.perMessage[name]
		more := 100 * (n/was - 1)
		notes = append(notes, fmt.Sprintf("%-30s %6.0f instructions per message, recorded %6.0f (%+.1f %%)",
			name, n, was, more))
		switch {
		case was == 0:
			wrong = append(wrong, fmt.Sprintf("%s takes %.0f instructions and %s has no line for it: run make guard-rewrite",
				name, n, countsFile))
		case comparable && more > countMargin:
			wrong = append(wrong, fmt.Sprintf("%s takes %.0f instructions per message, recorded are %.0f, at most %d %% more "+
				"are allowed: find what was added (callgrind_annotate), or make guard-rewrite and say why in the commit",
				name, n, was, countMargin))
		case comparable && more < -countMargin:
			notes = append(notes, name+" has become shorter: run make guard-rewrite, so that it stays so")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(recorded.perMessage)) {
		if got.perMessage[name] == 0 {
			wrong = append(wrong, fmt.Sprintf("%s has a line for %s, which is no path: run make guard-rewrite",
				countsFile, name))
		}
	}
	tooMuch, ofRatios := compareRatios(got)
	return append(wrong, tooMuch...), append(notes, ofRatios...)
}

func compareRatios(got counts) (wrong, notes []string) {
	for _, r := range ratios {
		now := got.perMessage[r.path] / got.perMessage[r.than]
		if !(now <= r.most) { // also if there is no number
			wrong = append(wrong, fmt.Sprintf("%s takes %.2f times the instructions of %s, at most %g are allowed: %s",
				r.path, now, r.than, r.most, r.because))
		}
		notes = append(notes, fmt.Sprintf("%-30s %6.2f × %s, at most %g", r.path, now, r.than, r.most))
	}
	return wrong, notes
}

// The guard can fail: each way to be wrong, and what is not wrong.
func TestJudgeCounts(t *testing.T) {
	const eight = "round-trip-8"
	base := func() counts {
		c := counts{goVersion: "go1.26", arch: "amd64", perMessage: map[string]float64{}}
		for _, p := range hotPaths {
			c.perMessage[p.name] = 1000
		}
		return c
	}
	for name, test := range map[string]struct {
		change      func(recorded, got *counts)
		wrong, note string // part of the one complaint, and of a note; "": none
	}{
		"the same":          {func(_, _ *counts) {}, "", "+0.0 %"},
		"a little longer":   {func(_, c *counts) { c.perMessage[eight] = 1019 }, "", "+1.9 %"},
		"longer":            {func(_, c *counts) { c.perMessage[eight] = 1021 }, eight + " takes 1021", "+2.1 %"},
		"shorter":           {func(_, c *counts) { c.perMessage[eight] = 970 }, "", "guard-rewrite, so that it stays so"},
		"longer, other Go":  {func(r, c *counts) { r.goVersion, c.perMessage[eight] = "go1.25", 1900 }, "", "only the ratio"},
		"longer, other CPU": {func(_, c *counts) { c.arch, c.perMessage[eight] = "arm64", 1900 }, "", "only the ratios"},
		"a walk through the posted": {func(r, c *counts) {
			r.goVersion, c.perMessage["round-trip-8-many-posted"] = "go1.25", 30_000
		}, "30.00 times the instructions of round-trip-8", "only the ratios"},
		"a new path":  {func(r, _ *counts) { delete(r.perMessage, eight) }, "has no line for it", ""},
		"an old path": {func(r, _ *counts) { r.perMessage["round-trip-9"] = 1000 }, "which is no path", ""},
	} {
		t.Run(name, func(t *testing.T) {
			recorded, got := base(), base()
			test.change(&recorded, &got)
			wrong, notes := compareCounts(recorded, got)
			all := strings.Join(wrong, "")
			if len(wrong) > 1 || (all != "") != (test.wrong != "") || !strings.Contains(all, test.wrong) {
				t.Errorf("complains %q, want %q", wrong, test.wrong)
			}
			if !strings.Contains(strings.Join(notes, "\n"), test.note) {
				t.Errorf("notes %q, want %q in them", notes, test.note)
			}
		})
	}
}

// A path that was not counted is no path that costs nothing.
func TestJudgeCountsMissing(t *testing.T) {
	if wrong, _ := compareCounts(counts{}, counts{}); len(wrong) < len(ratios) {
		t.Errorf("nothing was counted, and the complaints are %q", wrong)
	}
}

func TestCountsFile(t *testing.T) {
	c := ok(readCounts(countsFile))
	for _, p := range hotPaths {
		if c.perMessage[p.name] == 0 {
			t.Errorf("%s has no line for %s: run make guard-rewrite", countsFile, p.name)
		}
	}
	again := ok(parseCounts(c.String()))
	if !maps.Equal(again.perMessage, c.perMessage) || again.goVersion != c.goVersion {
		t.Errorf("%v written and read is %v", c, again)
	}
	for _, bad := range []string{"a 1 2", "go1.26 amd64\na b", "go1.26 amd64\na -1", "go1.26 amd64\na 1 2"} {
		if _, err := parseCounts(bad); err == nil {
			t.Errorf("%q is taken for counts", bad)
		}
	}
}

func TestReadCallgrind(t *testing.T) {
	n, err := readCallgrind("==7== Events    : Ir\n==7== Collected : 74336904\n==7== \n==7== I   refs:      74,336,904\n")
	if err != nil || n != 74336904 {
		t.Errorf("callgrind: %v, %v", n, err)
	}
	if n, err = readCallgrind("==7== Command: true\n"); err == nil {
		t.Errorf("callgrind that was killed: %v", n)
	}
}
