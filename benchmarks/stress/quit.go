package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/benchmarks/harness"
)

const quits = 12 // messages that a rank sends in a round of which it tries to take back every other one

const (
	wareTag = iota
	listTag
	silentTag // under which nothing is ever sent
)

// quit sends to the right-hand neighbour, takes some of it back, and tells it what remains; the neighbour must have
// received that and nothing else, in order, and can cancel the receives that are left over. Whether a message can be
// taken back is a race between the two. Meanwhile contexts end calls that wait for what never comes.
func (p *party) quit(round int) error {
	rank, n := p.quits.Rank(), p.quits.Size()
	if n == 1 {
		return p.giveUp(round, 0)
	}
	left, right := (rank+n-1)%n, (rank+1)%n
	var receives [quits]*mpi.Request
	var buffers [quits][]byte
	post := func() (err error) {
		for i := range receives {
			buffers[i] = make([]byte, longestWare)
			if receives[i], err = mpi.Irecv(p.quits, buffers[i], left, wareTag); err != nil {
				return err
			}
		}
		return nil
	}
	if (round+rank)%2 == 0 {
		if err := post(); err != nil {
			return err
		}
	}
	survivors, err := p.sendAndCancel(round, right)
	if err != nil {
		return err
	}
	if err := p.giveUp(round, right); err != nil {
		return err
	}
	if (round+rank)%2 != 0 {
		if err := post(); err != nil {
			return err
		}
	}
	var came [quits]int32
	list, err := mpi.Isend(p.quits, survivors, right, listTag)
	if err != nil {
		return err
	}
	st, err := mpi.Recv(p.quits, came[:], left, listTag)
	if err != nil {
		return err
	}
	if _, err := list.Wait(); err != nil {
		return err
	}
	return judgeQuits(round, left, came[:st.Bytes/4], receives[:], buffers[:])
}

const longestWare = 40_000

// wareLength goes by every protocol.
func wareLength(round, number int) int { return [...]int{8, 1000, 9000, longestWare}[(round+number)%4] }

// sendAndCancel returns the numbers of the messages that could not be taken back.
func (p *party) sendAndCancel(round, right int) (survivors []int32, err error) {
	var sends [quits]*mpi.Request
	for i := range sends {
		buf := make([]byte, wareLength(round, i))
		harness.Fill(buf, round, i)
		if sends[i], err = mpi.Issend(p.quits, buf, right, wareTag); err != nil {
			return nil, err
		}
	}
	for i := 1; i < quits; i += 2 {
		if err := sends[i].Cancel(); err != nil {
			return nil, err
		}
	}
	// Those that are not cancelled wait for their receives, which the neighbour posts when it likes: until it has
	// said that it is there, only the cancelled ones are sure to end.
	for i := 1; i < quits; i += 2 {
		st, err := sends[i].Wait()
		if err != nil {
			return nil, err
		}
		if st.Cancelled {
			p.taken++
		} else {
			survivors = append(survivors, int32(i))
		}
	}
	for i := 0; i < quits; i += 2 {
		p.open = append(p.open, sends[i])
		survivors = append(survivors, int32(i))
	}
	return ordered(survivors), nil
}

func ordered(numbers []int32) []int32 {
	var here [quits]bool
	for _, i := range numbers {
		here[i] = true
	}
	numbers = numbers[:0]
	for i, yes := range here {
		if yes {
			numbers = append(numbers, int32(i))
		}
	}
	return numbers
}

// judgeQuits checks that the first receives got just what came, and cancels the rest.
func judgeQuits(round, left int, came []int32, receives []*mpi.Request, buffers [][]byte) error {
	for i, r := range receives {
		if i >= len(came) {
			if err := r.Cancel(); err != nil {
				return err
			}
		}
		st, err := r.Wait()
		if err != nil {
			return err
		}
		if i >= len(came) {
			if !st.Cancelled {
				return fmt.Errorf("a message of rank %d arrived that had been taken back (%d bytes)", left, st.Bytes)
			}
			continue
		}
		number := int(came[i])
		if st.Cancelled || int(st.Bytes) != wareLength(round, number) || !harness.Check(buffers[i][:st.Bytes], round, number) {
			return fmt.Errorf("receive %d got %+v where message %d of rank %d was next, or wrong contents", i, st, number, left)
		}
	}
	return nil
}

// giveUp waits for what never comes until a context ends.
func (p *party) giveUp(round, peer int) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(round%5)*time.Millisecond)
	defer cancel()
	_, err := mpi.Recv(p.quits.WithContext(ctx), make([]byte, 1), peer, silentTag)
	if !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("a context ended while Recv waited; it says %v", err)
	}
	if _, err = mpi.Probe(p.quits.WithContext(ctx), mpi.AnySource, silentTag); !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("Probe with an ended context says %v", err)
	}
	return nil
}
