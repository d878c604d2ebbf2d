package mpi

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/faulty"
)

// particle is a struct with padding, of which a layout names parts.
type particle struct {
	Kind     uint8
	Position [3]float64
	Charge   int32
}

// matrix is rows × n, element (r, c) being 1000·r + c.
func matrix(rows, n int) []float64 {
	m := make([]float64, rows*n)
	for i := range m {
		m[i] = float64(i/n*1000 + i%n)
	}
	return m
}

// column is column c of a matrix of n columns.
func column(rows, n, c int) Layout {
	return Indexed([]int{1}, []int{c}, Resized(Vector(rows, 1, n, Of[float64]()), 0, 8))
}

// §5.1.11: a message's layout at the sender and at the receiver may differ, only the sequence of elements is the same;
// §5.1.2. Eager and by rendezvous, by every way to collect the result.
func TestLayoutsDiffer(t *testing.T) {
	ways := map[string]func(*Request) (Status, error){
		"Wait": (*Request).Wait,
		"Test": func(r *Request) (Status, error) {
			for {
				if done, st, err := r.Test(); done || err != nil {
					return st, err
				}
				time.Sleep(time.Microsecond)
			}
		},
		"WaitAll":       func(r *Request) (Status, error) { return Status{Bytes: -1}, WaitAll(nil, r) },
		"WaitAllStatus": func(r *Request) (Status, error) { sts, err := WaitAllStatus(r); return sts[0], err },
		"WaitAny":       func(r *Request) (Status, error) { _, st, err := WaitAny(r); return st, err },
		"WaitSome":      func(r *Request) (Status, error) { _, sts, err := WaitSome(r); return sts[0], err },
		"TestAll": func(r *Request) (Status, error) {
			for {
				if done, err := TestAll(r); done || err != nil {
					return Status{Bytes: -1}, err
				}
				time.Sleep(time.Microsecond)
			}
		},
	}
	everywhere(t, func(t *testing.T, run runner) {
		for _, rows := range []int{3, 1 << 14} {
			for name, collect := range ways {
				run(2, func(w *Comm) {
					if w.Rank() == 0 {
						m := matrix(rows, 4)
						must(SendLayout(w, m, column(rows, 4, 1), 1, 0))
						r := ok(IsendLayout(w, m, column(rows, 4, 3), 1, 1))
						ok(r.Wait())
						must(Send(w, m[:rows], 1, 2)) // a slice, received with a layout
						return
					}
					// A row for each column.
					got := make([]float64, 3*2*rows)
					row := func(i int) []float64 { return got[2*rows*i:] }
					every := Vector(rows, 1, 2, Of[float64]())
					st := ok(RecvLayout(w, row(0), every, 0, 0))
					same(st.Bytes, int64(8*rows))
					r := ok(IrecvLayout(w, row(1), every, 0, 1))
					st = ok(collect(r))
					check(st.Bytes == int64(8*rows) || st.Bytes == -1, "%s: %d bytes", name, st.Bytes)
					ok(RecvLayout(w, row(2), every, 0, 2))
					for i := range rows {
						want := [3]float64{float64(i*1000 + 1), float64(i*1000 + 3), float64(i/4*1000 + i%4)}
						for k := range want {
							check(row(k)[2*i] == want[k] && row(k)[2*i+1] == 0, "%s: element %d of %d is %v, %v; want %v, 0",
								name, i, k, row(k)[2*i], row(k)[2*i+1], want[k])
						}
					}
				})
			}
		}
	})
}

