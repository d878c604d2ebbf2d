package slurm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/bootstrap/rank0"
	"github.com/gorun-mpi/mpi/internal/testkit/leak"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

func TestMain(m *testing.M) { os.Exit(leak.VerifyMain(m.Run)) }

// task is the environment of a task of srun.
func task(more ...string) func(string) string {
	env := map[string]string{"SLURM_JOB_ID": "10", "SLURM_STEP_ID": "2", "SLURM_PROCID": "3",
		"SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NODELIST": "n[3-4]", "SLURM_STEP_TASKS_PER_NODE": "3,1",
		"SLURM_NODEID": "1"}
	for _, kv := range more {
		name, value, _ := strings.Cut(kv, "=")
		env[name] = value
	}
	return func(name string) string { return env[name] }
}

func TestRead(t *testing.T) {
	s, err := Read(task())
	if want := (Step{ID: "10.2", Rank: 3, Size: 4, Local: 1, First: "n3"}); err != nil || s != want {
		t.Errorf("%+v, %v, want %+v", s, err, want)
	}
	for more, want := range map[string]string{
		"SLURM_PROCID=4":                     "SLURM_PROCID",
		"SLURM_PROCID=-1":                    "SLURM_PROCID",
		"SLURM_STEP_NUM_TASKS=many":          "SLURM_STEP_NUM_TASKS",
		"SLURM_STEP_NUM_TASKS=99999999999":   "SLURM_STEP_NUM_TASKS",
		"SLURM_JOB_ID=x":                     "SLURM_JOB_ID",
		"SLURM_STEP_NODELIST=":               "SLURM_STEP_NODELIST",
		"SLURM_STEP_NODELIST=n[3-":           "SLURM_STEP_NODELIST",
		"SLURM_STEP_TASKS_PER_NODE=3(x":      "SLURM_STEP_TASKS_PER_NODE",
		"SLURM_STEP_TASKS_PER_NODE=1000000,": "SLURM_STEP_TASKS_PER_NODE",
	} {
		if s, err := Read(task(more)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v, want an error about %s", more, s, err, want)
		}
	}
	if s, err := Read(task("SLURM_STEP_TASKS_PER_NODE=9(x2)")); err != nil || s.Local != 0 {
		t.Errorf("more tasks on a node than there are: %+v, %v", s, err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add("10", "2", "3", "4", "n[3-4]", "3,1", "1")
	f.Add("10", "2", "0", "1048576", "n[1-65536]", "16(x65536)", "65535")
	f.Fuzz(func(t *testing.T, job, step, rank, size, list, tasks, node string) {
		s, err := Read(task("SLURM_JOB_ID="+job, "SLURM_STEP_ID="+step, "SLURM_PROCID="+rank,
			"SLURM_STEP_NUM_TASKS="+size, "SLURM_STEP_NODELIST="+list, "SLURM_STEP_TASKS_PER_NODE="+tasks,
			"SLURM_NODEID="+node))
		if err == nil && (s.Rank < 0 || s.Rank >= s.Size || s.Local < 0 || s.Local > s.Size || s.First == "") {
			t.Errorf("%+v", s)
		}
	})
}

func FuzzWords(f *testing.F) {
	f.Add("ask 10.2 3 ABCDEFGHIJKLMNOPQRSTUVWXYZ")
	f.Add("answer 10.2 3 N " + strings.Repeat("00", keySize) + " 4711")
	f.Add(greeting + "MUNGE:abc:\n")
	f.Add("UID:    0\n\nask")
	f.Add("AuthInfo=ttl=10,socket=/run/munge # here")
	f.Fuzz(func(t *testing.T, text string) {
		rank, nonce, good := parseQuestion(text, "10.2", 4)
		if good && (rank < 1 || rank > 3 || strings.Contains(nonce, " ")) {
			t.Errorf("rank %d, nonce %q", rank, nonce)
		}
		key, port, good := parseAnswer(text, "answer 10.2 3 N ")
		if good && (len(key) != keySize || port < 1 || port > 65535) {
			t.Errorf("key of %d bytes, port %d", len(key), port)
		}
		if c, err := hear(strings.NewReader(text)); err == nil && (len(c) > lineMax || strings.Contains(c, "\n")) {
			t.Errorf("%q", c)
		}
		if payload, err := (munge{uid: 7}).read(text); err == nil && !strings.HasSuffix(text, payload) {
			t.Errorf("%q", payload)
		}
		parseSocket(text)
		parsePorts(text)
	})
}

func TestSocketOf(t *testing.T) {
	for conf, want := range map[string]string{
		"":                                  "",
		"AuthType=auth/munge\n":             "",
		"AuthInfo=socket=/run/m.sock\n":     "/run/m.sock",
		"authinfo = ttl=30,socket=/a # b\n": "/a",
		"#AuthInfo=socket=/a\n":             "",
	} {
		if got := parseSocket(conf); got != want {
			t.Errorf("%q: %q, want %q", conf, got, want)
		}
	}
}

// Steps that run at once begin at different ports, and all of a range are used.
func TestPorts(t *testing.T) {
	a, b := Step{ID: "1.0"}, Step{ID: "1.1"}
	p := a.ports(0, 0)
	if len(p) != portCount || p[0] == b.ports(0, 0)[0] || slices.Min(p) < 23000 || slices.Max(p) > 32767 {
		t.Errorf("%v and %v", p, b.ports(0, 0))
	}
	if p := a.ports(4000, 4002); !slices.Equal(slices.Sorted(slices.Values(p)), []int{4000, 4001, 4002}) {
		t.Errorf("%v", p)
	}
	for _, text := range []string{"x", "0", "5-4", "1-70000", "-"} {
		if _, _, err := parsePorts(text); err == nil || !strings.Contains(err.Error(), "GORUN_TCP_PORTS") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// munged starts a munged of this test, and returns the environment that leads to it.
func munged(t *testing.T) func(string) string {
	t.Helper()
	t.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin")
	program := proc.RequireProgram(t, "munged", "munge")
	if os.Getuid() != 0 {
		t.Skip("munged of another user than root would not own its folders")
	}
	dir, err := os.MkdirTemp("", "munge-") // not TempDir: munged wants folders that others cannot write
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket, conf := filepath.Join(dir, "sock"), filepath.Join(dir, "slurm.conf")
	files := map[string]string{"key": strings.Repeat("k", 1024), "slurm.conf": "AuthInfo=socket=" + socket}
	for file, text := range files {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(program, "--force", "--foreground", "--key-file="+dir+"/key", "--socket="+socket,
		"--pid-file="+dir+"/pid", "--log-file="+dir+"/log", "--seed-file="+dir+"/seed")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	proc.Eventually(t, "munged", func() bool {
		_, err := os.Stat(socket)
		return err == nil
	})
	return task("SLURM_CONF=" + conf)
}

func silent(string, ...any) {}

// The key service answers ranks of the step only, and a rank takes no answer but rank 0's.
func TestKeyService(t *testing.T) {
	env := munged(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s := Step{ID: fmt.Sprintf("%d.7", os.Getpid()), Size: 3, First: "127.0.0.1"}
	members := make(chan *rank0.Member, s.Size)
	for rank := range s.Size {
		go func() {
			s := s
			s.Rank = rank
			m, err := s.Join(ctx, Options{Env: env, PeerTimeout: time.Minute, Warn: silent})
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
			members <- m
		}()
	}
	var joined []*rank0.Member
	for range s.Size {
		if m := <-members; m != nil {
			joined = append(joined, m)
		}
	}
	defer func() {
		for _, m := range joined {
			m.Close()
		}
	}()
	m := newMunge(env)
	good := fmt.Sprintf("ask %s 1 %s", s.ID, strings.Repeat("N", 26))
	for what, words := range map[string]string{
		"good":           good,
		"another step":   strings.Replace(good, ".7 ", ".8 ", 1),
		"rank 0":         strings.Replace(good, " 1 ", " 0 ", 1),
		"a rank of none": strings.Replace(good, " 1 ", " 3 ", 1),
		"no credential":  "",
	} {
		credential, err := m.seal(ctx, words)
		if err != nil {
			t.Fatal(err)
		}
		if what == "no credential" {
			credential = "MUNGE:AwQDAAA=:"
		}
		answer, err := exchangeAt(s, credential)
		if (err == nil) != (what == "good") {
			t.Errorf("%s: the key service answers %q, %v", what, answer, err)
		}
		if what != "good" {
			continue
		}
		if again, err := exchangeAt(s, credential); err == nil { // munge opens each credential once
			t.Errorf("a credential that is shown again is answered: %q", again)
		}
		text, err := m.open(ctx, answer)
		if _, _, ok := parseAnswer(text, "answer"+strings.TrimPrefix(good, "ask")+" "); err != nil || !ok {
			t.Errorf("the answer is %q, %v", text, err)
		}
		if _, _, ok := parseAnswer(text, "answer "+s.ID+" 1 another "); ok {
			t.Error("an answer to another question is taken")
		}
	}
	if _, err := (munge{socket: m.socket, uid: m.uid}).read("UID: 4711\n\nask"); !errors.Is(err, errNotOurs) {
		t.Errorf("a credential of another user: %v", err)
	}
}

// exchangeAt shows a credential at the first port of a step.
func exchangeAt(s Step, credential string) (answer string, err error) {
	conn, err := net.Dial("tcp", net.JoinHostPort(s.First, strconv.Itoa(s.ports(0, 0)[0])))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	if err := say(conn, credential); err != nil {
		return "", err
	}
	return hear(conn)
}

// Without munge the error says what to do.
func TestNoMunge(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Step{ID: "1.1", Size: 2}.Join(t.Context(), Options{Env: task(), Warn: silent})
	if err == nil || !strings.Contains(err.Error(), "srun --mpi=pmi2") || !strings.Contains(err.Error(), "munge") {
		t.Errorf("%v", err)
	}
}
