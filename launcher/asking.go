package launcher

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gorun-mpi/mpi/internal/frames"
	"github.com/gorun-mpi/mpi/internal/pmi"
	"github.com/gorun-mpi/mpi/internal/procs"
	"github.com/gorun-mpi/mpi/internal/waits"
)

// The supervisor asks the ranks what they do: for a user who wants to know (Ctrl-\, --timeout, gorun status), and to
// find that no rank can move (--stall). Ranks of this host answer over their control sockets, ranks of other hosts by
// way of their agents.

const (
	// patience is how long ranks may take to answer. An agent has four fifths of the time that the one above it has, and
	// answers for ranks of its host that are silent.
	patience = time.Second
	// stallTurns is how many turns of the watch there are in the time of --stall.
	stallTurns = 20
)

// asking is what a run asks its ranks.
type asking struct {
	now   *inquiry
	queue []*inquiry
	last  int // the number of the last one
	over  <-chan time.Time
	watch *waits.Watch     // nil: no watch for jobs that stand
	turn  <-chan time.Time // of watch
	// looking is set while the watch asks all runs: ranks of the others may answer when now is over.
	looking bool
}

// inquiry is one question to ranks.
type inquiry struct {
	question
	left map[int]bool // ranks that have not answered
	got  map[int]waits.Account
	then func(map[int]waits.Account) // nil: this is an agent's
}

// question is what an inquiry asks, and an agent is told.
type question struct {
	ID    int           `json:",omitempty"`
	Level waits.Level   `json:",omitempty"`
	Rank  int           `json:",omitempty"` // or waits.Any
	Dump  string        `json:",omitempty"` // a folder; "": no dump
	Limit time.Duration `json:",omitempty"` // for the answers
}

// stateMessage is what a rank has answered: pmi.Answer.
type stateMessage struct {
	Rank, ID int
	Text     []byte
}

// ask asks after earlier questions. Supervisor.
func (r *run) ask(q question, then func(map[int]waits.Account)) {
	r.asking.queue = append(r.asking.queue, &inquiry{question: q, left: map[int]bool{}, got: map[int]waits.Account{},
		then: then})
	r.nextInquiry()
}

func (r *run) nextInquiry() {
	a := &r.asking
	if a.now != nil || len(a.queue) == 0 {
		return
	}
	q := a.queue[0]
	a.now, a.queue = q, a.queue[1:]
	if r.parent == nil {
		a.last++
		q.ID, q.Limit = a.last, patience
	}
	a.over = time.After(q.Limit)
	for rank, st := range r.ranks {
		if st.started && !st.ended && (q.Rank == waits.Any || q.Rank == rank) {
			q.left[rank] = true
		}
	}
	below := q.question
	below.Limit = q.Limit * 4 / 5
	r.fleet.ask(below)
	if r.backend != nil {
		for i := range r.plan.Specs {
			if rank := r.plan.Specs[i].Rank; q.left[rank] {
				r.askLocal(rank, q)
			}
		}
	}
	r.inquiryOver(false)
}

// askLocal asks a rank of this host, and answers for one that cannot.
func (r *run) askLocal(rank int, q *inquiry) {
	why := r.stopped(rank)
	if why == "" && !r.server.Ask(rank, pmi.Question{ID: q.ID, Level: int(q.Level), Dump: q.Dump}) {
		switch s := r.server.State(rank); {
		case s.Finalized:
			why = "not in the job: has called Finalize"
		case !s.Joined:
			why = "not in the job: has not called Init"
		default:
			why = "gives no account: is in Init, or is no program of this library"
		}
	}
	if why != "" {
		r.answered(stateMessage{rank, q.ID, noAnswer(why)})
	}
}

// stopped says that a rank of this host is stopped; "": it is not.
func (r *run) stopped(rank int) string {
	pid := r.ranks[rank].pid
	if !procs.IsStopped(pid) {
		return ""
	}
	return fmt.Sprintf("is stopped by a signal (SIGSTOP, a debugger): it goes on after kill -CONT %d", pid)
}

// noAnswerInTime is why a rank that has been asked gives no account.
var noAnswerInTime = fmt.Sprintf("does not answer within %v", patience)

func noAnswer(note string) []byte { return waits.Account{Note: note}.Encode() }

// takeAnswers takes what the ranks of this host have answered.
func (r *run) takeAnswers() {
	for _, a := range r.server.TakeAnswers() {
		r.answered(stateMessage{a.Rank, a.ID, a.Text})
	}
	r.inquiryOver(false)
}

// answered takes the answer of a rank. An agent passes it on.
func (r *run) answered(m stateMessage) {
	q := r.asking.now
	if q == nil || m.ID != q.ID || !q.left[m.Rank] {
		return // it comes too late
	}
	delete(q.left, m.Rank)
	if r.parent != nil {
		r.parent.link.Send(frames.State, encode(m))
		return
	}
	a, err := waits.Decode(m.Text, r.origin().plan.World)
	if err != nil {
		a = waits.Account{Note: "gives no account that makes sense: " + oneLine(fmt.Sprintf("%.200s", err))}
	}
	q.got[m.Rank] = a
}

