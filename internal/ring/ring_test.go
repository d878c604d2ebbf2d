package ring

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

var geometries = []Geometry{
	{Slots: 8, Small: 4096},
	{Slots: 8, Small: 4096, Bulk: 4096},
	{Slots: 16, Small: 8192, Bulk: 4096},
	{Slots: 64, Small: 4096, Bulk: 32768},
	{Slots: 256, Small: 65536, Bulk: 16384},
	{Slots: 512, Small: 4096, Bulk: 4096},
	{Slots: 256, Small: gapFrom, Bulk: 16384},
}

// open makes both ends of a fresh ring as if pos slots had gone through it.
func open(t testing.TB, g Geometry, pos uint64) (*Producer, *Consumer) {
	t.Helper()
	mem := make([]byte, g.Size())
	p, err := NewProducer(mem, g)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewConsumer(mem, g)
	if err != nil {
		t.Fatal(err)
	}
	n := uint64(g.Slots)
	p.next, p.limit = pos, pos+n
	c.pos, c.head = pos, pos
	p.ctl.head.Store(pos)
	for i := pos - n; pos > 0 && i != pos; i++ { // what the lap before has left
		p.slots[i&p.mask].seq.Store(uint64(uint32(i+1)) << 32)
	}
	return p, c
}

// starts are positions around which the 32 bits of the sequence in a slot, and their sign, overflow.
var starts = []uint64{0, 1<<31 - 20, 1<<32 - 20, 1<<33 - 100}

func TestGeometry(t *testing.T) {
	for _, c := range []struct {
		g    Geometry
		want string // part of the error, or nothing
	}{
		{Geometry{8, 4096, 0}, ""},
		{Geometry{1 << 16, 1 << 26, 1 << 28}, ""},
		{Geometry{4, 4096, 0}, "slots"},
		{Geometry{1 << 17, 4096, 0}, "slots"},
		{Geometry{12, 4096, 0}, "slots"},
		{Geometry{0, 4096, 0}, "slots"},
		{Geometry{-8, 4096, 0}, "slots"},
		{Geometry{8, 0, 0}, "small"},
		{Geometry{8, 5000, 0}, "small"},
		{Geometry{8, -4096, 0}, "small"},
		{Geometry{8, 1<<26 + 4096, 0}, "small"},
		{Geometry{8, 4096, -4096}, "bulk"},
		{Geometry{8, 4096, 100}, "bulk"},
		{Geometry{8, 4096, 1<<28 + 4096}, "bulk"},
	} {
		err := c.g.Check()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want an error about %q", c.g, err, c.want)
		}
		if err != nil {
			if _, err := NewProducer(make([]byte, 1<<20), c.g); err == nil {
				t.Errorf("%+v: NewProducer took it", c.g)
			}
			if _, err := NewConsumer(make([]byte, 1<<20), c.g); err == nil {
				t.Errorf("%+v: NewConsumer took it", c.g)
			}
		}
	}
}

// Areas lie behind the slots, on pages, and do not overlap.
func TestLayout(t *testing.T) {
	for _, g := range geometries {
		end := ControlSize + g.Slots*SlotSize
		if g.SmallAt() < end || g.SmallAt()%page != 0 ||
			g.BulkAt() != g.SmallAt()+g.Small || g.Size() != g.BulkAt()+g.Bulk {
			t.Errorf("%+v: slots end at %d, small area at %d, bulk area at %d, end at %d",
				g, end, g.SmallAt(), g.BulkAt(), g.Size())
		}
		for _, n := range []int{0, 1, g.Size() - 1} {
			if _, err := NewProducer(make([]byte, n), g); err == nil {
				t.Errorf("%+v: NewProducer took %d bytes", g, n)
			}
			if _, err := NewConsumer(make([]byte, n), g); err == nil {
				t.Errorf("%+v: NewConsumer took %d bytes", g, n)
			}
		}
		if _, err := NewProducer(make([]byte, g.Size()+8)[4:], g); err == nil {
			t.Errorf("%+v: NewProducer took memory that is not aligned", g)
		}
	}
	var s Slot
	for i := range s.W {
		if got := len(s.Bytes(i)); got != SlotSize-8-8*i {
			t.Errorf("Bytes(%d) has %d bytes", i, got)
		}
	}
}

