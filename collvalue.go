package mpi

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"math"
	"reflect"

	"github.com/gorun-mpi/mpi/internal/coll"
)

// Collective calls of one value, of values that gob encodes, and of slices whose lengths the receivers do not know.
// Each is made of the calls for slices, and its errors name the caller's call. A call whose name has Object or Alloc
// is two: a rank whose context ends in the first does not make the second (docs/limits.md).

// BcastValue is Bcast of one value, and returns the root's v at every rank; §6.4.
func BcastValue[T any](c *Comm, v T, root int) (T, error) {
	buf := []T{v}
	err := Bcast(c, buf, root)
	return buf[0], calledAs("BcastValue", err)
}

// ReduceValue is Reduce of one value from each rank; §6.9.1. Ranks other than root get the zero value.
func ReduceValue[T any](c *Comm, v T, op Op[T], root int, options ...Reduction) (T, error) {
	var result [1]T
	err := Reduce(c, []T{v}, result[:], op, root, options...)
	return result[0], calledAs("ReduceValue", err)
}

// AllreduceValue is Allreduce of one value from each rank; §6.9.6.
func AllreduceValue[T any](c *Comm, v T, op Op[T], options ...Reduction) (T, error) {
	send, result := []T(nil), []T{v}
	if c.IsInter() {
		send, result = result, make([]T, 1)
	}
	err := Allreduce(c, send, result, op, options...)
	return result[0], calledAs("AllreduceValue", err)
}

// GatherValues is Gather of one value from each rank, and returns Size values at root and nil at other ranks; §6.5. The
// root of an intercommunicator gets RemoteSize values.
func GatherValues[T any](c *Comm, v T, root int) ([]T, error) {
	const op = "GatherValues"
	if err := checkRooted(c, op, root); err != nil {
		return nil, err
	}
	var all []T
	if c.roots(root) {
		all = make([]T, c.group.Size)
	}
	if err := Gather(c, []T{v}, all, root); err != nil {
		return nil, calledAs(op, err)
	}
	return all, nil
}

// AllgatherValues is Allgather of one value from each rank, and returns Size values, or RemoteSize values on an
// intercommunicator; §6.7.
func AllgatherValues[T any](c *Comm, v T) ([]T, error) {
	const op = "AllgatherValues"
	if err := c.valid(op); err != nil {
		return nil, c.mistaken(coll.Blocking, err)
	}
	all := make([]T, c.group.Size)
	if err := Allgather(c, []T{v}, all); err != nil {
		return nil, calledAs(op, err)
	}
	return all, nil
}

// ScatterValues is Scatter of one value to each rank: rank i gets the root's vs[i]; §6.6. The root's vs has Size
// values, and other ranks' vs is not used.
func ScatterValues[T any](c *Comm, vs []T, root int) (T, error) {
	var mine [1]T
	err := Scatter(c, vs, mine[:], root)
	return mine[0], calledAs("ScatterValues", err)
}

// BcastObject returns the root's v at every rank: a value of any type that encoding/gob can encode, such as a struct
// with slices, maps and strings. It is slower than BcastValue, and has no counterpart in the standard. If T is an
// interface type, gob.Register has to know the type of the value. If gob cannot encode the value, such as a nil
// pointer, or not decode it at a rank, that is ErrType; every rank has then made the call. The context of c does not
// end it: lengths go before values, and the other ranks would wait for this one's part.
func BcastObject[T any](c *Comm, v T, root int) (T, error) {
	const op = "BcastObject"
	c = c.untimed()
	var none T
	if err := checkRooted(c, op, root); err != nil {
		return none, err
	}
	var o object
	if c.roots(root) {
		o = encode(v)
	}
	header := []int64{o.header()}
	if err := Bcast(c, header, root); err != nil {
		return none, calledAs(op, err)
	}
	if header[0] < 0 && !c.IsInter() { // there the ranks of the root's group do not know
		return none, c.unencoded(op, root, o.err)
	}
	if !c.roots(root) && root != ProcNull {
		length := []int64{max(0, header[0])}
		if err := c.checkLengths(op, 1, length); err != nil {
			return none, err
		}
		o.bytes = make([]byte, length[0])
	}
	if err := Bcast(c, o.bytes, root); err != nil {
		return none, calledAs(op, err)
	}
	switch {
	case root == ProcNull:
		return v, nil
	case header[0] < 0:
		return none, c.unencoded(op, root, o.err)
	}
	return decode[T](c, op, root, o.bytes)
}

