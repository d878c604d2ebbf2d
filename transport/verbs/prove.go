//go:build verbs && linux && cgo

package verbs

import (
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// The proof of a path. A port that is active need not reach a peer's: rails without routes between them, a filter on
// UDP port 4791, another VLAN, or a switch with a smaller MTU lose everything, or what is long. The device says so when
// it has tried often enough, which for a session is after GORUN_PEER_TIMEOUT, and then the peer has failed. So each
// side first sends one WRITE as long as the MTU to the other, which answers, with less patience. A session is open when
// both have an answer. Else it has failed at both ends, before either has sent a packet by it, and another transport
// takes the pair.
//
// So that both ends agree, one of them decides, the lower rank. A higher rank that gives up after its ready waits for
// the lower rank to say ready or broken: only after broken another transport takes the pair.
//
// A queue pair's patience cannot be changed once it may send (ibv_modify_qp(3): from RTS to RTS neither timeout nor
// retry_cnt), and its completions come to Poll, which a computing rank does not call. So a probe is a queue pair of its
// own, with a completion queue and a channel that a goroutine waits for. It ends with the proof.
const (
	// sinkSize is the longest MTU.
	sinkSize = 4096
	// The patience of a probe is under a second: 4.096 µs × 2^13 = 34 ms, 7 times, is 0.24 s, and a device may take up to
	// 4 times as long as it is told (InfiniBand's specification, 9.7.6.1.3): 0.94 s. Software takes the time that it is
	// told, and its peer may wait for a processor: 134 ms, 7 times, is 0.94 s.
	probeTimeout       = 13
	probeTimeoutHosted = 15
	probeRetries       = ackRetries
)

// prover proves the paths of a device. Guarded by Device.mu, but for sink and file, which do not change.
type prover struct {
	sink   slab                // from here probes come and here they land: no rank reads it
	file   *os.File            // the channel of their completions
	proofs map[uint64]*session // that have posted their WRITE, by its number
	last   uint64              // number
	failed error               // of the completion queue: nothing can be proved any more
}

// proof is how far the paths to and from a peer are proved. Guarded by Device.mu.
type proof struct {
	probe    queuePair
	qpn      uint32
	there    hello  // where the peer is
	number   uint64 // of the WRITE; 0: it is not posted
	answered bool   // it has arrived. The higher rank has said ready
	ready    bool   // the peer has said ready
}

// startProver makes what proofs need. At most one proof of each peer is under way.
func (d *Device) startProver() (err error) {
	p := &d.prover
	p.proofs = map[uint64]*session{}
	mem := pages(sinkSize)
	if mem == nil {
		return fmt.Errorf("mapping %d KiB: out of memory", sinkSize>>10)
	}
	region, err := d.hca.register(addressOf(mem), len(mem), localWrite|remoteWrite)
	if err != nil {
		unmap(mem)
		return fmt.Errorf("registering %d KiB: %w", sinkSize>>10, explainMemlock(err))
	}
	p.sink = slab{mem: mem, size: sinkSize, count: 1, region: region}
	if err := d.hca.makeProver(min(max(d.opt.Size, 1), d.at.caps.maxEntries)); err != nil {
		return err
	}
	p.file, err = d.watch(d.hca.proverChannel(), "gorun-verbs-proofs", d.takeProofs)
	return err
}

// watch starts a goroutine that calls look now and whenever the descriptor, which does not block, becomes readable. It
// ends with the device, when the read deadline of the file is over.
func (d *Device) watch(fd int, name string, look func()) (*os.File, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("a second descriptor for %s: %w", name, err)
	}
	file := os.NewFile(uintptr(own), name)
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("waiting for %s: %w", name, err)
	}
	d.wg.Go(func() {
		defer file.Close()
		raw.Read(func(uintptr) bool {
			look()
			return d.ctx.Err() != nil
		})
	})
	return file, nil
}

// newProof makes a probe that is not connected. mu is held.
func (d *Device) newProof() (*proof, error) {
	if d.prover.failed != nil {
		return nil, d.prover.failed
	}
	p := &proof{}
	var err error
	p.probe, p.qpn, err = d.hca.proverQP(d.at.number, d.at.pkey.Index)
	return p, err
}

