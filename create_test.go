package mpi

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/internal/coll"
	"github.com/gorun-mpi/mpi/internal/ranks"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/faulty"
)

// ring checks that c's ranks reach each other, and no one else: each passes on what names the communicator.
func ring(c *Comm, what int) {
	n, from := c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	in := []int{0, 0}
	st := ok(Sendrecv(c, []int{what, c.Rank()}, (c.Rank()+1)%n, 1, in, AnySource, AnyTag))
	same(st.Source, from)
	same([2]int(in), [2]int{what, from})
}

// §7.4.2: MPI_Comm_split: ranks of one color, in the order of their keys and then of their ranks.
func TestSplit(t *testing.T) {
	everyTransport(t, func(t *testing.T, run runner) {
		for n := 1; n <= inShort(9, 5); n++ {
			for seed := range uint64(inShort(12, 5)) {
				colors, keys := splitArguments(n, seed)
				run(n, func(w *Comm) {
					c := ok(w.Split(colors[w.Rank()], keys[w.Rank()]))
					if colors[w.Rank()] == Undefined {
						check(c == nil, "a communicator without a color")
						return
					}
					var model []int
					for r := range n {
						if colors[r] == colors[w.Rank()] {
							model = append(model, r)
						}
					}
					slices.SortStableFunc(model, func(a, b int) int { return cmp.Compare(keys[a], keys[b]) })
					same(c.Size(), len(model))
					same(c.Rank(), slices.Index(model, w.Rank()))
					all := ok(c.Group().Translate(upTo(len(model)), w.Group()))
					check(slices.Equal(all, model), "the ranks are %v, want %v", all, model)
					ring(c, colors[w.Rank()])
					d := ok(c.Split(c.Rank()%2, -c.Rank())) // of a part, and reversed
					same(d.Rank(), (c.Size()-1-c.Rank())/2)
					ring(d, c.Rank()%2)
					must(d.Free())
					must(c.Free())
				})
			}
		}
	})
}

func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// splitArguments are colors and keys that follow a rule, or none.
func splitArguments(n int, seed uint64) (colors, keys []int) {
	rnd := newRand(seed, uint64(n))
	extreme := []int{math.MinInt, -1, 0, 1, math.MaxInt}
	for r := range n {
		color, key := r%2, r
		switch seed {
		case 0:
			color = 0
		case 1:
			color, key = r/2, -r
		case 2:
			color, key = math.MaxInt, extreme[r%len(extreme)]
		case 3:
		default:
			if color, key = rnd.IntN(4), rnd.IntN(5)-2; color == 3 {
				color = Undefined
			}
		}
		colors, keys = append(colors, color), append(keys, key)
	}
	return colors, keys
}

// §7.4.2: MPI_Comm_create, with one group and with several that have no rank in common; MPI_Comm_create_group, which
// only the group's ranks call.
func TestCreate(t *testing.T) {
	everyTransport(t, func(t *testing.T, run runner) {
		run(5, func(w *Comm) {
			g := w.Group()
			some := ok(g.Incl(4, 1, 2))
			c := ok(w.Create(some))
			if r := some.Rank(); r == Undefined {
				check(c == nil, "a communicator outside of the group")
			} else {
				same(c.Rank(), r)
				same(ok(c.Group().Compare(some)), Ident)
				ring(c, 1)
			}
			parts := []*Group{ok(g.RangeIncl(Range{3, 0, -3})), ok(g.Incl(1, 4)), ok(g.Incl(2))}
			mine := parts[slices.IndexFunc(parts, func(p *Group) bool { return p.Rank() != Undefined })]
			d := ok(w.Create(mine))
			same(ok(d.Group().Compare(mine)), Ident)
			ring(d, mine.Size())
			check(ok(w.Create(ok(g.Incl()))) == nil, "a communicator of no rank")
			if some.Rank() != Undefined {
				for tag := range 3 {
					e := ok(w.CreateGroup(some, tag*MaxTag/2))
					same(ok(e.Group().Compare(some)), Ident)
					ring(e, 7)
					f := ok(e.CreateGroup(e.Group(), 0))
					ring(f, 8)
				}
			}
		})
	})
}

