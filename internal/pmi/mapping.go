package pmi

import (
	"fmt"
	"strconv"
	"strings"
)

// Mapping is the PMI_process_mapping of a job whose ranks are laid out host by host, perHost[i] on host i: blocks of
// (first host, hosts, ranks on each). Hosts without a rank are not counted. It is "" when PMI-1 cannot carry it; the
// launcher then has no mapping.
func Mapping(perHost []int) string {
	var blocks strings.Builder
	host := 0
	for i := 0; i < len(perHost); {
		n, alike := perHost[i], 0
		for ; i < len(perHost) && (perHost[i] == n || perHost[i] == 0); i++ {
			if perHost[i] != 0 {
				alike++
			}
		}
		if n != 0 {
			fmt.Fprintf(&blocks, ",(%d,%d,%d)", host, alike, n)
			host += alike
		}
	}
	if host == 0 || blocks.Len()+len("(vector)") > valMax {
		return ""
	}
	return "(vector" + blocks.String() + ")"
}

// HostOf is the number of the host of a rank, as a mapping says: blocks are repeated until there are enough ranks. The
// error says what cannot be in it.
func HostOf(mapping string, rank, size int) (int, error) {
	blocks, err := parseMapping(mapping)
	if err != nil {
		return 0, err
	}
	if rank < 0 || rank >= size {
		return 0, fmt.Errorf("there is no rank %d among %d", rank, size)
	}
	all := 0 // ranks of the blocks together
	for _, b := range blocks {
		all += b.hosts * b.perHost
	}
	rank %= all
	for _, b := range blocks {
		if n := b.hosts * b.perHost; rank >= n {
			rank -= n
			continue
		}
		return b.first + rank/b.perHost, nil
	}
	return 0, fmt.Errorf("the mapping %q ends early", mapping)
}

// block is hosts one after the other, with as many ranks each.
type block struct{ first, hosts, perHost int }

// mappingMax bounds what a launcher may say of hosts and of their ranks.
const mappingMax = 1 << 24

func parseMapping(text string) (blocks []block, err error) {
	wrong := fmt.Errorf("the launcher's PMI_process_mapping is %q, which is no (vector,(host,hosts,ranks),…)", text)
	rest, ok := strings.CutPrefix(strings.ReplaceAll(text, " ", ""), "(vector,")
	rest, ok2 := strings.CutSuffix(rest, ")")
	if !ok || !ok2 {
		return nil, wrong
	}
	for _, part := range strings.SplitAfter(rest, ")") {
		part = strings.TrimPrefix(part, ",")
		if part == "" {
			continue
		}
		var b block
		inner, open := strings.CutPrefix(part, "(")
		inner, shut := strings.CutSuffix(inner, ")")
		numbers := strings.Split(inner, ",")
		if !open || !shut || len(numbers) != 3 {
			return nil, wrong
		}
		for i, into := range []*int{&b.first, &b.hosts, &b.perHost} {
			if *into, err = strconv.Atoi(numbers[i]); err != nil || *into < min(i, 1) || *into > mappingMax {
				return nil, wrong
			}
		}
		blocks = append(blocks, b)
	}
	if len(blocks) == 0 {
		return nil, wrong
	}
	return blocks, nil
}
