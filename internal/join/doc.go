// Package join makes this process a member of its job: from settings and environment to an engine with a device that
// reaches the other ranks.
//
// [Job] joins the job that the launcher describes (join.go). [Local] makes the ranks of RunLocal, which are goroutines
// of one process (local.go). transports.go has the list of transports, and is the only file that imports them all; it
// chooses among them. open.go turns settings into the options of each transport. spawn.go joins ranks and ranks that
// they have spawned in one more world.
//
//	Owns:     the connection to the launcher and the device, from Job to Member.Close; the list of transports
//	May call: pml, transport, transport/*, internal/bootstrap, internal/bootstrap/detect,
//	          internal/bootstrap/rank0, internal/pmi, internal/place,
//	          internal/cpuset, internal/settings, internal/sysmon, internal/waitpolicy, internal/tuned,
//	          collectives
//	Never:    know a communicator, send a message, end the process
package join
