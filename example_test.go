package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gorun-mpi/mpi"
)

// The examples run as ranks of one process with RunLocal; a program that gorun starts has the same code in Main.

func Example() {
	err := mpi.RunLocal(2, func(world *mpi.Comm) error {
		if world.Rank() == 0 {
			return mpi.Send(world, []float64{1, 2, 3}, 1, 7)
		}
		buf := make([]float64, 10)
		st, err := mpi.Recv(world, buf, 0, 7)
		if err != nil {
			return err
		}
		fmt.Println("from rank", st.Source, "with tag", st.Tag, buf[:mpi.Count[float64](st)])
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: from rank 0 with tag 7 [1 2 3]
}

// Main is the whole of a program's main function; run it with "gorun -n 4 ./program".
func ExampleMain() {
	main := func() {
		mpi.Main(func(ctx context.Context, world *mpi.Comm) error {
			fmt.Println("rank", world.Rank(), "of", world.Size())
			return nil
		})
	}
	_ = main
}

// Without Main: join, work, leave.
func ExampleInit() {
	program := func() error {
		world, err := mpi.Init()
		if err != nil {
			return err
		}
		if err := mpi.Barrier(world); err != nil {
			mpi.Abort(3) // ends all ranks
		}
		return mpi.Finalize()
	}
	_ = program
}

func ExampleFinalize() {
	err := mpi.Finalize()
	fmt.Println(errors.Is(err, mpi.ErrInit), err)
	// Output: true mpi: Finalize: called before Init
}

func ExampleAbort() {
	check := func(err error) {
		if err != nil {
			fmt.Println(err)
			mpi.Abort(2) // does not return; gorun's exit code is 2
		}
	}
	check(nil)
	// Output:
}

func ExampleRunLocal() {
	err := mpi.RunLocal(3, func(world *mpi.Comm) error {
		if world.Rank() == 2 {
			return errors.New("out of luck")
		}
		return mpi.Barrier(world) // ends with ErrAborted
	})
	fmt.Println(errors.Is(err, mpi.ErrAborted))
	// Output: true
}

func ExampleRunLocal_options() {
	err := mpi.RunLocal(2, mpi.Barrier, mpi.WithEnviron([]string{"GORUN_EAGER_MAX=1KiB"}))
	fmt.Println(err)
	// Output: <nil>
}

func ExampleAlloc() {
	buf, err := mpi.Alloc[float64](1000) // peers on this host copy straight out of it
	if err != nil {
		fmt.Println(err)
		return
	}
	defer buf.Free()
	buf.Slice()[999] = 1
	fmt.Println(len(buf.Slice()))
	// Output: 1000
}

func ExampleComm_WithContext() {
	run(1, func(world *mpi.Comm) error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		_, err := mpi.Recv(world.WithContext(ctx), make([]byte, 1), 0, 5)
		fmt.Println(err)
		return nil
	})
	// Output: mpi: Recv from rank 0 tag 5: context deadline exceeded
}

// Messages of a duplicate never match receives of its parent, so a library that gets a communicator should use one.
func ExampleComm_Dup() {
	run(2, func(world *mpi.Comm) error {
		library, err := world.Dup()
		if err != nil {
			return err
		}
		defer library.Free()
		if world.Rank() == 0 {
			if err := mpi.SendValue(world, "world"[0], 1, 1); err != nil {
				return err
			}
			return mpi.SendValue(library, "library"[0], 1, 1)
		}
		a, _, err := mpi.RecvValue[byte](library, mpi.AnySource, mpi.AnyTag)
		if err != nil {
			return err
		}
		b, _, err := mpi.RecvValue[byte](world, mpi.AnySource, mpi.AnyTag)
		fmt.Printf("%s: %c, %s: %c\n", library.Name(), a, world.Name(), b)
		return err
	})
	// Output: world.dup1: l, world: w
}

func ExampleComm_Free() {
	run(2, func(world *mpi.Comm) error {
		c, err := world.Dup()
		if err != nil {
			return err
		}
		if err := c.Free(); err != nil {
			return err
		}
		if err := mpi.Barrier(c); world.Rank() == 0 {
			fmt.Println(errors.Is(err, mpi.ErrComm))
		}
		return nil
	})
	// Output: true
}

func ExampleComm_Stats() {
	run(1, func(world *mpi.Comm) error {
		err := mpi.Send(world, make([]byte, 100), 0, 1)
		s := world.Stats()
		fmt.Println(s.EagerSent, "message sent,", s.Unexpected, "not received")
		return err
	})
	// Output: 1 message sent, 1 not received
}

func ExampleSend() {
	run(2, func(world *mpi.Comm) error {
		buf := make([]int32, 2)
		if world.Rank() == 0 {
			return mpi.Send(world, []int32{3, 4}, 1, 0)
		}
		_, err := mpi.Recv(world, buf, 0, 0)
		fmt.Println(buf)
		return err
	})
	// Output: [3 4]
}

// Ssend returns when the receiver has matched the message: then rank 0 knows that rank 1 has reached its Recv.
func ExampleSsend() {
	run(2, func(world *mpi.Comm) error {
		if world.Rank() == 0 {
			err := mpi.Ssend(world, []byte("hello"), 1, 0)
			fmt.Println("matched")
			return err
		}
		_, err := mpi.Recv(world, make([]byte, 5), 0, 0)
		return err
	})
	// Output: matched
}

// Bsend copies: the buffer can be reused at once, whatever its length.
func ExampleBsend() {
	run(1, func(world *mpi.Comm) error {
		big := make([]byte, 1<<20)
		if err := mpi.Bsend(world, big, 0, 0); err != nil {
			return err
		}
		st, err := mpi.Recv(world, big, 0, 0)
		fmt.Println(st.Bytes)
		return err
	})
	// Output: 1048576
}

// Rsend may be used when the receive is known to be posted.
func ExampleRsend() {
	run(2, func(world *mpi.Comm) error {
		if world.Rank() == 1 {
			buf := make([]byte, 1)
			r, err := mpi.Irecv(world, buf, 0, 0)
			if err != nil {
				return err
			}
			if err := mpi.Barrier(world); err != nil {
				return err
			}
			_, err = r.Wait()
			fmt.Println(buf)
			return err
		}
		if err := mpi.Barrier(world); err != nil {
			return err
		}
		return mpi.Rsend(world, []byte{9}, 1, 0)
	})
	// Output: [9]
}

// Work for the rank that asks first.
func ExampleRecv_anySource() {
	run(3, func(world *mpi.Comm) error {
		if world.Rank() > 0 {
			return mpi.SendValue(world, world.Rank()*world.Rank(), 0, 1)
		}
		sum := 0
		for range world.Size() - 1 {
			var v [1]int
			if _, err := mpi.Recv(world, v[:], mpi.AnySource, 1); err != nil {
				return err
			}
			sum += v[0]
		}
		fmt.Println(sum)
		return nil
	})
	// Output: 5
}

func ExampleRecvAlloc() {
	run(1, func(world *mpi.Comm) error {
		if err := mpi.Bsend(world, []int16{1, 2, 3}, 0, 1); err != nil {
			return err
		}
		got, _, err := mpi.RecvAlloc[int16](world, 0, 1)
		fmt.Println(got)
		return err
	})
	// Output: [1 2 3]
}

// Both ranks send and receive at the same time, and compute meanwhile.
func ExampleIsend() {
	run(2, func(world *mpi.Comm) error {
		peer := 1 - world.Rank()
		in := make([]int, 1)
		r, err := mpi.Irecv(world, in, peer, 1)
		if err != nil {
			return err
		}
		s, err := mpi.Isend(world, []int{world.Rank() + 10}, peer, 1)
		if err != nil {
			return err
		}
		// Compute here.
		if err := mpi.WaitAll(r, s); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(in)
		}
		return nil
	})
	// Output: [11]
}

