package pmi

import (
	"errors"
	"slices"
	"testing"
)

// A rank is told of each that calls it, on whichever server of a tree either is, and the caller hears of a rank that has
// ended.
func TestCall(t *testing.T) {
	for name, hosts := range map[string][][]int{"one server": nil, "hosts": {{0, 1}, {2}, {3}}} {
		t.Run(name, func(t *testing.T) {
			var clients []*Client
			var root *Server
			if hosts == nil {
				root, clients = world(t, 4, false, Options{})
			} else {
				tr, all := treeOf(t, hosts, []int{-1, 0, 1})
				root, clients = tr.root, all
			}
			for _, pair := range [][2]int{{0, 1}, {1, 0}, {0, 3}, {3, 0}, {2, 3}} {
				from, to := clients[pair[0]], clients[pair[1]]
				if err := from.Call(t.Context(), pair[1]); err != nil {
					t.Fatalf("rank %d calls %d: %v", pair[0], pair[1], err)
				}
				<-to.Notices()
				if got := to.Gone(); !slices.Equal(got, []int{pair[0]}) {
					t.Errorf("rank %d calls %d, which hears of %v", pair[0], pair[1], got)
				}
			}
			root.Ended(3)
			if err := clients[0].Call(t.Context(), 3); !errors.Is(err, ErrEnded) {
				t.Errorf("calling a rank that has ended: %v", err)
			}
			for _, to := range []int{-1, 0, 4} {
				if err := clients[0].Call(t.Context(), to); !errors.Is(err, errors.ErrUnsupported) {
					t.Errorf("calling rank %d: %v", to, err)
				}
			}
		})
	}
}

// The end of a rank's connection is its end, and a rank that does not take calls is not told.
func TestCallOfOthers(t *testing.T) {
	s, clients := world(t, 3, false, Options{})
	clients[1].Close()
	for !errors.Is(clients[0].Call(t.Context(), 1), ErrEnded) {
		if t.Context().Err() != nil {
			t.Fatal("the end of rank 1 is not seen")
		}
	}
	if err := clients[0].Call(t.Context(), 2); err != nil {
		t.Error(err)
	}
	<-clients[2].Notices()
	s.mu.Lock()
	s.conns[2].takesCalls = false
	s.mu.Unlock()
	if err := clients[0].Call(t.Context(), 2); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a rank that takes no calls: %v", err)
	}
	clients[2].ours = false
	if err := clients[2].Call(t.Context(), 0); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("under another launcher: %v", err)
	}
}
