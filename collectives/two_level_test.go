package collectives

import (
	"math/rand/v2"
	"testing"
)

// A leader sends a Bcast of up to 512 KiB to other hosts and to its own in one round, the other hosts first, and a
// longer one in two rounds. Either gives what it should, from each root and on hosts of any ranks.
func TestBcastAtOnce(t *testing.T) {
	a, err := Find(Bcast, "two_level")
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		elemSize int64
		rounds   int // of the root, which sends to another host and to its own
	}{{1, 1}, {64 << 10, 1}, {64<<10 + 1, 2}, {1 << 20, 2}} {
		for _, size := range []int{4, 5, 12, 17} {
			for _, hosts := range []Hosts{Blocks{size, 2}, Blocks{size, 3}, HostsOf(size, inTurn(2))} {
				for root := range size {
					call := trial{algorithm: a, size: size, root: root, count: 8, commutative: true, hosts: hosts,
						elemSize: c.elemSize}
					for range 3 {
						if err := call.try(random); err != nil {
							t.Fatalf("%v, %d B each: %v", call, c.elemSize, err)
						}
					}
					if hosts.Size(hosts.Host(root)) == 1 {
						continue
					}
					p := call.rank(root).params
					s := new(Builder).Build(a, &p)
					first, _ := s.Round(0)
					if s.Rounds != c.rounds || hosts.Host(int(first[0].Peer)) == hosts.Host(root) {
						t.Errorf("%v, %d B each: the root has %d rounds, want %d; the first is %v", call, c.elemSize,
							s.Rounds, c.rounds, first)
					}
				}
			}
		}
	}
}
