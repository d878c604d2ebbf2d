package join

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gorun-mpi/mpi/internal/pmi"
)

// Places are where the ranks that are spawned stand in a communicator of the world's size. The parents fill the other
// places in their order.
type Places struct {
	Ranks []int  // in ascending order
	Name  string // of the communicator
	Count uint32 // of the calls that give such names
}

// nameMost is how much of a name the spawned ranks are told.
const nameMost = 1 << 10

func (p *Places) encode() []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(p.Ranks)))
	for _, place := range p.Ranks {
		b = binary.BigEndian.AppendUint32(b, uint32(place))
	}
	return append(binary.BigEndian.AppendUint32(b, p.Count), p.Name[:min(len(p.Name), nameMost)]...)
}

// findPlaces sets p.Places, if the ranks of this job have some.
func (m *Member) findPlaces(ctx context.Context, p *Port) error {
	b, err := m.client.Get(ctx, 0, pmi.PlacesKey)
	if errors.Is(err, pmi.ErrNoKey) {
		return nil
	}
	if err == nil {
		p.Places, err = parsePlaces(b, p)
	}
	return err
}

// parsePlaces reads what encode has written. b is hostile until then.
func parsePlaces(b []byte, p *Port) (*Places, error) {
	n := p.Size - p.Parents
	word := func(i int) uint32 { return binary.BigEndian.Uint32(b[4*i:]) }
	if named := len(b) - 4*(n+2); named < 0 || named > nameMost || word(0) != uint32(n) {
		return nil, fmt.Errorf("%d bytes for the places of %d ranks: build all programs from the same release", len(b), n)
	}
	last, places := -1, &Places{Name: string(b[4*(n+2):]), Count: word(n + 1)}
	for i := range n {
		place := int(word(i + 1))
		if place <= last || place >= p.Size {
			return nil, fmt.Errorf("place %d follows place %d in a world of %d ranks", place, last, p.Size)
		}
		places.Ranks, last = append(places.Ranks, place), place
	}
	return places, nil
}
