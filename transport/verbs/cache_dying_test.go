//go:build verbs && linux && cgo

package verbs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
	"github.com/gorun-mpi/mpi/transport"
)

// dyingVar says which way of keeping registrations the child process of TestDyingBuffers uses.
const dyingVar = "GORUN_TEST_VERBS_DYING"

// byAddress is the cache that is not to be: what has been registered is found by its address. As caches in C do, it
// counts on hearing of memory that is given back, from munmap and madvise. Go's runtime reports neither.
type byAddress struct {
	hca     *hca
	entries map[cacheKey]*registration
	hits    int
}

func (c *byAddress) take(mem transport.Mem, rights int) *registration {
	x := c.entries[keyOf(mem, rights)]
	if x != nil {
		c.hits++
		x.uses++
		x.pin.Pin(mem.Addr)
	}
	return x
}

func (c *byAddress) keep(x *registration, mem transport.Mem, rights int) {
	x.kept, x.uses = true, 1
	c.entries[keyOf(mem, rights)] = x
}

func (c *byAddress) give(x *registration) {
	if x.uses--; x.uses == 0 {
		x.pin.Unpin()
	}
}

func (c *byAddress) shrink() bool { return false }

func (c *byAddress) drop() {
	for _, x := range c.entries {
		c.hca.deregister(x.region)
	}
}

// lateCleanups is our cache where the cleanups of dead objects never come: then the weak pointer alone has to tell.
type lateCleanups struct{ *identityCache }

func (c lateCleanups) keep(x *registration, mem transport.Mem, rights int) {
	if c.identityCache.keep(x, mem, rights); x.kept {
		x.cleanup.Stop()
	}
}

// tally is what TestDyingBuffers has seen.
type tally struct {
	transfers, wrong int
	reused           int    // buffers at the address of one that has died
	hits, died       int    // of the cache
	stale            uint64 // pages, by the software HCA's own account
}

func (n tally) String() string {
	return fmt.Sprintf("wrong bytes in %d of %d transfers; %d buffers at the addresses of dead ones, %d hits, %d dead entries, %d stale pages",
		n.wrong, n.transfers, n.reused, n.hits, n.died, n.stale)
}

var tallyLine = regexp.MustCompile(`wrong bytes in (\d+) of (\d+) transfers; (\d+) buffers at the addresses of dead ones, (\d+) hits, (\d+) dead entries, (\d+) stale pages`)

func parseTally(t *testing.T, text string) (n tally) {
	t.Helper()
	m := tallyLine.FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("the child has not got to the end:\n%s", text)
	}
	var v [7]int
	for i, s := range m[1:] {
		v[i], _ = strconv.Atoi(s)
	}
	return tally{wrong: v[0], transfers: v[1], reused: v[2], hits: v[3], died: v[4], stale: uint64(v[5])}
}

// TestDyingBuffers has buffers die while messages travel, their pages go back to the kernel all the time, new buffers
// come to lie where dead ones did, and all contents are right: without a cache, and with ours. With a cache that goes
// by addresses they are not, and that is part of the test: it shows that the others could have failed.
func TestDyingBuffers(t *testing.T) {
	if os.Getenv(dyingVar) != "" {
		n := dying(t, os.Getenv(dyingVar))
		fmt.Println(n)
		if n.wrong > 0 {
			t.Error(n)
		}
		return
	}
	needPages(t)
	t.Run("without", func(t *testing.T) {
		if n := spared(t, "none"); n.hits != 0 {
			t.Errorf("%v: there was no cache", n)
		}
	})
	t.Run("by identity", func(t *testing.T) {
		if n := spared(t, "identity"); n.hits < n.transfers/10 || n.died == 0 {
			t.Errorf("%v: the cache has hardly been used", n)
		}
	})
	t.Run("by identity, cleanups late", func(t *testing.T) {
		if n := spared(t, "late"); n.died == 0 {
			t.Errorf("%v: nothing of the dead was looked for", n)
		}
	})
	t.Run("by address fails", func(t *testing.T) {
		n, err := child(t, "address")
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || n.wrong == 0 || n.hits == 0 {
			t.Errorf("%v; %v. It should have ended with status 1 and have found wrong bytes", n, err)
		}
		if n.stale == 0 && soft(t) {
			t.Errorf("%v: no stale pages, so what was wrong?", n)
		}
	})
}

// spared runs a child that must find all contents right, with enough of what could have made them wrong.
func spared(t *testing.T, mode string) tally {
	t.Helper()
	n, err := child(t, mode)
	if err != nil || n.wrong != 0 || n.stale != 0 {
		t.Errorf("%v; %v", n, err)
	}
	if n.reused < wantReused {
		t.Errorf("%v: too few to show anything", n)
	}
	return n
}

