package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/leak"
)

func TestMain(m *testing.M) {
	RunRole(map[string]func() error{
		"fails": func() error { fmt.Println("hello", os.Getenv("GORUN_TEST_WORD")); return errors.New("no") },
		"echo": func() error {
			for {
				b, err := Recv()
				if err != nil {
					return err
				}
				Send(append(b, '!'))
			}
		},
	})
	os.Exit(leak.VerifyMain(m.Run))
}

func TestRun(t *testing.T) {
	for role, want := range map[string]string{"fails": "hello you\nno\n", "unknown": "has no such role"} {
		printed, err := Run(t, role, "GORUN_TEST_WORD=you")
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(printed, want) {
			t.Errorf("%s: %v, %q", role, err, printed)
		}
	}
}

// The test and the role exchange bytes, and the role's process is gone when the test ends that has started it.
func TestStart(t *testing.T) {
	var p *Process
	t.Run("talk", func(t *testing.T) {
		p = Start(t, "echo")
		for _, b := range [][]byte{{}, {0, '\n', 255}} {
			p.Send(b)
			if got := p.Recv(); !bytes.Equal(got, append(b, '!')) {
				t.Errorf("%q is echoed as %q", b, got)
			}
		}
	})
	if p.cmd.ProcessState == nil {
		t.Error("it has not been waited for")
	}
}

// The test runs once more in the child, and the child has no role.
func TestRerunTest(t *testing.T) {
	if how := os.Getenv("GORUN_TEST_WORD"); how != "" {
		t.Log("child")
		if how == "fail" {
			t.Fail()
		}
		return
	}
	t.Run("inside", func(t *testing.T) {
		for _, how := range []string{"pass", "fail"} {
			if printed, err := RerunTest(t, "GORUN_TEST_WORD="+how); err == nil != (how == "pass") ||
				!strings.Contains(printed, "child") {
				t.Errorf("%s: %v\n%s", how, err, printed)
			}
		}
	})
}
