//go:build verbs && linux && cgo

package mpi

import (
	"slices"
	"sync"
	"testing"

	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/verbs"
)

// verbsRanks are ranks over the software HCA, whose counters a test reads.
type verbsRanks struct {
	mu  sync.Mutex
	dev map[int]*verbs.Device
}

func (v *verbsRanks) option(t *testing.T) Option {
	rdma := v.devices(t)
	return withDevices(func(rank int, d transport.Device) transport.Device {
		d.Close()
		return rdma(rank)
	})
}

// devices opens the devices of one job.
func (v *verbsRanks) devices(t *testing.T) func(rank int) *verbs.Device {
	if inGuest() {
		t.Skip("needs the software HCA: a real device has no counters of what it has done")
	}
	rdma := newVerbs(t, "off", 1<<30)
	v.dev = map[int]*verbs.Device{}
	return func(rank int) *verbs.Device {
		dev := rdma(rank)
		v.mu.Lock()
		defer v.mu.Unlock()
		v.dev[rank] = dev
		return dev
	}
}

func (v *verbsRanks) count(rank int, name string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return int(ok(v.dev[rank].SoftCounter(name)))
}

// inject has the software HCA of a rank do something.
func (v *verbsRanks) inject(rank int, what string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	must(v.dev[rank].SoftInject(what))
}

// Put and Get of all lengths are WRITE and READ of the device, and nothing reaches the software of the rank whose
// memory it is; that is registered once for all ranks, from the first use until Free.
func TestWinByLink(t *testing.T) {
	var v verbsRanks
	const n, most = 3, 200_000
	over(t, v.option(t))(n, func(w *Comm) {
		for range n { // all have links
			must(Barrier(w))
		}
		before := v.count(0, "mrs")
		mem := make([]byte, most*(1-w.Rank()%2)) // rank 1 has none
		win := ok(WinCreate(w, mem))
		must(win.LockAll())
		if w.Rank() != 0 {
			must(win.Get(make([]byte, 1), 0, 0))
			must(win.FlushAll())
			sendSignal(w, 0)
		} else {
			awaitSignal(w, 1)
			awaitSignal(w, 2)
			same(v.count(0, "mrs"), before+1)
		}
		must(Barrier(w))
		if w.Rank() == 2 {
			exchangeSignals(w, 0) // behind all else, such as credit
			recvs, sends := v.count(0, "recvs"), v.count(2, "sends")
			rounds := inShort(50, 5)
			sizes := []int{1, 8, 100, 220, 221, 5000, 8 << 10, 8<<10 + 1, most}
			for i := range rounds {
				for _, size := range sizes {
					src, dst := message(size, i+size), make([]byte, size)
					must(win.Put(src, 0, int64(most-size)))
					must(win.FlushLocal(0))
					must(win.Flush(0)) // a Get has no order with a Put
					must(win.Get(dst, 0, int64(most-size)))
					must(win.Flush(0))
					check(slices.Equal(src, dst), "%d bytes: not what has been put", size)
					ok(ok(win.RPut(dst, 0, 0)).Wait())
					must(win.Flush(0))
					ok(ok(win.RGet(src[:size-size/2], 0, int64(size/2))).Wait())
				}
			}
			same(v.count(0, "recvs"), recvs)
			same(v.count(2, "sends"), sends)
			check(v.count(2, "writes") >= 2*rounds*len(sizes) && v.count(2, "reads") >= 2*rounds*len(sizes),
				"%d writes, %d reads", v.count(2, "writes"), v.count(2, "reads"))
			sendSignal(w, 0)
		} else if w.Rank() == 0 {
			echoSignals(w, 2)
			awaitSignal(w, 2)
		}
		must(win.UnlockAll())
		must(win.Free())
		if w.Rank() == 0 {
			same(v.count(0, "mrs"), before)
		}
	})
}

