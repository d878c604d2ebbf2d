package stdio

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

// collect pumps what write writes through a stream.
func collect(t *testing.T, tag string, write func(w *os.File, s *stream)) string {
	t.Helper()
	near, far, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var out proc.Buffer
	var ending atomic.Bool
	s := &stream{from: near, to: NewOutlet(&out, false, nil), done: make(chan struct{}), tag: tag,
		ending: &ending}
	go func() { s.pump(); s.to.Flush() }()
	write(far, s)
	far.Close()
	select {
	case <-s.to.done:
	case <-time.After(time.Minute):
		t.Fatal("the stream does not end")
	}
	return out.String()
}

func TestStream(t *testing.T) {
	print := func(parts ...string) func(*os.File, *stream) {
		return func(w *os.File, _ *stream) {
			for _, p := range parts {
				io.WriteString(w, p)
			}
		}
	}
	for _, c := range []struct {
		tag   string
		parts []string
		want  string
	}{
		{"", []string{"a\nb\n"}, "a\nb\n"},
		{"", []string{"a\nb"}, "a\nb"},
		{"[1] ", []string{"a\nb\n"}, "[1] a\n[1] b\n"},
		{"[1] ", []string{"a\nb"}, "[1] a\n[1] b\n"},
		{"[1] ", []string{"\n\n"}, "[1] \n[1] \n"},
		{"[1] ", []string{"half", " line\nnext"}, "[1] half line\n[1] next\n"},
		{"[1] ", nil, ""},
		{"[1] ", []string{"\x00\xff\r\n"}, "[1] \x00\xff\r\n"},
		{"", []string{"\r10%\r20%", "\rdone\n"}, "\r10%\r20%\rdone\n"},
		{"[1] ", []string{"\r10%\r20%", "\rdone\n"}, "[1] 10%\n[1] 20%\n[1] done\n"},
		{"[1] ", []string{"10%\r", "20%\r", "\n\nx"}, "[1] 10%\n[1] 20%\r\n[1] \n[1] x\n"},
	} {
		if got := collect(t, c.tag, print(c.parts...)); got != c.want {
			t.Errorf("%q with tag %q: %q, want %q", c.parts, c.tag, got, c.want)
		}
	}
	long := strings.Repeat("x", maxLine+1000)
	if got := collect(t, "", print(long, "\n")); got != long+"\n" {
		t.Errorf("a long line came as %d bytes", len(got))
	}
	for _, end := range []string{"", "\n", "\nnext", "\nnext\n"} {
		checkLong(t, long, end, collect(t, "[1] ", print(long, end)))
	}
}

// checkLong expects a line that is too long for one write in pieces, each of them a whole line with its tag, and after
// it nothing but what was written.
func checkLong(t *testing.T, long, end, got string) {
	t.Helper()
	all := ""
	for l := range strings.Lines(got) {
		body, tagged := strings.CutPrefix(l, "[1] ")
		body, whole := strings.CutSuffix(body, "\n")
		if !tagged || !whole || body == "" {
			t.Errorf("with end %q a piece is %.20q… (%d bytes)", end, l, len(l))
		}
		all += body
	}
	if want := long + strings.ReplaceAll(end, "\n", ""); all != want {
		t.Errorf("with end %q a tagged line came as %d bytes, want %d", end, len(all), len(want))
	}
	if strings.Contains(end, "next") && !strings.HasSuffix(got, "\n[1] next\n") {
		t.Errorf("with end %q the next line is %.30q…", end, got[len(got)-30:])
	}
}

// What stands on a line that goes on and on, such as a progress bar, is shown while it does.
func TestStreamProgress(t *testing.T) {
	for _, tag := range []string{"", "[1] "} {
		for _, bar := range []string{"\r%d%%", "%d%%\r"} {
			t.Run(fmt.Sprintf("%q %q", tag, bar), func(t *testing.T) {
				t.Parallel() // all of them wait
				near, far, err := os.Pipe()
				if err != nil {
					t.Fatal(err)
				}
				var out proc.Buffer
				var ending atomic.Bool
				s := &stream{from: near, to: NewOutlet(&out, false, nil), done: make(chan struct{}), tag: tag,
					ending: &ending}
				go s.pump()
				defer func() {
					far.Close()
					<-s.done
					s.to.Flush()
				}()
				i := 0
				proc.Eventually(t, "the bar", func() bool {
					fmt.Fprintf(far, bar, min(i, 7)) // after which no line ends
					i++
					time.Sleep(10 * time.Millisecond)
					return strings.Contains(out.String(), "7%")
				})
			})
		}
	}
}

// A line whose end came while the machine stood still is not torn.
func TestStreamAfterStandstill(t *testing.T) {
	near, far, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(far, "of it\n")
	far.Close()
	var out proc.Buffer
	var ending atomic.Bool
	s := &stream{from: near, to: NewOutlet(&out, false, nil), done: make(chan struct{}), tag: "[1] ",
		ending: &ending, line: []byte("half "), update: true, since: time.Now().Add(-time.Hour)}
	s.pump()
	s.to.Flush()
	if got := out.String(); got != "[1] half of it\n" {
		t.Errorf("%q", got)
	}
}

// A stream whose other end another process keeps open ends when end is called, and what is in it comes out first, also
// where the machine stands still until the time for it is over.
func TestStreamGivenUp(t *testing.T) {
	defer func(d time.Duration) { quiet = d }(quiet)
	for _, quiet = range []time.Duration{quiet, -time.Second} {
		var keep int
		got := collect(t, "", func(w *os.File, s *stream) {
			keep, _ = syscall.Dup(int(w.Fd()))
			io.WriteString(w, "last words\nand half")
			s.ending.Store(true)
			s.end()
		})
		syscall.Close(keep)
		if got != "last words\nand half" {
			t.Errorf("silent for %v: %q", quiet, got)
		}
	}
}
