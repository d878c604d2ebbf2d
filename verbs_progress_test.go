//go:build verbs && linux && cgo

package mpi

import (
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/verbs"
)

// A receive that is posted completes while its rank computes, also when small messages, which do not wake a rank that
// computes, have filled the buffers that all its peers share: those of another peer, or of the same. The rank computes
// until the message is there, so that the failure is a hang.
func TestProgressBehindSmallMessages(t *testing.T) {
	if inGuest() {
		t.Skip("needs the software HCA: a real device has no counters of what it has received")
	}
	const small, buffers = 3000, 1000 // of rank 0's device; it has some more
	for _, c := range []struct {
		name, tags string
		from       int // whose long message
	}{{"verbs-another", "off", 2}, {"verbs-same", "off", 1}, {"verbs-tags-another", "on", 2}} {
		t.Run(c.name, func(t *testing.T) {
			var dev *verbs.Device
			rdma := newVerbs(t, c.tags, 1)
			option := withDevices(func(rank int, d transport.Device) transport.Device {
				d.Close()
				v := rdma(rank)
				if rank == 0 {
					dev = v
				}
				return v
			})
			posted, arrived := make(chan bool), make(chan bool)
			sendLong := func(w *Comm) {
				for ok(dev.SoftCounter("recvs")) < buffers {
					time.Sleep(time.Millisecond)
				}
				must(Send(w, message(long, 1), 0, 99))
				close(arrived)
			}
			over(t, option)(3, func(w *Comm) {
				if w.Rank() != 0 {
					echoSignals(w, 0)
					<-posted
				}
				if w.Rank() == 1 {
					for i := range small {
						must(Send(w, message(8, i), 0, 1))
					}
				}
				if w.Rank() == c.from {
					sendLong(w)
				}
				if w.Rank() != 0 {
					return
				}
				exchangeSignals(w, 1)
				exchangeSignals(w, 2)
				buf := make([]byte, long)
				r := ok(Irecv(w, buf, c.from, 99))
				close(posted)
				<-arrived
				ok(r.Wait())
				whole(buf, 1)
				for i := range small {
					ok(Recv(w, buf[:8], 1, 1))
					whole(buf[:8], i)
				}
			})
		})
	}
}

// A rank goes on while a long message of its own is registered, of a send and of a receive: it exchanges short messages
// with another rank. One that sleeps wakes when the registration is done. The failure is a hang.
func TestProgressWhileRegistering(t *testing.T) {
	if inGuest() {
		t.Skip("needs the software HCA: a real device has no such knob")
	}
	var dev [3]*verbs.Device
	rdma := newVerbs(t, "off", 1)
	option := withDevices(func(rank int, d transport.Device) transport.Device {
		d.Close()
		dev[rank] = rdma(rank)
		return dev[rank]
	})
	const size = 7<<20 + 5 // two pieces
	over(t, option)(3, func(w *Comm) {
		b := make([]byte, 8)
		if w.Rank() == 2 {
			for end := 0; end < 2; {
				st := ok(Recv(w, b, AnySource, AnyTag))
				if st.Tag == 2 {
					end++
				}
				must(Send(w, b, st.Source, st.Tag))
			}
			return
		}
		exchange := func(tag, n int) {
			for range n {
				must(Send(w, b, 2, tag))
				ok(Recv(w, b, 2, tag))
			}
		}
		mine := dev[w.Rank()]
		held := func() bool { return ok(mine.SoftCounter("held_registrations")) > 0 }
		exchange(1, 1)
		must(mine.SoftInject("hold_registrations:1048577"))
		var r *Request
		buf := make([]byte, size)
		if w.Rank() == 0 {
			r = ok(Isend(w, message(size, 1), 1, 9))
		} else {
			r = ok(Irecv(w, buf, 0, 9))
		}
		for !held() {
			exchange(1, 1)
		}
		exchange(1, 50)
		go func() {
			time.Sleep(10 * time.Millisecond) // this rank sleeps, mostly
			must(mine.SoftInject("release_registrations"))
		}()
		ok(r.Wait())
		exchange(2, 1)
		if w.Rank() == 1 {
			whole(buf, 1)
		}
	})
}

// A rank goes on while its device registers the memory of a window for another rank's first operation, and while the
// registration ends: it exchanges messages with a third rank. The operation is the device's. The failure is a hang.
func TestProgressWhileLending(t *testing.T) {
	var v verbsRanks
	const size = 3 << 20
	asked := make(chan bool)
	over(t, v.option(t))(3, func(w *Comm) {
		win := ok(WinCreate(w, make([]byte, size)))
		must(win.LockAll())
		b := make([]byte, 8)
		exchange := func(tag, n int) {
			for range n {
				must(Send(w, b, 2, tag))
				ok(Recv(w, b, 2, tag))
			}
		}
		hold := func(calls string) { v.inject(1, "hold_"+calls+":1048577") }
		goOnUntil := func(calls string) {
			for v.count(1, "held_"+calls) == 0 {
				exchange(1, 1)
			}
			exchange(1, 50)
			v.inject(1, "release_"+calls)
		}
		freed := make(chan bool)
		free := func() {
			must(win.UnlockAll())
			must(win.Free())
			close(freed)
		}
		switch w.Rank() {
		case 0:
			<-asked
			before := v.count(0, "write_bytes")
			must(win.Put(message(size, 1), 1, 0))
			must(win.Flush(1))
			check(v.count(0, "write_bytes") >= before+size, "the device has not written it")
			sendSignal(w, 1)
			free()
		case 1:
			exchange(1, 1)
			hold("registrations")
			close(asked)
			goOnUntil("registrations")
			awaitSignal(w, 0)
			whole(win.Local(), 1)
			hold("deregistrations")
			go free()
			goOnUntil("deregistrations")
			exchange(2, 1)
		default:
			go free()
			for tag := 0; tag != 2; {
				st := ok(Recv(w, b, 1, AnyTag))
				tag = st.Tag
				must(Send(w, b, 1, tag))
			}
		}
		<-freed
	})
}
