// Package board is how ranks of one host wait for each other in memory that they have in common: transport.Board over
// memory that a device has mapped, and what a device's Poll, Arm and Disarm do for it.
//
//	Owns:     the layout of a board, who sleeps until which word is raised, who wakes them; who writes into
//	          whose memory
//	May call: transport, internal/ring (to prefetch)
//	Never:    map memory, wake a process: it says whom
package board
