// Package multi makes one device of several: each pair of ranks uses the first in the order of preference that connects
// it, so ranks that share a host use its memory, and others the network.
//
// Packets go through the inner devices' own links. The work here is done once per connection, or once per poll and
// sleep.
//
//	Owns:     the inner devices, which of them leads to which peer, in what order they are polled
//	May call: transport
//	Never:    touch a packet's header or payload, know a concrete transport
package multi
