package main

import (
	"fmt"

	"github.com/gorun-mpi/mpi/benchmarks/harness"
)

// stream is what the standard keeps in order on a lane: messages of one source, and where the receives name tags,
// of one tag (MPI 4.1 §3.5).
type stream struct{ source, tag int }

// judge decides whether what one rank receives on one lane in one round is what the plan allows. Receives are shown
// to it in the order in which they were posted.
type judge struct {
	round  int
	lane   lane
	queues map[stream][]message // what each stream still has to bring, oldest first
	left   int
}

func newJudge(round int, l lane, expected []message) *judge {
	j := &judge{round: round, lane: l, queues: make(map[stream][]message), left: len(expected)}
	for _, m := range expected {
		s := j.stream(m.source, m.tag)
		j.queues[s] = append(j.queues[s], m)
	}
	return j
}

// stream is where a message belongs. A receive that takes any tag takes one source's messages in the order in which
// they were sent, whatever their tags.
func (j *judge) stream(source, tag int) stream {
	if j.lane == exact || j.lane == anySource {
		return stream{source, tag}
	}
	return stream{source, -1}
}

// received takes one received message: what its Status said and what lies in the buffer.
func (j *judge) received(source, tag, length int, contents []byte) error {
	s := j.stream(source, tag)
	if len(j.queues[s]) == 0 {
		return fmt.Errorf("a message of rank %d with tag %d and %d bytes that nobody sent, or came twice", source, tag, length)
	}
	m := j.queues[s][0]
	if m.tag != tag || m.length != length {
		return fmt.Errorf("a message of rank %d with tag %d and %d bytes where tag %d and %d bytes were next (message %d, %v)",
			source, tag, length, m.tag, m.length, m.number, m.mode)
	}
	if len(contents) != m.length {
		return fmt.Errorf("message %d of rank %d: a buffer of %d bytes for %d", m.number, source, len(contents), m.length)
	}
	if !harness.Check(contents, j.round, m.number) {
		return fmt.Errorf("message %d (%v, rank %d, tag %d, %d bytes) arrived with wrong contents", m.number, m.mode, source, tag, length)
	}
	j.queues[s] = j.queues[s][1:]
	j.left--
	return nil
}

// done says whether anything is missing.
func (j *judge) done() error {
	if j.left != 0 {
		return fmt.Errorf("%d messages are missing", j.left)
	}
	return nil
}
