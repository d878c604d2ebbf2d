// Package place decides which host has which ranks. It reads the notations of users and schedulers for hosts, deals the
// ranks to the hosts, and writes the order of the ranks as launchers pass it on (PMI_process_mapping).
//
// It stores ranges: the order of a million ranks on equal hosts is one range, whether the ranks lie in blocks or in
// turn.
//
//	Owns:     the notations for hosts, the rules by which ranks are dealt, the text of a mapping
//	May call: the standard library, but no clock, descriptor or lock
//	Never:    resolve a name, open a file, know a CPU, start anything
package place
