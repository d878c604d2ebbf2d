//go:build verbs && linux && cgo

package verbs

import (
	"slices"
	"testing"
)

// A message of a peer does not overtake one that its connection has not taken, also where the connection is made between
// the two. Messages of other peers do.
func TestControlMessagesKeepOrder(t *testing.T) {
	all := []controlMessage{{peer: 1, payload: []byte("a")}, {peer: 2, payload: []byte("b")},
		{peer: 1, payload: []byte("c")}, {peer: 2, payload: []byte("d")}}
	var sent []string
	tries := 0
	send := func(m *controlMessage) bool {
		if tries++; tries == 1 {
			return false
		}
		sent = append(sent, string(m.payload))
		return true
	}
	kept := sendInOrder(all, send)
	if len(kept) != 2 || !slices.Equal(sent, []string{"b", "d"}) {
		t.Fatalf("%d are kept, and %q are sent", len(kept), sent)
	}
	if kept = sendInOrder(kept, send); len(kept) != 0 || !slices.Equal(sent, []string{"b", "d", "a", "c"}) {
		t.Errorf("%d are kept, and %q are sent", len(kept), sent)
	}
}
