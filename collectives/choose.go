package collectives

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Via says whether most messages of a communicator go over shared memory or a network.
type Via uint8

// The values of Via. AnyVia is only in rules.
const (
	AnyVia Via = iota
	SharedMemory
	Network
)

func (v Via) String() string { return [...]string{"any", "shm", "net"}[v] }

// CPUs says whether each rank has a CPU.
type CPUs uint8

// The values of CPUs. AnyCPUs is only in rules. Ranks that have agreed on a board know alike which of the two they are:
// Roomy if they do not outnumber the CPUs of their host. All other ranks count as crowded.
const (
	AnyCPUs CPUs = iota
	Crowded
	Roomy
)

func (c CPUs) String() string { return [...]string{"any", "crowded", "roomy"}[c] }

// holds reports whether a line with this condition counts for ranks that are roomy or not.
func (c CPUs) holds(roomy bool) bool { return c == AnyCPUs || (c == Roomy) == roomy }

// rule is one line of the table: for calls within its limits, and which its algorithm fits, it gives the name. Bytes
// are those of Count (what one rank contributes) and of the v forms' InCounts or OutCounts on average.
type rule struct {
	operation Operation
	bytes     int64 // at most
	ranks     int   // at most; negative: a power of two (powersOfTwo)
	perHost   int   // at least, on average; 0: also where hosts are not known
	via       Via
	cpus      CPUs
	name      string
}

const (
	unbounded = math.MaxInt
	kib       = int64(1) << 10
	mib       = int64(1) << 20
)

// powersOfTwo is the limit of a line for a power of two of ranks, n at most: with other numbers some algorithms move
// the whole vector twice more.
func powersOfTwo(n int) int { return -n }

// mostRanks is the limit of r, and whether it is for powers of two.
func (r *rule) mostRanks() (most int, powers bool) {
	if r.ranks < 0 {
		return -r.ranks, true
	}
	return r.ranks, false
}

// hasRanks reports whether r is for so many ranks.
func (r *rule) hasRanks(n int) bool {
	most, powers := r.mostRanks()
	return n <= most && (!powers || n&(n-1) == 0)
}

