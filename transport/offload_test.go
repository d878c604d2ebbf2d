package transport

import (
	"math"
	"testing"
)

// A tag has room for 65,536 contexts, 131,072 ranks and all tags; what is beyond is refused, and changes no other part.
func TestPackTag(t *testing.T) {
	const lastContext, lastRank = 1<<16 - 1, 1<<17 - 1
	for _, ctx := range []uint32{0, 1, lastContext} {
		for _, source := range []int32{0, 1, lastRank} {
			for _, tag := range []int32{0, 1, math.MaxInt32} {
				packed, ok := PackTag(ctx, source, tag)
				if c, s, g := UnpackTag(packed); !ok || c != ctx || s != source || g != tag {
					t.Errorf("context %d, source %d, tag %d: %v, and then %d, %d, %d", ctx, source, tag, ok, c, s, g)
				}
			}
		}
	}
	for _, c := range []struct {
		ctx         uint32
		source, tag int32
	}{{lastContext + 1, 0, 0}, {0, lastRank + 1, 0}, {0, -1, 0}, {0, 0, -1}} {
		if packed, ok := PackTag(c.ctx, c.source, c.tag); ok {
			t.Errorf("%+v: %x", c, packed)
		}
	}
}
