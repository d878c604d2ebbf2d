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
//	Owns:     the ranks of a job, the steps at which they die
//	May call: mpi, internal/join (its options), transport, transport/faulty
//	Never:    be imported by anything but tests; judge a result
package deaths
