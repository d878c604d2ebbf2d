package simulate

import (
	"fmt"

	"github.com/gorun-mpi/mpi/collectives"
)

// Job is one call at all ranks.
type Job struct {
	Algorithm *collectives.Algorithm
	// Params are the parameters of all ranks, except Rank. Hosts must be known.
	Params collectives.Params
	Model  *Model
	// Repeat is how often the call is made, one after the other; 0 is 1. Before each call all ranks do Between, if it
	// is not nil: the benchmarks have a barrier there.
	Repeat  int
	Between *collectives.Algorithm
	// Sent, if not nil, is told now and then how many messages have been sent.
	Sent func(messages int64)
}

// sentEvery is after how many events Job.Sent is called: a part of a second.
const sentEvery = 1 << 14

// Result is what a call costs. With Job.Repeat, all but Mean is of all calls, Between included.
type Result struct {
	Seconds  float64 // until the last rank is done
	Mean     float64 // what a call takes a rank, as a mean of all ranks and of all calls but the first
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
	if err := j.Model.Valid(); err != nil {
		return Result{}, err
	}
	s := simulation{
		job: j, params: p, machine: newMachine(j.Model, p.Hosts, j.bytes()), ranks: make([]rank, p.Size),
		window: max(1, min(64, storedRounds/p.Size)), waiting: map[uint64]int32{}, calls: max(1, j.Repeat),
	}
	if j.Between != nil {
		s.calls *= 2
	}
	for r := range s.ranks {
		s.queue.push(event{0, int32(r)})
	}
	for n := 1; len(s.queue) > 0; n++ {
		if n%sentEvery == 0 && j.Sent != nil {
			j.Sent(s.result.Messages)
		}
		if e := s.queue.pop(); e.rank < 0 {
			s.transfer(^e.rank, e.at)
		} else {
			s.proceed(int(e.rank), e.at)
		}
	}
	if calls := max(1, j.Repeat) - 1; calls > 0 {
		s.result.Mean = s.took / float64(calls) / float64(p.Size)
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

// bytes is what a rank has in memory for the call: what it contributes and what it gets.
func (j *Job) bytes() int64 {
	blocks := int64(1)
	if j.Algorithm.Operation.Facts().Shape == collectives.Equal {
		blocks = int64(j.Params.Size)
	}
	return 2 * blocks * j.Params.Count * j.Params.ElemSize
}

// step is a step without the places that it works on.
type step struct {
	bytes int64
	peer  int32
	kind  collectives.Kind
	last  bool // of its round
	fresh bool // a send, of what this rank has written in the call
}

// rank is one rank's state.
type rank struct {
	steps    []step  // of the rounds that are kept, from the next round on
	at       float64 // when its processor is done with what it has begun, but for receiving
	arrived  float64 // when the last message of the round is complete
	landing  float64 // processor time of the round's receives
	began    float64 // when the call began
	round    int     // the next round, or the one whose messages are under way
	rounds   int
	call     int          // calls that are done
	open     int          // messages of the round that are not complete
	messages int          // sent and received
	waits    bool         // for a processor, to end a round
	wrote    [spaces]bool // in this call
}

// spaces are In, Out and Tmp.
const spaces = 3

type simulation struct {
	job     *Job
	params  collectives.Params
	machine *machine
	builder collectives.Builder
	ranks   []rank
	queue   queue
	window  int
	calls   int // of each rank, those of Job.Between included
	took    float64
	result  Result

	waiting map[uint64]int32 // by pair: the first of its messages that wait for the other side, in posted
	posted  []posted
	unused  int32 // the first of posted that is not in use, plus one

	transfers []transfer
	spare     []int32 // of transfers
}

// posted is a message of one side that waits for the other.
type posted struct {
	at    float64 // a receive: when it was posted; a send: when it was started, or of an eager one, when it arrives
	next  int32   // in posted, plus one; 0: none
	kind  collectives.Kind
	fresh bool // of step
}

// transfer is a message whose receive has been waited for.
type transfer struct {
	from, to int32
	bytes    int64
	fresh    bool // of step
}

// between reports whether a call is Job.Between.
func (s *simulation) between(call int) bool { return s.job.Between != nil && call%2 == 0 }

// window of the rank's call from its round on.
func (s *simulation) build(r int) *collectives.Schedule {
	k := &s.ranks[r]
	if s.between(k.call) {
		p := collectives.Params{Rank: r, Size: s.params.Size, ElemSize: 1, Hosts: s.params.Hosts}
		return s.builder.Window(s.job.Between, &p, k.round, s.window)
	}
	s.params.Rank = r
	return s.builder.Window(s.job.Algorithm, &s.params, k.round, s.window)
}

// fill keeps the next rounds of a rank.
func (s *simulation) fill(r int) {
	k := &s.ranks[r]
	w := s.build(r)
	if k.round == 0 {
		s.result.Tmp = max(s.result.Tmp, w.Tmp*s.params.ElemSize)
		s.result.Rounds = max(s.result.Rounds, w.Rounds)
	}
	if k.round == 0 {
		k.wrote = [spaces]bool{}
	}
	k.rounds, k.steps = w.Rounds, k.steps[:0]
	for i := k.round; i < k.round+w.Stored(); i++ {
		messages, local := w.Round(i)
		for _, part := range [2][]collectives.Step{messages, local} {
			for _, st := range part {
				k.steps = append(k.steps, step{bytes: st.Len * s.params.ElemSize, peer: st.Peer, kind: st.Kind,
					fresh: st.Kind == collectives.Send && k.wrote[st.Src.Space]})
			}
		}
		for _, part := range [2][]collectives.Step{messages, local} {
			for _, st := range part {
				if st.Kind != collectives.Send {
					k.wrote[st.Dst.Space] = true
				}
			}
		}
		k.steps[len(k.steps)-1].last = true
	}
}

// proceed is that a rank can go on. Where ranks share processors it waits for one.
func (s *simulation) proceed(r int, at float64) {
	k := &s.ranks[r]
	core := s.machine.core(r, at)
	if core != nil {
		at = s.machine.enter(core, r, at)
	}
	if k.waits {
		k.waits = false
		s.end(r, at)
		at = k.at
	}
	for s.start(r, at) {
		s.end(r, k.at)
		at = k.at
	}
	if core != nil {
		core.free = max(core.free, k.at)
	}
}

// start begins a rank's next round. It reports whether the rank shares a processor and need not give it up: all that it
// waits for is there.
func (s *simulation) start(r int, at float64) bool {
	k := &s.ranks[r]
	k.at = at
	for len(k.steps) == 0 {
		s.fill(r)
		if k.round < k.rounds {
			break
		}
		if !s.between(k.call) && k.call >= s.calls/max(1, s.job.Repeat) {
			s.took += at - k.began
		}
		k.began, k.round = at, 0
		if k.call++; k.call >= s.calls {
			s.result.Seconds = max(s.result.Seconds, at)
			return false
		}
	}
	k.arrived, k.landing = at, 0
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
	if k.open == 1 && s.machine.shared() && k.arrived-k.landing <= k.at {
		k.open = 0
		return true
	}
	s.complete(r, k.at)
	return false
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
	mine := posted{at: k.at, kind: st.kind, fresh: st.fresh}
	eager := st.bytes <= path.Eager
	if st.kind == collectives.Send {
		s.result.Messages++
		s.result.Bytes += st.bytes
		k.at += path.Overhead
		if eager {
			k.at += s.machine.touch(path, st.bytes)
		}
		mine.at = k.at
		if eager {
			mine.at = s.machine.carry(k.at, hostFrom, hostTo, st.bytes)
		}
	}
	if other, ok := s.match(from, to, mine); ok {
		done := max(mine.at, other.at)
		if eager {
			s.receive(to, done, path.Overhead+s.machine.touch(path, st.bytes), 0)
		} else {
			s.later(done+2*s.machine.latency(hostFrom, hostTo),
				transfer{int32(from), int32(to), st.bytes, mine.fresh || other.fresh})
		}
	}
	if eager && st.kind == collectives.Send {
		s.complete(r, k.at)
	}
}

// receive ends a message at its receiver, whose processor has work with it: what is meanwhile, as it arrives.
func (s *simulation) receive(to int, arrived, work, meanwhile float64) {
	s.ranks[to].landing += work + meanwhile
	s.complete(to, arrived+work)
}

// later begins a transfer at a time.
func (s *simulation) later(at float64, t transfer) {
	var i int32
	if n := len(s.spare); n > 0 {
		i, s.spare = s.spare[n-1], s.spare[:n-1]
		s.transfers[i] = t
	} else {
		i = int32(len(s.transfers))
		s.transfers = append(s.transfers, t)
	}
	s.queue.push(event{at, ^i})
}

// transfer moves the bytes of a message past Eager. Over the network, the sender's processor may have to move them.
func (s *simulation) transfer(i int32, at float64) {
	t := s.transfers[i]
	s.spare = append(s.spare, i)
	from, to := int(t.from), int(t.to)
	hostFrom, hostTo := s.params.Hosts.Host(from), s.params.Hosts.Host(to)
	path := s.machine.path(hostFrom, hostTo)
	if hostFrom == hostTo && path.Touch > 0 {
		s.copyInHost(&t, hostTo, at)
		return
	}
	work, sent := s.machine.touch(path, t.bytes), at
	if work > 0 {
		at, sent = s.busy(from, at, path.Overhead+work)
	}
	latency := s.machine.latency(hostFrom, hostTo)
	done := max(s.machine.carry(at, hostFrom, hostTo, t.bytes), sent+latency, at+latency+work)
	s.receive(to, done, path.Overhead, work)
	if sent == at {
		sent = done
	}
	s.complete(from, sent)
}

// copyInHost moves the bytes of a message past Eager from one rank's memory to another's: each processor moves a half,
// or the receiver's alone moves all where ranks share processors, since the sender sleeps.
func (s *simulation) copyInHost(t *transfer, host int, at float64) {
	m, from, to := s.machine, int(t.from), int(t.to)
	work := m.local(t.bytes, m.Host.Rate)
	if t.fresh {
		at = m.memory[host].take(at, float64(t.bytes)/m.Memory)
		if m.Fresh > 0 {
			work *= m.Fresh
		}
	}
	sent := at
	if !m.shared() {
		work /= 2
		_, sent = s.busy(from, at, m.Host.Overhead+work)
	}
	done := max(at+work, sent) + m.Host.Latency
	s.receive(to, done, m.Host.Overhead, work)
	s.complete(from, done)
}

// busy occupies the processor of a rank that waits for messages. It returns when that begins and ends.
func (s *simulation) busy(r int, at, work float64) (begin, end float64) {
	k := &s.ranks[r]
	if core := s.machine.core(r, at); core != nil {
		begin = s.machine.enter(core, r, at)
		core.free = begin + work
	} else {
		begin = max(at, k.at)
	}
	k.at = max(k.at, begin+work)
	return begin, begin + work
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
	begin := max(k.at, k.arrived-k.landing)
	if s.machine.shared() {
		k.waits = true
		s.queue.push(event{begin, int32(r)})
		return
	}
	s.end(r, begin)
	s.queue.push(event{k.at, int32(r)})
}

// end is what is left to do of a round whose messages are there, from a time on: receiving them, and local steps.
func (s *simulation) end(r int, begin float64) {
	k := &s.ranks[r]
	k.at = max(begin+k.landing, k.arrived)
	for i, st := range k.steps {
		switch st.kind {
		case collectives.Copy:
			k.at += s.machine.local(st.bytes, s.machine.Copy)
		case collectives.Combine:
			k.at += s.machine.local(st.bytes, s.machine.Combine)
		}
		if st.last {
			k.steps = k.steps[i+1:]
			break
		}
	}
	k.round++
}
