package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
)

const (
	hurried     = 10 // messages of a round that have a deadline
	longestLife = 50 * time.Millisecond
	sharedMax   = 24 // buffers of mpi.Alloc of a rank in a round
	sharedBytes = 128 << 10
)

// life draws a short one more often than a long one.
func life(dice *rand.Rand) time.Duration {
	return time.Duration(dice.Int64N(int64(longestLife))) >> dice.IntN(8)
}

// dice are for one goroutine of one rank in one round.
func (r *rank) dice(round int, what uint64) *rand.Rand {
	return rand.New(rand.NewPCG(r.seed+what, uint64(round)<<24|uint64(r.world.Rank())))
}

const (
	ofCancels = iota + 1
	ofDeadlines
	ofLending
	ofMemory
	ofDescriptors
	ofAll // the same on all ranks
)

// sharedRand are the same on all ranks.
func (r *rank) sharedRand(round int) *rand.Rand {
	return rand.New(rand.NewPCG(r.seed+ofAll, uint64(round)))
}

// forgotten is a buffer whose receive has ended without a message: nothing may write to it any more.
type forgotten struct {
	buf    []byte
	number int
}

func (f forgotten) intact(round int) bool { return harness.Check(f.buf, round, -f.number) }

// deadlines makes a communicator, exchanges messages with the neighbours in calls that soon end by a deadline, and
// frees it while the neighbours may still send. A message comes whole or not at all, and a buffer whose call has ended
// is used again at once.
func (r *rank) deadlines(round int) error {
	comm, err := r.deadlineComm.Dup()
	if err != nil {
		return err
	}
	dice, common := r.dice(round, ofDeadlines), r.sharedRand(round)
	me, n := comm.Rank(), comm.Size()
	left, right := (me+n-1)%n, (me+1)%n
	results := make(chan error, 2*hurried)
	var calls sync.WaitGroup
	var mu sync.Mutex // guards late
	late := 0
	for tag := range hurried {
		room := drawLength(common, *maxLength/4)
		sendLife, receiveLife, synchronous := life(dice), life(dice), dice.IntN(2) == 0
		calls.Go(func() {
			buf := make([]byte, room)
			harness.Fill(buf, round, me*hurried+tag)
			err := within(comm, sendLife, func(c *mpi.Comm) error {
				if synchronous {
					return mpi.Ssend(c, buf, right, tag)
				}
				return mpi.Send(c, buf, right, tag)
			})
			clear(buf)
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				results <- fmt.Errorf("hurried message %d: %w", tag, err)
			}
		})
		calls.Go(func() {
			buf := make([]byte, room)
			err := within(comm, receiveLife, func(c *mpi.Comm) error {
				_, err := mpi.Recv(c, buf, left, tag)
				return err
			})
			switch {
			case errors.Is(err, context.DeadlineExceeded):
				f := forgotten{buf, tag + 1}
				harness.Fill(buf, round, -f.number)
				mu.Lock()
				late++
				r.forgotten = append(r.forgotten, f)
				mu.Unlock()
			case err != nil:
				results <- fmt.Errorf("hurried receive %d: %w", tag, err)
			case !harness.Check(buf, round, left*hurried+tag):
				results <- fmt.Errorf("hurried message %d of rank %d (%d bytes) arrived with wrong contents", tag, left, room)
			}
			progress.Add(1)
		})
	}
	calls.Wait()
	select {
	case err := <-results:
		return err
	default:
	}
	r.late += late
	return comm.Free()
}

// within makes a call with a deadline.
func within(comm *mpi.Comm, life time.Duration, call func(*mpi.Comm) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), life)
	defer cancel()
	return call(comm.WithContext(ctx))
}

// lend sends messages from and into memory of mpi.Alloc, and frees it when all ranks do.
func (r *rank) lend(round int) error {
	dice, common := r.dice(round, ofLending), r.sharedRand(round)
	me, n := r.lent.Rank(), r.lent.Size()
	left, right := (me+n-1)%n, (me+1)%n
	count := 1 + common.IntN(sharedMax/2)
	var buffers []*mpi.Buffer[byte]
	alloc := func(length int) ([]byte, error) {
		b, err := mpi.Alloc[byte](length)
		if errors.Is(err, mpi.ErrNoMemory) && *limits { // for want of a descriptor
			return make([]byte, length), nil
		}
		if err != nil {
			return nil, err
		}
		buffers = append(buffers, b)
		return b.Slice(), nil
	}
	var requests []*mpi.Request
	var came [][]byte
	for tag := range count {
		length := 1 + common.IntN(sharedBytes)
		out, err := alloc(length)
		if err != nil {
			return err
		}
		in, err := alloc(length)
		if err != nil {
			return err
		}
		harness.Fill(out, round, me*sharedMax+tag)
		receive, err := mpi.Irecv(r.lent, in, left, tag)
		if err != nil {
			return err
		}
		send, err := mpi.Isend(r.lent, out, right, tag)
		if err != nil {
			return err
		}
		came, requests = append(came, in), append(requests, receive, send)
	}
	if err := mpi.WaitAll(requests...); err != nil {
		return err
	}
	for tag, in := range came {
		if !harness.Check(in, round, left*sharedMax+tag) {
			return fmt.Errorf("message %d of rank %d (%d bytes of mpi.Alloc) arrived with wrong contents", tag, left, len(in))
		}
	}
	progress.Add(1)
	dice.Shuffle(len(buffers), func(i, j int) { buffers[i], buffers[j] = buffers[j], buffers[i] })
	for _, b := range buffers {
		if err := b.Free(); err != nil {
			return err
		}
	}
	r.freed += len(buffers)
	return nil
}

// checkForgotten looks at the end of a round whether a receive that had ended has been written to.
func (r *rank) checkForgotten(round int) error {
	for _, f := range r.forgotten {
		if !f.intact(round) {
			return fmt.Errorf("hurried receive %d had ended by its deadline, and then its buffer of %d bytes was written to",
				f.number-1, len(f.buf))
		}
	}
	r.forgotten = nil
	return nil
}
