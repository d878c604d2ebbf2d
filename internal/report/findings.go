package report

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits of what is worth a sentence, as shares of the ranks' time.
const (
	worthSaying  = 0.05
	uneven       = 1.2 // imbalance
	mostFindings = 6
	manyMessages = 10_000
	fewBytes     = 512
)

// findings says in words where time was lost, and what to do. The longest time comes first.
func (m *Merged) findings() []string {
	found := m.waitFindings()
	var total, computing, calling int64
	busiest := 0
	for rank, r := range m.Report.Ranks {
		total, computing, calling = total+r.Time, computing+r.Computing, calling+r.InCalls
		if r.Computing > m.Report.Ranks[busiest].Computing {
			busiest = rank
		}
	}
	n := max(1, int64(len(m.parts))) // the others could save what the busiest computes beyond the mean
	if gain := m.Report.Ranks[busiest].Computing - computing/n; m.Report.Imbalance >= uneven &&
		float64(gain) >= worthSaying*float64(total/n) {
		found = append(found, fmt.Sprintf("Rank %d computes %.1f times as long as the mean (%s; the mean is %s). "+
			"Give a part of its work to other ranks.", busiest, m.Report.Imbalance,
			spoken(m.Report.Ranks[busiest].Computing), spoken(computing/n)))
	}
	var messages, short int64
	for _, s := range m.Report.Sizes {
		messages += s.Messages
		if s.To < fewBytes {
			short += s.Messages
		}
	}
	if messages >= manyMessages && float64(short) >= 0.9*float64(messages) &&
		float64(calling) >= 2*worthSaying*float64(total) {
		found = append(found, fmt.Sprintf("%.0f %% of %d messages have less than %d B. Where the program can, let it "+
			"put several into one message.", 100*float64(short)/float64(messages), messages, fewBytes))
	}
	if len(found) == 0 {
		found = append(found, fmt.Sprintf("At no line of the program do ranks wait for others for more than %.0f %% of "+
			"their time.", 100*worthSaying))
	}
	return found
}

// waitGroup are the waits of one reason at one line.
type waitGroup struct {
	why  string
	site int
	time int64
	rows []WaitRow
}

func (m *Merged) waitFindings() (found []string) {
	type key struct {
		why  string
		site int
	}
	groups := map[key]*waitGroup{}
	for _, row := range m.Report.Waits {
		k := key{row.Why, row.Site}
		g := groups[k]
		if g == nil {
			g = &waitGroup{why: row.Why, site: row.Site}
			groups[k] = g
		}
		g.time += row.Time
		g.rows = append(g.rows, row)
	}
	var all []*waitGroup
	for _, g := range groups {
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b *waitGroup) int {
		return cmp.Or(cmp.Compare(b.time, a.time), cmp.Compare(a.why, b.why), cmp.Compare(a.site, b.site))
	})
	for _, g := range all {
		if text := m.say(g); text != "" && len(found) < mostFindings {
			found = append(found, text)
		}
	}
	return found
}

