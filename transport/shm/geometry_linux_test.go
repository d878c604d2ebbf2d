package shm

import "testing"

// Whatever a user writes into GORUN_SHM_RING, and however many ranks there are, the ring is one that can be made.
func TestGeometry(t *testing.T) {
	for _, local := range []int{1, 2, 16, 17, 64, 65, 10000} {
		for _, bulk := range []int{0, 1, 4095, 16384, 16385, 20000, 1 << 20, 64 << 20, 1 << 40} {
			g := geometry(Options{Local: local, Bulk: bulk})
			if err := g.Check(); err != nil {
				t.Errorf("%d ranks, %d bytes requested: %v", local, bulk, err)
			}
			if bulk > 16<<10 && bulk <= 64<<20 && g.Bulk < bulk {
				t.Errorf("%d ranks: a bulk area of %d bytes was requested, %d were made", local, bulk, g.Bulk)
			}
		}
	}
}
