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

func (s subject) Hold(device int) (uint64, func()) {
	stream := s.Stream(device)
	stream.Hold()
	return stream.Handle(), stream.Release
}

func (s subject) Idle(stream uint64) bool {
	s.m.mu.Lock()
	user := s.streams[stream]
	s.m.mu.Unlock()
	return user.Idle()
}

func (s subject) HostMemory(tb testing.TB, n int) ([]byte, uint64) {
	b := hostMemory(tb, n)
	return b, address(b)
}

func TestProcess(t *testing.T) {
	for _, o := range []Options{{Devices: 2}, {Devices: 2, Seed: 7, Delay: time.Millisecond, Granularity: 2 << 20}} {
		TestDriver(t, func(t *testing.T) (Subject, Peer) {
			m := New(o)
			t.Cleanup(func() { nothingLeft(t, m) })
			return subject{m.Process()}, m.Process()
		})
	}
}
