package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/testkit/netns"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// spread describes a job on hosts. Its ranks are the test binary in a role, with args as its arguments.
type spread struct {
	perHost []int // ranks on h1, h2, ...; nil: one on each
	role    string
	args    []string
	prog    string        // instead of the test binary
	timeout time.Duration // GORUN_PEER_TIMEOUT
	env     []string
	mapping string        // PMI_process_mapping; "": as perHost says
	folder  string        // "": one is made
	grace   time.Duration // 0: ranks are not killed when another has failed. What they do by themselves is what is tested
}

// hostJob is a job on hosts. The test signals its ranks by files in its folder: no network is needed for it.
type hostJob struct {
	*netns.Running
	t      *testing.T
	folder string
	size   int
	limit  time.Duration // after which it hangs
	codes  []int         // after finish
}

const folderVar = "GORUN_TEST_FOLDER"

// runOn starts a job.
func runOn(t *testing.T, h *netns.Hosts, s spread) *hostJob {
	t.Helper()
	prog := program(t, s.prog)
	if s.perHost == nil {
		s.perHost = slices.Repeat([]int{1}, h.Count())
	}
	if s.grace == 0 {
		s.grace = -1
	}
	if s.folder == "" {
		s.folder = t.TempDir()
	}
	j := &hostJob{t: t, folder: s.folder, limit: 2 * patience}
	for _, n := range s.perHost {
		j.size += n
	}
	var err error
	env := []string{proc.RoleVar + "=" + s.role, folderVar + "=" + j.folder, "GORACE=atexit_sleep_ms=0"}
	env = append(env, jobEnv...)
	j.Running, err = h.Run(netns.Job{PerHost: s.perHost, Program: prog, Args: s.args, Env: append(env, s.env...),
		Grace: s.grace, PeerTimeout: s.timeout, Mapping: s.mapping})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// finish waits for the end of all ranks and expects the job's exit code; -1: any that is not 0.
func (j *hostJob) finish(code int) *hostJob {
	j.t.Helper()
	watchdog := time.AfterFunc(j.limit, j.dump)
	j.codes = j.Wait()
	if !watchdog.Stop() {
		j.t.Errorf("the job did not end within %v; goroutines of its ranks below", j.limit)
	}
	if got := j.Code(); got != code && !(code < 0 && got != 0) {
		j.t.Errorf("exit code %d, want %d", got, code)
	}
	j.t.Cleanup(func() {
		if j.t.Failed() {
			j.t.Logf("codes %v\n%s", j.codes, j.all())
		}
	})
	return j
}

// dump has every rank print its goroutines, and ends the job.
func (j *hostJob) dump() {
	for rank := range j.size {
		if pid, err := j.Pid(rank); err == nil {
			syscall.Kill(pid, syscall.SIGCONT)
			syscall.Kill(pid, syscall.SIGQUIT)
		}
	}
	time.Sleep(3 * time.Second)
	j.Stop()
}

// all is what all ranks have printed.
func (j *hostJob) all() string {
	var b strings.Builder
	for rank := range j.size {
		fmt.Fprintf(&b, "rank %d on h%d:\n%s", rank, j.Host(rank), clip(j.Output(rank)))
	}
	return b.String()
}

// awaits waits until a rank has printed something. The test fails if the rank ends before.
func (j *hostJob) awaits(rank int, pattern string) []string {
	j.t.Helper()
	re := regexp.MustCompile(`(?m)` + pattern)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if m := re.FindStringSubmatch(j.Output(rank)); m != nil {
			return m
		}
		select {
		case <-j.Ended(rank):
			if m := re.FindStringSubmatch(j.Output(rank)); m != nil {
				return m
			}
			j.t.Fatalf("rank %d has ended and not printed %q:\n%s", rank, pattern, j.all())
		default:
		}
	}
	j.t.Fatalf("rank %d has not printed %q within %v:\n%s", rank, pattern, patience, j.all())
	return nil
}

// allReady waits until every rank is where the test wants it.
func (j *hostJob) allReady() {
	j.t.Helper()
	for rank := range j.size {
		j.awaits(rank, `^ready$`)
	}
}

// says expects that a rank has printed each of these regular expressions.
func (j *hostJob) says(rank int, patterns ...string) {
	j.t.Helper()
	for _, p := range patterns {
		if !regexp.MustCompile(`(?m)` + p).MatchString(j.Output(rank)) {
			j.t.Errorf("rank %d has not printed %q:\n%s", rank, p, clip(j.Output(rank)))
		}
	}
}

// signal makes the file that ranks wait for.
func (j *hostJob) signal(name string) {
	j.t.Helper()
	if err := os.WriteFile(filepath.Join(j.folder, name), nil, 0o644); err != nil {
		j.t.Fatal(err)
	}
}

