package mpi

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"runtime/trace"
	"strconv"
	"sync"
)

// cpuProfile is the CPU profile of this process that GORUN_CPUPROFILE asks for. A nil one does nothing.
type cpuProfile struct {
	file *os.File
	once sync.Once
}

// startProfile begins the profile of a rank. Without one the job is what it is without the setting.
func startProfile(dir string, rank int) *cpuProfile {
	path := filepath.Join(dir, fmt.Sprintf("rank-%d.pprof", rank))
	err := os.MkdirAll(dir, 0o777)
	p := &cpuProfile{}
	if err == nil {
		if p.file, err = os.Create(path); err == nil {
			if err = pprof.StartCPUProfile(p.file); err != nil { // the program makes one of its own
				p.file.Close()
				os.Remove(path)
			}
		}
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "mpi: rank %d: no CPU profile in %s: %v\n", rank, dir, err)
		return nil
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, endSignals()...)
	go p.onSignal(signals)
	return p
}

// onSignal ends the profile when a signal is to end the process. Main tells its body of the signal. Without Main the
// signal comes once more: it does what it does without a profile, or comes to the program again.
func (p *cpuProfile) onSignal(signals chan os.Signal) {
	s := <-signals
	p.stop()
	signal.Stop(signals)
	if process.inMain.Load() {
		return
	}
	sendSelf(s)
}

// stop writes the profile. It takes up to 0.2 s, as long as the runtime collects samples.
func (p *cpuProfile) stop() {
	if p == nil {
		return
	}
	p.once.Do(func() {
		pprof.StopCPUProfile()
		p.file.Close()
	})
}

// marker shows the calls of a rank in Go's own tools: as labels of CPU profiles, and as regions and tasks of execution
// traces. It sees the calls by hooks.
type marker struct {
	mu    sync.Mutex
	tasks map[*Request]*trace.Task // of requests that are under way
}

// hooks returns the hooks of a marker.
func (m *marker) hooks() *Hooks { return &Hooks{Before: m.before, After: m.after} }

func (m *marker) before(k *Call) {
	pprof.SetGoroutineLabels(k.at.labelled(k))
	if trace.IsEnabled() {
		k.region = trace.StartRegion(k.at.Context, "mpi."+k.Op)
		if k.Peer >= 0 {
			trace.Logf(k.at.Context, "mpi", "%s: peer %d in the world, tag %d, %d bytes", k.Op, k.World, k.Tag, k.Bytes)
		}
	}
}

func (m *marker) after(k *Call) {
	for i := range k.Done {
		m.endTask(k.Done[i].Request)
	}
	if k.starts() && trace.IsEnabled() {
		_, task := trace.NewTask(k.at.Context, "mpi."+k.Op)
		m.mu.Lock()
		m.tasks[k.Request] = task
		m.mu.Unlock()
	}
	if k.region != nil {
		k.region.End()
		k.region = nil
	}
	pprof.SetGoroutineLabels(k.at.Context)
}

func (m *marker) endTask(r *Request) {
	m.mu.Lock()
	task := m.tasks[r]
	delete(m.tasks, r)
	m.mu.Unlock()
	if task != nil {
		task.End()
	}
}

// starts reports whether the call has started an operation, which a wait or a test completes.
func (k *Call) starts() bool {
	switch k.Kind {
	case CallSend, CallRecv, CallSendrecv, CallCollective, CallPut, CallGet:
		return k.Request != nil && k.Err == nil
	}
	return false
}

// labels are the contexts whose labels calls on a Comm have had.
type labels struct {
	mu sync.Mutex
	of map[label]context.Context
}

type label struct {
	op   string
	peer int
}

// labelled returns a context with the labels of a call, and the labels of the Comm's context.
func (h *hooked) labelled(k *Call) context.Context {
	l := label{k.Op, Undefined}
	if k.Peer >= 0 {
		l.peer = k.World
	}
	h.labels.mu.Lock()
	defer h.labels.mu.Unlock()
	ctx := h.labels.of[l]
	if ctx == nil {
		texts := []string{"mpi_op", l.op, "mpi_rank", strconv.Itoa(h.rank)}
		if l.peer >= 0 {
			texts = append(texts, "mpi_peer", strconv.Itoa(l.peer))
		}
		ctx = pprof.WithLabels(h.Context, pprof.Labels(texts...))
		if h.labels.of == nil {
			h.labels.of = map[label]context.Context{}
		}
		h.labels.of[l] = ctx
	}
	return ctx
}
