package settings

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Auto is the value of a Duration that is left to the library; for sizes it is 0.
const Auto time.Duration = -1

// Values are the settings as the program uses them.
type Values struct {
	Transports     []string      // in order of preference; never empty
	EagerMax       int64         // bytes; 0: auto
	UnexpectedMax  int64         // bytes
	Spin           time.Duration // Auto (-1), or how long to poll
	ShmRing        int64         // bytes; 0: auto
	TCPInterfaces  string        // as typed; transport/tcp reads it
	TCPPorts       string        // likewise
	TCPTLS         bool
	VerbsDevices   string        // as typed; internal/topology reads it
	VerbsPartition string        // likewise
	VerbsLibrary   string        // a path; "": the system's
	VerbsClass     int           // 0 to 255
	VerbsRegister  int64         // bytes; 0: auto
	VerbsCache     int           // entries
	TagMatching    string        // by devices: auto, on or off
	Log            string        // one of off, error, warn, info, debug, trace
	Timeout        time.Duration // of one step of starting up
	PeerTimeout    time.Duration // of a peer that does not answer

	// Set by gorun for its ranks; -1 or "" under other launchers.
	Job       string
	LocalRank int
	LocalSize int
	CPUs      int
}

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

// Load reads an environment (as of os.Environ). A bad value is an error that names variable and value; an
// unknown GORUN_* is a warning. An empty value means the default.
func Load(environ []string) (Values, []Warning, error) {
	found := map[string]string{}
	var warnings []Warning
	for _, kv := range environ {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || !strings.HasPrefix(name, "GORUN_") {
			continue
		}
		if _, known := Find(name); !known {
			if !strings.HasPrefix(name, "GORUN_TEST_") { // the tests' own
				warnings = append(warnings, Warning{name, nearest(name)})
			}
			continue
		}
		found[name] = strings.TrimSpace(value)
	}
	v, err := parseAll(found)
	return v, warnings, err
}

// Find returns the row of the table for a variable.
func Find(name string) (Setting, bool) {
	for _, s := range Table {
		if s.Name == name {
			return s, true
		}
	}
	return Setting{}, false
}

func parseAll(found map[string]string) (Values, error) {
	var v Values
	for _, s := range Table {
		text := found[s.Name]
		if text == "" {
			text = s.Default
		}
		if err := v.set(s, text); err != nil {
			return Values{}, fmt.Errorf("%s=%q: %w", s.Name, text, err)
		}
	}
	return v, nil
}

// set is the one place where a row of the table meets its field.
func (v *Values) set(s Setting, text string) (err error) {
	switch s.Name {
	case "GORUN_TRANSPORTS":
		v.Transports, err = parseList(text)
	case "GORUN_EAGER_MAX":
		v.EagerMax, err = parseSizeOrAuto(text)
	case "GORUN_UNEXPECTED_MAX":
		v.UnexpectedMax, err = ParseSize(text)
	case "GORUN_SPIN":
		v.Spin, err = parseDurationOrAuto(text)
	case "GORUN_SHM_RING":
		v.ShmRing, err = parseSizeOrAuto(text)
	case "GORUN_TCP_IF":
		v.TCPInterfaces = text
	case "GORUN_TCP_PORTS":
		v.TCPPorts = text
	case "GORUN_TCP_TLS":
		v.TCPTLS, err = parseSwitch(text)
	case "GORUN_VERBS_DEV":
		v.VerbsDevices = text
	case "GORUN_VERBS_PKEY":
		v.VerbsPartition = text
	case "GORUN_VERBS_LIB":
		v.VerbsLibrary = text
	case "GORUN_VERBS_TC":
		v.VerbsClass, err = parseNumber(text)
		if err == nil && v.VerbsClass > 255 {
			err = fmt.Errorf("must be at most 255; use for example 106")
		}
	case "GORUN_VERBS_REG":
		v.VerbsRegister, err = parseSizeOrAuto(text)
	case "GORUN_VERBS_CACHE":
		v.VerbsCache, err = parseNumber(text)
		if err != nil || v.VerbsCache > 1<<20 {
			err = fmt.Errorf("must be a number of registrations, at most 1048576; use for example 256, or 0 for none")
		}
	case "GORUN_TM":
		v.TagMatching, err = parseTristate(text)
	case "GORUN_LOG":
		v.Log, err = parseLevel(text)
	case "GORUN_TIMEOUT":
		v.Timeout, err = parseDuration(text)
		if err == nil && v.Timeout == 0 {
			err = fmt.Errorf("must be longer than 0; use for example 60s")
		}
	case "GORUN_PEER_TIMEOUT":
		v.PeerTimeout, err = parseDuration(text)
		if err == nil && v.PeerTimeout < time.Second {
			err = fmt.Errorf("must be at least 1s; use for example 30s")
		}
	case "GORUN_JOB":
		v.Job = text
	case "GORUN_KEY":
		// Not kept: internal/pmi reads it, and nobody else may.
	case "GORUN_LOCAL_RANK":
		v.LocalRank, err = parseNumber(text)
	case "GORUN_LOCAL_SIZE":
		v.LocalSize, err = parseNumber(text)
	case "GORUN_CPUS":
		v.CPUs, err = parseNumber(text)
	default:
		err = fmt.Errorf("in the table but read by nobody")
	}
	return err
}

