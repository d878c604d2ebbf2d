// Package memfile is memory that another process of this host and user maps: a file in memory, without a name, which
// that process takes by the number of a descriptor.
//
// A handle names the process and the descriptor. Neither says anything about the file behind them: the process may have
// closed it, or be another one. So the file begins with a secret that is in the handle too, and Open maps no other
// file. The file's length is sealed: no process can take pages away from those that have mapped it.
//
// Repeat has nothing to do with other processes: it maps one piece of memory at many addresses.
//
//	Owns:     the file, its handle, its mappings
//	May call: golang.org/x/sys
//	Never:    keep another process's descriptor, believe a handle, know what the memory is for
package memfile
