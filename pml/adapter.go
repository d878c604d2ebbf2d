package pml

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/eager"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/rendezvous"
	"github.com/gorun-mpi/mpi/transport"
)

// Messages in device memory that adapters move: the receiver's READs the sender's, from device to device, and either
// end may be memory of the host.
//
//	sender                                  receiver
//	  │  RTS  Device                           │
//	  ├───────────────────────────────────────►│ matched; its adapter gets to know its allocation
//	  │◄───────────────────────────── HandleReq┤
//	  ├ its adapter gets to know its allocation │
//	  ├ Handle  address, key ─────────────────►│
//	  │                                        │ READs, and flushes
//	  │◄─────────────────────────────────── FIN┤
//
// Once an adapter knows an allocation it knows it until its memory is freed, and RTS says address and key: HandleReq
// and Handle are of the first message only. A receiver with a buffer in memory of the host READs what RTS says as it
// READs any message. It takes the first message of an allocation as a stream.
//
// An adapter that does not get to know an allocation leaves its messages to staging.go. So does one that is too far
// from the device (Devices.Near).

const (
	// reachedRead is a value of Tag in Handle: an adapter may READ the message.
	reachedRead = reachedHere + 1
	// wantsRead is Len of a HandleReq that asks for that.
	wantsRead = 1
	// regionsMost is how many allocations an adapter knows at a time.
	regionsMost = 64
	// devicePage is what addresses and lengths of a dma-buf are multiples of.
	devicePage = 4 << 10
)

// adapter is what the adapter of a transport knows of this rank's device memory.
type adapter struct {
	a       *accelerators
	devices *transport.Devices
	regions []*region
	unable  bool             // Able has said so
	paths   map[int]*gpuPath // by the number of the device
}

// gpuPath is how an adapter and a device are to each other. Of its fields only told changes, which the engine's lock
// guards.
type gpuPath struct {
	pci, where string
	far        bool
	told       [2]bool // the log says that messages are READ, and that they go through pinned memory
}

// region is an allocation that an adapter knows, is getting to know, or does not get to know.
type region struct {
	ad         *adapter
	path       *gpuPath // nil: not known when the region was made
	m          accel.Memory
	from       uint64 // the pages that lie wholly in the allocation
	n          int64
	local, key uint64
	known      bool // Register has answered
	refused    bool // so
	waiting    []func(*region)
	users      int // messages that an adapter reads from it or into it, or may read
	used       uint64
	forget     bool // Deregister is due when there are no users
	leaving    bool // Deregister has been called
}

// reading is what a deviceOp has to do with adapters.
type reading struct {
	region *region // among whose users it is; nil: none
	asked  bool    // of a receive: Handle is to say where to READ from
	addr   uint64  // likewise: this
	key    uint64
	inRTS  bool // likewise: RTS has said it
	wrote  bool // likewise: the device has not flushed yet what was READ
	byKey  bool // of a send: the receiver wants to READ
}

// adapter returns the adapter that reaches device memory of p; nil: there is none, or copies inside the host are
// better.
func (a *accelerators) adapter(p *peer) *adapter {
	if p.rma == nil || p.rma.Devices == nil || p.link.Caps().SameHost {
		return nil
	}
	i := slices.IndexFunc(a.adapters, func(ad *adapter) bool { return ad.devices == p.rma.Devices })
	if i < 0 {
		i = len(a.adapters)
		a.adapters = append(a.adapters, &adapter{a: a, devices: p.rma.Devices, paths: map[int]*gpuPath{}})
	}
	if ad := a.adapters[i]; !ad.unable {
		return ad
	}
	return nil
}

