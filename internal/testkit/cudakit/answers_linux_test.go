package cudakit

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/softlib"
)

// asked are the sections of h100.txt whose questions answers.c puts again. Of init-cold it asks a part.
var asked = []string{"attr", "ptr", "noctx", "reuse", "ipc/A", "ipc/B", "vmm/A", "vmm/B", "dmabuf", "touch", "hostreg",
	"ipcdeath/A", "ipcdeath/B", "managed"}

// notAsked are lines of these sections that are no answers, or not this program's.
var notAsked = regexp.MustCompile(strings.Join([]string{
	`: == end: `,
	`^hostreg: anon (SHARED|private) 1 GiB`, // as 64 MiB, which takes less time and memory
}, "|"))

// TestAnswers asks the software GPU what a probe has asked an H100, and compares the answers, not the times.
func TestAnswers(t *testing.T) {
	Build(t) // skips, before anything else is built
	program := filepath.Join(t.TempDir(), "answers")
	library.CompileCases(t, "answers", program)
	printed := softlib.Printed(t, Env(t, "SOFTCUDA_PCI=0000:00:06.0"), program, t.TempDir())
	want, got := sections(softlib.Text(t, "testdata/h100.txt")), sections(printed)
	if onTmpfs(t.TempDir()) { // there is no file on a disk to ask about
		for _, s := range []map[string][]string{want, got} {
			s["hostreg"] = slices.DeleteFunc(s["hostreg"], func(l string) bool { return strings.Contains(l, "/tmp disk file") })
		}
	}
	for _, name := range asked {
		if len(want[name]) == 0 {
			t.Errorf("h100.txt has no answers to %s", name)
		}
		compare(t, name, got[name], want[name])
	}
	for _, line := range got["init-cold"] {
		if !slices.Contains(want["init-cold"], line) {
			t.Errorf("not an answer of the H100: %s", line)
		}
	}
	if n := len(got["init-cold"]); n < 8 {
		t.Errorf("%d answers to init-cold\n%s", n, printed)
	}
}

func compare(t *testing.T, section string, got, want []string) {
	for i := range max(len(got), len(want)) {
		g, w := "(nothing)", "(nothing)"
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("%s, answer %d:\n%s\nthe H100 answered\n%s", section, i, g, w)
		}
	}
}

// sections returns the lines that are answers, by what stands before the first colon.
func sections(text string) map[string][]string {
	lines := map[string][]string{}
	for line := range strings.Lines(text) {
		name, _, ok := strings.Cut(line, ":")
		if ok && !notAsked.MatchString(line) {
			lines[name] = append(lines[name], fact(line))
		}
	}
	return lines
}

var (
	times     = regexp.MustCompile(`; ns a call: .*| \d+\.\d+( (us|ms|s)\b)?`)
	numbers   = regexp.MustCompile(`\bid [1-9]\d*`)
	addresses = regexp.MustCompile(`0x[0-9a-f]{9,12}\b`)
	areas     = regexp.MustCompile(`[0-9a-f]{8,12}-[0-9a-f]{8,12}`)
	twoIDs    = regexp.MustCompile(`BUFFER_ID (\d+) then (\d+)`)
	// The probe printed base and size before it had asked.
	interior  = regexp.MustCompile(`ok: base (WRONG size 0|right size \d+);`)
	elsewhere = regexp.MustCompile(`exporter's address \w+, here \w+`)
	devices   = regexp.MustCompile(`fd -> /(dev/nvidiactl|memfd:softcuda\S*)`)
	dmabufs   = regexp.MustCompile(`fd -> /(dmabuf:|memfd:dmabuf:softcuda:[0-9:]+), mmap (Unknown error 524|Operation not permitted)`)
)

// fact is what a line says apart from times, addresses and the numbers of allocations. An address becomes a letter, so
// that those that are equal stay equal.
func fact(line string) string {
	line = times.ReplaceAllString(strings.TrimSpace(line), "")
	line = elsewhere.ReplaceAllString(line, "exporter's address, here")
	line = interior.ReplaceAllString(line, "ok;")
	line = numbers.ReplaceAllString(line, "id N")
	line = areas.ReplaceAllString(line, "AREA")
	line = devices.ReplaceAllString(line, "fd -> memory")
	line = dmabufs.ReplaceAllString(line, "fd -> dma-buf that the CPU cannot map")
	if ids := twoIDs.FindStringSubmatch(line); ids != nil {
		line = strings.Replace(line, ids[0], map[bool]string{true: "BUFFER_ID same", false: "BUFFER_ID other"}[ids[1] == ids[2]], 1)
	}
	var seen []string
	line = addresses.ReplaceAllStringFunc(line, func(a string) string {
		if !slices.Contains(seen, a) {
			seen = append(seen, a)
		}
		return "ADDRESS" + string(rune('A'+slices.Index(seen, a)))
	})
	return strings.TrimSuffix(strings.Join(strings.Fields(line), " "), ",")
}

func TestFact(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"ipc/B: 2 MiB: open ok 85.4 us; second open ok 0.4 us, same pointer",
			"ipc/B: 2 MiB: open ok; second open ok, same pointer"},
		{"x: addr 0x7fc11c800309 id 929 start 0x7fc11c800000 devptr 0x7fc11c800309 data 0x1111111111111111",
			"x: addr ADDRESSA id N start ADDRESSB devptr ADDRESSA data 0x1111111111111111"},
		{"x: id 0 BUFFER_ID 927 then 927", "x: id 0 BUFFER_ID same"},
	} {
		if got := fact(c.line); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func onTmpfs(dir string) bool {
	var s syscall.Statfs_t
	return syscall.Statfs(dir, &s) == nil && s.Type == 0x01021994
}