// inquiryOver ends the inquiry if all have answered, or the time is over.
func (r *run) inquiryOver(late bool) {
	q := r.asking.now
	if q == nil || !late && len(q.left) > 0 {
		return
	}
	for _, rank := range slices.Sorted(maps.Keys(q.left)) {
		switch {
		case r.ranks[rank].host == "":
			r.answered(stateMessage{rank, q.ID, noAnswer(cmp.Or(r.stopped(rank), noAnswerInTime))})
		case r.parent == nil:
			q.got[rank] = waits.Account{Note: noAnswerInTime}
		}
	}
	r.asking.now, r.asking.over = nil, nil
	if q.then != nil {
		q.then(q.got)
	}
	r.nextInquiry()
}

// answersOf is where answers come; nil: this host has no ranks.
func (r *run) answersOf() <-chan struct{} {
	if r.backend == nil {
		return nil
	}
	return r.server.Answers()
}

// row is what a rank does, as the user reads it.
type row struct {
	id    rankID
	times int // how often the rank has been started again
	waits.Rank
}

// rows are what the ranks of this run do.
func (r *run) rows(got map[int]waits.Account) (rows []row) {
	for _, rank := range slices.Sorted(maps.Keys(r.ranks)) {
		st := r.ranks[rank]
		a, ok := got[rank]
		switch {
		case ok:
		case !st.started:
			a.Note = "has not been started"
		case st.ended:
			a.Note = "has ended"
		default:
			a.Note = "has just been started"
		}
		e := r.job.titled(procs.Exit{Rank: rank})
		rows = append(rows, row{idOf(e), e.Again, waits.Rank{Rank: e.Number(), Again: e.Again != 0, Host: r.hostOf(rank),
			Account: a}})
	}
	return rows
}

// askAll asks all ranks of this run and, if it is the first one, of all spawned jobs. then runs on the supervisor.
func (r *run) askAll(q question, then func([]row)) {
	var all []row
	left := 1
	add := func(rows []row) {
		all = append(all, rows...)
		if left--; left == 0 {
			then(all)
		}
	}
	for s := range r.spawns.begun() {
		left++
		go func() {
			rows := s.askAll(q)
			r.post(func() { add(rows) })
		}()
	}
	r.ask(q, func(got map[int]waits.Account) { add(r.rows(got)) })
}

// askAll asks the ranks of a spawned job, unless that is over. It waits for them.
func (s *spawned) askAll(q question) (rows []row) {
	if world := s.run.job.idOf(0).spawn; q.Dump != "" && world != 0 {
		q.Dump = filepath.Join(q.Dump, folderOf(world))
	}
	answer := make(chan []row, 1)
	s.run.post(func() { s.run.askAll(q, func(rows []row) { answer <- rows }) })
	select {
	case rows = <-answer:
	case <-s.run.over:
	}
	return rows
}

// newest leaves the last process of each rank, in order.
func newest(rows []row) []row {
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(a.id.spawn-b.id.spawn, a.id.rank-b.id.rank, b.times-a.times)
	})
	return slices.CompactFunc(rows, func(a, b row) bool { return a.id == b.id })
}

// table is what a user reads of the answers. The ranks of each job that Spawn has started come after the others, and
// are numbered in a world of their own.
func (r *run) table(rows []row) (lines []string) {
	rows = newest(rows)
	hosts, written, more := map[string]bool{}, false, []string(nil)
	for i := range rows {
		hosts[rows[i].Host] = true
	}
	var world []waits.Rank
	for i := range rows {
		w := &rows[i]
		if len(hosts) == 1 {
			w.Host = ""
		}
		world = append(world, w.Rank)
		if i+1 == len(rows) || rows[i+1].id.spawn != w.id.spawn {
			if w.id.spawn != 0 {
				lines = append(lines, fmt.Sprintf("the ranks of spawn %d, numbered as in their world:", w.id.spawn))
			}
			lines, world = append(lines, waits.Table(world)...), nil
		}
		switch {
		case filepath.IsAbs(w.Dump):
			written = true
		case w.Dump != "" && len(more) < mostUnwritten:
			more = append(more, fmt.Sprintf("the goroutines of %s are %s",
				procs.Exit{Rank: w.id.rank, Spawn: w.id.spawn}.Name(), w.Dump))
		}
	}
	if lines = append(lines, more...); written {
		on := ""
		if len(hosts) > 1 {
			on = ", on the host of each rank"
		}
		if rows[len(rows)-1].id.spawn != 0 {
			on += "; of spawn N in a folder spawn.N of that one"
		}
		lines = append(lines, "the goroutines of each rank are in "+filepath.Join(r.job.Dump, "rank.N.goroutines")+on)
	}
	return lines
}

// mostUnwritten lines say why goroutines have not been written.
const mostUnwritten = 8