// find returns the region of an allocation, which is registered anew unless there is one. nil: there cannot be one
// now.
func (ad *adapter) find(m accel.Memory) *region {
	ad.a.uses++
	for _, g := range ad.regions {
		if g.m.ID == m.ID && !g.forget {
			g.used = ad.a.uses
			return g
		}
	}
	if ad.isFar(m.Device) || !ad.room(m) {
		return nil
	}
	g := &region{ad: ad, path: ad.paths[m.Device], m: m, used: ad.a.uses}
	g.from = (m.Base + devicePage - 1) &^ (devicePage - 1)
	g.n = int64((m.Base+uint64(m.Size))&^(devicePage-1) - g.from)
	ad.regions = append(ad.regions, g)
	ad.a.beside(g.register)
	return g
}

// room makes room for one more region, of m. It reports whether there is. What lies at the addresses of m has been
// freed without a word.
func (ad *adapter) room(m accel.Memory) bool {
	var oldest *region
	for _, g := range slices.Clone(ad.regions) {
		switch {
		case g.m.Base < m.Base+uint64(m.Size) && m.Base < g.m.Base+uint64(g.m.Size):
			g.end()
		case g.known && g.users == 0 && !g.forget && (oldest == nil || g.used < oldest.used):
			oldest = g
		}
	}
	if len(ad.regions) < regionsMost {
		return true
	}
	if oldest != nil {
		oldest.end()
	}
	return len(ad.regions) < regionsMost
}

// register is what is done beside the engine.
func (g *region) register() func() {
	ad, path := g.ad, g.path
	if path == nil {
		path = ad.look(g.m.Device)
	}
	unable := ad.devices.Able()
	by, err := "", unable
	if err == nil {
		by, err = g.adapt(path)
	}
	return func() {
		g.known, g.refused, ad.unable = true, err != nil, ad.unable || unable != nil
		if ad.paths[g.m.Device] == nil {
			ad.paths[g.m.Device] = path
		}
		ad.tell(ad.paths[g.m.Device], by, err)
		waiting := g.waiting
		g.waiting = nil
		for _, then := range waiting {
			then(g)
		}
		g.endIfDue()
	}
}

// look finds out how the adapter and a device are to each other. It reads files.
func (ad *adapter) look(device int) *gpuPath {
	all, err := ad.a.driver.Devices()
	if err != nil || uint(device) >= uint(len(all)) {
		return &gpuPath{pci: "unknown", where: fmt.Sprintf("the driver does not say where device %d is", device)}
	}
	p := &gpuPath{pci: all[device].PCI}
	p.where, p.far = ad.devices.Near(p.pci)
	return p
}

// isFar reports whether a device is known to be too far.
func (ad *adapter) isFar(device int) bool {
	path := ad.paths[device]
	return path != nil && path.far
}

// adapt has the adapter register the allocation. It returns how the adapter reaches it. Where the driver has no dma-buf
// the adapter may know the address.
func (g *region) adapt(path *gpuPath) (by string, err error) {
	switch {
	case path.far:
		return "", errors.New(path.where)
	case g.n <= 0:
		return "", fmt.Errorf("an allocation of %d bytes at %#x has no whole page of %d", g.m.Size, g.m.Base,
			devicePage)
	}
	fd, refused := g.ad.a.driver.DMABuf(g.m, g.from, g.n)
	if refused != nil {
		fd = -1
	}
	g.local, g.key, by, err = g.ad.devices.Register(fd, g.from, g.n)
	if refused == nil {
		unix.Close(fd)
	} else if err != nil {
		err = fmt.Errorf("%w: %w", err, refused)
	}
	return by, err
}

// wayOfDevice is what the log says, once for each way, of an adapter and a device.
const (
	wayOfDevice   = "messages in device memory"
	throughPinned = "through pinned memory"
)

// tell says which way messages go, and why. err: why the adapter does not READ them.
func (ad *adapter) tell(path *gpuPath, by string, err error) {
	i, way, because := 0, "READ by "+by, path.where
	if err != nil {
		i, way, because = 1, throughPinned, err.Error()
	}
	if info := ad.a.e.cfg.Info; info != nil && !path.told[i] {
		path.told[i] = true
		info(wayOfDevice, "device", path.pci, "adapter", ad.devices.Name, "way", way, "because", because)
	}
}

