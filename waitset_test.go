package mpi

import (
	"context"
	"errors"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// AppendSome collects what WaitSome would, behind what the caller has, and tells each error with its request.
func TestAppendSome(t *testing.T) {
	err := RunLocal(1, func(w *Comm) error {
		in := make([]int32, 2)
		ended, cancel := context.WithCancel(context.Background())
		defer cancel()
		never, err := Irecv(w.WithContext(ended), in[1:], 0, 2)
		if err != nil {
			return err
		}
		cancel()
		rs := []*Request{nil, never, nil}
		if rs[2], err = Irecv(w, in[:1], 0, 1); err != nil {
			return err
		}
		if err := Send(w, []int32{7}, 0, 1); err != nil {
			return err
		}
		done := []Completion{{Index: -7}}
		for len(done) < 3 {
			if done, err = AppendSome(done, rs...); err != nil {
				return err
			}
			for _, d := range done[1:] {
				rs[d.Index] = nil
			}
		}
		if done[0].Index != -7 {
			t.Errorf("what was there is %+v", done[0])
		}
		for _, d := range done[1:] {
			switch {
			case d.Index == 2 && d.Err == nil && d.Status == Status{Source: 0, Tag: 1, Bytes: 4}:
			case d.Index == 1 && errors.Is(d.Err, context.Canceled) && d.Status.Cancelled:
			default:
				t.Errorf("%+v", d)
			}
		}
		if done[1].Index == done[2].Index || in[0] != 7 {
			t.Errorf("%+v, received %d", done[1:], in[0])
		}

		// Nothing to wait for appends nothing, and so does what cannot be waited for.
		if all, err := AppendSome(done, rs...); err != nil || len(all) != 3 {
			t.Errorf("of nil requests: %v %v", all, err)
		}
		if all, err := AppendSome(done, new(Request)); !errors.Is(err, ErrRequest) || len(all) != 3 {
			t.Errorf("of a request that no operation has returned: %v %v", all, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Given room, AppendSome allocates nothing.
func TestAppendSomeAllocatesNothing(t *testing.T) {
	err := RunLocal(1, func(w *Comm) error {
		const n = 50
		in, out := make([]int32, n), []int32{1}
		rs, done := make([]*Request, 2*n), make([]Completion, 0, 2*n)
		round := func() {
			for i := range n {
				rs[i], _ = Irecv(w, in[i:i+1], 0, i)
			}
			for i := range n {
				rs[n+i], _ = Isend(w, out, 0, i)
			}
			for done = done[:0]; len(done) < 2*n; {
				before := len(done)
				var err error
				if done, err = AppendSome(done, rs...); err != nil {
					t.Fatal(err)
				}
				for _, d := range done[before:] {
					rs[d.Index] = nil
				}
			}
		}
		if per := testing.AllocsPerRun(100, round); per >= 1 && !proc.Race {
			t.Errorf("%v allocations a round", per)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
