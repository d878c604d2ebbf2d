package gpu

import (
	"errors"
	"strings"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/internal/door"
	"github.com/gorun-mpi/mpi/internal/mpierr"
)

// Collective calls. Each is the call of package mpi that has its name, with the same rules and results. The zero Slice
// stands for nil, where a rank has no such buffer; InPlace stands for it where nil means "in place". All ranks give
// device memory, or some do and others make the call of package mpi: the calls match. The buffers of one call may be on
// two devices. An operator is called with memory of the host.

// InPlace is given for the buffer that package mpi takes nil for in a call in place, such as the send of an Allreduce:
// the rank's contribution lies in the other buffer. It is the zero Slice.
func InPlace[T any]() Slice[T] { return Slice[T]{} }

// Bcast is mpi.Bcast.
func Bcast[T any](c *mpi.Comm, buf Slice[T], root int) error {
	k, err := begin(c, "Bcast", root, Slice[T]{}, buf, bcastUse(c, root))
	if err != nil {
		return err
	}
	return k.end(mpi.Bcast(k.comm, k.recv, root))
}

// Ibcast starts a Bcast.
func Ibcast[T any](c *mpi.Comm, buf Slice[T], root int) (*mpi.Request, error) {
	k, err := begin(c, "Ibcast", root, Slice[T]{}, buf, bcastUse(c, root))
	if err != nil {
		return nil, err
	}
	return k.started(mpi.Ibcast(k.comm, k.recv, root))
}

// Gather is mpi.Gather.
func Gather[T any](c *mpi.Comm, send, recv Slice[T], root int) error {
	k, err := begin(c, "Gather", root, send, recv, rootUse(c, send.of == nil, root))
	if err != nil {
		return err
	}
	return k.end(mpi.Gather(k.comm, k.send, k.recv, root))
}

// Igather starts a Gather.
func Igather[T any](c *mpi.Comm, send, recv Slice[T], root int) (*mpi.Request, error) {
	k, err := begin(c, "Igather", root, send, recv, rootUse(c, send.of == nil, root))
	if err != nil {
		return nil, err
	}
	return k.started(mpi.Igather(k.comm, k.send, k.recv, root))
}

// Scatter is mpi.Scatter.
func Scatter[T any](c *mpi.Comm, send, recv Slice[T], root int) error {
	k, err := begin(c, "Scatter", root, scattered(c, send, root), recv, writes)
	if err != nil {
		return err
	}
	return k.end(mpi.Scatter(k.comm, k.send, k.recv, root))
}

// Iscatter starts a Scatter.
func Iscatter[T any](c *mpi.Comm, send, recv Slice[T], root int) (*mpi.Request, error) {
	k, err := begin(c, "Iscatter", root, scattered(c, send, root), recv, writes)
	if err != nil {
		return nil, err
	}
	return k.started(mpi.Iscatter(k.comm, k.send, k.recv, root))
}

// scattered is the root's send, which other ranks do not use.
func scattered[T any](c *mpi.Comm, send Slice[T], root int) Slice[T] {
	if c.Rank() != root {
		return Slice[T]{}
	}
	return send
}

// Allgather is mpi.Allgather.
func Allgather[T any](c *mpi.Comm, send, recv Slice[T]) error {
	k, err := begin(c, "Allgather", mpi.Undefined, send, recv, eachUse(send.of == nil))
	if err != nil {
		return err
	}
	return k.end(mpi.Allgather(k.comm, k.send, k.recv))
}

// Iallgather starts an Allgather.
func Iallgather[T any](c *mpi.Comm, send, recv Slice[T]) (*mpi.Request, error) {
	k, err := begin(c, "Iallgather", mpi.Undefined, send, recv, eachUse(send.of == nil))
	if err != nil {
		return nil, err
	}
	return k.started(mpi.Iallgather(k.comm, k.send, k.recv))
}

// Alltoall is mpi.Alltoall.
func Alltoall[T any](c *mpi.Comm, send, recv Slice[T]) error {
	k, err := begin(c, "Alltoall", mpi.Undefined, send, recv, eachUse(send.of == nil))
	if err != nil {
		return err
	}
	return k.end(mpi.Alltoall(k.comm, k.send, k.recv))
}

