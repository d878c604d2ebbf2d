package mpi

import (
	"errors"

	"github.com/gorun-mpi/mpi/internal/mpierr"
	"github.com/gorun-mpi/mpi/pml"
)

// Sets of requests; §3.7.5. A set ignores nil requests, as MPI_REQUEST_NULL, and persistent ones that are not started.
// All must be of one rank.

// engineOf returns the engine of the first request that is not nil. The engine checks that all others are its own.
func engineOf(op string, rs []*Request) (*pml.Engine, error) {
	for i, r := range rs {
		if r == nil {
			continue
		}
		e := r.request.Engine()
		if e == nil {
			if r.standIn() != nil {
				return nil, errHooked
			}
			return nil, mpierr.New(op, ErrRequest, "request %d of %d was not returned by any operation", i, len(rs))
		}
		return e, nil
	}
	return nil, nil
}

func setMisuse(op string, rs []*Request, i int, err error) error {
	e := mpierr.New(op, ErrRequest, "request %d of %d: %w", i, len(rs), err)
	if c := rs[i].comm; c != nil {
		mpierr.On(e, c.Name())
	}
	return e
}

// WaitAll waits until all of rs are complete; §3.7.5. Its error joins the errors of failed operations; the other
// operations have succeeded.
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

// WaitAllStatus is WaitAll that also returns len(rs) statuses, in the order of rs; §3.7.5.
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

// waitAll calls each with every result, or, unless all, with those that are errors.
func waitAll(rs []*Request, all bool, each func(i int, st Status, err error)) error {
	e, err := engineOf("WaitAll", rs)
	if e == nil {
		return waitAllOther(rs, all, err, each)
	}
	var landed landings
	bad, err := e.WaitAll(setOf(rs), all || anyLanding(rs), func(i int, st pml.Status, err error) {
		if rs[i].comm.landing != nil && landed.add(i, rs[i], st, err) {
			return
		}
		s, err := rs[i].result(st, err)
		if all || err != nil {
			each(i, s, err)
		}
	})
	landed.land(func(i int, s Status, err error) {
		if all || err != nil {
			each(i, s, err)
		}
	})
	if bad >= 0 {
		return setMisuse("WaitAll", rs, bad, err)
	}
	return nil
}

// waitAllOther is waitAll of requests that have no engine; err is why.
func waitAllOther(rs []*Request, all bool, err error, each func(i int, st Status, err error)) error {
	if err != errHooked {
		return err
	}
	results, _, err := hookedSet("WaitAll", rs, len(rs), true, true, all)
	for _, r := range results {
		each(r.index, r.status, r.err)
	}
	return err
}

// landings are the results of a set that are to be unpacked, or copied to a device. A set's results are handed out
// under the engine's lock, and a long copy has no place there.
type landings []arrived

type arrived struct {
	landing *landing
	index   int
	call    callInfo
	status  pml.Status
	err     error
}

// add notes that request i, which is r and has a landing, has got a result. It reports whether land hands the result
// out, since the copy to a device may fail.
func (l *landings) add(i int, r *Request, st pml.Status, err error) bool {
	*l = append(*l, arrived{r.comm.landing, i, r.callInfo, st, err})
	return r.comm.landing.collect != nil
}

func (l *landings) land(each func(i int, st Status, err error)) {
	for i := range *l {
		a := &(*l)[i]
		if a.landing.collect == nil {
			a.landing.land(a.status)
			continue
		}
		s, err := a.landing.result(&a.call, a.status, a.err)
		each(a.index, s, err)
	}
}

// anyLanding reports whether one of rs has to be unpacked.
func anyLanding(rs []*Request) bool {
	if landingsOpen.Load() == 0 {
		return false
	}
	for _, r := range rs {
		if r != nil && r.comm != nil && r.comm.landing != nil {
			return true
		}
	}
	return false
}

// WaitAny waits until one of rs is complete, and returns its index and result; §3.7.5. The index is Undefined if rs has
// no request to wait for.
func WaitAny(rs ...*Request) (int, Status, error) {
	index, st, rerr := Undefined, emptyStatus, error(nil)
	err := waitSome("WaitAny", rs, 1, nil, func(i int, s Status, err error) { index, st, rerr = i, s, err })
	if err != nil {
		return Undefined, Status{}, err
	}
	return index, st, rerr
}

