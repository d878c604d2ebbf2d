package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
)

const cancels = 12 // messages that a rank sends in a round, of which it tries to cancel some

const (
	dataTag = iota
	listTag
	silentTag // under which nothing is ever sent
)

// cancelSome sends to the right-hand neighbour, cancels some of it, and sends it the list of what remains. The
// neighbour must have received that and nothing else, in order, and can cancel the receives that are left over. Whether
// a message can be cancelled is a race between the two. Meanwhile contexts end calls that wait for what never comes.
func (r *rank) cancelSome(round int) error {
	me, n := r.cancels.Rank(), r.cancels.Size()
	if n == 1 {
		return r.waitForNothing(round, 0)
	}
	left, right := (me+n-1)%n, (me+1)%n
	var receives [cancels]*mpi.Request
	var buffers [cancels][]byte
	post := func() (err error) {
		for i := range receives {
			buffers[i] = make([]byte, longestData)
			if receives[i], err = mpi.Irecv(r.cancels, buffers[i], left, dataTag); err != nil {
				return err
			}
		}
		return nil
	}
	if (round+me)%2 == 0 {
		if err := post(); err != nil {
			return err
		}
	}
	remaining, err := r.sendAndCancel(round, right)
	if err != nil {
		return err
	}
	if err := r.waitForNothing(round, right); err != nil {
		return err
	}
	if (round+me)%2 != 0 {
		if err := post(); err != nil {
			return err
		}
	}
	var came [cancels]int32
	list, err := mpi.Isend(r.cancels, remaining, right, listTag)
	if err != nil {
		return err
	}
	st, err := mpi.Recv(r.cancels, came[:], left, listTag)
	if err != nil {
		return err
	}
	if _, err := list.Wait(); err != nil {
		return err
	}
	return verifyRemaining(round, left, came[:st.Bytes/4], receives[:], buffers[:])
}

const longestData = 40_000

// dataLength goes by every protocol.
func dataLength(round, number int) int { return [...]int{8, 1000, 9000, longestData}[(round+number)%4] }

// sendAndCancel returns the numbers of the messages that could not be cancelled, ascending.
func (r *rank) sendAndCancel(round, right int) (remaining []int32, err error) {
	dice := r.dice(round, ofCancels)
	var sends [cancels]*mpi.Request
	var taken [cancels]bool // back, if that can be done
	for i := range sends {
		buf := make([]byte, dataLength(round, i))
		harness.Fill(buf, round, i)
		if sends[i], err = mpi.Issend(r.cancels, buf, right, dataTag); err != nil {
			return nil, err
		}
	}
	for _, i := range dice.Perm(cancels)[:dice.IntN(cancels+1)] {
		if dice.IntN(4) == 0 {
			time.Sleep(time.Duration(dice.IntN(500)) * time.Microsecond)
		}
		taken[i] = true
		r.tried++
		if err := sends[i].Cancel(); err != nil {
			return nil, err
		}
	}
	// What is to be cancelled ends: it is cancelled, or has its receive already. The other sends may end only when the
	// neighbour, which has got the list, posts its receives: the end of the round waits for them.
	for i, send := range sends {
		if !taken[i] {
			r.open = append(r.open, send)
			remaining = append(remaining, int32(i))
			continue
		}
		st, err := send.Wait()
		if err != nil {
			return nil, err
		}
		if st.Cancelled {
			r.cancelled++
		} else {
			remaining = append(remaining, int32(i))
		}
	}
	return remaining, nil
}

// verifyRemaining checks that the first receives got just what came, and cancels the rest.
func verifyRemaining(round, left int, came []int32, receives []*mpi.Request, buffers [][]byte) error {
	for i, receive := range receives {
		if i >= len(came) {
			if err := receive.Cancel(); err != nil {
				return err
			}
		}
		st, err := receive.Wait()
		if err != nil {
			return err
		}
		if i >= len(came) {
			if !st.Cancelled {
				return fmt.Errorf("a message of rank %d arrived that had been cancelled (%d bytes)", left, st.Bytes)
			}
			continue
		}
		number := int(came[i])
		if st.Cancelled || int(st.Bytes) != dataLength(round, number) ||
			!harness.Check(buffers[i][:st.Bytes], round, number) {
			return fmt.Errorf("receive %d got %+v where message %d of rank %d was next, or wrong contents",
				i, st, number, left)
		}
	}
	return nil
}

// waitForNothing waits for what never comes until a context ends.
func (r *rank) waitForNothing(round, peer int) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(round%5)*time.Millisecond)
	defer cancel()
	comm := r.cancels.WithContext(ctx)
	if _, err := mpi.Recv(comm, make([]byte, 1), peer, silentTag); !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("a context ended while Recv waited; its error is %v", err)
	}
	if _, err := mpi.Probe(comm, mpi.AnySource, silentTag); !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the error of Probe with an ended context is %v", err)
	}
	return nil
}
