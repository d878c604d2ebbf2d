// Package eventset is the place where a rank sleeps until its device has an event.
//
// At most two sleepers share a set: a thread, which wakes fastest (the engine's leader), and a goroutine, which waits
// in the netpoller or on a channel (its watcher). An arrival wakes the sleeper for which the device is armed; Interrupt
// wakes both.
//
//	Owns:     the sets of descriptors, the doorbells of Interrupt, for which sleeper the device is armed
//	May call: transport, golang.org/x/sys
//	Never:    read from a device's descriptor, know what arrives there, poll
package eventset
