//go:build verbs && linux && cgo

package guard

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/testkit/hcakit"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/tcp"
	"github.com/gorun-mpi/mpi/transport/verbs"
)

// crossing is what was done for some messages.
type crossing struct {
	sends, copied         uint64 // sender: SENDs posted, bytes copied
	filled, soft, hard    uint64 // receiver: buffers filled, messages that software has matched, and the device
	reads, devReads, fins uint64 // READs of software, READs and FINs of the device
	copies                uint64 // of payloads at the receiver
}

func (c crossing) minus(o crossing) crossing {
	return crossing{c.sends - o.sends, c.copied - o.copied, c.filled - o.filled, c.soft - o.soft, c.hard - o.hard,
		c.reads - o.reads, c.devReads - o.devReads, c.fins - o.fins, c.copies - o.copies}
}

const crossingHead = "| message | matched by | sender posts | copies of the payload: sender, receiver | " +
	"receive buffers | READ by | FIN by |\n|---|---|---|---|---|---|---|\n"

// TestWhatCrossesTheCPU counts what software and device do for a message in each of the four cases, with and without
// tag matching by the device. docs/rdma.md has the table that comes of it.
func TestWhatCrossesTheCPU(t *testing.T) {
	library := os.Getenv("GORUN_VERBS_LIB")
	if library == "" {
		library = hcakit.Build(t)
	}
	var b strings.Builder
	b.WriteString(crossingHead)
	for _, eager := range []bool{true, false} {
		for _, expected := range []bool{true, false} {
			for _, tags := range []string{"off", "on"} {
				const few, many = 10, 50
				x := crossed{t: t, library: library, tags: tags, eager: eager, expected: expected}
				c := x.count(many).minus(x.count(few))
				b.WriteString(x.row(c, many-few))
				if expected && tags == "on" && (c.soft != 0 || c.copies != 0 || c.hard != many-few || c.reads != 0) {
					t.Errorf("receives are posted and the device matches, and software has done this: %+v", c)
				}
			}
		}
	}
	doc, err := os.ReadFile("../../docs/rdma.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(doc), b.String()) {
		t.Errorf("docs/rdma.md does not have this table:\n%s", b.String())
	}
}

// crossed is one row of the table.
type crossed struct {
	t               *testing.T
	library, tags   string
	eager, expected bool // the length of the messages; whether their receives are posted first
	devs            [2]*verbs.Device
}

// row is what n messages took, divided by n.
func (x *crossed) row(c crossing, n uint64) string {
	x.t.Helper()
	per := func(what string, k uint64) uint64 {
		if (k+n/10)/n*n+n/10 < k || k%n > n/10 && n-k%n > n/10 { // a few answers are about credit
			x.t.Errorf("%s: %d for %d messages", what, k, n)
		}
		return (k + n/2) / n
	}
	name := map[bool]string{true: "eager", false: "rendezvous"}[x.eager] +
		map[bool]string{true: ", expected", false: ", unexpected"}[x.expected]
	by := map[string]string{"off": "software", "on": "device"}[x.tags]
	if c.hard == 0 {
		by = "software"
	}
	if x.tags == "on" {
		name += ", tags by the device"
	}
	read, fin := "—", "—"
	switch {
	case c.reads > 0:
		read, fin = "software", "software"
	case c.devReads > 0:
		read, fin = "device", "device"
	}
	return fmt.Sprintf("| %s | %s | %d | %d, %d | %d | %s | %s |\n", name, by, per("sends", c.sends),
		per("copied", c.copied/8192), per("copies", c.copies), per("filled", c.filled), read, fin)
}

// open opens the device of a rank.
func (x *crossed) open(rank int) (transport.Device, error) {
	secret := func() ([]byte, error) { return []byte("the secret of this test, 32 bytes"), nil }
	d, err := verbs.New(verbs.Options{Rank: rank, Size: 2, Library: x.library, Tags: x.tags, RegisterFrom: 1,
		Control: tcp.Options{Job: "crossing", PeerTimeout: time.Minute, Secret: secret}})
	if err == nil {
		x.devs[rank] = d.(*verbs.Device)
	}
	return d, err
}