// table is read from above; the first line that holds and fits is taken. The last of each operation always does. While
// ranks compute an algorithm that needs attention does not fit: lines below it are for such calls. The table's limits
// are where curves of gorun simulate cross, on the model cluster with 1 and 16 ranks per host; limits for two ranks
// were measured, and limits for up to 8 or 16 ranks on hosts of two or more with four (docs/decisions/choice.md).
// Limits of roomy ranks were measured with 4, 8 and 16 ranks on 16 processors, from 1 KiB to 4 MiB
// (testdata/cores16.txt). Limits of crowded ranks for "direct" were measured with 8 ranks on two processors
// (docs/decisions/direct-reads.md): they take it for no more ranks, and not where it was slower. Lines for two ranks
// are the same for both.
var table = []rule{
	{Barrier, unbounded, 2, 0, SharedMemory, AnyCPUs, "dissemination"},
	{Barrier, unbounded, unbounded, 0, AnyVia, AnyCPUs, "shared"},
	{Barrier, unbounded, 16, 2, Network, AnyCPUs, "two_level"},
	{Barrier, unbounded, unbounded, 8, Network, AnyCPUs, "two_level"},
	{Barrier, unbounded, unbounded, 0, AnyVia, AnyCPUs, "dissemination"},

	{Bcast, 32, 2, 0, SharedMemory, AnyCPUs, "binomial"},
	{Bcast, 1 * kib, 2, 0, SharedMemory, AnyCPUs, "shared"},
	{Bcast, 8 * kib, 2, 0, SharedMemory, AnyCPUs, "binomial"},
	{Bcast, 512 * kib, 2, 0, SharedMemory, AnyCPUs, "direct"},
	{Bcast, unbounded, 2, 0, SharedMemory, AnyCPUs, "binomial"},
	{Bcast, 8 * kib, unbounded, 0, AnyVia, AnyCPUs, "shared"},
	{Bcast, unbounded, 4, 0, AnyVia, Roomy, "binomial"},
	{Bcast, unbounded, unbounded, 0, AnyVia, Roomy, "shared"},
	{Bcast, unbounded, 8, 0, AnyVia, Crowded, "direct"},
	{Bcast, 256 * kib, unbounded, 0, AnyVia, Crowded, "shared"},
	{Bcast, unbounded, 2, 0, Network, AnyCPUs, "binomial"},
	{Bcast, unbounded, 8, 2, Network, AnyCPUs, "two_level"},
	{Bcast, 8 * kib, unbounded, 0, AnyVia, AnyCPUs, "knomial"},
	{Bcast, 128 * kib, 8, 0, AnyVia, AnyCPUs, "knomial"},
	{Bcast, 128 * kib, unbounded, 2, Network, AnyCPUs, "knomial"},
	{Bcast, 128 * kib, unbounded, 0, AnyVia, AnyCPUs, "scatter_doubling"},
	{Bcast, 128 * kib, unbounded, 0, AnyVia, AnyCPUs, "knomial"},
	{Bcast, unbounded, 8, 0, AnyVia, AnyCPUs, "chain"},
	{Bcast, 4 * mib, 1024, 0, AnyVia, AnyCPUs, "scatter_ring"},
	{Bcast, unbounded, 64, 0, AnyVia, AnyCPUs, "chain"},
	{Bcast, unbounded, 1024, 0, AnyVia, AnyCPUs, "scatter_ring"},
	{Bcast, unbounded, 1024, 2, Network, AnyCPUs, "two_level"}, // this and the next: while ranks compute
	{Bcast, unbounded, 1024, 0, AnyVia, AnyCPUs, "knomial"},
	{Bcast, unbounded, unbounded, 0, AnyVia, AnyCPUs, "scatter_doubling"},
	{Bcast, unbounded, unbounded, 2, Network, AnyCPUs, "two_level"},
	{Bcast, unbounded, unbounded, 0, AnyVia, AnyCPUs, "knomial"},

	{Gather, unbounded, 16, 0, AnyVia, AnyCPUs, "linear"},
	{Gather, 512, unbounded, 0, AnyVia, AnyCPUs, "binomial"},
	{Gather, unbounded, 64, 0, AnyVia, AnyCPUs, "linear"},
	{Gather, unbounded, unbounded, 0, AnyVia, AnyCPUs, "binomial"},
	{Gatherv, unbounded, unbounded, 0, AnyVia, AnyCPUs, "linear"},
	{Scatter, unbounded, 16, 0, AnyVia, AnyCPUs, "linear"},
	{Scatter, 512, unbounded, 0, AnyVia, AnyCPUs, "binomial"},
	{Scatter, unbounded, 64, 0, AnyVia, AnyCPUs, "linear"},
	{Scatter, unbounded, unbounded, 0, AnyVia, AnyCPUs, "binomial"},
	{Scatterv, unbounded, unbounded, 0, AnyVia, AnyCPUs, "linear"},

	{Allgather, 2 * kib, 2, 0, SharedMemory, AnyCPUs, "shared"},
	{Allgather, 4 * kib, 2, 0, SharedMemory, AnyCPUs, "doubling"},
	{Allgather, unbounded, 2, 0, SharedMemory, AnyCPUs, "direct"},
	{Allgather, 32 * kib, 2, 0, SharedMemory, AnyCPUs, "doubling"},
	{Allgather, 2 * mib, 2, 0, SharedMemory, AnyCPUs, "shared"},
	{Allgather, unbounded, 2, 0, SharedMemory, AnyCPUs, "doubling"},
	{Allgather, 8 * kib, 4, 0, AnyVia, Roomy, "shared"},
	{Allgather, unbounded, 4, 0, AnyVia, Roomy, "direct"},
	{Allgather, unbounded, unbounded, 0, AnyVia, Roomy, "shared"},
	{Allgather, 256 * kib, unbounded, 0, AnyVia, Crowded, "shared"},
	{Allgather, unbounded, 8, 0, AnyVia, Crowded, "direct"},
	{Allgather, 512, unbounded, 0, AnyVia, AnyCPUs, "doubling"},
	{Allgather, 512, unbounded, 0, AnyVia, AnyCPUs, "bruck"},
	{Allgather, unbounded, 1024, 2, Network, AnyCPUs, "ring"},
	{Allgather, 16 * kib, unbounded, 0, AnyVia, AnyCPUs, "doubling"},
	{Allgather, 4 * kib, unbounded, 0, AnyVia, AnyCPUs, "bruck"},
	{Allgather, unbounded, 1024, 0, AnyVia, AnyCPUs, "ring"},
	{Allgather, unbounded, unbounded, 0, AnyVia, AnyCPUs, "doubling"},
	{Allgather, unbounded, unbounded, 0, AnyVia, AnyCPUs, "bruck"},
	{Allgatherv, 2 * kib, unbounded, 0, AnyVia, AnyCPUs, "bruck"},
	{Allgatherv, unbounded, 1024, 0, AnyVia, AnyCPUs, "ring"},
	{Allgatherv, unbounded, unbounded, 0, AnyVia, AnyCPUs, "bruck"},

	{Alltoall, 1 * kib, 2, 0, SharedMemory, AnyCPUs, "shared"},
	{Alltoall, 4 * kib, 2, 0, SharedMemory, AnyCPUs, "linear"},
	{Alltoall, unbounded, 2, 0, SharedMemory, AnyCPUs, "direct"},
	{Alltoall, unbounded, 2, 0, SharedMemory, AnyCPUs, "linear"},
	{Alltoall, 8 * kib, 8, 0, AnyVia, Roomy, "shared"},
	{Alltoall, 256 * kib, 4, 0, AnyVia, Roomy, "direct"},
	{Alltoall, unbounded, 4, 0, AnyVia, Roomy, "linear"},
	{Alltoall, unbounded, 8, 0, AnyVia, Roomy, "direct"},
	{Alltoall, 16 * kib, 16, 0, AnyVia, Roomy, "shared"},
	{Alltoall, 16 * kib, 8, 0, AnyVia, Crowded, "shared"},
	{Alltoall, unbounded, 8, 0, AnyVia, Crowded, "direct"},
	{Alltoall, 64 * kib, 8, 0, AnyVia, Crowded, "shared"},
	{Alltoall, 2 * kib, unbounded, 0, AnyVia, AnyCPUs, "shared"},
	{Alltoall, unbounded, unbounded, 0, AnyVia, Roomy, "linear"},
	{Alltoall, unbounded, 8, 0, AnyVia, AnyCPUs, "linear"},
	{Alltoall, 128, unbounded, 0, AnyVia, AnyCPUs, "bruck"},
	{Alltoall, 512, 16, 0, AnyVia, AnyCPUs, "linear"},
	{Alltoall, 512, unbounded, 0, AnyVia, AnyCPUs, "bruck"},
	{Alltoall, 16 * kib, 64, 0, AnyVia, AnyCPUs, "linear"},
	{Alltoall, unbounded, unbounded, 0, AnyVia, AnyCPUs, "pairwise"},
	{Alltoallv, 32 * kib, 64, 0, AnyVia, AnyCPUs, "linear"},
	{Alltoallv, unbounded, unbounded, 0, AnyVia, AnyCPUs, "pairwise"},
	{Alltoallw, 32 * kib, 64, 0, AnyVia, AnyCPUs, "linear"},
	{Alltoallw, unbounded, unbounded, 0, AnyVia, AnyCPUs, "pairwise"},

	{Reduce, 32, 2, 0, SharedMemory, AnyCPUs, "binomial"},
	{Reduce, 2 * kib, 2, 0, SharedMemory, AnyCPUs, "shared"},
	{Reduce, 8 * kib, 2, 0, SharedMemory, AnyCPUs, "binomial"},
	{Reduce, 1 * mib, 2, 0, SharedMemory, AnyCPUs, "direct"},
	{Reduce, unbounded, 2, 0, SharedMemory, AnyCPUs, "binomial"},
	{Reduce, 32 * kib, unbounded, 0, AnyVia, AnyCPUs, "shared"},
	{Reduce, 256 * kib, 8, 0, AnyVia, Roomy, "shared"},
	{Reduce, 128 * kib, powersOfTwo(unbounded), 0, AnyVia, Roomy, "rabenseifner"},
	{Reduce, 128 * kib, unbounded, 0, AnyVia, AnyCPUs, "shared"},
	{Reduce, 4 * mib, unbounded, 0, AnyVia, Roomy, "direct"},
	{Reduce, unbounded, 8, 0, AnyVia, AnyCPUs, "direct"},
	{Reduce, 4 * kib, unbounded, 0, AnyVia, AnyCPUs, "knomial"},
	{Reduce, 4 * kib, unbounded, 0, AnyVia, AnyCPUs, "binomial"},
	{Reduce, 4 * mib, unbounded, 0, AnyVia, AnyCPUs, "rabenseifner"},
	{Reduce, unbounded, 64, 0, AnyVia, AnyCPUs, "chain"},
	{Reduce, unbounded, unbounded, 0, AnyVia, AnyCPUs, "rabenseifner"},

	{Allreduce, 32, 2, 0, SharedMemory, AnyCPUs, "doubling"},
	{Allreduce, 32 * kib, 2, 0, SharedMemory, AnyCPUs, "shared"},
	{Allreduce, unbounded, 2, 0, SharedMemory, AnyCPUs, "direct"},
	{Allreduce, 4 * kib, unbounded, 0, AnyVia, AnyCPUs, "shared"},
	{Allreduce, 64 * kib, powersOfTwo(8), 0, AnyVia, Roomy, "rabenseifner"},
	{Allreduce, 64 * kib, 4, 0, AnyVia, Roomy, "shared"},
	{Allreduce, 4 * mib, 4, 0, AnyVia, Roomy, "direct"},
	{Allreduce, 1 * mib, 8, 0, AnyVia, Roomy, "shared"},
	{Allreduce, 512 * kib, powersOfTwo(unbounded), 0, AnyVia, Roomy, "rabenseifner"},
	{Allreduce, 128 * kib, unbounded, 0, AnyVia, Roomy, "shared"},
	{Allreduce, 4 * mib, unbounded, 0, AnyVia, Roomy, "direct"},
	{Allreduce, 4 * mib, unbounded, 0, AnyVia, AnyCPUs, "shared"},
	{Allreduce, 64 * kib, 16, 2, Network, AnyCPUs, "two_level"},
	{Allreduce, 128 * kib, 8, 2, Network, AnyCPUs, "two_level_rabenseifner"},
	{Allreduce, 512 * kib, 8, 2, Network, AnyCPUs, "tree"},
	{Allreduce, 2 * mib, 8, 2, Network, AnyCPUs, "two_level"},
	{Allreduce, unbounded, 8, 2, Network, AnyCPUs, "two_level_rabenseifner"},
	{Allreduce, 2 * kib, unbounded, 8, Network, AnyCPUs, "two_level"},
	{Allreduce, 4 * kib, unbounded, 0, AnyVia, AnyCPUs, "doubling"},
	{Allreduce, 256 * kib, 2, 0, SharedMemory, AnyCPUs, "doubling"},
	{Allreduce, 512 * kib, unbounded, 0, AnyVia, AnyCPUs, "rabenseifner"},
	{Allreduce, unbounded, 64, 0, AnyVia, AnyCPUs, "ring"},
	{Allreduce, unbounded, unbounded, 0, AnyVia, AnyCPUs, "rabenseifner"},

	{ReduceScatter, unbounded, 2, 0, AnyVia, AnyCPUs, "ring"},
	{ReduceScatter, 32 * kib, unbounded, 0, AnyVia, AnyCPUs, "halving"},
	{ReduceScatter, 512 * kib, 16, 0, AnyVia, AnyCPUs, "halving"},
	{ReduceScatter, unbounded, 1024, 0, AnyVia, AnyCPUs, "ring"},
	{ReduceScatter, unbounded, unbounded, 0, AnyVia, AnyCPUs, "halving"},
	{ReduceScatterBlock, unbounded, 2, 0, AnyVia, AnyCPUs, "ring"},
	{ReduceScatterBlock, 32 * kib, unbounded, 0, AnyVia, AnyCPUs, "halving"},
	{ReduceScatterBlock, 512 * kib, 16, 0, AnyVia, AnyCPUs, "halving"},
	{ReduceScatterBlock, unbounded, 1024, 0, AnyVia, AnyCPUs, "ring"},
	{ReduceScatterBlock, unbounded, unbounded, 0, AnyVia, AnyCPUs, "halving"},

	{Scan, 128 * kib, unbounded, 0, AnyVia, AnyCPUs, "doubling"},
	{Scan, unbounded, 16, 0, AnyVia, AnyCPUs, "chain"},
	{Scan, 512 * kib, unbounded, 0, AnyVia, AnyCPUs, "doubling"},
	{Scan, unbounded, 64, 0, AnyVia, AnyCPUs, "chain"},
	{Scan, 4 * mib, unbounded, 0, AnyVia, AnyCPUs, "doubling"},
	{Scan, unbounded, 1024, 0, AnyVia, AnyCPUs, "chain"},
	{Scan, unbounded, unbounded, 0, AnyVia, AnyCPUs, "doubling"},
	{Exscan, 128 * kib, unbounded, 0, AnyVia, AnyCPUs, "doubling"},
	{Exscan, unbounded, 16, 0, AnyVia, AnyCPUs, "chain"},
	{Exscan, 512 * kib, unbounded, 0, AnyVia, AnyCPUs, "doubling"},
	{Exscan, unbounded, 64, 0, AnyVia, AnyCPUs, "chain"},
	{Exscan, 4 * mib, unbounded, 0, AnyVia, AnyCPUs, "doubling"},
	{Exscan, unbounded, 1024, 0, AnyVia, AnyCPUs, "chain"},
	{Exscan, unbounded, unbounded, 0, AnyVia, AnyCPUs, "doubling"},

	{NeighborAllgather, unbounded, unbounded, 0, AnyVia, AnyCPUs, "linear"},
	{NeighborAllgatherv, unbounded, unbounded, 0, AnyVia, AnyCPUs, "linear"},
	{NeighborAlltoall, unbounded, unbounded, 0, AnyVia, AnyCPUs, "linear"},
	{NeighborAlltoallv, unbounded, unbounded, 0, AnyVia, AnyCPUs, "linear"},
	{NeighborAlltoallw, unbounded, unbounded, 0, AnyVia, AnyCPUs, "linear"},

	{InterAllreduce, unbounded, unbounded, 0, AnyVia, AnyCPUs, "leaders"},
	{InterReduce, unbounded, unbounded, 0, AnyVia, AnyCPUs, "leaders"},
	{InterReduceScatter, unbounded, unbounded, 0, AnyVia, AnyCPUs, "leaders"},
	{InterReduceScatterBlock, unbounded, unbounded, 0, AnyVia, AnyCPUs, "leaders"},
	{InterAllgather, unbounded, unbounded, 0, AnyVia, AnyCPUs, "linear"},
	{InterAllgatherv, unbounded, unbounded, 0, AnyVia, AnyCPUs, "linear"},
	{InterAlltoall, unbounded, unbounded, 0, AnyVia, AnyCPUs, "linear"},
	{InterAlltoallv, unbounded, unbounded, 0, AnyVia, AnyCPUs, "linear"},
	{InterAlltoallw, unbounded, unbounded, 0, AnyVia, AnyCPUs, "linear"},
}