// modelSlot is what the model knows of a published slot.
type modelSlot struct {
	index uint64
	meta  uint32
	words [SlotWords - 1]uint64
	bulk  bool
	off   uint32
	mem   []byte // its payload in the area; nil: nothing was allocated
	want  []byte
}

func (e *modelSlot) overlaps(o *modelSlot) bool {
	return e.mem != nil && o.mem != nil && e.bulk == o.bulk &&
		int(e.off) < int(o.off)+len(o.mem) && int(o.off) < int(e.off)+len(e.mem)
}

// model is a ring as a slice: the slots that the consumer has not released, oldest first.
type model struct {
	t       *testing.T
	g       Geometry
	rng     *rand.Rand
	p       *Producer
	c       *Consumer
	live    []*modelSlot
	taken   int // live[:taken] have been advanced over
	next    uint64
	refused int
}

// publish does what a sender does and checks that the slot and the memory it gets are free.
func (m *model) publish() {
	s := m.p.Slot()
	if full := len(m.live) == m.g.Slots; (s == nil) != full {
		m.t.Fatalf("%d of %d slots are in use, Slot gave one: %v", len(m.live), m.g.Slots, s != nil)
	}
	if s == nil {
		return
	}
	e := &modelSlot{index: m.next, meta: m.rng.Uint32(), bulk: m.g.Bulk > 0 && m.rng.IntN(2) == 0}
	if m.rng.IntN(3) > 0 {
		size := m.g.Small
		alloc := func(n int) ([]byte, uint32) { return m.p.AllocSmall(n, e.index%3 == 0) }
		if e.bulk {
			size, alloc = m.g.Bulk, m.p.AllocBulk
		}
		n := 1 + m.rng.IntN(size/4)
		if m.rng.IntN(4) == 0 {
			n = 1 + m.rng.IntN(200)
		}
		if e.mem, e.off = alloc(n); e.mem == nil {
			m.refused++
			if len(m.live) == 0 {
				m.t.Fatalf("%d bytes were refused by an area of %d that is all free", n, size)
			}
			return // the next Slot returns this one again
		}
		m.checkRange(e, n, size)
	}
	for i := range s.W {
		s.W[i] = m.rng.Uint64()
	}
	e.words = s.W
	for i := range e.mem {
		e.mem[i] = byte(m.rng.Uint32())
	}
	e.want = bytes.Clone(e.mem)
	if signal := m.p.Publish(s, e.meta); signal {
		m.t.Fatal("Publish reports an armed ring; it never was")
	}
	m.next++
	m.live = append(m.live, e)
}

func (m *model) checkRange(e *modelSlot, n, size int) {
	if len(e.mem) != n || int(e.off)+n > size || e.off%Align != 0 {
		m.t.Fatalf("asked for %d bytes of %d: got %d at offset %d", n, size, len(e.mem), e.off)
	}
	for _, o := range m.live {
		if e.overlaps(o) {
			m.t.Fatalf("slot %d: %d bytes at %d overlap the %d bytes at %d of slot %d, which has not been released",
				e.index, len(e.mem), e.off, len(o.mem), o.off, o.index)
		}
	}
}

// consume takes a slot, if the model has one.
func (m *model) consume() {
	s, meta := m.c.Peek()
	there := m.taken < len(m.live)
	if (s != nil) != there || m.c.Ready() != there {
		m.t.Fatalf("the model has a slot: %v; Peek: %v, Ready: %v", there, s != nil, m.c.Ready())
	}
	if s == nil {
		return
	}
	e := m.live[m.taken]
	if meta != e.meta || s.W != e.words {
		m.t.Fatalf("slot %d: meta %#x, want %#x; words %x, want %x", e.index, meta, e.meta, s.W, e.words)
	}
	part := m.c.Small
	if e.bulk {
		part = m.c.Bulk
	}
	got, ok := part(e.off, uint32(len(e.want)))
	if !ok || !bytes.Equal(got, e.want) {
		m.t.Fatalf("slot %d: wrong payload at offset %d (in the area: %v)", e.index, e.off, ok)
	}
	m.c.Advance(len(e.want))
	m.taken++
}

