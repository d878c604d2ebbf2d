package index

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/auth"
	"github.com/gorun-mpi/mpi/internal/testkit/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.VerifyMain(m.Run)) }

// keyFile is a file with a key of equal bytes.
func keyFile(t *testing.T, b byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	text := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, auth.KeySize)) + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func pod(index int, size, rank0, key string) Options {
	env := map[string]string{EnvIndex: strconv.Itoa(index), EnvSize: size, EnvRank0: rank0, EnvKeyFile: key}
	return Options{Env: func(name string) string { return env[name] }, PeerTimeout: time.Minute,
		Warn: func(string, ...any) {}}
}

func freePort(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)
}

// Pods meet, in whatever order they come up.
func TestPods(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	addr, key := "localhost:"+freePort(t), keyFile(t, 7)
	errs := make([]error, 4)
	var wg sync.WaitGroup
	for i := len(errs) - 1; i >= 0; i-- {
		wg.Go(func() {
			m, err := Join(ctx, pod(i, "4", addr, key))
			if err == nil {
				err = errors.Join(m.Fence(ctx), m.Finalize(ctx), m.Close())
			}
			errs[i] = err
		})
		time.Sleep(20 * time.Millisecond) // index 0 comes last
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// A pod with another key does not come in, and says in the end why.
func TestWrongKey(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	addr := "localhost:" + freePort(t)
	m, err := Join(ctx, pod(0, "2", addr, keyFile(t, 7)))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if _, err := Join(ctx, pod(1, "2", addr, keyFile(t, 8))); err == nil || !strings.Contains(err.Error(), "rank 1") {
		t.Errorf("%v", err)
	}
}

func TestBadPods(t *testing.T) {
	good := keyFile(t, 1)
	short := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(short, []byte("c2VjcmV0"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		o    Options
		want string
	}{
		{pod(4, "4", "h:1", good), EnvIndex},
		{pod(0, "", "h:1", good), EnvSize},
		{pod(0, "4", "h", good), EnvRank0},
		{pod(0, "4", ":1", good), EnvRank0},
		{pod(0, "4", "h:1", ""), EnvKeyFile},
		{pod(0, "4", "h:1", "/nowhere"), EnvKeyFile},
		{pod(0, "4", "h:1", short), "32 bytes in base64"},
	} {
		_, err := Join(t.Context(), c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(fmt.Sprint(err), "c2VjcmV0") {
			t.Errorf("%v, want an error about %s that does not show the key", err, c.want)
		}
	}
}