// Choice chooses among the algorithms of each operation. The zero Choice chooses by the table.
type Choice struct {
	named [operations]*Algorithm
	text  string
	tuned []tunedRule // before the table
}

// ParseChoice reads names that go before the table: allreduce:ring,bcast:chain. Where one does not fit a call, the
// table decides.
func ParseChoice(text string) (Choice, error) {
	c := Choice{text: text}
	for entry := range strings.SplitSeq(text, ",") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		operation, name, ok := strings.Cut(entry, ":")
		if !ok {
			return Choice{}, fmt.Errorf("%q is not operation:algorithm, such as allreduce:ring", entry)
		}
		o, err := ParseOperation(operation)
		if err != nil {
			return Choice{}, err
		}
		if c.named[o] != nil {
			return Choice{}, fmt.Errorf("%v is named twice: %s and %s", o, c.named[o].Name, name)
		}
		if c.named[o], err = Find(o, name); err != nil {
			return Choice{}, err
		}
	}
	return c, nil
}

// ParseOperation returns the operation that has a name.
func ParseOperation(name string) (Operation, error) {
	names := make([]string, operations)
	for o := range operations {
		if names[o] = o.String(); names[o] == name {
			return o, nil
		}
	}
	return 0, fmt.Errorf("there is no operation %q; there are %s", name, strings.Join(names, ", "))
}

