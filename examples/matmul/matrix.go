package main

// part is some rows or columns of a matrix.
type part struct{ first, n int }

func (p part) end() int { return p.first + p.n }

// share is which of n rows or columns rank i of size has.
func share(n, i, size int) part {
	first := n * i / size
	return part{first, n*(i+1)/size - first}
}

// owner is the rank of size that has number k of n.
func owner(n, k, size int) int {
	i := 0
	for k >= share(n, i, size).end() {
		i++
	}
	return i
}

// matrix is rows one after the other.
type matrix struct {
	rows, columns int
	elements      []float64
}

func newMatrix(rows, columns int) *matrix {
	return &matrix{rows, columns, make([]float64, rows*columns)}
}

// fill makes a part of a matrix whose elements are given by a function.
func fill(rows, columns part, element func(i, j int) float64) *matrix {
	m := newMatrix(rows.n, columns.n)
	for i := range m.rows {
		for j := range m.row(i) {
			m.row(i)[j] = element(rows.first+i, columns.first+j)
		}
	}
	return m
}

func (m *matrix) row(i int) []float64 { return m.elements[i*m.columns : (i+1)*m.columns] }

// take copies what from has from this row and this column on.
func (m *matrix) take(from *matrix, row, column int) {
	for i := range m.rows {
		copy(m.row(i), from.row(row + i)[column:])
	}
}

// addProduct adds a·b to m.
func (m *matrix) addProduct(a, b *matrix) {
	for i := range m.rows {
		to := m.row(i)
		for k, x := range a.row(i) {
			for j, y := range b.row(k) {
				to[j] += x * y
			}
		}
	}
}

// differing counts the elements that are not the same.
func (m *matrix) differing(other *matrix) (n int) {
	for i, x := range m.elements {
		if x != other.elements[i] {
			n++
		}
	}
	return n
}
