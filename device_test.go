package mpi

import (
	"reflect"
	"testing"

	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/accel/acceltest"
	"github.com/gorun-mpi/mpi/internal/door"
)

// Package gpu has the tests of messages in device memory. Its tests cannot choose what the ranks go over.

// Over a device that matches by itself, a message in device memory is an error that says so, and a message without
// bytes goes.
func TestDeviceMemoryWithoutAWay(t *testing.T) {
	m := acceltest.New(acceltest.Options{})
	d := m.Process()
	over(t, matchingItself())(1, func(w *Comm) {
		byteType := reflect.TypeFor[byte]()
		mem := ok(d.Alloc(0, 100))
		b := accel.Buffer{Driver: d, Memory: mem, Addr: mem.Base, Len: 100}
		var all deviceDoor
		for _, op := range []door.Op{door.Isend, door.Issend} {
			_, err := ok(all.Send(w, op, byteType, b, 0, 0)).(*Request).Wait()
			is(err, ErrUnavailable)
		}
		_, err := ok(all.Recv(w, door.Irecv, byteType, b, 0, 0)).(*Request).Wait()
		is(err, ErrUnavailable)
		kept := ok(all.Send(w, door.SendInit, byteType, b, 0, 0)).(*Request)
		must(kept.Start())
		_, err = kept.Wait()
		is(err, ErrUnavailable)
		must(kept.Free())

		r := ok(all.Recv(w, door.Irecv, byteType, b.Part(3, 0), 0, 0)).(*Request)
		ok(ok(all.Send(w, door.Isend, byteType, b.Part(7, 0), 0, 0)).(*Request).Wait())
		ok(r.Wait())
		must(d.Free(mem))
	})
	if left := m.Left(); left != "" {
		t.Errorf("left:\n%s", left)
	}
}
