package checkpoint

import (
	"errors"
	"fmt"

	"github.com/gorun-mpi/mpi"
)

// What Save and Restore may end with, apart from the errors of messages.
var (
	// ErrIncomplete: another rank could not save. The checkpoint before is whole, and Save can be called again.
	ErrIncomplete = errors.New("checkpoint: not saved at every rank")
	// ErrLost: a checkpoint was whole, but a rank is lost together with its partners.
	ErrLost = errors.New("checkpoint: no copy is left of a rank's slices")
)

// tagCopy is the tag of copies. They are on the program's communicator, so that Revoke ends a Save too.
const tagCopy = mpi.MaxTag

// Store has the slices of a rank, and copies of them and of other ranks' slices. One goroutine uses it at a time.
type Store struct {
	partners int    // for each rank
	dir      string // "": no files

	items  [][]byte // the program's slices
	length uint64   // of all

	comm     *mpi.Comm       // the program's; nil before the first Restore
	current  header          // the newest checkpoint that all ranks have; Number 0: no checkpoint
	next     uint64          // the number of the next attempt
	own      copies          // of this rank's slices
	held     map[int]*copies // of the slices of other ranks; an old ward's until the next Save has ended
	to       []int           // this rank's partners
	wards    []int           // the ranks whose partner this rank is
	lengths  []uint64        // of the slices of each rank
	unusable error           // Restore must come first: a Save has ended here and may have succeeded elsewhere
}

// Option changes what New makes.
type Option func(*Store)

// Partners sets how many other ranks have a copy of a rank's slices: 1 without it, and at least 0. A job outlives the
// death of any n ranks between two calls of Save. All ranks give the same number.
func Partners(n int) Option { return func(s *Store) { s.partners = n } }

// Dir writes each checkpoint also to the folder path, which must exist, with two files of each rank. A file replaces
// another as a whole, and has a checksum. A rank without a copy in memory reads its files in Restore; so a job that
// begins anew goes on where the one before it has ended.
func Dir(path string) Option { return func(s *Store) { s.dir = path } }

// New returns a store without slices.
func New(options ...Option) *Store {
	s := &Store{partners: 1, held: map[int]*copies{}}
	for _, o := range options {
		o(s)
	}
	return s
}

// Add adds a slice of this rank, before the first Restore. A rank that takes the place of a dead one adds slices of the
// same lengths in the same order; other ranks may have other lengths. Save reads the slice and Restore writes it.
//
// Errors: mpi.ErrType if a T holds pointers; mpi.ErrRequest after Restore.
func Add[T any](s *Store, slice []T) error {
	if err := mpi.Of[T]().Err(); err != nil {
		return fmt.Errorf("checkpoint.Add: %w: %w", mpi.ErrType, err)
	}
	if s.comm != nil {
		return fmt.Errorf("checkpoint.Add: %w: all slices are added before the first Restore", mpi.ErrRequest)
	}
	b := bytesOf(slice)
	s.items = append(s.items, b)
	s.length += uint64(len(b))
	return nil
}

// Save makes a checkpoint of the slices: a collective call of all ranks of the communicator of the last Restore. step
// is what Restore returns for it, and the same at all ranks. Save returns when all ranks have the checkpoint.
//
// An error of a peer that has failed may come at some of the ranks only. Then, and after any error but ErrIncomplete, a
// Restore must follow, at all ranks. The checkpoint before is whole until Save has ended well.
func (s *Store) Save(step int64) error {
	if s.comm == nil {
		return fmt.Errorf("checkpoint.Save: %w: Restore comes first: it says which ranks take part", mpi.ErrRequest)
	}
	if s.unusable != nil {
		return fmt.Errorf("checkpoint.Save: %w: Restore comes first: the last call has failed: %w", mpi.ErrRequest,
			s.unusable)
	}
	h := header{Lineage: s.current.Lineage, Number: s.next, Before: s.current.Number, Step: step,
		Owner: uint32(s.comm.Rank()), Size: uint32(s.comm.Size()), Length: s.length}
	s.next++
	failed := s.copyAll(h)
	// Every rank takes part in the vote, also one that has failed: the others wait for it.
	all, err := vote(s.comm, failed)
	if err != nil {
		s.unusable = errors.Join(failed, err)
		return fmt.Errorf("checkpoint.Save: %w", s.unusable)
	}
	if all >= 0 {
		if failed != nil {
			return fmt.Errorf("checkpoint.Save: %w", errors.Join(ErrIncomplete, failed))
		}
		return fmt.Errorf("checkpoint.Save: %w: rank %d says why", ErrIncomplete, all)
	}
	s.current = h
	s.drop()
	return nil
}

// copyAll makes this rank's part of a checkpoint: its own copy, its partners', its wards' and the file.
func (s *Store) copyAll(h header) error {
	own := s.own.begin(s.current, s.length)
	b := own.data[headerSize:]
	for _, item := range s.items {
		b = b[copy(b, item):]
	}
	h.put(own.data)
	own.end(h)
	errs := s.exchange(h, own)
	if s.dir != "" {
		errs = append(errs, s.write(own))
	}
	return errors.Join(errs...)
}

// exchange sends the own copy to the partners and receives the wards' copies. It waits for each of them.
func (s *Store) exchange(h header, own *slot) (errs []error) {
	in := make([]incoming, len(s.wards))
	for i, w := range s.wards {
		if s.held[w] == nil {
			s.held[w] = &copies{}
		}
		want := h
		want.Owner, want.Length = uint32(w), s.lengths[w]
		in[i] = receive(s.comm, s.held[w].begin(s.current, want.Length), want, w)
	}
	var out mpi.Set
	for _, p := range s.to {
		out.Add(mpi.Isend(s.comm, own.data, p, tagCopy))
	}
	for i := range in {
		errs = append(errs, in[i].wait())
	}
	return append(errs, out.Wait())
}

// incoming is a copy on its way to a slot, which the library owns until wait.
type incoming struct {
	to      *slot
	want    header
	from    int
	request *mpi.Request
	err     error // of the call
}

func receive(c *mpi.Comm, to *slot, want header, from int) incoming {
	in := incoming{to: to, want: want, from: from}
	in.request, in.err = mpi.Irecv(c, to.data, from, tagCopy)
	return in
}

// wait makes the slot whole once all of the expected copy is there.
func (in *incoming) wait() error {
	err := in.err
	if err == nil {
		_, err = in.request.Wait()
	}
	if err == nil && !in.to.end(in.want) {
		err = fmt.Errorf("rank %d has sent a copy of another checkpoint than number %d, step %d: do all ranks give Save "+
			"the same step?", in.from, in.want.Number, in.want.Step)
	}
	return err
}

// vote tells all ranks which rank has failed, the lowest if there are several; -1: all are well.
func vote(c *mpi.Comm, failed error) (int, error) {
	lowest := c.Size()
	if failed != nil {
		lowest = c.Rank()
	}
	lowest, err := mpi.AllreduceValue(c, lowest, mpi.Min[int])
	if lowest == c.Size() {
		lowest = -1
	}
	return lowest, err
}

// drop forgets the copies of ranks whose partner this rank no longer is.
func (s *Store) drop() {
	keep := make(map[int]*copies, len(s.wards))
	for _, w := range s.wards {
		keep[w] = s.held[w]
	}
	s.held = keep
}
