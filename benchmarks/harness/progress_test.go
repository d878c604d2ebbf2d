package harness

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"
)

// at is a run of two sizes that began so long ago and now measures the second.
func at(out *bytes.Buffer, first, second time.Duration, now time.Time) *progress {
	o := Options{Small: Rounds{Iterations: 100}, Large: Rounds{Iterations: 100}}
	p := startProgress(out, []int64{1, 1 << 20}, o)
	p.start = now.Add(-first - second)
	p.done = p.weight[1]
	p.key, p.began = 1<<20, now.Add(-second)
	return p
}

func TestProgressLine(t *testing.T) {
	var out bytes.Buffer
	now := time.Now()
	p := at(&out, time.Second, 100*time.Second, now)
	p.show(now)
	line := regexp.MustCompile("^\r\x1b\\[K( *\\d+% 1048576, \\d+ (s|min) left)\r$").FindStringSubmatch(out.String())
	if line == nil || len(line[1]) > progressWidth {
		t.Fatalf("%q", out.String())
	}
	out.Reset()
	p.erase()
	if out.String() != "\r\x1b[K" {
		t.Errorf("erased by %q", out.String())
	}
	out.Reset()
	p.show(now) // between two sizes: a line of the table is about to be printed
	if out.Len() > 0 {
		t.Errorf("between two sizes: %q", out.String())
	}
}

func TestShortRunsShowNoProgress(t *testing.T) {
	var out bytes.Buffer
	now := time.Now()
	p := at(&out, time.Second, 900*time.Millisecond, now)
	p.show(now)
	p.erase()
	if out.Len() > 0 {
		t.Errorf("%q", out.String())
	}
	p.key, p.began = 1<<20, now
	p.show(now.Add(200 * time.Millisecond))
	if out.Len() == 0 {
		t.Error("nothing after more than two seconds")
	}
}

// However long a size takes, it is not done before it is.
func TestProgressNeverComplete(t *testing.T) {
	var out bytes.Buffer
	now := time.Now()
	at(&out, time.Millisecond, time.Hour, now).show(now)
	if strings.Contains(out.String(), "100%") {
		t.Errorf("%q", out.String())
	}
}

func TestProgressOfNobody(t *testing.T) {
	var p *progress
	p.begin(1)
	p.erase()
	p.end()
}

func TestProgressLeavesNothing(t *testing.T) {
	var out bytes.Buffer
	p := startProgress(&out, []int64{1}, Options{})
	p.start = time.Now().Add(-time.Minute)
	p.begin(1)
	p.show(time.Now())
	go p.tick()
	p.end()
	if !strings.HasSuffix(out.String(), "\r\x1b[K") {
		t.Errorf("%q", out.String())
	}
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 s", 1: "1 s", 59 * time.Second: "59 s", 61 * time.Second: "2 min", 3 * time.Hour: "3 h",
	} {
		if got := short(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
