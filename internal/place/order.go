package place

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
)

// Order is on which host each rank is, in ranges: one round after the other, and from the beginning again if there are
// more ranks than in all of them.
type Order []Round

// Round is a number of spans, so many times in turn.
type Round struct {
	Spans []Span
	Times int
}

// Span is neighbouring hosts with as many neighbouring ranks each.
type Span struct{ First, Hosts, PerHost int }

// Blocks is the order of ranks that lie host by host, counts[i] of them on host i. All counts are positive.
func Blocks(counts []int) Order {
	if len(counts) == 0 {
		return nil
	}
	var spans []Span
	for h, n := range counts {
		if last := len(spans) - 1; last >= 0 && spans[last].PerHost == n {
			spans[last].Hosts++
			continue
		}
		spans = append(spans, Span{h, 1, n})
	}
	return Order{{spans, 1}}
}

// InTurn is the order of ranks that are dealt to the hosts in turn, until host i has counts[i].
func InTurn(counts []int) (o Order) {
	levels := slices.Compact(slices.Sorted(slices.Values(counts)))
	have := 0
	for _, level := range levels {
		var spans []Span
		for h, n := range counts {
			if n < level {
				continue
			}
			if last := len(spans) - 1; last >= 0 && spans[last].First+spans[last].Hosts == h {
				spans[last].Hosts++
				continue
			}
			spans = append(spans, Span{h, 1, 1})
		}
		o = append(o, Round{spans, level - have})
		have = level
	}
	return o
}

// OrderOf is the order of ranks each of which is on the host of its place in the list; there is one at least.
func OrderOf(hosts []int) Order {
	var spans []Span
	for from := 0; from < len(hosts); {
		s := Span{hosts[from], 1, 1}
		for from++; from < len(hosts) && hosts[from] == s.First; from++ {
			s.PerHost++
		}
		if last := len(spans) - 1; last >= 0 && spans[last].PerHost == s.PerHost &&
			spans[last].First+spans[last].Hosts == s.First {
			spans[last].Hosts++
			continue
		}
		spans = append(spans, s)
	}
	return Order{{spans, 1}}
}

// size is the number of ranks of one round.
func (r Round) size() (n int) {
	for _, s := range r.Spans {
		n += s.Hosts * s.PerHost
	}
	return n
}

// size is the number of ranks of all rounds.
func (o Order) size() (n int) {
	for _, r := range o {
		n += r.size() * r.Times
	}
	return n
}

// HostOf is the number of the host of a rank, which is not negative. There is a span at least.
func (o Order) HostOf(rank int) int {
	rank %= o.size()
	for _, r := range o {
		n := r.size()
		if rank >= n*r.Times {
			rank -= n * r.Times
			continue
		}
		rank %= n
		for _, s := range r.Spans {
			if n := s.Hosts * s.PerHost; rank >= n {
				rank -= n
				continue
			}
			return s.First + rank/s.PerHost
		}
	}
	panic(fmt.Sprintf("place: the order %v ends before its size", o))
}

// Ranks is the first n ranks, each with its host. There is a span at least.
func (o Order) Ranks(n int) iter.Seq2[int, int] {
	return func(yield func(rank, host int) bool) {
		rank := 0
		for {
			for host := range o.hosts() {
				if rank == n || !yield(rank, host) {
					return
				}
				rank++
			}
		}
	}
}

// hosts is the hosts of the ranks of all rounds.
func (o Order) hosts() iter.Seq[int] {
	return func(yield func(int) bool) {
		for _, r := range o {
			for range r.Times {
				for _, s := range r.Spans {
					for i := range s.Hosts * s.PerHost {
						if !yield(s.First + i/s.PerHost) {
							return
						}
					}
				}
			}
		}
	}
}