// §7.4.2: calls of MPI_Comm_create_group at one time have different tags; threads make them of overlapping groups. They
// end, and the communicators are apart.
func TestConcurrentCreations(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		const n = 5
		run(n, func(w *Comm) {
			var wg sync.WaitGroup
			var mu sync.Mutex
			var made []*Comm
			for i := range 12 {
				g := ok(w.Group().Incl(i%n, (i+1)%n, (i+3)%n))
				if g.Rank() == Undefined {
					continue
				}
				wg.Go(func() {
					for range inShort(3, 2) {
						c := ok(w.CreateGroup(g, i))
						ring(c, i)
						d := ok(c.Dup())
						ring(d, -i)
						mu.Lock()
						made = append(made, c, d)
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			ids := map[uint32]bool{}
			for _, c := range made {
				check(!ids[c.group.Context], "two communicators have the number %d", c.group.Context/agree.ContextsEach)
				ids[c.group.Context] = true
				must(c.Free())
			}
		})
	})
}

// The communicators that a program makes first, and many of them, have contexts that devices can match.
func TestSmallContexts(t *testing.T) {
	n := inShort(agree.SmallNumbers-1, 1000)
	over(t)(2, func(w *Comm) {
		for i := range n {
			d := ok(w.Dup())
			_, fits := transport.PackTag(d.group.Context+agree.ContextsEach-1, 1, MaxTag)
			check(fits, "Dup %d has the context %d, which does not fit into a device's tag", i, d.group.Context)
			if i >= 1000 {
				must(d.Free())
			}
		}
	})
}

// fewNumbers lets communicators of this rank have small numbers below n only.
func fewNumbers(w *Comm, n uint32) { w.group.Numbers.Small = n }

// Numbers are used again after Free, also if a part of the ranks had the communicator, and a device can match them then
// as before. While all are in use larger ones are given out.
func TestNumbersAreReused(t *testing.T) {
	everyTransport(t, func(t *testing.T, run runner) {
		if matchedBelow(t) {
			return // messages may overtake each other there: numbers are not used again
		}
		run(3, func(w *Comm) {
			fewNumbers(w, 20)
			kept := ok(w.Dup())
			for i := range inShort(200, 60) {
				var c *Comm
				switch i % 3 {
				case 0:
					c = ok(w.Dup())
				case 1:
					c = ok(w.Split(w.Rank()/2, 0))
				case 2:
					c = ok(kept.Split(0, -w.Rank()))
				}
				check(c.group.Context/agree.ContextsEach < 20, "creation %d has the number %d", i,
					c.group.Context/agree.ContextsEach)
				ring(c, i)
				must(c.Free())
			}
			var all []*Comm
			for range 30 {
				all = append(all, ok(w.Dup()))
			}
			for i, c := range all {
				ring(c, i)
				must(c.Free())
			}
			c := ok(w.Dup())
			for range agree.InVain {
				must(c.Free())
				c = ok(w.Dup())
			}
			check(c.group.Context/agree.ContextsEach < 20, "when all are free a communicator has the number %d",
				c.group.Context/agree.ContextsEach)
			ring(c, 0)
			ring(kept, 1)
		})
	})
}

// §7.4.3, §7.3: a message of a communicator that has been freed, which arrives late, is not received on a communicator
// that has its number. It stands at its sender behind more messages than there is room for, while the two communicators
// are made by way of another rank.
func TestLateMessagesMeetNoSuccessor(t *testing.T) {
	everyTransport(t, func(t *testing.T, run runner) {
		if matchedBelow(t) {
			return // numbers are not used again there
		}
		before := 3000 // past the room for what is unexpected
		if proc.Race {
			before = 1000
		}
		run(3, func(w *Comm) {
			fewNumbers(w, 3)
			for range inShort(5, 2) {
				if w.Rank() == 1 {
					for i := range before {
						must(Bsend(w, message(short, i), 2, 5))
					}
				}
				d := ok(w.Dup())
				if w.Rank() == 1 {
					must(Bsend(d, []int{-1}, 2, 5))
					must(Bsend(d, message(long, 1), 2, 6))
				}
				must(d.Free())
				e := ok(w.Dup())
				for e.group.Context != d.group.Context {
					must(e.Free())
					e = ok(w.Dup())
				}
				switch w.Rank() {
				case 1:
					must(Send(e, []int{7}, 2, 5))
				case 2:
					got := []int{0}
					same(ok(Recv(e, got, AnySource, AnyTag)), Status{Source: 1, Tag: 5, Bytes: 8})
					same(got[0], 7)
					for i := range before {
						buf := make([]byte, short)
						ok(Recv(w, buf, 1, 5))
						whole(buf, i)
					}
				}
				must(e.Free())
			}
		}, littleRoom())
	})
}

// isUsed: a communicator of this rank that has not been freed has the number.
func isUsed(x *agree.ContextIDs, id uint32) bool {
	x.Mu.Lock()
	defer x.Mu.Unlock()
	l, taken := x.Taken[id]
	return taken && !l.Is()
}

// Communicators that are freed leave little, and nothing that grows for ever.
func TestFreedCommunicatorsLeaveLittle(t *testing.T) {
	if proc.Race {
		t.Skip("the race detector runs: it keeps memory of its own")
	}
	overLoop(t)(1, func(w *Comm) {
		heap := func() int64 {
			var now runtime.MemStats
			for range 2 { // twice for what is in pools
				runtime.GC()
			}
			runtime.ReadMemStats(&now)
			return int64(now.HeapAlloc)
		}
		churn := func(n int) {
			for range n {
				must(ok(w.Dup()).Free())
			}
		}
		churn(100)
		before := heap()
		churn(10000)
		each := (heap() - before) / 10000
		check(each < 120, "each leaves %d bytes", each)
		if testing.Short() {
			return
		}
		churn(100000)
		all := heap() - before
		check(all < 4<<20, "110,000 leave %d bytes", all)
	})
}

// A number that is late is made free if it was late when its ranks began to send their last messages, and no other
// goroutine gets it before its contexts can be used.
func TestLateNumbers(t *testing.T) {
	x, both, reused := agree.NewContextIDs(), ranks.Of(ranks.Strided(0, 1, 2)), 0
	late := func(id uint32) { same(x.Reserve(id), id); x.Release(id, both) }
	late(7)
	bits, then := x.Usable(both)
	late(8)
	for range 2 {
		x.Free(bits, then, func(id uint32) {
			same(id, 7)
			check(!x.Mu.TryLock(), "7 can be claimed before its contexts are reused")
			reused++
		})
	}
	same(reused, 1)
	same(x.Reserve(7), 7)
	same(x.Reserve(8), 9)
}

// §7.4.3: while numbers are made free, another goroutine of a rank sends on a communicator that the other ranks have
// freed, behind that rank's last message, and frees it: its number is not made free.
func TestLateMessagesBehindTheLast(t *testing.T) {
	const sends = 300
	last := make(chan bool, 1) // rank 3 has sent its last message to rank 1
	tell := withDevices(func(rank int, d transport.Device) transport.Device {
		if rank != 1 {
			return d
		}
		return &tellingDevice{d, func(p *transport.Packet) {
			if p.Event == transport.Arrived && p.Peer == 3 && p.Header.Ctx == agree.CtxFlush {
				select {
				case last <- true:
				default:
				}
			}
		}}
	})
	over(t, tell)(4, func(w *Comm) {
		fewNumbers(w, 2)
		if w.Rank() == 3 {
			exchangeSignals(w, 1) // connected, so that there is a last message
		} else if w.Rank() == 1 {
			echoSignals(w, 3)
		}
		for i := range inShort(100, 20) {
			d := ok(w.Dup())
			var e *Comm
			if w.Rank() == 3 {
				must(Barrier(w))
				sent := make(chan bool)
				go func() {
					<-last
					for range sends {
						must(Bsend(d, []int{i}, 1, 5))
					}
					must(d.Free())
					close(sent)
				}()
				e = ok(w.Dup())
				<-sent
			} else {
				must(d.Free())
				must(Barrier(w))
				e = ok(w.Dup())
			}
			for e.group.Context != d.group.Context {
				must(e.Free())
				e = ok(w.Dup())
			}
			if w.Rank() == 3 {
				exchangeSignals(w, 1)
				select { // of the Dup that has made d's number free
				case <-last:
				default:
				}
			} else if w.Rank() == 1 {
				echoSignals(w, 3)
				noMessage(e)
			}
			must(Barrier(w))
			must(e.Free())
		}
	}, littleRoom())
}

// noMessage checks that nothing has come on c.
func noMessage(c *Comm) {
	st, found, err := Iprobe(c, AnySource, AnyTag)
	must(err)
	check(!found, "%s, which is new, has got a message: %+v", c.Name(), st)
}

// tellingDevice tells of each packet that comes.
type tellingDevice struct {
	transport.Device
	came func(*transport.Packet)
}

func (d *tellingDevice) Poll(pkts []transport.Packet) int {
	n := d.Device.Poll(pkts)
	for i := range n {
		d.came(&pkts[i])
	}
	return n
}

// §7.4.3: a rank has freed a communicator long ago, and many others since, before another rank sends on it: the message
// is dropped all the same.
func TestLateMessageAfterManyFrees(t *testing.T) {
	overLoop(t)(2, func(w *Comm) {
		d := ok(w.Dup())
		if w.Rank() == 1 {
			must(d.Free())
			alone := ok(w.CreateGroup(ok(w.Group().Incl(1)), 0))
			for range 1<<16/agree.ContextsEach + 1 {
				must(ok(alone.Dup()).Free())
			}
			sendSignal(w, 0)
			awaitSignal(w, 0)
			same(w.Stats().Unexpected, 0)
		} else {
			awaitSignal(w, 1)
			must(Send(d, []int{-1}, 1, 5))
			must(d.Free())
			sendSignal(w, 1)
		}
		fewNumbers(w, 40)
		e := ok(w.Dup())
		for e.group.Context != d.group.Context {
			must(e.Free())
			e = ok(w.Dup())
		}
		noMessage(e)
	})
}

// Ranks that call different things, or with arguments that do not go together, all hear it, and the communicator works
// afterwards.
func TestCreationsThatDoNotMatch(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		for n := 2; n <= inShort(7, 4); n++ {
			run(n, func(w *Comm) {
				for odd := range n {
					me := w.Rank() == odd
					type call = func() (*Comm, error)
					group := ok(w.Group().Incl(0, 1))
					overlapping := ok(w.Group().RangeIncl(Range{1, n - 1, 1}))
					if n == 2 {
						overlapping = ok(w.Group().Incl(1, 0))
					}
					for _, calls := range []struct {
						all, odd call
						own      string // the mistake of the odd one, which that hears without its rank
					}{
						{w.Dup, func() (*Comm, error) { return w.Split(1, 1) }, ""},
						{func() (*Comm, error) { return w.Split(0, 0) }, func() (*Comm, error) { return w.Split(-9, 0) },
							"mpi: Split: the color is -9; "},
						{func() (*Comm, error) { return w.Create(group) }, func() (*Comm, error) { return w.Create(nil) },
							"mpi: Create: the group is nil; "},
						{func() (*Comm, error) { return w.SplitShared(0) }, func() (*Comm, error) { return w.Split(0, 0) }, ""},
					} {
						made := calls.all
						if me {
							made = calls.odd
						}
						c, err := made()
						check(c == nil && err != nil, "it goes well")
						if me && calls.own != "" {
							check(strings.HasPrefix(err.Error(), calls.own), "%v", err)
							continue
						}
						check(strings.Contains(err.Error(), fmt.Sprintf("rank %d", odd)) || odd == 0 || n > 2,
							"%v does not name rank %d", err, odd)
					}
					if odd == 1 {
						g := group
						if me {
							g = overlapping
						}
						is(second(w.Create(g)), ErrGroup)
					}
					d := ok(w.Dup())
					ring(d, 1)
					must(d.Free())
				}
			})
		}
	})
}

