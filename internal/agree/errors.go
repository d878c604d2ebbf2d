package agree

import (
	"errors"
	"fmt"

	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/internal/ranks"
	"github.com/gorun-mpi/mpi/pml"
)

// Wrap makes an *Error of an engine's error, for a caller.
func (g *Group) Wrap(op string, peer, tag int, err error) error {
	if err == nil {
		return nil
	}
	err = g.named(op, peer, tag, err)
	g.Heard(err)
	return err
}

func (g *Group) named(op string, peer, tag int, err error) error {
	var already *mpierr.Error
	if errors.As(err, &already) {
		if already.Op == "" { // why all calls fail from now on
			return mpierr.At(&mpierr.Error{Op: op, Class: already.Class, Comm: g.Name(), Err: already.Err}, peer, tag,
				true)
		}
		return err
	}
	var told *pml.BoardError
	if errors.As(err, &told) {
		if no := (&Decoder{B: told.Why}).Veto(); no != nil {
			return &mpierr.Error{Op: op, Class: no.Class, Comm: g.Name(), Peer: peer, Tag: tag,
				Err: errors.New(no.Text)}
		}
	}
	// A Sendrecv in progress is named by its receive.
	return mpierr.At(&mpierr.Error{Op: op, Class: mpierr.ClassOf(err), Comm: g.Name(), Err: g.describe(err)}, peer, tag,
		true)
}

// describe translates the engine's ranks of the world into this communicator's, and adds what to do.
func (g *Group) describe(err error) error {
	if errors.Is(err, pml.ErrTruncate) {
		return fmt.Errorf("%w: what does not fit is lost; use a longer buffer, or RecvAlloc", err)
	}
	var peer *pml.PeerError
	if errors.As(err, &peer) && g.Engine != nil {
		both := g.Both != nil && g.Local == nil // for a call on an intercommunicator
		switch r := g.RankOf(int32(peer.Rank)); {
		case both || r == ranks.Undefined:
			return fmt.Errorf("rank %d of the world%s%w", peer.Rank, peer.Between(), peer.Err)
		case r != peer.Rank:
			return fmt.Errorf("rank %d (%d in the world)%s%w", r, peer.Rank, peer.Between(), peer.Err)
		}
	}
	return err
}

// FreedError is the error of a call that waits on a communicator, or another thing that has one, while that is freed.
func FreedError(what string) *mpierr.Error {
	return mpierr.New("", mpierr.ErrComm, "the %s was freed while this call waited", what)
}