// Named is the algorithm that goes before the table; nil: none.
func (c *Choice) Named(o Operation) *Algorithm { return c.named[o] }

// String is what ParseChoice has read.
func (c *Choice) String() string { return c.text }

// Algorithm returns the algorithm for a call over via. All ranks of a call get the same.
func (c *Choice) Algorithm(o Operation, p *Params, via Via) *Algorithm {
	if a := c.named[o]; a != nil && a.Fits(p) == nil {
		return a
	}
	bytes, perHost := p.bytes(o), 0
	if p.Hosts != nil {
		perHost = p.Size / p.Hosts.Len()
	}
	for i := range c.tuned {
		if r := &c.tuned[i]; r.holds(o, p, bytes, perHost, via) {
			if a := find(o, r.name); a.Fits(p) == nil {
				return a
			}
		}
	}
	for i := range table {
		if r := &table[i]; r.holds(o, p, bytes, perHost, via) {
			if a := find(o, r.name); a.Fits(p) == nil {
				return a
			}
		}
	}
	panic("collectives: no line of the table fits " + o.String())
}

// holds reports whether the line is for such a call.
func (r *rule) holds(o Operation, p *Params, bytes int64, perHost int, via Via) bool {
	return r.operation == o && bytes <= r.bytes && r.hasRanks(p.Size) && perHost >= r.perHost &&
		(r.via == AnyVia || r.via == via) && r.cpus.holds(p.Roomy)
}