// §5.1.11, §3.2.5: a shorter message fills the first elements and no other memory; a longer one fills all and is
// ErrTruncate.
func TestLayoutLengths(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		for _, rows := range []int{4, 1 << 14} {
			run(2, func(w *Comm) {
				if w.Rank() == 0 {
					must(SendLayout(w, matrix(rows, 4), column(rows/2, 4, 1), 1, 0))
					must(Send(w, matrix(rows, 4), 1, 1))
					must(SendLayout(w, matrix(rows, 4), column(rows, 4, 1), 1, 2))
					return
				}
				got := make([]float64, rows*3)
				st := ok(RecvLayout(w, got, column(rows, 3, 2), 0, 0))
				same(Count[float64](st), rows/2)
				for i, v := range got {
					want := 0.0
					if i%3 == 2 && i/3 < rows/2 {
						want = float64(i/3*1000 + 1)
					}
					check(v == want, "element %d is %v, want %v", i, v, want)
				}
				clear(got)
				_, err := RecvLayout(w, got, column(rows, 3, 0), 0, 1)
				is(err, ErrTruncate)
				for i, v := range got {
					check(i%3 == 0 || v == 0, "element %d is %v, which is not of the layout", i, v)
				}
				st, err = RecvLayout(w, got, column(rows/2, 3, 1), 0, 2)
				is(err, ErrTruncate)
				for i := range rows {
					if sendsStay(t) {
						break // a library gives no prefix of what does not fit
					}
					check(got[3*i+1] == float64(i*1000+1) == (i < rows/2), "element %d is %v", 3*i+1, got[3*i+1])
				}
				for i := range rows {
					if sendsStay(t) {
						break
					}
					check(got[3*i] == float64(i/4*1000+i%4), "element %d is %v", 3*i, got[3*i])
				}
			})
		}
	})
}

// Long messages that are not one run, many at a time and both ways, past every ring: each is one message to matching,
// to a probe and to Cancel. Where fragments are copied nothing is packed whole.
func TestLayoutsInPieces(t *testing.T) {
	everyTransport(t, func(t *testing.T, run runner) {
		rows, many := inShort(1<<17, 1<<15), inShort(12, 6)
		run(2, func(w *Comm) {
			other, before := 1-w.Rank(), w.Stats()
			exchange := exchangeSignals // and connect
			if w.Rank() == 1 {
				exchange = echoSignals
			}
			exchange(w, other)
			pieces := w.sendPieces(column(rows, 3, 1).is, bytesOf(matrix(rows, 3)), other, 100)
			kind := strings.TrimRight(t.Name()[strings.LastIndex(t.Name(), "/")+1:], "-0123456789")
			if want, known := map[string]bool{"loop": true, "stream": true, "shm": true, "tcp": false,
				"tagged": false}[kind]; known {
				check((pieces != nil) == want, "sent in pieces: %v", pieces != nil)
			}
			if pieces != nil { // taken back
				pieces.Cancel()
				st, err := pieces.Wait()
				check(err == nil && st.Cancelled, "%+v, %v", st, err)
			}
			var rs []*Request
			var got [][]float64
			for i := range many {
				rs = append(rs, ok(IsendLayout(w, matrix(rows+i, 3), column(rows+i, 3, 1), other, i)))
			}
			st := ok(Probe(w, other, many-1))
			same(Count[float64](st), rows+many-1)
			for i := range many {
				got = append(got, make([]float64, 2*(rows+i)))
				rs = append(rs, ok(IrecvLayout(w, got[i], Vector(rows+i, 1, 2, Of[float64]()), other, i)))
			}
			must(WaitAll(rs...))
			for i, list := range got {
				for k, v := range list {
					if want := float64(k/2*1000 + 1); v != want && k%2 == 0 || v != 0 && k%2 == 1 {
						check(false, "element %d of message %d is %v", k, i, v)
					}
				}
			}
			must(Barrier(w))
			if kind == "stream" { // and the receiver cannot read, so that all fragments are seen
				same(w.Stats().Streams-before.Streams, uint64(many))
			}
		}, unchecked())
	})
}

// A rank that fails while such messages are on their way, after any number of packets, is an error at the other one,
// which does not wait in vain.
func TestLayoutsInPiecesFail(t *testing.T) {
	const rows = 1 << 15
	for after := range inShort(40, 12) {
		cut := withDevices(func(rank int, d transport.Device) transport.Device {
			return faulty.Wrap(d, 1, faulty.Plan{Cuts: []faulty.Cut{{Peer: 1 - rank, After: 2 + 3*after}}})
		})
		over(t, cut)(2, func(w *Comm) {
			m, got, other := matrix(rows, 2), make([]float64, 2*rows), 1-w.Rank()
			l := Vector(rows, 1, 2, Of[float64]())
			var err error
			for i := 0; err == nil; i++ {
				r, failed := IsendLayout(w, m, l, other, 0)
				if err = failed; err == nil {
					_, failed = RecvLayout(w, got, l, other, 0)
					_, err = r.Wait()
					err = errors.Join(err, failed)
				}
			}
			check(errors.Is(err, ErrPeerFailed), "%v", err)
		})
	}
}

