// Package reach starts agents on hosts: gorun itself, run as "gorun __agent", with a stream of bytes to it.
//
// A [Reach] is one way: [Exec] starts the agent as a process of this host, [Shell] by a remote shell such as ssh or
// kubectl exec -i, whose standard input and output are the stream. The shell is given the one word sh. What the sh
// there is to do comes down the stream, so that no word has to survive the quoting of shells, and no secret is in an
// argument. Where the standard streams cannot be the edge, agents dial: an [Acceptor] (acceptor.go) lets them in if
// they have a [Call] (dial.go), whose key both sides prove to know. [Slurm] has one srun start the agents of an Acceptor
// (slurm.go).
//
//	Owns:     the processes of remote shells, what they say, the causes and what mends them, the script that finds or
//	          brings the agent's binary; the port that agents dial, and the key for that
//	May call: internal/auth
//	Never:    knows a frame, a rank, the secret of a job's ranks
package reach
