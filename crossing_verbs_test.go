//go:build verbs && linux && cgo

package mpi

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/softhca"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/tcp"
	rdma "github.com/gorun-mpi/mpi/transport/verbs"
)

// crossing is what was done for some messages.
type crossing struct {
	sends, copied          uint64 // sender: SENDs posted, bytes copied
	filled, soft, hard     uint64 // receiver: buffers filled, messages that software has matched, and the device
	reads, devReads, fins  uint64 // READs of software, READs and FINs of the device
	copies                 uint64 // of payloads at the receiver
	senderWorks, senderFIN uint64 // SENDs that the sender got as answers: FIN
}

func (c crossing) minus(o crossing) crossing {
	return crossing{c.sends - o.sends, c.copied - o.copied, c.filled - o.filled, c.soft - o.soft, c.hard - o.hard, c.reads - o.reads,
		c.devReads - o.devReads, c.fins - o.fins, c.copies - o.copies, c.senderWorks - o.senderWorks, c.senderFIN - o.senderFIN}
}

// TestWhatCrossesTheCPU counts what software and device do for a message in each of the four cases, with and without
// tag matching by the device. docs/rdma.md has the table that comes of it.
func TestWhatCrossesTheCPU(t *testing.T) {
	if inGuest() {
		t.Skip("needs the software HCA's counters")
	}
	var b strings.Builder
	b.WriteString("| message | matched by | sender posts | copies of the payload: sender, receiver | receive buffers | READ by | FIN by |\n|---|---|---|---|---|---|---|\n")
	for _, eager := range []bool{true, false} {
		for _, expected := range []bool{true, false} {
			for _, tags := range []string{"off", "on"} {
				const few, many = 10, 50
				c := cross(t, eager, expected, tags, many).minus(cross(t, eager, expected, tags, few))
				b.WriteString(row(t, c, eager, expected, tags, many-few))
				if expected && tags == "on" && (c.soft != 0 || c.copies != 0 || c.hard != many-few || c.reads != 0) {
					t.Errorf("receives are posted and the device matches, and software has done this: %+v", c)
				}
			}
		}
	}
	doc, err := os.ReadFile("docs/rdma.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(doc), b.String()) {
		t.Errorf("docs/rdma.md does not have this table:\n%s", b.String())
	}
}

func row(t *testing.T, c crossing, eager, expected bool, tags string, n uint64) string {
	t.Helper()
	per := func(what string, k uint64) uint64 {
		if (k+n/10)/n*n+n/10 < k || k%n > n/10 && n-k%n > n/10 { // a few answers are about credit
			t.Errorf("%s: %d for %d messages", what, k, n)
		}
		return (k + n/2) / n
	}
	name := map[bool]string{true: "eager", false: "rendezvous"}[eager] + map[bool]string{true: ", expected", false: ", unexpected"}[expected]
	by := map[string]string{"off": "software", "on": "device"}[tags]
	if c.hard == 0 {
		by = "software"
	}
	if tags == "on" {
		name += ", tags by the device"
	}
	read, fin := "—", "—"
	switch {
	case c.reads > 0:
		read, fin = "software", "software"
	case c.devReads > 0:
		read, fin = "device", "device"
	}
	return fmt.Sprintf("| %s | %s | %d | %d, %d | %d | %s | %s |\n", name, by, per("sends", c.sends), per("copied", c.copied/8192), per("copies", c.copies),
		per("filled", c.filled), read, fin)
}

// cross sends n messages from rank 0 to rank 1.
func cross(t *testing.T, eager, expected bool, tags string, n int) (c crossing) {
	t.Helper()
	library := os.Getenv("GORUN_VERBS_LIB")
	if library == "" {
		library = softhca.Build(t)
	}
	var devs [2]*rdma.Device
	option := withDevices(func(rank int, d transport.Device) transport.Device {
		d.Close()
		dev, err := rdma.New(rdma.Options{Rank: rank, Size: 2, Library: library, Tags: tags, RegisterFrom: 1,
			Control: tcp.Options{Job: "crossing", PeerTimeout: time.Minute, Secret: func() ([]byte, error) { return []byte("the secret of this test, 32 bytes"), nil }}})
		if err != nil {
			panic(err)
		}
		devs[rank] = dev.(*rdma.Device)
		return dev
	})
	size := 8 << 10
	if !eager {
		size = 256 << 10
	}
	over(t, option)(2, func(w *Comm) {
		var rs []*Request
		if w.Rank() == 1 {
			bufs := make([][]byte, n)
			for i := range bufs {
				bufs[i] = make([]byte, size)
				if expected {
					rs = append(rs, ok(Irecv(w, bufs[i], 0, i)))
				}
			}
			echo(w, 0)
			var before Stats // of those who tell, by chance one more or less came too early
			if expected {
				listDone(w, devs[1])
				before = w.Stats()
				tell(w, 0) // the receives are with the device
			} else {
				hear(w, 0)
			}
			for i := range bufs {
				if !expected {
					rs = append(rs, ok(Irecv(w, bufs[i], 0, i)))
				}
			}
			must(WaitAll(rs...))
			for i, b := range bufs {
				whole(b, i)
			}
			tell(w, 0)
			s := w.Stats()
			c.hard = s.OffloadMatches - before.OffloadMatches
			onArrival, late := s.MatchedOnArrival-before.MatchedOnArrival-c.hard, s.Matched-before.Matched
			c.soft = onArrival + late
			if eager {
				c.copies = onArrival + 2*late
			}
			return
		}
		settle(w, 1)
		if expected {
			hear(w, 1)
		}
		for i := range n {
			rs = append(rs, ok(Isend(w, message(size, i), 1, i)))
		}
		if !expected {
			tell(w, 1)
		}
		must(WaitAll(rs...))
		hear(w, 1)
		a, b := devs[0].Counters(), devs[1].Counters()
		c.sends, c.copied, c.filled, c.reads = a.Sent, a.Copied, b.Received, b.Reads
		c.devReads = soft(devs[1], "reads") - b.Reads
		c.fins = soft(devs[1], "fins")
	})
	return c
}

// listDone polls until the device has done all that its list of receives is to be, also what comes of its answers.
func listDone(w *Comm, d *rdma.Device) {
	for done := 0; done < 3; done++ {
		if _, found, err := Iprobe(w, 0, tagGo); found || err != nil {
			panic(fmt.Errorf("nobody has sent that; %v", err))
		}
		if soft(d, "tm_added")+soft(d, "tm_deleted")+soft(d, "tm_syncs") != soft(d, "posted_ops") {
			done = 0
		}
	}
}

func soft(d *rdma.Device, name string) uint64 { return ok(d.SoftCounter(name)) }