// bytes is the size of a call: the same at all its ranks.
func (p *Params) bytes(o Operation) int64 {
	switch o {
	case Gatherv, Scatterv, Alltoallv, Alltoallw: // the counts differ from rank to rank
		return 0
	case Allgatherv:
		return sum(p.OutCounts) / int64(p.Size) * p.ElemSize
	case ReduceScatter:
		return sum(p.InCounts) * p.ElemSize
	case ReduceScatterBlock:
		return p.Count * int64(p.Size) * p.ElemSize
	}
	return p.Count * p.ElemSize
}

func sum(counts []int64) (all int64) {
	for _, n := range counts {
		all += n
	}
	return all
}

// pricedRanks and pricedBytes are the ranks and bytes of the call that prices a line of the table without a limit.
const (
	pricedRanks = 64
	pricedBytes = 4 * mib
)

// priced is a call for which a line of the table holds. Params has no counts for each rank.
func (r *rule) priced() Params {
	ranks, _ := r.mostRanks()
	p := Params{Size: min(ranks, pricedRanks), Count: min(r.bytes, pricedBytes), ElemSize: 1, Commutative: true,
		Roomy: r.cpus == Roomy}
	if r.operation == Barrier {
		p.Count = 0
	}
	perHost := max(1, r.perHost)
	if r.via == SharedMemory {
		perHost = p.Size
	}
	p.Hosts = Blocks{p.Size, perHost}
	return p
}