// Ialltoall starts an Alltoall.
func Ialltoall[T any](c *mpi.Comm, send, recv Slice[T]) (*mpi.Request, error) {
	k, err := begin(c, "Ialltoall", mpi.Undefined, send, recv, eachUse(send.of == nil))
	if err != nil {
		return nil, err
	}
	return k.started(mpi.Ialltoall(k.comm, k.send, k.recv))
}

// Reduce is mpi.Reduce.
func Reduce[T any](c *mpi.Comm, send, recv Slice[T], op mpi.Op[T], root int, options ...mpi.Reduction) error {
	k, err := begin(c, "Reduce", root, send, recv, rootUse(c, send.of == nil, root))
	if err != nil {
		return err
	}
	return k.end(mpi.Reduce(k.comm, k.send, k.recv, op, root, options...))
}

// Ireduce starts a Reduce.
func Ireduce[T any](c *mpi.Comm, send, recv Slice[T], op mpi.Op[T], root int, options ...mpi.Reduction) (
	*mpi.Request, error,
) {
	k, err := begin(c, "Ireduce", root, send, recv, rootUse(c, send.of == nil, root))
	if err != nil {
		return nil, err
	}
	return k.started(mpi.Ireduce(k.comm, k.send, k.recv, op, root, options...))
}

// Allreduce is mpi.Allreduce.
func Allreduce[T any](c *mpi.Comm, send, recv Slice[T], op mpi.Op[T], options ...mpi.Reduction) error {
	k, err := begin(c, "Allreduce", mpi.Undefined, send, recv, eachUse(send.of == nil))
	if err != nil {
		return err
	}
	return k.end(mpi.Allreduce(k.comm, k.send, k.recv, op, options...))
}

// Iallreduce starts an Allreduce.
func Iallreduce[T any](c *mpi.Comm, send, recv Slice[T], op mpi.Op[T], options ...mpi.Reduction) (
	*mpi.Request, error,
) {
	k, err := begin(c, "Iallreduce", mpi.Undefined, send, recv, eachUse(send.of == nil))
	if err != nil {
		return nil, err
	}
	return k.started(mpi.Iallreduce(k.comm, k.send, k.recv, op, options...))
}

// ReduceScatterBlock is mpi.ReduceScatterBlock.
func ReduceScatterBlock[T any](c *mpi.Comm, send, recv Slice[T], op mpi.Op[T], options ...mpi.Reduction) error {
	k, err := begin(c, "ReduceScatterBlock", mpi.Undefined, send, recv, eachUse(send.of == nil))
	if err != nil {
		return err
	}
	return k.end(mpi.ReduceScatterBlock(k.comm, k.send, k.recv, op, options...))
}

// IreduceScatterBlock starts a ReduceScatterBlock.
func IreduceScatterBlock[T any](c *mpi.Comm, send, recv Slice[T], op mpi.Op[T], options ...mpi.Reduction) (
	*mpi.Request, error,
) {
	k, err := begin(c, "IreduceScatterBlock", mpi.Undefined, send, recv, eachUse(send.of == nil))
	if err != nil {
		return nil, err
	}
	return k.started(mpi.IreduceScatterBlock(k.comm, k.send, k.recv, op, options...))
}

// use is what a call does with recv at this rank.
type use uint8

const (
	reads use = 1 << iota
	writes
)

// eachUse is for a call that gives each rank a result. In place it reads the rank's contribution from recv.
func eachUse(inPlace bool) use {
	if inPlace {
		return reads | writes
	}
	return writes
}

// rootUse is for a call that gives the root a result.
func rootUse(c *mpi.Comm, inPlace bool, root int) use {
	switch {
	case c.IsInter() && root == mpi.Root:
		return writes
	case !c.IsInter() && c.Rank() == root:
		return eachUse(inPlace)
	}
	return 0
}

// bcastUse is for the buffer of a Bcast, which has one length everywhere, and counts also where it is not used.
func bcastUse(c *mpi.Comm, root int) use {
	if inter := c.IsInter(); inter && root == mpi.Root || !inter && c.Rank() == root {
		return reads
	}
	if root == mpi.ProcNull {
		return 0
	}
	return writes
}

