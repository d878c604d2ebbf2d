package mpi

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/gorun-mpi/mpi/internal/report"
	"github.com/gorun-mpi/mpi/pml"
)

// reporter records the calls of a rank for the report of GORUN_REPORT. It sees them by hooks.
type reporter struct {
	dir    string
	record *report.Recorder // of calls whose Call is the rank's own
	mu     sync.Mutex
	others *report.Recorder // of the other calls; mu guards it
	engine *pml.Engine
	own    *Comm // of all ranks, for the reporter's own messages; nil: there is none
	begin  int64 // the offset of the clock; see align
	failed error // why there will be no report
	once   sync.Once
}

// newReporter returns the reporter of a rank. Every rank of the world calls it.
func newReporter(world *Comm, dir string) *reporter {
	r := &reporter{dir: dir, engine: world.group.Engine, record: report.New(world.Rank(), world.Size(), world.Transport())}
	r.others = r.record.Twin()
	if r.own, r.failed = world.Dup(); r.failed == nil {
		r.own.SetName("report")
		world.made.Store(0) // the program's communicators have the names that they have without a report
		r.begin, r.failed = r.align(0)
	}
	return r
}

// hooks returns the hooks of a reporter.
func (r *reporter) hooks() *Hooks {
	return &Hooks{Before: func(k *Call) { k.began = r.record.Ticks() }, After: r.after}
}

// after records a call.
func (r *reporter) after(k *Call) {
	if k.Comm.group.Engine != r.engine {
		return // ranks that Spawn has started are not among the report's
	}
	end := r.record.Ticks()
	var call report.Call // field by field, as Record does
	call.Op, call.Kind, call.Begin, call.End = k.Op, k.Kind.String(), k.began, end
	call.Context, call.Peer, call.Collective = k.Context, -1, k.Kind == CallCollective && k.Err == nil
	if k.Peer >= 0 && k.World >= 0 {
		call.Peer = k.World
	}
	if k.Err == nil {
		switch k.Kind {
		case CallSend:
			k.moves(report.Sent, k.World, k.Tag, k.Bytes)
		case CallSendrecv:
			k.moves(report.Sent, k.DestWorld, k.DestTag, k.SentBytes)
			if k.Request == nil {
				k.moves(report.Received, k.World, k.Tag, k.Bytes)
			}
		case CallRecv:
			if k.Request == nil {
				k.moves(report.Received, k.World, k.Tag, k.Bytes)
			}
		case CallPut:
			k.moves(report.Written, k.World, k.Tag, k.Bytes)
		case CallGet:
			k.moves(report.Read, k.World, k.Tag, k.Bytes)
		case CallCollective:
			call.Bytes, call.First = k.Bytes, k.Comm.group.First()
		}
	}
	for i := range k.Done {
		d := &k.Done[i]
		if d.Err == nil && !d.Cancelled && (d.Kind == CallRecv || d.Kind == CallSendrecv) {
			k.add(report.Received, d.World, d.Tag, d.Context, d.Bytes)
		}
	}
	for i := range k.moved {
		call.Bytes += k.moved[i].Bytes
	}
	if k.own {
		r.record.Record(&call, k.moved)
		return
	}
	r.mu.Lock()
	r.others.Record(&call, k.moved)
	r.mu.Unlock()
}

// moves notes a message of the call, unless it is to or from ProcNull.
func (k *Call) moves(way report.Way, peer, tag int, bytes int64) {
	if peer >= 0 {
		k.add(way, peer, tag, k.Context, bytes)
	}
}

// add notes a message.
func (k *Call) add(way report.Way, peer, tag int, context uint32, bytes int64) {
	k.moved = append(k.moved, report.Message{})
	m := &k.moved[len(k.moved)-1]
	m.Way, m.Peer, m.Tag, m.Context, m.Bytes = way, peer, tag, context, bytes
}

