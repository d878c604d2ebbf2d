package simulate

import (
	"fmt"

	"github.com/gorun-mpi/mpi/collectives"
)

// Job is one call at all ranks.
type Job struct {
	Algorithm *collectives.Algorithm
	// Params are those of all ranks, but for Rank. Hosts must be known.
	Params collectives.Params
	Model  *Model
}

// Result is what a call costs.
type Result struct {
	Seconds  float64 // until the last rank is done
	Messages int64   // sent in all
	Bytes    int64   // sent in all
	Most     int     // messages that one rank sends and receives
	Tmp      int64   // bytes of Tmp at the rank that has most
	Rounds   int     // at the rank that has most
}

// storedRounds bounds how many rounds are kept for all ranks together.
const storedRounds = 4 << 20

// Run prices a call. It is an error if a schedule does not end, which none of the catalogue does.
func (j *Job) Run() (Result, error) {
	p := j.Params
	if p.Hosts == nil || p.Size < 1 {
		return Result{}, fmt.Errorf("a simulation needs at least one rank, and to know which ranks share a host")
	}
	if err := j.Algorithm.Fits(&p); err != nil {
		return Result{}, err
	}
	if err := j.Model.valid(); err != nil {
		return Result{}, err
	}
	s := simulation{
		job: j, params: p, machine: newMachine(j.Model, p.Hosts.Len()), ranks: make([]rank, p.Size),
		window: max(1, min(64, storedRounds/p.Size)), waiting: map[uint64]int32{},
	}
	for r := range s.ranks {
		s.queue.push(event{0, int32(r)})
	}
	for len(s.queue) > 0 {
		e := s.queue.pop()
		s.start(int(e.rank), e.at)
	}
	for r := range s.ranks {
		if s.ranks[r].open > 0 {
			return Result{}, fmt.Errorf("%v: rank %d waits for ever in round %d", j.Algorithm, r, s.ranks[r].round)
		}
	}
	return s.result, nil
}

// work is about how many rounds and messages all ranks have together: a simulation takes a microsecond for each.
// A few ranks are asked, the root not among them: it may have more than its share.
func (j *Job) work() (sum int) {
	var b collectives.Builder
	p := j.Params
	for _, p.Rank = range []int{1 % p.Size, p.Size / 2, p.Size - 1} {
		s := b.Window(j.Algorithm, &p, 0, 0)
		sum = max(sum, max(s.Rounds, s.Messages/2)*p.Size)
	}
	return sum
}

// step is a step without the places that it works on.
type step struct {
	bytes int64
	peer  int32
	kind  collectives.Kind
	last  bool // of its round
}

// rank is one rank's state.
type rank struct {
	steps    []step  // of the rounds that are kept, from the next round on
	at       float64 // when its processor is done with what it has begun, but for receiving
	arrived  float64 // when the last message of the round is complete
	landing  float64 // processor time of the round's receives
	round    int     // the next round, or the one whose messages are under way
	rounds   int
	open     int // messages of the round that are not complete
	messages int // sent and received
}

type simulation struct {
	job     *Job
	params  collectives.Params
	machine *machine
	builder collectives.Builder
	ranks   []rank
	queue   queue
	window  int
	result  Result

	waiting map[uint64]int32 // by pair: the first of its messages that wait for the other side, in posted
	posted  []posted
	unused  int32 // the first of posted that is not in use, plus one
}

// posted is a message of one side that waits for the other.
type posted struct {
	at   float64 // a receive: when it was posted; a send: when it was started, or of an eager one, when it arrives
	next int32   // in posted, plus one; 0: none
	kind collectives.Kind
}

// fill keeps the next rounds of a rank.
func (s *simulation) fill(r int) {
	k := &s.ranks[r]
	s.params.Rank = r
	w := s.builder.Window(s.job.Algorithm, &s.params, k.round, s.window)
	if k.steps == nil {
		s.result.Tmp = max(s.result.Tmp, w.Tmp*s.params.ElemSize)
		s.result.Rounds = max(s.result.Rounds, w.Rounds)
	}
	k.rounds, k.steps = w.Rounds, k.steps[:0]
	for i := k.round; i < k.round+w.Stored(); i++ {
		messages, local := w.Round(i)
		for _, part := range [2][]collectives.Step{messages, local} {
			for _, st := range part {
				k.steps = append(k.steps, step{bytes: st.Len * s.params.ElemSize, peer: st.Peer, kind: st.Kind})
			}
		}
		k.steps[len(k.steps)-1].last = true
	}
}

