//go:build verbs && !guest && linux && cgo

package verbs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/leak"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/multi"
	"github.com/gorun-mpi/mpi/transport/tcp"
)

// holes are what does not get through between ranks 0 and 1: what each of the two loses of the other. The port of rank
// r is in subnet r+1.
type holes struct{ name, at0, at1 string }

const none = "999" // no port is of that subnet

// deadWays are the ways in which a path can be no good. The MTU is 4096, over Ethernet 1024.
var deadWays = []holes{
	{"from 0 to 1", none, "1"},
	{"from 1 to 0", "2", none},
	{"both", "2", "1"},
	{"MTU from 0 to 1", none, "1:1023"},
	{"MTU from 1 to 0", "2:1023", none},
}

// dig sets the knobs of the device that rank opens next. Retries take a twentieth of their time.
func (h *holes) dig(t testing.TB, rank int) {
	t.Setenv("SOFTHCA_RETRY_SCALE", "0.05")
	t.Setenv("SOFTHCA_SUBNET", fmt.Sprint(rank+1))
	from := none
	switch rank {
	case 0:
		from = h.at0
	case 1:
		from = h.at1
	}
	t.Setenv("SOFTHCA_DROP_FROM", from)
}

// refused connects, which must fail soon, and not because the peer is gone.
func refused(t *testing.T, e, to *end) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := e.Connect(ctx, to.rank, to.Address())
	if !errors.Is(err, transport.ErrUnavailable) || errors.Is(err, transport.ErrPeerGone) || ctx.Err() != nil {
		t.Errorf("rank %d: Connect to rank %d: %v, want ErrUnavailable", e.rank, to.rank, err)
	}
	return err
}

// proofs is how many are under way, and the queue pairs that there are when those that are being destroyed are not.
func (e *end) proofs() (under int, pairs uint64) {
	e.later.settle()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.sessions {
		if s.proof != nil {
			under++
		}
	}
	return under + len(e.prover.proofs), e.counted("qps")
}

// noProofs checks that none is under way, and that there are so many queue pairs.
func (e *end) noProofs(pairs uint64) {
	e.t.Helper()
	if under, n := e.proofs(); under != 0 || n != pairs {
		e.t.Errorf("rank %d: %d proofs are under way, there are %d queue pairs, want %d", e.rank, under, n, pairs)
	}
}

// A path that is dead in one direction, in both, or for long packets: Connect fails at both ends, whichever begins.
// Each logs it once with both addresses, and no peer counts as failed. The other pairs have their connections.
func TestDeadPath(t *testing.T) {
	needSoft(t)
	for i, way := range deadWays {
		for _, mode := range []string{"ib", "roce", "two_ports"} {
			for _, tags := range []string{"off", "on"} {
				t.Run(way.name+" "+mode+" "+tags, func(t *testing.T) {
					t.Setenv("SOFTHCA_MODE", mode)
					deadPath(t, &way, tags, i)
				})
			}
		}
	}
}

func deadPath(t *testing.T, way *holes, tags string, first int) {
	watchdog(t)
	var logs [3]notes
	var ends [3]*end
	for rank := range ends {
		way.dig(t, rank)
		ends[rank] = newEnd(t, rank, 3, func(o *Options) { o.Tags, o.LocalRank, o.Log = tags, rank, logs[rank].log })
	}
	a, b := ends[0], ends[1]
	switch first % 3 {
	case 0:
		refused(t, a, b)
		refused(t, b, a)
	case 1:
		refused(t, b, a)
		refused(t, a, b)
	default:
		done := make(chan struct{})
		go func() { refused(t, b, a); close(done) }()
		refused(t, a, b)
		<-done
	}
	for i, e := range []*end{a, b} {
		said := logs[i].with("does not connect this rank with a peer")
		if len(said) != 1 || !strings.Contains(said[0], "a probe of ") || !strings.Contains(said[0], statusText(12)) ||
			strings.Count(said[0], "LID ") != 2 || !strings.Contains(said[0], "from softhca0:") {
			t.Errorf("rank %d has said %q", i, said)
		}
		e.noPackets()
		greet(e.link(ends[2]), ends[2])
		greet(ends[2].link(e), e)
		pairs := uint64(2)
		if e.tags.on() {
			pairs = 4
		}
		e.noProofs(pairs)
	}
}

// greet is talk also where the device matches tags, and has left the message to software.
func greet(l *link, to *end) {
	to.t.Helper()
	send(to.t, l, wire.Header{Kind: wire.Eager, Tag: 77}, []byte("hello"), to)
	want := transport.Arrived
	if l.s.tagged {
		want = transport.Unmatched
	}
	if p := to.take(want); int(p.Peer) != l.s.d.opt.Rank || string(p.Payload) != "hello" {
		to.t.Errorf("%+v", p)
	}
}

