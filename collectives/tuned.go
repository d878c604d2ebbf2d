package collectives

import (
	"cmp"
	"fmt"
	"math"
	"strings"
)

// tunedRule is a line that was measured on the machine at hand. It holds from a size and a number of ranks on, too.
type tunedRule struct {
	rule
	leastBytes int64
	leastRanks int
}

// Tune puts lines before the table, and behind the algorithms that c names. It is called before c chooses.
func (c *Choice) Tune(lines []Line) error {
	for i := range lines {
		t, err := lines[i].rule()
		if err != nil {
			return fmt.Errorf("collectives, entry %d: %w", i+1, err)
		}
		c.tuned = append(c.tuned, t)
	}
	return nil
}

// rule checks a line. A user may have written it.
func (l *Line) rule() (t tunedRule, err error) {
	o, err := ParseOperation(l.Operation)
	if err != nil {
		return t, fmt.Errorf("operation: %w", err)
	}
	if _, err := Find(o, l.Algorithm); err != nil {
		return t, fmt.Errorf("algorithm: %w", err)
	}
	via, err := oneOf("over", l.Via, AnyVia, SharedMemory, Network)
	if err != nil {
		return t, err
	}
	cpus, err := oneOf("cpus", l.CPUs, AnyCPUs, Crowded, Roomy)
	if err != nil {
		return t, err
	}
	for _, f := range []struct {
		name string
		n    int64
	}{{"least_bytes", l.LeastBytes}, {"most_bytes", l.Bytes}, {"least_ranks", int64(l.LeastRanks)},
		{"most_ranks", int64(l.Ranks)}, {"least_ranks_per_host", int64(l.PerHost)}} {
		if f.n < 0 || f.n > math.MaxInt64/2 {
			return t, fmt.Errorf("%s: %d is no such number; leave it out, or write one of 1 or more", f.name, f.n)
		}
	}
	t = tunedRule{rule{operation: o, bytes: cmp.Or(l.Bytes, unbounded), ranks: cmp.Or(l.Ranks, unbounded),
		perHost: l.PerHost, via: via, cpus: cpus, name: l.Algorithm}, l.LeastBytes, l.LeastRanks}
	if t.leastBytes > t.bytes || t.leastRanks > t.ranks {
		return t, fmt.Errorf("no call has from %d to %d bytes on %d to %d ranks", t.leastBytes, t.bytes, t.leastRanks,
			t.ranks)
	}
	if l.Powers {
		t.ranks = powersOfTwo(t.ranks)
	}
	return t, nil
}

// oneOf returns the value of a field that has a name.
func oneOf[T fmt.Stringer](field, name string, values ...T) (v T, err error) {
	names := make([]string, len(values))
	for i, v := range values {
		if names[i] = v.String(); names[i] == name {
			return v, nil
		}
	}
	if name == "" {
		return v, fmt.Errorf("%s: it is missing; write one of %s", field, strings.Join(names, ", "))
	}
	return v, fmt.Errorf("%s: there is no %q; there are %s", field, name, strings.Join(names, ", "))
}

// holds reports whether the line is for such a call.
func (t *tunedRule) holds(o Operation, p *Params, bytes int64, perHost int, via Via) bool {
	return bytes >= t.leastBytes && p.Size >= t.leastRanks && t.rule.holds(o, p, bytes, perHost, via)
}