// start begins a rank's next round.
func (s *simulation) start(r int, at float64) {
	k := &s.ranks[r]
	if len(k.steps) == 0 {
		s.fill(r)
		if k.round >= k.rounds {
			s.result.Seconds = max(s.result.Seconds, at)
			return
		}
	}
	k.at, k.arrived, k.landing = at, at, 0
	end := 0
	for end < len(k.steps) && (k.steps[end].kind == collectives.Send || k.steps[end].kind == collectives.Recv) {
		end++
		if k.steps[end-1].last {
			break
		}
	}
	k.open = end + 1 // and this function
	k.messages += end
	s.result.Most = max(s.result.Most, k.messages)
	for _, kind := range [...]collectives.Kind{collectives.Recv, collectives.Send} {
		for _, st := range k.steps[:end] {
			if st.kind == kind {
				s.post(r, st)
			}
		}
	}
	s.complete(r, k.at)
}

// post starts one side of a message. What the other side has posted is matched in order.
func (s *simulation) post(r int, st step) {
	from, to := r, int(st.peer)
	if st.kind == collectives.Recv {
		from, to = to, from
	}
	hostFrom, hostTo := s.params.Hosts.Host(from), s.params.Hosts.Host(to)
	path := s.machine.path(hostFrom, hostTo)
	k := &s.ranks[r]
	mine := posted{at: k.at, kind: st.kind}
	eager := st.bytes <= path.Eager
	if st.kind == collectives.Send {
		s.result.Messages++
		s.result.Bytes += st.bytes
		k.at += path.Overhead
		mine.at = k.at
		if eager {
			mine.at = s.machine.carry(k.at, hostFrom, hostTo, st.bytes)
		}
	}
	other, ok := s.match(from, to, mine)
	if ok {
		done := max(mine.at, other.at)
		if !eager {
			done = s.machine.carry(done+2*s.machine.latency(hostFrom, hostTo), hostFrom, hostTo, st.bytes)
		}
		s.ranks[to].landing += path.Overhead
		s.complete(to, done+path.Overhead)
		if !eager {
			s.complete(from, done)
		}
	}
	if eager && st.kind == collectives.Send {
		s.complete(r, k.at)
	}
}

// match returns what the other side has posted first, or leaves mine to wait.
func (s *simulation) match(from, to int, mine posted) (other posted, ok bool) {
	key := uint64(from)<<32 | uint64(to)
	first := s.waiting[key]
	if first > 0 && s.posted[first-1].kind != mine.kind {
		other = s.posted[first-1]
		if other.next == 0 {
			delete(s.waiting, key)
		} else {
			s.waiting[key] = other.next
		}
		s.posted[first-1].next = s.unused
		s.unused = first
		return other, true
	}
	at := s.unused
	if at > 0 {
		s.unused = s.posted[at-1].next
		s.posted[at-1] = mine
	} else {
		s.posted = append(s.posted, mine)
		at = int32(len(s.posted))
	}
	if first == 0 {
		s.waiting[key] = at
		return other, false
	}
	for s.posted[first-1].next > 0 {
		first = s.posted[first-1].next
	}
	s.posted[first-1].next = at
	return other, false
}

// complete ends one message of a rank's round, and with the last one the round.
func (s *simulation) complete(r int, at float64) {
	k := &s.ranks[r]
	k.arrived = max(k.arrived, at)
	if k.open--; k.open > 0 {
		return
	}
	k.at = max(k.at+k.landing, k.arrived)
	for i, st := range k.steps {
		switch st.kind {
		case collectives.Copy:
			k.at += float64(st.bytes) / s.machine.Copy
		case collectives.Combine:
			k.at += float64(st.bytes) / s.machine.Combine
		}
		if st.last {
			k.steps = k.steps[i+1:]
			break
		}
	}
	k.round++
	s.queue.push(event{k.at, int32(r)})
}