// with calls then when it is known whether an adapter reaches the allocation. Then it is called with the region, or
// nil.
func (ad *adapter) with(m accel.Memory, then func(*region)) {
	answer := func(g *region) {
		if g.refused || g.forget {
			g = nil
		}
		then(g)
	}
	switch g := ad.find(m); {
	case g == nil:
		then(nil)
	case g.known:
		answer(g)
	default:
		g.waiting = append(g.waiting, answer)
	}
}

// holds reports whether a buffer lies in the region: of an allocation that does not begin with a page the ends do not.
func (g *region) holds(b *accel.Buffer) bool {
	return b.Addr >= g.from && uint64(b.Len) <= uint64(g.n) && b.Addr-g.from <= uint64(g.n-b.Len)
}

// uses makes o one of the users of g. It reports whether the buffer of o lies there.
func (o *deviceOp) uses(g *region) bool {
	if g == nil || !g.holds(&o.b) {
		return false
	}
	o.reading.region = g
	g.users++
	return true
}

// unread is called when no adapter touches the buffer of o any more.
func (o *deviceOp) unread() {
	if g := o.reading.region; g != nil {
		o.reading.region = nil
		g.users--
		g.endIfDue()
	}
}

// end has the adapter forget an allocation as soon as it may.
func (g *region) end() {
	g.forget = true
	g.endIfDue()
}

func (g *region) endIfDue() {
	a := g.ad.a
	switch {
	case !g.forget || !g.known || g.users > 0 || g.leaving:
	case a.ended: // Close of the device ends what is left
	case g.refused:
		g.remove()
	default:
		g.leaving = true
		a.beside(func() func() {
			g.ad.devices.Deregister(g.key)
			return g.remove
		})
	}
}

func (g *region) remove() {
	ad := g.ad
	ad.regions = slices.DeleteFunc(ad.regions, func(o *region) bool { return o == g })
	ad.a.forgetting()
}

// forgetRegions has all adapters forget an allocation.
func (a *accelerators) forgetRegions(id uint64) {
	for _, ad := range a.adapters {
		for _, g := range slices.Clone(ad.regions) {
			if g.m.ID == id {
				g.end()
			}
		}
	}
}

// hasRegion reports whether an adapter may know an allocation.
func (a *accelerators) hasRegion(id uint64) bool {
	return slices.ContainsFunc(a.adapters, func(ad *adapter) bool {
		return slices.ContainsFunc(ad.regions, func(g *region) bool { return g.m.ID == id && !g.refused })
	})
}

// dropRegions is for finish: nothing goes on beside the engine. What a message still uses is left to Close of the
// device. The lock is held, and given up meanwhile.
func (a *accelerators) dropRegions() {
	var idle []*region
	for _, ad := range a.adapters {
		for _, g := range ad.regions {
			if g.known && !g.refused && !g.leaving && g.users == 0 {
				g.leaving = true
				idle = append(idle, g)
			}
		}
	}
	a.e.unlock()
	for _, g := range idle {
		g.ad.devices.Deregister(g.key)
	}
	a.e.lock()
}

// The sending end.

// offer is where the receiver may READ the message, if its allocation is known. If not it will be soon.
func (o *deviceOp) offer(p *peer) rendezvous.Region {
	ad := o.a.adapter(p)
	if ad == nil {
		return rendezvous.Region{}
	}
	g := ad.find(o.b.Memory)
	// A message that waits for the user's stream may be read when its receiver is told so.
	if g == nil || !g.known || g.refused || !o.passed() || !o.uses(g) {
		return rendezvous.Region{}
	}
	return rendezvous.Region{Addr: o.b.Addr, Key: g.key, Len: o.b.Len, OK: true}
}

