package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/reach"
	"github.com/gorun-mpi/mpi/internal/testkit/netns"
	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// sshHosts are hosts with sshd. gorun is started on h1.
type sshHosts struct {
	*netns.Hosts
	shell string // the remote shell to them
	keys  string // the file of the keys that they let in
	// cache and temp are folders of all of them: XDG_CACHE_HOME and TMPDIR of who logs in.
	cache, temp string
	before      []int        // what runs on them when there is no job
	gone        map[int]bool // hosts that have crashed
}

func upSSH(t *testing.T, n int) *sshHosts {
	t.Helper()
	sshd := proc.RequireProgram(t, "/usr/sbin/sshd", "openssh-server")
	dir := t.TempDir()
	h := &sshHosts{shell: "ssh -F " + dir + "/ssh_config -o BatchMode=yes", keys: dir + "/user.pub",
		cache: dir + "/cache", temp: dir + "/temp", gone: map[int]bool{}}
	for _, key := range []string{"host", "user"} {
		file := filepath.Join(dir, key)
		out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file).CombinedOutput()
		if err != nil {
			t.Fatalf("ssh-keygen: %v\n%s", err, out)
		}
	}
	config := fmt.Sprintf("Port 22\nHostKey %[1]s/host\nAuthorizedKeysFile %[1]s/user.pub\nStrictModes no\nUsePAM no\n"+
		"PermitRootLogin yes\nPidFile none\nUseDNS no\nSetEnv XDG_CACHE_HOME=%[2]s TMPDIR=%[3]s\n", dir,
		h.cache, h.temp)
	client := fmt.Sprintf("Host *\nIdentityFile %s/user\nStrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n"+
		"LogLevel ERROR\n", dir)
	for name, text := range map[string]string{"sshd_config": config, "ssh_config": client} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, folder := range []string{h.cache, h.temp} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HOSTS_START", "mkdir -p /run/sshd; exec "+sshd+" -D -f "+dir+"/sshd_config -E "+dir+"/log")
	h.Hosts = netns.Up(t, n)
	for host := range h.Count() {
		proc.Eventually(t, "sshd", func() bool {
			return h.Command(host+1, "sh", "-c", "ss -H -ltn | grep -q :22").Run() == nil
		})
	}
	for _, p := range h.processes(t, h.alive()...) {
		h.before = append(h.before, p.PID)
	}
	return h
}

// overSSH is the way to agents by ssh. Ranks are on h2 and h3.
func overSSH(t *testing.T) (*way, *sshHosts) {
	h := upSSH(t, 3)
	w := &way{flags: []string{"--launch-agent", h.shell, "--host-timeout", "2m"}, a: "h2", b: "h3", on: h.move}
	return w, h
}

// move has a job started on h1.
func (h *sshHosts) move(j *job) {
	there := h.Command(1, j.cmd.Path, j.cmd.Args[1:]...)
	j.cmd.Path, j.cmd.Args, j.cmd.Err = there.Path, there.Args, there.Err
}

// job is one with rank 0 on h1, 1 and 2 on h2, 3 and 4 on h3, of those hosts that there are.
func (h *sshHosts) job(t *testing.T, flags, words []string) *job {
	var hosts []string
	for _, host := range h.alive() {
		hosts = append(hosts, fmt.Sprintf("h%d:%d", host, min(host, 2)))
	}
	args := append([]string{"-H", strings.Join(hosts, ","), "--launch-agent", h.shell, "--host-timeout", "2m",
		"--bind-to", "none"}, flags...)
	if words[0] != "-x" {
		args = append(args, "RANK")
	}
	return prepare(t, append(args, words...)...)
}

func (h *sshHosts) start(t *testing.T, words []string) *job {
	j := h.job(t, nil, words)
	h.move(j)
	return j.start()
}

