package acceltest

import (
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/accel"
)

// subject is a Process as TestDriver takes it.
type subject struct{ *Process }

func (s subject) User(device int, n int64, how How) accel.Memory { return s.UserAlloc(device, n, how) }
func (s subject) FreeUser(m accel.Memory)                        { s.UserFree(m) }

func (s subject) Stream(device int) uint64 { return s.Process.Stream(device).Handle() }

func (s subject) Hold(stream uint64) func() {
	s.stream(stream).Hold()
	return s.stream(stream).Release
}

func (s subject) stream(handle uint64) *Stream {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	return s.streams[handle]
}

func (s subject) HostMemory(tb testing.TB, n int) ([]byte, uint64) {
	b := hostMemory(tb, n)
	return b, address(b)
}

func TestProcess(t *testing.T) {
	for _, o := range []Options{{}, {Devices: 2, Seed: 7, Delay: time.Millisecond, Granularity: 2 << 20}} {
		TestDriver(t, func(t *testing.T) (Subject, Peer) {
			m := New(o)
			t.Cleanup(func() { nothingLeft(t, m) })
			return subject{m.Process()}, m.Process()
		})
	}
}
