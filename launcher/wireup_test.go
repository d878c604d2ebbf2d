package launcher

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/frames"
	"github.com/gorun-mpi/mpi/internal/pmi"
)

// wireUp is the servers of a tree of agents, and the frames between them, in one process. Only ranks, their connections
// and the streams are left out.
type wireUp struct {
	t     *testing.T
	name  string
	root  *pmi.Server
	hosts []*wireHost
	queue []func()
	depth int
	// At the root: what comes and goes, in a step.
	frames, bytes int
}

// wireHost is an agent: its server with the edge above it, and the ranks.
type wireHost struct {
	w      *wireUp
	depth  int
	server *pmi.Server
	edge   *pmi.Below // of the server above
	ranks  *pmi.Below // of its own server
	in     int        // barriers it was let out of
	got    int        // answers to its ranks
}

// send carries a frame over the edge to the server above, or down from it.
func (h *wireHost) send(k frames.Kind, body []byte, take func(frames.Frame) error) {
	b := frames.Append(nil, frames.Frame{Kind: k, Body: body})
	if h.depth == 1 {
		h.w.frames++
		h.w.bytes += len(b)
	}
	h.w.queue = append(h.w.queue, func() {
		f, n, _, err := frames.Next(b)
		if err != nil || n != len(b) {
			h.w.t.Fatalf("a frame of %d bytes is %d: %v", len(b), n, err)
		}
		if err := take(f); err != nil {
			h.w.t.Fatal(err)
		}
	})
}

func (h *wireHost) Fence(put []pmi.Pair) {
	for _, body := range putFrames(put) {
		h.send(frames.Put, body, func(f frames.Frame) error {
			put, err := decode[[]pmi.Pair](f)
			if err != nil {
				return err
			}
			return h.edge.Put(pairs(put, narrow))
		})
	}
	h.send(frames.Fence, nil, func(frames.Frame) error { return h.edge.Fence() })
}

func (h *wireHost) Ask(request []byte) {
	h.send(frames.Question, request, func(f frames.Frame) error { return h.edge.Ask(f.Body) })
}

func (h *wireHost) Release() {
	h.send(frames.Released, nil, func(frames.Frame) error { return h.server.Release() })
}

func (h *wireHost) Answer(text []byte) {
	h.send(frames.Answer, text, func(f frames.Frame) error { return h.server.Answered(f.Body) })
}

func (h *wireHost) Call(to, from int) {
	h.send(frames.Call, encode(callMessage{to, from}), func(frames.Frame) error { h.server.Called(to, from); return nil })
}

// wireRanks is the ranks of a host, as its server sees them.
type wireRanks struct{ *wireHost }

func (r wireRanks) Release()      { r.in++ }
func (r wireRanks) Call(int, int) {}
func (r wireRanks) Answer(text []byte) {
	r.got++
	if !strings.Contains(string(text[:min(len(text), 40)]), "rc=0") {
		r.w.t.Errorf("the answer is %.80q", text)
	}
}

// newWireUp makes a tree, as gorun and its agents make it.
func newWireUp(t *testing.T, ranks, perHost, width int) *wireUp {
	w := &wireUp{t: t, root: pmi.NewServer(ranks, pmi.Options{Tree: true})}
	w.name = w.root.Name()
	hosts := make([]hostPart, ranks/perHost)
	for i := range hosts {
		for r := range perHost {
			hosts[i].Ranks = append(hosts[i].Ranks, i*perHost+r)
		}
	}
	w.grow(w.root, hosts, ranks, width, 1)
	t.Cleanup(w.root.Close)
	return w
}

func (w *wireUp) grow(above *pmi.Server, hosts []hostPart, ranks, width, depth int) {
	for _, part := range parts(hosts, width) {
		w.depth = max(w.depth, depth)
		h := &wireHost{w: w, depth: depth}
		h.server = pmi.NewServer(ranks, pmi.Options{Name: w.name, Secret: make([]byte, secretSize), Tree: true,
			Above: h})
		h.edge = above.NewBelow(ranks, h)
		h.ranks = h.server.NewBelow(ranks, wireRanks{h})
		w.hosts = append(w.hosts, h)
		w.grow(h.server, part[1:], ranks, width, depth+1)
	}
}

// run deals with all frames, and returns what of them the root has seen.
func (w *wireUp) run() (frames, bytes int) {
	for len(w.queue) > 0 {
		f := w.queue[0]
		w.queue = w.queue[1:]
		f()
	}
	frames, bytes = w.frames, w.bytes
	w.frames, w.bytes = 0, 0
	return frames, bytes
}

// The root of a tree hears of a fence once from each agent that it has started, whatever the number of ranks, and what
// ranks want to know of each other passes it once.
func TestWireUpOfManyRanks(t *testing.T) {
	ranks, perHost, width := 100_000, 32, DefaultWidth
	if testing.Short() {
		ranks, perHost, width = 2000, 16, 8
	}
	w := newWireUp(t, ranks, perHost, width)
	address := strings.Repeat("a", 150) // as the addresses of a rank of ours
	all := 0
	for i, h := range w.hosts {
		var put []pmi.Pair
		for r := range perHost {
			put = append(put, pmi.Pair{Key: fmt.Sprintf("tcp-%d", i*perHost+r), Value: address})
			all += len(put[r].Key) + len(address)
		}
		if err := h.ranks.Put(put); err != nil {
			t.Fatal(err)
		}
		if err := h.ranks.Fence(); err != nil {
			t.Fatal(err)
		}
	}
	n, bytes := w.run()
	for _, h := range w.hosts {
		if h.in != 1 {
			t.Fatalf("a host was let out of the barrier %d times", h.in)
		}
	}
	t.Logf("%d ranks on %d hosts, width %d: depth %d; all keys are %d bytes", ranks, len(w.hosts), width, w.depth, all)
	t.Logf("fence: %d frames at the root, %d bytes", n, bytes)
	if most := width * 3; n > most { // put, fence, released
		t.Errorf("%d frames at the root in a fence, want %d at most", n, most)
	}
	ask := func(h *wireHost, rank int) {
		if err := h.ranks.Ask([]byte(fmt.Sprintf("cmd=get kvsname=%s key=tcp-%d", w.name, rank))); err != nil {
			t.Fatal(err)
		}
	}
	for i, h := range w.hosts { // a ring of hosts
		ask(h, (i*perHost+perHost)%ranks)
		ask(h, (i*perHost-1+ranks)%ranks)
	}
	n, bytes = w.run()
	t.Logf("neighbours: %d frames at the root, %d bytes", n, bytes)
	if most := width * 4; n > most {
		t.Errorf("%d frames at the root for the keys of neighbours, want %d at most", n, most)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := 0; i < len(w.hosts); i += 5 {
		for range 4 {
			ask(w.hosts[i], rng.IntN(ranks))
		}
	}
	n, bytes = w.run()
	t.Logf("four at random for each fifth host: %d frames at the root, %d bytes", n, bytes)
	for i, h := range w.hosts {
		if want := map[bool]int{true: 6, false: 2}[i%5 == 0]; h.got != want {
			t.Fatalf("the ranks of a host have %d answers, want %d", h.got, want)
		}
	}
	// With a question, each child of the root learns of twice as much as with the one before, up to half a megabyte;
	// at random, some of it again.
	if most := 2 * width * (4*all/(512<<10) + 6); n > most {
		t.Errorf("%d frames at the root for keys at random, want %d at most", n, most)
	}
}
