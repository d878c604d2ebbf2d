package testenv

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	Become(map[string]func() error{
		"fails": func() error { fmt.Println("hello", os.Getenv("GORUN_TEST_WORD")); return errors.New("no") },
		"echo": func() error {
			for {
				b, err := Hear()
				if err != nil {
					return err
				}
				Tell(append(b, '!'))
			}
		},
	})
	os.Exit(LeavesNothing(m.Run))
}

func TestRun(t *testing.T) {
	for role, want := range map[string]string{"fails": "hello you\nno\n", "nobody": "has no such role"} {
		printed, err := Run(t, role, "GORUN_TEST_WORD=you")
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(printed, want) {
			t.Errorf("%s: %v, %q", role, err, printed)
		}
	}
}

// A role is talked with, and is gone when the test ends that has started it.
func TestStart(t *testing.T) {
	var p *Process
	t.Run("talk", func(t *testing.T) {
		p = Start(t, "echo")
		for _, b := range [][]byte{{}, {0, '\n', 255}} {
			p.Tell(b)
			if got := p.Hear(); !bytes.Equal(got, append(b, '!')) {
				t.Errorf("%q is echoed as %q", b, got)
			}
		}
	})
	if p.cmd.ProcessState == nil {
		t.Error("it has not been waited for")
	}
}

// The test sees itself in the child, and the child has no role.
func TestAgain(t *testing.T) {
	if how := os.Getenv("GORUN_TEST_WORD"); how != "" {
		t.Log("child")
		if how == "fail" {
			t.Fail()
		}
		return
	}
	t.Run("inside", func(t *testing.T) {
		for _, how := range []string{"pass", "fail"} {
			if printed, err := Again(t, "GORUN_TEST_WORD="+how); err == nil != (how == "pass") || !strings.Contains(printed, "child") {
				t.Errorf("%s: %v\n%s", how, err, printed)
			}
		}
	})
}

func TestHeld(t *testing.T) {
	before := Holds()
	stop := make(chan struct{})
	for range 10 { // more than may be ending since before
		go func() { <-stop }()
	}
	if err := before.NoMore(time.Millisecond); err == nil || !strings.Contains(err.Error(), "TestHeld") {
		t.Errorf("goroutines more: %v", err)
	}
	close(stop)
	if err := before.NoMore(30 * time.Second); err != nil {
		t.Error(err)
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	if err := before.NoMore(time.Millisecond); before.Files > 0 && err == nil {
		t.Error("a descriptor more is not seen")
	}
	f.Close()
	if err := before.NoMore(30 * time.Second); err != nil {
		t.Error(err)
	}
}
