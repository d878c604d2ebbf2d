package proc

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// A process is listed with what /proc shows, and does not live as a zombie.
func TestList(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("processes are listed on Linux only")
	}
	marked := func(p Info) bool { return slices.Contains(p.Env(), "GORUN_TEST_WORD=listed") }
	p := Start(t, "echo", "GORUN_TEST_WORD=listed")
	p.Send(nil)
	p.Recv() // its environment is that of the program now
	found := List(marked)
	if len(found) != 1 || found[0].PID != p.cmd.Process.Pid || found[0].Parent != os.Getpid() || !found[0].Alive() ||
		!slices.Equal(found[0].Args(), os.Args[:1]) || found[0].Namespace("pid") == "" {
		t.Fatalf("%+v", found)
	}
	if exe, err := os.Executable(); err != nil || found[0].Exe() != exe {
		t.Errorf("the program is %s, not %s, %v", found[0].Exe(), exe, err)
	}
	if size, resident := found[0].Memory("VmSize"), found[0].Memory("VmRSS"); resident < 4096 || size < resident {
		t.Errorf("it has %d bytes, of which %d are resident", size, resident)
	}
	reused := found[0]
	reused.Start += "0"
	if reused.Alive() {
		t.Error("a process lives that was started at another time")
	}
	p.cmd.Process.Kill()
	Eventually(t, "its end, before it has been waited for", func() bool { return !found[0].Alive() })
}

func TestCheckoutFile(t *testing.T) {
	if file, err := CheckoutFile("internal/testkit/proc/list_test.go"); err != nil {
		t.Error(file, err)
	}
	text, root := CheckoutText(t, "internal/testkit/proc/list_test.go")
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil || !strings.HasPrefix(text, "package proc\n") {
		t.Errorf("%v, the text is %.20q", err, text)
	}
	if file, err := CheckoutFile("internal/absent"); err == nil {
		t.Error(file, "is there")
	}
	t.Chdir(t.TempDir())
	if file, err := CheckoutFile("go.mod"); err == nil {
		t.Error(file, "is there")
	}
}
