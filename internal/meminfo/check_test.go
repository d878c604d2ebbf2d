package meminfo

import (
	"fmt"
	"math"
	"os"
	"strings"
	"syscall"
	"testing"
)

// Memory that is there is allowed. More than the host has is refused, and so is more than there can be.
func TestCheck(t *testing.T) {
	for _, n := range []int{0, 1, unchecked, unchecked + 1, 64 << 20} {
		if err := Check(n); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	free, why := Left()
	for _, n := range []int{1 << 46, 1 << 50, math.MaxInt / 2, math.MaxInt - 1, math.MaxInt} {
		if err := Check(n); err == nil {
			t.Errorf("%d bytes are there", n)
		}
	}
	if free == math.MaxInt64 {
		return // not known here
	}
	if err := Check(int(free) * 2); err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("twice the available memory: %v", err)
	}
}

// So is what a limit of the process's addresses leaves no room for, however much memory there is.
func TestCheckLimit(t *testing.T) {
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_AS, &was); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip(err)
	}
	var pages uint64
	fmt.Sscan(string(b), &pages)
	limit := syscall.Rlimit{Cur: pages*uint64(os.Getpagesize()) + 1<<30, Max: was.Max}
	if free, _ := Left(); free < 2<<30 || was.Cur < limit.Cur {
		t.Skip("there is little memory")
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &limit); err != nil {
		t.Skip(err)
	}
	err = Check(1 << 30)
	if failed := syscall.Setrlimit(syscall.RLIMIT_AS, &was); failed != nil {
		t.Fatal(failed)
	}
	if err == nil || !strings.Contains(err.Error(), "ulimit -v") {
		t.Errorf("1 GiB with as much left: %v", err)
	}
}