// GatherObjects is GatherValues of any values that encoding/gob can encode: see BcastObject. The root gets ErrType if
// one of the values could not be encoded or decoded.
func GatherObjects[T any](c *Comm, v T, root int) ([]T, error) {
	const op = "GatherObjects"
	o := encode(v)
	all, err := gatherAlloc(c, op, o.bytes, root)
	if err != nil {
		return nil, err
	}
	if o.err != nil && (root >= 0 || !c.IsInter()) { // there the root's group gives no value
		return nil, c.unencoded(op, c.Rank(), o.err)
	}
	return decodeAll[T](c, op, all)
}

// AllgatherObjects is AllgatherValues of any values that encoding/gob can encode: see BcastObject. Every rank gets
// ErrType if one of the values could not be encoded.
func AllgatherObjects[T any](c *Comm, v T) ([]T, error) {
	const op = "AllgatherObjects"
	o := encode(v)
	all, err := allgatherAlloc(c, op, o.bytes)
	if err != nil {
		return nil, err
	}
	if o.err != nil {
		return nil, c.unencoded(op, c.Rank(), o.err)
	}
	return decodeAll[T](c, op, all)
}

// ScatterObjects is ScatterValues of any values that encoding/gob can encode: see BcastObject. If one of the values
// cannot be encoded, the root and the rank that it is for get ErrType, and the other ranks their values.
func ScatterObjects[T any](c *Comm, vs []T, root int) (T, error) {
	const op = "ScatterObjects"
	c = c.untimed()
	var none T
	if err := checkRooted(c, op, root); err != nil {
		return none, err
	}
	var lengths []int64
	var blocks [][]byte
	var failed error
	if c.roots(root) {
		if len(vs) != c.group.Size {
			return none, c.mistaken(coll.Blocking, c.lengthError(op, "vs has %d values; it must have one for each of %d ranks",
				len(vs), c.group.Size))
		}
		for i, v := range vs {
			o := encode(v)
			if o.err != nil {
				failed = errors.Join(failed, fmt.Errorf("vs[%d]: %w", i, o.err))
			}
			lengths, blocks = append(lengths, o.header()), append(blocks, o.bytes)
		}
	}
	var length [1]int64
	if err := Scatter(c, lengths, length[:], root); err != nil {
		return none, calledAs(op, err)
	}
	bytes := []int64{max(0, length[0])}
	if err := c.checkLengths(op, 1, bytes); err != nil {
		return none, err
	}
	mine := make([]byte, bytes[0])
	if err := Scatterv(c, blocks, mine, root); err != nil {
		return none, calledAs(op, err)
	}
	if c.IsInter() && root < 0 && failed == nil { // this group sends
		return none, nil
	}
	if failed != nil || length[0] < 0 {
		return none, c.unencoded(op, root, failed)
	}
	return decode[T](c, op, root, mine)
}

// GatherAlloc is Gatherv where the root does not know the lengths: it returns a new slice for each rank at root, and
// nil at other ranks; §6.5. The context of c does not end it, as BcastObject says.
func GatherAlloc[T any](c *Comm, send []T, root int) ([][]T, error) {
	return gatherAlloc(c, "GatherAlloc", send, root)
}

func gatherAlloc[T any](c *Comm, op string, send []T, root int) ([][]T, error) {
	c = c.untimed()
	if err := checkRooted(c, op, root); err != nil {
		return nil, err
	}
	if err := checkElements[T](c, op); err != nil {
		return nil, c.mistaken(coll.Blocking, err)
	}
	var lengths []int64
	if c.roots(root) {
		lengths = make([]int64, c.group.Size)
	}
	if err := Gather(c, []int64{int64(len(send))}, lengths, root); err != nil {
		return nil, calledAs(op, err)
	}
	if err := c.checkLengths(op, sizeOf[T](), lengths); err != nil {
		return nil, err
	}
	all := blocksOf[T](lengths)
	if send == nil {
		send = []T{} // nil would say that the root's block is in its place
	}
	if err := Gatherv(c, send, all, root); err != nil {
		return nil, calledAs(op, err)
	}
	return all, nil
}

// AllgatherAlloc is Allgatherv where no rank knows the others' lengths: it returns a new slice for each rank; §6.7. The
// context of c does not end it, as BcastObject says.
func AllgatherAlloc[T any](c *Comm, send []T) ([][]T, error) {
	return allgatherAlloc(c, "AllgatherAlloc", send)
}

