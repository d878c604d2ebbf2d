//go:build verbs

package main

import "github.com/gorun-mpi/mpi/transport/verbs"

func init() { askVerbs = verbs.Query }
