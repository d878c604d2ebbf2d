package mpi

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/agree"
	"github.com/gorun-mpi/mpi/internal/ranks"
	"github.com/gorun-mpi/mpi/pml"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/faulty"
)

// halves are the communicators of the even and of the odd ranks of w, and the intercommunicator between them.
func halves(w *Comm, tag int) (half, inter *Comm) {
	half = ok(w.Split(w.Rank()%2, -w.Rank())) // the highest rank first
	peer, remote := w, 1-w.Rank()%2           // the leaders are ranks 0 and 1 of w
	if w.Rank() > 1 {
		peer, remote = nil, -7 // of no importance
	}
	return half, ok(half.Intercomm(half.Size()-1, peer, remote, tag))
}

// §7.6: ranks of calls on an intercommunicator are those of the remote group, in both directions; Merge makes one group
// of both.
func TestIntercomm(t *testing.T) {
	everyTransport(t, func(t *testing.T, run runner) {
		for _, n := range []int{2, 3, 5} {
			run(n, func(w *Comm) {
				half, inter := halves(w, 3)
				odd := w.Rank() % 2
				far := n/2 + (n%2)*odd
				check(inter.IsInter() && !half.IsInter(), "which is an intercommunicator?")
				same([3]int{inter.Size(), inter.RemoteSize(), inter.Rank()}, [3]int{half.Size(), far, half.Rank()})
				same(half.RemoteSize(), 0)
				same(ok(inter.Group().Compare(half.Group())), Ident)
				same(ok(inter.RemoteGroup().Intersection(half.Group())).Size(), 0)
				var rs []*Request
				for r := range far {
					rs = append(rs, ok(Isend(inter, message(long, inter.Rank()), r, 7)))
				}
				for r := range far {
					buf := make([]byte, long)
					same(ok(Recv(inter, buf, r, AnyTag)), Status{Source: r, Tag: 7, Bytes: long})
					whole(buf, r)
				}
				must(WaitAll(rs...))
				is(Send(inter, []int{1}, far, 0), ErrRank)
				is(Scan(inter, []int{1}, make([]int, 1), Sum), ErrComm)
				is(second(inter.SplitShared(0)), ErrComm)
				is(second(half.Merge(true)), ErrComm)

				all := ok(inter.Merge(odd == 0)) // the odd ranks first
				var model []int
				for _, parity := range []int{1, 0} {
					for r := n - 1; r >= 0; r-- {
						if r%2 == parity {
							model = append(model, r)
						}
					}
				}
				got := ok(all.Group().Translate(upTo(n), w.Group()))
				check(slices.Equal(got, model), "the ranks are %v, want %v", got, model)
				ring(all, 1)
				either := ok(inter.Merge(false))
				same(ok(either.Compare(all)) <= Similar, true)
				ring(either, 2)
				must(inter.Free())
				is(Send(inter, []int{1}, 0, 0), ErrComm)
				ring(half, odd)
			})
		}
	})
}

// §7.4.2: Dup of an intercommunicator is between the same groups, and has messages of its own.
func TestIntercommDup(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(5, func(w *Comm) {
			half, inter := halves(w, 3)
			dup := ok(inter.Dup())
			same(ok(dup.Compare(inter)), Congruent)
			same([2]int{dup.Rank(), dup.RemoteSize()}, [2]int{inter.Rank(), inter.RemoteSize()})
			first, last := ok(Isend(inter, []int{1}, 0, 7)), ok(Isend(dup, []int{2}, 0, 7))
			if w.Rank() > 2 { // the ranks 0 of the two groups
				for range dup.RemoteSize() {
					buf := []int{0}
					ok(Recv(dup, buf, AnySource, 7))
					same(buf[0], 2)
					ok(Recv(inter, buf, AnySource, 7))
					same(buf[0], 1)
				}
			}
			must(WaitAll(first, last))
			must(inter.Free())
			acrossGroups[int64](w, half, dup, 3)
			is(second(inter.Dup()), ErrComm)
		})
	})
}

