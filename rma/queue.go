package rma

// Queue is the lock of one rank of a window, at that rank, where other ranks ask for it by message. It is fair: ranks
// get the lock in the order in which they ask, and a row of shared requests gets it together.
type Queue struct {
	holders map[int32]Mode
	waiting []asked // oldest first
}

type asked struct {
	rank int32
	mode Mode
}

// Ask is called when a rank asks for the lock. It reports false if the rank has the lock, or has asked for it already:
// then nothing has changed.
func (q *Queue) Ask(rank int32, m Mode) bool {
	if m != Shared && m != Exclusive || q.knows(rank) {
		return false
	}
	q.waiting = append(q.waiting, asked{rank, m})
	return true
}

func (q *Queue) knows(rank int32) bool {
	if q.holders[rank] != Unlocked {
		return true
	}
	for _, a := range q.waiting {
		if a.rank == rank {
			return true
		}
	}
	return false
}

// Holds is the lock that a rank has.
func (q *Queue) Holds(rank int32) Mode { return q.holders[rank] }

// Grant gives the lock to the rank that has waited longest, if that can be. The caller tells the rank, and calls Grant
// again.
func (q *Queue) Grant() (rank int32, ok bool) {
	if len(q.waiting) == 0 || len(q.holders) > 0 && (q.waiting[0].mode == Exclusive || q.exclusive()) {
		return 0, false
	}
	a := q.waiting[0]
	q.waiting = q.waiting[1:]
	if q.holders == nil {
		q.holders = map[int32]Mode{}
	}
	q.holders[a.rank] = a.mode
	return a.rank, true
}

// exclusive reports whether a rank has an exclusive lock. Then it is the only holder.
func (q *Queue) exclusive() bool {
	for _, m := range q.holders {
		return m == Exclusive
	}
	return false
}

// Leave is called when a rank lets the lock go, or has failed. It reports whether the rank has had it.
func (q *Queue) Leave(rank int32) bool {
	if q.holders[rank] != Unlocked {
		delete(q.holders, rank)
		return true
	}
	for i, a := range q.waiting {
		if a.rank == rank {
			q.waiting = append(q.waiting[:i:i], q.waiting[i+1:]...)
			break
		}
	}
	return false
}