// Mapping is the order as PMI_process_mapping: (vector,(first host, hosts, ranks on each),...). It has no repetitions,
// which old readers do not know, but for the one that all know: from the beginning, until there are enough ranks.
func (o Order) Mapping() string {
	if first := (Order{{o[0].Spans, 1}}); o.repeats(first) {
		o = first
	}
	var b strings.Builder
	b.WriteString("(vector")
	for _, r := range o {
		for range r.Times {
			for _, s := range r.Spans {
				fmt.Fprintf(&b, ",(%d,%d,%d)", s.First, s.Hosts, s.PerHost)
			}
		}
	}
	b.WriteByte(')')
	return b.String()
}

// repeats reports whether the other order, from the beginning again and again, is this one.
func (o Order) repeats(other Order) bool {
	next, stop := iter.Pull2(other.Ranks(o.size()))
	defer stop()
	for host := range o.hosts() {
		if _, otherHost, ok := next(); !ok || otherHost != host {
			return false
		}
	}
	return true
}

// mappingMax bounds each number in a mapping, and the ranks of all of it.
const mappingMax = 1 << 24

// ParseMapping reads a PMI_process_mapping: triples, lone numbers of hosts, and [...]xN around some of them.
func ParseMapping(text string) (o Order, err error) {
	wrong := fmt.Errorf("the launcher's PMI_process_mapping is %.200q, which is no (vector,(host,hosts,ranks),...)", text)
	rest, ok := strings.CutPrefix(strings.ReplaceAll(text, " ", ""), "(vector,")
	if !ok {
		return nil, wrong
	}
	for {
		var r Round
		if r, rest, ok = cutRound(rest); !ok {
			return nil, wrong
		}
		o = append(o, r)
		if rest == ")" {
			break
		}
		if rest, ok = strings.CutPrefix(rest, ","); !ok {
			return nil, wrong
		}
	}
	if all := o.total(); all > mappingMax {
		return nil, fmt.Errorf("the launcher's PMI_process_mapping is for %d ranks; at most %d are possible", all, mappingMax)
	}
	return o, nil
}

// total is size for numbers that have not been checked, each at most mappingMax. It ends early where there are more.
func (o Order) total() (n int64) {
	for _, r := range o {
		once := int64(0)
		for _, s := range r.Spans {
			if once += int64(s.Hosts) * int64(s.PerHost); once > mappingMax {
				return once
			}
		}
		if n += once * int64(r.Times); n > mappingMax {
			return n
		}
	}
	return n
}

// cutRound takes a span, or several as [...]xN, from the front of the text.
func cutRound(text string) (r Round, rest string, ok bool) {
	inside, group := strings.CutPrefix(text, "[")
	rest = inside
	for {
		var s Span
		if s, rest, ok = cutSpan(rest); !ok {
			return r, "", false
		}
		r.Spans = append(r.Spans, s)
		if !group {
			r.Times = 1
			return r, rest, true
		}
		if after, ends := strings.CutPrefix(rest, "]x"); ends {
			r.Times, rest, ok = cutNumber(after, 1)
			return r, rest, ok
		}
		if rest, ok = strings.CutPrefix(rest, ","); !ok {
			return r, "", false
		}
	}
}

// cutSpan takes (1,2,3), or a lone 1, which is (1,1,1).
func cutSpan(text string) (s Span, rest string, ok bool) {
	inside, triple := strings.CutPrefix(text, "(")
	if !triple {
		s.First, rest, ok = cutNumber(text, 0)
		s.Hosts, s.PerHost = 1, 1
		return s, rest, ok
	}
	rest = inside
	for i, into := range []*int{&s.First, &s.Hosts, &s.PerHost} {
		if *into, rest, ok = cutNumber(rest, min(i, 1)); !ok {
			return s, "", false
		}
		if rest, ok = strings.CutPrefix(rest, ",,)"[i:i+1]); !ok {
			return s, "", false
		}
	}
	return s, rest, true
}

func cutNumber(text string, least int) (n int, rest string, ok bool) {
	end := strings.IndexFunc(text, func(c rune) bool { return c < '0' || c > '9' })
	if end < 0 {
		end = len(text)
	}
	n, err := strconv.Atoi(text[:end])
	return n, text[end:], err == nil && n >= least && n <= mappingMax
}
