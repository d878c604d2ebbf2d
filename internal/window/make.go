package window

import (
	"fmt"
	"math"

	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/internal/coll"
	"github.com/gorun-mpi/mpi/internal/meminfo"
	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
	"github.com/gorun-mpi/mpi/pml"
)

// Spec says which window a rank wants. All ranks give the same Kind, Elem and Contiguous.
type Spec struct {
	Kind       agree.Creation
	Count      int64  // elements of this rank, 0 or more; Count · Elem fits 63 bits; 0 if Kind is MakeWinDynamic
	Elem       int    // bytes of an element
	Contiguous bool   // the ranks' memory is one array, without gaps
	Shared     bool   // a window that is not mapped is of no use
	NIC        bool   // devices make atomic steps if they can; Elem is 8
	Own        []byte // memory of this rank; nil: the window makes it
	Accel      *Accel // not nil: the memory is of a device
	Update     Updater
}

const (
	// partGap is what the memory of each rank begins at a multiple of, if it need not be contiguous: two ranks write to
	// no line of a cache in common. Memory of a page or more begins at a page.
	partGap  = 128
	pageSize = 4096
	// mostBytes is the limit of the memory of a window's ranks on one host.
	mostBytes = 1 << 40
)

// Make makes a window whose communicator is g. All ranks of g call it while they make that, by the exchange m.
func Make(m *agree.Exchange, g *coll.Group, s Spec) (*Window, *agree.Veto) {
	w := &Window{group: g, elem: s.Elem, update: s.Update, near: map[int]*part{}, far: map[int]*Remote{}}
	w.epochs.Self = int32(g.Rank)
	hosts := g.Hosts()
	if n := hosts.Len(); n > 1 && s.Shared {
		return nil, &agree.Veto{Class: mpierr.ErrUnavailable,
			Text: fmt.Sprintf("the ranks are on %d hosts, and share no "+
				"memory; make a communicator for each host with SplitShared", n)}
	}
	t := &sharing{w: w, spec: s, counts: []int64{s.Count}}
	host := hosts.Host(g.Rank)
	for i := range hosts.Size(host) {
		t.ranks = append(t.ranks, hosts.Rank(host, i))
	}
	if s.Accel != nil {
		if no := t.useDevice(); no != nil {
			return nil, no
		}
	} else if s.isDynamic() {
		t.makeDynamic()
	} else if s.Own != nil {
		t.alone(s.Own)
	} else if no := t.share(m); no != nil {
		return nil, no
	}
	if w.mapped = w.board != nil && hosts.Len() == 1; w.mapped {
		for rank := range g.Size {
			w.parts = append(w.parts, w.near[rank])
		}
		w.short.Store(shortNone)
		w.board.HasLocks(w.messages(), w.lockedRanks)
	}
	if w.findGuards(); w.accel != nil {
		clear(w.near) // this rank is asked too
	}
	if w.mapped {
		w.findSlots()
	} else {
		w.nic = s.NIC
		w.serve() // before any rank hears that the window is made
	}
	return w, nil
}

// share makes a board with the memory of this host's ranks. Where that cannot be, each rank has memory of its own.
func (s *sharing) share(making *agree.Exchange) *agree.Veto {
	var members []ranks.Run
	for _, r := range s.ranks {
		members = append(members, ranks.Strided(int32(s.w.group.ToWorld(r)), 1, 1))
	}
	m := making.Part(ranks.Of(members...))
	_, no := m.Round(0, nil, nil, s)
	var own *agree.Veto
	if no == nil {
		own = s.join()
		_, no = m.Round(0, nil, own, nil)
	}
	switch {
	case no == nil:
		s.w.board.Joined()
		return nil
	case no.Class != mpierr.ErrUnavailable || s.spec.Shared:
		s.close()
		return no
	}
	s.close()
	n := int(s.spec.Count) * s.spec.Elem
	if err := meminfo.Check(n); err != nil {
		return &agree.Veto{Class: mpierr.ErrNoMemory, Text: fmt.Sprintf("rank %d asks for %d elements of %d bytes, "+
			"%v; ask for fewer elements", s.w.group.Rank, s.spec.Count, s.spec.Elem, err)}
	}
	s.alone(make([]byte, n))
	return nil
}

// alone has the window use memory of this rank that no other one maps.
func (s *sharing) alone(mem []byte) {
	s.w.near[s.w.group.Rank] = &part{w: s.w, rank: s.w.group.Rank, mem: mem, count: s.spec.Count}
}

