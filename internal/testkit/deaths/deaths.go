package deaths

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/faulty"
)

// limit is how long a job may take: a hang, not a slow machine.
const limit = time.Minute

// Job says which ranks die, and when.
type Job struct {
	Ranks int
	After map[int]int // steps of the ranks that are to die, from Arm on
	Hosts int         // the ranks are on so many hosts in turn; 0: on one
	Seed  int64       // of misfortunes that the devices have too; 0: they have none
}

func (j Job) String() string {
	return fmt.Sprintf("%d ranks, seed %d, steps of the ranks that die: %v", j.Ranks, j.Seed, j.After)
}

// Rank is one rank. Its Comm is the world.
type Rank struct {
	*mpi.Comm
	job    *run
	death  faulty.Death
	after  int
	settle sync.Once
}

// run is a job.
type run struct {
	ranks   []*Rank
	settled sync.WaitGroup // the ranks that are to die, until they have died or are spared
	living  sync.WaitGroup // the ranks, until their bodies have ended
}

// errDead ends the body of a dead rank.
var errDead = errors.New("the rank has died")

// Run runs body as the ranks of a job, each of which has links to all others. It returns the ranks that have died and
// the errors of the others. Each rank calls Arm and then Settle, once.
func Run(j Job, body func(r *Rank) error) (died []int, err error) {
	defer time.AfterFunc(limit, func() { panic(j.String() + ": hangs") }).Stop()
	job := &run{}
	job.settled.Add(len(j.After))
	job.living.Add(j.Ranks)
	for rank := range j.Ranks {
		job.ranks = append(job.ranks, &Rank{job: job, after: j.After[rank]})
	}
	errs := make([]error, j.Ranks)
	mpi.RunLocal(j.Ranks, func(world *mpi.Comm) (err error) {
		r := job.ranks[world.Rank()]
		r.Comm = world
		defer func() {
			p := recover()
			r.spare() // a body may end with an error before it has called Settle
			job.living.Done()
			switch {
			case p == errDead: // with an error at once, RunLocal would end the calls of the other ranks
				job.living.Wait()
				err = errDead
			case p != nil:
				panic(p)
			case err != nil:
				errs[world.Rank()] = fmt.Errorf("rank %d: %w", world.Rank(), err)
			}
		}()
		for other := range j.Ranks { // a link to each, which tells of the end of a device; no launcher does
			if _, err := mpi.Sendrecv(world, []byte{1}, other, 1, make([]byte, 1), other, 1); err != nil {
				return err
			}
		}
		return body(r)
	}, j.options(job))
	for rank, r := range job.ranks {
		if r.death.Came() {
			died = append(died, rank)
		}
	}
	return died, errors.Join(errs...)
}

func (j Job) options(job *run) mpi.Option {
	return func(o *join.Options) {
		if j.Hosts > 0 {
			o.Host = func(rank int) int { return rank % j.Hosts }
		}
		o.Wrap = func(rank int, d transport.Device) transport.Device {
			var p faulty.Plan
			if j.Seed != 0 {
				p = faulty.Random(j.Seed)
			}
			p.Death = &job.ranks[rank].death
			return faulty.Wrap(d, j.Seed*1000+int64(rank), p)
		}
	}
}

// Arm begins to count the steps of a rank that is to die.
func (r *Rank) Arm() { r.death.After(r.after) }

// Settle ends that. It returns the ranks that live, when all have died or are spared that were to die. It does not
// return on a rank that has died.
func (r *Rank) Settle() (living []int) {
	if r.spare(); r.death.Came() {
		panic(errDead)
	}
	r.job.settled.Wait()
	for rank, other := range r.job.ranks {
		if !other.death.Came() {
			living = append(living, rank)
		}
	}
	return living
}

// spare has a rank live on that has not died.
func (r *Rank) spare() {
	if r.after == 0 {
		return
	}
	r.settle.Do(func() {
		r.death.After(0)
		r.job.settled.Done()
	})
}
