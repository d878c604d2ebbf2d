package join

import (
	"context"
	"encoding/base64"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/bootstrap"
	"github.com/gorun-mpi/mpi/internal/pmi"
)

// spaceOf is the key space of a spawned job with one key.
type spaceOf struct {
	bootstrap.Client
	keys []pmi.Pair // the parts of it
}

func (s *spaceOf) Get(context.Context, int, string) ([]byte, error) {
	if len(s.keys) == 0 {
		return nil, pmi.ErrNoKey
	}
	text := ""
	for _, p := range s.keys {
		text += p.Value
	}
	if _, parts, several := strings.Cut(text, "."); several {
		return base64.RawURLEncoding.DecodeString(parts)
	}
	return base64.RawURLEncoding.DecodeString(text[1:])
}

// New ranks get the list of origins as the old ones have it, also of 2,000 ranks in random order.
func TestOriginsReachNewRanks(t *testing.T) {
	var odd []int
	for rank := 1; rank < pmi.MaxSpawned; rank += 2 {
		odd = append(odd, rank)
	}
	for name, list := range map[string][]int{"few": {2, 0, 1}, "in random order": rand.New(rand.NewPCG(1, 2)).Perm(2000),
		"every second one": odd, "not known": nil} {
		was := &Port{Size: len(list), Origins: list}
		var q pmi.Spawn
		if err := was.keepOrigins(&q, []int{1, len(list) - 1}); err != nil {
			t.Fatal(err)
		}
		if list != nil && !slices.Equal(q.Dead, []int{list[1], list[len(list)-1]}) {
			t.Errorf("%s: the dead ranks are %v", name, q.Dead)
		}
		is := &Port{Size: len(list)}
		m := &Member{client: &spaceOf{keys: q.Keys}}
		if err := m.findOrigins(t.Context(), is); err != nil || !slices.Equal(is.Origins, list) {
			t.Errorf("%s: a new rank knows %d of %d ranks: %v", name, len(is.Origins), len(list), err)
		}
	}
}