// dropProof ends the proof of a session, however far it is. A goroutine destroys the probe. mu is held.
func (d *Device) dropProof(s *session) {
	if s.proof == nil {
		return
	}
	delete(d.prover.proofs, s.proof.number)
	d.later.destroy(s.proof.probe)
	s.proof = nil
}

// joinProof connects the probe with the peer's, whose hello is h. r leads to the peer. mu is held.
func (d *Device) joinProof(s *session, h *hello, r remote) error {
	s.proof.there = *h
	r.qpn, r.timeout, r.retries = h.probe, probeTimeout, probeRetries
	if d.at.hosted {
		r.timeout = probeTimeoutHosted
	}
	return d.hca.connectQP(s.proof.probe, d.at.number, d.at.gidIndex, d.at.globalTo(h), &r, s.psn)
}

// probeBytes is the length of a probe to a peer: one packet, as long as there are any on that path.
func (d *Device) probeBytes(h *hello) int { return min(mtuBytes(min(h.mtu, d.at.mtu)), sinkSize) }

// onKnown takes a peer's known: its probe can receive. It counts once.
func (d *Device) onKnown(peer int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.sessions[peer]
	if s == nil || s.state != stateKnown || s.proof.number != 0 {
		return
	}
	p, v := s.proof, &d.prover
	if v.failed != nil { // nothing would tell the end of the WRITE
		d.unreached(s, v.failed)
		return
	}
	v.last++
	p.number = v.last
	v.proofs[p.number] = s
	if err := d.hca.postProof(&op{qp: p.probe, id: p.number, opcode: opWrite, flags: signaled,
		local: addressOf(v.sink.mem), lkey: v.sink.region.lkey, length: uint32(d.probeBytes(&p.there)),
		remote: p.there.sink, rkey: p.there.sinkKey}); err != nil {
		d.unreached(s, err)
	}
}

// takeProofs takes what the device says of probes.
func (d *Device) takeProofs() {
	var wcs [pollMax]completion
	for n := 1; n > 0; {
		var err error
		n, err = d.hca.proverPoll(wcs[:])
		d.mu.Lock()
		for i := range wcs[:n] {
			d.proved(&wcs[i])
		}
		if err != nil {
			d.prover.failed = fmt.Errorf("polling the completion queue of the probes: %w", err)
			for _, s := range d.prover.proofs {
				d.unreached(s, d.prover.failed)
			}
		}
		d.mu.Unlock()
	}
}

// proved takes the end of a probe. mu is held.
func (d *Device) proved(w *completion) {
	s := d.prover.proofs[w.id]
	switch {
	case s == nil: // the session has failed meanwhile
	case w.status != 0:
		d.unreached(s, fmt.Errorf("%s (vendor code %#x)", statusText(w.status), w.vendor))
	default:
		delete(d.prover.proofs, w.id)
		s.proof.answered = true
		if s.hasVoted() {
			d.control.send(s.peer, tagReady, nil)
		}
		d.openProved(s)
	}
}

// onReady takes a peer's ready: its packets reach this rank.
func (d *Device) onReady(peer int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch s := d.sessions[peer]; {
	case s == nil:
	case s.state == stateUndecided: // the peer may have sent something already
		d.decided(s, true)
	case s.state == stateKnown:
		s.proof.ready = true
		d.openProved(s)
	}
}

// openProved opens a session whose paths are proved in both directions. The lower rank says so first. mu is held.
func (d *Device) openProved(s *session) {
	if !s.proof.answered || !s.proof.ready {
		return
	}
	if s.peer > d.opt.Rank {
		d.control.send(s.peer, tagReady, nil)
	}
	d.dropProof(s)
	s.state, s.everOpen = stateOpen, true
	close(s.opened)
}

// unreached ends a session whose path is not there. mu is held.
func (d *Device) unreached(s *session, why error) {
	h := &s.proof.there
	d.abort(s, fmt.Errorf("a probe of %d bytes from %s:%d (%s) to %s does not get through: %w", d.probeBytes(h),
		d.at.device, d.at.number, place(d.at.lid, d.at.gid), place(h.lid, h.gid), why), true)
}

func place(lid uint16, gid [16]byte) string {
	return fmt.Sprintf("LID %d, GID %v", lid, netip.AddrFrom16(gid))
}
