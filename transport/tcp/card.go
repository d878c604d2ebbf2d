package tcp

import "encoding/binary"

// addressMax is the longest address that a device publishes.
const addressMax = 400

// packCard puts the device's own address, which a peer that was dialled needs when the connection is dropped, in front
// of what the engine introduces itself with:
//
//	length of the address, u16 │ address │ the engine's card
func packCard(address, card []byte) []byte {
	b := binary.LittleEndian.AppendUint16(make([]byte, 0, 2+len(address)+len(card)), uint16(len(address)))
	return append(append(b, address...), card...)
}

// unpackCard is the reverse. A card that makes no sense has neither part.
func unpackCard(b []byte) (address, card []byte) {
	if len(b) < 2 {
		return nil, nil
	}
	n := int(binary.LittleEndian.Uint16(b))
	if n > len(b)-2 {
		return nil, nil
	}
	return b[2 : 2+n], b[2+n:]
}

// introduced takes a peer's card. mu is held.
func (s *session) introduced(b []byte) {
	where, card := unpackCard(b)
	if a, err := parseAddress(where); err == nil && !s.known {
		s.address, s.known = a, true
	}
	if len(card) > 0 {
		s.card = card
	}
}