// §5.1.2: fields of structs, without the padding. §5.2: Pack and Unpack are what a message is.
func TestLayoutOfStructs(t *testing.T) {
	var p particle
	one := Struct(
		Field{1, int(unsafe.Offsetof(p.Charge)), Of[int32]()},
		Field{3, int(unsafe.Offsetof(p.Position)), Of[float64]()})
	all := Contiguous(5, Resized(one, 0, int(unsafe.Sizeof(p))))
	must(all.Err())
	same(all.Size(), 5*28)
	from := make([]particle, 5)
	for i := range from {
		from[i] = particle{uint8(i), [3]float64{float64(i), 1, 2}, int32(-i)}
	}
	packed := ok(Pack([]byte("head"), from, all))
	same(string(packed[:4]), "head")
	same(len(packed), 4+5*28)
	to := make([]particle, 5)
	rest := ok(Unpack(append(packed, "tail"...)[4:], to, all))
	same(string(rest), "tail")
	for i := range from {
		from[i].Kind = 0 // not of the layout
		same(to[i], from[i])
	}
	rest, err := Unpack(packed[5:], to, all)
	is(err, ErrTruncate)
	same(len(rest), 5*28-1)

	// A T with padding is sent as it is in memory.
	same(Of[particle]().Size(), int64(unsafe.Sizeof(p)))
	same(Contiguous(3, Of[particle]()).Size(), int64(3*unsafe.Sizeof(p)))
}

// TestLayoutInPlace: a layout that is one run is sent from and received in the caller's memory.
func TestLayoutInPlace(t *testing.T) {
	m := matrix(4, 4)
	rows := Subarray([]int{4, 4}, []int{2, 4}, []int{1, 0}, OrderC, Of[float64]())
	if out, _ := rows.is.outgoing(bytesOf(m)); &out[0] != &bytesOf(m)[4*8] || len(out) != 8*8 {
		t.Error("two whole rows are copied")
	}
	if in, later := rows.is.incoming(bytesOf(m)); later != nil || &in[0] != &bytesOf(m)[4*8] {
		t.Error("two whole rows are copied when they are received")
	}
	if _, later := column(4, 4, 0).is.incoming(bytesOf(m)); later == nil {
		t.Error("a column is received as if it were one run")
	}
}