// A mistake in a call that makes a communicator or a window is the error of the rank that makes it. The other ranks
// hear whose it is, and where all make it each hears its own.
func TestMistakesInCreations(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(3, func(w *Comm) {
			for _, c := range []struct {
				text string
				call func(n int) error
			}{
				{"WinAlloc: -9 elements were asked for; ", func(n int) error { return second(WinAlloc[int](w, n)) }},
				{"WinShared: -9 elements were asked for; ", func(n int) error { return second(WinShared[int](w, n)) }},
				{"Split: the color is -9; ", func(n int) error { return second(w.Split(n, 0)) }},
				{"Cart: ", func(n int) error { return second(w.Cart([]int{n}, []bool{false}, false)) }},
			} {
				for wrong := range w.Size() + 1 { // this rank; the last time all
					n := 1
					if mistaken := wrong == w.Rank() || wrong == w.Size(); mistaken {
						n = -9
					}
					err := c.call(n)
					check(err != nil, "%s: it goes well", c.text)
					name, mistake, _ := strings.Cut(c.text, " ")
					if n == 1 {
						mistake = fmt.Sprintf("rank %d: %s", wrong, mistake)
					}
					check(strings.HasPrefix(err.Error(), "mpi: "+name+" "+mistake) &&
						(n == 1 || !strings.Contains(err.Error(), "rank 0")), "%d is wrong: %v", wrong, err)
				}
			}
			must(Barrier(w))
		})
	})
}

