package pml

import "github.com/gorun-mpi/mpi/accel"

// A window's memory may be of a device: then the elements of its messages are in device memory at this end.

// UseDevice prepares messages in memory of a driver's devices, which takes long. SendDevice and RecvDevice of a window
// need that.
func (e *Engine) UseDevice(d accel.Driver) error {
	_, err := e.useAccelerator(d)
	return err
}

// SendDevice is Send of device memory. The window's memory waits for no stream.
func (w *Window) SendDevice(dest int, tag int32, b accel.Buffer, f Follower) {
	if b.Len == 0 {
		w.Send(dest, tag, nil, f)
		return
	}
	r := w.e.requests.take()
	r.prepareSend(nil, w.ctx, dest, tag, nil, Synchronous) // as IsendDevice does
	r.buf.Len, r.announce = int(b.Len), true
	r.onDevice(w.e.links.transfers.accel, b, mark{})
	w.start(r, f)
}

// RecvDevice is Recv into device memory.
func (w *Window) RecvDevice(source int, tag int32, b accel.Buffer, f Follower) {
	if b.Len == 0 {
		w.Recv(source, tag, nil, f)
		return
	}
	r := w.e.requests.take()
	r.prepareRecv(nil, w.ctx, source, tag, nil)
	r.onDevice(w.e.links.transfers.accel, b, mark{})
	w.start(r, f)
}
