//go:build !linux

package mpi

// onlyHere are the fabrics that this system has and others have not.
var onlyHere []fabric