// Names and attributes are a rank's own; §7.7.2, §7.8. A communicator that is made of another has none of them.
func TestNamesAndAttributes(t *testing.T) {
	over(t)(2, func(w *Comm) {
		type key struct{ n int }
		c := ok(w.Dup())
		must(c.SetName(fmt.Sprintf("c of %d", w.Rank())))
		same(c.WithContext(t.Context()).Name(), fmt.Sprintf("c of %d", w.Rank()))
		must(c.SetAttr(key{1}, w.Rank()))
		must(c.SetAttr(key{2}, "x"))
		same(c.Attr(key{1}), any(w.Rank()))
		must(c.SetAttr(key{2}, nil))
		check(c.Attr(key{2}) == nil && w.Attr(key{1}) == nil && c.Attr([]int{}) == nil, "an attribute that is none")
		is(c.SetAttr([]int{}, 1), ErrComm)
		is(c.SetAttr(nil, 1), ErrComm)
		d := ok(c.Dup())
		same(d.Name(), fmt.Sprintf("c of %d.dup1", w.Rank()))
		check(d.Attr(key{1}) == nil, "it is inherited")
		err := Send(c, []int{1}, 5, 0)
		check(strings.Contains(err.Error(), fmt.Sprintf("on c of %d", w.Rank())), "%v", err)
		must(c.Free())
		is(c.SetName("x"), ErrComm)
		is(c.SetAttr(key{1}, 1), ErrComm)
	})
}