// call is a collective call, with its buffers in memory of the host. They are of one stage, which is the call's until
// end.
type call[T any] struct {
	op         string
	comm       *mpi.Comm // without hooks
	seen       any       // by hooks; nil: no hook is set
	send, recv []T       // nil: the Slice was zero, or is not used here
	through    stage
	to         accel.Buffer // where recv goes at the end
	into       *allocation  // of to, which counts the call; nil: nothing goes there
	back       []byte       // recv, if it goes to a device
	behind     streamMark   // of the stream of to: the result is copied when the stream has come there
}

// begin begins a call, which hooks see with its copies: it may fail in them.
func begin[T any](c *mpi.Comm, op string, root int, send, recv Slice[T], u use) (*call[T], error) {
	if u == 0 {
		recv = Slice[T]{}
	}
	gives := send.bytes()
	if gives == 0 {
		gives = recv.bytes()
	}
	k := &call[T]{op: op}
	plain, seen := door.Through().CollectiveBegins(c, "gpu."+op, root, gives)
	k.comm, k.seen = plain.(*mpi.Comm), seen
	k, err := k.fetch(send, recv, u)
	if err != nil && seen != nil {
		door.Through().CollectiveEnds(seen, err)
	}
	return k, err
}

// fetch copies the call's buffers to the host. Device buffers that share memory share it there too, so that package mpi
// finds that.
func (k *call[T]) fetch(send, recv Slice[T], u use) (*call[T], error) {
	from, bad := send.buffer()
	if bad != nil {
		return k.unable(bad, send, recv)
	}
	to, bad := recv.buffer()
	if bad != nil {
		return k.unable(bad, send, recv)
	}
	sent, received, bad := k.place(from, to)
	if bad != nil {
		return k.unable(bad, send, recv)
	}
	if send.of != nil {
		k.send = elementsOf[T](sent, send.n)
	}
	if recv.of != nil {
		k.recv = elementsOf[T](received, recv.n)
	}
	if u&writes != 0 && to.Len > 0 {
		k.to, k.back = to, received
	}
	behind, err := markOf(to)
	if err == nil {
		err = copyReady(from, sent)
	}
	if u&reads != 0 && err == nil {
		if err = behind.pass(); err == nil {
			err = copyOut(to, received)
		}
	}
	if err == nil && k.back != nil {
		k.behind = behind
	} else {
		behind.drop()
	}
	if err != nil {
		k.through.giveBack()
		return k.unable(driverError(k.op, err), send, recv)
	}
	if k.back != nil {
		k.into = recv.of
		k.into.results.Add(1)
	}
	return k, nil
}

// line is what the second of two buffers in one piece of memory begins at a multiple of.
const line = 64

// place takes memory for both buffers.
func (k *call[T]) place(from, to accel.Buffer) (sent, received []byte, bad *mpi.Error) {
	d := from.Driver
	if from.Len == 0 {
		d = to.Driver
	}
	if from.Len == 0 && to.Len == 0 {
		return nil, nil, nil
	}
	base, at := int64(0), (from.Len+line-1)/line*line
	if from.Addr < to.Addr+uint64(to.Len) && to.Addr < from.Addr+uint64(from.Len) && from.Len > 0 && to.Len > 0 {
		low := min(from.Addr, to.Addr)
		base, at = int64(from.Addr-low), int64(to.Addr-low)
	}
	if k.through, bad = take(d, max(base+from.Len, at+to.Len)); bad != nil {
		return nil, nil, bad
	}
	mem := k.through.mem
	return mem[base : base+from.Len : base+from.Len], mem[at : at+to.Len : at+to.Len], nil
}

// copyReady copies b to pinned memory when its stream has come to where it is now.
func copyReady(b accel.Buffer, to []byte) error {
	if err := ready(b); err != nil {
		return err
	}
	return copyOut(b, to)
}

