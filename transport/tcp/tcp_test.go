package tcp

import (
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/transport/transporttest"
)

func newDevice(t testing.TB, rank, size int, change ...func(*Options)) *Device {
	t.Helper()
	opt := Options{Rank: rank, Size: size, Job: "test", PeerTimeout: 10 * time.Second,
		Secret: func() ([]byte, error) { return []byte("the secret of this test, 32 bytes"), nil },
		Log:    func(msg string, args ...any) { t.Log(append([]any{rank, msg}, args...)...) }}
	for _, f := range change {
		f(&opt)
	}
	d, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func pair(change ...func(*Options)) func(*testing.T) transporttest.Pair {
	return func(t *testing.T) transporttest.Pair {
		return transporttest.Pair{A: newDevice(t, 0, 2, change...), B: newDevice(t, 1, 2, change...)}
	}
}

// A socket says that bytes are there, and not which.
var notUrgent = transporttest.Without("urgent-not-woken-by-plain", "a socket says that bytes are there, and not which")

func TestConformance(t *testing.T) {
	transporttest.Run(t, pair(), transporttest.NoGet(), notUrgent)
}

func TestConformanceTLS(t *testing.T) {
	transporttest.Run(t, pair(func(o *Options) { o.TLS = true }), transporttest.NoGet(), notUrgent, transporttest.Brief(),
		transporttest.Without("no-allocations", "crypto/tls allocates"))
}