// §7.4.1: MPI_Comm_compare.
func TestCompareCommunicators(t *testing.T) {
	over(t)(3, func(w *Comm) {
		same(ok(w.Compare(w.WithContext(t.Context()))), Ident)
		same(ok(w.Compare(ok(w.Dup()))), Congruent)
		same(ok(w.Compare(ok(w.Split(0, -w.Rank())))), Similar)
		same(ok(w.Compare(ok(w.Split(w.Rank()/2, 0)))), Unequal)
		is(second(w.Compare(nil)), ErrComm)
	})
}

// §7.4.2: MPI_COMM_TYPE_SHARED. The ranks of one process share its memory.
func TestSplitShared(t *testing.T) {
	over(t)(3, func(w *Comm) {
		c := ok(w.SplitShared(-w.Rank()))
		same(c.Size(), 3)
		same(c.Rank(), 2-w.Rank())
	})
	hosts := []int{4, 1 << 61, 4, 1 << 61, 1 << 61}
	over(t, onHosts(func(rank int) int { return hosts[rank] }))(5, func(w *Comm) {
		c := ok(w.SplitShared(0))
		same(c.Size(), []int{2, 3}[w.group.Host()])
		same(c.group.Hosts().Len(), 1)
		ring(c, w.group.Host())
	})
}

