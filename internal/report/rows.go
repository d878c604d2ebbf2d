package report

// Report is what report.json holds. Times are nanoseconds. Its lists are bounded, but for Ranks.
type Report struct {
	Program    string         `json:"program"`
	Started    string         `json:"started"` // the wall clock of rank 0 after Init
	Findings   []string       `json:"findings"`
	Ranks      []RankRow      `json:"ranks"`
	Sites      []SiteRow      `json:"sites"`       // by time, the longest first; the last may be all others
	Waits      []WaitRow      `json:"waits"`       // by time, the longest first
	OtherWaits RestRow        `json:"other_waits"` // that Waits leaves out
	Sizes      []SizeRow      `json:"sizes"`       // of messages sent, and of operations that write to windows
	Matrix     []Cell         `json:"matrix"`      // without the messages that collective calls consist of
	CellRanks  int            `json:"cell_ranks"`  // a cell of Matrix has messages of so many ranks, From or To first
	Transports []TransportRow `json:"transports"`  // of the messages of Matrix
	Algorithms []AlgorithmRow `json:"algorithms"`
	Imbalance  float64        `json:"imbalance"` // the longest computation of a rank by the mean, 1: none
	Timeline   TimelineRow    `json:"timeline"`
}

// RankRow is a rank.
type RankRow struct {
	Rank      int    `json:"rank"`
	Host      string `json:"host"`
	Transport string `json:"transport"`
	Time      int64  `json:"time"` // from Init to Finalize
	InCalls   int64  `json:"in_calls"`
	Computing int64  `json:"computing"`
	Waiting   int64  `json:"waiting"` // for another rank, as far as the timeline goes
	Calls     int64  `json:"calls"`
	CPU       int64  `json:"cpu"`    // of its process
	Memory    int64  `json:"memory"` // bytes, the most that its process has had
}

// SiteRow is a line of the program, at all ranks.
type SiteRow struct {
	Op      string `json:"op"`
	Kind    string `json:"kind"`
	Func    string `json:"func"`
	File    string `json:"file"`
	Line    int    `json:"line"`
	Ranks   int    `json:"ranks"` // that have come there
	Calls   int64  `json:"calls"`
	Bytes   int64  `json:"bytes"`
	Time    int64  `json:"time"`
	Longest int64  `json:"longest"`
	Waiting int64  `json:"waiting"` // of Time, for another rank, as far as the timeline goes
}

// WaitRow is the time that a rank has waited for another one, at one line of the program.
type WaitRow struct {
	Rank    int    `json:"rank"`
	For     int    `json:"for"`
	Why     string `json:"why"`      // lateSender, lateReceiver or lateCall
	Site    int    `json:"site"`     // in Sites, where Rank waits
	ForSite int    `json:"for_site"` // in Sites, where For comes late
	Times   int64  `json:"times"`
	Time    int64  `json:"time"`
}

// What a rank waits for.
const (
	lateSender   = "late sender"
	lateReceiver = "late receiver"
	lateCall     = "late in a collective call"
)

// RestRow is the sum of rows that have been left out.
type RestRow struct {
	Rows int   `json:"rows"`
	Time int64 `json:"time"`
}

// SizeRow is how many messages have from From up to To bytes.
type SizeRow struct {
	From     int64 `json:"from"`
	To       int64 `json:"to"`
	Messages int64 `json:"messages"`
}

// Cell is what one rank has sent to another one, or written to or read from its window.
type Cell struct {
	From     int   `json:"from"`
	To       int   `json:"to"`
	Messages int64 `json:"messages"`
	Bytes    int64 `json:"bytes"`
}

// TransportRow is what has gone through a transport.
type TransportRow struct {
	Transport string `json:"transport"`
	Pairs     int    `json:"pairs"`
	Messages  int64  `json:"messages"`
	Bytes     int64  `json:"bytes"`
}

// AlgorithmRow is how collective calls with blocks of From to To bytes were made; 0 for calls whose blocks differ.
type AlgorithmRow struct {
	Op         string `json:"op"`
	Algorithms string `json:"algorithms"`
	From       int64  `json:"from"`
	To         int64  `json:"to"`
	Ranks      int    `json:"ranks"`
}

// TimelineRow says how much of the calls is on the timeline.
type TimelineRow struct {
	Kept    int64  `json:"kept"`
	Unkept  int64  `json:"unkept"` // calls later than the kept ones of their rank; the sums have them
	Arrows  int64  `json:"arrows"`
	Strange int64  `json:"strange"` // messages that have no place on the timeline
	Note    string `json:"note,omitempty"`
}

// Limits of the rows of a report. The longest ones are kept.
const (
	mostSites      = 1000
	mostWaits      = 1000
	mostCells      = 1 << 16
	mostTransports = 100
	mostAlgorithms = 1000
	longestName    = 500 // bytes of a name that another rank has sent
)
