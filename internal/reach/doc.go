// Package reach starts agents on hosts, and connects each by a stream of bytes. An agent is gorun itself, run as "gorun
// __agent".
//
// A [Reach] is one way. [Exec] starts the agent as a process of this host. [Shell] starts it by a remote shell such as
// ssh or kubectl exec -i, whose standard input and output are the stream. The shell gets the one word sh. The script
// for that sh comes down the stream, so no word passes through a shell's quoting, and no secret is in an argument. If
// the standard streams cannot be the edge, agents dial: an [Acceptor] (acceptor.go) admits agents that have a [Call]
// (dial.go), whose key both sides prove. An Acceptor may let in an agent of a host again (readmit.go). [Slurm] has one
// srun start the agents of an Acceptor (slurm.go).
//
//	Owns:     the processes of remote shells and their output, the causes of failures and their remedies, the script
//	          that finds or brings the agent's binary; the port that agents dial, and its key
//	May call: internal/auth
//	Never:    know a frame, a rank, the secret of a job's ranks
package reach