// release checks that nothing of the consumer's has been overwritten, and releases.
func (m *model) release(flush bool) {
	for _, e := range m.live[:m.taken] {
		if !bytes.Equal(e.mem, e.want) {
			m.t.Fatalf("slot %d: its payload was overwritten before it was released", e.index)
		}
	}
	if flush {
		m.c.Flush()
	} else {
		m.c.Release()
	}
	freed := int(m.c.ctl.head.Load() - (m.next - uint64(len(m.live))))
	if flush && freed != m.taken || freed != 0 && freed != m.taken ||
		freed == 0 && m.taken >= m.g.Slots/4 && m.taken > 0 {
		m.t.Fatalf("%d slots had been advanced over, flush %v, and head has freed %d", m.taken, flush, freed)
	}
	m.live = m.live[freed:]
	m.taken -= freed
	if pending := m.p.Pending(); pending < len(m.live) || pending > m.g.Slots {
		m.t.Fatalf("Pending is %d, the model has %d", pending, len(m.live))
	}
}

// The ring against the model, one step at a time.
func TestModel(t *testing.T) {
	for _, g := range geometries {
		for seed, pos := range starts {
			t.Run(fmt.Sprintf("%d-%d-%d at %d", g.Slots, g.Small, g.Bulk, pos), func(t *testing.T) {
				m := &model{t: t, g: g, rng: rand.New(rand.NewPCG(uint64(seed), 1)), next: pos}
				m.p, m.c = open(t, g, pos)
				for step := range 8000 {
					switch r := m.rng.IntN(100); {
					case r < 45:
						m.publish()
					case r < 85:
						m.consume()
					case r < 97:
						m.release(false)
					default:
						m.release(true)
					}
					if step%1000 == 999 { // full, then empty
						for range 2 * g.Slots {
							m.publish()
						}
						for range 2 * g.Slots {
							m.consume()
						}
						m.release(true)
					}
				}
				if m.refused == 0 {
					t.Error("no allocation was ever refused: the areas were never full")
				}
			})
		}
	}
}

// Slot returns a slot that was not published again, and no room is lost.
func TestUnpublishedSlot(t *testing.T) {
	p, c := open(t, geometries[0], 0)
	for i := range uint64(100) {
		if a, b := p.Slot(), p.Slot(); a == nil || a != b {
			t.Fatalf("round %d: Slot returned %p and then %p", i, a, b)
		}
		if s, _ := c.Peek(); s != nil {
			t.Fatal("a slot that was not published was seen")
		}
		p.Publish(p.Slot(), uint32(i))
		if s, meta := c.Peek(); s == nil || meta != uint32(i) {
			t.Fatalf("round %d: Peek returned meta %d", i, meta)
		}
		c.Advance(0)
		c.Release()
	}
}

// A consumer that only calls Release, as one that always polls does, never starves the producer of room for a quarter
// of an area.
func TestNeverStuck(t *testing.T) {
	for _, g := range geometries {
		for _, bulk := range []bool{false, true} {
			size := g.Small
			if bulk {
				size = g.Bulk
			}
			if size == 0 {
				continue
			}
			for _, n := range []int{1, 64, 65, 1000, 3000, size/4 - 64, size / 4} {
				n = min(n, size/4)
				p, c := open(t, g, 0)
				rng := rand.New(rand.NewPCG(1, uint64(n)))
				alloc := func(n int) ([]byte, uint32) { return p.AllocSmall(n, rng.IntN(2) == 0) }
				if bulk {
					alloc = p.AllocBulk
				}
				for sent := 0; sent < 2000; sent++ {
					k := n
					if rng.IntN(2) == 0 {
						k = 1 + rng.IntN(n)
					}
					var mem []byte
					if p.Slot() != nil {
						mem, _ = alloc(k)
					}
					if mem == nil { // the consumer takes everything and releases, and there must be room
						for s, _ := c.Peek(); s != nil; s, _ = c.Peek() {
							c.Advance(int(s.W[0]))
							c.Release()
						}
						if p.Slot() != nil {
							mem, _ = alloc(k)
						}
						if mem == nil {
							t.Fatalf("%+v: all has been read and released; no room for %d bytes in an area of %d",
								g, k, size)
						}
					}
					s := p.Slot()
					s.W[0] = uint64(k)
					p.Publish(s, 0)
				}
			}
		}
	}
}

