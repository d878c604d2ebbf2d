// Package doze is one place in which a rank sleeps until any of several descriptors is readable.
//
// Two sleep there at most: a goroutine whose thread is put to sleep with it (hold), which wakes fastest, and one that
// the netpoller looks after. A place sleeps as transport.Device says: who has armed is woken, who has not is not, and
// Interrupt ends both.
//
//	Owns:     the sets of descriptors, the bells of Interrupt, who is armed
//	May call: golang.org/x/sys
//	Never:    read from a descriptor that was added, know what arrives there
package doze
