package reach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// This program is an agent that says who it is, and then again what it is told.
func TestMain(m *testing.M) {
	connect := Agent(os.Args)
	if connect == nil {
		os.Exit(m.Run())
	}
	stream, err := connect(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Fprintf(stream, "%d %03o\n", os.Getpid(), syscall.Umask(0))
	io.Copy(stream, stream)
}

// who reads what an agent says of itself.
func who(t *testing.T, e *Edge) (pid int, umask string) {
	t.Helper()
	var line []byte
	for b := make([]byte, 1); ; line = append(line, b[0]) {
		if _, err := io.ReadFull(e, b); err != nil {
			t.Fatalf("after %q: %v", line, err)
		}
		if b[0] == '\n' {
			break
		}
	}
	if _, err := fmt.Sscanf(string(line), "%d %s", &pid, &umask); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return pid, umask
}

// over waits for the end of an agent.
func over(t *testing.T, pid int) {
	t.Helper()
	proc.Eventually(t, "the end of the agent", func() bool {
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(state), ") Z ")
	})
}

// shell is a remote shell that stays here.
func shell(t *testing.T, script string) []string {
	path := filepath.Join(t.TempDir(), "shell")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return []string{path}
}

const stayHere = "shift; echo motd; exec \"$@\""

func me(t *testing.T) *Self {
	s, err := Me()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// talk sees that an agent answers, and ends when the stream does.
func talk(t *testing.T, r Reach) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e, err := r.Open(ctx, "host")
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	pid, _ := who(t, e)
	text := strings.Repeat("x", 100_000)
	go io.WriteString(e, text)
	got := make([]byte, len(text))
	if _, err := io.ReadFull(e, got); err != nil || string(got) != text {
		t.Errorf("%d bytes (%v)", len(got), err)
	}
	e.Close()
	over(t, pid)
}

// Each way to an agent keeps the same promises.
func TestReaches(t *testing.T) {
	for name, r := range map[string]Reach{
		"exec": Exec{me(t)}, "shell": Shell{shell(t, stayHere), me(t)}, "dialled": dialled{t},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			talk(t, r)
			stopped(t, r)
			killed(t, r)
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := r.Open(ended, "host"); err == nil {
				t.Error("an agent was had after the time was over")
			}
		})
	}
}

// killed checks that the end of an agent is the end of the stream.
func killed(t *testing.T, r Reach) {
	t.Helper()
	e, err := r.Open(t.Context(), "host")
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	pid, _ := who(t, e)
	syscall.Kill(pid, syscall.SIGKILL)
	if text, err := io.ReadAll(e); len(text) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%q, %v", text, err)
	}
	if why := e.Why(); why == "" || strings.Contains(why, "\n") {
		t.Errorf("why: %q", why)
	}
}

