package mpi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/accel/acceltest"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/pml"
	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/shm"
	"github.com/gorun-mpi/mpi/transport/tcp"
)

// Messages in device memory go over shared memory and over connections, in parts that are longer and shorter than the
// pinned memory, and with a host at either end.
func TestDeviceMemoryOverLinks(t *testing.T) {
	for name, open := range map[string]func(rank int) (transport.Device, error){
		"shm": openShared,
		"tcp": func(rank int) (transport.Device, error) {
			return tcp.New(tcp.Options{Rank: rank, Size: 2, Job: "test", Secret: testSecret, PeerTimeout: time.Minute})
		},
	} {
		for _, notShared := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, not shared %v", name, notShared), func(t *testing.T) {
				machine := acceltest.New(acceltest.Options{NotShared: notShared, Delay: 50 * time.Microsecond})
				d := newLinkedDevices(t, machine, open)
				for i, size := range []int64{1, 33, 8192, 64<<10 - 1, 64<<10 + 1, 2<<20 - 1, 2 << 20, 6<<20 + 7} {
					for kind := range 3 {
						d.message(i, size, kind)
					}
				}
				d.end()
				if opens := d.p[1].Calls("Open"); (opens > 0) != (name == "shm" && !notShared) {
					t.Errorf("opened %d times", opens)
				}
				if s := machine.Left(); s != "" {
					t.Error(s)
				}
			})
		}
	}
}

// A copy that ends while its rank falls asleep, as soon as the driver has been asked to ring, wakes the rank.
func TestDeviceRingsWhileRankFallsAsleep(t *testing.T) {
	proc.PanicAfter(t, time.Minute)
	d := newLinkedDevices(t, acceltest.New(acceltest.Options{}), openShared)
	const size = 100_000
	early := &ringsEarly{Process: d.p[1]}
	for i := range int32(5) {
		from, to := d.buffer(0, size), d.buffer(1, size)
		to.Driver = early
		received := make(chan error)
		r := d.e[1].IrecvDevice(nil, 0, 0, i, to)
		go func() { _, err := r.Wait(); received <- err }()
		time.Sleep(5 * time.Millisecond) // in which the rank falls asleep
		d.p[1].Copies(0).Hold()
		s := d.e[0].IsendDevice(nil, 0, 1, i, from, pml.Standard)
		must(<-received)
		_, err := s.Wait()
		must(err)
	}
	if d.end(); early.asked == 0 {
		t.Error("the rank has not slept")
	}
}

// ringsEarly is a driver that is slow to return from Notify: what was to be waited for has ended, and the bell has been
// heard. The copies are held until then.
type ringsEarly struct {
	*acceltest.Process
	asked int
}

func (d *ringsEarly) Notify(device, fd int) error {
	d.asked++
	if err := d.Process.Notify(device, fd); err != nil {
		return err
	}
	d.Copies(device).Release()
	d.Copies(device).Sync()
	time.Sleep(20 * time.Millisecond) // in which the bell's goroutine takes the ring
	return nil
}

// linkedDevices are two ranks with a device each.
type linkedDevices struct {
	t    *testing.T
	e    [2]*pml.Engine
	p    [2]*acceltest.Process
	kept [2][]accel.Memory
}

// openShared opens shared memory.
func openShared(rank int) (transport.Device, error) {
	return shm.New(shm.Options{Rank: rank, Size: 2, Local: 2, Job: "test", Secret: testSecret})
}

// newLinkedDevices makes ranks of a machine, with processes of their own.
func newLinkedDevices(t *testing.T, machine *acceltest.Machine, open func(rank int) (transport.Device, error),
) *linkedDevices {
	d := &linkedDevices{t: t}
	for rank := range d.e {
		d.p[rank] = machine.Process()
		var err error
		d.e[rank], err = pml.New(pml.Config{Rank: rank, Size: 2, Net: ok(open(rank)), UnexpectedMax: 1 << 20,
			Lookup: func(_ context.Context, peer int) ([]byte, error) { return d.e[peer].Address(), nil }})
		must(err)
	}
	return d
}

func (d *linkedDevices) buffer(rank int, n int64) accel.Buffer {
	m := ok(d.p[rank].Alloc(0, n))
	d.kept[rank] = append(d.kept[rank], m)
	return accel.Buffer{Driver: d.p[rank], Memory: m, Addr: m.Base, Len: n}
}

// message sends one of size bytes and looks at what has come. kind 0: between devices, 1: from a host, 2: to a host.
func (d *linkedDevices) message(i int, size int64, kind int) {
	from, to := d.buffer(0, size), d.buffer(1, size)
	rng := rand.New(rand.NewPCG(uint64(size), 1))
	want, got := make([]byte, size), make([]byte, size)
	for k := range want {
		want[k] = byte(rng.Uint32())
	}
	d.p[0].Write(from.Addr, want)
	var s, r *pml.Request
	if kind == 1 {
		s = d.e[0].Isend(nil, 0, 1, int32(i), want, pml.Standard)
	} else {
		s = d.e[0].IsendDevice(nil, 0, 1, int32(i), from, pml.Standard)
	}
	if kind == 2 {
		r = d.e[1].Irecv(nil, 0, 0, int32(i), got)
	} else {
		r = d.e[1].IrecvDevice(nil, 0, 0, int32(i), to)
	}
	sent := make(chan error)
	go func() { _, err := s.Wait(); sent <- err }()
	if st, err := r.Wait(); err != nil || st.Bytes != size {
		d.t.Fatalf("%d bytes, kind %d: %+v, %v", size, kind, st, err)
	}
	if err := <-sent; err != nil {
		d.t.Fatal(err)
	}
	if kind != 2 {
		got = d.p[1].Read(to.Addr, size)
	}
	if !bytes.Equal(got, want) {
		d.t.Fatalf("%d bytes, kind %d: other bytes", size, kind)
	}
}

func (d *linkedDevices) end() {
	for rank, e := range d.e {
		for _, m := range d.kept[rank] {
			must(e.ForgetDevice(m))
			must(d.p[rank].Free(m))
		}
	}
	for _, e := range d.e {
		must(e.Close(errors.New("the test is over")))
	}
}