func ExampleIrecv() {
	ExampleRequest_Wait()
	// Output: tag 6 [1 2]
}

// The other modes have nonblocking forms too.
func ExampleIssend() {
	run(1, func(world *mpi.Comm) error {
		buf := make([]byte, 1)
		s, err := mpi.Issend(world, []byte{1}, 0, 1)
		if err != nil {
			return err
		}
		done, _, err := s.Test()
		fmt.Println("before the receive:", done, err)
		if _, err := mpi.Recv(world, buf, 0, 1); err != nil {
			return err
		}
		_, err = s.Wait()
		fmt.Println("after it:", err)
		return nil
	})
	// Output:
	// before the receive: false <nil>
	// after it: <nil>
}

func ExampleIbsend() {
	run(1, func(world *mpi.Comm) error {
		s, err := mpi.Ibsend(world, []byte{7}, 0, 1)
		if err != nil {
			return err
		}
		done, _, err := s.Test() // a copy was made: done
		fmt.Println(done, err)
		v, _, err := mpi.RecvValue[byte](world, 0, 1)
		fmt.Println(v)
		return err
	})
	// Output:
	// true <nil>
	// 7
}

func ExampleIrsend() {
	run(1, func(world *mpi.Comm) error {
		buf := make([]byte, 1)
		r, err := mpi.Irecv(world, buf, 0, 1)
		if err != nil {
			return err
		}
		s, err := mpi.Irsend(world, []byte{8}, 0, 1)
		if err != nil {
			return err
		}
		err = mpi.WaitAll(r, s)
		fmt.Println(buf)
		return err
	})
	// Output: [8]
}