// count sends n messages from rank 0 to rank 1.
func (x *crossed) count(n int) (c crossing) {
	size := 8 << 10
	if !x.eager {
		size = 256 << 10
	}
	bufs := make([][]byte, n)
	for i := range bufs {
		bufs[i] = bytes.Repeat([]byte{byte(i)}, size)
	}
	runRanks(x.t, 2, func(w *mpi.Comm) {
		if w.Rank() == 0 {
			x.send(w, bufs, &c)
		} else {
			x.receive(w, bufs, &c)
		}
	}, overDevices(x.open))
	return c
}

// send is rank 0. It adds what the devices have counted, after the receiver has added its part.
func (x *crossed) send(w *mpi.Comm, bufs [][]byte, c *crossing) {
	for range settling {
		sendSignal(w, 1)
		awaitSignal(w, 1)
	}
	if x.expected {
		awaitSignal(w, 1)
	}
	var rs []*mpi.Request
	for i, b := range bufs {
		rs = append(rs, ok(mpi.Isend(w, b, 1, i)))
	}
	if !x.expected {
		sendSignal(w, 1)
	}
	must(mpi.WaitAll(rs...))
	awaitSignal(w, 1)
	sender, receiver := x.devs[0].Counters(), x.devs[1].Counters()
	c.sends, c.copied, c.filled, c.reads = sender.Sent, sender.Copied, receiver.Received, receiver.Reads
	c.devReads = softCounter(x.devs[1], "reads") - receiver.Reads
	c.fins = softCounter(x.devs[1], "fins")
}

// settling is how often the ranks signal each other before anything is counted, so that all answers have arrived.
const settling = 10

// receive is rank 1.
func (x *crossed) receive(w *mpi.Comm, want [][]byte, c *crossing) {
	var rs []*mpi.Request
	bufs := make([][]byte, len(want))
	post := func() {
		for i := range bufs {
			bufs[i] = make([]byte, len(want[i]))
			rs = append(rs, ok(mpi.Irecv(w, bufs[i], 0, i)))
		}
	}
	if x.expected {
		post()
	}
	for range settling {
		awaitSignal(w, 0)
		sendSignal(w, 0)
	}
	var before mpi.Stats // some of the signals came too early, by chance
	if x.expected {
		listDone(w, x.devs[1])
		before = w.Stats()
		sendSignal(w, 0) // the receives are with the device
	} else {
		awaitSignal(w, 0)
		post()
	}
	must(mpi.WaitAll(rs...))
	for i, b := range bufs {
		check(bytes.Equal(b, want[i]), "message %d of %d bytes has arrived damaged", i, len(b))
	}
	s := w.Stats()
	c.hard = s.OffloadMatches - before.OffloadMatches
	onArrival, late := s.MatchedOnArrival-before.MatchedOnArrival-c.hard, s.Matched-before.Matched
	c.soft = onArrival + late
	if x.eager {
		c.copies = onArrival + 2*late
	}
	sendSignal(w, 0)
}

// listDone polls until the device has done all that its list of receives is to be, also what comes of its answers.
func listDone(w *mpi.Comm, d *verbs.Device) {
	for done := 0; done < 3; done++ {
		_, found, err := mpi.Iprobe(w, 0, mpi.MaxTag)
		check(!found && err == nil, "a signal that was not sent; %v", err)
		ended := softCounter(d, "tm_added") + softCounter(d, "tm_deleted") + softCounter(d, "tm_syncs")
		if ended != softCounter(d, "posted_ops") {
			done = 0
		}
	}
}

func softCounter(d *verbs.Device, name string) uint64 { return ok(d.SoftCounter(name)) }
