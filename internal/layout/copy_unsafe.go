package layout

import (
	"fmt"
	"sort"
	"unsafe"
)

// Pack copies bytes from … from+len(dst) of the packed form into dst, out of mem, whose byte number origin has
// displacement 0. dst does not overlap the data.
func (t *Type) Pack(dst, mem []byte, origin, from int64) error {
	return t.move(mem, origin, dst, from, false)
}

// Unpack copies src to where bytes from … from+len(src) of the packed form lie in mem. src does not overlap these.
func (t *Type) Unpack(src, mem []byte, origin, from int64) error {
	return t.move(mem, origin, src, from, true)
}

func (t *Type) move(mem []byte, origin int64, packed []byte, from int64, unpack bool) error {
	if err := t.Fits(int64(len(mem)), origin); err != nil {
		return err
	}
	if from < 0 || from > t.size || int64(len(packed)) > t.size-from {
		return fmt.Errorf("bytes %d to %d were asked for, of a layout of %d bytes", from, from+int64(len(packed)), t.size)
	}
	if len(packed) == 0 {
		return nil
	}
	m := mover{mem: unsafe.Pointer(&mem[0]), packed: unsafe.Pointer(&packed[0]), unpack: unpack}
	m.walk(t.prog, origin+t.at, from, 0, int64(len(packed)))
	return nil
}

// mover copies between the two. Their bounds have been checked. Offsets become addresses only where there is a byte,
// so that no pointer ever leaves its memory.
type mover struct {
	mem, packed unsafe.Pointer
	unpack      bool
}

// walk copies n bytes of the program that begins at mem+at, from its byte skip on, to or from packed+pos.
// 0 < n ≤ node.size − skip.
func (m *mover) walk(p *node, at, skip, pos, n int64) {
	switch p.form {
	case isRun:
		m.run(at+skip, pos, n)
	case isLoop:
		m.loop(p, at, skip, pos, n)
	case isList:
		m.list(p.parts, at, skip, pos, n)
	}
}

// list is walk for a list.
func (m *mover) list(parts []piece, at, skip, pos, n int64) {
	i := 0
	if skip > 0 {
		i = sort.Search(len(parts), func(i int) bool { return parts[i].from > skip }) - 1
		skip -= parts[i].from
	}
	for n > 0 {
		q := &parts[i]
		if skip == 0 && q.node.form == isRun {
			if done := m.equalRuns(parts[i:], q.node.size, at, pos, n); done > 0 {
				i, pos, n = i+done, pos+int64(done)*q.node.size, n-int64(done)*q.node.size
				continue
			}
		}
		k := min(n, q.node.size-skip)
		m.walk(q.node, at+q.at, skip, pos, k)
		skip, pos, n, i = 0, pos+k, n-k, i+1
	}
}

// equalRuns copies the first of parts as long as they are runs of size bytes, up to n bytes, and returns how many they
// were: 0 also where size is not that of a word.
func (m *mover) equalRuns(parts []piece, size, at, pos, n int64) int {
	if int64(len(parts)) > n/size {
		parts = parts[:n/size]
	}
	switch size {
	case 4:
		return gather[uint32](m, parts, at, pos)
	case 8:
		return gather[uint64](m, parts, at, pos)
	case 16:
		return gather[[2]uint64](m, parts, at, pos)
	}
	return 0
}

func gather[W any](m *mover, parts []piece, at, pos int64) int {
	size := int64(unsafe.Sizeof(*new(W)))
	for i := range parts {
		q := &parts[i]
		if q.node.size != size || q.node.form != isRun {
			return i
		}
		here, there := (*W)(unsafe.Add(m.mem, at+q.at)), (*W)(unsafe.Add(m.packed, pos+int64(i)*size))
		if m.unpack {
			*here = *there
		} else {
			*there = *here
		}
	}
	return len(parts)
}

// loop is walk for a loop: what is left of one turn, whole turns, and the front of one.
func (m *mover) loop(p *node, at, skip, pos, n int64) {
	body, turns := p.body, p.count
	if n < p.size { // not all of it
		at += skip / body.size * p.stride
		if skip %= body.size; skip > 0 {
			k := min(n, body.size-skip)
			m.walk(body, at, skip, pos, k)
			at, pos, n = at+p.stride, pos+k, n-k
		}
		turns = n / body.size
	}
	if body.form == isRun && body.size < smallRun {
		m.strided(at, p.stride, pos, body.size, turns)
	} else {
		for i := range turns {
			m.walk(body, at+i*p.stride, 0, pos+i*body.size, body.size)
		}
	}
	if rest := n - turns*body.size; rest > 0 {
		m.walk(body, at+turns*p.stride, 0, pos+turns*body.size, rest)
	}
}

