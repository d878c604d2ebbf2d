package coll

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/gorun-mpi/mpi/collectives"
	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/pml"
)

const onBoard = "GORUN_COLL=barrier:shared,bcast:shared,allgather:shared,alltoall:shared,reduce:shared,allreduce:shared"

// run calls body as n ranks over transport loop, which do not compare their calls. setting is one of GORUN_COLL.
func run(t *testing.T, n int, setting string, body func(g *Group) error) {
	t.Helper()
	engines, how, err := join.Local(n, join.Options{Environ: []string{"GORUN_COLL_CHECK=0", setting},
		NewRequest: func() *pml.Request { return new(pml.Request) }})
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, n)
	var wg sync.WaitGroup
	for rank, e := range engines {
		wg.Go(func() {
			var g Group
			g.InitWorld(e, rank, n, NewSetup(e, Settings(how)), func(error) {})
			if err := body(&g); err != nil {
				errs[rank] = fmt.Errorf("rank %d: %w", rank, err)
				pml.FailAll(engines, err)
			}
		})
	}
	wg.Wait()
	for _, e := range engines {
		e.Close(errors.New("the test is over"))
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// derive returns a group of the ranks of g. All ranks give the same number, which no other group has.
func derive(g *Group, number int) *Group {
	d := &Group{}
	g.Derive(d, g.Members(), uint32(number))
	d.SetName(fmt.Sprint("derived", number))
	return d
}

func barrier(g *Group) error {
	return g.Plan(Blocking, &Key{Operation: collectives.Barrier, ElemSize: 1, Commutative: true}, nil, nil).Perform(nil)
}

func bcast(g *Group, buf []byte) error {
	p := g.Plan(Blocking, &Key{Operation: collectives.Bcast, ElemSize: 1, Count: int64(len(buf)), Commutative: true},
		nil, nil)
	p.SetBuffer(collectives.Out, buf)
	return p.Perform(nil)
}

// bitOr is an operator.
type bitOr struct{}

func (bitOr) Forget() {}

func (bitOr) Combine(inout, in []byte) {
	for i, b := range in {
		inout[i] |= b
	}
}

// allreduce combines buf of all ranks, of elements of 8 bytes, in place.
func allreduce(g *Group, buf []byte) error {
	p := g.Plan(Blocking, &Key{Operation: collectives.Allreduce, ElemSize: 8, Count: int64(len(buf) / 8), InPlace: true,
		Commutative: true}, nil, nil)
	p.Operator = bitOr{}
	p.SetBuffer(collectives.In, nil)
	p.SetBuffer(collectives.Out, buf)
	return p.Perform(nil)
}
