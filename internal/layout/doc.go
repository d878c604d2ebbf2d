// Package layout says where in memory the elements of a message lie, as MPI's derived datatypes do (MPI 4.1 chapter 5),
// and moves them between there and one contiguous piece.
//
// A Type stands for a typemap: a sequence of basic elements, each with its displacement in bytes. It is built from
// others by the constructors of the standard, and is what the standard says of its typemap: size, bounds, true bounds.
// What is kept of it is a program: runs of bytes, loops over them, and lists where nothing is regular. Neighbours are
// merged, so that equal typemaps mostly have equal programs, and what is contiguous is one run.
//
// Pack and Unpack begin at any byte of the packed form. They check the Type's bounds against the memory that they are
// given, and touch nothing else; a Type whose numbers do not fit into 64 bits cannot be made.
//
//	Owns:     typemaps, their programs, the copying
//	May call: the standard library
//	Never:    keeps memory that it is given, locks, knows what a message is
package layout
