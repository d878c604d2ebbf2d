package rma

import "encoding/binary"

// Run is bytes of a request's elements at a rank that do not follow on each other: Count runs of Size bytes each, which
// begin at byte At, At + Stride and so on.
type Run struct{ At, Size, Count, Stride int64 }

// RunMost is the longest that a Run is in a table.
const RunMost = 4 * binary.MaxVarintLen64

// Runs is a table of them, as it goes in a request (Request.Runs): of each the size, the count, where it begins, and,
// if the count is not 1, the stride. Bytes 0 may follow.
type Runs []byte

// Append adds a run to the table.
func (t Runs) Append(r Run) Runs {
	t = binary.AppendUvarint(t, uint64(r.Size))
	t = binary.AppendUvarint(t, uint64(r.Count))
	t = binary.AppendUvarint(t, uint64(r.At))
	if r.Count != 1 {
		t = binary.AppendVarint(t, r.Stride)
	}
	return t
}

// next returns the first run, and the rest of the table. ok: there is one.
func (t Runs) next() (r Run, rest Runs, ok bool) {
	for i, field := range []*int64{&r.Size, &r.Count, &r.At} {
		v, n := binary.Uvarint(t)
		if n <= 0 || int64(v) < 0 || i < 2 && v == 0 {
			return r, t, false
		}
		*field, t = int64(v), t[n:]
	}
	if r.Count != 1 {
		v, n := binary.Varint(t)
		if n <= 0 {
			return r, t, false
		}
		r.Stride, t = v, t[n:]
	}
	return r, t, true
}

// Check returns how many bytes the runs have together. ok: the table is of runs, all within length bytes, of at most
// that many bytes, which take pieces of elem bytes as a whole.
func (t Runs) Check(length, most int64, elem int) (bytes int64, ok bool) {
	e := int64(elem)
	for {
		r, rest, ok := t.next()
		if !ok {
			break
		}
		t = rest
		last := length - r.Size // where a run may begin
		if r.At > last || r.Count > (most-bytes)/r.Size {
			return 0, false
		}
		if turns := r.Count - 1; turns > 0 && (r.Stride > 0 && turns > (last-r.At)/r.Stride ||
			r.Stride < 0 && (r.Stride < -length || turns > r.At/-r.Stride)) {
			return 0, false
		}
		if e > 1 && (r.At%e != 0 || r.Size%e != 0 || r.Stride%e != 0) {
			return 0, false
		}
		bytes += r.Size * r.Count
	}
	for _, b := range t {
		if b != 0 {
			return 0, false
		}
	}
	return bytes, true
}

// Each calls f with the place and the length of each run of a table that has been checked, and how many bytes come
// before it. It ends when f returns false, and reports whether f never did.
func (t Runs) Each(f func(at, n, before int64) bool) bool {
	before := int64(0)
	for {
		r, rest, ok := t.next()
		if !ok {
			return true
		}
		for ; r.Count > 0; r.Count-- {
			if !f(r.At, r.Size, before) {
				return false
			}
			r.At, before = r.At+r.Stride, before+r.Size
		}
		t = rest
	}
}
