// Package deaths runs jobs in this process some of whose ranks die at a step that a test chooses. A step is a packet
// that the rank sends or gets: the device of the rank ends there, as by kill -9, and no packet of it comes later.
//
//	died, err := deaths.Run(deaths.Job{Ranks: 5, After: map[int]int{2: 7}}, func(r *deaths.Rank) error {
//		r.Arm()               // rank 2 dies after 7 packets from here on,
//		err := call(r.Comm)
//		living := r.Settle()  // and not any more from here on. A dead rank does not return from it
//		...
//	})
//
// On Linux, Watch and Join are for jobs in processes. A step is there a system call by which the process sends,
// receives or connects, on any socket: to the launcher, to another rank, or a listener. A packet that goes through
// shared memory is a step too. The test kills the process before the call is made, or does something else then.
//
//	Owns:     the ranks of a job, the steps at which they die
//	May call: mpi, internal/join (its options), internal/testkit/proc, internal/wire, transport, transport/faulty
//	Never:    be imported by anything but tests; judge a result
package deaths