// WaitSome waits until at least one of rs is complete; §3.7.5. It returns the indices and the statuses of all complete
// requests, two slices of the same length. Its error joins theirs.
func WaitSome(rs ...*Request) ([]int, []Status, error) {
	var got completions
	if err := waitSome("WaitSome", rs, -1, got.begin, got.add); err != nil {
		return nil, nil, err
	}
	return got.index, got.status, errors.Join(got.failed...)
}

// Completion is a complete request of a set.
type Completion struct {
	Index  int // of the request in the set
	Status Status
	Err    error
}

// AppendSome is WaitSome that appends the complete requests to done, each with its own error; §3.7.5. It allocates
// nothing if done has room, as in done, err = AppendSome(done[:0], rs...). If rs cannot be waited for, it returns an
// error, and done as it was.
func AppendSome(done []Completion, rs ...*Request) ([]Completion, error) {
	all := done
	if err := waitSome("AppendSome", rs, -1, nil, func(i int, st Status, err error) {
		all = append(all, Completion{i, st, err})
	}); err != nil {
		return done, err
	}
	return all, nil
}

// completions are the results that a set has collected.
type completions struct {
	index  []int
	status []Status
	failed []error
}

// begin: there will be n.
func (c *completions) begin(n int) { c.index, c.status = make([]int, 0, n), make([]Status, 0, n) }

func (c *completions) add(i int, st Status, err error) {
	c.index, c.status = append(c.index, i), append(c.status, st)
	if err != nil {
		c.failed = append(c.failed, err)
	}
}

func waitSome(op string, rs []*Request, max int, begin func(n int), each func(i int, st Status, err error)) error {
	e, err := engineOf(op, rs)
	if e == nil {
		if err == errHooked {
			results, _, err := hookedSet(op, rs, max, false, true, true)
			if begin != nil {
				begin(len(results))
			}
			for _, r := range results {
				each(r.index, r.status, r.err)
			}
			return err
		}
		return err
	}
	var landed landings
	bad, err := e.WaitSome(setOf(rs), max, begin, func(i int, st pml.Status, err error) {
		if rs[i].comm.landing != nil && landed.add(i, rs[i], st, err) {
			return
		}
		s, err := rs[i].result(st, err)
		each(i, s, err)
	})
	landed.land(each)
	if bad >= 0 {
		return setMisuse(op, rs, bad, err)
	}
	return nil
}

// TestAll reports whether all of rs are complete; §3.7.5. If so, it collects them, and its error joins theirs; if not,
// it collects no request.
func TestAll(rs ...*Request) (bool, error) {
	var got completions
	done, err := testSome("TestAll", rs, -1, true, got.add)
	if err != nil {
		return false, err
	}
	return done, errors.Join(got.failed...)
}

// TestAny reports whether one of rs is complete, and returns its index and result; §3.7.5. If rs has no request to wait
// for, it returns true and the index Undefined.
func TestAny(rs ...*Request) (int, bool, Status, error) {
	index, found, st, rerr := Undefined, false, emptyStatus, error(nil)
	all, err := testSome("TestAny", rs, 1, false, func(i int, s Status, err error) {
		index, found, st, rerr = i, true, s, err
	})
	if err != nil {
		return Undefined, false, Status{}, err
	}
	return index, found || all, st, rerr
}

// TestSome returns the indices and the statuses of all complete requests of rs, perhaps none; §3.7.5. It does not wait.
// Its error joins theirs.
func TestSome(rs ...*Request) ([]int, []Status, error) {
	var got completions
	if _, err := testSome("TestSome", rs, -1, false, got.add); err != nil {
		return nil, nil, err
	}
	return got.index, got.status, errors.Join(got.failed...)
}

func testSome(op string, rs []*Request, max int, all bool, each func(i int, st Status, err error)) (bool, error) {
	e, err := engineOf(op, rs)
	if e == nil {
		if err == errHooked {
			results, over, err := hookedSet(op, rs, max, all, false, true)
			for _, r := range results {
				each(r.index, r.status, r.err)
			}
			return over, err
		}
		return err == nil, err
	}
	var landed landings
	done, bad, err := e.TestSome(setOf(rs), max, all, func(i int, st pml.Status, err error) {
		if rs[i].comm.landing != nil && landed.add(i, rs[i], st, err) {
			return
		}
		s, err := rs[i].result(st, err)
		each(i, s, err)
	})
	landed.land(each)
	if bad >= 0 {
		return false, setMisuse(op, rs, bad, err)
	}
	return done, nil
}
