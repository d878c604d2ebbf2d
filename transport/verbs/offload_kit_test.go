//go:build verbs && linux && cgo

package verbs

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

// taggers are two devices that match tags, linked both ways. The first sends, the second has the list.
type taggers struct {
	t    *testing.T
	dev  [2]*Device
	link [2]transport.Link
	in   [2][]transport.Packet // payloads copied
}

func newTaggers(t *testing.T, change ...func(*Options)) *taggers {
	t.Helper()
	needSoft(t)
	g := &taggers{t: t}
	for rank := range g.dev {
		g.dev[rank] = newDevice(t, rank, 2, append(change, tagsOn)...)
		t.Cleanup(func() { g.dev[rank].Close() })
	}
	for rank := range g.link {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		l, err := g.dev[rank].Connect(ctx, 1-rank, g.dev[1-rank].Address())
		if err != nil {
			t.Fatal(err)
		}
		g.link[rank] = l
	}
	if !g.link[1].Caps().Offload || g.dev[1].Facts().Offload == nil {
		t.Fatal("both match tags, and the link does not offer it")
	}
	return g
}

func (g *taggers) send(h wire.Header, payload []byte) {
	g.t.Helper()
	for end := time.Now().Add(patience); !g.link[0].TrySend(&h, payload); g.poll(0) {
		if time.Now().After(end) {
			g.t.Fatal("no room")
		}
	}
}

func (g *taggers) poll(rank int) int {
	var pkts [8]transport.Packet
	n := g.dev[rank].Poll(pkts[:])
	for _, p := range pkts[:n] {
		if p.Event != transport.Room {
			p.Payload = bytes.Clone(p.Payload)
			g.in[rank] = append(g.in[rank], p)
		}
	}
	return n
}

// next is the next packet of a rank, while both poll.
func (g *taggers) next(rank int) transport.Packet {
	g.t.Helper()
	for end := time.Now().Add(patience); len(g.in[rank]) == 0; {
		g.poll(0)
		g.poll(1)
		if time.Now().After(end) {
			g.t.Fatalf("rank %d: nothing comes", rank)
		}
	}
	p := g.in[rank][0]
	g.in[rank] = g.in[rank][1:]
	return p
}

// post hands down a receive at rank 1 for a message of rank 0.
func (g *taggers) post(tag int32, mask uint64, buf []byte, cookie uint64) {
	g.t.Helper()
	packed, _ := transport.PackTag(3, 0, tag)
	if got := g.dev[1].Facts().Offload.Post(packed&mask, mask,
		transport.HostMem(buf), cookie); got != transport.PostedDown {
		g.t.Fatalf("Post: %d", got)
	}
}

// settled waits until the device has taken all operations of the list.
func (g *taggers) settled() {
	g.t.Helper()
	for end := time.Now().Add(patience); g.dev[1].tags.ops > 0; g.poll(1) {
		if time.Now().After(end) {
			g.t.Fatalf("%d operations of the list do not complete", g.dev[1].tags.ops)
		}
	}
}

func (g *taggers) want(rank int, what string, got transport.Packet, want transport.Packet) {
	g.t.Helper()
	got.Payload, want.Payload = nil, nil
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		g.t.Errorf("rank %d: %s:\n got %+v\nwant %+v", rank, what, got, want)
	}
}

func eager(tag int32) wire.Header { return wire.Header{Kind: wire.Eager, Ctx: 3, Tag: tag} }
