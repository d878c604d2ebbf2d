// Package place says which host has which ranks. It reads what users and schedulers write about hosts, deals the ranks
// to them, and writes the order of the ranks as launchers pass it on (PMI_process_mapping).
//
// All is kept in ranges: the order of a million ranks on equal hosts is one of them, whether they lie in blocks or in
// turn.
//
//	Owns:     the notations for hosts, the rules by which ranks are dealt, the text of a mapping
//	May call: the standard library, but no clock, descriptor or lock
//	Never:    resolves a name, opens a file, knows a CPU, starts anything
package place
