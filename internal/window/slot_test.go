package window

import (
	"testing"

	"github.com/gorun-mpi/mpi/rma"
)

// A lock that another rank keeps for long is waited for with a tag that no later request has: each of these is answered
// before the lock, however many there are.
func TestTagsOfLocks(t *testing.T) {
	w := new(Window)
	lock := w.slot(tagLocks)
	for _, last := range []int32{0, tagsEach - 2, tagsEach - 1, 1<<31 - 2, -1} {
		w.slots.Store(last)
		for _, of := range []int32{tagAnswers, tagElements} {
			for range 3 {
				switch tag := w.slot(of); {
				case tag == lock:
					t.Fatalf("tag %#x is of the lock, and of another request", tag)
				case tag&^(tagsEach-1) != of || tag <= tagRequest:
					t.Errorf("tag %#x is not one from %#x on", tag, of)
				}
			}
		}
	}
	if again := w.slot(tagLocks); again == lock || again&^(tagsEach-1) != tagLocks {
		t.Errorf("the next lock has tag %#x, after %#x", again, lock)
	}
	request := rma.Request{Kind: rma.Lock, Slot: tagLocks + tagsEach - 1}
	if _, err := new(rma.Request).Decode(request.Append(nil)); err != nil {
		t.Error(err)
	}
}
