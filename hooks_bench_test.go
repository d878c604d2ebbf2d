package mpi

import "testing"

// BenchmarkCalls is what a call takes without hooks, with hooks that do nothing, and with a report: of a rank alone,
// which sends to itself. With -benchtime=200000x all calls are on the timeline of the report.
func BenchmarkCalls(b *testing.B) {
	const each = 64 // messages in a window
	buf := make([]byte, 8)
	patterns := []struct {
		name  string
		calls int // in a turn
		turn  func(w *Comm)
	}{
		{"blocking", 2, func(w *Comm) {
			must(Send(w, buf, 0, 1))
			ok(Recv(w, buf, 0, 1))
		}},
		{"window", 2*each + 1, func(w *Comm) {
			var requests [2 * each]*Request
			for i := range each {
				requests[i] = ok(Irecv(w, buf, 0, 1))
			}
			for i := range each {
				requests[each+i] = ok(Isend(w, buf, 0, 1))
			}
			must(WaitAll(requests[:]...))
		}},
	}
	nothing := func(*Call) {}
	for _, p := range patterns {
		for _, o := range []struct {
			name   string
			option Option
		}{
			{"off", func(*options) {}},
			{"hooks", WithHooks(Hooks{Before: nothing, After: nothing})},
			{"report", WithEnviron([]string{"GORUN_REPORT=" + b.TempDir()})},
		} {
			b.Run(p.name+"/"+o.name, func(b *testing.B) {
				b.ReportAllocs()
				err := RunLocal(1, func(w *Comm) error {
					p.turn(w)
					b.ResetTimer()
					for i := 0; i < b.N; i += p.calls {
						p.turn(w)
					}
					b.StopTimer()
					return nil
				}, o.option)
				if err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}
