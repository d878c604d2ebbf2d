// Package vswitch is an Ethernet switch in this process, for tests of networks. Its ports are TAP devices, or anything
// that reads and writes a frame at a time. Between each two ports it loses, repeats, delays and reorders frames, drops
// long ones, forgets idle flows as a firewall does, refuses connections, or passes nothing one way.
//
//	Owns:     its ports, from New to Close
//	May call: the kernel, to open a TAP device
//	Never:    enter a namespace or give a device an address; be imported by anything but tests and their kits
package vswitch
