// Package layout describes where in memory the elements of a message lie, as MPI's derived datatypes do (MPI 4.1
// chapter 5), and moves them between there and one contiguous piece.
//
// A Type stands for a typemap: a sequence of basic elements, each with its displacement in bytes. The constructors of
// the standard build it from other Types. A Type has the properties that the standard defines for its typemap: size,
// bounds, true bounds. It stores a program: runs of bytes, loops over them, and lists for irregular parts. The program
// merges neighbours, so equal typemaps mostly have equal programs, and contiguous data is one run.
//
// Pack and Unpack begin at any byte of the packed form. They check the Type's bounds against the given memory, and
// touch nothing else. A Type whose numbers do not fit into 64 bits cannot be made.
//
//	Owns:     typemaps, their programs, the copying
//	May call: the standard library
//	Never:    keep memory that it is given, lock, know what a message is
package layout
