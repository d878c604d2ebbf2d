package mpi

import "github.com/gorun-mpi/mpi/internal/agree"

// WinDynamic makes a window without memory, to which each rank attaches memory of its own when it likes; §12.2.4
// (MPI_Win_create_dynamic). Every rank of c calls it. Local and Of return nil. The rank that has the memory checks each
// operation: one that is outside is ErrRange of the call itself where that waits for an answer, and otherwise of the
// next Flush or the end of the epoch.
func WinDynamic[T any](c *Comm) (*Win[T], error) {
	return winOf[T](c, agree.MakeWinDynamic, 0, nil, nil)
}

// Attach adds memory to a window of WinDynamic at this rank: a slice of Alloc or any other; §12.2.4. It returns the
// number of the first element, by which operations name the memory, and which the program sends to ranks that are to
// use it. No other memory of the window ever has these numbers, and an operation is within the memory of one Attach.
// The memory is the window's until Detach or Free. Memory that shares elements with memory which is attached already is
// ErrBuffer. No other rank takes part.
func (w *Win[T]) Attach(mem []T) (at int64, err error) {
	w = w.withoutHooks()
	if err := w.valid("Attach"); err != nil {
		return 0, err
	}
	var address uintptr
	if len(mem) > 0 {
		address = uintptr(addressOf(&mem[0]))
	}
	return w.win.Attach(bytesOf(mem), int64(len(mem)), address)
}

// Detach takes memory off a window of WinDynamic, for which Attach has returned at; §12.2.4. Operations there are
// ErrRange from now on. Detach returns when the ones under way are over. If the context ends first, it returns the
// context's error, and can be called again. Memory that is not attached is ErrRange.
func (w *Win[T]) Detach(at int64) error {
	if err := w.valid("Detach"); err != nil {
		return w.observed(err, "Detach", CallSync, Undefined, 0, func(w *Win[T]) error { return w.Detach(at) })
	}
	return w.win.Detach(w.ctx, at)
}