// party is a rank whose packets go by verbs or tcp.
type party struct {
	sync.Mutex
	*multi.Device
	verbs *Device
	rank  int
	got   map[int32][]int32 // the tags that have come, by peer
	down  error
}

func newParty(t *testing.T, rank, size int, change ...func(*Options)) *party {
	t.Helper()
	opt := control(nil)
	opt.Rank, opt.Size, opt.Job = rank, size, "beside"
	beside, err := tcp.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	p := &party{verbs: newDevice(t, rank, size, change...), rank: rank, got: map[int32][]int32{}}
	if p.Device, err = multi.New(nil, p.verbs, beside); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

const partyMessages = 40

// talkTo connects and sends at once.
func (p *party) talkTo(to *party) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l, err := p.Connect(ctx, to.rank, to.Address())
	for i := 0; i < partyMessages && err == nil; runtime.Gosched() {
		p.Lock()
		if l.TrySend(&wire.Header{Kind: wire.Eager, Tag: int32(i)}, make([]byte, 10*i)) {
			i++
		}
		p.Unlock()
		err = ctx.Err()
	}
	return err
}

// hear polls until all that the others send is here, and a while longer.
func (p *party) hear(others int) error {
	var pkts [16]transport.Packet
	last, all := time.Now(), 0
	limit := last.Add(patience)
	for ; all < others*partyMessages || time.Since(last) < 20*time.Millisecond; runtime.Gosched() {
		p.Lock()
		n := p.Poll(pkts[:])
		for i := range pkts[:n] {
			switch pkt := &pkts[i]; pkt.Event {
			case transport.Arrived, transport.Unmatched:
				p.got[pkt.Peer] = append(p.got[pkt.Peer], pkt.Header.Tag)
			case transport.Down:
				p.down = pkt.Err
			}
		}
		p.Unlock()
		all = 0
		for _, tags := range p.got {
			all += len(tags)
		}
		if n > 0 {
			last = time.Now()
		}
		if time.Now().After(limit) || p.down != nil {
			return fmt.Errorf("rank %d has %d messages of %d: %w", p.rank, all, others*partyMessages, p.down)
		}
	}
	return nil
}

// Three ranks whose pair 0 and 1 has no path send to each other from the beginning, all at once: the two use tcp at
// both ends, the other pairs verbs, and each message comes once and in order.
func TestDeadPathFallsBack(t *testing.T) {
	needSoft(t)
	for _, way := range append(deadWays, holes{"none", none, none}) {
		for _, tags := range []string{"off", "on"} {
			t.Run(way.name+" "+tags, func(t *testing.T) {
				watchdog(t)
				var all [3]*party
				for rank := range all {
					way.dig(t, rank)
					all[rank] = newParty(t, rank, len(all), func(o *Options) { o.Tags = tags })
				}
				exchanged(t, all[:])
				for _, p := range all {
					for _, peer := range all {
						want := "verbs"
						if way.name != "none" && p.rank < 2 && peer.rank < 2 {
							want = "tcp"
						}
						if via := p.Facts().Via(peer.rank); peer != p && via != want {
							t.Errorf("rank %d reaches rank %d by %s, want %s", p.rank, peer.rank, via, want)
						}
					}
				}
			})
		}
	}
}

// exchanged has all send to each other at once, and checks that each message comes once and in order.
func exchanged(t *testing.T, all []*party) {
	t.Helper()
	errs := make(chan error, len(all)*len(all))
	for _, p := range all {
		for _, to := range all {
			if to != p {
				go func() { errs <- p.talkTo(to) }()
			}
		}
		go func() { errs <- p.hear(len(all) - 1) }()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	for _, p := range all {
		for _, peer := range all {
			if peer == p {
				continue
			}
			tags := p.got[int32(peer.rank)]
			if via, back := p.Facts().Via(peer.rank), peer.Facts().Via(p.rank); via != back {
				t.Errorf("ranks %d and %d use %s and %s", p.rank, peer.rank, via, back)
			}
			for i, tag := range tags {
				if int(tag) != i || len(tags) != partyMessages {
					t.Fatalf("rank %d has %v from rank %d", p.rank, tags, peer.rank)
				}
			}
		}
	}
}

// A device with fewer queue pairs than the rank has peers: peers that get no queue pair use tcp, at both ends, and the
// log names them.
func TestFewQueuePairs(t *testing.T) {
	needSoft(t)
	for pairs, want := range map[int]int{1: 0, 2: 1} { // a proof takes one too
		t.Run(fmt.Sprint(pairs), func(t *testing.T) {
			watchdog(t)
			var log notes
			t.Setenv("SOFTHCA_MAX_QP", fmt.Sprint(pairs))
			all := []*party{newParty(t, 0, 4, log.option)}
			os.Unsetenv("SOFTHCA_MAX_QP")
			for rank := 1; rank < 4; rank++ {
				all = append(all, newParty(t, rank, 4))
			}
			exchanged(t, all)
			byVerbs := 0
			for peer := 1; peer < 4; peer++ {
				said := log.with(fmt.Sprintf("verbs does not connect this rank with a peer peer %d reason making it here: ", peer))
				switch via := all[0].Facts().Via(peer); {
				case via == "verbs":
					byVerbs++
				case len(said) != 1 || !strings.Contains(said[0], "annot allocate memory"):
					t.Errorf("rank %d is reached by %s; the log has %q", peer, via, said)
				}
			}
			if byVerbs != want {
				t.Errorf("%d ranks are reached by verbs, want %d", byVerbs, want)
			}
		})
	}
}

// proving are two ends of which one is connecting to the other, whose device does not answer: the proof is under way.
func proving(t *testing.T) (a, b *end, result chan error, cancel func()) {
	t.Helper()
	a, b = newEnd(t, 0, 3), newEnd(t, 1, 3)
	b.injected("pause")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	result = make(chan error, 1)
	go func() {
		_, err := a.Connect(ctx, 1, b.Address())
		result <- err
	}()
	for limit := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		a.mu.Lock()
		n := len(a.prover.proofs)
		a.mu.Unlock()
		if n == 1 {
			break
		}
		if time.Now().After(limit) {
			t.Fatal("no proof is under way")
		}
	}
	return a, b, result, cancel
}