func (h *sshHosts) alive() (hosts []int) {
	for host := 1; host <= h.Count(); host++ {
		if !h.gone[host] {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// processes lists what runs on some hosts, but for what their first processes do to pass the time.
func (h *sshHosts) processes(t *testing.T, hosts ...int) []proc.Info {
	t.Helper()
	own := map[string]bool{}
	for _, host := range hosts {
		own[strings.TrimSpace(h.on(t, host, "readlink /proc/self/ns/pid"))] = true
	}
	return proc.List(func(p proc.Info) bool {
		return own[p.Namespace("pid")] && !slices.Equal(p.Args(), []string{"sleep", "1000000"})
	})
}

// kill ends processes of a host.
func (h *sshHosts) kill(t *testing.T, host int, which func(proc.Info) bool) {
	t.Helper()
	n := 0
	for _, p := range h.processes(t, host) {
		if !slices.Contains(h.before, p.PID) && which(p) {
			n++
			syscall.Kill(p.PID, syscall.SIGKILL)
		}
	}
	if n == 0 {
		t.Fatal("there is no such process")
	}
}

// rank tells whether a process is this rank of the job, and not what that has started.
func (j *job) isRank(rank string) func(proc.Info) bool {
	return func(p proc.Info) bool {
		env := p.Env()
		return slices.Contains(env, markVar+"="+j.mark) && slices.Contains(env, "PMI_RANK="+rank) &&
			p.Args()[0] != "sleep"
	}
}

func (j *job) isAgent(p proc.Info) bool {
	args := p.Args()
	return len(args) == 3 && args[0] == j.gorun && args[1] == reach.Word
}

// on runs a line of sh on a host.
func (h *sshHosts) on(t *testing.T, host int, line string) string {
	t.Helper()
	out, err := h.Command(host, "sh", "-c", line).CombinedOutput()
	if err != nil {
		t.Fatalf("%s on h%d: %v\n%s", line, host, err, out)
	}
	return string(out)
}

// left waits until the agents and ranks of a job have ended on some hosts.
func (h *sshHosts) left(t *testing.T, j *job, hosts ...int) {
	t.Helper()
	proc.Eventually(t, "agents and ranks to end", func() bool {
		return !slices.ContainsFunc(h.processes(t, hosts...), func(p proc.Info) bool {
			return j.isAgent(p) || slices.Contains(p.Env(), markVar+"="+j.mark)
		})
	})
}

// nothingLeft sees that the hosts are as they were.
func (h *sshHosts) nothingLeft(t *testing.T) {
	t.Helper()
	proc.Eventually(t, "all processes of the job to be gone", func() bool {
		return !slices.ContainsFunc(h.processes(t, h.alive()...), func(p proc.Info) bool {
			return !slices.Contains(h.before, p.PID)
		})
	})
	for _, host := range h.alive() {
		// The kernel keeps FIN-WAIT-1 of a process that has ended, towards a host that does not answer.
		proc.Eventually(t, "no sockets", func() bool {
			return h.on(t, host, "ss -H -tan | grep -v -e TIME-WAIT -e FIN-WAIT-1 -e LISTEN.*:22 || :") == ""
		})
		if files := h.on(t, host, "ls -A /dev/shm"); files != "" {
			t.Errorf("left in /dev/shm of h%d: %s", host, files)
		}
	}
	if files, _ := filepath.Glob(h.temp + "/*"); len(files) > 0 {
		t.Errorf("left in TMPDIR: %v", files)
	}
	kept, _ := filepath.Glob(h.cache + "/gorun/*.*") // a whole copy has no dot in its name
	if len(kept) > 0 {
		t.Errorf("left in the cache: %v", kept)
	}
}

// fault is one way in which a job on three hosts fails: rank 0 on h1, where gorun is, 1 and 2 on h2, 3 and 4 on h3.
type fault struct {
	name  string
	flags []string
	words []string // of the ranks; nil: they wait to be killed, and resist
	// copied: gorun is one that can be sent to other hosts, and h3 does not have it.
	copied bool
	// before is what is done to the hosts before the start. hit is called when all ranks wait.
	before, hit func(t *testing.T, h *sshHosts, j *job)
	code        int
	says        string
	// mend is what is done when gorun has ended, and before there must be nothing left.
	mend func(t *testing.T, h *sshHosts, j *job)
}

// silent is the GORUN_PEER_TIMEOUT of jobs whose hosts fall silent.
const (
	silent  = "3s"
	unheard = "it has not been heard for " + silent
)

// resist is what ranks do that have to be killed, with all that they have started.
var resist = strings.Fields("deaf child daemon join fence sleep")

// Every failure ends the whole job on all hosts, and leaves nothing behind.
func TestFaultsOverSSH(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: three hosts with sshd; TestAgents has failures over exec")
	}
	h := upSSH(t, 3)
	dir := t.TempDir()
	prog := filepath.Join(dir, "bin", "prog") // of the ranks, for hosts on which it is another
	self, err := os.Executable()
	if err == nil {
		err = os.Mkdir(filepath.Dir(prog), 0o700)
	}
	if err == nil {
		err = os.Link(self, prog)
	}
	text, err2 := os.ReadFile(self)
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	foreign := filepath.Join(dir, "foreign")
	text[18], text[19] = 0xff, 0x7f // its machine
	if err := os.WriteFile(foreign, text, 0o700); err != nil {
		t.Fatal(err)
	}
	run := func(host int, line string) func(*testing.T, *sshHosts, *job) {
		return func(t *testing.T, h *sshHosts, _ *job) { h.on(t, host, line) }
	}
	do := func(what func(host int) error, host int) func(*testing.T, *sshHosts, *job) {
		return func(t *testing.T, h *sshHosts, _ *job) {
			if err := what(host); err != nil {
				t.Fatal(err)
			}
		}
	}
	programs := []string{"-x", proc.RoleVar + "=rank", prog, "sleep"}
	for _, c := range []fault{
		{name: "rank killed", hit: func(t *testing.T, h *sshHosts, j *job) { h.kill(t, 3, j.isRank("3")) },
			code: 137, says: "on host h3) was killed by signal 9 (killed); the job is stopped"},
		{name: "agent killed", hit: func(t *testing.T, h *sshHosts, j *job) { h.kill(t, 3, j.isAgent) },
			code: 1, says: "host h3 is lost: its agent is gone: "},
		{name: "ssh killed", hit: func(t *testing.T, h *sshHosts, j *job) {
			h.kill(t, 1, func(p proc.Info) bool { return p.Args()[0] == "ssh" && slices.Contains(p.Args(), "h3") })
		},
			code: 1, says: "host h3 is lost: its agent is gone: signal: killed; the job is stopped"},
		{name: "sshd killed", hit: func(t *testing.T, h *sshHosts, j *job) {
			h.kill(t, 3, func(p proc.Info) bool { return strings.HasPrefix(p.Args()[0], "sshd: ") })
		},
			code: 1, says: "host h3 is lost: its agent is gone: "},
		{name: "gorun killed", hit: func(_ *testing.T, _ *sshHosts, j *job) { j.tell(syscall.SIGKILL) }, code: -1},
		{name: "host hangs", hit: do(h.Freeze, 3), code: 1, says: "host h3 is lost: " + unheard,
			mend: do(h.Thaw, 3)},
		{name: "link down", hit: do(h.LinkDown, 3), code: 1, says: "host h3 is lost: " + unheard,
			mend: func(t *testing.T, h *sshHosts, j *job) {
				proc.Eventually(t, "the ranks of the host that is cut off to end", func() bool {
					return len(j.processes()) == 0
				})
				do(h.LinkUp, 3)(t, h, j)
			}},
		{name: "gorun's host hangs", hit: func(t *testing.T, h *sshHosts, j *job) {
			do(h.Freeze, 1)(t, h, j)
			h.left(t, j, 2, 3)
			do(h.Thaw, 1)(t, h, j)
		}, code: 1, says: "have not heard it for " + silent},
		{name: "gorun's host is cut off", hit: do(h.LinkDown, 1), code: 1,
			says: "the 2 other hosts (h2,h3) fell silent together: this host, h1, is cut off from them, and has heard none " +
				"of them for " + silent,
			mend: func(t *testing.T, h *sshHosts, j *job) {
				h.left(t, j, 2, 3)
				do(h.LinkUp, 1)(t, h, j)
			}},
		{name: "connections reset", hit: do(h.KillConnections, 3), code: 1, says: "is lost: its agent is gone: "},
		{name: "program missing", words: programs, before: run(3, "mount -t tmpfs none "+filepath.Dir(prog)),
			code: 127, says: "cannot be started: " + prog + ": no such file or directory on host h3",
			mend: run(3, "umount "+filepath.Dir(prog))},
		{name: "program of another machine", words: programs, before: run(3, "mount --bind "+foreign+" "+prog),
			code: 126, says: "cannot be started: " + prog + ": exec format error on host h3",
			mend: run(3, "umount "+prog)},
		{name: "output to a full disk", words: []string{"pour"},
			before: func(t *testing.T, h *sshHosts, j *job) {
				h.on(t, 1, "mkdir -p /run/full && mount -t tmpfs -o size=64k none /run/full")
				j.cmd.Args = slices.Insert(j.cmd.Args, slices.Index(j.cmd.Args, j.gorun), "sh", "-c",
					`exec "$0" "$@" >/run/full/out`)
			}, code: 1, says: "the output of the ranks could not be written: ", mend: run(1, "umount /run/full")},
		{name: "output-dir on a full disk", flags: []string{"--output-dir", "/run/full/out"}, words: []string{"sleep"},
			before: run(3, "mkdir -p /run/full && mount -t tmpfs -o nr_inodes=1 none /run/full"),
			code:   126, says: "no space left on device on host h3", mend: run(3, "umount /run/full; rm -r /run/full")},
		{name: "cache on a full disk", copied: true, words: []string{"sleep"},
			before: run(3, "mount -t tmpfs -o size=64k none "+h.cache), code: 126,
			says: "host h3 cannot be used: gorun of this build is not there, and \"it cannot be written to ",
			mend: run(3, "umount "+h.cache)},
		{name: "cache of another user", copied: true, words: []string{"sleep"},
			before: run(3, "mount -t tmpfs none "+h.cache+" && install -d -o 4711 "+h.cache+"/gorun"), code: 126,
			says: "is another user's", mend: run(3, "umount "+h.cache)},
		{name: "two jobs", hit: func(t *testing.T, h *sshHosts, j *job) {
			other := h.start(t, resist).ready(5)
			n := len(other.processes())
			h.kill(t, 3, j.isRank("3"))
			j.end(137)
			if left := len(other.processes()); left != n {
				t.Errorf("the other job had %d processes, and has %d", n, left)
			}
			last := h.start(t, resist).ready(5)
			last.tell(syscall.SIGKILL)
			last.end(-1)
			proc.Eventually(t, "the end of the third job", func() bool { return len(last.processes()) == 0 })
			if left := len(other.processes()); left != n {
				t.Errorf("the other job had %d processes, and has %d", n, left)
			}
			other.tell(syscall.SIGTERM)
			other.end(143)
		}, code: 137},
		// The host does not come back from these.
		{name: "host crashes", hit: do(h.Crash, 3), code: 1, says: "host h3 is lost: its agent is gone: ",
			mend: func(_ *testing.T, h *sshHosts, _ *job) { h.gone[3] = true }},
		{name: "power off", hit: do(h.PowerOff, 2), code: 1, says: "host h2 is lost: " + unheard,
			mend: func(_ *testing.T, h *sshHosts, _ *job) { h.gone[2] = true }},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, h) })
	}
}

func (c *fault) run(t *testing.T, h *sshHosts) {
	words := c.words
	if words == nil {
		words = resist
	}
	j := h.job(t, c.flags, words)
	if c.copied {
		j.gorun = proc.Alias(t, proc.Gorun(t))
		j.cmd.Path, j.cmd.Args[0] = j.gorun, j.gorun
		h.on(t, 3, "mount -t tmpfs none "+filepath.Dir(j.gorun))
	}
	if strings.Contains(c.says, silent) {
		j.cmd.Env = append(j.cmd.Env, "GORUN_PEER_TIMEOUT="+silent)
	}
	h.move(j)
	if c.before != nil {
		c.before(t, h, j)
	}
	j.start()
	at := j.started
	if c.hit != nil {
		j.ready(2*len(h.alive()) - 1)
		at = time.Now()
		c.hit(t, h, j)
		t.Logf("hit within %v", time.Since(at))
	}
	if j.cmd.ProcessState == nil {
		j.end(c.code)
	}
	j.says(c.says)
	j.took(at)
	if c.mend != nil {
		c.mend(t, h, j)
	}
	h.nothingLeft(t)
	t.Logf("and nothing was left after %v", time.Since(at))
}