// gather brings the parts of all ranks to rank 0, which writes the report. Every rank calls it before it leaves; the
// second time it does nothing. Without a report the job is what it is without the setting.
func (r *reporter) gather() {
	r.once.Do(func() {
		err := r.failed
		var all [][]byte
		if r.own != nil { // each rank takes part, also one that has failed: the others wait for it
			end, failed := r.align(1)
			r.record.SetOffsets(r.begin, end)
			part, wrong := r.part().Encode()
			var lost error
			all, lost = GatherAlloc(r.own, part, 0)
			err = errors.Join(err, failed, wrong, lost)
		}
		if r.record.Rank() != 0 {
			return
		}
		if err == nil {
			err = r.write(all)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "mpi: rank 0: no report in %s: %v\n", r.dir, err)
		}
	})
}

// part returns what this rank sends to rank 0: the record, with the transports and algorithms, which no hook sees.
func (r *reporter) part() *report.Part {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, g := r.record.Part(), &r.own.group
	for _, flows := range [][]report.Flow{p.Out, p.In} {
		for i := range flows {
			flows[i].Via = g.Engine.TransportTo(flows[i].Peer)
		}
	}
	for _, c := range g.Setup.Chosen() {
		p.Algorithms = append(p.Algorithms, report.Algorithm{Op: c.Operation.String(), Names: c.Algorithms,
			Least: c.Least, Most: c.Most})
	}
	return p
}

func (r *reporter) write(all [][]byte) error {
	parts := make([]*report.Part, len(all))
	for rank, b := range all {
		var err error
		if parts[rank], err = report.Decode(b); err != nil {
			return fmt.Errorf("what rank %d has sent cannot be read: %w", rank, err)
		}
	}
	m, err := report.Merge(parts)
	if err != nil {
		return err
	}
	return m.Write(r.dir)
}

// alignRounds are the exchanges by which two clocks are compared: the shortest is the most exact.
const alignRounds = 10

// align returns what makes a time of this rank's clock a time of rank 0's. The ranks of a host have one clock, and the
// first of them asks rank 0.
func (r *reporter) align(tag int) (offset int64, err error) {
	w, me := r.own, r.own.Rank()
	hosts := w.group.Hosts()
	var firsts []int // of each host
	first := map[int]int{}
	for rank := range w.Size() {
		if _, known := first[hosts.Host(rank)]; !known {
			first[hosts.Host(rank)] = rank
			firsts = append(firsts, rank)
		}
	}
	leader := first[hosts.Host(me)]
	var now [1]int64
	switch {
	case me == 0:
		for _, other := range firsts[1:] {
			err = errors.Join(err, r.compare(other, tag))
		}
		return 0, err
	case leader == 0:
		return 0, nil
	case leader != me:
		st, err := Recv(w, now[:], leader, tag)
		if err == nil && st.Bytes == 0 {
			err = fmt.Errorf("rank %d could not compare the clock of this host with rank 0's", leader)
		}
		return now[0], err
	}
	offset, err = r.answer(tag)
	told := []int64{offset}
	if err != nil {
		told = nil // the other ranks of the host wait all the same
	}
	for rank := me + 1; rank < w.Size(); rank++ {
		if hosts.Host(rank) == hosts.Host(me) {
			err = errors.Join(err, Send(w, told, rank, tag))
		}
	}
	return offset, err
}

// answer is compare at the other rank.
func (r *reporter) answer(tag int) (offset int64, err error) {
	var now [1]int64
	for range alignRounds {
		if _, err = Recv(r.own, now[:], 0, tag); err == nil {
			now[0] = r.record.Now()
			err = Send(r.own, now[:], 0, tag)
		}
		if err != nil {
			return 0, err
		}
	}
	_, err = Recv(r.own, now[:], 0, tag)
	return now[0], err
}

// compare compares the clock of another rank with this one's, which is rank 0's, and sends it the difference.
func (r *reporter) compare(other, tag int) error {
	var best, shortest int64
	var there [1]int64
	for i := range alignRounds {
		asked := r.record.Now()
		err := Send(r.own, there[:], other, tag)
		if err == nil {
			_, err = Recv(r.own, there[:], other, tag)
		}
		if err != nil {
			return err
		}
		heard := r.record.Now()
		if took := heard - asked; i == 0 || took < shortest {
			shortest, best = took, asked+took/2-there[0]
		}
	}
	there[0] = best
	return Send(r.own, there[:], other, tag)
}