// What ends while a path is being proved: the peer, this rank's patience, either device, this rank's end. Connect says
// so, nothing is left of the proof, and other peers have their connections.
func TestProofIsCutOff(t *testing.T) {
	needSoft(t)
	for _, c := range []struct {
		what   string
		is     error
		happen func(a, b *end, cancel func())
	}{
		{"the peer ends", transport.ErrPeerGone, func(_, b *end, _ func()) { b.Close() }},
		{"patience ends", transport.ErrTimeout, func(_, _ *end, cancel func()) { cancel() }},
		{"this device fails", transport.ErrUnavailable, func(a, _ *end, _ func()) { a.injected("device_fatal") }},
		{"its device fails", transport.ErrUnavailable, func(_, b *end, _ func()) { b.injected("device_fatal") }},
		{"this rank ends", transport.ErrUnavailable, func(a, _ *end, _ func()) { a.Close() }},
	} {
		t.Run(c.what, func(t *testing.T) {
			watchdog(t)
			a, b, result, cancel := proving(t)
			defer cancel()
			c.happen(a, b, cancel)
			if err := <-result; !errors.Is(err, c.is) || c.is != transport.ErrPeerGone && errors.Is(err, transport.ErrPeerGone) {
				t.Errorf("%v, want %v", err, c.is)
			}
			if strings.HasPrefix(c.what, "this ") {
				return
			}
			a.noProofs(1)
			a.noPackets()
			third := newEnd(t, 2, 3)
			talk(a.link(third), third)
			a.noProofs(2)
		})
	}
}

// heldProof returns the session of e with a peer, when the path to the peer is proved.
func (e *end) heldProof(peer int) (s *session) {
	e.t.Helper()
	for limit := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		e.mu.Lock()
		s = e.sessions[peer]
		ok := s != nil && (s.state == stateOpen || s.state == stateKnown && s.proof.answered)
		e.mu.Unlock()
		if ok {
			return s
		}
		if time.Now().After(limit) {
			e.t.Fatalf("rank %d does not prove the path to rank %d", e.rank, peer)
		}
	}
}

// A rank gives up while the peer's ready is on its way. If the peer has not opened the session, another transport takes
// the pair at both ends; if it has, which only the lower rank does first, each end counts the other as failed.
func TestGivesUpBetweenReadies(t *testing.T) {
	needSoft(t)
	t.Setenv("SOFTHCA_RETRY_SCALE", "3") // 0.4 s until the second time
	for rank := range 2 {
		for what, giveUp := range map[string]func(e *end, s *session){
			"its time is over": func(e *end, s *session) { e.giveUp(s, errors.New("the test says so")) },
			"its device fails": func(e *end, _ *session) { e.happened(eventDeviceFatal, 0) },
		} {
			t.Run(fmt.Sprintf("rank %d, %s", rank, what), func(t *testing.T) {
				watchdog(t)
				e, peer := newEnd(t, rank, 2), newEnd(t, 1-rank, 2)
				peer.injected("lose") // its WRITE, which comes the second time
				result := make(chan error, 1)
				go func() {
					_, err := e.Connect(t.Context(), peer.rank, peer.Address())
					result <- err
				}()
				s := e.heldProof(peer.rank)
				e.control.mu.Lock() // it hears nothing more
				peer.heldProof(rank)
				done := make(chan bool)
				go func() {
					giveUp(e, s)
					close(done)
				}()
				for held := 0; held < 10; time.Sleep(time.Millisecond) { // until it waits to say so
					if held++; e.mu.TryLock() {
						e.mu.Unlock()
						held = 0
					}
				}
				e.control.mu.Unlock()
				<-done
				if rank == 0 {
					if err := <-result; !errors.Is(err, transport.ErrUnavailable) {
						t.Errorf("it says %v", err)
					}
					refused(t, peer, e)
					e.noPackets()
					peer.noPackets()
					return
				}
				if err := <-result; !errors.Is(err, transport.ErrPeerGone) {
					t.Fatalf("it says %v", err)
				}
				e.down(peer.rank)
				peer.down(rank)
			})
		}
	}
}