// Requests that can never be met are refused, at any fill.
func TestAllocLimits(t *testing.T) {
	for _, g := range geometries {
		p, _ := open(t, g, 0)
		for _, n := range []int{g.Small + 1, g.Small + g.Bulk + 1, 1 << 40, 1<<63 - 1, -1, -64, -1 << 63} {
			if mem, _ := p.AllocSmall(n, false); mem != nil {
				t.Errorf("%+v: AllocSmall(%d, false) gave %d bytes", g, n, len(mem))
			}
		}
		for _, n := range []int{g.Bulk + 1, 1 << 40, 1<<63 - 1, -1, -64, -1 << 63} {
			if mem, _ := p.AllocBulk(n); mem != nil {
				t.Errorf("%+v: AllocBulk(%d) gave %d bytes", g, n, len(mem))
			}
		}
		if mem, _ := p.AllocBulk(0); mem == nil || len(mem) != 0 { // also of an area that does not exist
			t.Errorf("%+v: AllocBulk(0) gave %v", g, mem)
		}
		if mem, off := p.AllocSmall(g.Small, false); len(mem) != g.Small || off != 0 {
			t.Errorf("%+v: the whole small area of a fresh ring: got %d bytes at %d", g, len(mem), off)
		}
	}
}

// Whatever the consumer writes as head, the producer stays inside the ring and uses no slot that is not released.
func TestHostileHead(t *testing.T) {
	for _, pos := range starts {
		p, c := open(t, geometries[1], pos)
		n := uint64(geometries[1].Slots)
		for p.Slot() != nil {
			p.AllocSmall(100, false)
			p.Publish(p.Slot(), 0)
		}
		for _, head := range []uint64{pos - 1, pos - n, 0, pos + n + 1, pos + 2*n,
			pos + 1<<32, pos + 1<<63, 1<<64 - 1} {
			if head-pos <= n {
				continue // 0 is where this ring began
			}
			p.ctl.head.Store(head)
			if p.Slot() != nil {
				t.Errorf("started at %d, full: head %d gave a slot", pos, head)
			}
			if mem, _ := p.AllocSmall(4096, false); mem != nil {
				t.Errorf("started at %d, full: head %d gave memory", pos, head)
			}
		}
		c.pos = pos + 3 // an honest one again
		c.Flush()
		for range 3 {
			if p.Slot() == nil {
				t.Fatal("three slots were released and Slot does not return them")
			}
			p.Publish(p.Slot(), 0)
		}
		if p.Slot() != nil {
			t.Error("three slots were released and Slot returns a fourth")
		}
		p.ctl.head.Store(pos + 2) // running backwards
		if p.Slot() != nil {
			t.Error("head ran backwards and freed a slot")
		}
	}
}

// Whatever the producer writes as offset and length, the consumer stays inside the areas.
func TestHostileOffsets(t *testing.T) {
	for _, g := range geometries {
		_, c := open(t, g, 0)
		for _, a := range []struct {
			part func(off, n uint32) ([]byte, bool)
			size int
		}{{c.Small, g.Small}, {c.Bulk, g.Bulk}} {
			size := uint32(a.size)
			for _, x := range []struct {
				off, n uint32
				ok     bool
			}{
				{0, 0, true}, {0, size, true}, {size, 0, true},
				{0, size + 1, false}, {size, 1, false}, {size + 1, 0, false},
				{1<<32 - 1, 1, false}, {1, 1<<32 - 1, false}, {1<<32 - 1, 1<<32 - 1, false}, {1 << 31, 1 << 31, false},
			} {
				mem, ok := a.part(x.off, x.n)
				if ok != x.ok || ok && (len(mem) != int(x.n) || cap(mem) != int(x.n)) {
					t.Errorf("area of %d: %d bytes at %d: %v, %d bytes (capacity %d)",
						a.size, x.n, x.off, ok, len(mem), cap(mem))
				}
			}
		}
	}
}

