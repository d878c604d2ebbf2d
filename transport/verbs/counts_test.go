//go:build verbs && linux && cgo

package verbs

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/leak"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/tcp"
)

func init() { roles["crowd"] = crowd }

// window is how many messages are sent before either end polls. Each end of a connection has had one completion before,
// of its probe.
const (
	window = 64
	probes = 1
)

// sendWindow sends so many messages of 8 bytes, and waits until all that were ever sent have made their completions.
func sendWindow(t testing.TB, l *link, a, b *end, pkts []transport.Packet, all uint64) {
	h := wire.Header{Kind: wire.Eager, Tag: 1}
	var body [8]byte
	for range window {
		for !l.TrySend(&h, body[:]) {
			a.Poll(pkts)
		}
	}
	for limit := time.Now().Add(patience); ; {
		if a.counted("sends") == all && b.counted("cqes") == all+probes && a.counted("cqes") == all/signalEvery+probes {
			return
		}
		if time.Now().After(limit) {
			t.Fatal("what was sent does not arrive")
		}
	}
}

// A message of 8 bytes costs at most two calls of C at each end, in a window of 64. The calls are counted where they
// are made; the device's counters say that they did what they should.
func TestCalls(t *testing.T) {
	needSoft(t)
	watchdog(t)
	a, b, ab, _ := two(t)
	pkts := make([]transport.Packet, 32)
	const windows = 100
	sendCalls, takeCalls := a.hca.calls, b.hca.calls
	for i := range uint64(windows) {
		sendWindow(t, ab, a, b, pkts, (i+1)*window)
		for n := 0; n < window; {
			n += b.Poll(pkts)
		}
		for a.inFlight >= signalEvery {
			a.Poll(pkts)
		}
	}
	const messages = windows * window
	send, take := float64(a.hca.calls-sendCalls)/messages, float64(b.hca.calls-takeCalls)/messages
	t.Logf("%.3f calls for each message sent, %.3f for each received", send, take)
	if send > 2 || take > 2 {
		t.Errorf("%.3f calls for each message sent, %.3f for each received; 2 are allowed", send, take)
	}
	if a.counted("sends") != messages || b.counted("recvs") != messages || a.counted("inline_posts") != messages {
		t.Errorf("the devices have sent %d (%d inline) and received %d, want %d", a.counted("sends"),
			a.counted("inline_posts"), b.counted("recvs"), messages)
	}
}

// Nothing on the way of a message is allocated.
func TestNoAllocations(t *testing.T) {
	watchdog(t)
	a, b, ab, ba := two(t)
	pkts := make([]transport.Packet, 32)
	mine, err := a.facts.Memory.Alloc(64 << 10)
	if err != nil {
		t.Fatal(err)
	}
	far := pattern(64<<10, 1)
	addr, key, _ := ba.caps.RMA.Register(transport.HostMem(far), transport.Readable)
	dst := make([]byte, 64<<10)
	take := func(e *end, n int) {
		for n > 0 {
			n -= e.Poll(pkts)
		}
	}
	get := func(buf []byte) func() {
		return func() {
			for {
				if state, err := ab.caps.RMA.Get(transport.HostMem(buf), addr, key, 1); err != nil {
					t.Fatal(err)
				} else if state == transport.Started {
					break
				}
			}
			take(a, 1)
		}
	}
	aSet, bSet := a.sleep(), b.sleep()
	short, long := wire.Header{Kind: wire.Eager}, wire.Header{Kind: wire.Data, Flags: wire.Urgent}
	for name, f := range map[string]func(){
		"send and poll, inline": func() {
			for range window {
				for !ab.TrySend(&short, far[:8]) {
					a.Poll(pkts)
				}
			}
			take(b, window)
		},
		"send and poll, by buffers": func() {
			for range window {
				for !ab.TrySend(&long, far[:eagerMax]) {
					a.Poll(pkts)
				}
			}
			take(b, window)
		},
		"READ into registered memory": get(mine),
		"READ into ordinary memory":   get(dst),
		"arm and disarm": func() {
			if aSet.Arm(transport.Urgent, false) {
				aSet.Disarm()
				return
			}
			a.Poll(pkts)
		},
		"park and be woken": func() {
			for !bSet.Arm(transport.Any, true) {
				if b.Poll(pkts) > 0 {
					t.Fatal("a packet that was not sent")
				}
			}
			for !ab.TrySend(&long, nil) {
				a.Poll(pkts)
			}
			bSet.Park(true)
			bSet.Disarm()
			take(b, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 10 {
				f()
			}
			if n := testing.AllocsPerRun(rounds(200), f); n >= 1 {
				t.Errorf("%v allocations", n)
			}
			for a.Poll(pkts)+b.Poll(pkts) > 0 {
			}
		})
	}
}