// §7.4.2: Split of an intercommunicator makes one for each color that both groups have, ordered by key at both sides.
func TestIntercommSplit(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		for _, n := range []int{2, 5, 6} {
			run(n, func(w *Comm) {
				_, inter := halves(w, 3)
				for color, colorOf := range []func(world int) int{
					func(int) int { return 4 },
					func(world int) int { return world / 2 % 2 },
					func(world int) int { return []int{7, Undefined}[min(1, world/4)] },
					func(world int) int { return world % 2 }, // in one group only
					func(world int) int { return Undefined },
				} {
					part, err := inter.Split(colorOf(w.Rank()), w.Rank())
					must(err)
					side := func(parity int) (ranks []int) { // of this rank's color, by key
						for r := range n {
							if r%2 == parity && colorOf(r) == colorOf(w.Rank()) && colorOf(r) != Undefined {
								ranks = append(ranks, r)
							}
						}
						return ranks
					}
					own, far := side(w.Rank()%2), side(1-w.Rank()%2)
					if len(own) == 0 || len(far) == 0 {
						check(part == nil, "coloring %d gives %v", color, part)
						continue
					}
					check(part.IsInter(), "coloring %d gives %v", color, part)
					inWorld := func(g *Group) []int { return ok(g.Translate(upTo(g.Size()), w.Group())) }
					check(slices.Equal(inWorld(part.Group()), own), "coloring %d: this side is %v", color, inWorld(part.Group()))
					check(slices.Equal(inWorld(part.RemoteGroup()), far), "coloring %d: the other side is %v", color,
						inWorld(part.RemoteGroup()))
					sum := []int{0}
					must(Allreduce(part, []int{w.Rank()}, sum, Sum))
					for _, r := range far {
						sum[0] -= r
					}
					same(sum[0], 0)
					must(part.Free())
				}
			})
		}
	})
}

// A wrong color of one rank, and calls of one group that differ, are errors at all ranks of both groups.
func TestIntercommSplitMistakes(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(5, func(w *Comm) {
			half, inter := halves(w, 3)
			color := 1
			if w.Rank() == 2 {
				color = -5
			}
			is(second(inter.Split(color, 0)), ErrCount)
			var err error
			if w.Rank() == 2 {
				_, err = inter.Dup()
			} else {
				_, err = inter.Split(1, 0)
			}
			is(err, ErrComm)
			if w.Rank()%2 == 0 {
				_, err = inter.Merge(false)
			} else {
				_, err = inter.Dup()
			}
			check(err != nil, "one group has called Merge, and the other one Dup")
			acrossGroups[int64](w, half, ok(inter.Split(0, 0)), 3)
		})
	})
}

// Mistakes that one side makes are errors at both; §7.6.2.
func TestBadIntercomms(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(4, func(w *Comm) {
			half := ok(w.Split(w.Rank()%2, 0))
			leader := 0
			if w.Rank() == 3 {
				leader = 1 // and rank 1 names itself
			}
			is(second(half.Intercomm(leader, w, 1-w.Rank()%2, 1)), ErrComm)
			is(second(half.Intercomm(leader*8, w, 1-w.Rank()%2, 2)), ErrRank)
			if w.Rank()%2 == 0 {
				is(second(half.Intercomm(0, w, w.Rank(), 3)), ErrRank)
				is(second(half.Intercomm(0, nil, 1, 3)), ErrComm)
				is(second(half.Intercomm(0, w, 9, 3)), ErrRank)
				is(second(half.Intercomm(0, w, 1, -1)), ErrTag)
			}
			low, all := ok(w.Split(w.Rank()/3, 0)), ok(w.Dup()) // all has the ranks of low
			switch w.Rank() {
			case 3:
				// As a group of all ranks would.
				b := &agree.Bridge{C: &all.group.Group, Over: &all.group.Group, Remote: 0, Tag: 5}
				_, _, no := b.Talk(all.group.Exchange(agree.MakeIntercomm), 1, nil)
				same(no.Class, ErrGroup)
			default:
				is(second(low.Intercomm(0, all, 3, 5)), ErrGroup)
			}
			half2, inter := halves(w, 9)
			ring(half2, 1)
			must(inter.Free())
		})
	})
}

// Where the ranks of a group name different leaders, none of which takes itself for one, both groups hear it.
func TestIntercommWithoutALeader(t *testing.T) {
	over(t)(4, func(w *Comm) {
		half := ok(w.Split(w.Rank()%2, 0))
		leader := 0
		if w.Rank()%2 == 0 {
			leader = 1 - half.Rank()
		}
		err := second(half.Intercomm(leader, w, 1-w.Rank()%2, 1))
		is(err, ErrComm)
		check(strings.Contains(err.Error(), "as the leader"), "%v", err)
		_, inter := halves(w, 2)
		must(Barrier(inter))
	})
}

