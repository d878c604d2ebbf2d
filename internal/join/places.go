package join

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gorun-mpi/mpi/internal/pmi"
)

func encodePlaces(places []int) (b []byte) {
	for _, place := range places {
		b = binary.BigEndian.AppendUint32(b, uint32(place))
	}
	return b
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

// parsePlaces reads what encodePlaces has written. b is hostile until then.
func parsePlaces(b []byte, p *Port) (places []int, err error) {
	for last := -1; len(b) >= 4; b = b[4:] {
		place := int(binary.BigEndian.Uint32(b))
		if place <= last || place >= p.Size {
			return nil, fmt.Errorf("place %d follows place %d in a world of %d ranks", place, last, p.Size)
		}
		places, last = append(places, place), place
	}
	if len(b) > 0 || len(places) != p.Size-p.Parents {
		return nil, fmt.Errorf("%d places and %d bytes for %d ranks", len(places), len(b), p.Size-p.Parents)
	}
	return places, nil
}