// Line is a line of the table, for programs, or a line that is tuned (Choice.Tune). The table has no least bytes and
// ranks.
type Line struct {
	Operation  string `json:"operation"`
	LeastBytes int64  `json:"least_bytes,omitempty"`
	Bytes      int64  `json:"most_bytes,omitempty"` // 0: any
	LeastRanks int    `json:"least_ranks,omitempty"`
	Ranks      int    `json:"most_ranks,omitempty"`    // 0: any
	Powers     bool   `json:"powers_of_two,omitempty"` // of ranks
	PerHost    int    `json:"least_ranks_per_host,omitempty"`
	Via        string `json:"over"`
	CPUs       string `json:"cpus"`
	Algorithm  string `json:"algorithm"`
}

// Lines is the table. Of an operation the first line that holds counts.
func Lines() (all []Line) {
	for i := range table {
		r := &table[i]
		l := Line{Operation: r.operation.String(), PerHost: r.perHost, Via: r.via.String(), CPUs: r.cpus.String(),
			Algorithm: r.name}
		if r.bytes != unbounded {
			l.Bytes = r.bytes
		}
		ranks, powers := r.mostRanks()
		if l.Powers = powers; int64(ranks) != unbounded {
			l.Ranks = ranks
		}
		all = append(all, l)
	}
	return all
}

// Print writes the lines that hold for ranks that are roomy or not. Cost fills more columns, which have the heads: for
// each line it is given the algorithm and a call for which the line holds, without counts for each rank.
func Print(w io.Writer, roomy bool, heads []string, cost func(*Algorithm, Params) []string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "operation\tbytes\tranks\tper host\tover\tCPUs\talgorithm\t"+strings.Join(heads, "\t"))
	for i := range table {
		r := &table[i]
		if !r.cpus.holds(roomy) {
			continue
		}
		fmt.Fprintf(t, "%v\t%s\t%s\t%s\t%v\t%v\t%s", r.operation, atMost(r.bytes), r.ranksText(),
			atLeast(r.perHost), r.via, r.cpus, r.name)
		for _, text := range cost(find(r.operation, r.name), r.priced()) {
			fmt.Fprintf(t, "\t%s", text)
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

func (r *rule) ranksText() string {
	switch most, powers := r.mostRanks(); {
	case powers && int64(most) == unbounded:
		return "2^n"
	case powers:
		return "2^n " + atMost(int64(most))
	default:
		return atMost(int64(most))
	}
}

func atMost(n int64) string {
	switch {
	case n == unbounded:
		return "any"
	case n >= mib:
		return fmt.Sprintf("≤ %dM", n/mib)
	case n >= kib && n%kib == 0:
		return fmt.Sprintf("≤ %dK", n/kib)
	}
	return "≤ " + strconv.FormatInt(n, 10)
}

func atLeast(n int) string {
	if n == 0 {
		return "any"
	}
	return fmt.Sprintf("≥ %d", n)
}
