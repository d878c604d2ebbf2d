package main

import (
	"fmt"

	"github.com/gorun-mpi/mpi/benchmarks/harness"
)

// stream is what the standard keeps in order on a lane: messages of one source, and where the receives name tags,
// of one tag (MPI 4.1 §3.5).
type stream struct{ source, tag int }

// verifier decides whether what one rank receives on one lane in one round is what the plan allows. It is given the
// receives in the order in which they were posted.
type verifier struct {
	round  int
	lane   lane
	queues map[stream][]message // what each stream still has to bring, oldest first
	left   int
}

func newVerifier(round int, l lane, expected []message) *verifier {
	v := &verifier{round: round, lane: l, queues: make(map[stream][]message), left: len(expected)}
	for _, m := range expected {
		s := v.stream(m.source, m.tag)
		v.queues[s] = append(v.queues[s], m)
	}
	return v
}

// stream is where a message belongs. A receive that takes any tag takes one source's messages in the order in which
// they were sent, whatever their tags.
func (v *verifier) stream(source, tag int) stream {
	if v.lane == exact || v.lane == anySource {
		return stream{source, tag}
	}
	return stream{source, -1}
}

// received takes one received message: the fields of its Status and the contents of the buffer.
func (v *verifier) received(source, tag, length int, contents []byte) error {
	s := v.stream(source, tag)
	if len(v.queues[s]) == 0 {
		return fmt.Errorf("a message of rank %d with tag %d and %d bytes that was not sent, or came twice",
			source, tag, length)
	}
	m := v.queues[s][0]
	if m.tag != tag || m.length != length {
		return fmt.Errorf("a message of rank %d with tag %d and %d bytes where tag %d and %d bytes were next "+
			"(message %d, %v)", source, tag, length, m.tag, m.length, m.number, m.mode)
	}
	if len(contents) != m.length {
		return fmt.Errorf("message %d of rank %d: a buffer of %d bytes for %d",
			m.number, source, len(contents), m.length)
	}
	if !harness.Check(contents, v.round, m.number) {
		return fmt.Errorf("message %d (%v, rank %d, tag %d, %d bytes) arrived with wrong contents",
			m.number, m.mode, source, tag, length)
	}
	v.queues[s] = v.queues[s][1:]
	v.left--
	progress.Add(1)
	return nil
}

// done returns an error if a message is missing.
func (v *verifier) done() error {
	if v.left != 0 {
		return fmt.Errorf("%d messages are missing", v.left)
	}
	return nil
}