// More Gets of long memory than a rank keeps requests for (rma.MovesMost) are under way at once, thrice over: by READ,
// and by messages where the window cannot be registered.
func TestManyLongGets(t *testing.T) {
	const n, size, window = 3*4096 + 5, 8<<10 + 8, 8 << 20
	for name, bytes := range map[string]string{"by READ": "2000000000", "by messages": "20000000"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("SOFTHCA_MEMLOCK", bytes)
			var v verbsRanks
			over(t, v.option(t))(2, func(w *Comm) {
				mem := message(window, w.Rank())
				win := ok(WinCreate(w, mem))
				must(win.LockAll())
				must(Barrier(w))
				if w.Rank() == 0 {
					want, dst := message(window, 1), make([]byte, n*size)
					var all []*Request
					for i := range n {
						all = append(all, ok(win.RGet(dst[i*size:][:size], 1, int64(i*64))))
					}
					for i, r := range all {
						ok(r.Wait())
						check(slices.Equal(dst[i*size:][:size], want[i*64:][:size]), "Get %d: not what is there", i)
					}
					reads := v.count(0, "reads")
					check(reads >= n == (name == "by READ"), "%d READs", reads)
				}
				must(Barrier(w))
				must(win.UnlockAll())
				must(win.Free())
			})
		})
	}
}

// Where memory cannot be registered, of the window or of a caller, operations go by messages.
func TestWinWithoutMemory(t *testing.T) {
	for _, c := range []struct {
		name, knob, value string
		size              int
	}{
		{"window", "SOFTHCA_MEMLOCK", "20000000", 8 << 20}, // of which the buffers take 12.7 million
		{"caller", "SOFTHCA_MEMLOCK", "20000000", 4 << 20}, // there is room for one window
		{"once", "SOFTHCA_FAIL", "reg:5", 4 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(c.knob, c.value)
			var v verbsRanks
			over(t, v.option(t))(2, func(w *Comm) {
				withWin(w, c.size, func(win *Win[byte]) {
					must(win.LockAll())
					must(win.Get(make([]byte, 1), 1-w.Rank(), 0))
					must(win.FlushAll())
					must(Barrier(w)) // both windows are registered, if they can be
					for i := range 3 * (1 - w.Rank()) {
						src, dst := message(c.size-1000, i), make([]byte, c.size-1000)
						must(win.Put(src, 1, 1000))
						must(win.Flush(1))
						must(win.Get(dst, 1, 1000))
						ok(ok(win.RPut(src[:9], 1, 0)).Wait())
						must(win.Flush(1))
						check(slices.Equal(src, dst), "not what has been put")
						ok(ok(win.RPut(src, 1, 1000)).Wait())
						ok(ok(win.RGet(dst, 1, 1000)).Wait())
						must(win.Flush(1))
					}
					must(win.UnlockAll())
				})
			})
		})
	}
}

// A rank that is lost in the middle of a WRITE is ErrPeerFailed in the Flush, and from then on.
func TestWinPeerLost(t *testing.T) {
	t.Setenv("SOFTHCA_FAIL", "write:20")
	var v verbsRanks
	over(t, v.option(t))(2, func(w *Comm) {
		win := ok(WinCreate(w, make([]byte, 1<<20)))
		must(win.LockAll())
		if w.Rank() == 1 {
			_, err := Recv[byte](w, nil, 0, 0)
			is(err, ErrPeerFailed)
			return
		}
		src := make([]byte, 1<<20)
		var err error
		for i := 0; err == nil; i++ {
			check(i < 100, "%d WRITEs have not failed", i)
			if err = win.Put(src, 1, 0); err == nil {
				err = win.Flush(1)
			}
		}
		is(err, ErrPeerFailed)
		must(win.Put(src, 1, 0))
		is(win.Flush(1), ErrPeerFailed)
		_, err = ok(win.RGet(src, 1, 0)).Wait()
		is(err, ErrPeerFailed)
		check(win.UnlockAll() != nil, "UnlockAll: no error")
	})
}

// A Free that fails, since another rank has returned, leaves the memory to the ranks that have not freed the window:
// their operations harm no link.
func TestWinFreeFails(t *testing.T) {
	var v verbsRanks
	// Rank 0 hears of ranks 2 and 3, and not of rank 1.
	how := WithEnviron([]string{"GORUN_COLL_CHECK=0", "GORUN_COLL=barrier:dissemination"})
	over(t, v.option(t), how)(4, func(w *Comm) {
		win := ok(WinCreate(w, make([]byte, 100)))
		put := func(v byte) {
			must(win.Put([]byte{v}, 0, 5))
			must(win.FlushLocal(0))
		}
		switch w.Rank() {
		case 0:
			awaitSignal(w, 1)
			is(win.Free(), ErrPeerFailed)
			sendSignal(w, 1)
			awaitSignal(w, 1)
		case 1:
			must(win.LockAll())
			put(1)
			sendSignal(w, 0)
			awaitSignal(w, 0)
			put(2)
			sendSignal(w, 0)
		case 3:
			is(win.Free(), ErrPeerFailed)
		}
	})
}