// Two goroutines: a consumer that sleeps when nothing is there and a producer that sleeps when there is no room. Each
// must be signalled.
func TestTwoGoroutines(t *testing.T) {
	for _, g := range geometries {
		for _, pos := range starts[:3] {
			p, c := open(t, g, pos)
			doorbell, room := make(chan struct{}, 1), make(chan struct{}, 1)
			n := uint64(10_000)
			if testing.Short() {
				n = 1000
			}
			failed := make(chan error, 1)
			go func() { failed <- produce(p, g, n, doorbell, room) }()
			if err := consume(c, n, doorbell, room); err != nil {
				t.Fatalf("%+v at %d: %v", g, pos, err)
			}
			if err := <-failed; err != nil {
				t.Fatalf("%+v at %d: %v", g, pos, err)
			}
		}
	}
}

// patience is the limit of a step, after which a test fails.
const patience = time.Minute

func produce(p *Producer, g Geometry, n uint64, doorbell chan<- struct{}, room <-chan struct{}) error {
	rng := rand.New(rand.NewPCG(n, 2))
	for i := range n {
		kind := rng.IntN(3)
		if g.Bulk == 0 {
			kind = min(kind, 1)
		}
		size := []int{0, 1 + rng.IntN(g.Small/4), 1 + rng.IntN(max(g.Bulk/4, 1))}[kind]
		var s *Slot
		var mem []byte
		var off uint32
		for {
			if s = p.Slot(); s != nil {
				switch kind {
				case 1:
					mem, off = p.AllocSmall(size, false)
				case 2:
					mem, off = p.AllocBulk(size)
				}
				if kind == 0 || mem != nil {
					break
				}
			}
			for p.Want(); !p.Released(); {
				select {
				case <-room:
				case <-time.After(patience):
					return fmt.Errorf("slot %d: not signalled within %v that there is room for %d bytes", i, patience, size)
				}
			}
			p.Unwant()
		}
		for j := range mem {
			mem[j] = byte(i) + byte(j)
		}
		for j := range s.W {
			s.W[j] = i * uint64(j+1)
		}
		s.W[1], s.W[2] = uint64(kind), uint64(off)<<32|uint64(size)
		if p.Publish(s, uint32(i)) {
			select {
			case doorbell <- struct{}{}:
			default:
			}
		}
	}
	return nil
}

func consume(c *Consumer, n uint64, doorbell <-chan struct{}, room chan<- struct{}) error {
	tell := func(wanted bool) {
		if wanted {
			select {
			case room <- struct{}{}:
			default:
			}
		}
	}
	for i := uint64(0); i < n; {
		s, meta := c.Peek()
		if s == nil {
			c.SetArmed(true)
			if !c.Ready() {
				tell(c.Flush())
				select {
				case <-doorbell:
				case <-time.After(patience):
					return fmt.Errorf("slot %d: not signalled within %v; ready now: %v", i, patience, c.Ready())
				}
			}
			c.SetArmed(false)
			continue
		}
		if meta != uint32(i) || s.W[0] != i || s.W[14] != i*15 {
			return fmt.Errorf("slot %d: meta %d, words %x", i, meta, s.W)
		}
		off, size := uint32(s.W[2]>>32), uint32(s.W[2])
		var mem []byte
		ok := true
		switch s.W[1] {
		case 1:
			mem, ok = c.Small(off, size)
		case 2:
			mem, ok = c.Bulk(off, size)
		}
		if !ok {
			return fmt.Errorf("slot %d: %d bytes at %d are outside of the area", i, size, off)
		}
		for j, b := range mem {
			if b != byte(i)+byte(j) {
				return fmt.Errorf("slot %d: byte %d of %d is wrong", i, j, size)
			}
		}
		c.Advance(int(size))
		if i++; i%3 == 0 {
			tell(c.Release())
		}
	}
	return nil
}

