package transporttest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// fillMost is more than any link takes while its peer does not poll.
const fillMost = 200_000

// roomIsTold checks that a link that has refused says once that it has room, and that ends a sleep of any level,
// whatever comes first: the refusal, the sleep, or what the peer takes.
func roomIsTold(f *fixture) {
	a, b := f.linked()
	w := watch(f, a)
	rng := rand.New(rand.NewPCG(11, 11))
	turns := []roomTurn{
		{level: transport.Any, thread: true},
		{level: transport.Any},
		{level: transport.Urgent},
		{level: transport.Any, armed: true},
		{level: transport.Urgent, armed: true},
	}
	for i := range max(f.rounds(400), 2*len(turns)) {
		turn := turns[i%len(turns)]
		turn.w, turn.rng, turn.during = w, rng, rng.IntN(2) == 0
		turn.size = []int{8, a.link.Caps().FragMax}[i/len(turns)%2]
		if err := turn.take(f, a, b); err != nil {
			f.Fatalf("turn %d, %+v: %v", i, turn, err)
		}
	}
}

// roomTurn is one refusal and the word of room that follows.
type roomTurn struct {
	level  transport.Level
	thread bool
	armed  bool // the sender is armed before it is refused
	during bool // the peer polls already while the link is filled
	size   int  // of a packet

	w   *proc.Watchdog
	rng *rand.Rand
}

func (c *roomTurn) take(f *fixture, a, b *end) error {
	h, body := wire.Header{Kind: wire.Data}, pattern(c.size, 1)
	if c.size == 8 { // the peer may take it by Short
		h.Kind = wire.Eager
	}
	begin, done := make(chan struct{}), make(chan struct{})
	pauses := rand.New(rand.NewPCG(c.rng.Uint64(), 1)) // of the peer
	rooms, refused := 0, false
	f.drive(func() error {
		defer close(done)
		begin := sync.OnceFunc(func() { close(begin) })
		defer begin()
		if c.during {
			begin()
		}
		asleep := c.armed && a.set.Arm(c.level, c.thread)
		for sent := 0; sent < fillMost; sent++ {
			if refused = !a.link.TrySend(&h, body); refused {
				break
			}
		}
		if begin(); !refused { // the peer is as fast
			a.set.Disarm()
			return nil
		}
		pause(c.rng.IntN(3000))
		for ; !c.w.Fired(); asleep = false {
			if asleep {
				a.set.Park(c.thread)
				a.set.Disarm()
			}
			if rooms += a.rooms(); rooms != 0 {
				c.w.Reset()
				return nil
			}
			a.sleep(c.level, c.thread)
		}
		return fmt.Errorf("the link has refused a packet, the peer takes all there are, and no word of room came within %v",
			patience)
	}, func() error {
		<-begin
		for {
			select {
			case <-done:
				return nil
			default:
				pause(pauses.IntN(2000))
				b.poll()
				b.inbox = b.inbox[:0]
			}
		}
	})
	if !refused {
		return nil
	}
	for until := time.Now().Add(2 * time.Millisecond); b.poll() > 0 || time.Now().Before(until); b.inbox = b.inbox[:0] {
		rooms += a.rooms()
	}
	if rooms != 1 && !f.unreliable {
		return fmt.Errorf("one packet was refused, and %d times there was word of room", rooms)
	}
	if !a.link.TrySend(&h, nil) && !f.unreliable {
		return fmt.Errorf("the link has said that it has room, its peer has taken everything, and it refuses")
	}
	return nil
}

// rooms polls once and returns how often there was word of room. As an engine, it leaves Poll out where Short finds
// nothing.
func (e *end) rooms() (n int) {
	if e.dev.Facts().Short != nil {
		if _, found := e.short(); found == transport.FoundNothing {
			return 0
		}
	}
	for _, p := range e.raw(e.pkts) {
		if p.Event == transport.Room {
			n++
		}
	}
	return n
}

// roomIsToldToMany uses two links to peers of which only one polls. The sender of that one hears of room, and goes on.
func roomIsToldToMany(f *fixture) {
	a, b := f.linked()
	c := f.end(f.third(), 2)
	c.peer = 1
	f.Cleanup(func() { f.close(c) })
	f.must(c.connect(b))
	h, body := wire.Header{Kind: wire.Data}, pattern(8, 1)
	w := watch(f, a, c)
	for range max(f.rounds(50), 3) {
		for _, e := range []*end{a, c} {
			for sent := 0; sent < fillMost && e.link.TrySend(&h, body); sent++ {
			}
		}
		done := make(chan struct{})
		f.drive(func() error {
			defer close(done)
			for _, e := range []*end{a, c} {
				for e.rooms() == 0 {
					if e.sleep(transport.Any, true); w.Fired() {
						return fmt.Errorf("rank %d, one of two senders that were refused, has no word of room", e.rank)
					}
				}
				w.Reset()
			}
			return nil
		}, func() error {
			b.takeFromAny(done)
			return nil
		})
	}
}

// takeFromAny polls until stop is closed, whatever rank packets come from.
func (e *end) takeFromAny(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
			e.dev.Poll(e.pkts)
		}
	}
}

// fullIsTold checks that an operation that finds no room is told of it as a packet is.
func fullIsTold(f *fixture, w way) {
	a, b := f.linked()
	const most = 2000
	far, near := make([]byte, 1<<10), make([]byte, 1<<10)
	addr, key := f.register(a, far, transport.Access(w))
	dog := watch(f, b)
	begun, refused := 0, false
	for tries := 0; tries < most && !refused; tries++ {
		b.cookie++
		switch st, err := w.between(b, near, addr, key)(b.cookie); {
		case err != nil && !f.unreliable:
			f.Fatal(err)
		case st == transport.Full:
			refused = true
		case st == transport.Started:
			begun++
		}
	}
	ended, rooms := 0, 0
	for refused && !dog.Fired() {
		for _, p := range b.raw(b.pkts) {
			switch p.Event {
			case transport.Room:
				rooms++
			case transport.RMADone:
				ended++
			}
			dog.Reset()
		}
		if rooms > 0 && ended >= begun {
			break
		}
		b.sleep(transport.Any, true)
	}
	if refused && rooms == 0 {
		f.Errorf("%d operations are under way, one more was refused, and no word of room came", begun)
	}
	deregister(a, addr, key)
}
