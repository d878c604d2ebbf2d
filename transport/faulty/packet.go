package faulty

import (
	"errors"

	"github.com/gorun-mpi/mpi/internal/wire"
	"github.com/gorun-mpi/mpi/transport"
)

var errRubbish = errors.New("faulty: rubbish of an earlier packet")

var rubbish = transport.Packet{
	Event: 0xdb,
	Peer:  -0x24242425,
	Header: wire.Header{Kind: 0xdb, Flags: 0xdb, Ctx: 0xdbdbdbdb, Tag: 0x5bdbdbdb, ID: 0xdbdbdbdbdbdbdbdb,
		Len: 0x5bdbdbdbdbdbdbdb, Addr: 0xdbdbdbdbdbdbdbdb, Key: 0xdbdbdbdbdbdbdbdb},
	Payload: []byte("rubbish"),
	Err:     errRubbish,
	Cookie:  0xdbdbdbdbdbdbdbdb,
	Value:   0xdbdbdbdbdbdbdbdb,
}

// Spoil fills packets with rubbish: a Poll that is given them must set all that its events promise.
func Spoil(pkts []transport.Packet) {
	for i := range pkts {
		pkts[i] = rubbish
	}
}

// Take copies from one packet to another what the event promises. The payload is shared.
func Take(to, from *transport.Packet) {
	to.Event, to.Peer = from.Event, from.Peer
	h := &from.Header
	switch from.Event {
	case transport.Arrived, transport.Unmatched:
		if to.Payload = from.Payload; !h.Kind.Short() {
			to.Header = *h
			break
		}
		to.Header.Kind, to.Header.Flags, to.Header.Ctx, to.Header.Tag = h.Kind, h.Flags, h.Ctx, h.Tag
	case transport.Down:
		to.Err = from.Err
	case transport.RMADone:
		to.Cookie, to.Err, to.Value = from.Cookie, from.Err, from.Value
	case transport.Noted:
		to.Value = from.Value
	case transport.Placed:
		to.Header.Key, to.Header.Tag, to.Header.Addr, to.Header.Len = h.Key, h.Tag, h.Addr, h.Len
	case transport.OffloadMatched:
		to.Cookie, to.Header.Tag = from.Cookie, h.Tag
	case transport.OffloadDone:
		to.Cookie, to.Header, to.Err = from.Cookie, *h, from.Err
	case transport.OffloadBack, transport.Reached:
		to.Cookie = from.Cookie
	case transport.TaggedDone, transport.TaggedGivenUp:
		to.Cookie, to.Header.Tag, to.Header.Len, to.Err = from.Cookie, h.Tag, h.Len, from.Err
	}
}
