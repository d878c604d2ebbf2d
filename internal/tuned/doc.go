// Package tuned has the file that gorun tune writes: the algorithms of collective calls and the eager limit that were
// measured to be better on a machine than the library's own choice.
//
// A rank reads the file when it joins a job. gorun reads it once for all ranks of a job, and hands them the text.
//
//	Owns:     the format of the file, the places where it is looked for, the checks of what it says, the comparison of
//	          the measured machine with the one at hand
//	May call: the standard library, collectives
//	Never:    read the environment, measure, choose an algorithm
package tuned
