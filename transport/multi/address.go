package multi

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// An address is the list of the devices' addresses, in the publisher's order of preference:
//
//	length of name u8, name …, length of address u16 little-endian, address …
type namedAddress struct {
	name    string
	address []byte
}

const (
	maxDevices = 8
	maxName    = 32
	maxAddress = 1<<16 - 1
)

// encode is the reverse of parse.
func encode(list []namedAddress) []byte {
	var b []byte
	for _, e := range list {
		b = append(b, byte(len(e.name)))
		b = append(b, e.name...)
		b = binary.LittleEndian.AppendUint16(b, uint16(len(e.address)))
		b = append(b, e.address...)
	}
	return b
}

var errNotOurs = errors.New("not a list of addresses")

// parse checks everything in b, which a peer has published. The addresses that it returns point into b.
func parse(b []byte) (list []namedAddress, err error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("%w: it is empty", errNotOurs)
	}
	for len(b) > 0 {
		var e namedAddress
		n := int(b[0])
		if n == 0 || n > maxName || len(b) < 1+n+2 {
			return nil, fmt.Errorf("%w: a name of %d bytes in the last %d", errNotOurs, n, len(b))
		}
		e.name, b = string(b[1:1+n]), b[1+n:]
		n = int(binary.LittleEndian.Uint16(b))
		if b = b[2:]; n > len(b) {
			return nil, fmt.Errorf("%w: an address of %d bytes in the last %d", errNotOurs, n, len(b))
		}
		e.address, b = b[:n:n], b[n:]
		if _, twice := find(list, e.name); twice || len(list) == maxDevices {
			return nil, fmt.Errorf("%w: %q is listed twice, or after %d others", errNotOurs, e.name, maxDevices)
		}
		list = append(list, e)
	}
	return list, nil
}

func find(list []namedAddress, name string) (address []byte, ok bool) {
	for _, e := range list {
		if e.name == name {
			return e.address, true
		}
	}
	return nil, false
}
