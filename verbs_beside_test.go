//go:build verbs && linux && cgo

package mpi

import "testing"

// Messages through a device that matches tags keep their order while another rank sends over shared memory: what comes
// by another way is no message that the device has left to software. If it were counted as one, the device would use a
// receive that is posted behind as many messages as were counted too much, and the next message would overtake them.
func TestOrderBesideSharedMemory(t *testing.T) {
	if inGuest() {
		t.Skip("needs the software HCA: soft-RoCE does not match tags")
	}
	const size, most = 8 << 10, 6 // such a buffer the device may match
	rounds := inShort(1000, 200)
	byShm, first, last, sent := make(chan int), make(chan int), make(chan bool), make(chan bool)
	over(t, besideShm(t))(3, func(w *Comm) {
		switch w.Rank() {
		case 0:
			exchangeSignals(w, 1)
			var bufs [most + 1][]byte
			for i := range bufs {
				bufs[i] = make([]byte, size)
			}
			other := make([]byte, short)
			for i := range rounds {
				if i == 1 || i%50 == 49 {
					byShm <- i
					ok(Recv(w, other, 2, 6))
					whole(other, i)
				}
				n := 1 + i%most
				first <- n
				<-sent // they are here, and may be with the device
				reqs := []*Request{ok(Irecv(w, bufs[0], 1, 5))}
				last <- true
				for _, b := range bufs[1 : n+1] {
					reqs = append(reqs, ok(Irecv(w, b, 1, 5)))
				}
				for k, r := range reqs {
					ok(r.Wait())
					whole(bufs[k], i+k)
				}
			}
			close(byShm)
			close(first)
			s := w.Stats()
			check(s.OffloadPosted > 0 && s.SoftwareMatches > 0, "the device had %d receives, and left %d to software",
				s.OffloadPosted, s.SoftwareMatches)
		case 1:
			echoSignals(w, 0)
			i := 0
			for n := range first {
				for k := range n {
					must(Send(w, message(size, i+k), 0, 5))
				}
				sent <- true
				<-last
				must(Send(w, message(size, i+n), 0, 5))
				i++
			}
		case 2:
			for i := range byShm {
				must(Send(w, message(short, i), 0, 6))
			}
		}
	})
}
