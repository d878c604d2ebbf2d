package sysmon

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience is the limit of a step, after which a test fails.
const patience = time.Minute

// batch are the threads of this process with that policy.
func batch(t *testing.T) (tids []int) {
	t.Helper()
	dir, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dir {
		tid, err := strconv.Atoi(d.Name())
		if err != nil {
			t.Fatal(err)
		}
		if attr, err := unix.SchedGetAttr(tid, 0); err == nil && attr.Policy == unix.SCHED_BATCH { // else it has ended
			tids = append(tids, tid)
		}
	}
	return tids
}

// One thread, which sleeps in nanosleep, gets the policy, and a second call changes nothing. The process is one of its
// own: of this one, a thread that the monitor has made afterwards would have the policy as well.
func TestBatch(t *testing.T) {
	if os.Getenv("SYSMON_CHILD") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestBatch$", "-test.v")
		cmd.Env = append(os.Environ(), "SYSMON_CHILD=1", "GOMAXPROCS=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	if before := batch(t); len(before) != 0 {
		t.Fatalf("threads %v are SCHED_BATCH from the start", before)
	}
	for range 2 {
		err := ErrUnknown
		for end := time.Now().Add(patience); errors.Is(err, ErrUnknown) && time.Now().Before(end); {
			err = Batch() // again, since another process may have its CPU
		}
		if err != nil {
			t.Fatal(err)
		}
		tids := batch(t)
		if len(tids) != 1 || tids[0] == os.Getpid() {
			t.Fatalf("threads %v of process %d are SCHED_BATCH, want one that is not the first", tids, os.Getpid())
		}
		// It sleeps as the monitor does, while this goroutine runs. No other thread of Go does that for long.
		for asleep, end := false, time.Now().Add(patience); !asleep; unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) {
			b, err := os.ReadFile("/proc/self/task/" + strconv.Itoa(tids[0]) + "/syscall")
			if err != nil {
				t.Fatal(err)
			}
			if time.Now().After(end) {
				t.Fatalf("thread %d does not sleep as the monitor does: %s", tids[0], b)
			}
			asleep = strings.HasPrefix(string(b), nanosleep+" ")
		}
	}
}

// A process that was started with another policy keeps it.
func TestOtherPolicy(t *testing.T) {
	if os.Getenv("SYSMON_CHILD") == "" {
		cmd := exec.Command("chrt", "-i", "0", os.Args[0], "-test.run=^TestOtherPolicy$", "-test.v")
		cmd.Env = append(os.Environ(), "SYSMON_CHILD=1", "GOMAXPROCS=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	if err := Batch(); err != nil {
		t.Fatal(err)
	}
	if tids := batch(t); len(tids) != 0 {
		t.Fatalf("threads %v are SCHED_BATCH in a process of SCHED_IDLE", tids)
	}
}
