// Package partrun runs the parts of a program that checks a machine, such as internal/tools/gpucheck: other programs,
// each with a limit. It prints what became of them, and keeps what a failed one has printed.
//
//	Owns:     the parts and their results, the files in the folder of the results
//	May call: nothing of this module
//	Never:    know what is checked; judge a figure; need the network, a compiler or the go command
package partrun
