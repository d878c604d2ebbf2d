package ofi

import (
	"encoding/json"
	"fmt"
)

// card is what a rank publishes.
type card struct {
	Provider string
	Format   uint32 // of Address, as libfabric numbers them
	Address  []byte // of the endpoint
	Control  []byte // where its control connections listen
}

func (c card) encode() []byte {
	b, err := json.Marshal(c)
	if err != nil {
		panic(err) // strings, a number and bytes
	}
	return b
}

// readCard checks what can be checked for the rank whose own card is: libfabric trusts an address.
func readCard(b []byte, own card) (c card, err error) {
	if err := json.Unmarshal(b, &c); err != nil {
		return c, fmt.Errorf("its address is not one of this transport: %w", err)
	}
	switch {
	case c.Provider != own.Provider:
		return c, fmt.Errorf("it has libfabric's provider %.40q, and this rank has %q: all ranks must have the same: see "+
			"GORUN_OFI_PROVIDER", c.Provider, own.Provider)
	case c.Format != own.Format || len(c.Address) != len(own.Address):
		return c, fmt.Errorf("its address has %d bytes of format %d, and that of this rank %d of format %d", len(c.Address),
			c.Format, len(own.Address), own.Format)
	case len(c.Address) >= 2 && socketFormat(c.Format) && [2]byte(c.Address) != [2]byte(own.Address):
		return c, fmt.Errorf("its address is of another family")
	}
	return c, nil
}

// socketFormat reports whether addresses of a format are a struct sockaddr, which begins with its family.
func socketFormat(format uint32) bool { return format >= 1 && format <= 3 }
