package eventset

import (
	"sync/atomic"
	"testing"

	"github.com/gorun-mpi/mpi/transport"
)

func init() {
	kinds["a futex"] = func(t testing.TB) *device {
		d := &device{t: t, lines: []*line{newLine(t), newLine(t)}, word: new(atomic.Uint32)}
		d.wakes = []transport.Wake{{FD: d.lines[0].r, ThreadFD: d.lines[1].r, Clear: d.clear,
			Word: d.word, Asleep: asleep}}
		return d
	}
}