// Every rank passes a value to the right.
func ExampleSendrecv() {
	run(3, func(world *mpi.Comm) error {
		n := world.Size()
		right, left := (world.Rank()+1)%n, (world.Rank()+n-1)%n
		got := make([]int, 1)
		if _, err := mpi.Sendrecv(world, []int{world.Rank()}, right, 1, got, left, 1); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(got)
		}
		return nil
	})
	// Output: [2]
}

// At the edge of a domain the neighbour is ProcNull, and nothing is sent or received.
func ExampleSendrecv_procNull() {
	run(3, func(world *mpi.Comm) error {
		up, down := world.Rank()+1, world.Rank()-1
		if up == world.Size() {
			up = mpi.ProcNull
		}
		if down < 0 {
			down = mpi.ProcNull
		}
		halo := []int{-1}
		_, err := mpi.Sendrecv(world, []int{world.Rank()}, up, 1, halo, down, 1)
		if world.Rank() == 0 {
			fmt.Println(halo)
		}
		return err
	})
	// Output: [-1]
}

func ExampleSendrecvReplace() {
	run(2, func(world *mpi.Comm) error {
		buf := []int{world.Rank()}
		peer := 1 - world.Rank()
		_, err := mpi.SendrecvReplace(world, buf, peer, 1, peer, 1)
		if world.Rank() == 0 {
			fmt.Println(buf)
		}
		return err
	})
	// Output: [1]
}

func ExampleIsendrecv() {
	run(2, func(world *mpi.Comm) error {
		in, peer := make([]int, 1), 1-world.Rank()
		r, err := mpi.Isendrecv(world, []int{world.Rank()}, peer, 1, in, peer, 1)
		if err != nil {
			return err
		}
		// Compute here.
		_, err = r.Wait()
		if world.Rank() == 0 {
			fmt.Println(in)
		}
		return err
	})
	// Output: [1]
}

// A buffer made to measure.
func ExampleProbe() {
	run(2, func(world *mpi.Comm) error {
		if world.Rank() == 0 {
			return mpi.Send(world, []int{1, 2, 3}, 1, 4)
		}
		st, err := mpi.Probe(world, mpi.AnySource, mpi.AnyTag)
		if err != nil {
			return err
		}
		buf := make([]int, mpi.Count[int](st))
		_, err = mpi.Recv(world, buf, st.Source, st.Tag)
		fmt.Println(buf)
		return err
	})
	// Output: [1 2 3]
}

func ExampleIprobe() {
	run(1, func(world *mpi.Comm) error {
		_, found, err := mpi.Iprobe(world, mpi.AnySource, mpi.AnyTag)
		fmt.Println(found)
		return err
	})
	// Output: false
}

// With several goroutines that receive, a matched probe keeps the message for the goroutine that probed.
func ExampleMprobe() {
	run(1, func(world *mpi.Comm) error {
		if err := mpi.Bsend(world, []int{1, 2}, 0, 4); err != nil {
			return err
		}
		m, st, err := mpi.Mprobe(world, mpi.AnySource, 4)
		if err != nil {
			return err
		}
		buf := make([]int, mpi.Count[int](st))
		_, err = mpi.Mrecv(m, buf)
		fmt.Println(buf)
		return err
	})
	// Output: [1 2]
}

