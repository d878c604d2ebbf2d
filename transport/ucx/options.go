package ucx

// Options of a device. Rank and Size are those of the world.
type Options struct {
	Rank, Size int
	Library    string                        // path of libucp; "": the system's
	Log        func(msg string, args ...any) // what an operator should see; nil: silent
	Debug      func(msg string, args ...any) // what was chosen, and why; nil: silent
}

func (o *Options) fill() {
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	if o.Debug == nil {
		o.Debug = func(string, ...any) {}
	}
}

// Info is what gorun info prints of the library.
type Info struct {
	Path, Version string
	Resources     []string // transports and devices, as UCX names them: posix/memory, tcp/eth0
}