// A rank whose context ends has no part in what the others make, and the communicator stays usable; see Dup.
func TestCreationsGivenUp(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(3, func(w *Comm) {
			c := w
			if w.Rank() == 1 {
				c = w.WithContext(ended())
			}
			for range 3 {
				d, err := c.Split(0, 0)
				if w.Rank() == 1 {
					is(err, context.Canceled)
				} else {
					must(err)
					must(d.Free())
				}
			}
			e := ok(w.Split(w.Rank()%2, 0))
			ring(e, w.Rank()%2)
		})
	})
}

// A communicator of many ranks costs a rank a few words where they follow a rule, as do the hosts that they are on; §7
// does not ask for more.
func TestCommunicatorsAreSmall(t *testing.T) {
	const n, each, hosts = 1 << 20, 2000, 10
	setup := coll.Setup{Settings: coll.Settings{Hosts: collectives.Blocks{Ranks: n, PerHost: 64}}}
	world := worldOf(nil, 3, n, &setup)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	all := make([]*Comm, each)
	for i := range all {
		all[i] = world.child(agree.MakeDup, uint32(i+1), ranks.Of(ranks.Strided(3, 4, n/4)), nil)
	}
	made := heap()
	if b := (int64(made) - int64(before)) / each; b > 2048 {
		t.Errorf("a communicator of %d ranks takes %d bytes", n/4, b)
	}
	for _, c := range all[:hosts] {
		if h := c.group.Hosts(); h.Len() != n/64 || h.Size(5) != 16 || c.group.Via() != collectives.Network {
			t.Errorf("%d hosts, one of %d ranks", h.Len(), h.Size(5))
		}
	}
	if b := (int64(heap()) - int64(made)) / hosts; b > 1024 { // negative: garbage went meanwhile
		t.Errorf("the hosts of %d ranks take %d bytes", n/4, b)
	}
	runtime.KeepAlive(all)
}

// Beyond the standard: when a rank is lost while communicators are made, all ranks hear it, those too that neither send
// to it nor receive from it.
func TestCreationsWhenARankIsLost(t *testing.T) {
	const n = 6
	for victim := range n {
		cut := withDevices(func(rank int, d transport.Device) transport.Device {
			var plan faulty.Plan
			for r := range n {
				if (r == victim) != (rank == victim) {
					plan.Cuts = append(plan.Cuts, faulty.Cut{Peer: r, After: 20})
				}
			}
			return faulty.Wrap(d, 1, plan)
		})
		over(t, cut)(n, func(w *Comm) {
			c, err := w, error(nil)
			for err == nil {
				if c, err = w.Split(w.Rank()%2, 0); err == nil {
					must(c.Free())
				}
			}
			is(err, ErrPeerFailed)
		})
	}
}
