package join

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"strconv"
	"strings"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/place"
	"github.com/gorun-mpi/mpi/internal/pmi"
)

// All ranks have the same Hosts, or what they do together would not fit together. So it follows from values of the
// launcher that are the same for all of them: PMI_process_mapping, or, where there is none that can be used, what rank
// 0 makes of what each rank says about itself. A rank that cannot get the value does not join.

// mapping is where ranks are, as the launcher says; nil: it does not, and each rank has to say so.
func (m *Member) mapping(ctx context.Context, debug func(msg string, args ...any)) (place.Order, error) {
	text, err := m.client.Mapping(ctx)
	switch {
	case errors.Is(err, pmi.ErrNoKey):
		return nil, nil
	case err != nil:
		return nil, err
	}
	order, err := place.ParseMapping(text)
	if err != nil {
		debug("ranks find out by themselves which of them share a host", "since", err)
		return nil, nil
	}
	return order, nil
}

func hostKey(rank int) string { return "gorun-host-" + strconv.Itoa(rank) }

// placesKey is under which rank 0 publishes where all ranks are: the mapping, cut into pieces.
func placesKey(piece int) string { return "gorun-places-" + strconv.Itoa(piece) }

// agree is the mapping that follows from what the ranks have put under their hostKey, when all have done so.
func (m *Member) agree(ctx context.Context) (place.Order, error) {
	if m.Rank == 0 {
		if err := m.putPlaces(ctx); err != nil {
			return nil, err
		}
	}
	if err := m.client.Fence(ctx); err != nil {
		return nil, err
	}
	var text strings.Builder
	for piece := 0; ; piece++ {
		b, err := m.client.Get(ctx, 0, placesKey(piece))
		if err != nil {
			return nil, err
		}
		text.Write(b)
		if len(b) < pmi.MaxPut {
			return place.ParseMapping(text.String())
		}
	}
}

// putPlaces is rank 0's part of agree.
func (m *Member) putPlaces(ctx context.Context) error {
	numbers := map[string]int{}
	hosts := make([]int, m.Size)
	for rank := range hosts {
		b, err := m.client.Get(ctx, rank, hostKey(rank))
		if err != nil {
			return err
		}
		host := string(b)
		if _, known := numbers[host]; !known {
			numbers[host] = len(numbers)
		}
		hosts[rank] = numbers[host]
	}
	text := place.OrderOf(hosts).Mapping()
	for piece := 0; ; piece++ {
		n := min(len(text), pmi.MaxPut)
		if err := m.client.Put(ctx, placesKey(piece), []byte(text[:n])); err != nil {
			return err
		}
		if text = text[n:]; n < pmi.MaxPut {
			return nil
		}
	}
}

// kernelHost tells the host of this process from others, by what decides which memory processes can share: the kernel
// that runs, and the namespaces.
func kernelHost() []byte {
	h := fnv.New128a()
	for _, file := range []string{"/proc/sys/kernel/random/boot_id", "/etc/machine-id"} {
		if b, err := os.ReadFile(file); err == nil {
			fmt.Fprint(h, strings.TrimSpace(string(b)))
			break
		}
	}
	for _, space := range []string{"net", "uts"} {
		to, _ := os.Readlink("/proc/self/ns/" + space)
		fmt.Fprint(h, to)
	}
	if name, err := os.Hostname(); err == nil {
		fmt.Fprint(h, name)
	}
	return h.Sum(nil)
}

// oneHost: all ranks share it.
func oneHost(size int) collectives.Hosts { return collectives.Blocks{Ranks: size, PerHost: size} }
