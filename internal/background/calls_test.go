package background

import "testing"

// A rank may begin a call for another one while Finish looks: its operations are not the caller's, and Finish waits for
// them.
func TestFinishTellsCallsFromCallers(t *testing.T) {
	for name, callers := range map[string]int{"none of a caller": 0, "one of a caller": 1} {
		t.Run(name, func(t *testing.T) {
			var p Process
			looks := 0
			open, err := p.Finish(func() int {
				if looks++; looks > 1 {
					return callers
				}
				p.Run(new(Calls), "", "", func() error { return nil })
				return callers + 1
			}, nil)
			if open != callers || err != nil {
				t.Errorf("%d operations are under way, %v; want %d", open, err, callers)
			}
		})
	}
}
