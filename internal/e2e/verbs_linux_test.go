//go:build verbs && linux && cgo

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi"
	"github.com/gorun-mpi/mpi/internal/testkit/hcakit"
)

func init() { role("frozen", frozen) }

const (
	frozenBytes = 8 << 20
	// heapBytes of the heap are registered by the call that sends them; a goroutine registers what is longer.
	heapBytes = 1 << 20
	// frozenTurns of a loop that does nothing are many seconds, after which it is a failure.
	frozenTurns = 1 << 36
)

// A sender that has begun to send goes into a computation which gives no goroutine of its process the processor: it has
// one, and nothing preempts it. The receiver gets the whole message meanwhile, by READs of the devices; the sender sees
// that in memory that both share, and only then calls the library again. For a long message of the heap, which a
// goroutine registers, the computation is preempted, as all are unless GODEBUG says otherwise.
func TestVerbsSenderTakesNoPart(t *testing.T) {
	library := hcakit.Build(t)
	for _, c := range []struct {
		name string
		args []string
		env  []string
	}{
		{"expected", []string{"expected", "heap"}, nil},
		{"unexpected", []string{"unexpected", "heap"}, nil},
		{"alloc", []string{"expected", "alloc"}, nil},
		{"split", []string{"unexpected", "heap"}, []string{"SOFTHCA_MAX_MSG=65536"}},
		{"software", []string{"expected", "heap"}, []string{"GORUN_TM=off"}},
		{"split-alloc", []string{"expected", "alloc"}, []string{"SOFTHCA_MAX_MSG=65536"}},
		{"long", []string{"expected", "long"}, []string{"GODEBUG="}},
		{"long-software", []string{"unexpected", "long"}, []string{"GODEBUG=", "GORUN_TM=off"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			shared := t.TempDir() + "/shared"
			if err := os.WriteFile(shared, make([]byte, 4096), 0o600); err != nil {
				t.Fatal(err)
			}
			env := append([]string{"GORUN_TRANSPORTS=verbs", "GORUN_VERBS_LIB=" + library, "GORUN_VERBS_REG=64K", "GORUN_TM=on",
				"SOFTHCA_DIR=" + t.TempDir(),
				"GODEBUG=asyncpreemptoff=1"}, c.env...)
			j := start(t, spec{n: 2, role: "frozen", args: append(c.args, shared), env: env}).wait(0)
			began, ended := stamps(t, j, "computes"), stamps(t, j, "computed")
			if there := stamps(t, j, "received"); there <= began || there >= ended {
				t.Errorf("the message was there %v after the computation began, which took %v", time.Duration(there-began),
					time.Duration(ended-began))
			}
		})
	}
}

func TestVerbsStopped(t *testing.T) {
	stoppedAtFirstContact(t, "GORUN_TRANSPORTS=verbs", "GORUN_TM=on", "GORUN_VERBS_LIB="+hcakit.Build(t),
		"SOFTHCA_DIR="+t.TempDir())
}

// verbsTags are settings of a job over the software HCA, with software and with the device matching tags.
func verbsTags(t *testing.T) map[string][]string {
	all := map[string][]string{}
	for _, tm := range []string{"off", "on"} {
		all["verbs, tags "+tm] = []string{"GORUN_TRANSPORTS=verbs", "GORUN_TM=" + tm, "GORUN_VERBS_REG=64K",
			"GORUN_VERBS_LIB=" + hcakit.Build(t), "SOFTHCA_DIR=" + t.TempDir()}
	}
	return all
}

func TestVerbsJobThatStands(t *testing.T) {
	for name, env := range verbsTags(t) {
		jobsThatStand(t, name, env...)
	}
}

func TestVerbsRandomProgramsDoNotStand(t *testing.T) { doNotStand(t, verbsTags(t)) }

// stamps is the time that a rank has printed behind a word. Both ranks have the same clock.
func stamps(t *testing.T, j *job, word string) int64 {
	t.Helper()
	found := j.find(word + ` (\d+)`)
	if len(found) != 1 {
		t.Fatalf("%q was printed %d times", word, len(found))
	}
	n, err := strconv.ParseInt(found[0][1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// frozen has the arguments expected or unexpected, heap, long or alloc, and the path of the shared memory.
func frozen(_ context.Context, w *mpi.Comm) error {
	f, err := os.OpenFile(os.Args[3], os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	flags, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer unix.Munmap(flags)
	buf := make([]byte, frozenBytes)
	switch os.Args[2] {
	case "heap":
		buf = buf[:heapBytes]
	case "alloc":
		b, err := mpi.Alloc[byte](frozenBytes)
		if err != nil {
			return err
		}
		defer b.Free()
		buf = b.Slice()
	}
	if err := mpi.Barrier(w); err != nil {
		return err
	}
	if w.Rank() == 0 {
		return frozenSender(w, buf, flags)
	}
	return frozenReceiver(w, buf, flags)
}

// What the two write into the memory that they share, each into a byte of its own.
const (
	posted   = iota // the receive is posted
	sending         // the sender is about to compute, and has posted its send
	received        // all of the message is there
)

func frozenSender(w *mpi.Comm, buf, flags []byte) error {
	pattern(buf, 7)
	for os.Args[1] == "expected" && flags[posted] == 0 {
		time.Sleep(time.Millisecond)
	}
	r, err := mpi.Isend(w, buf, 1, 3)
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(-1) // it would wait for this goroutine
	fmt.Println("computes", time.Now().UnixNano())
	flags[sending] = 1
	turns := freeze(flags)
	fmt.Println("computed", time.Now().UnixNano())
	if turns == frozenTurns {
		return fmt.Errorf("the receiver does not get the message while the sender computes")
	}
	_, err = r.Wait()
	return err
}

// freeze calls nothing, so that no other goroutine of this process runs.
//
//go:noinline
func freeze(flags []byte) (turns int) {
	for ; flags[received] == 0 && turns < frozenTurns; turns++ {
	}
	return turns
}

func frozenReceiver(w *mpi.Comm, buf, flags []byte) error {
	var r *mpi.Request
	var err error
	if os.Args[1] == "expected" {
		if r, err = mpi.Irecv(w, buf, 0, 3); err != nil {
			return err
		}
		flags[posted] = 1
	}
	for flags[sending] == 0 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(20 * time.Millisecond) // the sender computes by now
	if r == nil {
		_, err = mpi.Recv(w, buf, 0, 3)
	} else {
		_, err = r.Wait()
	}
	if err != nil {
		return err
	}
	fmt.Println("received", time.Now().UnixNano())
	flags[received] = 1
	want := make([]byte, len(buf))
	if pattern(want, 7); !bytes.Equal(buf, want) {
		return fmt.Errorf("wrong contents")
	}
	return nil
}
