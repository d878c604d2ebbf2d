package leak

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) { os.Exit(VerifyMain(m.Run)) }

func TestSnapshot(t *testing.T) {
	before := Take()
	stop := make(chan struct{})
	for range 10 { // more than may be ending since before
		go func() { <-stop }()
	}
	if err := before.Check(time.Millisecond); err == nil || !strings.Contains(err.Error(), "TestSnapshot") {
		t.Errorf("goroutines more: %v", err)
	}
	close(stop)
	if err := before.Check(time.Minute); err != nil {
		t.Error(err)
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	if err := before.Check(time.Millisecond); before.Files > 0 && err == nil {
		t.Error("a descriptor more is not seen")
	}
	f.Close()
	if err := before.Check(time.Minute); err != nil {
		t.Error(err)
	}
}
