package ucx

import (
	"encoding/json"
	"fmt"
	"strings"
)

// card is what a rank publishes.
type card struct {
	UCX     string // the version of the library
	Host    string
	PID     int
	Start   string
	Address []byte // of the worker
}

func (c card) encode() []byte {
	b, err := json.Marshal(c)
	if err != nil {
		panic(err) // strings, a number and bytes
	}
	return b
}

// readCard checks what can be checked, for a rank whose library has that version: UCX trusts an address.
func readCard(b []byte, version string) (c card, err error) {
	if err := json.Unmarshal(b, &c); err != nil {
		return c, fmt.Errorf("its address is not one of this transport: %w", err)
	}
	if own, peer := release(version), release(c.UCX); own != peer {
		return c, fmt.Errorf("it has UCX %.20q, and this rank has %q: all ranks must have the same release", peer, own)
	}
	if len(c.Address) == 0 {
		return c, fmt.Errorf("its address is empty")
	}
	return c, nil
}

// release is the part of a version that says whether two of them understand each other: 1.13 of 1.13.1.
func release(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(len(parts), 2)], ".")
}