func ExampleMrecv() {
	ExampleMprobe()
	// Output: [1 2]
}

func ExampleImprobe() {
	run(1, func(world *mpi.Comm) error {
		if err := mpi.Bsend(world, []int{1, 2}, 0, 4); err != nil {
			return err
		}
		m, st, found, err := mpi.Improbe(world, 0, mpi.AnyTag)
		if err != nil || !found {
			return err
		}
		fmt.Println(m)
		buf := make([]int, mpi.Count[int](st))
		r, err := mpi.Imrecv(m, buf)
		if err != nil {
			return err
		}
		_, err = r.Wait()
		fmt.Println(buf)
		return err
	})
	// Output:
	// message from rank 0, tag 4, 16 bytes
	// [1 2]
}

func ExampleImrecv() {
	ExampleImprobe()
	// Output:
	// message from rank 0, tag 4, 16 bytes
	// [1 2]
}

// A message that is sent many times from the same buffer.
func ExampleSendInit() {
	run(2, func(world *mpi.Comm) error {
		peer := 1 - world.Rank()
		out, in := make([]int, 1), make([]int, 1)
		s, err := mpi.SendInit(world, out, peer, 1)
		if err != nil {
			return err
		}
		r, err := mpi.RecvInit(world, in, peer, 1)
		if err != nil {
			return err
		}
		for step := range 3 {
			out[0] = step*10 + world.Rank()
			if err := mpi.StartAll(r, s); err != nil {
				return err
			}
			if err := mpi.WaitAll(r, s); err != nil {
				return err
			}
			if world.Rank() == 0 {
				fmt.Println(in)
			}
		}
		return errors.Join(s.Free(), r.Free())
	})
	// Output:
	// [1]
	// [11]
	// [21]
}

func ExampleRecvInit() {
	ExampleSendInit()
	// Output:
	// [1]
	// [11]
	// [21]
}

func ExampleStartAll() {
	ExampleSendInit()
	// Output:
	// [1]
	// [11]
	// [21]
}

func ExampleRequest_Start() {
	run(1, func(world *mpi.Comm) error {
		buf := []byte{5}
		type sendInit func(*mpi.Comm, []byte, int, int) (*mpi.Request, error)
		for _, init := range []sendInit{mpi.SsendInit[byte], mpi.RsendInit[byte], mpi.BsendInit[byte]} {
			s, err := init(world, buf, 0, 1)
			if err != nil {
				return err
			}
			in := make([]byte, 1)
			r, err := mpi.Irecv(world, in, 0, 1)
			if err != nil {
				return err
			}
			if err := s.Start(); err != nil {
				return err
			}
			if err := mpi.WaitAll(r, s); err != nil {
				return err
			}
			fmt.Println(in, s.Free())
		}
		return nil
	})
	// Output:
	// [5] <nil>
	// [5] <nil>
	// [5] <nil>
}

func ExampleSsendInit() {
	ExampleRequest_Start()
	// Output:
	// [5] <nil>
	// [5] <nil>
	// [5] <nil>
}

func ExampleRsendInit() {
	ExampleRequest_Start()
	// Output:
	// [5] <nil>
	// [5] <nil>
	// [5] <nil>
}

func ExampleBsendInit() {
	ExampleRequest_Start()
	// Output:
	// [5] <nil>
	// [5] <nil>
	// [5] <nil>
}

func ExampleRequest_Free() {
	ExampleRequest_Start()
	// Output:
	// [5] <nil>
	// [5] <nil>
	// [5] <nil>
}

func ExampleRequest_Wait() {
	run(1, func(world *mpi.Comm) error {
		buf := make([]int, 4)
		r, err := mpi.Irecv(world, buf, 0, mpi.AnyTag)
		if err != nil {
			return err
		}
		if err := mpi.Send(world, []int{1, 2}, 0, 6); err != nil {
			return err
		}
		st, err := r.Wait()
		fmt.Println("tag", st.Tag, buf[:mpi.Count[int](st)])
		return err
	})
	// Output: tag 6 [1 2]
}

