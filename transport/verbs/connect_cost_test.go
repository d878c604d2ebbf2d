//go:build verbs && !guest && linux && cgo

package verbs

import (
	"testing"
	"time"
)

// What it costs to connect two ranks: the log has the calls of each end. The time is of a machine that is not quiet.
func TestConnectCost(t *testing.T) {
	needSoft(t)
	watchdog(t)
	for _, tags := range []string{"off", "on"} {
		const peers = 20
		hub := newEnd(t, 0, peers+1, func(o *Options) { o.Tags, o.Log, o.Debug = tags, nil, nil })
		before := map[string]uint64{}
		names := []string{"qps_made", "modifies", "posts", "polls", "cq_events"}
		for _, name := range names {
			before[name] = hub.counted(name)
		}
		var all []time.Duration
		for i := range peers {
			e := newEnd(t, i+1, peers+1, func(o *Options) { o.Tags, o.Log, o.Debug = tags, nil, nil })
			began := time.Now()
			hub.link(e)
			all = append(all, time.Since(began))
		}
		for _, name := range names {
			n := hub.counted(name) - before[name]
			t.Logf("GORUN_TM=%s: %s of one end, a connection: %.1f", tags, name, float64(n)/peers)
		}
		least := all[0]
		for _, d := range all {
			least = min(least, d)
		}
		t.Logf("GORUN_TM=%s: the fastest of %d connections took %v", tags, peers, least)
		if made := hub.counted("qps_made") - before["qps_made"]; made == 0 {
			t.Error("no queue pair was made")
		}
	}
}
