// Package reach starts agents on hosts: gorun itself, run as "gorun __agent", with a stream of bytes to it.
//
// A [Reach] is one way: [Exec] starts the agent as a process of this host, [Shell] by a remote shell such as ssh or
// kubectl exec -i, whose standard input and output are the stream. The shell is given the one word sh. What the sh
// there is to do comes down the stream, so that no word has to survive the quoting of shells, and no secret is in an
// argument.
//
//	Owns:     the processes of remote shells, what they say, the script that finds or brings the agent's binary
//	May call: the standard library
//	Never:    knows a frame, a rank, the key of a job
package reach