// copyOut copies b to pinned memory.
func copyOut(b accel.Buffer, to []byte) error {
	if b.Len == 0 {
		return nil
	}
	c, err := startCopy(b.Driver, b.Memory.Device, addressOf(to), b.Addr, b.Len)
	if err != nil {
		return err
	}
	return c.wait()
}

// copyIn copies pinned memory to b when its stream has come to the mark.
func copyIn(behind *streamMark, b accel.Buffer, from []byte) error {
	if err := behind.pass(); err != nil {
		return err
	}
	c, err := startCopy(b.Driver, b.Memory.Device, b.Addr, addressOf(from), b.Len)
	if err != nil {
		return err
	}
	return c.wait()
}

// end takes the error of the call of package mpi, and returns the error of the call of package gpu.
func (k *call[T]) end(err error) error {
	err = k.store(err)
	if k.seen != nil {
		door.Through().CollectiveEnds(k.seen, err)
	}
	return err
}

// store is end without hooks. It copies the result to the device if there is one. The memory is the call's again even
// where the call goes on without this rank: package mpi has copied it then.
func (k *call[T]) store(err error) error {
	if err == nil && k.back != nil {
		if failed := copyIn(&k.behind, k.to, k.back); failed != nil {
			err = k.refused(driverError(k.op, failed))
		}
	}
	k.behind.drop()
	k.through.giveBack()
	if k.into != nil {
		k.into.results.Add(-1)
	}
	return named(err, "gpu."+k.op)
}

// started is end of a nonblocking call, when its request is collected.
func (k *call[T]) started(r *mpi.Request, err error) (*mpi.Request, error) {
	if err != nil {
		return nil, k.end(err)
	}
	door.Through().Collect(r, func(_ int64, err error) error { return k.store(err) })
	if k.seen != nil {
		r = door.Through().CollectiveStarts(k.seen, r).(*mpi.Request)
	}
	return r, nil
}

// unable is notMade of a call for which the device, or pinned memory, has failed. Where the ranks do not compare their
// calls, those that make this one wait for this rank. So it makes the call too, without its elements, which fails. It
// takes no memory for them: what it lacks may be memory.
func (k *call[T]) unable(err *mpi.Error, send, recv Slice[T]) (*call[T], error) {
	if err.Class != mpi.ErrDevice && err.Class != mpi.ErrNoMemory {
		return nil, k.notMade(err)
	}
	c, ok := door.Through().Unable(k.comm, "gpu."+k.op, k.refused(err)).(*mpi.Comm)
	if !ok {
		return nil, k.notMade(err)
	}
	without, at := &call[T]{op: k.op, comm: c, seen: k.seen}, (send.bytes()+line-1)/line*line
	mem, lacks := takeNothing(at + recv.bytes())
	if lacks != nil {
		return nil, k.notMade(mpierr.New("", err.Class, "%w; and the ranks that make the call wait for this one: %w", err.Err,
			lacks))
	}
	if send.of != nil {
		without.send = elementsOf[T](mem[:send.bytes()], send.n)
	}
	if recv.of != nil {
		without.recv = elementsOf[T](mem[at:], recv.n)
	}
	return without, nil
}

// notMade is the error of a call that this rank cannot make; other ranks may.
func (k *call[T]) notMade(err *mpi.Error) error {
	return door.Through().Mistaken(k.comm, "gpu."+k.op, strings.HasPrefix(k.op, "I"), k.refused(err))
}

func (k *call[T]) refused(err *mpi.Error) *mpi.Error {
	return mpierr.On(mpierr.New("gpu."+k.op, err.Class, "%w", err.Err), k.comm.Name())
}

// named is the error of a call of package mpi with the name of the call of this package. It may join several.
func named(err error, op string) error {
	e, ok := err.(*mpi.Error)
	if all, joined := err.(interface{ Unwrap() []error }); joined && !ok {
		var errs []error
		for _, one := range all.Unwrap() {
			errs = append(errs, named(one, op))
		}
		if len(errs) == 1 {
			return errs[0]
		}
		return errors.Join(errs...)
	}
	if !ok || strings.HasPrefix(e.Op, "gpu.") {
		return err
	}
	ours := *e
	ours.Op = op
	return &ours
}