// stopped checks that an agent that stands still does not keep gorun from closing the stream.
func stopped(t *testing.T, r Reach) {
	t.Helper()
	e, err := r.Open(t.Context(), "host")
	if err != nil {
		t.Fatal(err)
	}
	pid, _ := who(t, e)
	defer syscall.Kill(pid, syscall.SIGKILL)
	syscall.Kill(pid, syscall.SIGSTOP)
	go func() {
		for {
			if _, err := e.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	}()
	time.Sleep(10 * time.Millisecond) // mostly a write is under way
	e.Close()
	syscall.Kill(pid, syscall.SIGCONT)
	over(t, pid)
}

// A host without this build is sent it, once.
func TestBinaryIsSent(t *testing.T) {
	if me(t).dynamic != "" {
		t.Skip("this test is dynamically linked")
	}
	cache := t.TempDir()
	for _, path := range []string{"/no/such/gorun", "/bin/true", "/bin/echo", "/bin/cat", "/etc/passwd"} {
		for _, home := range []string{"XDG_CACHE_HOME=" + cache + "/xdg", "HOME=" + cache + "/home",
			"HOME=/proc/none TMPDIR=" + cache, "unset HOME; TMPDIR=" + cache} {
			self := *me(t)
			self.Path = path
			words := shell(t, "shift; unset XDG_CACHE_HOME; "+home+" exec \"$@\"")
			talk(t, Shell{words, &self})
			files, _ := filepath.Glob(cache + "/*/gorun/*")
			more, _ := filepath.Glob(cache + "/gorun-*/*")
			for _, f := range append(files, more...) {
				if filepath.Base(f) != self.Build {
					t.Errorf("left behind: %s", f)
				}
			}
			if len(files)+len(more) == 0 {
				t.Errorf("%s %s: it is not in the cache", path, home)
			}
		}
	}
}

// copied is this program, which the host does not have. script is what the remote shell does.
func copied(t *testing.T, script string) Shell {
	self := *me(t)
	if self.dynamic != "" {
		t.Skip("this test is dynamically linked")
	}
	self.Path = "/no/such/gorun"
	return Shell{shell(t, "shift; unset XDG_CACHE_HOME; "+script+" exec \"$@\""), &self}
}

// What the ranks write has the mode that it has without a cache.
func TestUmaskOfTheCopy(t *testing.T) {
	x := copied(t, "umask 026; HOME="+t.TempDir())
	for range 2 { // sent, then from the cache
		e, err := x.Open(t.Context(), "host")
		if err != nil {
			t.Fatal(err)
		}
		if _, umask := who(t, e); umask != "026" {
			t.Errorf("umask %s", umask)
		}
		e.Close()
	}
}

// A copy that a crash of the host has left empty or short is not run. sh takes an empty one for a script.
func TestShortCopy(t *testing.T) {
	home := t.TempDir()
	x := copied(t, "HOME="+home)
	file := filepath.Join(home, ".cache/gorun", x.Self.Build)
	for _, text := range []string{"", "\x7fELF"} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		talk(t, x)
		if st, err := os.Stat(file); err != nil || st.Size() != x.Self.size {
			t.Errorf("the copy: %v, %v", st, err)
		}
	}
}

// What another user can write, or has put there, is not run.
func TestCacheOfAnother(t *testing.T) {
	for what, c := range map[string]struct {
		make func(dir string) error // dir is where the folder would be
		says string
	}{
		"link":            {func(dir string) error { return os.Symlink(t.TempDir(), dir) }, "is a symbolic link"},
		"link to nothing": {func(dir string) error { return os.Symlink("/no/such", dir) }, "is a symbolic link"},
		"group": {func(dir string) error {
			return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o770))
		}, "chmod 700"},
		"all": {func(dir string) error {
			return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o1777))
		}, "chmod 700"},
		"file": {func(dir string) error { return os.WriteFile(dir, nil, 0o600) }, "no folder"},
		"user": {func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, 4711, -1)) },
			"another user's"},
	} {
		for _, where := range []string{"home", "all users"} {
			t.Run(what+" "+where, func(t *testing.T) {
				if what == "user" && os.Geteuid() != 0 {
					t.Skip("only root can give a folder away")
				}
				top := t.TempDir()
				dir, env := filepath.Join(top, "gorun"), "XDG_CACHE_HOME="+top
				if where == "all users" {
					dir, env = fmt.Sprintf("%s/gorun-%d", top, os.Geteuid()), "HOME=/proc/none TMPDIR="+top
				}
				if err := c.make(dir); err != nil {
					t.Fatal(err)
				}
				x := copied(t, env)
				if where == "all users" && (what == "user" || strings.HasPrefix(what, "link")) {
					talk(t, x) // whoever has taken the name there, it has another
					talk(t, x)
					if own, _ := filepath.Glob(dir + ".*/" + x.Self.Build); len(own) != 1 {
						t.Errorf("%d copies under names of their own", len(own))
					}
					return
				}
				_, err := x.Open(t.Context(), "host")
				if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), dir) {
					t.Errorf("%v, want %q about %s", err, c.says, dir)
				}
			})
		}
	}
	// In a folder of ours, a file that is not: of a time when others could write there.
	top := t.TempDir()
	x := copied(t, "XDG_CACHE_HOME="+top)
	file := filepath.Join(top, "gorun", x.Self.Build)
	if err := errors.Join(os.Mkdir(filepath.Dir(file), 0o700), os.Symlink(me(t).Path, file)); err != nil {
		t.Fatal(err)
	}
	talk(t, x)
	if st, err := os.Lstat(file); err != nil || !st.Mode().IsRegular() {
		t.Errorf("the link of another was run: %v, %v", st, err)
	}
}

