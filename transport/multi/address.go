package multi

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// An address is a list of entries, one for each device, in the publisher's order of preference:
//
//	length of name u8, name …, length of address u16 little-endian, address …
type entry struct {
	name    string
	address []byte
}

const (
	maxDevices = 8
	maxName    = 32
	maxAddress = 1<<16 - 1
)

func encode(entries []entry) []byte {
	var b []byte
	for _, e := range entries {
		b = append(b, byte(len(e.name)))
		b = append(b, e.name...)
		b = binary.LittleEndian.AppendUint16(b, uint16(len(e.address)))
		b = append(b, e.address...)
	}
	return b
}

var errNotOurs = errors.New("not a list of addresses")

// parse trusts nothing in b. What it returns points into b.
func parse(b []byte) (entries []entry, err error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("%w: it is empty", errNotOurs)
	}
	for len(b) > 0 {
		var e entry
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
		if _, twice := find(entries, e.name); twice || len(entries) == maxDevices {
			return nil, fmt.Errorf("%w: %q is there twice, or after %d others", errNotOurs, e.name, maxDevices)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func find(entries []entry, name string) (address []byte, ok bool) {
	for _, e := range entries {
		if e.name == name {
			return e.address, true
		}
	}
	return nil, false
}
