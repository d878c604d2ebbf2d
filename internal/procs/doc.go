// Package procs starts the ranks of one host as processes, hears of their ends, and leaves nothing behind.
//
// [Local] starts each rank of a [Spec] in a process group of its own and delivers one [Exit] for it. Linux kills the
// ranks when gorun dies. A second process, the cleaner ([Clean]), survives a SIGKILL of gorun and kills the processes
// that the ranks have started. The package also handles the events that reach gorun's own process: signals ([Signals]),
// stops of its children ([WatchStops]), and times in which it did not run ([Pulse]).
//
//	Owns:     processes from their start to their reaping, their environment, the control socket, gorun's signals
//	May call: internal/pmi (names of variables), internal/reach (to know the remote shells among its children)
//	Never:    read or write a rank's streams, decide whether a job has failed, print
package procs
