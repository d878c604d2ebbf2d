package mpi

import "github.com/gorun-mpi/mpi/internal/coll"

// The calls, made in one of three ways.

func byBarrier(h coll.Way, c *Comm) error {
	switch h {
	case coll.Nonblocking:
		return waited(Ibarrier(c))
	case coll.Persistent:
		return startedOnce(BarrierInit(c))
	}
	return Barrier(c)
}

func byBcast[T any](h coll.Way, c *Comm, buf []T, root int) error {
	switch h {
	case coll.Nonblocking:
		return waited(Ibcast(c, buf, root))
	case coll.Persistent:
		return startedOnce(BcastInit(c, buf, root))
	}
	return Bcast(c, buf, root)
}

func byGather[T any](h coll.Way, c *Comm, send, recv []T, root int) error {
	switch h {
	case coll.Nonblocking:
		return waited(Igather(c, send, recv, root))
	case coll.Persistent:
		return startedOnce(GatherInit(c, send, recv, root))
	}
	return Gather(c, send, recv, root)
}

func byGatherv[T any](h coll.Way, c *Comm, send []T, recv [][]T, root int) error {
	switch h {
	case coll.Nonblocking:
		return waited(Igatherv(c, send, recv, root))
	case coll.Persistent:
		return startedOnce(GathervInit(c, send, recv, root))
	}
	return Gatherv(c, send, recv, root)
}

func byScatter[T any](h coll.Way, c *Comm, send, recv []T, root int) error {
	switch h {
	case coll.Nonblocking:
		return waited(Iscatter(c, send, recv, root))
	case coll.Persistent:
		return startedOnce(ScatterInit(c, send, recv, root))
	}
	return Scatter(c, send, recv, root)
}

func byScatterv[T any](h coll.Way, c *Comm, send [][]T, recv []T, root int) error {
	switch h {
	case coll.Nonblocking:
		return waited(Iscatterv(c, send, recv, root))
	case coll.Persistent:
		return startedOnce(ScattervInit(c, send, recv, root))
	}
	return Scatterv(c, send, recv, root)
}

func byAllgather[T any](h coll.Way, c *Comm, send, recv []T) error {
	switch h {
	case coll.Nonblocking:
		return waited(Iallgather(c, send, recv))
	case coll.Persistent:
		return startedOnce(AllgatherInit(c, send, recv))
	}
	return Allgather(c, send, recv)
}

func byAllgatherv[T any](h coll.Way, c *Comm, send []T, recv [][]T) error {
	switch h {
	case coll.Nonblocking:
		return waited(Iallgatherv(c, send, recv))
	case coll.Persistent:
		return startedOnce(AllgathervInit(c, send, recv))
	}
	return Allgatherv(c, send, recv)
}

func byAlltoall[T any](h coll.Way, c *Comm, send, recv []T) error {
	switch h {
	case coll.Nonblocking:
		return waited(Ialltoall(c, send, recv))
	case coll.Persistent:
		return startedOnce(AlltoallInit(c, send, recv))
	}
	return Alltoall(c, send, recv)
}

func byAlltoallv[T any](h coll.Way, c *Comm, send, recv [][]T) error {
	switch h {
	case coll.Nonblocking:
		return waited(Ialltoallv(c, send, recv))
	case coll.Persistent:
		return startedOnce(AlltoallvInit(c, send, recv))
	}
	return Alltoallv(c, send, recv)
}

func byReduce[T any](h coll.Way, c *Comm, send, recv []T, op Op[T], root int, options ...Reduction) error {
	switch h {
	case coll.Nonblocking:
		return waited(Ireduce(c, send, recv, op, root, options...))
	case coll.Persistent:
		return startedOnce(ReduceInit(c, send, recv, op, root, options...))
	}
	return Reduce(c, send, recv, op, root, options...)
}

func byAllreduce[T any](h coll.Way, c *Comm, send, recv []T, op Op[T], options ...Reduction) error {
	switch h {
	case coll.Nonblocking:
		return waited(Iallreduce(c, send, recv, op, options...))
	case coll.Persistent:
		return startedOnce(AllreduceInit(c, send, recv, op, options...))
	}
	return Allreduce(c, send, recv, op, options...)
}

func byScan[T any](h coll.Way, c *Comm, send, recv []T, op Op[T], options ...Reduction) error {
	switch h {
	case coll.Nonblocking:
		return waited(Iscan(c, send, recv, op, options...))
	case coll.Persistent:
		return startedOnce(ScanInit(c, send, recv, op, options...))
	}
	return Scan(c, send, recv, op, options...)
}

func byExscan[T any](h coll.Way, c *Comm, send, recv []T, op Op[T], options ...Reduction) error {
	switch h {
	case coll.Nonblocking:
		return waited(Iexscan(c, send, recv, op, options...))
	case coll.Persistent:
		return startedOnce(ExscanInit(c, send, recv, op, options...))
	}
	return Exscan(c, send, recv, op, options...)
}

func byReduceScatterBlock[T any](h coll.Way, c *Comm, send, recv []T, op Op[T], options ...Reduction) error {
	switch h {
	case coll.Nonblocking:
		return waited(IreduceScatterBlock(c, send, recv, op, options...))
	case coll.Persistent:
		return startedOnce(ReduceScatterBlockInit(c, send, recv, op, options...))
	}
	return ReduceScatterBlock(c, send, recv, op, options...)
}

func byReduceScatter[T any](h coll.Way, c *Comm, send, recv []T, counts []int, op Op[T], options ...Reduction) error {
	switch h {
	case coll.Nonblocking:
		return waited(IreduceScatter(c, send, recv, counts, op, options...))
	case coll.Persistent:
		return startedOnce(ReduceScatterInit(c, send, recv, counts, op, options...))
	}
	return ReduceScatter(c, send, recv, counts, op, options...)
}

// waited is a nonblocking call that is waited for at once.
func waited(r *Request, err error) error {
	if err != nil {
		return err
	}
	st, err := r.Wait()
	check(err != nil || st == emptyStatus, "%+v", st)
	return err
}

// startedOnce is a persistent call that is started once.
func startedOnce(r *Request, err error) error {
	if err != nil {
		return err
	}
	must(r.Start())
	st, err := r.Wait()
	check(err != nil || st == emptyStatus, "%+v", st)
	must(r.Free())
	return err
}
