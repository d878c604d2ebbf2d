package pml

import "iter"

// numbers gives things numbers, which peers and devices return. A number is used once; 0 is none.
type numbers[T any] struct {
	slots []numbered[T]
	free  []uint32 // slots that have nothing
}

type numbered[T any] struct {
	v   *T // nil: nothing
	gen uint32
}

// add gives v a number.
func (n *numbers[T]) add(v *T) uint64 {
	i := uint32(len(n.slots))
	if k := len(n.free); k > 0 {
		i = n.free[k-1]
		n.free = n.free[:k-1]
	} else {
		n.slots = append(n.slots, numbered[T]{})
	}
	s := &n.slots[i]
	s.v = v
	s.gen++
	return uint64(s.gen)<<32 | uint64(i+1)
}

// none reports whether nothing has a number.
func (n *numbers[T]) none() bool { return len(n.free) == len(n.slots) }

// find returns what has that number, or nil.
func (n *numbers[T]) find(id uint64) *T {
	if i := uint32(id) - 1; uint64(i) < uint64(len(n.slots)) && n.slots[i].gen == uint32(id>>32) {
		return n.slots[i].v
	}
	return nil
}

// remove takes the number back.
func (n *numbers[T]) remove(id uint64) {
	i := uint32(id) - 1
	n.slots[i].v = nil
	n.free = append(n.free, i)
}

// values are the things that have numbers. They may lose them meanwhile.
func (n *numbers[T]) values() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for i := range n.slots {
			if v := n.slots[i].v; v != nil && !yield(v) {
				return
			}
		}
	}
}
