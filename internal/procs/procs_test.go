package procs

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/gorun-mpi/mpi/internal/cpuset"
)

func TestRankEnv(t *testing.T) {
	got := RankEnv([]string{"A=1", "PMI_FD=9", "B=2", "OMPI_MCA_x=1", "GORUN_LOG=debug", "GORUN_CPUS=9"},
		[]string{"B=3", "C="}, Position{Rank: 5, Size: 8, LocalRank: 1, LocalSize: 4}, 2, 0)
	want := []string{"A=1", "GORUN_LOG=debug", fmt.Sprint("PMI_FD=", ControlFD()), "PMI_RANK=5", "PMI_SIZE=8",
		"GORUN_LOCAL_RANK=1", "GORUN_LOCAL_SIZE=4", "GORUN_CPUS=2", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=4", "B=3",
		"C="}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if got := RankEnv(nil, nil, Position{Size: 1, LocalSize: 1}, 2, 3); got[len(got)-1] != "GOMAXPROCS=3" {
		t.Errorf("%q", got)
	}
	got = RankEnv([]string{"GOMAXPROCS=7"}, nil, Position{Size: 1, LocalSize: 1}, 2, 3)
	if got[0] != "GOMAXPROCS=7" || strings.Contains(fmt.Sprint(got[1:]), "GOMAXPROCS") {
		t.Errorf("the user's GOMAXPROCS was overruled: %q", got)
	}
}

// The bindings hold in the child and not in the thread that started it.
func TestBindThread(t *testing.T) {
	host := cpuset.Read()
	if !CanBind || len(host.CPUs) < 2 {
		t.Skip("needs two CPUs and Linux")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	one := host.CPUs[1].ID
	restore, err := bindThread([]int{one})
	if err != nil {
		t.Fatal(err)
	}
	if got := cpuset.Read().CPUs; len(got) != 1 || got[0].ID != one {
		t.Errorf("bound to %v, want %d", got, one)
	}
	restore()
	if got := cpuset.Read().CPUs; !reflect.DeepEqual(got, host.CPUs) {
		t.Errorf("after restore: %v, want %v", got, host.CPUs)
	}
	if _, err := bindThread([]int{1000}); err == nil {
		t.Error("bound to a CPU that is not there")
	}
}

// A cleaner that loses its launcher kills the groups and removes the folders it knows, and no others.
func TestCleaner(t *testing.T) {
	dir := t.TempDir()
	ours, other := filepath.Join(dir, TempPrefix+"1"), filepath.Join(dir, "precious")
	os.MkdirAll(ours+"/x", 0o755)
	os.MkdirAll(other, 0o755)
	pid, err := syscall.ForkExec("/bin/sleep", []string{"sleep", "1000"},
		&syscall.ProcAttr{Sys: &syscall.SysProcAttr{Setpgid: true}})
	if err != nil {
		t.Fatal(err)
	}
	Clean(strings.NewReader(fmt.Sprintf("group %d\nfolder %s\nfolder %s\ngroup 1\ngroup -1\ngroup x\nnonsense\n",
		pid, ours, other)))
	var st syscall.WaitStatus
	syscall.Wait4(pid, &st, 0, nil)
	if st.Signal() != syscall.SIGKILL {
		t.Errorf("the group's process ended with %v", st)
	}
	if _, err := os.Stat(ours); !os.IsNotExist(err) {
		t.Errorf("our folder: %v", err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("another folder: %v", err)
	}
}
