package pml

import (
	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/internal/wire"
)

// share is what a deviceOp knows of its other end.
type share struct {
	offered bool   // the message is in device memory
	id      uint64 // the sender's number for it
	opening bool   // a goroutine opens the sender's allocation
}

// shared is what an engine has shared with its peers, and they with it.
type shared struct{}

func (s *shared) closeAll(*accelerators) {}

// askWhere asks the sender where the message is, if this rank may be able to reach it.
func (o *deviceOp) askWhere(*transfer) bool { return false }

func (ts *transfers) onHandleReq(p *peer, h *wire.Header) {
	if t := ts.sending(p, h.ID, "it asked for"); t != nil {
		t.snd.OnHandleReq()
		p.sendControl(wire.Header{Kind: wire.Handle, Flags: wire.Urgent, Key: h.Key})
	}
}

func (ts *transfers) onHandle(p *peer, h *wire.Header, payload []byte) {}
func (ts *transfers) onUnmap(p *peer, h *wire.Header)                  {}
func (ts *transfers) onUnmapped(p *peer, h *wire.Header)               {}

// ForgetDevice returns when no peer has the allocation open any more, or has died; then its memory may be freed.
func (e *Engine) ForgetDevice(m accel.Memory) error { return nil }