// tableHead stands above the table.
const tableHead = "what the ranks do, numbered as in world:"

// printTable asks all ranks what they do, and prints it. Their calls have waited for least. then is called afterwards.
func (r *run) printTable(head string, least time.Duration, then func()) {
	r.askAll(question{Level: waits.Full, Rank: waits.Any, Dump: r.job.Dump}, func(rows []row) {
		for i := range rows {
			for k := range rows[i].Calls {
				if rows[i].id.spawn == 0 { // other ranks may have begun to wait later
					c := &rows[i].Calls[k]
					c.For = max(c.For, least)
				}
			}
		}
		for line := range strings.SplitSeq(head, "\n") {
			r.say("%s", line)
		}
		r.print(action{print: indented(r.table(rows))})
		then()
	})
}

func indented(lines []string) []string {
	for i := range lines {
		lines[i] = "  " + lines[i]
	}
	return lines
}

// report is the table, for another process of the user (gorun status). It waits for the supervisor and the ranks.
func (r *run) report() string {
	text := make(chan string, 1)
	r.post(func() {
		r.askAll(question{Level: waits.Full, Rank: waits.Any}, func(rows []row) {
			text <- strings.Join(r.table(rows), "\n") + "\n"
		})
	})
	select {
	case t := <-text:
		return t
	case <-r.over:
		return "the job has just ended\n"
	}
}

// beginWatch begins to look for a job that stands.
func (r *run) beginWatch() {
	if r.job.Stall.Limit <= 0 || r.parent != nil || r.plan.World < 2 {
		return
	}
	r.asking.watch = &waits.Watch{Limit: r.job.Stall.Limit}
	r.asking.turn = time.After(r.job.Stall.Limit / stallTurns)
}

// watchTurn asks what the watch wants to know.
func (r *run) watchTurn() {
	a := &r.asking
	a.turn = time.After(a.watch.Limit / stallTurns)
	if a.now != nil || a.looking || r.starting > 0 || r.policy.phase != working || r.leaving {
		return
	}
	ranks := r.running()
	if len(ranks) < r.plan.World && r.job.Respawn > 0 {
		r.watchReplaced()
		return
	}
	if len(ranks) < r.plan.World {
		return // what the others have sent is not known any more; waits for them end with an error
	}
	rank, level, ok := a.watch.Next(ranks)
	if !ok {
		return
	}
	r.ask(question{Level: level, Rank: rank}, func(got map[int]waits.Account) {
		if !slices.Equal(ranks, r.running()) {
			ranks = nil // a rank has ended meanwhile
		}
		if a.watch != nil && ranks != nil && a.watch.Hear(time.Now(), ranks, got) {
			a.turn = nil
			r.stalled()
		}
	})
}

// watchReplaced is watchTurn of a job in which ranks have died that may be started again. Once all are there again,
// they stand in the world of the last Replace, and count the messages of that.
func (r *run) watchReplaced() {
	a := &r.asking
	ranks := make([]int, r.plan.World)
	for rank := range ranks {
		ranks[rank] = rank
	}
	_, level, ok := a.watch.Next(ranks)
	if !ok {
		return
	}
	a.looking = true
	r.askAll(question{Level: level, Rank: waits.Any}, func(rows []row) {
		if a.looking = false; a.watch != nil && a.watch.Hear(time.Now(), ranks, ofOneReplace(rows)) {
			a.turn = nil
			r.stalled()
		}
	})
}

// ofOneReplace are the accounts of the ranks of the first world, if all of them are in the world of one Replace.
func ofOneReplace(rows []row) map[int]waits.Account {
	got, world := map[int]waits.Account{}, ""
	for _, w := range newest(rows) {
		if w.id.spawn != 0 {
			continue
		}
		if len(got) == 0 {
			world = w.World
		}
		if w.World == "" || w.World != world {
			return nil
		}
		got[w.id.rank] = w.Account
	}
	return got
}

func (r *run) running() (ranks []int) {
	for rank, st := range r.ranks {
		if st.started && !st.ended {
			ranks = append(ranks, rank)
		}
	}
	slices.Sort(ranks)
	return ranks
}

// stalled is called when no rank can move.
func (r *run) stalled() {
	whose := "the job"
	if slices.ContainsFunc(r.spawns.all, func(s *spawned) bool { return s.origin == nil }) {
		whose = "the first world" // and spawned ranks, which are not asked, end none of these waits
	}
	head := fmt.Sprintf("no rank of %s can move: all have waited for each other for %v, and no message is under way",
		whose, r.job.Stall.Limit)
	if !r.job.Stall.Abort {
		r.printTable(head+" (--stall)\nthe job goes on to wait; "+tableHead, r.job.Stall.Limit, func() {})
		return
	}
	r.printTable(head+" (--stall abort)\n"+tableHead, r.job.Stall.Limit, func() {
		r.do(r.policy.stalled(time.Now(), r.job.Stall.Limit))
	})
}