// A thousand peers, with -short a quarter of them: what the device, its connections and its control connections take
// for each.
func TestMemoryOfPeers(t *testing.T) {
	needSoft(t)
	if proc.Race {
		t.Skip("the race detector's own memory would be counted")
	}
	watchdog(t)
	crowdSize := 1000
	if testing.Short() {
		crowdSize = 250
	}
	a := newEnd(t, 0, crowdSize+1, silent)
	_, where, err := decodeAddress(a.Address())
	if err != nil {
		t.Fatal(err)
	}
	o := start(t, "crowd", "CROWD="+strconv.Itoa(crowdSize))
	o.Send(where)
	var links []*link // the engine has one of each
	join := func(said string, peers int) {
		for line := o.ReadLine(); line != said; line = o.ReadLine() {
			t.Log(line)
		}
		a.until("the last peer", func() bool {
			return len(a.table.Load().all) == peers && a.state(peers) == stateOpen
		})
		for _, s := range a.table.Load().all[len(links):] {
			l := newLink(s)
			links = append(links, l)
			send(t, l, wire.Header{Kind: wire.Eager}, []byte("hello"), a)
			s.confirm()
		}
		a.until("the answers of all", func() bool { return a.inFlight == 0 })
	}
	join("the first", firstOfCrowd) // and with them what all share
	heap, rss, files := footprint(t)
	had := int64(a.counted("qp_memory"))
	o.Send(nil)
	join("ready", crowdSize)
	heap2, rss2, files2 := footprint(t)
	runtime.KeepAlive(links)
	device := int64(a.counted("qp_memory")) - had
	each := int64(crowdSize - firstOfCrowd)
	perHeap, perRSS, perDevice := (heap2-heap)/each, (rss2-rss)/each, device/each
	t.Logf("%d peers: %d bytes of Go's heap each, %d resident each, of which %d are the software HCA's queue pairs; %d descriptors",
		crowdSize, perHeap, perRSS, perDevice, files2-files)
	if perHeap > peerMemory || perRSS-perDevice > peerResident {
		t.Errorf("%d bytes of Go's heap for each peer, %d resident without the device's own; %d and %d are allowed", perHeap,
			perRSS-perDevice, peerMemory, peerResident)
	}
	if n := files2 - files; n > crowdSize+16 {
		t.Errorf("%d descriptors for %d peers", n, crowdSize)
	}
	if len(a.in) > 0 {
		t.Errorf("event %d, %v", a.in[0].Event, a.in[0].Err)
	}
	o.Kill()
}

func footprint(t *testing.T) (heap, resident int64, files int) {
	t.Helper()
	for range 3 {
		runtime.GC()
	}
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse), proc.Self().Memory("VmRSS"), leak.Files()
}

// firstOfCrowd is how many of a crowd come first.
const firstOfCrowd = 50

