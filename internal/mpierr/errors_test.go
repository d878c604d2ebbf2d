package mpierr

import (
	"errors"
	"testing"

	"github.com/gorun-mpi/mpi/internal/ranks"
)

// The text of an error names the rank as a person would: a message goes to it, what is read comes from it, and a lock
// is at it.
func TestErrorNamesTheRank(t *testing.T) {
	for op, want := range map[string]string{
		"Send": "Send to", "Recv": "Recv from", "Mprobe": "Mprobe from", "Sendrecv": "Sendrecv to",
		"Put": "Put to", "RPutLayout": "RPutLayout to", "PutNotify": "PutNotify to",
		"Get": "Get from", "RGet": "RGet from", "GetLayout": "GetLayout from", "WaitNote": "WaitNote from",
		"gpu.Get": "gpu.Get from", "Accumulate": "Accumulate at",
		"RGetAccumulate": "RGetAccumulate at", "FetchOp": "FetchOp at",
		"CompareAndSwap": "CompareAndSwap at", "Lock": "Lock at", "FlushLocal": "FlushLocal at", "Start": "Start with",
	} {
		e := &Error{Op: op, Class: ErrRange, Peer: 3, Tag: ranks.Undefined, Err: errors.New("why")}
		if got := e.Error(); got != "mpi: "+want+" rank 3: why" {
			t.Error(got)
		}
	}
	const source = "mpi: Sendrecv from rank 3 tag 7: no such rank"
	if got := At(&Error{Op: "Sendrecv", Class: ErrRank}, 3, 7, true).Error(); got != source {
		t.Error(got)
	}
}
