// Package multi makes one device of several. Each pair of ranks uses the first device, in order of preference, that
// connects it: ranks that share a host use its memory, and others the network.
//
// Packets go through the inner devices' own links. multi itself works once per connection, and once per poll and sleep.
//
//	Owns:     the inner devices, which of them leads to which peer, in what order they are polled
//	May call: transport
//	Never:    touch a packet's header or payload, know a concrete transport
package multi