// crowd is ranks 1 to CROWD: for each a control connection and a queue pair, all of one device.
func crowd() error {
	if err := load(os.Getenv("GORUN_VERBS_LIB")); err != nil {
		return err
	}
	opt := Options{Devices: os.Getenv("GORUN_VERBS_DEV")}
	opt.fill()
	h, at, err := choose(&opt)
	if err != nil {
		return err
	}
	crowdSize, err := strconv.Atoi(os.Getenv("CROWD"))
	if err != nil {
		return err
	}
	const slot = 1 << 10
	if _, _, err := h.make(uint32(4*crowdSize), uint32(2*crowdSize), slot, 0, 0); err != nil {
		return err
	}
	mem := pages(2 * crowdSize * slot)
	reg, err := h.register(addressOf(mem), len(mem), localWrite)
	if err != nil {
		return err
	}
	if err := h.makeProver(1); err != nil {
		return err
	}
	sink := slab{mem: pages(sinkSize)}
	if sink.region, err = h.register(addressOf(sink.mem), sinkSize, localWrite|remoteWrite); err != nil {
		return err
	}
	h.receiveFrom(addressOf(mem))
	if err := h.receivePart(0, reg.lkey); err != nil {
		return err
	}
	var all []uint32
	for i := range 2 * crowdSize {
		all = append(all, uint32(i))
	}
	if _, _, err := h.turn(all, nil); err != nil {
		return err
	}
	where, err := proc.Recv()
	if err != nil {
		return err
	}
	for i := range crowdSize {
		if i == firstOfCrowd {
			fmt.Println("the first")
			if _, err := proc.Recv(); err != nil {
				return err
			}
		}
		if err := joinCrowd(h, &at, &sink, i+1, crowdSize+1, where); err != nil {
			return fmt.Errorf("rank %d: %w", i+1, err)
		}
	}
	fmt.Println("ready")
	select {}
}

// joinCrowd is one of them.
func joinCrowd(h *hca, at *port, sink *slab, rank, size int, where []byte) error {
	opt := control(nil)
	opt.Rank, opt.Size, opt.Protocol = rank, size, controlProtocol
	c, err := tcp.New(opt)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l, err := c.Connect(ctx, 0, where)
	if err != nil {
		return err
	}
	qp, qpn, _, _, err := h.makeQP(at.number, 0, 0, 4, 0)
	if err != nil {
		return err
	}
	probe, probeQPN, err := h.proverQP(at.number, 0)
	if err != nil {
		return err
	}
	defer probe.destroy()
	mine := hello{layer: at.layer, mtu: at.mtu, reads: 1, lid: at.lid, gid: at.gid, qpn: qpn, slot: slotSize,
		most: 1 << 30, pkey: at.pkey.Value, probe: probeQPN, sink: addressOf(sink.mem), sinkKey: sink.region.rkey}
	l.TrySend(&wire.Header{Kind: wire.Eager, Tag: tagHello}, mine.encode())
	var pkts [4]transport.Packet
	var theirs hello
	var wcs [1]completion
	for ready, answered := false, false; !ready || !answered; runtime.Gosched() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if n, err := h.proverPoll(wcs[:]); err != nil || n > 0 && wcs[0].status != 0 {
			return fmt.Errorf("the probe: %v, %w", wcs[0], err)
		} else if n > 0 {
			answered = true
			l.TrySend(&wire.Header{Kind: wire.Eager, Tag: tagReady}, nil)
		}
		for _, p := range pkts[:c.Poll(pkts[:])] {
			switch p.Header.Tag {
			case tagHello:
				if err := theirs.decode(p.Payload); err != nil {
					return err
				}
				r := remote{gid: theirs.gid, qpn: theirs.qpn, psn: theirs.psn, lid: theirs.lid, mtu: theirs.mtu,
					rdAtom: 1, rdServe: 1, timeout: ackTimeoutFor(shortPatience), retries: ackRetries}
				if err := h.connectQP(qp, at.number, at.gidIndex, at.global, &r, mine.psn); err != nil {
					return err
				}
				r.qpn = theirs.probe
				if err := h.connectQP(probe, at.number, at.gidIndex, at.global, &r, mine.psn); err != nil {
					return err
				}
				l.TrySend(&wire.Header{Kind: wire.Eager, Tag: tagKnown}, nil)
			case tagKnown:
				if err := h.postProof(&op{qp: probe, opcode: opWrite, flags: signaled, local: addressOf(sink.mem),
					lkey: sink.region.lkey, length: sinkSize, remote: theirs.sink, rkey: theirs.sinkKey}); err != nil {
					return err
				}
			case tagReady:
				ready = true
			default:
				return fmt.Errorf("tag %d: %q, %v", p.Header.Tag, p.Payload, p.Err)
			}
		}
	}
	return nil
}
