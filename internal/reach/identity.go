package reach

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
)

// Word is the argument that makes gorun an agent. The identity of the build that is wanted follows it.
const Word = "__agent"

// Examine is the duty of an agent that starts no ranks: it answers gorun doctor.
const Examine = "examine"

// otherBuild is the exit code of an agent that is another build than was asked for.
const otherBuild = 93

// Self is this program.
type Self struct {
	Path    string
	Build   string // tells it from all other builds
	duty    string // of the agents that it makes; "": ranks
	dynamic string // the loader that it needs; "": none
	size    int64
}

// Me reads what is known of this program.
var Me = sync.OnceValues(func() (*Self, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	f, err := os.Open("/proc/self/exe") // the path may name another file by now
	if err != nil {
		if f, err = os.Open(path); err != nil {
			return nil, err
		}
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	s := &Self{Path: path, size: st.Size()}
	if s.Build, s.dynamic = inELF(f); s.Build != "" {
		return s, nil
	}
	h := sha256.New()
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	if _, err := io.Copy(h, f); err != nil {
		return nil, err
	}
	s.Build = hex.EncodeToString(h.Sum(nil)[:16])
	return s, nil
})

// For is this program as agents with a duty.
func (s Self) For(duty string) *Self {
	s.duty = duty
	return &s
}

// words are those after the path that make it an agent. dial: Dialling, or nothing.
func (s *Self) words(dial ...string) []string {
	words := append([]string{Word, s.Build}, dial...)
	if s.duty != "" {
		words = append(words, s.duty)
	}
	return words
}

// Copied says why this program is not sent to hosts that have no gorun of its build; nil: it is.
func (s *Self) Copied() error {
	if s.dynamic != "" {
		return fmt.Errorf("it is dynamically linked (%s); build it with CGO_ENABLED=0, and jobs copy it", s.dynamic)
	}
	return nil
}

// inELF returns a hash of Go's build id, which is different for all contents, and the loader that the program names.
func inELF(f io.ReaderAt) (build, loader string) {
	e, err := elf.NewFile(f)
	if err != nil {
		return "", ""
	}
	for _, p := range e.Progs {
		if p.Type == elf.PT_INTERP {
			text, _ := io.ReadAll(io.LimitReader(p.Open(), 4096))
			loader = string(bytes.TrimRight(text, "\x00"))
		}
	}
	section := e.Section(".note.go.buildid")
	if section == nil || section.Size > 4096 {
		return "", loader
	}
	note, err := section.Data()
	if err != nil || len(note) < 32 { // its own header and an id of some length
		return "", loader
	}
	sum := sha256.Sum256(note)
	return hex.EncodeToString(sum[:16]), loader
}

// CheckBuild ends this process if it is another build than the one that is wanted.
func CheckBuild(want string) {
	if me, err := Me(); err != nil || me.Build != want {
		os.Exit(otherBuild)
	}
}

// kernel is what uname -sm says where this program can run; "": it is not known.
func kernel() string {
	if runtime.GOOS != "linux" {
		return ""
	}
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64", "riscv64": "riscv64", "ppc64le": "ppc64le",
		"s390x": "s390x"}[runtime.GOARCH]
	return "Linux " + machine
}

// copyTo sends this program, unless it would not run there.
func (s *Self) copyTo(w io.Writer, there string) error {
	missing := "has no gorun of this build at " + s.Path
	switch {
	case s.dynamic != "":
		return fmt.Errorf("it %s, and this one is not copied: it is dynamically linked (%s); install it there, or "+
			"build it with CGO_ENABLED=0", missing, s.dynamic)
	case there != kernel():
		return fmt.Errorf("it %s, and this one does not run there: it is for %s, and the host is %.60q; leave "+
			"the host out, since the hosts of a job are of one system and architecture", missing, kernel(), there)
	}
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := io.Copy(w, f)
	if err == nil && n != s.size {
		err = errors.New("the program changed while it was copied")
	}
	return err
}
