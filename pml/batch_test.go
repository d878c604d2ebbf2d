package pml

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// Two ranks that compute exchange 20,000 messages of 8 bytes, of which a link takes 256 packets. Each of them looks at
// its link once in a time slice, and few slices are enough.
func TestFloodInFewSlices(t *testing.T) {
	watchdog(t)
	const most = 6 // 20,000 messages in packets of their own take 79
	messages := 20_000
	n := newTestNet(netOptions{ranks: 2, eagerMax: 32 << 10, fragMax: 64 << 10, unexpectedMax: 64 << 20})
	defer n.close()
	n.linkAll()
	var recvs, sends [2][]*Request
	var in [2][]byte
	for rank, e := range n.engines {
		n.rooms[[2]int{rank, 1 - rank}] = 256
		in[rank] = make([]byte, 8*messages)
		for i := range messages {
			recvs[rank] = append(recvs[rank], e.Irecv(nil, 1, 1-rank, AnyTag, in[rank][8*i:][:8]))
		}
	}
	for i := range messages {
		for rank, e := range n.engines {
			out := binary.LittleEndian.AppendUint64(nil, uint64(i))
			sends[rank] = append(sends[rank], e.Isend(nil, 1, 1-rank, int32(i%7), out, Standard))
		}
	}
	slices := 0
	for ; n.engines[0].Pending()+n.engines[1].Pending() > 0; slices++ {
		if slices == most {
			t.Fatalf("after %d slices of each rank %d and %d operations are under way", slices,
				n.engines[0].Pending(), n.engines[1].Pending())
		}
		for rank := range n.engines { // one after the other: what one has put into its link, the other finds there
			n.deliver(rank, math.MaxInt)
		}
		n.check(t)
	}
	for rank := range n.engines {
		for i, r := range recvs[rank] {
			got := binary.LittleEndian.Uint64(in[rank][8*i:])
			if _, st, err := r.Test(); err != nil || int(st.Tag) != i%7 || got != uint64(i) {
				t.Fatalf("receive %d of rank %d: tag %d, contents %d, %v", i, rank, st.Tag, got, err)
			}
			if _, _, err := sends[rank][i].Test(); err != nil {
				t.Fatal(err)
			}
		}
		if st := n.engines[rank].Stats(); st.EagerSent != uint64(messages) || st.RendezvousSent != 0 {
			t.Errorf("rank %d: %+v", rank, st)
		}
	}
}