// must is for faults: without them a test proves nothing. It is skipped where the kernel cannot have them.
func must(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, netns.ErrUnavailable) && !proc.Installed(netns.Package) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// signalled reports whether the test has made a file; waitSignal waits for it without calling the library.
func signalled(name string) bool {
	_, err := os.Stat(filepath.Join(os.Getenv(folderVar), name))
	return err == nil
}

func waitSignal(name string) {
	for !signalled(name) {
		time.Sleep(5 * time.Millisecond)
	}
}

// connectAll makes the connections between all ranks.
func connectAll(w *mpi.Comm) error {
	for i := range w.Size() {
		if i == w.Rank() {
			continue
		}
		if _, err := mpi.Sendrecv(w, []byte{1}, i, tagGo, []byte{0}, i, tagGo); err != nil {
			return err
		}
	}
	return mpi.Barrier(w)
}

// reportFailure prints when a call has failed, by the machine's clock that all hosts share, and how.
func reportFailure(w *mpi.Comm, err error) error {
	fmt.Printf("rank %d fails at %d, peer failed %v, timeout %v: %v\n", w.Rank(), time.Now().UnixMicro(),
		errors.Is(err, mpi.ErrPeerFailed), errors.Is(err, mpi.ErrTimeout), err)
	return err
}

const (
	failurePattern = `^rank %d fails at (\d+), peer failed %v, timeout %v: mpi: (.*)$`
	huge           = 64 << 20
)

// failsWithin expects that a rank's call fails with an error of that class, at most limit after a moment. It returns
// the error's text.
func (j *hostJob) failsWithin(rank int, limit time.Duration, after time.Time, class string) string {
	j.t.Helper()
	m := j.awaits(rank, fmt.Sprintf(failurePattern, rank, class == "peer failed", class == "timeout"))
	us, _ := strconv.ParseInt(m[1], 10, 64)
	took := time.UnixMicro(us).Sub(after)
	j.t.Logf("rank %d failed after %v: %s", rank, took.Round(time.Millisecond), m[2])
	if took > limit || took < 0 {
		j.t.Errorf("rank %d failed %v after the fault, want at most %v", rank, took, limit)
	}
	return m[2]
}

// runBlocked starts a job whose ranks 0 and 1 are in a call that needs the other, "recv" or "flow". It returns when they
// are.
func runBlocked(t *testing.T, h *netns.Hosts, how string, timeout time.Duration) *hostJob {
	t.Helper()
	j := runOn(t, h, spread{role: "hosts block", args: []string{how}, timeout: timeout})
	j.allReady()
	if how == "flow" {
		j.awaits(1, `^flowing$`)
	}
	return j
}

func init() {
	role("hosts block", func(_ context.Context, w *mpi.Comm) error {
		if err := connectAll(w); err != nil {
			return err
		}
		fmt.Println("ready")
		switch peer := 1 - w.Rank(); {
		case w.Rank() > 1:
			_, err := mpi.Recv(w, []byte{0}, 0, tagData) // which never comes
			return err
		case os.Args[1] == "recv":
			_, err := mpi.Recv(w, []byte{0}, peer, tagData)
			return reportFailure(w, err)
		default:
			return reportFailure(w, flow(w, peer))
		}
	})
	role("hosts connect", func(_ context.Context, w *mpi.Comm) error {
		fmt.Println("ready")
		if w.Rank() > 0 {
			if _, err := mpi.Recv(w, []byte{0}, mpi.AnySource, tagData); err != nil {
				return reportFailure(w, err)
			}
			return nil
		}
		waitSignal("go")
		return reportFailure(w, mpi.Ssend(w, []byte{1}, 1, tagData))
	})
	role("hosts chatter", func(_ context.Context, w *mpi.Comm) (err error) { // rank 0 sends a long message, then short ones
		if err := connectAll(w); err != nil {
			return err
		}
		fmt.Println("ready")
		waitSignal("go")
		b := make([]byte, 20<<10) // the short ones are not kept back for it
		if w.Rank() == 1 {
			_, err = mpi.Recv(w, b, 0, tagData)
		} else {
			for err = mpi.Send(w, b, 1, tagData); err == nil; time.Sleep(50 * time.Millisecond) {
				err = mpi.Send(w, b[:1], 1, tagGo)
			}
		}
		reportFailure(w, err)
		waitSignal("end")
		return err
	})
	role("hosts one talks", func(_ context.Context, w *mpi.Comm) error { // only one rank of two knows of the message
		if fmt.Sprint(w.Rank()) != os.Args[1] {
			_, err := mpi.Recv(w, []byte{0}, mpi.AnySource, tagData)
			return err
		}
		return mpi.Ssend(w, []byte{1}, 1-w.Rank(), tagData)
	})
	role("hosts traffic", traffic)
}

