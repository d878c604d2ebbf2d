package join

import (
	"context"
	"errors"
	"fmt"

	"github.com/gorun-mpi/mpi/internal/pmi"
)

// originsKey is under what ranks that take places find Port.Origins, if they are known.
const originsKey = "gorun-origins"

// keepOrigins tells gorun whose places the processes take, so that it starts them there, and tells it the processes.
func (p *Port) keepOrigins(q *pmi.Spawn, places []int) error {
	if p.Origins == nil {
		return nil
	}
	for _, place := range places {
		q.Dead = append(q.Dead, p.Origins[place])
	}
	if text := pmi.FormatRanks(p.Origins, pmi.MostOrigins); text != "" {
		return q.Keep(originsKey, []byte(text))
	}
	return nil
}

// findOrigins sets p.Origins, if this rank is told of them.
func (m *Member) findOrigins(ctx context.Context, p *Port) error {
	b, err := m.client.Get(ctx, 0, originsKey)
	if errors.Is(err, pmi.ErrNoKey) {
		return nil
	}
	if err == nil {
		var ok bool
		if p.Origins, ok = pmi.ParseRanks(string(b), p.Size); !ok {
			err = fmt.Errorf("%.80q are no ranks of a first world for %d places", b, p.Size)
		}
	}
	return err
}