// A leader that names a rank which is not the other group's leader, or cannot be, is an error at all ranks of both
// groups, whichever of the two it is, and whichever is first.
func TestIntercommOfAWrongLeader(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		for _, wrong := range []int{0, 1} {
			for named, class := range map[string]error{"a member": ErrRank, "no rank": ErrRank, "its own": ErrRank} {
				for _, late := range []int{0, 1} {
					run(4, func(w *Comm) {
						half := ok(w.Split(w.Rank()%2, 0))
						remote := 1 - w.Rank()%2
						if w.Rank()%2 == wrong {
							remote = map[string]int{"a member": 3 - wrong, "no rank": 9, "its own": 2 + wrong}[named]
						}
						if w.Rank()%2 == late {
							awaitSignal(w, 1-late)
						} else if w.Rank() == 1-late {
							for r := late; r < 4; r += 2 {
								sendSignal(w, r)
							}
						}
						err := second(half.Intercomm(0, w, remote, 1))
						is(err, class)
						_, inter := halves(w, 2)
						must(Barrier(inter))
					})
				}
			}
		}
	})
}

// Creations at one time, and such as follow one another, are apart: those of one leader with several others by one tag,
// of two leaders by several tags, and of groups of which one is a part of another, where a leader is early.
func TestIntercommsAtOneTime(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(4, func(w *Comm) {
			self := ok(w.Split(w.Rank(), 0))
			var selves []*Comm
			for range w.Size() {
				selves = append(selves, ok(self.Dup()))
			}
			half := ok(w.Split(w.Rank()%2, 0))
			pairs := []*Comm{ok(half.Dup()), ok(half.Dup()), ok(half.Dup())}
			var all sync.WaitGroup
			for r := range w.Size() {
				if r != w.Rank() {
					all.Go(func() {
						inter := ok(selves[r].Intercomm(0, w, r, 1))
						buf := []int{0}
						must(Allreduce(inter, []int{w.Rank()}, buf, Sum))
						same(buf[0], r)
					})
				}
			}
			for i, c := range pairs {
				all.Go(func() { must(Barrier(ok(c.Intercomm(0, w, 1-w.Rank()%2, 2+i)))) })
			}
			all.Wait()

			workers := ok(w.Split(min(w.Rank(), 1), 0)) // one after the other, by one tag
			for range 5 {
				for r := 1; r < w.Size(); r++ {
					switch w.Rank() {
					case 0:
						must(ok(self.Intercomm(0, w, r, 7)).Free())
					case r:
						must(ok(self.Intercomm(0, w, 0, 7)).Free())
					}
				}
				if w.Rank() == 0 {
					must(ok(self.Intercomm(0, w, 1, 7)).Free())
				} else {
					must(ok(workers.Intercomm(0, w, 0, 7)).Free())
				}
			}
		})
	})
}

// A rank that stops in the middle of what it says, to another call than the one that takes its word, does not keep this
// one from hearing that the rank which it waits for has failed.
func TestIntercommWhereAWordStops(t *testing.T) {
	var stopped atomic.Bool
	devices := withDevices(func(rank int, d transport.Device) transport.Device {
		plan := faulty.Plan{RefuseRegister: 1 - 1e-12} // the receiver needs the sender
		if rank < 2 {
			plan.Cuts = []faulty.Cut{{Peer: 1 - rank, After: 500}}
		}
		if d = faulty.Wrap(d, 1, plan); rank == 2 {
			d = &stoppingDevice{d, &stopped}
		}
		return d
	})
	failed := make(chan bool)
	over(t, devices)(3, func(w *Comm) {
		self := ok(w.Split(w.Rank(), 0))
		switch w.Rank() {
		case 0:
			awaitSignal(w, 2)
			calls := make(chan error, 1)
			go func() { calls <- second(self.Intercomm(0, w, 1, 1)) }()
			untilLost(w, 1)
			is(<-calls, ErrPeerFailed)
			close(failed)
		case 1:
			untilLost(w, 0)
		case 2:
			stopped.Store(true)
			r := w.group.Engine.Isend(nil, w.group.Context+agree.CtxCollective, 0, agree.TagLeaders, make([]byte, long),
				pml.Standard)
			sendSignal(w, 0)
			<-failed
			stopped.Store(false)
			r.Wait()
		}
	})
}

