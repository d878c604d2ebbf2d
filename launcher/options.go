package launcher

import (
	"time"

	"github.com/gorun-mpi/mpi/internal/bind"
	"github.com/gorun-mpi/mpi/internal/place"
)

// Stall is what is done about a job in which no rank can move.
type Stall struct {
	Limit time.Duration // it is said after so long; 0: it is not looked for
	Abort bool          // the job ends then
}

// DefaultStall is the Limit of gorun.
const DefaultStall = 10 * time.Second

// Options are the parts of a job that a flag of gorun sets by itself. gorun's flags, [Job] and the message that starts
// an agent embed them: a new flag needs a field here and a line in cmd/gorun/flags.go. Agents are not told of fields
// that JSON leaves out.
type Options struct {
	Place          place.Request // how the ranks are placed on the hosts; its Ranks is not looked at
	AllowUnused    bool          `json:"-"` // a host may get no rank, of those named or of a Slurm allocation
	DisplayMap     bool          `json:"-"`
	Bind           bind.Mode
	ReportBindings bool
	TagOutput      bool   // each line of output begins with [rank]
	Timestamp      bool   // each line of output begins with the time, of the clock of the rank's host
	PrintExits     bool   `json:"-"` // at the end it is said how each rank has ended
	Recover        bool   // a rank that fails, or a host that is lost, does not end the job; Abort does
	Respawn        int    `json:"-"` // ranks that may be started in the places of others; it needs Recover
	OutputDir      string // "": the ranks write to Stdout and Stderr
	// What ranks write to standard error goes where their standard output does, in its order.
	MergeStderr bool
	StdinFor    string        `json:"-"` // "none", "all", or the number of a rank; "" is "0"
	Timeout     time.Duration `json:"-"`
	Stall       Stall         `json:"-"`
	Dump        string        `json:"-"` // the folder for the goroutines of each rank that is asked what it does; "": none
	KillDelay   time.Duration `json:"-"` // between the first Ctrl-C and SIGKILL; 0: DefaultKillDelay
	Insist      time.Duration `json:"-"` // between SIGTERM and SIGKILL after a rank has failed; 0: 250 ms
	Debug       string        // the number of the rank that runs under dlv; "": none does
	LogLevel    string        // of messages to Stderr, as GORUN_LOG has it; "": silent
}
