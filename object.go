package mpi

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"reflect"
)

// SendValue is Send of one value, for RecvValue; §3.2.1.
func SendValue[T any](c *Comm, v T, dest, tag int) error { return Send(c, []T{v}, dest, tag) }

// RecvValue is Recv of one value; §3.2.4. It consumes a message of another size, and returns ErrCount for a shorter one
// and ErrTruncate for a longer one.
func RecvValue[T any](c *Comm, source, tag int) (T, Status, error) {
	var buf [1]T
	st, err := Recv(c, buf[:], source, tag)
	if err == nil && source != ProcNull && st.Bytes != int64(sizeOf[T]()) {
		err = &Error{Op: "RecvValue", Class: ErrCount, Comm: c.Name(), Peer: source, Tag: tag,
			Err: fmt.Errorf("the message has %d bytes, one %T has %d", st.Bytes, buf[0], sizeOf[T]())}
	}
	return buf[0], st, err
}

// SendObject sends any value that encoding/gob can encode, such as structs with slices, maps and strings. It is slower
// than Send, and has no counterpart in the standard. A value that gob cannot encode is ErrType.
func SendObject(c *Comm, v any, dest, tag int) error {
	if err := c.checkSend("SendObject", dest, tag); err != nil || dest == ProcNull {
		if err == errHooked {
			return c.hook().sendsObject(v, dest, tag)
		}
		return err
	}
	b, err := encodeObject(c, v, dest, tag)
	if err != nil {
		return err
	}
	return send(c, "SendObject", b, dest, tag, 0)
}

// encodeObject returns what SendObject sends.
func encodeObject(c *Comm, v any, dest, tag int) ([]byte, error) {
	if p := reflect.ValueOf(v); p.Kind() == reflect.Pointer && p.IsNil() {
		return nil, &Error{Op: "SendObject", Class: ErrType, Comm: c.Name(), Peer: dest, Tag: tag,
			Err: fmt.Errorf("the value is a nil %T", v)} // gob panics
	}
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(v); err != nil {
		return nil, &Error{Op: "SendObject", Class: ErrType, Comm: c.Name(), Peer: dest, Tag: tag, Err: err}
	}
	return b.Bytes(), nil
}

// RecvObject receives a value of SendObject. It consumes a message that does not decode into a T, and returns ErrType.
// Status.Bytes is the length of the encoding.
func RecvObject[T any](c *Comm, source, tag int) (T, Status, error) {
	var v T
	if err := c.checkRecv("RecvObject", source, tag); err != nil || source == ProcNull {
		if err == errHooked {
			call := callWith("RecvObject", CallRecv, source, tag, 0)
			st, err := c.hook().receives(call, func(c *Comm) (st Status, err error) {
				v, st, err = RecvObject[T](c, source, tag)
				return st, err
			})
			return v, st, err
		}
		return v, nullStatus, err
	}
	b, st, err := RecvAlloc[byte](c, source, tag)
	if err != nil {
		return v, st, err
	}
	if err := gob.NewDecoder(bytes.NewReader(b)).Decode(&v); err != nil {
		return v, st, &Error{Op: "RecvObject", Class: ErrType, Comm: c.Name(), Peer: source, Tag: tag,
			Err: fmt.Errorf("the message of %d bytes does not decode into a %T: %w", len(b), v, err)}
	}
	return v, st, nil
}