func ExampleRequest_Test() {
	run(1, func(world *mpi.Comm) error {
		r, err := mpi.Irecv(world, make([]int, 1), 0, 1)
		if err != nil {
			return err
		}
		done, _, err := r.Test()
		fmt.Println(done, err)
		if err := mpi.SendValue(world, 1, 0, 1); err != nil {
			return err
		}
		done, st, err := r.Test()
		fmt.Println(done, st.Bytes, err)
		return nil
	})
	// Output:
	// false <nil>
	// true 8 <nil>
}

// A receive in a select.
func ExampleRequest_Done() {
	run(1, func(world *mpi.Comm) error {
		buf := make([]byte, 1)
		r, err := mpi.Irecv(world, buf, 0, 1)
		if err != nil {
			return err
		}
		if err := mpi.Send(world, []byte{3}, 0, 1); err != nil {
			return err
		}
		select {
		case <-r.Done():
			_, err = r.Wait()
			fmt.Println(buf)
		case <-time.After(time.Minute):
			err = errors.New("nothing came")
		}
		return err
	})
	// Output: [3]
}

func ExampleRequest_Cancel() {
	run(1, func(world *mpi.Comm) error {
		r, err := mpi.Irecv(world, make([]byte, 1), 0, 1)
		if err != nil {
			return err
		}
		if err := r.Cancel(); err != nil {
			return err
		}
		st, err := r.Wait()
		fmt.Println(st.Cancelled, err)
		return nil
	})
	// Output: true <nil>
}

func ExampleWaitAll() {
	ExampleIsend()
	// Output: [11]
}

func ExampleWaitAllStatus() {
	run(1, func(world *mpi.Comm) error {
		a, err := mpi.Irecv(world, make([]byte, 9), 0, 1)
		if err != nil {
			return err
		}
		if err := mpi.Send(world, []byte("four"), 0, 1); err != nil {
			return err
		}
		sts, err := mpi.WaitAllStatus(a, nil)
		fmt.Println(sts[0].Bytes)
		return err
	})
	// Output: 4
}

// Messages in the order in which they come.
func ExampleWaitAny() {
	run(3, func(world *mpi.Comm) error {
		if world.Rank() > 0 {
			return mpi.SendValue(world, 10*world.Rank(), 0, 1)
		}
		in := make([]int, 2)
		rs := make([]*mpi.Request, 2)
		for i := range rs {
			var err error
			if rs[i], err = mpi.Irecv(world, in[i:i+1], i+1, 1); err != nil {
				return err
			}
		}
		sum := 0
		for {
			i, _, err := mpi.WaitAny(rs...)
			if err != nil {
				return err
			}
			if i == mpi.Undefined { // all have been collected
				fmt.Println(sum)
				return nil
			}
			sum += in[i]
			rs[i] = nil
		}
	})
	// Output: 30
}

func ExampleWaitSome() {
	run(1, func(world *mpi.Comm) error {
		rs := make([]*mpi.Request, 3)
		for tag := range rs {
			var err error
			if rs[tag], err = mpi.Irecv(world, make([]byte, 1), 0, tag); err != nil {
				return err
			}
		}
		for _, tag := range []int{2, 0} {
			if err := mpi.Send(world, []byte{1}, 0, tag); err != nil {
				return err
			}
		}
		done, sts, err := mpi.WaitSome(rs...)
		fmt.Println(done, len(sts), err)
		return errors.Join(rs[1].Cancel(), mpi.WaitAll(rs[1]))
	})
	// Output: [0 2] 2 <nil>
}

func ExampleTestAll() {
	run(1, func(world *mpi.Comm) error {
		a, err := mpi.Irecv(world, make([]byte, 1), 0, 1)
		if err != nil {
			return err
		}
		all, err := mpi.TestAll(a)
		fmt.Println(all, err)
		if err := mpi.Send(world, []byte{1}, 0, 1); err != nil {
			return err
		}
		all, err = mpi.TestAll(a)
		fmt.Println(all, err)
		return nil
	})
	// Output:
	// false <nil>
	// true <nil>
}