// Builds that have not run for 30 days leave the cache when another one comes.
func TestOldBuildsLeaveTheCache(t *testing.T) {
	home := t.TempDir()
	dir := filepath.Join(home, ".cache/gorun")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, age := range map[string]time.Duration{"old": 32, "young": 20} {
		file, at := filepath.Join(dir, name), time.Now().Add(-age*24*time.Hour)
		if err := errors.Join(os.WriteFile(file, nil, 0o700), os.Chtimes(file, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	x := copied(t, "HOME="+home)
	talk(t, x)
	used := filepath.Join(dir, x.Self.Build)
	if err := os.Chtimes(used, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	talk(t, x)
	if st, err := os.Stat(used); err != nil || time.Since(st.ModTime()) > time.Hour {
		t.Errorf("a build that has run just now is old: %v, %v", st, err)
	}
	var left []string
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		left = append(left, f.Name())
	}
	if want := []string{x.Self.Build, "young"}; !slices.Equal(left, slices.Sorted(slices.Values(want))) {
		t.Errorf("the cache holds %q, want %q", left, want)
	}
}

// Where nothing in the home can be executed, the copy is in the folder for all users.
func TestHomeWithoutPrograms(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a file system with noexec")
	}
	home, temp := t.TempDir(), t.TempDir()
	mount := "mount -t tmpfs -o noexec none " + home
	if out, err := exec.Command("unshare", "-m", "sh", "-c", mount).CombinedOutput(); err != nil {
		t.Skipf("%s: %v %s", mount, err, out)
	}
	x := copied(t, "export HOME="+home+" TMPDIR="+temp+"; exec unshare -m sh -c '"+mount+"; exec \"$@\"' sh \"$@\"; ")
	talk(t, x)
	if own, _ := filepath.Glob(temp + "/gorun-*/" + x.Self.Build); len(own) != 1 {
		t.Errorf("%d copies in the folder for all users", len(own))
	}
}

// A remote shell that is a script leaves nothing behind when it is given up.
func TestShellIsEnded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		proc.Eventually(t, "the shell", func() bool { st, err := os.Stat(file); return err == nil && st.Size() > 0 })
		cancel()
	}()
	_, err := Shell{shell(t, "sleep 1000 & echo $! >"+file+"; wait"), me(t)}.Open(ctx, "host")
	text, _ := os.ReadFile(file)
	pid := strings.TrimSpace(string(text))
	if err == nil || pid == "" {
		t.Fatalf("%v, pid %q", err, pid)
	}
	proc.Eventually(t, "the end of all that the shell has started", func() bool {
		state, err := os.ReadFile("/proc/" + pid + "/stat")
		return err != nil || strings.Contains(string(state), ") Z ")
	})
}