// TestLayoutInBytes: HVector and HIndexed are Vector and Indexed with bytes in the place of extents.
func TestLayoutInBytes(t *testing.T) {
	m, f64 := matrix(4, 4), Of[float64]()
	for _, c := range [][2]Layout{
		{Vector(3, 2, 4, f64), HVector(3, 2, 4*8, f64)},
		{Indexed([]int{1, 3}, []int{5, 0}, f64), HIndexed([]int{1, 3}, []int{5 * 8, 0}, f64)},
	} {
		if want, got := ok(Pack(nil, m, c[0])), ok(Pack(nil, m, c[1])); !bytes.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

// TestLayoutRefused: what cannot be is an error that says so, and nothing is sent, received or touched.
func TestLayoutRefused(t *testing.T) {
	f64 := Of[float64]()
	over(t)(1, func(w *Comm) {
		m := matrix(4, 4)
		for _, c := range []struct {
			l     Layout
			class error
		}{
			{Layout{}, ErrType},
			{Contiguous(-1, f64), ErrType},
			{Vector(2, 1, 4, Contiguous(-1, f64)), ErrType},
			{Struct(Field{1, 0, f64}, Field{1, 8, Layout{}}), ErrType},
			{Of[[]int](), ErrType},
			{Of[*int](), ErrType},
			{Indexed([]int{1, 2}, []int{1}, f64), ErrType},
			{HIndexed([]int{1}, []int{1 << 62, -1 << 62}, f64), ErrType},
			{Darray(9, []ArrayDim{{Size: 4, How: DistributeBlock, Procs: 2}}, OrderC, f64), ErrType},
			{Contiguous(17, f64), ErrCount},
			{Vector(4, 1, 6, f64), ErrCount},
			{Vector(4, 1, -4, f64), ErrCount},
			{HIndexed([]int{1}, []int{-1}, f64), ErrCount},
			{HIndexed([]int{1}, []int{16*8 - 7}, f64), ErrCount},
		} {
			_, err := Pack(nil, m, c.l)
			is(err, c.class)
			_, err = Unpack(make([]byte, 1000), m, c.l)
			is(err, c.class)
			is(SendLayout(w, m, c.l, 0, 0), c.class)
			_, err = IsendLayout(w, m, c.l, 0, 0)
			is(err, c.class)
			_, err = RecvLayout(w, m, c.l, 0, 0)
			is(err, c.class)
			_, err = IrecvLayout(w, m, c.l, 0, 0)
			is(err, c.class)
			if c.class == ErrType && (c.l.Err() == nil || c.l.Size() != 0) {
				check(false, "the layout has %d bytes and no error", c.l.Size())
			}
		}
		// What overlaps can be sent, and not received.
		twice := Indexed([]int{2}, []int{0, 1}, f64)
		r := ok(IsendLayout(w, m, twice, 0, 0))
		_, err := RecvLayout(w, m, twice, 0, 0)
		is(err, ErrType)
		_, err = Unpack(make([]byte, 1000), m, twice)
		is(err, ErrType)
		four := make([]float64, 4)
		ok(Recv(w, four, 0, 0))
		ok(r.Wait())
		check(four[0] == 0 && four[1] == 1 && four[2] == 1 && four[3] == 2, "%v", four)

		// Other arguments are checked as those of Send and Recv are.
		col := column(4, 4, 0)
		is(SendLayout(w, m, col, 1, 0), ErrRank)
		is(SendLayout(nil, m, col, 0, 0), ErrComm)
		is(SendLayout(w, [][]int{nil}, col, 0, 0), ErrType)
		_, err = RecvLayout(w, m, col, 0, -7)
		is(err, ErrTag)
		must(SendLayout(w, m, col, ProcNull, 0))
		st := ok(RecvLayout(w, m, col, ProcNull, 0))
		same(st.Source, ProcNull)
		r = ok(IrecvLayout(w, m, col, ProcNull, 0))
		same(ok(r.Wait()).Source, ProcNull)
		r = ok(IsendLayout(w, m, col, ProcNull, 0))
		ok(r.Wait())
	})
}

// TestLayoutCancelled: a receive that ends without a message leaves the buffer as it was.
func TestLayoutCancelled(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(1, func(w *Comm) {
			m := matrix(4, 4)
			r := ok(IrecvLayout(w, m, column(4, 4, 2), 0, 0))
			must(r.Cancel())
			check(ok(r.Wait()).Cancelled, "not cancelled")
			ctx, stop := context.WithTimeout(context.Background(), time.Millisecond)
			defer stop()
			_, err := RecvLayout(w.WithContext(ctx), m, column(4, 4, 2), 0, 0)
			check(errors.Is(err, context.DeadlineExceeded), "%v", err)
			for i, v := range matrix(4, 4) {
				same(m[i], v)
			}
		})
	})
}

// §3.10, §5.1.11: each rank of a ring sends a column, and receives into another one, of which the gaps do not change.
func TestSendrecvLayout(t *testing.T) {
	everyTransport(t, func(t *testing.T, run runner) {
		for _, rows := range []int{1, 3, 5000} {
			run(3, func(w *Comm) {
				me, n := w.Rank(), w.Size()
				right, left := (me+1)%n, (me+n-1)%n
				from, into := cells(me, rows, 3), cells(9, rows, 2)
				st := ok(SendrecvLayout(w, from, column(rows, 3, 1), right, 7, into, column(rows, 2, 0), left, 7))
				same(st, Status{Source: left, Tag: 7, Bytes: int64(8 * rows)})
				want := cells(9, rows, 2)
				for r := range rows {
					want[2*r] = 1e6*float64(left) + 1000*float64(r) + 1
				}
				equal("from the left", into, want)
				one := Contiguous(3*rows, Of[float64]())
				got := make([]float64, 3*rows)
				ok(SendrecvLayout(w, from, one, me, 8, got, one, me, 8))
				equal("to itself", got, from)
				same(ok(SendrecvLayout(w, from, one, ProcNull, 8, got, one, ProcNull, 8)), nullStatus)
				if me == 0 {
					same(ok(SendrecvLayout(w, from, one, 1, 9, got, one, ProcNull, 9)), nullStatus)
				} else if me == 1 {
					same(ok(SendrecvLayout(w, from, one, ProcNull, 9, got, one, 0, 9)).Source, 0)
					equal("half a call", got, cells(0, rows, 3))
				}
				is(second(SendrecvLayout(w, from, one, 5, 0, got, one, 0, 0)), ErrRank)
				err := second(SendrecvLayout(w, from, one, 0, 0, got[:1], one, 0, 0))
				is(err, ErrCount)
				check(strings.Contains(err.Error(), "SendrecvLayout"), "%v", err)
				short := Contiguous(3*rows-1, Of[float64]())
				err = second(SendrecvLayout(w, from, one, me, 8, got, short, me, 8))
				is(err, ErrTruncate)
				check(strings.Contains(err.Error(), "SendrecvLayout"), "%v", err)
			})
		}
	})
}

