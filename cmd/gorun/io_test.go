package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

func sorted(s string) string {
	l := strings.SplitAfter(s, "\n")
	sort.Strings(l)
	return strings.Join(l, "")
}

// Lines that the ranks write in pieces come out whole, once, in order for each rank.
func TestWholeLines(t *testing.T) {
	t.Parallel()
	for _, tag := range []bool{false, true} {
		for try := 1; ; try++ {
			slow := filepath.Join(t.TempDir(), "slow")
			wrong := floodLines(t, tag, slow)
			if wrong == "" {
				break
			}
			if _, err := os.Stat(slow); err != nil || try == 10 {
				t.Fatalf("tags %v: %s", tag, wrong)
			}
		}
	}
}

// floodLines says what is wrong with the lines of a job. slow is a file that is made where a rank was held up.
func floodLines(t *testing.T, tag bool, slow string) (wrong string) {
	t.Helper()
	const n, lines = 4, 500
	args := []string{"-n", fmt.Sprint(n), "RANK", fmt.Sprintf("flood=%d,%s", lines, slow)}
	if tag {
		args = append([]string{"-l"}, args...)
	}
	j := start(t, args...).wait(0)
	next := map[string]int{}
	all := j.out.String() + dropMessages(j.err.String())
	for _, l := range strings.Split(strings.TrimSuffix(all, "\n"), "\n") {
		var me, body string
		var i int
		if tag {
			tagged, rest, _ := strings.Cut(l, "] ")
			if !strings.HasPrefix(tagged, "[") {
				return fmt.Sprintf("no tag: %q", l)
			}
			fmt.Sscan(rest, &me, &i, &body)
			if "["+me != tagged {
				return fmt.Sprintf("wrong tag: %q", l)
			}
			l = rest
		} else {
			fmt.Sscan(l, &me, &i, &body)
		}
		if l != fmt.Sprintf("%s %d %s end", me, i, strings.Repeat(me, 50)) {
			return fmt.Sprintf("torn: %q", l)
		}
		key := me + fmt.Sprint(i%2)
		if i != next[key]*2+i%2 {
			return fmt.Sprintf("line %d of rank %s came when %d was due", i, me, next[key]*2+i%2)
		}
		next[key]++
	}
	if len(next) != 2*n {
		return fmt.Sprintf("streams: %v", next)
	}
	for key, k := range next {
		if k != lines/2 {
			return fmt.Sprintf("stream %s has %d lines", key, k)
		}
	}
	return ""
}

func dropMessages(s string) string {
	return regexp.MustCompile(`(?m)^gorun: .*\n`).ReplaceAllString(s, "")
}

func TestTagsWithoutNewline(t *testing.T) {
	t.Parallel()
	j := start(t, "-n", "2", "--tag-output", "RANK", "prompt=half", "0:prompt= more")
	j.wait(0)
	if got := sorted(j.out.String()); got != "[0] half more\n[1] half\n" {
		t.Errorf("output %q", got)
	}
	start(t, "-n", "1", "-l", "RANK", "print=one").wait(0).prints("[0] one\n")
}

// A prompt is seen while its rank waits for the answer.
func TestPrompt(t *testing.T) {
	t.Parallel()
	j := start(t, "-n", "2", "RANK", "0:prompt=name? ", "sleep0")
	j.wait(99)
	j = prepare(t, "-n", "2", "RANK", "0:prompt=name? ", "0:line")
	in, err := j.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	j.start()
	proc.Eventually(t, "the prompt", func() bool { return strings.Contains(j.out.String(), "name? ") })
	fmt.Fprintln(in, "rosa")
	j.wait(0).prints("name? read rosa\n")
}

func TestStdin(t *testing.T) {
	t.Parallel()
	const text = "one\ntwo\n"
	for _, c := range []struct {
		args string
		want string
	}{
		{"", "[0] one\n[0] two\n"},
		{"--stdin 0", "[0] one\n[0] two\n"},
		{"--stdin 2", "[2] one\n[2] two\n"},
		{"--stdin none", ""},
		{"--stdin all", "[0] one\n[0] two\n[1] one\n[1] two\n[2] one\n[2] two\n"},
	} {
		// A pipe, and a file that is read by the rank itself.
		for _, file := range []bool{false, true} {
			j := prepare(t, append(strings.Fields("-n 3 -l "+c.args), "RANK", "cat")...)
			if file {
				name := filepath.Join(t.TempDir(), "in")
				os.WriteFile(name, []byte(text), 0o600)
				f, err := os.Open(name)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				j.cmd.Stdin = f
			} else {
				j.cmd.Stdin = strings.NewReader(text)
			}
			j.start().wait(0)
			if got := sorted(j.out.String()); got != c.want {
				t.Errorf("%s (file %v): %q, want %q", c.args, file, got, c.want)
			}
		}
	}
	start(t, "-n", "3", "--stdin", "3", "RANK").wait(2).says("--stdin 3", "none, all, or a rank from 0 to 2")
	start(t, "-n", "3", "--stdin", "x", "RANK").wait(2).says("--stdin x")
}

// A rank that does not read its input keeps no other from it, and gets all of it when it does read.
func TestStdinSlowRank(t *testing.T) {
	t.Parallel()
	const size = 4 << 20 // many times what a pipe holds
	flag := filepath.Join(t.TempDir(), "read")
	j := prepare(t, "-n", "3", "--stdin", "all", "sh", "-c",
		`if test $PMI_RANK = 1; then until test -e "$0"; do sleep 0.05; done; fi; echo "$PMI_RANK $(wc -c)"`, flag)
	j.cmd.Stdin = strings.NewReader(strings.Repeat("0123456\n", size/8))
	j.start()
	proc.Eventually(t, "the other ranks to have all", func() bool { return strings.Count(j.out.String(), "\n") == 2 })
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	j.wait(0).printsLines(fmt.Sprint("0 ", size), fmt.Sprint("1 ", size), fmt.Sprint("2 ", size))
	// One that never reads does not keep the job either.
	j = prepare(t, "-n", "2", "--stdin", "all", "sh", "-c", "test $PMI_RANK = 1 || wc -c")
	j.cmd.Stdin = strings.NewReader(strings.Repeat("0123456\n", size/8))
	j.start().wait(0).prints(fmt.Sprint(size, "\n"))
}

