package vswitch

import (
	"encoding/binary"
	"net/netip"
)

// segment is what a frame that carries TCP says.
type segment struct {
	flow  flow
	flags byte
	six   bool
	at    int // where the TCP header begins
}

// flow is a connection: its two ends, the lesser one first.
type flow [2]netip.AddrPort

const (
	syn = 0x02
	rst = 0x04
	ack = 0x10

	tcpHeader = 20
	tcp       = 6 // of IP's protocols
)

// parseTCP takes a frame apart, if it carries TCP without extension headers of IPv6.
func parseTCP(frame []byte) (t segment, ok bool) {
	if len(frame) < ethernet+tcpHeader {
		return t, false
	}
	var from, to netip.Addr
	switch binary.BigEndian.Uint16(frame[12:]) {
	case 0x0800:
		t.at = ethernet + 4*int(frame[ethernet]&15)
		if frame[ethernet+9] != tcp || binary.BigEndian.Uint16(frame[ethernet+6:])&0x1fff != 0 { // or a later fragment
			return t, false
		}
		from, to = netip.AddrFrom4([4]byte(frame[26:30])), netip.AddrFrom4([4]byte(frame[30:34]))
	case 0x86dd:
		if t.at, t.six = ethernet+40, true; len(frame) < t.at || frame[ethernet+6] != tcp {
			return t, false
		}
		from, to = netip.AddrFrom16([16]byte(frame[22:38])), netip.AddrFrom16([16]byte(frame[38:54]))
	default:
		return t, false
	}
	if len(frame) < t.at+tcpHeader {
		return t, false
	}
	t.flow = flow{netip.AddrPortFrom(from, binary.BigEndian.Uint16(frame[t.at:])),
		netip.AddrPortFrom(to, binary.BigEndian.Uint16(frame[t.at+2:]))}
	if t.flow[0].Compare(t.flow[1]) > 0 {
		t.flow[0], t.flow[1] = t.flow[1], t.flow[0]
	}
	t.flags = frame[t.at+13]
	return t, true
}

// dials reports whether a frame asks for a connection.
func dials(frame []byte) bool {
	t, ok := parseTCP(frame)
	return ok && t.flags&(syn|ack) == syn
}

// resetFrame is the frame by which a host without a listener answers one that dials.
func resetFrame(frame []byte) []byte {
	t, _ := parseTCP(frame)
	var pseudo uint32
	b := append([]byte(nil), frame[:ethernet]...)
	copy(b[0:6], frame[6:12])
	copy(b[6:12], frame[0:6])
	if t.six {
		ip := append([]byte(nil), frame[ethernet:ethernet+40]...)
		binary.BigEndian.PutUint16(ip[4:], tcpHeader)
		copy(ip[8:24], frame[38:54])
		copy(ip[24:40], frame[22:38])
		pseudo = add(0, ip[8:40])
		b = append(b, ip...)
	} else {
		ip := append([]byte(nil), frame[ethernet:ethernet+20]...)
		ip[0] = 0x45 // without options
		binary.BigEndian.PutUint16(ip[2:], 20+tcpHeader)
		copy(ip[12:16], frame[30:34])
		copy(ip[16:20], frame[26:30])
		ip[10], ip[11] = 0, 0
		binary.BigEndian.PutUint16(ip[10:], checksum(add(0, ip)))
		pseudo = add(0, ip[12:20])
		b = append(b, ip...)
	}
	h := make([]byte, tcpHeader)
	copy(h[0:2], frame[t.at+2:t.at+4])
	copy(h[2:4], frame[t.at:t.at+2])
	binary.BigEndian.PutUint32(h[8:], binary.BigEndian.Uint32(frame[t.at+4:])+1)
	h[12], h[13] = tcpHeader/4<<4, rst|ack
	binary.BigEndian.PutUint16(h[16:], checksum(add(pseudo+tcp+tcpHeader, h)))
	return append(b, h...)
}

// add adds 16-bit words to a sum of the internet checksum.
func add(sum uint32, b []byte) uint32 {
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	return sum
}

func checksum(sum uint32) uint16 {
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
