package bootstrap

import "context"

// Client is what a rank knows of its job, and its way to the other ranks before any transport connects them. All
// methods may be called from any goroutine, and end when their context does.
type Client interface {
	Rank() int
	Size() int
	// Name is the job's, unique on this host at this time.
	Name() string
	// Launcher is the name of the launcher, as this connection has proved it.
	Launcher() string
	// LocalSize is the number of ranks on this host as the launcher says; 0: not known, or gorun's, which is a setting.
	LocalSize() int
	// LauncherPID is a process from which all ranks of this host descend; 0: not known.
	LauncherPID() int
	// Secret is known to the ranks of this job only; nil: the launcher gives none.
	Secret() []byte
	// Mapping is PMI_process_mapping; an error that wraps pmi.ErrNoKey: the launcher does not say it.
	Mapping(ctx context.Context) (string, error)

	// Put stores a value of at most pmi.MaxPut bytes under a key that is put once in a job.
	Put(ctx context.Context, key string, value []byte) error
	// Get returns what a rank has put under key before the last Fence, or an error that wraps pmi.ErrNoKey.
	Get(ctx context.Context, rank int, key string) ([]byte, error)
	// Known is Get for a value that is here already; nil: it is not.
	Known(key string) []byte
	// Fence waits until every rank has called it.
	Fence(ctx context.Context) error
	// FenceAhead is a Fence after which values of keys that follow key by number may be Known.
	FenceAhead(ctx context.Context, key string) error

	// Lost is closed when the launcher is gone; nil: that is not noticed.
	Lost() <-chan struct{}
	// Abort asks for the end of all ranks. It waits for a second at most.
	Abort(code int, message string) error
	// Finalize says that this rank may exit.
	Finalize(ctx context.Context) error
	Close() error
}
