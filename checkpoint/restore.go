package checkpoint

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gorun-mpi/mpi"
)

// Restore writes the newest checkpoint of which each rank's slices are somewhere into the slices of all ranks, and
// returns its step. found is false if none was ever whole: the slices are as they were. It is a collective call of all
// ranks of c, which are as many as those that have saved: a rank has the slices that the rank of its number had. Later
// calls of Save are on c, where the tag mpi.MaxTag is the store's. Restore ends with a Save, so that the partners have
// what was lost with the dead.
//
// Errors: ErrLost, at all ranks, and the errors of messages. If another rank dies during the call, Restore can be
// called again on a communicator without it.
func (s *Store) Restore(c *mpi.Comm) (step int64, found bool, err error) {
	step, found, err = s.restore(c)
	if err != nil {
		s.unusable = err
		return 0, false, fmt.Errorf("checkpoint.Restore: %w", err)
	}
	return step, found, nil
}

func (s *Store) restore(c *mpi.Comm) (int64, bool, error) {
	s.comm = c
	s.move(c.Rank())
	if !s.own.slots[0].whole && !s.own.slots[1].whole && s.dir != "" {
		s.read()
	}
	all, err := s.announce()
	if err != nil {
		return 0, false, err
	}
	what, err := s.agree(all)
	if err != nil {
		return 0, false, err
	}
	if what.Number == 0 {
		s.current = header{Lineage: all[0].Now}
		s.own, s.held = copies{}, map[int]*copies{}
		s.unusable = nil
		return 0, false, nil
	}
	if err := s.fetch(what); err != nil {
		return 0, false, err
	}
	s.current = what.header
	s.unusable = nil
	return what.Step, true, s.Save(what.Step)
}

// move makes the copies of another rank's slices the own ones if this rank had another number when it made them.
func (s *Store) move(to int) {
	for _, slot := range s.own.slots {
		if slot.whole && int(slot.Owner) != to {
			own := s.own
			s.held[int(slot.Owner)], s.own = &own, copies{}
			return
		}
	}
}

// announcement is what a rank tells all others before they choose.
type announcement struct {
	Now      uint64 // rank 0's names a row of checkpoints, so that a later row has a greater name
	Partners int
	Host     int // the lowest rank on the host
	Length   uint64
	Next     uint64
	Whole    header // the newest checkpoint that all ranks have, as this one knows
	Held     []holding
}

// announce gives the announcements of all ranks.
func (s *Store) announce() ([]announcement, error) {
	host, err := hostOf(s.comm)
	if err != nil {
		return nil, err
	}
	a := announcement{Now: uint64(time.Now().UnixNano()), Partners: s.partners, Host: host, Length: s.length,
		Next: s.next, Whole: s.current}
	for _, c := range s.held {
		a.Held = append(a.Held, c.holdings(s.comm.Rank())...)
	}
	a.Held = append(a.Held, s.own.holdings(s.comm.Rank())...)
	return mpi.AllgatherObjects(s.comm, a)
}

// hostOf gives the lowest rank of c on this rank's host. Nothing is sent on the communicator of the host: only c is the
// program's to revoke.
func hostOf(c *mpi.Comm) (int, error) {
	node, err := c.SplitShared(0)
	if err != nil {
		return 0, err
	}
	lowest, err := node.Group().Translate([]int{0}, c.Group())
	if err := errors.Join(err, node.Free()); err != nil {
		return 0, err
	}
	return lowest[0], nil
}

func (c *copies) holdings(holder int) (all []holding) {
	for i := range c.slots {
		if s := &c.slots[i]; s.whole {
			all = append(all, holding{Header: s.header, Holder: holder})
		}
	}
	return all
}

// agree decides from the announcements, alike at all ranks, what is restored and who the partners are.
func (s *Store) agree(all []announcement) (choice, error) {
	hosts := make([]int, len(all))
	s.lengths = make([]uint64, len(all))
	var held []holding
	var whole []header
	for r, a := range all {
		if a.Partners < 0 {
			return choice{}, fmt.Errorf("%w: rank %d has Partners(%d): a rank has 0 partners or more", mpi.ErrCount, r,
				a.Partners)
		}
		if a.Partners != all[0].Partners {
			return choice{}, fmt.Errorf("%w: rank %d has Partners(%d), and rank 0 has Partners(%d)", mpi.ErrCount, r,
				a.Partners, all[0].Partners)
		}
		hosts[r], s.lengths[r] = a.Host, a.Length
		s.next = max(s.next, a.Next, 1)
		whole = append(whole, a.Whole)
		for _, h := range a.Held {
			held = append(held, holding{Header: h.Header, Holder: r}) // a rank speaks for itself alone
		}
	}
	for _, h := range held {
		if h.Header.Size != uint32(len(all)) {
			return choice{}, fmt.Errorf("%w: the checkpoints are of %d ranks and the communicator has %d: "+
				"Restore needs one of the old size", mpi.ErrComm, h.Header.Size, len(all))
		}
		s.next = max(s.next, h.Header.Number+1)
	}
	to := partners(hosts, s.partners)
	s.to, s.wards = to[s.comm.Rank()], nil
	for r, ps := range to {
		if slices.Contains(ps, s.comm.Rank()) {
			s.wards = append(s.wards, r)
		}
	}
	c := choose(len(all), held, whole...)
	if c.lost != nil {
		return choice{}, fmt.Errorf("%w: ranks %v and their partners", ErrLost, c.lost)
	}
	for r, n := range c.lengths {
		if n != s.lengths[r] {
			return choice{}, fmt.Errorf("%w: rank %d has added slices of %d bytes, and the checkpoint has %d", mpi.ErrCount,
				r, s.lengths[r], n)
		}
	}
	return c, nil
}

// fetch brings this rank's part of the chosen checkpoint into its slices, and sends other ranks what only this one has.
func (s *Store) fetch(what choice) error {
	me := s.comm.Rank()
	want := what.header
	want.Owner, want.Length = uint32(me), s.length
	var in incoming
	var failed error
	have := what.from[me] == me
	switch {
	case !have:
		in = receive(s.comm, s.own.begin(header{}, s.length), want, what.from[me])
	case s.own.find(what.Lineage, what.Number) == nil: // it was the partner of the rank that had this number
		own := s.own.begin(header{}, s.length)
		copy(own.data, s.held[me].find(what.Lineage, what.Number).data)
		if !own.end(want) {
			failed = fmt.Errorf("%w: its copy of rank %d says that it is another checkpoint", ErrIncomplete, me)
		}
	}
	var out mpi.Set
	for r, from := range what.from {
		if from == me && r != me {
			out.Add(mpi.Isend(s.comm, s.held[r].find(what.Lineage, what.Number).data, r, tagCopy))
		}
	}
	if !have {
		failed = in.wait()
	}
	failed = errors.Join(failed, out.Wait())
	rank, err := vote(s.comm, failed)
	if err := errors.Join(failed, err); err != nil {
		return err
	}
	if rank >= 0 {
		return fmt.Errorf("%w: rank %d could not fetch its slices", ErrIncomplete, rank)
	}
	b := s.own.find(what.Lineage, what.Number).data[headerSize:]
	for _, item := range s.items {
		b = b[copy(item, b):]
	}
	return nil
}
