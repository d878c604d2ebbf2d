package hcakit_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/hcakit"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// The pingpongs of Debian's ibverbs-utils are programs of others: they link libibverbs.so.1 by its
// symbol versions and use it as their authors meant it.
func TestPingpong(t *testing.T) {
	for _, program := range []string{"ibv_rc_pingpong", "ibv_srq_pingpong"} {
		for _, c := range []struct {
			name  string
			args  []string
			knobs []string
		}{
			{"polling", []string{"-n", "200"}, nil},
			{"events", []string{"-e", "-n", "500"}, nil},
			{"contents", []string{"-e", "-c", "-n", "200"}, nil},
			{"long", []string{"-e", "-c", "-s", "300000", "-n", "100"}, nil},
			{"mtu", []string{"-e", "-m", "256", "-n", "200"}, nil},
			{"gid", []string{"-e", "-g", "0", "-n", "200"}, nil},
			{"disturbed", []string{"-e", "-c", "-n", "200"}, []string{"SOFTHCA_SEED=7", "SOFTHCA_RNR=50", "SOFTHCA_DROP=20"}},
			{"forbidden", []string{"-e", "-c", "-s", "300000", "-n", "100"}, []string{forbid + "=1"}},
		} {
			if testing.Short() && len(c.knobs) > 0 {
				continue
			}
			t.Run(program+"/"+c.name, func(t *testing.T) {
				pingpong(t, hcakit.Env(t, c.knobs...), program, c.args)
			})
		}
	}
}

func pingpong(t *testing.T, env []string, program string, args []string) {
	path := proc.RequireProgram(t, program, "ibverbs-utils")
	for tries := 1; ; tries++ {
		server, client, err := playOnce(t, env, path, append(slices.Clone(args), "-p", strconv.Itoa(freePort(t))))
		if err != nil && tries < 5 && strings.Contains(server, "Couldn't listen") {
			continue // another program has been given the port meanwhile
		}
		if err != nil {
			t.Fatalf("%v\nserver:\n%sclient:\n%s", err, server, client)
		}
		for _, text := range []string{server, client} {
			if !strings.Contains(text, "usec/iter") || strings.Contains(text, "invalid data") {
				t.Errorf("%s\n%s", program, text)
			}
		}
		break
	}
	nothingLeft(t, env)
}

// playOnce returns what the two have printed. When one fails the other is ended.
func playOnce(t *testing.T, env []string, path string, args []string) (server, client string, err error) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var printed bytes.Buffer
	cmd := command(ctx, env, path, args)
	cmd.Stdout, cmd.Stderr = &printed, &printed
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		if err != nil {
			cancel()
		}
		ended <- err
	}()
	client, err = dial(ctx, env, path, append(args, "127.0.0.1"))
	if err != nil {
		cancel()
	}
	err = errors.Join(err, <-ended)
	return printed.String(), client, err
}

// command may be this test binary, which becomes the program.
func command(ctx context.Context, env []string, path string, args []string) *exec.Cmd {
	if strings.HasPrefix(env[len(env)-1], forbid) {
		path, args = os.Args[0], append([]string{path}, args...)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = env
	return cmd
}

// dial runs the client again until there is a server. To probe the server's port would be to be its client.
func dial(ctx context.Context, env []string, path string, args []string) (printed string, err error) {
	for ctx.Err() == nil {
		var out []byte
		out, err = command(ctx, env, path, args).CombinedOutput()
		if printed = string(out); !strings.Contains(printed, "Couldn't connect") {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return printed, err
}

func freePort(t *testing.T) int {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// nothingLeft checks that the last process that closes the device removes what has a name.
func nothingLeft(t *testing.T, env []string) {
	for _, e := range env {
		dir, ok := strings.CutPrefix(e, "SOFTHCA_DIR=")
		if !ok {
			continue
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*", "*")); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
}

// A bad knob must not pass for a default.
func TestBadKnobs(t *testing.T) {
	path := proc.RequireProgram(t, "ibv_rc_pingpong", "ibverbs-utils")
	for _, c := range []struct{ knob, says string }{
		{"SOFTHCA_SEEED=1", "is no knob"},
		{"SOFTHCA_SEED=", "want a number"},
		{"SOFTHCA_RNR=1001", "from 0 to 1000"},
		{"SOFTHCA_DROP=-1", "from 0 to 1000"},
		{"SOFTHCA_FAIL=read", "KIND:N"},
		{"SOFTHCA_FAIL=read:0", "KIND:N"},
		{"SOFTHCA_FAIL=read:1,", "KIND:N"},
		{"SOFTHCA_FAIL=fly:1", "KIND:N"},
		{"SOFTHCA_RETRY_SCALE=0", "a factor"},
		{"SOFTHCA_TM=yes", "from 0 to 1"},
		{"SOFTHCA_DIR=here", "an absolute path"},
		{"SOFTHCA_DIR=/nonexistent", "No such file"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := exec.CommandContext(ctx, path)
		cmd.Env = hcakit.Env(t, c.knob)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), c.says) || !strings.Contains(string(out), "softhca: ") {
			t.Errorf("%s: %v, printed %q, not %q", c.knob, err, out, c.says)
		}
		cancel()
	}
}
