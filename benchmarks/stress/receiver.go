package main

import (
	"fmt"

	"github.com/gorun-mpi/mpi"
)

// receiver receives what one rank gets on one lane in a round.
type receiver struct {
	comm     *mpi.Comm
	lane     lane
	round    int
	expected []message
	requests []*mpi.Request // posted, in the order of expected
	buffers  [][]byte       // buffers[i] belongs to the library until requests[i] is waited for
}

// post posts a receive for each message. A receive that may match another message than its own has room for any.
func (r *receiver) post() error {
	if r.lane == probed {
		return nil
	}
	longest := 0
	for _, m := range r.expected {
		longest = max(longest, m.length)
	}
	for _, m := range r.expected {
		source, tag, room := m.source, m.tag, m.length
		if r.lane == anySource || r.lane == anyBoth {
			source = mpi.AnySource
		}
		if r.lane == anyTag || r.lane == anyBoth {
			tag = mpi.AnyTag
		}
		if r.lane != exact {
			room = longest
		}
		buf := make([]byte, room)
		request, err := mpi.Irecv(r.comm, buf, source, tag)
		if err != nil {
			return err
		}
		r.requests, r.buffers = append(r.requests, request), append(r.buffers, buf)
	}
	return nil
}

// run receives and verifies everything. The error names the lane.
func (r *receiver) run() error {
	if err := r.receive(); err != nil {
		return fmt.Errorf("lane %v: %w", r.lane, err)
	}
	return nil
}

func (r *receiver) receive() error {
	v := newVerifier(r.round, r.lane, r.expected)
	if r.lane == probed {
		return r.probe(v)
	}
	if r.requests == nil {
		if err := r.post(); err != nil {
			return err
		}
	}
	for i, request := range r.requests {
		status, err := request.Wait()
		if err != nil {
			return err
		}
		n := int(status.Bytes)
		if n > len(r.buffers[i]) {
			return fmt.Errorf("a Status of %d bytes for a buffer of %d", n, len(r.buffers[i]))
		}
		if err := v.received(status.Source, status.Tag, n, r.buffers[i][:n]); err != nil {
			return err
		}
		r.buffers[i] = nil
	}
	return v.done()
}

// probe receives each message after a matched probe, into a buffer of just its length.
func (r *receiver) probe(v *verifier) error {
	for range r.expected {
		m, status, err := mpi.Mprobe(r.comm, mpi.AnySource, mpi.AnyTag)
		if err != nil {
			return err
		}
		buf := make([]byte, status.Bytes)
		got, err := mpi.Mrecv(m, buf)
		if err != nil {
			return err
		}
		if got.Source != status.Source || got.Tag != status.Tag || got.Bytes != status.Bytes {
			return fmt.Errorf("Mprobe said %+v, Mrecv %+v", status, got)
		}
		if err := v.received(got.Source, got.Tag, int(got.Bytes), buf); err != nil {
			return err
		}
	}
	return v.done()
}