// flow sends large messages from rank 0 to rank 1 for ever, or until there is an error.
func flow(w *mpi.Comm, peer int) error {
	b := make([]byte, huge)
	if w.Rank() == 0 {
		pattern(b, 1)
	}
	for i := 0; ; i++ {
		if w.Rank() == 0 {
			if err := mpi.Send(w, b, peer, tagData); err != nil {
				return err
			}
			continue
		}
		if _, err := mpi.Recv(w, b, peer, tagData); err != nil {
			return err
		}
		if i == 0 {
			fmt.Println("flowing")
		}
		if i%8 == 0 {
			if err := verify(b, 1); err != nil {
				return err
			}
			clear(b)
		}
	}
}

// traffic exchanges messages between all pairs until rank 0 is signalled to stop, and checks contents and order.
func traffic(_ context.Context, w *mpi.Comm) error {
	if err := connectAll(w); err != nil {
		return err
	}
	fmt.Println("ready")
	for round := 0; ; round++ {
		if err := pairs(w, round); err != nil {
			return reportFailure(w, fmt.Errorf("round %d: %w", round, err))
		}
		more := []byte{1}
		if w.Rank() == 0 && signalled("stop") {
			more[0] = 0
		}
		for i := 1; i < w.Size(); i++ {
			switch {
			case w.Rank() == 0:
				if err := mpi.Send(w, more, i, tagGo); err != nil {
					return reportFailure(w, err)
				}
			case w.Rank() == i:
				if _, err := mpi.Recv(w, more, 0, tagGo); err != nil {
					return reportFailure(w, err)
				}
			}
		}
		fmt.Printf("round %d at %d\n", round, time.Now().UnixMicro())
		if more[0] == 0 {
			break
		}
	}
	fmt.Printf("rank %d is content, refused %d\n", w.Rank(), w.Stats().Refused)
	return nil
}

// small messages of a round between two ranks, and the length of each.
const (
	smallOnes = 200
	smallSize = 24
	tagSmall  = 100 // and the round: another rank may be ahead by one
)

// pairs is one round: small messages to every other rank, whose order counts, and a large one.
func pairs(w *mpi.Comm, round int) error {
	me, n := w.Rank(), w.Size()
	length := 1 << (10 + round%12)
	var sends, recvs []*mpi.Request
	in := make([][]byte, n)
	for peer := range n {
		if peer == me {
			continue
		}
		in[peer] = make([]byte, length)
		r, err := mpi.Irecv(w, in[peer], peer, tagData)
		if err != nil {
			return err
		}
		out := make([]byte, length)
		pattern(out, round+me*1000+peer)
		s, err := mpi.Isend(w, out, peer, tagData)
		if err != nil {
			return err
		}
		sends, recvs = append(sends, s), append(recvs, r)
		for i := range smallOnes {
			b := make([]byte, smallSize)
			pattern(b, round+me*1000+peer+i)
			if s, err = mpi.Isend(w, b, peer, tagSmall+round); err != nil {
				return err
			}
			sends = append(sends, s)
		}
	}
	next := make([]int, n)
	b := make([]byte, smallSize)
	for range smallOnes * (n - 1) {
		st, err := mpi.Recv(w, b, mpi.AnySource, tagSmall+round)
		if err != nil {
			return err
		}
		if err := verify(b[:st.Bytes], round+st.Source*1000+me+next[st.Source]); err != nil || st.Bytes != smallSize {
			return fmt.Errorf("small message %d of rank %d, %d bytes: %w", next[st.Source], st.Source, st.Bytes, err)
		}
		next[st.Source]++
	}
	if err := mpi.WaitAll(append(recvs, sends...)...); err != nil {
		return err
	}
	for peer := range n {
		if err := verify(in[peer], round+peer*1000+me); peer != me && err != nil {
			return fmt.Errorf("%d bytes of rank %d: %w", length, peer, err)
		}
	}
	return nil
}

// progresses expects another few rounds of traffic from now on.
func (j *hostJob) progresses() {
	j.t.Helper()
	from := time.Now()
	proc.Eventually(j.t, "another round of traffic", func() bool {
		select {
		case <-j.Ended(0):
			j.t.Fatalf("rank 0 has ended:\n%s", j.all())
		default:
		}
		return len(j.roundsSince(from)) >= 3
	})
}

// mayEnd is how many rounds may end after a rank has fallen silent: the one that is under way, and one more if the rank
// had begun it.
const mayEnd = 2

var roundPattern = regexp.MustCompile(`(?m)^round \d+ at (\d+)$`)

// roundsSince are the rounds that rank 0 has ended since a moment.
func (j *hostJob) roundsSince(from time.Time) (at []time.Time) {
	for _, m := range roundPattern.FindAllStringSubmatch(j.Output(0), -1) {
		us, _ := strconv.ParseInt(m[1], 10, 64)
		if t := time.UnixMicro(us); t.After(from) {
			at = append(at, t)
		}
	}
	return at
}

// stop ends traffic and expects that nothing was lost.
func (j *hostJob) stop() {
	j.t.Helper()
	j.signal("stop")
	j.finish(0)
	for rank := range j.size {
		j.says(rank, fmt.Sprintf(`^rank %d is content`, rank))
	}
}
