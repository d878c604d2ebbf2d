package pml

import "slices"

// fifo is a queue. What is taken off its front costs nothing that grows with what stays.
type fifo[T any] struct {
	list []T // list[head:] is what is in it. Invariant: list[:head] is zero
	head int
}

func (q *fifo[T]) items() []T { return q.list[q.head:] }
func (q *fifo[T]) len() int   { return len(q.list) - q.head }

// push may move what stands in the queue: once for as many as there are.
func (q *fifo[T]) push(v T) {
	if len(q.list) == cap(q.list) && q.head > len(q.list)/2 {
		n := copy(q.list, q.items())
		clear(q.list[n:])
		q.list, q.head = q.list[:n], 0
	}
	q.list = append(q.list, v)
}

// pop drops the first.
func (q *fifo[T]) pop() {
	clear(q.list[q.head : q.head+1])
	if q.head++; q.head == len(q.list) {
		q.list, q.head = q.list[:0], 0
	}
}

// remove takes out what is at place i.
func (q *fifo[T]) remove(i int) {
	if i == 0 {
		q.pop()
		return
	}
	q.list = slices.Delete(q.list, q.head+i, q.head+i+1)
}

// deleteFunc takes out what f says.
func (q *fifo[T]) deleteFunc(f func(T) bool) {
	q.list = q.list[:q.head+len(slices.DeleteFunc(q.items(), f))]
	if q.len() == 0 {
		q.list, q.head = q.list[:0], 0
	}
}

// reset empties the queue and gives its memory back.
func (q *fifo[T]) reset() { *q = fifo[T]{} }