// smallRun is from where on a run is worth the call of memmove.
const smallRun = 128

// run copies n bytes.
func (m *mover) run(at, pos, n int64) {
	to, from := unsafe.Add(m.packed, pos), unsafe.Add(m.mem, at)
	if m.unpack {
		to, from = from, to
	}
	copy(unsafe.Slice((*byte)(to), n), unsafe.Slice((*byte)(from), n))
}

// strided copies turns runs of size bytes, which are stride apart in memory. size < smallRun.
func (m *mover) strided(at, stride, pos, size, turns int64) {
	if turns == 0 {
		return
	}
	to, from, toStep, fromStep := unsafe.Add(m.packed, pos), unsafe.Add(m.mem, at), size, stride
	if m.unpack {
		to, from, toStep, fromStep = from, to, stride, size
	}
	switch {
	case size == 8:
		words[uint64](to, from, toStep, fromStep, turns)
	case size == 4:
		words[uint32](to, from, toStep, fromStep, turns)
	case size == 2:
		words[uint16](to, from, toStep, fromStep, turns)
	case size == 1:
		words[uint8](to, from, toStep, fromStep, turns)
	case size > 32:
		ends[[4]uint64](to, from, toStep, fromStep, size, turns)
	case size > 16:
		twice[[2]uint64](to, from, toStep, fromStep, size, turns)
	case size > 8:
		twice[uint64](to, from, toStep, fromStep, size, turns)
	case size > 4:
		twice[uint32](to, from, toStep, fromStep, size, turns)
	default: // 3
		twice[uint16](to, from, toStep, fromStep, size, turns)
	}
}

// words copies n words. Four at a time keep more than one miss under way.
func words[W any](to, from unsafe.Pointer, toStep, fromStep, n int64) {
	t, f := int64(0), int64(0)
	for ; n >= 4; n -= 4 {
		a := *(*W)(unsafe.Add(from, f))
		b := *(*W)(unsafe.Add(from, f+fromStep))
		c := *(*W)(unsafe.Add(from, f+2*fromStep))
		d := *(*W)(unsafe.Add(from, f+3*fromStep))
		*(*W)(unsafe.Add(to, t)) = a
		*(*W)(unsafe.Add(to, t+toStep)) = b
		*(*W)(unsafe.Add(to, t+2*toStep)) = c
		*(*W)(unsafe.Add(to, t+3*toStep)) = d
		t, f = t+4*toStep, f+4*fromStep
	}
	for ; n > 0; n-- {
		*(*W)(unsafe.Add(to, t)) = *(*W)(unsafe.Add(from, f))
		t, f = t+toStep, f+fromStep
	}
}

// twice copies n runs of one to two words: the word that a run begins with and the one that it ends with, which may
// overlap.
func twice[W any](to, from unsafe.Pointer, toStep, fromStep, size, n int64) {
	last := size - int64(unsafe.Sizeof(*new(W)))
	t, f := int64(0), int64(0)
	for ; n > 0; n-- {
		*(*W)(unsafe.Add(to, t)) = *(*W)(unsafe.Add(from, f))
		*(*W)(unsafe.Add(to, t+last)) = *(*W)(unsafe.Add(from, f+last))
		t, f = t+toStep, f+fromStep
	}
}

// ends copies n runs of size bytes, word by word; the last word of a run is the one that ends with it, and may cover
// some of the word before it. size is at least that of a word.
func ends[W any](to, from unsafe.Pointer, toStep, fromStep, size, n int64) {
	word := int64(unsafe.Sizeof(*new(W)))
	last := size - word
	t, f := int64(0), int64(0)
	for ; n > 0; n-- {
		for k := int64(0); k < last; k += word {
			*(*W)(unsafe.Add(to, t+k)) = *(*W)(unsafe.Add(from, f+k))
		}
		*(*W)(unsafe.Add(to, t+last)) = *(*W)(unsafe.Add(from, f+last))
		t, f = t+toStep, f+fromStep
	}
}