// What cannot be sent is an error that says what to do.
func TestBinaryThatCannotBeSent(t *testing.T) {
	home := t.TempDir()
	with := func(script string, change func(*Self)) error {
		self := *me(t)
		self.Path, self.dynamic = "/no/such/gorun", ""
		change(&self)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := Shell{shell(t, script), &self}.Open(ctx, "host")
		var why *Error
		if !errors.As(err, &why) || !why.Final {
			t.Errorf("not the last word: %v", err)
		}
		return err
	}
	here := "shift; unset XDG_CACHE_HOME; HOME=" + home + " exec \"$@\""
	for _, c := range []struct {
		want string
		err  error
	}{
		{"build it with CGO_ENABLED=0", with(here, func(s *Self) { s.dynamic = "/lib/ld.so" })},
		{"does not run there", with("echo 'gorun-want Plan9 vax'; exec sleep 1000", func(*Self) {})},
		{"there is no folder for it",
			with("shift; unset XDG_CACHE_HOME; HOME=/proc/none TMPDIR=/proc/none exec \"$@\"", func(*Self) {})},
		{"it cannot be written", with("ulimit -f 4; "+here, func(*Self) {})},
		{"exit status 93", with(here, func(s *Self) { s.Build = strings.Repeat("0", 32) })},
		{"exit status 127", with("exit 127", func(*Self) {})},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%v, want %q", c.err, c.want)
		}
	}
	left, _ := filepath.Glob(home + "/.cache/gorun/*.*")
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// An error repeats what came from the other side, on either stream, and tells whether another try may help. What a
// login shell prints before it refuses is the cause; ssh's own exit code, 255, is mostly a host that is not up yet.
func TestWhyThereIsNoAgent(t *testing.T) {
	other := func(text string) string { // a program that is no gorun, at gorun's path
		path := filepath.Join(t.TempDir(), "other")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		name, script, path string
		says               string
		again, comingUp    bool // another try may help; also where hosts are still coming up
	}{
		{"nologin", "echo 'This account is currently not available.'; exit 1", "",
			": This account is currently not available.; exit status 1", false, false},
		{"message of the day, then refused", "yes motd | head -1000; echo 'Your password has expired.'; exit 1", "",
			"Your password has expired.", false, false},
		{"kubectl's", "echo 'error: unable to upgrade connection: container not found' >&2; exit 1", "",
			"container not found", true, true},
		{"refused", "echo 'connect to host h port 22: Connection refused' >&2; exit 255", "", "refused", true, true},
		{"cut after a banner", "echo banner; echo 'Connection reset by peer' >&2; exit 255", "", "reset", true, true},
		{"denied", "echo 'me@h: Permission denied (publickey).' >&2; exit 255", "", "Permission denied", false, false},
		{"other key", "echo '@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @' >&2; exit 255", "", "CHANGED", false,
			false},
		{"unknown", "echo 'ssh: Could not resolve hostname h: Name or service not known' >&2; exit 255", "",
			"/shell: ssh: Could not resolve hostname h: Name or service not known", false, true},
		{"no answer of DNS", "echo 'ssh: Could not resolve hostname h: Temporary failure in name resolution' >&2; exit 255",
			"", "/shell: ssh: Could not resolve hostname h: Temporary failure in name resolution", false, true},
		{"another program", "shift; exec \"$@\"", other("echo usage: other FILE; exit 2"),
			"does not answer as gorun: exit status 2: usage: other FILE", false, false},
		{"another program that is content", "shift; exec \"$@\"", "/bin/true",
			"/bin/true there does not answer as gorun: exit status 0", false, false},
		{"cut while gorun starts", "shift; \"$@\" & sleep 0.3; exit 255", other("exec sleep 0.1"), "exit status 255", true,
			true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			self := *me(t)
			self.Path, self.dynamic = c.path, "/lib/ld.so" // it is not copied
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := Shell{shell(t, c.script), &self}.Open(ctx, "host")
			if err == nil || !strings.Contains(err.Error(), c.says) || len(err.Error()) > 1500 {
				t.Errorf("%.2000v, want %q", err, c.says)
			}
			if again, comingUp := Again(err, false), Again(err, true); again != c.again || comingUp != c.comingUp {
				t.Errorf("again: %v, and %v where hosts come up; want %v and %v: %.300v", again, comingUp, c.again,
					c.comingUp, err)
			}
		})
	}
	// ssh passes on the exit code of what it has started: any other than 255 is not ssh's.
	words := shell(t, "exit 1")
	ssh := filepath.Join(filepath.Dir(words[0]), "ssh")
	if err := os.Rename(words[0], ssh); err != nil {
		t.Fatal(err)
	}
	if _, err := (Shell{[]string{ssh}, me(t)}).Open(t.Context(), "host"); err == nil || Again(err, true) {
		t.Errorf("a login shell that is /bin/false: %v", err)
	}
	// What it says itself has its name once.
	if err := os.WriteFile(ssh, []byte("#!/bin/sh\necho ssh: no >&2; exit 255\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := (Shell{[]string{ssh}, me(t)}).Open(t.Context(), "host"); err == nil || err.Error() != ssh+": no" {
		t.Errorf("ssh says no: %v", err)
	}
}

// What a host says at the end is kept, and fit for one line.
func TestLastWords(t *testing.T) {
	for script, want := range map[string]string{
		"printf 'a\\n\\033[1mb\\377\\n' >&2; exit 255": ": a; [1mb?",
		"exit 255":               "exit status 255",
		"kill -9 $$":             "signal: killed",
		"echo a >&2; kill -9 $$": ": a; signal: killed",
		"yes x | head -c 100000 >&2; echo end >&2; exit 1": "end; exit status 1",
	} {
		_, err := Shell{shell(t, script), me(t)}.Open(t.Context(), "host")
		if err == nil || !strings.HasSuffix(err.Error(), want) || len(err.Error()) > 3*maxWords ||
			strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%s: %.300q", script, fmt.Sprint(err))
		}
	}
}
