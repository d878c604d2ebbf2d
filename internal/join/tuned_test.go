package join

import (
	"errors"
	"testing"

	"github.com/gorun-mpi/mpi/pml"
)

// RunLocal reads no tuned file: lines are measured between processes.
func TestLocalHasNoTunedFile(t *testing.T) {
	engines, how, err := Local(2, Options{Environ: []string{"GORUN_TUNED=/nowhere/tuned.json"},
		NewRequest: func() *pml.Request { return new(pml.Request) }})
	if err != nil {
		t.Fatal(err)
	}
	if how.Choice.String() != "" {
		t.Errorf("the choice is %s", &how.Choice)
	}
	for _, e := range engines {
		e.Close(errors.New("the test is over"))
	}
}
