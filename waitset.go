package mpi

import (
	"errors"
	"fmt"

	"github.com/gorun-mpi/mpi/pml"
)

// Sets of requests; MPI 4.1 §3.7.5. nil requests are ignored, as MPI_REQUEST_NULL is, and persistent ones that are not
// started. All must be of one rank.

// engineOf returns the engine of the first request that is not nil, after checking that all have the same.
func engineOf(op string, rs []*Request) (*pml.Engine, error) {
	var e *pml.Engine
	for i, r := range rs {
		switch {
		case r == nil:
		case r.eng == nil:
			return nil, opError(op, ErrRequest, "request %d of %d was not returned by any operation", i, len(rs))
		case e == nil:
			e = r.eng
		case e != r.eng:
			return nil, opError(op, ErrRequest, "request %d of %d belongs to another rank", i, len(rs))
		}
	}
	return e, nil
}

func setMisuse(op string, rs []*Request, i int, err error) error {
	return &Error{Op: op, Class: ErrRequest, Comm: rs[i].comm.name, Peer: Undefined, Tag: Undefined,
		Err: fmt.Errorf("request %d of %d: %w", i, len(rs), err)}
}

// WaitAll waits for all of rs. The error joins those of the operations that failed; the others have completed.
func WaitAll(rs ...*Request) error {
	var failed []error
	if err := waitAll(rs, false, func(i int, st Status, err error) { failed = append(failed, err) }); err != nil {
		return err
	}
	if len(failed) == 1 {
		return failed[0]
	}
	return errors.Join(failed...)
}

// WaitAllStatus is WaitAll that returns the statuses, in the order of rs.
func WaitAllStatus(rs ...*Request) ([]Status, error) {
	sts := make([]Status, len(rs))
	for i := range sts {
		sts[i] = emptyStatus
	}
	var failed []error
	if err := waitAll(rs, true, func(i int, st Status, err error) {
		sts[i] = st
		if err != nil {
			failed = append(failed, err)
		}
	}); err != nil {
		return nil, err
	}
	return sts, errors.Join(failed...)
}

// waitAll hands each result to each, or, unless all, only those that are errors.
func waitAll(rs []*Request, all bool, each func(i int, st Status, err error)) error {
	e, err := engineOf("WaitAll", rs)
	if e == nil {
		return err
	}
	if bad, err := e.WaitAll(setOf(rs), all, func(i int, st pml.Status, err error) {
		s, err := rs[i].result(st, err)
		each(i, s, err)
	}); bad >= 0 {
		return setMisuse("WaitAll", rs, bad, err)
	}
	return nil
}

// WaitAny waits until one of rs is complete and returns its index and result; Undefined if all are nil.
func WaitAny(rs ...*Request) (int, Status, error) {
	index, st, rerr := Undefined, emptyStatus, error(nil)
	err := waitSome("WaitAny", rs, 1, func(i int, s Status, err error) { index, st, rerr = i, s, err })
	if err != nil {
		return Undefined, Status{}, err
	}
	return index, st, rerr
}

// WaitSome waits until at least one of rs is complete and returns the indices and statuses of all that are.
func WaitSome(rs ...*Request) ([]int, []Status, error) {
	var got some
	if err := waitSome("WaitSome", rs, -1, got.add); err != nil {
		return nil, nil, err
	}
	return got.index, got.status, errors.Join(got.failed...)
}

type some struct {
	index  []int
	status []Status
	failed []error
}

func (s *some) add(i int, st Status, err error) {
	s.index, s.status = append(s.index, i), append(s.status, st)
	if err != nil {
		s.failed = append(s.failed, err)
	}
}

func waitSome(op string, rs []*Request, max int, each func(i int, st Status, err error)) error {
	e, err := engineOf(op, rs)
	if e == nil {
		return err
	}
	if bad, err := e.WaitSome(setOf(rs), max, func(i int, st pml.Status, err error) {
		s, err := rs[i].result(st, err)
		each(i, s, err)
	}); bad >= 0 {
		return setMisuse(op, rs, bad, err)
	}
	return nil
}

// TestAll reports whether all of rs are complete; if so they are collected and the error joins theirs. If not, none is.
func TestAll(rs ...*Request) (bool, error) {
	var got some
	done, err := testSome("TestAll", rs, -1, true, got.add)
	if err != nil {
		return false, err
	}
	return done, errors.Join(got.failed...)
}

// TestAny collects one request of rs that is complete, if there is one: its index and result. With no request to wait
// for it reports true and Undefined, as §3.7.5 says.
func TestAny(rs ...*Request) (int, bool, Status, error) {
	index, found, st, rerr := Undefined, false, emptyStatus, error(nil)
	all, err := testSome("TestAny", rs, 1, false, func(i int, s Status, err error) { index, found, st, rerr = i, true, s, err })
	if err != nil {
		return Undefined, false, Status{}, err
	}
	return index, found || all, st, rerr
}

// TestSome collects all requests of rs that are complete, perhaps none.
func TestSome(rs ...*Request) ([]int, []Status, error) {
	var got some
	if _, err := testSome("TestSome", rs, -1, false, got.add); err != nil {
		return nil, nil, err
	}
	return got.index, got.status, errors.Join(got.failed...)
}

func testSome(op string, rs []*Request, max int, all bool, each func(i int, st Status, err error)) (bool, error) {
	e, err := engineOf(op, rs)
	if e == nil {
		return err == nil, err
	}
	done, bad, err := e.TestSome(setOf(rs), max, all, func(i int, st pml.Status, err error) {
		s, err := rs[i].result(st, err)
		each(i, s, err)
	})
	if bad >= 0 {
		return false, setMisuse(op, rs, bad, err)
	}
	return done, nil
}
