// Package spelling finds the known word that a misspelt word probably means.
//
//	Owns:     the distance between two words
//	May call: the standard library
//	Never:    know which words there are
package spelling
