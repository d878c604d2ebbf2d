// Package spelling finds the word that a misspelt one may have been meant to be.
//
//	Owns:     the distance between two words
//	May call: the standard library
//	Never:    knows which words there are
package spelling
