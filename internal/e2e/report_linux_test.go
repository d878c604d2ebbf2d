package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/gorun-mpi/mpi"
)

func init() {
	role("report", func(_ context.Context, w *mpi.Comm) error {
		peer, buf := 1-w.Rank(), make([]byte, 1000)
		for range 10 {
			if w.Rank() == 0 {
				if err := mpi.Send(w, buf, peer, 1); err != nil {
					return err
				}
			} else if _, err := mpi.Recv(w, buf, peer, 1); err != nil {
				return err
			}
		}
		return mpi.Barrier(w)
	})
}

// gorun --report writes what two processes have called, and each receive ends after its send has begun.
func TestReport(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "report")
	run(t, spec{n: 2, role: "report", flags: []string{"--report", dir}}, 0)
	var r struct {
		Ranks []struct{ Rank, Calls int }
		Sites []struct {
			Op           string
			Calls, Bytes int
		}
		Matrix   []struct{ From, To, Messages, Bytes int }
		Timeline struct{ Arrows, Strange int }
	}
	text, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string][2]int{}
	for _, s := range r.Sites {
		calls[s.Op] = [2]int{s.Calls, s.Bytes}
	}
	if len(calls) != 3 || calls["Send"] != [2]int{10, 10_000} || calls["Recv"] != [2]int{10, 10_000} ||
		calls["Barrier"] != [2]int{2, 0} || len(r.Ranks) != 2 || r.Ranks[1].Calls != 11 {
		t.Errorf("the report has %v, %+v", calls, r.Ranks)
	}
	if len(r.Matrix) != 1 || r.Matrix[0] != (struct{ From, To, Messages, Bytes int }{0, 1, 10, 10_000}) ||
		r.Timeline.Arrows != 10 || r.Timeline.Strange != 0 {
		t.Errorf("the matrix is %+v, the timeline %+v", r.Matrix, r.Timeline)
	}
	if _, err := os.Stat(filepath.Join(dir, "trace.json")); err != nil {
		t.Error(err)
	}
}