// Where no rank reads, gorun neither waits for input nor takes what is there.
func TestStdinIsLeftAlone(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	fmt.Fprint(w, "for the next command\n")
	for _, mode := range []string{"0", "none"} {
		j := prepare(t, "-n", "2", "--stdin", mode, "RANK", "exit=0")
		j.cmd.Stdin = r
		j.start().wait(0)
	}
	r.SetReadDeadline(time.Now().Add(tooLong))
	b := make([]byte, 100)
	if n, err := r.Read(b); string(b[:n]) != "for the next command\n" {
		t.Errorf("left in the pipe: %q %v", b[:n], err)
	}
	// An input that never ends does not keep gorun, nor do ranks that do not read it.
	j := prepare(t, "-n", "2", "--stdin", "all", "RANK", "exit=0")
	j.cmd.Stdin = r
	j.start().wait(0)
}

func TestNoStdin(t *testing.T) {
	t.Parallel()
	j := prepare(t, "-n", "2", "sh", "-c", "cat; echo end")
	j.cmd.Args = append([]string{"sh", "-c", `exec "$0" "$@" <&-`, j.cmd.Path}, j.cmd.Args[1:]...)
	j.cmd.Path = "/bin/sh"
	j.start().wait(0).prints("end\nend\n")
}

func TestOutputDir(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "out")
	start(t, "-n", "3", "--output-dir", dir, "RANK", "join", "print=hello", "1:complain=ouch", "fence", "1:exit=3",
		"finalize").wait(3).prints("")
	for name, want := range map[string]string{
		"rank.0.out": "hello\n", "rank.1.out": "hello\n", "rank.2.out": "hello\n",
		"rank.0.err": "", "rank.1.err": "ouch\n",
	} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); string(b) != want {
			t.Errorf("%s: %q %v", name, b, err)
		}
	}
	for _, no := range []string{"/dev/null/x", "/proc/x"} {
		start(t, "-n", "2", "--output-dir", no, "RANK").wait(126).says("--output-dir")
	}
}

// A line without end does not fill the memory, and arrives in full.
func TestEndlessLine(t *testing.T) {
	t.Parallel()
	j := start(t, "-n", "2", "--stdin", "none", "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' "+`"$PMI_RANK"`)
	j.wait(0)
	n0, n1 := strings.Count(j.out.String(), "0"), strings.Count(j.out.String(), "1")
	if n0 != 3000000 || n1 != 3000000 {
		t.Errorf("%d and %d bytes came", n0, n1)
	}
}

// An error that all ranks write alike is shown once, with the ranks.
func TestSameError(t *testing.T) {
	t.Parallel()
	const text = "Init: a bad setting\nand what to do\n"
	said := regexp.MustCompile(`(?m)^gorun: ranks \S+ wrote the same to standard error as rank \d$`)
	// meet is a command of a shell: the ranks go on when all have come so far.
	meet := func() string {
		return fmt.Sprintf(`touch %[1]s/$PMI_RANK; until test -e %[1]s/0 -a -e %[1]s/1 -a -e %[1]s/2 -a -e %[1]s/3; `+
			`do sleep 0.01; done; `, t.TempDir())
	}
	for _, tag := range []bool{false, true} {
		for try := range 10 { // a rank that is held up between its words and its end is shown after all
			args := []string{"-n", "4", "sh", "-c", meet() + "printf '" + text + "' >&2; exit 3"}
			if tag {
				args = append([]string{"-l"}, args...)
			}
			j := start(t, args...).wait(3)
			shown := strings.Count(j.err.String(), "a bad setting\n")
			if shown < 1 {
				t.Fatalf("tag %v: not shown:\n%s", tag, j.err.String())
			}
			whole := shown == strings.Count(j.err.String(), "and what to do\n")
			if whole && shown == 1 && len(said.FindAllString(j.err.String(), -1)) == 1 {
				break
			}
			if try == 9 {
				t.Errorf("tag %v: the error is shown %d times:\n%s", tag, shown, j.err.String())
			}
		}
	}
	// What differs in the end is shown in full.
	j := start(t, "-n", "4", "sh", "-c", "echo same >&2; echo rank $PMI_RANK >&2; "+meet()+"exit 3").wait(3)
	all := j.err.String()
	if n := strings.Count(all, "same\n"); n != 4 || n != strings.Count(all, "\nrank ") || said.MatchString(all) {
		t.Errorf("shown %d times:\n%s", n, all)
	}
	// So is everything of a job that does not fail, in the order of each rank.
	j = start(t, "-n", "4", "-l", "sh", "-c", "echo same >&2; echo $PMI_RANK >&2; echo same >&2; echo end >&2").wait(0)
	for rank := range 4 {
		own := regexp.MustCompile(fmt.Sprintf(`(?m)^\[%d\] .*\n`, rank)).FindAllString(j.err.String(), -1)
		want := fmt.Sprintf("[%[1]d] same\n[%[1]d] %[1]d\n[%[1]d] same\n[%[1]d] end\n", rank)
		if got := strings.Join(own, ""); got != want {
			t.Errorf("rank %d: %q, want %q", rank, got, want)
		}
	}
}