// A receive whose send cannot be made is not left behind.
func TestSendrecvLayoutToAFailedRank(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	over(t)(2, func(w *Comm) {
		one := Contiguous(4, Of[float64]())
		is(second(SendrecvLayout(w.WithContext(ctx), cells(0, 1, 4), one, 1-w.Rank(), 1, cells(0, 1, 4), one, 1-w.Rank(),
			1)), context.Canceled)
	})
}

// §3.9: a persistent request with a layout sends what is in its elements at each Start, and brings each message to its
// elements, whichever call collects it. The gaps do not change.
func TestPersistentLayoutMessages(t *testing.T) {
	collect := []func(rs ...*Request) error{
		WaitAll,
		func(rs ...*Request) error {
			for _, r := range rs {
				ok(r.Wait())
			}
			return nil
		},
		func(rs ...*Request) error {
			for range rs {
				_, _, err := WaitAny(rs...)
				must(err)
			}
			return nil
		},
		func(rs ...*Request) error {
			for done := false; !done; {
				done = ok(TestAll(rs...))
			}
			return nil
		},
	}
	open := landingsOpen.Load()
	everyTransport(t, func(t *testing.T, run runner) {
		for _, rows := range []int{1, 4, 5000} {
			run(2, func(w *Comm) {
				peer := 1 - w.Rank()
				from, into := make([]float64, 3*rows), cells(9, rows, 2)
				plain := make([]float64, rows)
				out := ok(SendLayoutInit(w, from, column(rows, 3, 1), peer, 7))
				in := ok(RecvLayoutInit(w, into, column(rows, 2, 0), peer, 7))
				run := ok(RecvLayoutInit(w, plain, Contiguous(rows, Of[float64]()), peer, 8))
				same(ok(in.Wait()).Bytes, 0) // not started
				for turn, wait := range collect {
					copy(from, cells(w.Rank()+turn, rows, 3))
					must(StartAll(in, out, run))
					is(in.Start(), ErrRequest)
					is(out.Start(), ErrRequest)
					must(Send(w, plain[:0], peer, 8))
					must(wait(in, out, run))
					want := cells(9, rows, 2)
					for r := range rows {
						want[2*r] = 1e6*float64(peer+turn) + 1000*float64(r) + 1
					}
					equal("received", into, want)
				}
				same(ok(in.Wait()).Bytes, 0)
				must(WaitAll(in, out))
				equal("after a Wait for nothing", into[:1], []float64{1e6*float64(peer+len(collect)-1) + 1})
				for _, r := range []*Request{in, out, run} {
					must(r.Free())
				}
				for _, r := range []*Request{ok(SendLayoutInit(w, from, column(rows, 3, 1), ProcNull, 7)),
					ok(RecvLayoutInit(w, into, column(rows, 2, 0), ProcNull, 7))} {
					must(r.Start())
					same(ok(r.Wait()), nullStatus)
				}
				is(second(SendLayoutInit(w, from[:1], column(rows, 3, 1), peer, 7)), ErrCount)
				is(second(RecvLayoutInit(w, into, Vector(2, 2, 1, Of[float64]()), peer, 7)), ErrType)
			})
		}
	})
	if n := landingsOpen.Load() - open; n != 0 {
		t.Errorf("%d results are to be unpacked, and all have been collected", n)
	}
}
