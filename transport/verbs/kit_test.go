//go:build verbs && linux && cgo

package verbs

import (
	"os"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/transport"
	"github.com/gorun-mpi/mpi/transport/tcp"
	"github.com/gorun-mpi/mpi/transport/transporttest"
)

func newDevice(t testing.TB, rank, size int, change ...func(*Options)) *Device {
	t.Helper()
	log := func(msg string, args ...any) { t.Log(append([]any{rank, msg}, args...)...) }
	opt := Options{Rank: rank, Size: size, Library: os.Getenv("GORUN_VERBS_LIB"), Devices: os.Getenv("GORUN_VERBS_DEV"), RegisterFrom: 1, Log: log, Debug: log,
		Control: tcp.Options{Job: "test", PeerTimeout: 10 * time.Second, Log: log,
			Secret: func() ([]byte, error) { return []byte("the secret of this test, 32 bytes"), nil }}}
	for _, f := range change {
		f(&opt)
	}
	d, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	return d.(*Device)
}

func pair(change ...func(*Options)) func(*testing.T) transporttest.Pair {
	return func(t *testing.T) transporttest.Pair {
		return transporttest.Pair{A: newDevice(t, 0, 2, change...), B: newDevice(t, 1, 2, change...)}
	}
}

var _ transport.Putter = (*link)(nil)
