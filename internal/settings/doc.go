// Package settings is the one table of all GORUN_* environment variables, and its reader.
//
// Owns: names, defaults, meanings and syntax of the variables.
// May call: the standard library.
// Never: reads the environment on its own, changes it, logs.
package settings