func allgatherAlloc[T any](c *Comm, op string, send []T) ([][]T, error) {
	c = c.untimed()
	if err := checkInter[T](c, op); err != nil {
		return nil, c.mistaken(coll.Blocking, err)
	}
	lengths := make([]int64, c.group.Size)
	if err := Allgather(c, []int64{int64(len(send))}, lengths); err != nil {
		return nil, calledAs(op, err)
	}
	if err := c.checkLengths(op, sizeOf[T](), lengths); err != nil {
		return nil, err
	}
	all := blocksOf[T](lengths)
	if send == nil {
		send = []T{}
	}
	if err := Allgatherv(c, send, all); err != nil {
		return nil, calledAs(op, err)
	}
	return all, nil
}

// blocksOf returns new slices of these lengths, which share one piece of memory.
func blocksOf[T any](lengths []int64) [][]T {
	if lengths == nil {
		return nil
	}
	total := 0
	for _, n := range lengths {
		total += int(n)
	}
	memory := make([]T, total)
	all := make([][]T, len(lengths))
	for i, n := range lengths {
		all[i], memory = memory[:n:n], memory[n:]
	}
	return all
}

// checkLengths looks at lengths that other ranks have sent. A rank that has made another call has sent something else.
func (c *Comm) checkLengths(op string, size int, lengths []int64) error {
	room := int64(longestBytes / max(1, size))
	for _, n := range lengths {
		if n < 0 || n > room {
			return c.collError(op, ErrCount, "a rank says that it sends %d elements of %d bytes: have all ranks called %s?",
				n, size, op)
		}
		room -= n
	}
	return nil
}

// longestBytes is more than a process has memory for, and less than what makes make panic.
const longestBytes = min(1<<47, math.MaxInt)

// untimed is c without its context, for a call that is made of two: a rank whose context ended the first one would not
// know what to bring to the second, for which the other ranks wait.
func (c *Comm) untimed() *Comm {
	if c == nil || c.ctx == nil {
		return c
	}
	return c.WithContext(nil)
}

// checkRooted is what a call looks at before it uses the root as a rank of this communicator.
func checkRooted(c *Comm, op string, root int) error {
	if err := c.valid(op); err != nil {
		return c.mistaken(coll.Blocking, err)
	}
	err := c.isRoot(op, root)
	if c.IsInter() {
		_, _, err = c.interRoot(op, root)
	}
	if err != nil {
		return c.mistaken(coll.Blocking, err)
	}
	return nil
}

// roots reports whether this rank is the root that its caller gives.
func (c *Comm) roots(root int) bool {
	if c.IsInter() {
		return root == Root
	}
	return c.Rank() == root
}

// object is an encoded value, or why there is none.
type object struct {
	bytes []byte // an encoding is never empty: no bytes say that there is none
	err   error
}

// unencodable is the length of an object that its rank could not encode.
const unencodable = -1

// encode encodes v as a T: gob has to see an interface type, which any(v) would hide, for a rank to decode one.
func encode[T any](v T) object {
	if p := reflect.ValueOf(v); p.Kind() == reflect.Pointer && p.IsNil() {
		return object{err: fmt.Errorf("the value is a nil %T", v)} // gob panics
	}
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(&v); err != nil {
		return object{err: err}
	}
	return object{bytes: b.Bytes()}
}

func (o *object) header() int64 {
	if o.err != nil {
		return unencodable
	}
	return int64(len(o.bytes))
}

func decode[T any](c *Comm, op string, of int, b []byte) (v T, err error) {
	if err := gob.NewDecoder(bytes.NewReader(b)).Decode(&v); err != nil {
		var none T
		return none, c.collError(op, ErrType, "the %d bytes of rank %d do not decode into a %T: %w", len(b), of, none, err)
	}
	return v, nil
}

func decodeAll[T any](c *Comm, op string, all [][]byte) ([]T, error) {
	if all == nil {
		return nil, nil
	}
	vs := make([]T, len(all))
	for i, b := range all {
		if len(b) == 0 {
			return nil, c.unencoded(op, i, nil)
		}
		var err error
		if vs[i], err = decode[T](c, op, i, b); err != nil {
			return nil, err
		}
	}
	return vs, nil
}

// unencoded is the error of a value that a rank could not encode; err says why, and is known at that rank alone.
func (c *Comm) unencoded(op string, rank int, err error) error {
	if err != nil {
		return c.collError(op, ErrType, "encoding/gob cannot encode the value: %w", err)
	}
	return c.collError(op, ErrType, "rank %d could not encode its value: its own error says why", rank)
}

// calledAs names the caller's call in the error of a call that it is made of.
func calledAs(op string, err error) error {
	e, ok := err.(*Error)
	if !ok {
		return err
	}
	named := *e
	named.Op = op
	return &named
}