// announceDevice is announcePieces of a message in device memory. It reports whether the link has taken the RTS.
func (ts *transfers) announceDevice(t *transfer) bool {
	p, r := t.peer, t.r
	o := r.pieces.device
	memory := o.offer(p)
	t.snd.Init(t.id, int64(r.buf.Len), memory, p.piece(r.buf.Len))
	if p.zcopy != nil {
		t.snd.EndsAlone()
	}
	rts := t.snd.RTS(r.recv.Ctx, r.recv.Tag)
	rts.Flags |= p.blocking(r)
	if ad := r.pieces.device.a.adapter(p); ad == nil || !ad.isFar(r.pieces.device.b.Memory.Device) {
		rts.Flags |= wire.Device // else no answer would help the receiver
	}
	if !o.passed() {
		rts.Flags |= wire.Unready
	}
	if p.out.SendPaid(rts, nil, eager.Envelope) {
		if memory.OK {
			p.offered++
		}
		return true
	}
	o.unread()
	t.snd.Init(t.id, 0, rendezvous.Region{}, 0)
	return false
}

// answerRead tells the receiver's adapter where the message is, or that it cannot be READ.
func (o *deviceOp) answerRead() {
	ad := o.a.adapter(o.r.transfer.peer)
	switch {
	case ad == nil:
		o.refuse()
	case o.reading.region != nil: // RTS has said it already
		o.sayKey()
	default:
		ad.with(o.b.Memory, func(g *region) {
			switch t := o.r.transfer; {
			case o.over || t == nil || t.failed != nil:
			case !o.uses(g):
				o.refuse()
			default:
				o.sayKey()
			}
		})
	}
}

func (o *deviceOp) sayKey() {
	t := o.r.transfer
	t.peer.sendControl(wire.Header{Kind: wire.Handle, Flags: wire.Urgent, Key: t.snd.To(), Tag: reachedRead,
		ID: o.reading.region.key, Addr: o.b.Addr})
}

// The receiving end.

// reads begins to READ the message if that is possible. It reports whether something is to come of it.
func (o *deviceOp) reads(t *transfer) bool {
	ad := o.a.adapter(t.peer)
	if ad == nil || !o.reading.inRTS && !o.share.offered {
		return false
	}
	o.reading.addr, o.reading.key = t.rcv.Source.Addr, t.rcv.Source.Key
	ad.with(o.b.Memory, func(g *region) {
		switch {
		case o.over: // its sender has failed
		case !o.uses(g):
			o.askMore(t)
		case o.reading.inRTS:
			o.read(t)
		default:
			o.reading.asked = true
			o.request(t, wire.Header{Len: wantsRead})
		}
	})
	return true
}

// read starts the READ of the whole message: the link cuts it.
func (o *deviceOp) read(t *transfer) {
	q := &o.reading
	st, err := t.peer.rma.GetDevice(o.b.Addr, t.rcv.Left(), q.region.local, q.addr, q.key, t.id)
	switch {
	case err != nil:
		o.notRead(t)
	case st == transport.Full:
		o.a.full = append(o.a.full, o)
	case st == transport.Started:
		t.rcv.ReadStarted()
	default:
		o.hasRead(t, nil)
	}
}

// readAgain starts the READs for which there was no room.
func (a *accelerators) readAgain() {
	full := a.full
	a.full = nil
	for _, o := range full {
		if t := o.r.transfer; !o.over && t != nil && t.failed == nil {
			o.read(t)
		}
	}
}

// hasRead is called when the READ has ended.
func (o *deviceOp) hasRead(t *transfer, err error) {
	t.rcv.OnGetDone()
	if err != nil {
		o.notRead(t)
		return
	}
	o.a.e.stats.Gets++
	o.reading.wrote = true
	o.a.e.links.transfers.onReceiver(t, t.rcv.Over())
}

// notRead goes on without READ. What it has written is written again.
func (o *deviceOp) notRead(t *transfer) {
	o.a.e.stats.GetsFailed++
	o.askMore(t)
}

// flush lets what is started on the device from now on see what was READ. The call takes less than a microsecond.
func (o *deviceOp) flush() {
	if !o.reading.wrote {
		return
	}
	o.reading.wrote = false
	if err := o.a.driver.Flush(o.b.Memory.Device); err != nil {
		o.r.fails(deviceError("making visible what the adapter has written", err))
	}
}
