// Package eventset is where a rank sleeps until its device has something.
//
// Two sleep there at most: a thread, which wakes fastest (the engine's leader), and a goroutine that the netpoller or a
// channel looks after (its watcher). An arrival wakes the one for which the device is armed; Interrupt wakes both.
//
//	Owns:     the sets of descriptors, the bells of Interrupt, for whom the device is armed
//	May call: transport, golang.org/x/sys
//	Never:    read from a device's descriptor, know what arrives there, poll
package eventset
