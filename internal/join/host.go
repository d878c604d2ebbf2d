package join

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"strings"

	"github.com/gorun-mpi/mpi/internal/place"
)

// Host is a number that the ranks of this host have and no others. The launcher says where ranks are; if it does not,
// the kernel's boot id and the namespaces do that decide what memory processes can share.
func (m *Member) Host() uint64 {
	m.hostOnce.Do(func() { m.host = m.findHost() })
	return m.host
}

func (m *Member) findHost() uint64 {
	if m.client == nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(m.ctx, m.patience)
	defer cancel()
	if text, err := m.client.Mapping(ctx); err == nil {
		if order, err := place.ParseMapping(text); err == nil {
			return uint64(order.HostOf(m.Rank))
		}
	}
	return kernelHost()
}

// kernelHost is below 2⁶² and not below 2⁶¹, so that it is no number of the launcher's.
func kernelHost() uint64 {
	h := fnv.New64a()
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
	return h.Sum64()>>3 | 1<<61
}
