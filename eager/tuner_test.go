package eager

import "testing"

// job is a caller that sends as its tuner says; cost is what a message costs it in nanoseconds, eager and announced.
type job struct {
	now   int64
	tuner Tuner
}

func newJob() *job {
	j := &job{}
	j.tuner.Now = func() int64 { return j.now }
	return j
}

// send returns how many of the messages were announced.
func (j *job) send(n, messages int, cost [2]int64) (announced int) {
	for i := range messages {
		a := index(j.tuner.Announce(n))
		announced += a
		if j.now += cost[a]; i%37 == 36 {
			j.now += 5 * cost[a] // a disturbance
		}
	}
	return announced
}

// Each length goes the way that is cheaper for it, most of the time, and the tuner follows when that changes.
func TestTunerFollows(t *testing.T) {
	j := newJob()
	sizes := []int{5000, 16 << 10, 32 << 10}
	eager, announced := [2]int64{1000, 1500}, [2]int64{1500, 1000}
	for turn := range 4 {
		for i, n := range sizes {
			run := runBytes / n
			first, better := eager, 0
			if (turn+i)%2 == 1 {
				first, better = announced, 1
			}
			j.send(n, 2*(lastPause+3*contestRuns)*run, first)
			messages := 100 * firstPause * run
			got := j.send(n, messages, first)
			if better == 1 {
				got = messages - got
			}
			if got > messages/50 {
				t.Errorf("turn %d: of %d messages of %d bytes %d go the way that costs more", turn, messages, n, got)
			}
		}
	}
}

// A job's first messages try both ways. After that a way that costs more is not taken, however much more, and a
// difference that is none changes nothing.
func TestTunerBegins(t *testing.T) {
	const n = 16 << 10
	if j := newJob(); j.send(n, contestRuns*runBytes/n, [2]int64{1000, 1001}) == 0 {
		t.Error("one way has not been tried")
	}
	for _, cost := range [][2]int64{{1000, 100_000}, {1000, 1001}, {1001, 1000}} {
		j := newJob()
		j.send(n, 3*contestRuns*runBytes/n, cost)
		if got := j.send(n, firstPause*runBytes/n/2, cost); got != 0 {
			t.Errorf("costs %v: %d messages are announced after the first contest, want none", cost, got)
		}
	}
}

// A sender whose receiver computes does not wait for it in more than a few messages: in the first contest, where
// announced ones cost far more, and in the later ones.
func TestFarWorseIsLeftSoon(t *testing.T) {
	const n, run = 16 << 10, runBytes / (16 << 10)
	few := run/leadIn + 1
	for _, wait := range []int64{4 * run * 1000, 1_000_000} { // of a run, or as long as many
		j := newJob()
		cost := [2]int64{1000, wait}
		if got := j.send(n, firstPause*run/2, cost); got != few {
			t.Errorf("%d of the first messages wait for %d ns each, want %d", got, wait, few)
		}
		if got := j.send(n, 8*firstPause*run, cost); got > 4*few {
			t.Errorf("%d of later messages wait for %d ns each, want at most %d", got, wait, 4*few)
		}
	}
}

// What is dearer by less is not left for one run that has been disturbed, in the first contest.
func TestFirstContestIsFair(t *testing.T) {
	const n, run = 16 << 10, runBytes / (16 << 10)
	j := newJob()
	j.send(n, run, [2]int64{1000, 500})
	j.send(n, run/leadIn+run, [2]int64{1000, 2500}) // a disturbed run
	j.send(n, 3*contestRuns*run, [2]int64{1000, 500})
	if got := j.send(n, firstPause*run/2, [2]int64{1000, 500}); got != firstPause*run/2 {
		t.Errorf("%d of %d messages go the way that costs less", got, firstPause*run/2)
	}
}