// What a leader has said before it failed is heard.
func TestIntercommLastWord(t *testing.T) {
	heard := 0
	for turn := range inShort(300, 30) {
		over(t, withDevices(func(rank int, d transport.Device) transport.Device {
			var plan faulty.Plan
			if rank == 0 {
				plan.Cuts = []faulty.Cut{{Peer: 1, After: 1 + turn%6}}
			}
			return faulty.Wrap(d, 1, plan)
		}))(2, func(w *Comm) {
			if w.Rank() == 1 {
				b := &agree.Bridge{C: &w.group.Group, Over: &w.group.Group, Tag: 1}
				b.Leave(w.group.Exchange(agree.MakeIntercomm), 0, agree.Overlapping())
				return
			}
			_, err := w.group.Await(&agree.PendingLeader{Tag: 1, Remote: 1, Members: ranks.Of(ranks.Strided(0, 1, 1))})
			if err == nil {
				heard++
				return
			}
			is(err, ErrPeerFailed)
			w.group.Inbox.Mu.Lock()
			defer w.group.Inbox.Mu.Unlock()
			same(len(w.group.Inbox.Messages), 0)
		})
	}
	if heard == 0 {
		t.Error("no word has come before the end")
	}
}

// untilLost exchanges signals with a rank until it is lost.
func untilLost(w *Comm, rank int) {
	for {
		if err := Send[byte](w, nil, rank, tagSignal); err != nil {
			is(err, ErrPeerFailed)
			return
		}
		if _, err := Recv[byte](w, nil, rank, tagSignal); err != nil {
			is(err, ErrPeerFailed)
			return
		}
	}
}

// stoppingDevice gives nothing while its rank has stopped.
type stoppingDevice struct {
	transport.Device
	stopped *atomic.Bool
}

func (d *stoppingDevice) Poll(pkts []transport.Packet) int {
	if d.stopped.Load() {
		return 0
	}
	return d.Device.Poll(pkts)
}

// A program that goes on naming no leader does not fill the memory of ranks that never take what it tells them.
func TestRefusalsAreBounded(t *testing.T) {
	over(t)(2, func(w *Comm) {
		self := ok(w.Split(w.Rank(), 0))
		if w.Rank() == 0 {
			for range 3 * agree.MostRefused {
				is(second(self.Intercomm(0, w, 7, 1)), ErrRank)
			}
		}
		must(Barrier(w))
		if w.Rank() == 1 {
			n := 0
			for ; ; n++ {
				if _, _, is, _ := w.group.Engine.Iprobe(w.group.Context+agree.CtxCollective, 0, agree.TagLeaders,
					true); !is {
					break
				}
			}
			same(n, agree.MostRefused)
		}
	})
}

// A rank that is lost while its group makes an intercommunicator, or both merge it, is an error at all ranks of both
// groups, whenever that is, or of the next call: none waits for ever.
func TestIntercommsWhenARankIsLost(t *testing.T) {
	const n, before = 5, 30 // messages of a pair that are enough for what comes first
	defer func(was time.Duration) { agree.AnswerWithin = was }(agree.AnswerWithin)
	agree.AnswerWithin = 50 * time.Millisecond // the ranks hear of the loss one by one: see internal/agree/vote.go
	for _, merges := range []bool{false, true} {
		for turn := range n * inShort(40, 6) {
			victim, after := turn%n, before+turn/n*inShort(1, 7)
			t.Run(fmt.Sprintf("merges %v, rank %d after %d", merges, victim, after), func(t *testing.T) {
				cut := withDevices(func(rank int, d transport.Device) transport.Device {
					var plan faulty.Plan
					for r := range n {
						if (r == victim) != (rank == victim) {
							plan.Cuts = append(plan.Cuts, faulty.Cut{Peer: r, After: after})
						}
					}
					return faulty.Wrap(d, 1, plan)
				})
				over(t, cut)(n, func(w *Comm) {
					half, inter := halves(w, 1)
					var err error
					for tag := range 30 {
						var made *Comm
						if merges {
							made, err = inter.Merge(false)
						} else {
							made, err = half.Intercomm(half.Size()-1, w, 1-w.Rank()%2, 2+tag)
						}
						if err == nil {
							must(made.Free())
						}
					}
					is(err, ErrPeerFailed)
				})
			})
		}
	}
}