// say returns a sentence about a group; "": it is not worth one.
func (m *Merged) say(g *waitGroup) string {
	late := map[int]int64{} // the time that others have waited for a rank
	latest := g.rows[0].For
	for _, row := range g.rows {
		late[row.For] += row.Time
		if late[row.For] > late[latest] {
			latest = row.For
		}
	}
	alone := late[latest] >= (g.time+1)/2 // that rank is the cause
	var who []int
	var theirs *WaitRow // the longest wait for that rank, which says where it is late
	ofRank := map[int]int64{}
	for i, row := range g.rows {
		if theirs == nil && row.For == latest {
			theirs = &g.rows[i]
		}
		if alone && row.For != latest {
			continue
		}
		if _, known := ofRank[row.Rank]; !known {
			who = append(who, row.Rank)
		}
		ofRank[row.Rank] += row.Time
	}
	var waited, time int64
	for _, rank := range who {
		waited += min(ofRank[rank], m.waits.ofCalls[callKey{rank, g.site, g.why}])
		time += m.Report.Ranks[rank].Time
	}
	if time == 0 || float64(waited) < worthSaying*float64(time) {
		return ""
	}
	slices.Sort(who)
	wait, their, inAll := "wait", "their", " in all"
	if len(who) == 1 {
		wait, their, inAll = "waits", "its", ""
	}
	some := ""
	if m.Report.Timeline.Unkept > 0 {
		some = "at least "
	}
	// Several goroutines that wait at one time may wait for longer than there is.
	text := fmt.Sprintf("%s %s %s%.0f %% of %s time (%s) in %s ", ranksInWords(who), wait, some,
		min(100, 100*float64(waited)/float64(time)), their, spoken(waited)+inAll, m.siteInWords(g.site))
	other := m.siteInWords(theirs.ForSite)
	switch {
	case g.why == lateSender && alone:
		text += fmt.Sprintf("for rank %d's %s. Send earlier there, or receive later: Irecv, compute, Wait.", latest, other)
	case g.why == lateSender:
		text += fmt.Sprintf("for messages of ranks that send late, the longest for rank %d's %s. Send earlier there, "+
			"or receive later: Irecv, compute, Wait.", latest, other)
	case g.why == lateReceiver && alone:
		text += fmt.Sprintf("until rank %d receives by %s. Receive earlier there (Irecv), or send by Isend.", latest, other)
	case g.why == lateReceiver:
		text += fmt.Sprintf("until other ranks receive, the longest for rank %d's %s. Receive earlier there (Irecv), "+
			"or send by Isend.", latest, other)
	case alone:
		text += fmt.Sprintf("for rank %d, which makes the call last. Give it less to do before, or begin the call early "+
			"by its nonblocking form.", latest)
	default:
		text += fmt.Sprintf("for the rank that makes the call last, the longest for rank %d. Even out the work before "+
			"the call, or begin it early by its nonblocking form.", latest)
	}
	return text
}

func (m *Merged) siteInWords(at int) string {
	s := &m.Report.Sites[at]
	op, file := s.Op, filepath.Base(s.File)
	shorten(60, &op, &file)
	if s.File == "" {
		return op
	}
	return fmt.Sprintf("%s at %s:%d", op, file, s.Line)
}

// ranksInWords is "Rank 3", "Ranks 0–2 and 5", "Ranks 0, 2, 4, 6 and 13 others". Ranks are in order.
func ranksInWords(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("Rank %d", ranks[0])
	}
	var runs []string
	told := 0
	for i := 0; i < len(ranks) && len(runs) < 4; {
		last := i
		for last+1 < len(ranks) && ranks[last+1] == ranks[last]+1 {
			last++
		}
		run := fmt.Sprint(ranks[i])
		if last == i+1 {
			run += fmt.Sprintf(", %d", ranks[last])
		} else if last > i {
			run += fmt.Sprintf("–%d", ranks[last])
		}
		runs = append(runs, run)
		i = last + 1
		told = i
	}
	if rest := len(ranks) - told; rest > 0 {
		return fmt.Sprintf("Ranks %s and %d others", strings.Join(runs, ", "), rest)
	}
	text := strings.Join(runs, ", ")
	if i := strings.LastIndex(text, ", "); i >= 0 {
		text = text[:i] + " and " + text[i+2:]
	}
	return "Ranks " + text
}

// spoken is a time with three digits.
func spoken(ns int64) string {
	d := time.Duration(ns)
	for _, unit := range []struct {
		name   string
		length time.Duration
	}{{"µs", time.Microsecond}, {"ms", time.Millisecond}, {"s", time.Second}} {
		if d < 999*unit.length {
			return fmt.Sprintf("%.3g %s", float64(d)/float64(unit.length), unit.name)
		}
	}
	return fmt.Sprintf("%.0f s", d.Seconds())
}

// inThousands is a number as the page writes its numbers: 1,234,567.
func inThousands(n int64) string {
	text := strconv.FormatInt(n, 10)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}