func ExampleTestAny() {
	run(1, func(world *mpi.Comm) error {
		a, err := mpi.Irecv(world, make([]byte, 1), 0, 1)
		if err != nil {
			return err
		}
		_, found, _, err := mpi.TestAny(a)
		fmt.Println(found, err)
		if err := mpi.Send(world, []byte{1}, 0, 1); err != nil {
			return err
		}
		i, found, _, err := mpi.TestAny(nil, a)
		fmt.Println(i, found, err)
		return nil
	})
	// Output:
	// false <nil>
	// 1 true <nil>
}

func ExampleTestSome() {
	run(1, func(world *mpi.Comm) error {
		a, err := mpi.Isend(world, []byte{1}, 0, 1)
		if err != nil {
			return err
		}
		done, _, err := mpi.TestSome(a)
		fmt.Println(done, err)
		_, err = mpi.Recv(world, make([]byte, 1), 0, 1)
		return err
	})
	// Output: [0] <nil>
}

func ExampleSendValue() {
	type particle struct{ X, Y, Charge float64 }
	run(2, func(world *mpi.Comm) error {
		if world.Rank() == 0 {
			return mpi.SendValue(world, particle{1, 2, -1}, 1, 3)
		}
		p, _, err := mpi.RecvValue[particle](world, 0, 3)
		fmt.Printf("%+v\n", p)
		return err
	})
	// Output: {X:1 Y:2 Charge:-1}
}

func ExampleRecvValue() {
	ExampleSendValue()
	// Output: {X:1 Y:2 Charge:-1}
}

// Values with strings, slices and maps are encoded.
func ExampleSendObject() {
	run(2, func(world *mpi.Comm) error {
		if world.Rank() == 0 {
			return mpi.SendObject(world, map[string][]int{"primes": {2, 3, 5}}, 1, 3)
		}
		m, _, err := mpi.RecvObject[map[string][]int](world, 0, 3)
		fmt.Println(m)
		return err
	})
	// Output: map[primes:[2 3 5]]
}

func ExampleRecvObject() {
	ExampleSendObject()
	// Output: map[primes:[2 3 5]]
}

func ExampleCount() {
	fmt.Println(mpi.Count[int32](mpi.Status{Bytes: 12}), mpi.Count[int64](mpi.Status{Bytes: 12}) == mpi.Undefined)
	// Output: 3 true
}

func ExampleBarrier() {
	run(3, func(world *mpi.Comm) error {
		if err := mpi.Barrier(world); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println("all are here")
		}
		return nil
	})
	// Output: all are here
}

// What was wrong, for programs and for readers.
func ExampleError() {
	run(1, func(world *mpi.Comm) error {
		err := mpi.Send(world, []int{1}, 9, 0)
		var e *mpi.Error
		if errors.Is(err, mpi.ErrRank) && errors.As(err, &e) {
			fmt.Println(e.Op, e.Peer)
		}
		fmt.Println(err)
		fmt.Println(errors.Is(mpi.Send(world, []string{"a"}, 0, 0), mpi.ErrType)) // a string has a pointer
		return nil
	})
	// Output:
	// Send 9
	// mpi: Send to rank 9: the communicator has 1 rank (0)
	// true
}

// run is RunLocal for examples: errors are printed, and so differ from the output that is expected.
func run(n int, body func(world *mpi.Comm) error) {
	if err := mpi.RunLocal(n, body); err != nil {
		fmt.Println(err)
	}
}

// A column of a matrix is sent without being copied together by the program, and received as a slice.
func ExampleSendLayout() {
	const rows, columns = 3, 4
	err := mpi.RunLocal(2, func(world *mpi.Comm) error {
		if world.Rank() == 0 {
			matrix := []float64{
				0, 1, 2, 3,
				10, 11, 12, 13,
				20, 21, 22, 23,
			}
			column := mpi.Vector(rows, 1, columns, mpi.Of[float64]())
			return mpi.SendLayout(world, matrix[2:], column, 1, 0)
		}
		got := make([]float64, rows)
		if _, err := mpi.Recv(world, got, 0, 0); err != nil {
			return err
		}
		fmt.Println(got)
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: [2 12 22]
}