func parseList(text string) ([]string, error) {
	var list []string
	for _, name := range strings.Split(text, ",") {
		name = strings.ToLower(strings.TrimSpace(name))
		if name == "" || strings.ContainsAny(name, " \t") {
			return nil, fmt.Errorf("use names separated by commas, for example shm,tcp")
		}
		if slices.Contains(list, name) {
			return nil, fmt.Errorf("%s is named twice", name)
		}
		list = append(list, name)
	}
	return list, nil
}

var units = []struct {
	suffix string
	factor int64
}{
	// Longest first. As everywhere in this field, K, M, G are powers of 1024.
	{"kib", 1 << 10}, {"mib", 1 << 20}, {"gib", 1 << 30}, {"kb", 1 << 10}, {"mb", 1 << 20}, {"gb", 1 << 30},
	{"k", 1 << 10}, {"m", 1 << 20}, {"g", 1 << 30}, {"b", 1}, {"", 1},
}

// ParseSize reads a size such as 4096, 64KiB, 64K or 1M; all units are powers of 1024.
func ParseSize(text string) (int64, error) {
	lower := strings.ToLower(strings.TrimSpace(text))
	for _, u := range units {
		digits, ok := strings.CutSuffix(lower, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 0 {
			break
		}
		if n > math.MaxInt64/u.factor {
			return 0, fmt.Errorf("too large")
		}
		return n * u.factor, nil
	}
	return 0, fmt.Errorf("not a size; use for example 4096, 64KiB or 1M")
}

func parseSizeOrAuto(text string) (int64, error) {
	if strings.EqualFold(text, "auto") {
		return 0, nil
	}
	n, err := ParseSize(text)
	if err != nil {
		return 0, fmt.Errorf("%w, or auto", err)
	}
	if n == 0 {
		return 0, fmt.Errorf("must be larger than 0; use auto for the default")
	}
	return n, nil
}

func parseDuration(text string) (time.Duration, error) {
	if text == "0" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("not a duration; use for example 50us, 250ms or 60s")
	}
	return d, nil
}

func parseDurationOrAuto(text string) (time.Duration, error) {
	if strings.EqualFold(text, "auto") {
		return Auto, nil
	}
	d, err := parseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%w, or auto", err)
	}
	return d, nil
}

func parseSwitch(text string) (bool, error) {
	if text != "0" && text != "1" {
		return false, fmt.Errorf("use 0 or 1")
	}
	return text == "1", nil
}

func parseTristate(text string) (string, error) {
	text = strings.ToLower(text)
	if text != "auto" && text != "on" && text != "off" {
		return "", fmt.Errorf("use auto, on or off")
	}
	return text, nil
}

func parseLevel(text string) (string, error) {
	text = strings.ToLower(text)
	if !slices.Contains(levels, text) {
		return "", fmt.Errorf("not a level; use one of %s", strings.Join(levels, ", "))
	}
	return text, nil
}

func parseNumber(text string) (int, error) {
	if text == "" {
		return -1, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("not a number; gorun sets this variable itself, do not set it by hand")
	}
	return n, nil
}

// nearest returns the user's setting that is spelt most like name, if any is near enough to be meant.
func nearest(name string) string {
	best, bestDistance := "", 1+max(2, (len(name)-len("GORUN_"))/2)
	for _, s := range Table {
		if d := distance(strings.ToUpper(name), s.Name); !s.Internal && d < bestDistance {
			best, bestDistance = s.Name, d
		}
	}
	return best
}

// distance is the number of insertions, deletions, changes and swaps of neighbours between two strings.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
