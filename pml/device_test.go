package pml

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/accel/acceltest"
)

// shrinkStaging makes pinned memory scarce for a test.
func shrinkStaging(t testing.TB) {
	was := stagingSizes
	stagingSizes.small, stagingSizes.smalls = 512, 2
	stagingSizes.large, stagingSizes.larges, stagingSizes.step = 16<<10, 2, 6<<10
	t.Cleanup(func() { stagingSizes = was })
}

// deviceRanks are ranks with a process each on one machine with accelerators.
type deviceRanks struct {
	*ranks
	t       testing.TB
	machine *acceltest.Machine
	procs   []*acceltest.Process
	rng     *rand.Rand
	kept    []allocated
}

type allocated struct {
	rank int
	m    accel.Memory
}

func newDeviceRanks(t testing.TB, n int, o acceltest.Options) *deviceRanks {
	shrinkStaging(t)
	if o.Devices == 0 {
		o.Devices = 2
	}
	d := &deviceRanks{t: t, machine: acceltest.New(o), rng: rand.New(rand.NewPCG(o.Seed, 5))}
	for range n {
		d.procs = append(d.procs, d.machine.Process())
	}
	d.ranks = newRanks(t, n, Config{})
	return d
}

// buffer is device memory of a rank with random bytes, which are returned too.
func (d *deviceRanks) buffer(rank, device int, n int64) (accel.Buffer, []byte) {
	m, err := d.procs[rank].Alloc(device, max(n, 1)+100)
	if err != nil {
		d.t.Fatal(err)
	}
	d.kept = append(d.kept, allocated{rank, m})
	b := accel.Buffer{Driver: d.procs[rank], Memory: m, Addr: m.Base + 40, Len: n}
	data := d.bytes(n)
	if n > 0 {
		d.procs[rank].Write(b.Addr, data)
	}
	return b, data
}

func (d *deviceRanks) bytes(n int64) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(d.rng.Uint32())
	}
	return b
}

// read is what is in a buffer.
func (d *deviceRanks) read(rank int, b accel.Buffer) []byte {
	if b.Len == 0 {
		return nil
	}
	return d.procs[rank].Read(b.Addr, b.Len)
}

// left ends the ranks and checks that nothing of the devices is left.
func (d *deviceRanks) left() {
	d.t.Helper()
	for rank, e := range d.e {
		for _, k := range d.kept {
			if k.rank == rank {
				if err := e.ForgetDevice(k.m); err != nil {
					d.t.Error(err)
				}
			}
		}
	}
	for _, k := range d.kept {
		if err := d.procs[k.rank].Free(k.m); err != nil {
			d.t.Error(err)
		}
	}
	d.close()
	if s := d.machine.Left(); s != "" {
		d.t.Error(s)
	}
}

// wait collects a result in time.
func (d *deviceRanks) wait(r *Request) (Status, error) {
	select {
	case <-r.Done():
	case <-time.After(hangs / 4):
		d.t.Fatal("it does not end")
	}
	return r.Wait()
}

var deviceSizes = []int64{0, 1, 511, 512, 513, 8191, 8193, 16<<10 - 1, 16 << 10, 16<<10 + 1, 3*16<<10 + 7}

// A message arrives as it was sent, whatever memory it is sent from and received into, whether the receive or the
// message is first, at every size.
func TestDeviceMessages(t *testing.T) {
	watchdog(t)
	for _, o := range []acceltest.Options{{}, {Delay: 300 * time.Microsecond}, {NotShared: true}} {
		d := newDeviceRanks(t, 2, o)
		for i, size := range deviceSizes {
			for kinds := range 4 {
				for first := range 2 {
					what := fmt.Sprintf("%d bytes, kinds %d, order %d, %+v", size, kinds, first, o)
					tag := int32(i)
					from, want := d.buffer(0, i&1, size)
					to, _ := d.buffer(1, i>>1&1, size)
					host := make([]byte, size)
					send := func() *Request {
						if kinds&1 == 0 {
							return d.e[0].IsendDevice(nil, 0, 1, tag, from, Standard)
						}
						return d.e[0].Isend(nil, 0, 1, tag, want, Standard)
					}
					recv := func() *Request {
						if kinds&2 == 0 {
							return d.e[1].IrecvDevice(nil, 0, 0, tag, to)
						}
						return d.e[1].Irecv(nil, 0, 0, tag, host)
					}
					var s, r *Request
					if first == 0 {
						s = send()
						r = recv()
					} else {
						r = recv()
						s = send()
					}
					st, err := d.wait(r)
					if err != nil || st.Bytes != size || st.Source != 0 || st.Tag != tag {
						t.Fatalf("%s: %+v, %v", what, st, err)
					}
					if _, err := d.wait(s); err != nil {
						t.Fatalf("%s: the send: %v", what, err)
					}
					got := host
					if kinds&2 == 0 {
						got = d.read(1, to)
					}
					if !bytes.Equal(got, want) {
						t.Fatalf("%s: other bytes", what)
					}
				}
			}
		}
		d.left()
	}
}