// The higher rank gives up after its ready, and the lower one has not decided: the session opens at neither end.
func TestGivesUpBeforeTheDecision(t *testing.T) {
	needSoft(t)
	watchdog(t)
	t.Setenv("SOFTHCA_RETRY_SCALE", "100")
	low, high := newEnd(t, 0, 2), newEnd(t, 1, 2)
	low.injected("lose") // its WRITE is not repeated soon
	result := make(chan error, 1)
	go func() {
		_, err := high.Connect(t.Context(), 0, low.Address())
		result <- err
	}()
	high.giveUp(high.heldProof(0), errors.New("the test says so"))
	if err := <-result; !errors.Is(err, transport.ErrUnavailable) || !strings.Contains(err.Error(), "the test says so") {
		t.Errorf("it says %v", err)
	}
	refused(t, low, high)
	refused(t, high, low)
	low.noPackets()
	high.noPackets()
	low.noProofs(1)
	high.noProofs(1)
}

// A peer that says what is wrong, or nothing more: neither hangs this rank longer than it wants to wait.
func TestHostileProof(t *testing.T) {
	needSoft(t)
	t.Setenv("SOFTHCA_RETRY_SCALE", "0.05")
	say := func(more ...int32) func(liar *end, good hello) {
		return func(liar *end, good hello) {
			liar.control.send(0, tagHello, good.encode())
			for _, tag := range more {
				liar.control.send(0, tag, []byte("and more"))
			}
		}
	}
	for _, c := range []struct {
		what, says string
		do         func(liar *end, good hello)
	}{
		{"a probe that is not there", statusText(12), say(tagKnown, tagKnown)},
		{"ready at once", statusText(12), say(tagReady, tagReady, tagKnown, tagReady)},
		{"broken", "and more", say(tagBroken, tagKnown, tagReady)},
		{"known only after hello", statusText(12), func(liar *end, good hello) {
			liar.control.send(0, tagKnown, nil)
			say(tagKnown)(liar, good)
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			watchdog(t)
			honest, liar := newEnd(t, 0, 2), newEnd(t, 1, 2)
			_, where, _ := decodeAddress(honest.Address())
			if _, err := liar.control.tcp.Connect(t.Context(), 0, where); err != nil {
				t.Fatal(err)
			}
			c.do(liar, hello{layer: liar.at.layer, mtu: liar.at.mtu, reads: 1, lid: liar.at.lid, gid: liar.at.gid, qpn: 7,
				slot: slotSize, pkey: liar.at.pkey.Value, probe: 7, sink: 8, sinkKey: 9})
			if err := refused(t, honest, liar); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("the honest one says %v, want %q", err, c.says)
			}
			honest.noPackets()
			honest.noProofs(1)
		})
	}
	t.Run("another's key", func(t *testing.T) {
		watchdog(t)
		honest, liar := newEnd(t, 0, 2), newEnd(t, 1, 2)
		liar.prover.sink.region.rkey ^= 0x5555
		if err := refused(t, honest, liar); err == nil || !strings.Contains(err.Error(), statusText(10)) {
			t.Errorf("%v, want %q", err, statusText(10))
		}
		refused(t, liar, honest)
		honest.noPackets()
		liar.noPackets()
		honest.noProofs(1)
	})
}

// A proof takes one queue pair for its time, and no descriptor.
func TestProofLeavesNothing(t *testing.T) {
	needSoft(t)
	watchdog(t)
	const peers = 8
	hub := newEnd(t, 0, peers+1)
	var ends []*end
	for i := range peers {
		ends = append(ends, newEnd(t, i+1, peers+1))
	}
	files := leak.Files()
	for same := 0; same < 5; same++ { // descriptors that the devices' goroutines open late are not the connections'
		time.Sleep(5 * time.Millisecond)
		if n := leak.Files(); n != files {
			files, same = n, -1
		}
	}
	for _, e := range ends {
		talk(hub.link(e), e)
	}
	hub.noProofs(peers)
	if n := leak.Files() - files; n > 2*peers { // both ends of the control connections are here
		t.Errorf("%d descriptors more for %d connections", n, peers)
	}
}
