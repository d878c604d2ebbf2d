package mpi

import "errors"

// Set collects requests that are waited for together; §3.7.5. The zero value is an empty set. Add takes the results of
// a nonblocking call as they are:
//
//	var s mpi.Set
//	s.Add(mpi.Irecv(c, in, left, 0))
//	s.Add(mpi.Isend(c, out, right, 0))
//	err := s.Wait()
//
// A Set can be used again after Wait, and keeps its memory. One goroutine uses it at a time.
type Set struct {
	requests []*Request
	failed   []error // of calls that have returned no request
}

// Add adds the request of a call, or its error, which Wait returns. A nil request without an error is ignored.
func (s *Set) Add(r *Request, err error) {
	if err != nil {
		s.failed = append(s.failed, err)
	}
	if r != nil {
		s.requests = append(s.requests, r)
	}
}

// Len returns the number of requests that are to be waited for.
func (s *Set) Len() int { return len(s.requests) }

// Wait waits until all requests are complete, and leaves the set empty. Its error joins the errors that Add was given
// and the errors of failed operations; the other operations have succeeded. It waits even if Add was given an error:
// for ever, if a receive in the set has no send because another rank could not start it either.
func (s *Set) Wait() error {
	err := WaitAll(s.requests...)
	if errors.Is(err, ErrRequest) { // one of them cannot be waited for, and WaitAll has waited for none
		err = s.waitEach()
	}
	return s.end(err)
}

// waitEach waits for the requests one by one.
func (s *Set) waitEach() error {
	var failed []error
	for _, r := range s.requests {
		if _, err := r.Wait(); err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// Test reports whether all requests are complete; then it does what Wait does. If not, the set stays as it is. A
// request that cannot be waited for is ErrRequest.
func (s *Set) Test() (bool, error) {
	done, err := TestAll(s.requests...)
	if !done {
		return false, err
	}
	return true, s.end(err)
}

// end empties the set. It returns what Add was given, and err.
func (s *Set) end(err error) error {
	clear(s.requests)
	s.requests = s.requests[:0]
	if s.failed == nil {
		return err
	}
	err = errors.Join(append(s.failed, err)...)
	s.failed = nil
	return err
}