// sharing is the payload of an exchange of the ranks of a host: the first one makes a board for the memory of all.
type sharing struct {
	w      *Window
	spec   Spec
	ranks  []int   // of the window, that are on this host
	counts []int64 // of this rank and of those that it speaks for, and at last of all
	ticket []byte
}

// Take implements agree.Payload.
func (s *sharing) Take(_ int, d *agree.Decoder) *agree.Veto {
	for range d.Count() {
		s.counts = append(s.counts, d.Within(0, math.MaxInt64))
	}
	return nil
}

// Up implements agree.Payload.
func (s *sharing) Up() []byte {
	return agree.AppendInts(agree.AppendInts(nil, int64(len(s.counts))), s.counts...)
}

// Decide implements agree.Payload.
func (s *sharing) Decide() *agree.Veto {
	size, no := s.layOut(nil)
	if no != nil {
		return no
	}
	var err error
	s.w.board, s.ticket, err = pml.MakeBoard(s.w.group.Engine, s.members(), s.lines(), size)
	return cannot(err, size)
}

// Down implements agree.Payload.
func (s *sharing) Down(int) []byte { return append(s.Up(), agree.AppendBytes(nil, s.ticket)...) }

// ReadVerdict implements agree.Payload.
func (s *sharing) ReadVerdict(d *agree.Decoder) {
	s.counts = nil
	s.Take(0, d)
	s.ticket = d.Bytes()
}

func (s *sharing) members() []int32 {
	all := make([]int32, len(s.ranks))
	for i, r := range s.ranks {
		all[i] = int32(s.w.group.ToWorld(r))
	}
	return all
}

func (s *sharing) lines() int { return len(s.ranks) * linesEach(len(s.ranks)) }

// layOut calls place with the offset and the length of the memory of each rank on the board, and returns the length of
// all.
func (s *sharing) layOut(place func(i, at, n int)) (size int, no *agree.Veto) {
	if len(s.counts) != len(s.ranks) {
		return 0, &agree.Veto{Class: mpierr.ErrAborted,
			Text: fmt.Sprintf("%d ranks have said how much memory they want; "+
				"there are %d", len(s.counts), len(s.ranks))}
	}
	for i, count := range s.counts {
		tooMuch := s.spec.Elem > 0 && count > mostBytes/int64(s.spec.Elem)
		n := int(count) * s.spec.Elem
		if !s.spec.Contiguous {
			gap := partGap
			if n >= pageSize {
				gap = pageSize
			}
			size = (size + gap - 1) / gap * gap
		}
		if tooMuch = tooMuch || n > mostBytes-size; tooMuch {
			return 0, &agree.Veto{Class: mpierr.ErrNoMemory, Text: fmt.Sprintf("rank %d asks for %d elements of %d "+
				"bytes, and the ranks of a host can have %d bytes together; ask for fewer elements", s.ranks[i], count,
				s.spec.Elem, int64(mostBytes))}
		}
		if place != nil {
			place(i, size, n)
		}
		size += n
	}
	return size, nil
}

// join maps the board and finds the memory of each rank in it.
func (s *sharing) join() *agree.Veto {
	w := s.w
	size, no := s.layOut(nil)
	if no != nil {
		return no
	}
	if w.board == nil {
		var err error
		if w.board, err = pml.JoinBoard(w.group.Engine, s.members(), s.lines(), size, s.ticket); err != nil {
			return cannot(err, size)
		}
	}
	s.layOut(func(i, at, n int) {
		w.near[s.ranks[i]] = &part{w: w, rank: s.ranks[i], mem: w.board.Data[at : at+n : at+n], count: s.counts[i],
			place: i, lines: i * linesEach(len(s.ranks))}
	})
	return nil
}

func (s *sharing) close() {
	if s.w.board != nil {
		s.w.board.Close()
	}
	s.w.board = nil
	clear(s.w.near)
}

// cannot is the veto of a rank that cannot make or join a board for memory of so many bytes; nil: it can.
func cannot(err error, size int) *agree.Veto {
	if err == nil {
		return nil
	}
	no := &agree.Veto{Class: mpierr.ClassOf(err), Text: err.Error()}
	if no.Class == mpierr.ErrNoMemory {
		no.Text = fmt.Sprintf("the ranks of a host ask for %d bytes together: %v; ask for fewer elements", size, err)
	}
	return no
}