// Messages of every kind, some with receives that stand there before, go over a link that is full most of the time. No
// two of them change places, and they go several in a packet where they can.
func TestBatchesKeepOrder(t *testing.T) {
	watchdog(t)
	for seed := range inShort[uint64](40, 8) {
		rng := rand.New(rand.NewPCG(seed, 17))
		n := newTestNet(netOptions{ranks: 2, eagerMax: 4 << 10, fragMax: 8 << 10, unexpectedMax: 1 << int(12+seed%10)})
		defer n.close()
		n.linkAll()
		batches := 0
		n.log = func(format string, args ...any) {
			if s, ok := args[0].(string); ok && bytes.HasPrefix([]byte(s), []byte("0->1 batch")) {
				batches++
			}
		}
		w, sizes := [2]int{0, 1}, []int{0, 1, 8, 8, 64, 500, 2048, 2049, 4096, 9000}
		var sends []*Request
		var sent [][]byte
		for i := range 300 {
			if rng.IntN(20) == 0 {
				n.rooms[w] = rng.IntN(4)
			}
			if rng.IntN(30) == 0 {
				n.deliver(1, 1+rng.IntN(3))
			}
			out := contents(0, i, sizes[rng.IntN(len(sizes)-rng.IntN(5))])
			sent = append(sent, out)
			sends = append(sends, n.engines[0].Isend(nil, 1, 1, int32(i), out, Mode(rng.IntN(12)/11)))
			if rng.IntN(15) == 0 { // one of the queue, perhaps: then it is not sent
				k := rng.IntN(len(sends))
				if err := sends[k].Cancel(); err != nil {
					t.Fatal(err)
				}
			}
		}
		delete(n.rooms, w)
		next := 0
		for turns := 0; ; turns++ {
			if turns > 10_000 {
				t.Fatalf("seed %d: it does not come to an end", seed)
			}
			in := make([]byte, 9000)
			r, st := n.recv(1, 1, 0, AnyTag, in)
			for i := 0; r != nil && i < 20; i++ {
				n.deliver(0, math.MaxInt)
				n.deliver(1, math.MaxInt)
				var done bool
				var err error
				if done, st, err = r.Test(); err != nil {
					t.Fatal(err)
				} else if done {
					r = nil
				}
			}
			n.check(t)
			if r != nil { // nothing is left
				if err := r.Cancel(); err != nil {
					t.Fatal(err)
				}
				break
			}
			n.deliver(0, math.MaxInt) // that what is missing has been given back
			for ; next < int(st.Tag); next++ {
				if done, st, err := sends[next].Test(); !done || !st.Cancelled || err != nil {
					t.Fatalf("seed %d: message %d comes before %d, which is not cancelled: %v %+v %v", seed, st.Tag, next,
						done, st, err)
				}
			}
			if next != int(st.Tag) || !bytes.Equal(in[:st.Bytes], sent[next]) {
				t.Fatalf("seed %d: after message %d comes %d, of %d bytes", seed, next-1, st.Tag, st.Bytes)
			}
			next++
		}
		if batches == 0 {
			t.Errorf("seed %d: every message went by itself", seed)
		}
	}
}

// A batch that is none fails its sender, and what stands in front of the mistake counts.
func TestHostileBatch(t *testing.T) {
	watchdog(t)
	good := wire.AppendBatch(nil, 1, 5, []byte("good"))
	flood := []byte{}
	for range 1000 {
		flood = wire.AppendBatch(flood, 1, 6, nil)
	}
	long := bytes.Clone(good)
	binary.LittleEndian.PutUint32(long[8:], math.MaxUint32)
	for name, b := range map[string][]byte{
		"cut off in a header":  append(bytes.Clone(good), good[:7]...),
		"cut off in a payload": append(bytes.Clone(good), good[:len(good)-1]...),
		"an endless payload":   append(bytes.Clone(good), long...),
		"a negative tag":       wire.AppendBatch(bytes.Clone(good), 1, -1, nil),
		"beyond its credit":    append(bytes.Clone(good), flood...),
	} {
		n := newTestNet(netOptions{ranks: 2, eagerMax: 256, fragMax: 512, unexpectedMax: 1})
		n.hostile = true
		n.linkAll()
		e, in := n.engines[0], make([]byte, 10)
		r, rest := e.Irecv(nil, 1, 1, 5, in), e.Irecv(nil, 1, 1, 7, in)
		n.devices[0].inbox = append(n.devices[0].inbox,
			transport.Packet{Peer: 1, Header: wire.Header{Kind: wire.Batch}, Payload: b})
		n.work(0)
		if done, st, err := r.Test(); !done || err != nil || string(in[:st.Bytes]) != "good" {
			t.Errorf("%s: the message in front: done %v, %q, %v", name, done, in, err)
		}
		if done, _, err := rest.Test(); !done || !errors.Is(err, transport.ErrPeerGone) {
			t.Errorf("%s: done %v, %v", name, done, err)
		}
		n.check(t)
		n.close()
	}
}

// A device that matches tags gets each message by itself.
func TestNoBatchForMatchingDevices(t *testing.T) {
	if n := batchLimit(&transport.Caps{EagerMax: 8 << 10, Offload: true}); n != 0 {
		t.Errorf("batches of %d bytes", n)
	}
	if n := batchLimit(&transport.Caps{EagerMax: 4 << 10}); n != 4<<10 {
		t.Errorf("batches of %d bytes over a link that takes 4096", n)
	}
}