// child runs this test in a process of its own, whose heap has no other user.
func child(t *testing.T, mode string) (tally, error) {
	t.Helper()
	out, err := proc.RerunTest(t, append(sameLibrary(t), dyingVar+"="+mode, "GODEBUG=madvdontneed=1",
		"SOFTHCA_PAGES=1")...)
	n := parseTally(t, out)
	t.Log(n)
	if err != nil && n.wrong == 0 {
		t.Logf("%s", out)
	}
	return n, err
}

// needPages skips the test where the kernel does not help: a real device keeps the pages that were registered, the
// software one does not by itself.
func needPages(t *testing.T) {
	if !soft(t) {
		return
	}
	t.Setenv("SOFTHCA_PAGES", "1")
	h, err := open("softhca0", "/")
	if err != nil {
		t.Skip("the software HCA cannot see which pages are whose here (needs CAP_SYS_ADMIN and io_uring), see above: ", err)
	}
	h.close()
}

const wantReused = 40

// dying does it. It ends when enough buffers have come to lie where others had died.
func dying(t *testing.T, mode string) (n tally) {
	watchdog(t)
	size := 0
	if mode == "identity" || mode == "late" {
		size = 16
	}
	a, b, ab, ba := two(t, caching(size))
	for _, e := range []*end{a, b} {
		switch mode {
		case "late":
			e.regs.cache = lateCleanups{e.cached()}
		case "address":
			e.regs.cache = &byAddress{e.hca, map[cacheKey]*registration{}, 0}
		}
	}
	stop := churn()
	defer stop()
	var grave freedAddresses
	sizes := []int{64 << 10, 256 << 10, 1<<20 + 4096}
	src, dst := make([]byte, 128<<10), make([]byte, 128<<10) // these live
	transfers := 100
	if inGuest() {
		transfers = 2 * wantReused
	}
	for limit := time.Now().Add(2 * patience); n.transfers < transfers || n.reused < wantReused; {
		length := sizes[n.transfers%len(sizes)]
		n.reused += grave.bury(mortal(t, &n, a, b, ab, ba, length))
		n.once(t, a, b, ab, ba, src, dst)
		if time.Now().After(limit) {
			break
		}
	}
	for _, e := range []*end{a, b} {
		switch c := e.regs.cache.(type) {
		case *identityCache:
			n.count(c)
		case lateCleanups:
			n.count(c.identityCache)
		case *byAddress:
			n.hits += c.hits
		}
		if stale, err := e.hca.counter("stale_pages"); err == nil {
			n.stale += stale
		}
	}
	return n
}

func (n *tally) count(c *identityCache) {
	s, _ := c.counts()
	n.hits += s.hits
	n.died += s.died
}

// churn has the collector run, and gives what is free back to the kernel, all the time.
func churn() (stop func()) {
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
				debug.FreeOSMemory()
			}
		}
	})
	return func() { close(end); wg.Wait() }
}

// mortal sends one message between buffers that are garbage afterwards, and returns where they were.
func mortal(t *testing.T, n *tally, a, b *end, ab, ba *link, length int) (where [2]uint64) {
	src, dst := make([]byte, length), make([]byte, length)
	n.once(t, a, b, ab, ba, src, dst)
	return [2]uint64{addressOf(src), addressOf(dst)}
}

// once sends a message of new contents and looks at them.
func (n *tally) once(t *testing.T, a, b *end, ab, ba *link, src, dst []byte) {
	t.Helper()
	fill(src, uint64(n.transfers))
	if !carried(t, a, b, ab, ba, src, dst) {
		n.wrong++
	}
	n.transfers++
}

// freedAddresses has the addresses of buffers that are garbage.
type freedAddresses map[uint64]bool

// bury enters two of them. It returns how many were in it: they were others' before.
func (d *freedAddresses) bury(where [2]uint64) (reused int) {
	if *d == nil {
		*d = freedAddresses{}
	}
	for _, at := range where {
		if (*d)[at] {
			reused++
		}
		(*d)[at] = true
	}
	return reused
}

// What the parent reads is what the child prints.
func TestTallyIsRead(t *testing.T) {
	want := tally{1, 2, 3, 4, 5, 6}
	if got := parseTally(t, strings.Repeat("x\n", 3)+want.String()+"\n--- FAIL"); got != want {
		t.Errorf("%+v", got)
	}
}
