package acceltest

import (
	"fmt"
	"math/rand/v2"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/gorun-mpi/mpi/accel"
)

// Options of a Machine. The zero value is one device without delays.
type Options struct {
	Devices int           // 0: one
	Memory  int64         // bytes of each device; 0: 4 GiB
	Seed    uint64        // of the delays
	Delay   time.Duration // the longest that a copy waits before it runs
	// Granularity is what Alloc rounds sizes up to; 0: 4 KiB.
	Granularity int64
	NotShared   bool // no memory can be exported
	Adapters    bool // DMABuf answers with a descriptor, which says nothing
	NoDriver    bool // every method of a Process answers accel.ErrNoDriver
}

// Machine has devices and the processes that use them.
type Machine struct {
	options Options

	mu        sync.Mutex // guards all that follows, and the processes and streams
	random    *rand.Rand
	processes []*Process
	used      []int64 // bytes, by device
	stores    uint64  // how many there were
	misuse    []string

	// moving guards the bytes of all device memory.
	moving sync.Mutex
}

// New returns a machine.
func New(o Options) *Machine {
	o.Devices = max(o.Devices, 1)
	if o.Memory == 0 {
		o.Memory = 4 << 30
	}
	if o.Granularity == 0 {
		o.Granularity = 4 << 10
	}
	return &Machine{options: o, random: rand.New(rand.NewPCG(o.Seed, 0)), used: make([]int64, o.Devices)}
}

// Process returns a driver as another process of this machine has it.
func (m *Machine) Process() *Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := &Process{m: m, number: uint64(len(m.processes)), nextAddr: firstAddr, nextID: firstID, free: map[int64][]uint64{},
		opens: map[openKey]*span{}, streams: map[uint64]*Stream{}, events: map[accel.Event]*copying{},
		calls: map[string]int{}, notices: map[*notice]bool{}, fails: map[string][]int{}, died: make(chan struct{})}
	for d := range m.options.Devices {
		p.library = append(p.library, m.newStream(p, d))
		p.null = append(p.null, m.newStream(p, d))
	}
	m.processes = append(m.processes, p)
	return p
}

// Left names what the processes that live have not given back, and what they have done against the rules of
// accel.Driver: a line each, "" if there is nothing.
func (m *Machine) Left() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var lines []string
	for _, p := range m.processes {
		if p.isDead() {
			continue
		}
		say := func(format string, args ...any) {
			lines = append(lines, fmt.Sprintf("process %d: ", p.number)+fmt.Sprintf(format, args...))
		}
		for _, s := range p.spans {
			switch {
			case s.opened > 0:
				say("%d bytes at %#x are open, %d times", s.size, s.base, s.opened)
			case s.kind == accel.Pinned:
				say("%d bytes of host memory at %#x are pinned", s.size, s.base)
			default:
				say("%d bytes of %v at %#x are not freed", s.size, s.kind, s.base)
			}
		}
		marks := 0
		for _, c := range p.events {
			if c.dst == nil {
				marks++
			}
		}
		if n := len(p.events) - marks; n > 0 {
			say("%d copies were started, and Done has not said that they have ended", n)
		}
		if marks > 0 {
			say("%d streams were marked, and Done has not said that the marks have ended, nor has Drop given them up", marks)
		}
	}
	sort.Strings(lines)
	return strings.Join(append(lines, m.misuse...), "\n")
}

// store is the memory of an allocation. It lives as long as a process has it open.
type store struct {
	serial   uint64
	owner    *Process
	device   int
	bytes    []byte
	exported bool
	freed    bool
	private  bool // cannot be exported
	mappings int  // of other processes
}

// span is a range of addresses of one Process: an allocation, an open one of another Process, or pinned host memory.
type span struct {
	base   uint64
	size   int64
	kind   accel.Kind
	device int
	id     uint64
	bytes  []byte
	of     *store // nil: host memory
	opened int    // how often Open has returned it
	busy   int    // copies that may touch it: until Done has said that they have ended
	gone   bool
}

func (s *span) memory() accel.Memory {
	return accel.Memory{Kind: s.kind, Device: s.device, Base: s.base, Size: s.size, ID: s.id}
}

// A failure of a call, as CUDA names it.
func failure(call string, code int) error {
	return &accel.Error{Call: call, Code: code, Name: map[int]string{
		invalidValue: "CUDA_ERROR_INVALID_VALUE", outOfMemory: "CUDA_ERROR_OUT_OF_MEMORY",
		invalidDevice: "CUDA_ERROR_INVALID_DEVICE", invalidHandle: "CUDA_ERROR_INVALID_HANDLE",
		alreadyPinned: "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", notPinned: "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
		invalidContext: "CUDA_ERROR_INVALID_CONTEXT", notSupported: "CUDA_ERROR_NOT_SUPPORTED",
		launchFailed: "CUDA_ERROR_LAUNCH_FAILED",
	}[code]}
}

const (
	invalidValue   = 1
	outOfMemory    = 2
	invalidDevice  = 101
	invalidContext = 201
	invalidHandle  = 400
	alreadyPinned  = 712
	notPinned      = 713
	launchFailed   = 719
	notSupported   = 801
)
