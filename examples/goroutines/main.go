// Goroutines shows that any goroutine may send and receive, and how a context ends a call that waits.
//
// Every rank runs a small server: goroutines that receive questions from any rank and answer them. Every rank also runs
// many clients at once. Each client asks the ranks in turn, and waits for answers under its own tag. When all clients
// of all ranks are done, the context of the servers is cancelled, which ends their Recv.
//
//	gorun -n 4 ./examples/goroutines -clients 200
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sync"

	"github.com/gorun-mpi/mpi"
)

var (
	clients   = flag.Int("clients", 100, "clients on each rank")
	questions = flag.Int("questions", 20, "questions of each client")
)

const (
	servers     = 4 // goroutines on each rank
	questionTag = 1
	answerTag   = 1000 // and above: one for each client, so that each is woken by its own answer only
)

// question asks a rank for the square of a number.
type question struct {
	Number   int64
	ReplyTag int64
}

func main() {
	flag.Parse()
	mpi.Main(run)
}

func run(ctx context.Context, world *mpi.Comm) error {
	serving, stop := context.WithCancel(ctx)
	defer stop()
	var served group
	for range servers {
		served.start(func() error { return serve(world.WithContext(serving)) })
	}
	var asked group
	for client := range *clients {
		asked.start(func() error { return ask(world.WithContext(ctx), client) })
	}
	if err := asked.wait(); err != nil {
		return err
	}
	// A server may end only after the questions of all ranks have been answered.
	if err := mpi.Barrier(world); err != nil {
		return err
	}
	stop()
	if err := served.wait(); err != nil {
		return err
	}
	if world.Rank() == 0 {
		fmt.Printf("%d ranks: %d clients asked %d questions, all answers were right\n",
			world.Size(), world.Size()**clients, world.Size()**clients**questions)
	}
	return nil
}

// serve answers until its context ends.
func serve(world *mpi.Comm) error {
	for {
		q, status, err := mpi.RecvValue[question](world, mpi.AnySource, questionTag)
		if errors.Is(err, context.Canceled) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := mpi.SendValue(world, q.Number*q.Number, status.Source, int(q.ReplyTag)); err != nil {
			return err
		}
	}
}

// ask is one client: it asks the ranks by turns. Neighbouring clients begin with different ranks.
func ask(world *mpi.Comm, client int) error {
	tag := answerTag + client
	for i := range *questions {
		server, number := (client+i)%world.Size(), int64(world.Rank()*1_000_000+client*1000+i)
		if err := mpi.SendValue(world, question{number, int64(tag)}, server, questionTag); err != nil {
			return err
		}
		answer, _, err := mpi.RecvValue[int64](world, server, tag)
		if err != nil {
			return err
		}
		if answer != number*number {
			return fmt.Errorf("rank %d says that the square of %d is %d", server, number, answer)
		}
	}
	return nil
}

// group runs goroutines and keeps the first error.
type group struct {
	wg    sync.WaitGroup
	once  sync.Once
	first error
}

func (g *group) start(f func() error) {
	g.wg.Go(func() {
		if err := f(); err != nil {
			g.once.Do(func() { g.first = err })
		}
	})
}

func (g *group) wait() error {
	g.wg.Wait()
	return g.first
}