// FuzzConsumer reads memory that another process has filled with anything.
func FuzzConsumer(f *testing.F) {
	g := geometries[1]
	p, _ := open(f, g, 0)
	for i := range 3 {
		mem, off := p.AllocSmall(100, false)
		s := p.Slot()
		s.W[0] = uint64(off)<<32 | uint64(len(mem))
		p.Publish(s, uint32(i))
	}
	seed := make([]byte, 0, 3*SlotSize)
	for i := range 3 {
		s := &p.slots[i]
		seed = binary.NativeEndian.AppendUint64(seed, s.seq.Load())
		for _, w := range s.W {
			seed = binary.NativeEndian.AppendUint64(seed, w)
		}
	}
	f.Add(seed, uint64(0))
	f.Add(bytes.Repeat([]byte{0xff}, 1000), uint64(1<<32-2))
	f.Fuzz(func(t *testing.T, raw []byte, pos uint64) {
		mem := make([]byte, g.Size())
		copy(mem[ControlSize:], raw)
		c, err := NewConsumer(mem, g)
		if err != nil {
			t.Fatal(err)
		}
		c.pos, c.head = pos, pos
		for range 100 {
			s, meta := c.Peek()
			if s == nil {
				break
			}
			part := c.Small
			if meta&1 != 0 {
				part = c.Bulk
			}
			size := uint32(s.W[0])
			if b, ok := part(uint32(s.W[0]>>32), size); ok {
				for i := range b {
					b[i]++ // every byte is ours to touch
				}
			}
			c.Advance(int(size))
			c.Release()
		}
		c.Flush()
	})
}

// FuzzProducer writes while another process changes the head to anything.
func FuzzProducer(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9}, uint64(0))
	f.Add(bytes.Repeat([]byte{0xff, 0, 0x80}, 50), uint64(1<<32-3))
	f.Fuzz(func(t *testing.T, script []byte, pos uint64) {
		g := geometries[1]
		p, _ := open(t, g, pos)
		for i, b := range script {
			p.ctl.head.Store(pos + uint64(int8(b)))
			if i%7 == 0 {
				p.ctl.head.Store(uint64(b) << (i % 57))
			}
			if mem, off := p.AllocSmall(int(b)*8, i%2 == 0); mem != nil && int(off)+len(mem) > g.Small {
				t.Fatalf("%d bytes at %d of an area of %d", len(mem), off, g.Small)
			}
			if mem, off := p.AllocBulk(int(b) * 16); mem != nil && int(off)+len(mem) > g.Bulk {
				t.Fatalf("%d bytes at %d of an area of %d", len(mem), off, g.Bulk)
			}
			if s := p.Slot(); s != nil {
				p.Publish(s, uint32(b))
			}
			if n := p.Pending(); n < 0 || n > g.Slots {
				t.Fatalf("%d slots pending in a ring of %d", n, g.Slots)
			}
		}
	})
}

// Stream copies every byte and no other, whatever the length and wherever the source begins.
func TestStream(t *testing.T) {
	p, _ := open(t, Geometry{Slots: 8, Small: 16384}, 0)
	src := make([]byte, 3000)
	for i := range src {
		src[i] = byte(i*7 + i>>8)
	}
	for n := 1; n < 2000; n++ {
		mem, off := p.AllocSmall(n, false)
		if mem == nil {
			p, _ = open(t, Geometry{Slots: 8, Small: 16384}, 0)
			mem, off = p.AllocSmall(n, false)
		}
		clear(p.small.mem)
		from := src[n%67 : n%67+n]
		Stream(mem, from)
		rest := bytes.Clone(p.small.mem)
		clear(rest[off : int(off)+n])
		if !bytes.Equal(mem, from) || len(bytes.Trim(rest, "\x00")) != 0 {
			t.Fatalf("%d bytes from %d are not what was copied, or more was written", n, n%67)
		}
	}
	Stream(nil, nil)
}
